"""Fed-GLB-UCB in plain numpy, one client after the other; every client answers with its own sum."""

import math
from types import SimpleNamespace

import numpy as np
from scipy.special import expit

MEAN = {"identity": lambda z: z, "logistic": expit}
SLOPES = {"identity": (1.0, 1.0), "logistic": (0.1, 0.25)}  # c_μ and the bound on μ'


def plain_descent(data, start, lam, clients, link):
    """Accelerated gradient descent with restart; each client answers with its own sum. Returns θ and rounds."""
    n, d = sum(len(own) for own in data), len(start)
    gram = sum((np.outer(x, x) for own in data for x, _ in own), np.zeros((d, d)))
    smooth = (SLOPES[link][1] * np.linalg.eigvalsh(gram)[-1] + lam) / n
    theta, ahead, weight, rounds = start, start, 1.0, 0
    while True:
        rounds += 1
        gradient = lam * ahead
        for own in data:
            for x, y in own:
                gradient = gradient + x * (MEAN[link](x @ ahead) - y)
        gradient = gradient / n
        # suboptimality ≤ |gradient|²/(2λ/n) ≤ 1/(Nt)²
        if gradient @ gradient / (2 * lam / n) <= 1 / (clients * n) ** 2:
            return ahead, rounds
        new = ahead - gradient / smooth
        if gradient @ (new - theta) > 0:
            weight = 1.0
        following = (1 + math.sqrt(1 + 4 * weight**2)) / 2
        ahead = new + (weight - 1) / following * (new - theta)
        theta, weight = new, following


def plain_fed_glb_ucb(arms, reward_of, clients, steps, lam, beta, gamma, link):
    """One client after the other. The descent starts at the last fit, as the server knows no client's own θ."""
    d = arms.shape[1]
    eye, zero = np.eye(d), np.zeros((d, d))
    a, b, theta = [lam * eye] * clients, [np.zeros(d)] * clients, [np.zeros(d)] * clients
    new_a, new, data = [zero] * clients, [0] * clients, [[] for _ in range(clients)]
    server_a, found = lam * eye, np.zeros(d)
    out = SimpleNamespace(arm=[], sync=[], up=[], down=[])
    for t in range(steps):
        i = t % clients
        inverse = np.linalg.inv(a[i])
        arm = int(np.argmax([x @ inverse @ b[i] + np.sqrt(beta * (x @ inverse @ x)) for x in arms]))
        x, y = arms[arm], reward_of(arm, t)
        a[i], b[i] = a[i] + np.outer(x, x), b[i] + x * (x @ theta[i])
        theta[i] = theta[i] - np.linalg.solve(a[i], x) * (MEAN[link](x @ theta[i]) - y) / SLOPES[link][0]
        new_a[i], new[i] = new_a[i] + np.outer(x, x), new[i] + 1
        data[i].append((x, y))
        fired = bool(new[i] * np.log(np.linalg.det(a[i]) / np.linalg.det(a[i] - new_a[i])) > gamma)
        up = down = 0
        if fired:
            for j in range(clients):
                up += d * d
                server_a = server_a + new_a[j]
            found, rounds = plain_descent(data, found, lam, clients, link)
            up, down = up + rounds * clients * d, down + rounds * clients * d
            server_b = (server_a - lam * eye) @ found
            for j in range(clients):
                down += server_a.size + server_b.size + found.size
                a[j], b[j], theta[j], new_a[j], new[j] = server_a, server_b, found, zero, 0
        for name, value in (("arm", arm), ("sync", fired), ("up", up), ("down", down)):
            getattr(out, name).append(value)
    return out
