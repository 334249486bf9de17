"""FN-UCB in plain numpy, one client after the other: matrices in parameter space, gradients by hand."""

from types import SimpleNamespace

import numpy as np


def forward(theta, x, m):
    """f(x; θ) and its gradient for one x, θ = (W₁ row by row, c₁, w₂, c₂)."""
    d = len(x)
    w1, c1 = theta[: m * d].reshape(m, d), theta[m * d : m * d + m]
    w2, c2 = theta[m * d + m : -1], theta[-1]
    unit = 1 / (1 + np.exp(-(w1 @ x + c1)))
    slope = w2 * unit * (1 - unit)
    return unit @ w2 + c2, np.concatenate([np.outer(slope, x).ravel(), slope, unit, [1.0]])


def plain_fn_ucb(x, theta0, m, order, reward_of, clients, steps, lam, optimism, gamma, descent):
    """``x`` (K, d_x) are the network's inputs, ``order`` (N, K) each client's order of ties."""
    phi = np.array([forward(theta0, point, m)[1] for point in x]) / np.sqrt(m)
    p = phi.shape[1]
    w_sync, b_sync = np.zeros((p, p)), np.zeros(p)
    w_new, b_new = [np.zeros((p, p)) for _ in range(clients)], [np.zeros(p) for _ in range(clients)]
    data, since = [[] for _ in range(clients)], [0] * clients
    theta, inverse, alpha = theta0, np.zeros((p, p)), 0.0
    out = SimpleNamespace(arm=[], sync=[], up=[], down=[], alpha=[])
    for t in range(steps):
        i = t % clients
        v = lam * np.eye(p) + w_sync + w_new[i]
        mean = phi @ np.linalg.solve(v, b_sync + b_new[i])
        index = (1 - alpha) * (mean + optimism * np.sqrt(np.sum(phi * np.linalg.solve(v, phi.T).T, 1)))
        spread = np.sqrt(np.sum(phi * (phi @ inverse), 1))
        index += alpha * (np.array([forward(theta, point, m)[0] for point in x]) + optimism * spread)
        arm = int(np.argmax(index + 1e-9 * order[i]))
        y = reward_of(arm, t)
        w_new[i], b_new[i] = w_new[i] + np.outer(phi[arm], phi[arm]), b_new[i] + y * phi[arm]
        data[i].append((arm, y))
        since[i] += 1
        ratio = np.linalg.slogdet(lam * np.eye(p) + w_sync + w_new[i])[1]
        ratio -= np.linalg.slogdet(lam * np.eye(p) + w_sync)[1]
        fired, up, down = bool(since[i] * ratio > gamma), 0, 0
        if fired:
            thetas, inverses, shares = [], [], []
            for j in range(clients):
                hits = np.array([phi[a] for a, _ in data[j]]).reshape(-1, p)
                local = np.linalg.inv(lam * np.eye(p) + hits.T @ hits)
                steepest = max(np.linalg.eigvalsh(hits.T @ hits).max(), 0.0)
                own = theta0
                for _ in range(descent):
                    slope = m * lam * (own - theta0)
                    for a, y in data[j]:
                        value, gradient = forward(own, x[a], m)
                        slope = slope + (value - y) * gradient
                    own = own - slope / (m * (lam + steepest))
                width = np.sqrt(np.sum(phi * (phi @ local), 1))
                thetas.append(own)
                inverses.append(local)
                shares.append(width.min() / width.max())
                up += w_new[j].size + b_new[j].size + local.size + own.size + 1
            w_sync, b_sync = w_sync + sum(w_new), b_sync + sum(b_new)
            theta, inverse, alpha = sum(thetas) / clients, sum(inverses) / clients, min(shares)
            w_new, b_new = [np.zeros((p, p)) for _ in range(clients)], [np.zeros(p) for _ in range(clients)]
            since = [0] * clients
            down = clients * (w_sync.size + b_sync.size + inverse.size + theta.size + 1)
        for name, value in (("arm", arm), ("sync", fired), ("up", up), ("down", down), ("alpha", alpha)):
            getattr(out, name).append(value)
    return out
