"""Phase II replayed, and what each client knew: against dense matrices in plain numpy, one pull after the other."""

import math
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from instances import BRIEF, instance
from reference.go_ucb import value_and_gradient

from fedgo import Problem, Settings, fed_go_ucb, shared_start
from fedgo.algorithms.dis_lin_ucb import dis_lin_ucb
from fedgo.theory.replay import replay

ROWS = ("local", "central", "gain", "since", "information", "total", "epoch")


@cache
def recorded(seed):
    """Fed-GO-UCB on a random realizable problem of random sizes."""
    problem, network, clients, rounds, settings = instance(seed)
    start = shared_start(problem, network, clients, rounds, BRIEF)
    return problem, start, fed_go_ucb(start, settings), settings.lam


def plain_replay(problem, start, trace, lam, row):
    """One client after the other, dense d_w × d_w matrices."""
    network, clients, w0 = start.network, start.clients, start.w0[row, 0].numpy()
    known = [value_and_gradient(w0, x, network.hidden) for x in problem.arms[row].numpy()]
    d_w, arms = len(w0), len(known)
    eye, zero, none = lam * np.eye(d_w), np.zeros((d_w, d_w)), np.zeros(arms)
    sigma, delta, pulls = [eye] * clients, [zero] * clients, [0] * clients
    mine, server, agent = [(none, none)] * clients, (none, none), eye
    epoch, out = 0, SimpleNamespace(**{name: [] for name in ROWS}, counts=[], sums=[])
    first = trace.phase_one
    for t in range(trace.arm.shape[1] - first):
        i, arm = t % clients, int(trace.arm[row, first + t])
        value, g = known[arm]
        hit = np.eye(arms)[arm]
        local, central = (g @ np.linalg.inv(matrix) @ g for matrix in (sigma[i], agent))
        sigma[i], delta[i] = sigma[i] + np.outer(g, g), delta[i] + np.outer(g, g)
        agent, pulls[i] = agent + np.outer(g, g), pulls[i] + 1
        mine[i] = mine[i][0] + hit, mine[i][1] + hit * (float(trace.reward[row, first + t]) - value)
        before = np.linalg.slogdet(sigma[i] - delta[i])[1]
        logs = [np.linalg.slogdet(matrix)[1] for matrix in (sigma[i], agent)]
        information, total = (log - d_w * np.log(lam) for log in logs)
        entry = (local, central, logs[0] - before, pulls[i], information, total, epoch)
        for name, number in zip(ROWS, entry, strict=True):
            getattr(out, name).append(number)
        out.counts.append(server[0] + mine[i][0])
        out.sums.append(server[1] + mine[i][1])
        if trace.sync[row, first + t]:
            server = tuple(old + sum(part) for old, part in zip(server, zip(*mine, strict=True), strict=True))
            for j in range(clients):
                sigma[j], delta[j], pulls[j], mine[j] = agent, zero, 0, (none, none)
            epoch += 1
    return out


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(36))
def test_the_replay_is_the_dense_one(seed):
    problem, start, trace, lam = recorded(seed)
    found = replay(start, trace, lam)
    assert found.epoch.dtype == torch.int64
    for row in range(3):
        expected = plain_replay(problem, start, trace, lam, row)
        for name in ROWS:
            values = getattr(found, name)[row].numpy()
            np.testing.assert_allclose(values, getattr(expected, name), rtol=1e-9, atol=1e-9, err_msg=name)
        assert found.known.counts[row].tolist() == np.stack(expected.counts).tolist()
        np.testing.assert_allclose(found.known.sums[row].numpy(), expected.sums, rtol=0, atol=1e-11)
        by_epoch = np.bincount(expected.epoch, expected.local, int(found.epoch.max()) + 1)
        np.testing.assert_allclose(found.by_epoch(found.local)[row].numpy(), by_epoch, rtol=1e-9)


def test_the_event_is_strict():
    # one arm x = 1 and λ = 1: the first pull has 1·ln 2 = γ exactly; later 2·ln 3, or 2·ln(4/2) after a sync
    problem = Problem("one", torch.ones(1, 1, 1).double(), torch.zeros(1, 1).double(), (0,))
    for gamma, sync in ((math.log1p(1), [0, 0, 1, 0]), (math.nextafter(math.log1p(1), 0), [1, 0, 0, 1])):
        trace = dis_lin_ucb(problem, 2, 4, Settings(1.0, 1.0, gamma))
        assert trace.sync[0].tolist() == sync


def test_the_instances_synchronise_never_sometimes_and_always():
    shares = [trace.sync[:, trace.phase_one :].double().mean() for _, _, trace, _ in map(recorded, range(12))]
    assert shares[0] == shares[6] == 1 and shares[5] == shares[11] == 0
    assert sum(0.02 < share < 0.9 for share in shares) >= 4
