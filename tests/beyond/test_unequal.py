"""Theorem H, transcribed from its statement: coverage, both bounds on the sum of certificates, and the edges."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedgo.beyond.guarantees.guarantee import Guarantee
from fedgo.confidence import Tally
from fedgo.theory.regret import potential_clipped, regret_phase_two_clipped, synchronisations

SIGMA, VALUE, GAMMA, KAPPA, DELTA, D = 0.3, 1.6, 0.4, 3.0, 0.3, 0.2
EVERY, ALONE, POOLED = (0.0, 0.1, 1.0), (0.0,), (1.0,)


def radius(variance, syncs, members):
    """h_w; ``syncs`` is None for w = 0."""
    union = 1 if syncs is None else math.pi**2 * (syncs[..., None] + 1.0) ** 2 / 6
    return SIGMA * np.sqrt(np.log1p(variance) + 2 * np.log(members * union / DELTA))


def intervals(own, others, syncs, clients, weights, difference=D):
    """[L, U] from counts and sums (S, K) of the client's ``own`` pulls and of the ``others``'."""
    lower, upper = np.full(own[0].shape, -VALUE), np.full(own[0].shape, VALUE)
    for w in weights:
        mass, variance = own[0] + w * others[0], own[0] + w**2 * others[0]
        h = radius(variance, syncs if w > 0 else None, clients * own[0].shape[1] * len(weights))
        with np.errstate(divide="ignore", invalid="ignore"):
            c = np.nan_to_num((h * np.sqrt(1 + variance) + difference * w * others[0]) / mass, nan=np.inf)
            centre = np.nan_to_num((own[1] + w * others[1]) / mass)
        lower, upper = np.maximum(lower, centre - c), np.minimum(upper, centre + c)
    return lower, upper


def play(weights, hostile, difference=D, runs=400, clients=6, rounds=50, apart=D):
    """A guard for clients whose means are up to ``apart`` apart, who are told ``difference``; all runs at once."""
    draw, row = np.random.default_rng(0), np.arange(runs)
    means = draw.uniform(-1, 1, (runs, 1, 5)) + apart / 2 * draw.uniform(-1, 1, (runs, clients, 5))
    own, others = np.zeros((2, clients, 2, runs, 5))
    pulls, gain = np.zeros((2, clients, runs))
    syncs, sums, extra, most = np.zeros(runs), np.zeros(runs), np.zeros(runs), np.zeros(runs)
    missed, below = np.zeros(runs, bool), np.zeros(runs, bool)
    for t in range(clients * rounds):
        i = t % clients
        lower, upper = intervals(own[i], others[i], syncs, clients, weights, difference)
        f, n = means[:, i], own[i, 0] + others[i, 0]
        missed |= ((lower > f) | (upper < f)).any(1)
        price = np.maximum(0, np.where(np.eye(5, dtype=bool), -np.inf, upper[:, None, :]).max(2) - lower)
        accepted = price <= KAPPA * (upper - lower)
        wish = np.where(accepted, -f, -np.inf) if hostile else upper
        arm = np.where(accepted.any(1), wish.argmax(1), upper.argmax(1))
        q, regret = price[row, arm], f.max(1) - f[row, arm]
        below |= regret > q + 1e-12
        sums += q
        extra += others[i, 0, row, arm] / np.maximum(n[row, arm], 1)
        most = np.maximum(most, radius(n, syncs, clients * 5 * len(weights)).max(1))
        pulls[i] += 1
        gain[i] += np.log1p(1 / (1 + n[row, arm]))
        own[i, 0, row, arm] += 1
        own[i, 1, row, arm] += f[row, arm] + SIGMA * draw.normal(size=runs)
        fired = pulls[i] * gain[i] > GAMMA
        others[:, :, fired] = own[:, :, fired].sum(0) - own[:, :, fired]
        pulls[:, fired], gain[:, fired] = 0, 0
        syncs = syncs + fired
    information = np.log1p(own[:, 0].sum(0)).sum(1)
    return SimpleNamespace(**locals())


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("weights", [EVERY, ALONE])
def test_the_intervals_cover_every_clients_means_and_the_certificates_sum_to_at_most_both_bounds(
    weights, hostile
):
    played = play(weights, hostile)
    assert played.missed.mean() < DELTA / 4 and not (played.below & ~played.missed).any()
    clients, rounds = played.clients, played.rounds
    h = radius(np.array(float(rounds)), None, clients * 5 * len(weights))
    root = max(2 * KAPPA * h, VALUE)
    potential = 5 * math.log1p(rounds / 5) * potential_clipped(1.0, VALUE / root)
    assert (played.sums <= 2 * clients * root * math.sqrt(rounds * potential)).all()
    for k in range(0, 400, 10):
        assert played.syncs[k] <= synchronisations(rounds, played.information[k], GAMMA)
        beta = max(2 * KAPPA * played.most[k], VALUE) ** 2
        first = regret_phase_two_clipped(
            beta, played.information[k], clients, rounds, GAMMA, VALUE, widest=1.0
        )
        if 1 in weights:
            assert played.sums[k] <= first.total + 2 * KAPPA * D * played.extra[k]


def test_pooled_intervals_fail_where_means_differ_and_so_does_a_difference_that_is_no_bound():
    for weights in (POOLED, EVERY):
        assert play(weights, False, 0.0, 150, 6, 120, 0.4).missed.mean() > 2 * DELTA


def test_one_client_has_the_guards_own_intervals_and_the_weight_0_alone_needs_neither_the_others_nor_d():
    counts, syncs = np.random.default_rng(0).integers(0, 4, (2, 7, 5)).astype(float), np.arange(7)
    own, others = ((n, np.sin(n)) for n in counts)
    nobody = np.zeros((2, 7, 5))
    known = Tally(*map(torch.from_numpy, own))
    guard = Guarantee(VALUE, SIGMA, DELTA).intervals(1).after(known, torch.from_numpy(syncs), shared=known)
    for ours, theirs in zip(intervals(own, nobody, syncs, 1, ALONE), guard[:2], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
    apart, alone = intervals(own, others, syncs, 3, ALONE), intervals(own, nobody, 0 * syncs, 3, ALONE, 0.0)
    np.testing.assert_array_equal(apart, alone)
