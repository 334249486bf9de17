"""What several tests need: random problems of random sizes, their rewards one by one, plain random numbers."""

import numpy as np
import pytest
import torch

from fedgo import Langevin, Network, Problem, Settings, Trace, realizable
from fedgo.confidence import Tally
from fedgo.theory.replay import knowledge

INF = float("inf")
BRIEF = Langevin(rounds=12, step=0.05, hot=1e2, cold=1e4)
GAMMAS = (0.0, 0.01, 0.1, 0.5, 3.0, INF)  # thresholds: always, often, now and then, never


def double(values):
    """The numbers as a float64 tensor."""
    return torch.tensor(values, dtype=torch.float64)


def made_trace(regret, up=None, down=None, phase_one=0, clients=2, name="A"):
    """A trace with the given regret and scalars of every step, (S, steps), in which nobody synchronises."""
    regret = torch.as_tensor(regret, dtype=torch.float64)
    blank = torch.zeros(regret.shape, dtype=torch.int64)
    up, down = (blank if sent is None else torch.as_tensor(sent) for sent in (up, down))
    return Trace(name, "p", clients, phase_one, blank, -regret, regret, up, down, blank.bool())


def about(expected, rel=1e-12):
    """Equal up to rounding."""
    return pytest.approx(expected, rel=rel)


def sample(*shape, seed=0):
    """Standard normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_world(seed, *sizes):
    """A realizable problem, its network, clients and rounds, and the draw; ``sizes`` are the ranges of K, N and T."""
    draw = np.random.default_rng(seed)
    network = Network(int(draw.integers(1, 4)), int(draw.integers(1, 5)))
    arms, clients, rounds = (int(draw.integers(*size)) for size in sizes)
    problem = realizable(network, 3, arms=arms, seed=seed, sigma=0.3, scale=2.0)
    return problem, network, clients, rounds, draw


def instance(seed):
    """A realizable problem of random sizes, its network, clients and rounds, and random settings."""
    problem, network, clients, rounds, draw = random_world(seed, (2, 15), (1, 6), (1, 11))
    lam, beta = 10.0 ** draw.uniform(-2, 1), 10.0 ** draw.uniform(-2, 1)
    return problem, network, clients, rounds, Settings(lam, beta, GAMMAS[seed % len(GAMMAS)])


def random_problem(seed, runs=3, reward="gaussian", sizes=(2, 12), least=1):
    """Uniform arms in the centred cube and means that are not linear in them, all sizes random; and a draw."""
    draw = np.random.default_rng(seed)
    arms, d_x = int(draw.integers(*sizes)), int(draw.integers(least, 5))
    points = torch.from_numpy(draw.uniform(-1, 1, (runs, arms, d_x)))
    slope = torch.from_numpy(draw.normal(size=(d_x,)))
    means = torch.sigmoid(2 * points @ slope + points.square().sum(-1) - 0.5)
    return Problem("random", points, means, tuple(range(runs)), seed, 0.3, reward), draw


def tally(problem, counts, seed=0):
    """Counts, and sums of that many rewards of run 0."""
    n, noise = double(counts), sample(len(counts), seed=seed)
    return Tally(n, n * problem.means[0] + problem.sigma * n.sqrt() * noise)


def rewards(problem, row, steps):
    """The reward of (arm, t) in the run at ``row``."""
    tape = problem.tape(steps)[row : row + 1]

    def reward_of(arm, t):
        return problem.only(row).observe(torch.tensor([[arm]]), tape[:, t : t + 1]).item()

    return reward_of


def assert_same(trace, row, expected):
    """Phase II of the run at ``row`` made the same choices and sent as much, step by step."""
    for name in ("arm", "sync", "up", "down"):
        assert getattr(trace, name)[row, trace.phase_one :].tolist() == getattr(expected, name), name


def assert_billed(trace, bill):
    """Every synchronisation of Phase II costs what ``bill`` says, and no other step costs anything.

    ``bill(row, t, fresh)`` gives the scalars up and down at step t, where ``fresh`` has each client's new pulls.
    """
    for row in range(len(trace.arm)):
        fresh = [0] * trace.clients
        for t in range(trace.phase_one, trace.arm.shape[1]):
            fresh[(t - trace.phase_one) % trace.clients] += 1
            charged = (0, 0)
            if trace.sync[row, t]:
                charged = bill(row, t, fresh)
                fresh = [0] * trace.clients
            assert (trace.up[row, t], trace.down[row, t]) == charged


def certificates(trace, intervals, arms, phase_one=False):
    """q_t ≥ r_t of every step of Phase II, (S, NT), from what each client knew, with ``phase_one`` all data."""
    found = torch.zeros(trace.arm.shape, dtype=torch.float64)
    for known in knowledge(trace, arms, phase_one):
        interval = intervals.after(known.tally, known.syncs, shared=known.shared)
        found[:, known.step] = interval.price.gather(-1, trace.arm[:, known.step].unsqueeze(-1)).squeeze(-1)
    return found[:, trace.phase_one :]
