"""Theorem K: a plain transcription with k⁻¹, coverage around a malicious proposal, and a norm that is no bound."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedgo import Exploration, Problem
from fedgo.beyond.guarantees.guarantee import Guarantee, guarded, malicious
from fedgo.beyond.guarantees.intervals import outside
from fedgo.beyond.guarantees.kernel import KernelIntervals
from fedgo.confidence import Tally
from fedgo.theory.regret import regret_phase_two_clipped, synchronisations

SIGMA, NORM, DELTA, GAMMA, CLIENTS, ROUNDS = 0.3, 2.0, 0.3, 1.0, 3, 16
POINTS = np.linspace(0, 1, 6)
KERNEL = np.exp(-((POINTS[:, None] - POINTS) ** 2) / 0.18) + 0.01 * np.eye(6)
VALUE = NORM * math.sqrt(KERNEL.diagonal().max())


def plain_intervals(n, total, syncs, clients=CLIENTS, norm=NORM):
    """[L, U] and √V for counts and sums (S, K): the kernel's interval and the counts', both at δ/2."""
    union = math.pi**2 * clients * (syncs + 1.0) ** 2 / 6 if clients > 1 else np.ones(len(n))
    precision = np.linalg.inv(KERNEL) + n[:, None, :] * np.eye(6) / SIGMA**2
    variance = np.linalg.inv(precision)
    mean = (variance @ total[..., None])[..., 0] / SIGMA**2
    information = np.linalg.slogdet(precision @ KERNEL)[1]
    spread = np.sqrt(variance.diagonal(axis1=1, axis2=2))
    radius = np.sqrt(information + 2 * np.log(2 * union / DELTA)) + norm
    with np.errstate(divide="ignore", invalid="ignore"):
        h = SIGMA * np.sqrt(np.log1p(n) + 2 * np.log(2 * 6 * union / DELTA)[:, None])
        centre, c = np.nan_to_num(total / n), h * np.sqrt(n + 1) / n
    lower = np.maximum(np.maximum(mean - radius[:, None] * spread, centre - c), -VALUE)
    upper = np.minimum(np.minimum(mean + radius[:, None] * spread, centre + c), VALUE)
    return lower, upper, spread, radius


def intervals(clients):
    features = torch.linalg.cholesky(torch.from_numpy(KERNEL))
    return KernelIntervals(clients, SIGMA, VALUE, DELTA, features=features, norm=NORM)


@pytest.mark.parametrize("clients", [1, CLIENTS])
def test_the_intervals_are_their_plain_transcription(clients):
    draw = np.random.default_rng(0)
    n = draw.integers(0, 9, (50, 6)) * draw.integers(0, 2, (50, 6)).astype(float)
    total, syncs = n * draw.uniform(-1, 1, 6) + np.sqrt(n) * draw.normal(size=(50, 6)), np.arange(50) // 5
    lower, upper, spread, _ = plain_intervals(n, total, syncs, clients)
    known = Tally(*(torch.from_numpy(each).unsqueeze(1) for each in (n, total)))
    got = intervals(clients).after(known, torch.from_numpy(syncs).unsqueeze(1), shared=known)
    for ours, theirs in zip(got, (lower, upper, np.log1p(spread**2 / SIGMA**2)), strict=True):
        np.testing.assert_allclose(ours[:, 0], theirs, rtol=1e-8, atol=1e-8)
    counted = Guarantee(VALUE, SIGMA, DELTA / 2).intervals(clients)
    plain = counted.after(known, torch.from_numpy(syncs).unsqueeze(1), shared=known)
    assert (got.upper - got.lower <= plain.upper - plain.lower).all()


def test_the_intervals_cover_and_items_2_to_4_hold_around_a_malicious_proposal():
    runs, kappa, nothing = 2000, 4.0, Exploration.nothing(2000)
    w = np.random.default_rng(0).normal(size=(runs, 6))
    f = torch.from_numpy(w @ np.linalg.cholesky(KERNEL).T * (NORM / np.linalg.norm(w, axis=1, keepdims=True)))
    problem = Problem("K", torch.zeros(runs, 6, 1).double(), f, tuple(range(runs)), 0, SIGMA)
    told, rule = Guarantee(VALUE, SIGMA, DELTA, kappa, GAMMA), intervals(CLIENTS)
    evil = replace(malicious(problem, nothing, CLIENTS, told), intervals=rule)
    trace = guarded("K", problem, evil, nothing, CLIENTS, ROUNDS, told, intervals=rule)
    left = outside(trace, f, rule, phase_one=False)
    assert left.double().mean() < DELTA / 4
    assert not (trace.regret > trace.notes["certificate"] + 1e-9).any(1)[~left].any()
    n = np.stack([np.bincount(arm, minlength=6) for arm in trace.arm.numpy()]).astype(float)
    syncs = trace.sync.sum(1).numpy()
    information = np.linalg.slogdet(np.eye(6) + KERNEL * n[:, None, :] / SIGMA**2)[1]
    widest = math.sqrt(KERNEL.diagonal().max()) / SIGMA
    for row in range(0, runs, 20):
        most = plain_intervals(n[row : row + 1], 0 * n[row : row + 1], syncs[row : row + 1])[3].item()
        beta = (kappa * SIGMA * most) ** 2
        bound = regret_phase_two_clipped(beta, information[row], CLIENTS, ROUNDS, GAMMA, VALUE, widest=widest)
        assert trace.notes["certificate"][row].sum() <= bound.total * (1 + 1e-9)
        assert syncs[row] <= synchronisations(ROUNDS, information[row], GAMMA)
