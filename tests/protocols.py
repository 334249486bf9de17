"""Phase II as the analysis sees it, in plain numpy: what each client knows when, widths, log-ratios, epochs.

One run, one client after the other, any choice of arms and any features; no rewards, since none enters here.
"""

from types import SimpleNamespace

import numpy as np


def kernel_widths(kernel, counts):
    """w_x² = ((Q⁻¹ + diag n)⁻¹)_xx for any positive semi-definite Q, without inverting it."""
    root = np.sqrt(counts)
    inner = np.eye(len(counts)) + root[:, None] * kernel * root
    half = np.linalg.solve(inner, root[:, None] * kernel)
    return np.clip(np.diag(kernel) - np.sum((root[:, None] * kernel) * half, axis=0), 0, None)


def log_ratio(kernel, counts):
    """ln det(I + Q diag n)."""
    root = np.sqrt(counts)
    return np.linalg.slogdet(np.eye(len(counts)) + root[:, None] * kernel * root)[1]


def play(kernel, clients, rounds, gamma, choose):
    """``choose(t, i, counts)`` names the arm of client i at step t; Q = ``kernel`` (K, K).

    Returns the squared widths ``local`` and ``sync`` of each step, and Λ, the ``information``, at the end.
    """
    arms = len(kernel)
    server, fresh = np.zeros(arms), np.zeros((clients, arms))
    gain, everything = np.zeros(clients), np.zeros(arms)
    out = SimpleNamespace(local=[], sync=[])
    for t in range(clients * rounds):
        i = t % clients
        known = server + fresh[i]
        arm = choose(t, i, known)
        width = kernel_widths(kernel, known)[arm]
        out.local.append(width)
        fresh[i, arm] += 1
        everything[arm] += 1
        gain[i] += np.log1p(width)
        fired = fresh[i].sum() * gain[i] > gamma
        out.sync.append(fired)
        if fired:
            server, fresh, gain = everything.copy(), np.zeros_like(fresh), np.zeros(clients)
    out.information = log_ratio(kernel, everything)
    return out
