"""A surrogate in epochs: one run, one client after the other, the K × K covariance written out."""

import math
from types import SimpleNamespace

import numpy as np


def conditioned(mean, covariance, arm, y, sigma):
    """After one more reward of ``arm``."""
    gain = covariance[arm] / (covariance[arm, arm] + sigma**2)
    return mean + gain * (y - mean[arm]), covariance - np.outer(gain, covariance[arm])


def play(fit, first, reward_of, clients, steps, sigma, kappa, until, ties, untried=None):
    """``until`` is (factor, least), and ``untried`` the κ of arms that nobody has pulled.

    ``ties`` (K,): the places of the arms in the order of ties of a plan.
    """
    arms = len(ties)
    server_n, server_s = np.zeros(arms), np.zeros(arms)
    for arm, y in first:
        server_n[arm] += 1
        server_s[arm] += y
    out = SimpleNamespace(arm=[], up=[], down=[], sync=[])
    syncs, fresh = 0, None
    for t in range(steps):
        i = t % clients
        if fresh is None:
            fresh = [SimpleNamespace(n=np.zeros(arms), s=np.zeros(arms)) for _ in range(clients)]
            mean, covariance = fit(server_n, server_s)
            taken, begun_with = 0, server_n.sum()
        widths = np.where(server_n > 0, kappa, kappa if untried is None else untried)
        index = mean + widths * np.sqrt(np.clip(covariance.diagonal(), 0, None))
        best = index.max()
        arm = max(
            (x for x in range(arms) if index[x] >= best - 1e-9 * max(1, abs(best))), key=ties.__getitem__
        )
        y = reward_of(arm, t)
        fresh[i].n[arm] += 1
        fresh[i].s[arm] += y
        taken += 1
        # as if its mean were observed
        covariance = conditioned(mean, covariance, arm, mean[arm], sigma)[1]
        fired = taken == max(math.ceil(begun_with * (until[0] - 1)), until[1])
        up = down = 0
        if fired:
            everybody = sum(c.n for c in fresh)
            for c in fresh:
                up += int((c.n > 0).sum())
                server_n, server_s = server_n + c.n, server_s + c.s
            down = clients * int((everybody > 0).sum())
            syncs, fresh = syncs + 1, None
        for name, value in zip(("arm", "up", "down", "sync"), (arm, up, down, fired), strict=True):
            getattr(out, name).append(value)
    return out
