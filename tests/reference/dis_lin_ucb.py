"""DisLinUCB in plain numpy, one client after the other."""

import math
from types import SimpleNamespace

import numpy as np


def plain_dis_lin_ucb(arms, reward_of, clients, steps, settings):
    """One client after the other."""
    lam, beta, gamma = settings.lam, settings.beta, settings.gamma
    d = arms.shape[1]
    a, b = [lam * np.eye(d)] * clients, [np.zeros(d)] * clients
    new_a, new_b, new = [np.zeros((d, d))] * clients, [np.zeros(d)] * clients, [0] * clients
    server_a, server_b = lam * np.eye(d), np.zeros(d)
    out = SimpleNamespace(arm=[], sync=[], up=[], down=[])
    for t in range(steps):
        i = t % clients
        inverse = np.linalg.inv(a[i])
        theta = inverse @ b[i]
        index = [x @ theta + math.sqrt(beta) * np.sqrt(x @ inverse @ x) for x in arms]
        arm = int(np.argmax(index))
        x, y = arms[arm], reward_of(arm, t)
        a[i], b[i] = a[i] + np.outer(x, x), b[i] + y * x
        new_a[i], new_b[i], new[i] = new_a[i] + np.outer(x, x), new_b[i] + y * x, new[i] + 1
        fired = bool(new[i] * np.log(np.linalg.det(a[i]) / np.linalg.det(a[i] - new_a[i])) > gamma)
        up = down = 0
        if fired:
            for j in range(clients):
                up += new_a[j].size + new_b[j].size
                server_a, server_b = server_a + new_a[j], server_b + new_b[j]
            for j in range(clients):
                down += server_a.size + server_b.size
                a[j], b[j] = server_a, server_b
                new_a[j], new_b[j], new[j] = np.zeros((d, d)), np.zeros(d), 0
        for name, value in (("arm", arm), ("sync", fired), ("up", up), ("down", down)):
            getattr(out, name).append(value)
    return out
