"""ApproxDisKernelUCB in plain numpy, one client after the other, every posterior from scratch."""

from types import SimpleNamespace

import numpy as np
import torch


def plain_posterior(kernel, members, counts, sums, lam):
    """Mean and σ² of all arms in the features K_ZZ^{-1/2}k_Z, dense."""
    if not len(members):
        return np.zeros(len(kernel)), np.full(len(kernel), 1 / lam)
    values, vectors = np.linalg.eigh(kernel[np.ix_(members, members)])
    phi = kernel[:, members] @ vectors @ np.diag(values**-0.5) @ vectors.T
    a = lam * np.eye(len(members)) + sum(n * np.outer(p, p) for n, p in zip(counts, phi, strict=True))
    mean = phi @ np.linalg.solve(a, sums @ phi)
    rest = np.diag(kernel) - (phi * phi).sum(1)
    return mean, rest / lam + (phi * np.linalg.solve(a, phi.T).T).sum(1)


def plain_kernel_ucb(problem, row, reward_of, clients, steps, settings, lengthscale, oversampling):
    """One client after the other; every posterior from scratch."""
    x = problem.arms[row].numpy()
    (arms, d_x), lam = x.shape, settings.lam
    kernel = np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / (2 * lengthscale**2))
    (source,) = problem.only(row).generators("order of ties")
    order = torch.rand(clients, arms, generator=source, dtype=torch.float64).numpy()
    own = [(np.zeros(arms), np.zeros(arms)) for _ in range(clients)]
    shared = (np.zeros(arms), np.zeros(arms))  # all data at the last synchronisation
    kept = [(np.zeros(arms), np.zeros(arms)) for _ in range(clients)]  # own data at the last synchronisation
    members, spent = np.array([], dtype=int), [0.0] * clients
    before = np.full(arms, 1 / lam)
    out = SimpleNamespace(arm=[], sync=[], up=[], down=[])

    def posterior(j):
        counts, sums = (s + o - k for s, o, k in zip(shared, own[j], kept[j], strict=True))
        return plain_posterior(kernel, members, counts, sums, lam)

    for t in range(steps):
        i = t % clients
        mean, variance = posterior(i)
        arm = int(np.argmax(mean + np.sqrt(settings.beta * variance) + 1e-9 * order[i]))
        y, hit = reward_of(arm, t), np.eye(arms)[arm]
        own[i] = (own[i][0] + hit, own[i][1] + y * hit)
        spent[i] += before[arm]
        fired, up, down = bool(spent[i] > settings.gamma), 0, 0
        if fired:
            (source,) = problem.only(row).generators(f"dictionary at {t}")
            uniform = torch.rand(clients, arms, generator=source, dtype=torch.float64).numpy()
            chosen = set()
            for j in range(clients):
                variance = posterior(j)[1]
                for k in range(arms):
                    keep = 1.0
                    for _ in range(int(own[j][0][k])):
                        keep *= 1 - min(1.0, oversampling * variance[k])
                    if uniform[j, k] < 1 - keep:
                        chosen.add(k)
                        up += d_x
            members = np.array(sorted(chosen), dtype=int)
            m = len(members)
            for _ in range(clients):
                down += m * d_x
                up += m * m + m
                down += m * m + m
            shared = tuple(sum(parts) for parts in zip(*own, strict=True))
            kept, spent = list(own), [0.0] * clients
            before = posterior(0)[1]
        for name, value in (("arm", arm), ("sync", fired), ("up", up), ("down", down)):
            getattr(out, name).append(value)
    return out
