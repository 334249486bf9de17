"""Algorithms 1 and 2 in plain numpy: one run, one client after the other, dense Σ, no cleverness.

With the repairs that the paper needs to be run at all: the server starts from λI, 0; every Δ is 0 at the start
and after a synchronisation; Δb is a vector. Every message is counted where it is sent, from its own size.
"""

from types import SimpleNamespace

import numpy as np


def value_and_gradient(w, x, hidden):
    """f_x(w) and ∇f_x(w), unit by unit."""
    d_x = len(x)
    w1, c1 = w[: hidden * d_x].reshape(hidden, d_x), w[hidden * d_x : hidden * (d_x + 1)]
    w2, c2 = w[hidden * (d_x + 1) : -1], w[-1]
    value, d_w1, d_c1, d_w2 = c2, np.zeros((hidden, d_x)), np.zeros(hidden), np.zeros(hidden)
    for j in range(hidden):
        unit = 1 / (1 + np.exp(-(w1[j] @ x + c1[j])))
        value += w2[j] * unit
        d_w2[j] = unit
        d_c1[j] = w2[j] * unit * (1 - unit)
        d_w1[j] = d_c1[j] * x
    return value, np.concatenate([d_w1.ravel(), d_c1, d_w2, [1.0]])


def distributed_gld(data, hidden, d_w, tau1, tau2, z, cost):
    """Algorithm 2; ``data`` is a list of (x, y) per client, ``tau2`` and ``z`` have one entry per round."""
    w = np.zeros(d_w)
    total = max(sum(len(own) for own in data), 1)
    for k in range(len(z)):
        gradient = np.zeros(d_w)
        for own in data:
            cost.down += w.size
            local = np.zeros(d_w)
            for x, y in own:
                value, slope = value_and_gradient(w, x, hidden)
                local += 2 * (value - y) * slope
            cost.up += local.size
            gradient += local
        w = w - tau1 * gradient / total + np.sqrt(2 * tau1 / tau2[k]) * z[k]
    return w


def first_order(x, w0, w_hat, sigma, beta, hidden):
    """f_x(ŵ₀) + g_xᵀ(ŵ − ŵ₀) + √β‖g_x‖_{Σ⁻¹}."""
    value, g = value_and_gradient(w0, x, hidden)
    return value + g @ (w_hat - w0) + np.sqrt(beta) * np.sqrt(g @ np.linalg.solve(sigma, g))


def ascent(x, w0, w_hat, sigma, beta, hidden, last=None, first=1.0, smallest=1e-3, most=200, gain=1e-9):
    """max f_x(w) over the ball, by projected ascent in parameter space, and Σ(w − ŵ) where it ends.

    From the linear solution, or from where the ``last`` ascent ended, scaled to the sphere, if that is higher.
    """
    _, g = value_and_gradient(w0, x, hidden)
    starts = [g] if last is None or not last.any() else [g, last]  # without a radius it ends where it begins
    starts = [np.linalg.solve(sigma, p) / np.sqrt(p @ np.linalg.solve(sigma, p)) for p in starts]
    points = [w_hat + np.sqrt(beta) * start for start in starts]
    w = max(points, key=lambda point: value_and_gradient(point, x, hidden)[0])
    value, step = value_and_gradient(w, x, hidden)[0], first
    for _ in range(most):
        if step < smallest:
            break
        _, g = value_and_gradient(w, x, hidden)
        direction = np.linalg.solve(sigma, g)
        trial = w + step * np.sqrt(beta) * direction / np.sqrt(g @ direction)
        length = np.sqrt((trial - w_hat) @ sigma @ (trial - w_hat))
        trial = w_hat + (trial - w_hat) * min(1.0, np.sqrt(beta) / max(length, 1e-300))
        new = value_and_gradient(trial, x, hidden)[0]
        if new > value + gain * abs(value):
            w, value, step = trial, new, 2 * step
        else:
            step /= 8
    return value, sigma @ (w - w_hat)


class LineThree:
    """The index of line 3: a client's ascent of an arm begins at the linear solution or at its own last maximum.

    What it finds depends on when it is asked, so `phase_two` asks it ``ahead``, when the simulator does.
    """

    ahead = True

    def __init__(self):
        self.ends = {}

    def __call__(self, x, w0, w_hat, sigma, beta, hidden, client=0):
        last = self.ends.get((client, x.tobytes()))
        value, self.ends[client, x.tobytes()] = ascent(x, w0, w_hat, sigma, beta, hidden, last)
        return value


def phase_two(arms, reward_of, w0_of, hidden, clients, steps, lam, beta, gamma, index=first_order):
    """Algorithm 1's Phase II; ``reward_of(arm, t)``; ``w0_of[i]`` is client i's ŵ₀. Returns arms, costs, syncs.

    The simulator asks for the indices of all clients with new data at the beginning of a round and after every
    synchronisation. An index that is to be asked ``ahead`` is asked at these steps, with the number of the client; any
    other one at the step of the client itself, which comes to the same where the index has no memory.
    """
    ahead = getattr(index, "ahead", False)
    indices, new = [None] * clients, [True] * clients
    d_w = len(w0_of[0])
    eye, zero = np.eye(d_w), np.zeros((d_w, d_w))
    sigma = [lam * eye for _ in range(clients)]
    b = [np.zeros(d_w) for _ in range(clients)]
    d_sigma, d_b = [zero] * clients, [np.zeros(d_w)] * clients
    pulls = [0] * clients
    sigma_g, b_g = lam * eye, np.zeros(d_w)
    out = SimpleNamespace(arm=[], up=[], down=[], sync=[])
    for t in range(steps):
        i = t % clients
        asked = [i]
        if ahead:
            asked = [j for j in range(clients) if new[j]] if i == 0 or out.sync[-1] else []
        for j in asked:
            w_hat = np.linalg.solve(sigma[j], b[j] + lam * w0_of[j])
            of = (w0_of[j], w_hat, sigma[j], beta, hidden, *([j] if ahead else []))
            indices[j], new[j] = [index(x, *of) for x in arms], False
        chosen = int(np.argmax(indices[i]))
        y = reward_of(chosen, t)
        value, g = value_and_gradient(w0_of[i], arms[chosen], hidden)
        term = g * (g @ w0_of[i] + y - value)
        sigma[i], b[i] = sigma[i] + np.outer(g, g), b[i] + term
        d_sigma[i], d_b[i] = d_sigma[i] + np.outer(g, g), d_b[i] + term
        pulls[i], new[i] = pulls[i] + 1, True
        before = np.linalg.slogdet(sigma[i] - d_sigma[i])[1]
        gain = np.linalg.slogdet(sigma[i])[1] - before
        fired = pulls[i] * gain > gamma
        up = down = 0
        if fired:
            for j in range(clients):
                up += d_sigma[j].size + d_b[j].size
                sigma_g, b_g = sigma_g + d_sigma[j], b_g + d_b[j]
            for j in range(clients):
                down += sigma_g.size + b_g.size
                sigma[j], b[j] = sigma_g, b_g
                d_sigma[j], d_b[j], pulls[j], new[j] = zero, np.zeros(d_w), 0, True
        out.arm.append(chosen)
        out.up.append(up)
        out.down.append(down)
        out.sync.append(fired)
    return out
