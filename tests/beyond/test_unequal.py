"""Theorem H: the intervals and a play against a plain transcription, coverage, and the edges."""

import math

import numpy as np
import pytest
import torch

from fedgo.beyond.guarantees.guarantee import Guarantee
from fedgo.beyond.guarantees.unequal import UnequalIntervals, play_unequal
from fedgo.confidence import Tally

SIGMA, VALUE, GAMMA, KAPPA = 0.3, 1.6, 0.4, 3.0


def plain_interval(own, others, syncs, intervals, arms):
    """[L, U] of one arm from (count, sum) of the client's ``own`` pulls and of the ``others``'."""
    lower, upper = -VALUE, VALUE
    for w in intervals.weights:
        M, V = own[0] + w * others[0], own[0] + w**2 * others[0]
        if M == 0:
            continue
        union = intervals.clients * arms * len(intervals.weights) / intervals.delta
        union *= math.pi**2 * (syncs + 1) ** 2 / 6 if w > 0 else 1
        c = SIGMA * math.sqrt((1 + V) * (math.log(1 + V) + 2 * math.log(union)))
        centre, c = (own[1] + w * others[1]) / M, (c + intervals.difference * w * others[0]) / M
        lower, upper = max(lower, centre - c), min(upper, centre + c)
    return lower, upper


def plain_play(means, noise, intervals, hostile):
    """Regret, certificate and coverage of every step of one run; ``own`` has the count and sum of every arm."""
    clients, arms = means.shape
    own, others = np.zeros((2, clients, arms, 2))
    pulls, gain, syncs, rows = np.zeros(clients), np.zeros(clients), 0, []
    for t, eta in enumerate(noise):
        i = t % clients
        ends = [plain_interval(own[i, x], others[i, x], syncs, intervals, arms) for x in range(arms)]
        lower, upper = zip(*ends, strict=True)
        price = [max(0, max(upper[:x] + upper[x + 1 :]) - lower[x]) for x in range(arms)]
        fine = [x for x in range(arms) if price[x] <= KAPPA * (upper[x] - lower[x])]
        x = min(fine, key=lambda x: means[i, x]) if hostile else np.argmax(upper)
        rows.append((max(means[i]) - means[i, x], price[x], ((lower > means[i]) | (upper < means[i])).any()))
        pulls[i] += 1
        gain[i] += math.log(1 + 1 / (1 + own[i, x, 0] + others[i, x, 0]))
        own[i, x] += 1, means[i, x] + eta
        if pulls[i] * gain[i] > GAMMA:
            others, syncs = own.sum(0) - own, syncs + 1
            pulls[:] = gain[:] = 0
    return np.array(rows, dtype=float).T


def instance(runs, clients, rounds, tau):
    """Means of ``clients`` at most 2 ``tau`` apart on 5 arms, and the noise."""
    draw = torch.Generator().manual_seed(0)
    uniform = 2 * torch.rand(runs, 1 + clients, 5, generator=draw, dtype=torch.float64) - 1
    noise = SIGMA * torch.randn(runs, clients * rounds, generator=draw, dtype=torch.float64)
    return uniform[:, :1] + tau * uniform[:, 1:], noise


@pytest.mark.parametrize("weights", [(0.0, 0.1, 1.0), (0.0,), (0.3, 0.0)])
@pytest.mark.parametrize("hostile", [False, True])
def test_a_play_is_its_plain_transcription(weights, hostile):
    means, noise = instance(3, 4, 20, 0.1)
    intervals = UnequalIntervals(4, SIGMA, VALUE, 0.3, 0.2, weights)
    played = play_unequal(means, noise, intervals.after, Guarantee(VALUE, SIGMA, 0.3, KAPPA, GAMMA), hostile)
    for row in range(3):
        expected = plain_play(means[row].numpy(), noise[row].numpy(), intervals, hostile)
        np.testing.assert_allclose(torch.stack([values[row] for values in played]), expected, 1e-9, 1e-9)


def test_pooled_intervals_fail_where_means_differ_and_those_of_theorem_h_cover():
    means, noise = instance(400, 8, 60, 0.2)
    told = Guarantee(VALUE, SIGMA, 0.3, 8.0, GAMMA)

    def pooled(own, others, syncs):
        return told.intervals(8).after(own + others, syncs, shared=own)

    assert play_unequal(means, noise, pooled, told, False).outside.any(1).double().mean() > 0.9
    played = play_unequal(means, noise, UnequalIntervals(8, SIGMA, VALUE, 0.3, 0.4).after, told, True)
    assert played.outside.any(1).double().mean() < 0.05
    assert (played.regret <= played.certificate + 1e-12)[~played.outside.any(1)].all()


def test_one_client_has_the_guards_own_intervals_and_the_weight_0_alone_needs_neither_the_others_nor_d():
    draw, syncs = torch.Generator().manual_seed(0), torch.arange(7)
    counts = torch.randint(0, 4, (2, 7, 5), generator=draw).double()
    own, others = (Tally(n, n.sin()) for n in counts)
    guard, nobody = Guarantee(VALUE, SIGMA, 0.1).intervals(1), Tally.blank(7, 5)
    ends = UnequalIntervals(1, SIGMA, VALUE, 0.1, 0.5, (0.0, 0.1, 1.0)).after(own, nobody, syncs)
    for ours, theirs in zip(ends, guard.after(own, syncs, shared=own), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    apart = UnequalIntervals(3, SIGMA, VALUE, 0.1, 0.5, (0.0,)).after(own, others, syncs)
    alone = UnequalIntervals(3, SIGMA, VALUE, 0.1, 0.0, (0.0,)).after(own, nobody, 0 * syncs)
    assert torch.equal(apart.lower, alone.lower) and torch.equal(apart.upper, alone.upper)


DIFFERENCES = [{"difference": value} for value in (-0.1, math.inf, math.nan)]
WEIGHTS = [{"weights": values} for values in ((0.1, 1.0), (), (0.0, 1.5), (-0.1, 0.0), (0.0, math.nan))]


@pytest.mark.parametrize("given", DIFFERENCES + WEIGHTS)
def test_a_difference_that_is_no_bound_and_weights_without_0_or_beyond_1_are_refused(given):
    with pytest.raises(ValueError, match=rf"{next(iter(given))} is .*: give"):
        UnequalIntervals(2, SIGMA, VALUE, 0.1, **given)
