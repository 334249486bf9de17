"""The search for the best arm: against a plain transcription, and what has to hold of every batch."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from fedgo import Problem
from fedgo._streams import generator
from fedgo.beyond import SEARCH, Fitting, Plan, play
from fedgo.beyond.method.process import Data, around, evidence, in_cube, mode
from fedgo.beyond.method.search import searching, shortfall
from fedgo.beyond.method.sites import Sites
from fedgo.beyond.method.surrogates import Independent
from fedgo.confidence import Tally


def table(seed, arms=30, tried=12, groups=None):
    """Arms, counts, the sums of their rewards and an order of ties."""
    draw = torch.Generator().manual_seed(seed)
    points = torch.rand(arms, 3, generator=draw, dtype=torch.float64)
    means = torch.sin(5 * points).sum(-1) + 0.3 * torch.randn(arms, generator=draw, dtype=torch.float64)
    counts = torch.zeros(arms, dtype=torch.float64)
    counts[torch.randperm(arms, generator=draw)[:tried]] = 1.0
    return points, counts, counts * means, torch.rand(arms, generator=draw, dtype=torch.float64)


def rise(mean, x, spread):
    """By how much the largest mean rises on average if that of x changes by N(0, spread²), as an integral."""
    change, width = np.linspace(-40, 40, 400_001, retstep=True)
    others = np.delete(mean, x).max()
    return ((np.maximum(mean[x] + spread * change, others) - mean.max()) * norm.pdf(change)).sum() * width


def conditioned(mean, covariance, sigma, known, pulls):
    """Greedy by mean + 2·standard deviation, never twice, the dense covariance conditioned after each pull; then those
    whose repetition is worth more than the pulls that it replaces.
    """
    variance, known, again, chosen = covariance.diagonal().copy(), list(known), [], []
    untried = [x for x in range(len(mean)) if x not in known]
    worth = sorted((rise(mean, x, np.sqrt(variance[x])) for x in untried), reverse=True)
    while True:
        repeats = [rise(mean, x, variance[x] / np.sqrt(variance[x] + sigma**2)) for x in known]
        if max(repeats) <= worth[pulls - len(again) - 1]:
            break
        again.append(known[int(np.argmax(repeats))])
        variance[again[-1]] *= sigma**2 / (variance[again[-1]] + sigma**2)
    for _ in range(pulls - len(again)):
        index = {x: mean[x] + 2 * np.sqrt(max(covariance[x, x], 0)) for x in untried if x not in chosen}
        best = max(index, key=index.get)
        column = covariance[best]
        covariance = covariance - np.outer(column, column) / (column[best] + sigma**2)
        chosen.append(best)
    return chosen + again


@pytest.mark.parametrize("seed", range(4))
def test_a_batch_is_that_of_the_dense_posterior_with_its_misfit(seed):
    points, counts, sums, order = table(seed)
    fit = Sites().fit(points, Tally(counts, sums), 0.3)
    every = torch.arange(30)
    each = [
        (one.mean.numpy(), one.columns(every, every).numpy() + np.diag(one.misfit.numpy()))
        for one in fit.redraw()
    ]
    mean = np.mean([mean for mean, _ in each], 0)
    second = np.mean([covariance + np.outer(m, m) for m, covariance in each], 0)
    expected = conditioned(mean, second - np.outer(mean, mean), 0.3, np.flatnonzero(counts), 18)
    assert searching(fit, counts, 0.3, order, 18).tolist() == expected


@pytest.mark.parametrize("seed", range(3))
def test_the_parameters_are_drawn_with_the_curvature_of_the_posterior_density(seed):
    points, counts, sums, _ = table(seed)
    told = counts.nonzero()[:, 0]
    y = (sums[told] - sums[told].mean()) / sums[told].std()
    data = Data(points[told], told, y, torch.full_like(y, 0.1), None, torch.arange(3), None)
    middle = mode(data)
    prior = np.array([3.0, 3.0, 3.0, 4.0])

    def density(theta):  # −ln of the density, without terms that are linear
        squares = ((theta - middle.numpy()) ** 2 / prior).sum()
        return evidence(data, torch.from_numpy(theta))[0].item() + squares / 2

    step, theta = 1e-3 * np.eye(4), middle.numpy()
    hessian = np.array([[
        density(theta + a + b) - density(theta + a - b) - density(theta - a + b) + density(theta - a - b)
        for b in step] for a in step]) / 4e-6  # fmt: skip
    added = next(
        size for size in [0, *0.25 * 2.0 ** np.arange(20)] if np.linalg.eigvalsh(hessian)[0] + size > 0.25
    )
    away = (around(data, middle) - middle).numpy()
    assert np.allclose(away[:8], -away[8:])
    white = np.linalg.cholesky(hessian + added * np.eye(4)).T @ away[:8].T
    source = generator(0, 0, "parameters")
    assert np.allclose(white.T, torch.randn(8, 4, generator=source, dtype=torch.float64), atol=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_repeats_only_what_is_worth_it_and_obeys_open_and_retired_arms_and_turns(seed):
    points, counts, sums, order = table(seed)
    fit, retired = Sites().fit(points, Tally(counts, sums), 0.1), torch.arange(30) >= 25
    open_now = (counts == 0).nonzero()[:2, 0].tolist()
    left = 25 - int(counts[:25].sum()) - sum(arm < 25 for arm in open_now)
    known = {*open_now, *counts.nonzero()[:, 0].tolist()}
    # with so much noise one more result tells nothing, so that all others come first
    batch = searching(fit, counts, 1e6, order, left, open_now, retired).tolist()
    assert len(set(batch)) == left and not set(batch) & known and max(batch) < 25
    more = searching(fit, counts, 1e6, order, left + 3, open_now, retired).tolist()
    assert more[:left] == batch and set(more[left:]) <= known and max(more) < 25
    assert not set(searching(fit, counts, 0.1, order, left, open_now, retired, budget=99).tolist()) & known
    # with little noise, late in a search, the best of those pulled are worth more than the worst of the others
    mixed = searching(fit, counts, 0.1, order, left, open_now, retired).tolist()
    assert set(mixed) & known and len(set(mixed) - known) == sum(arm not in known for arm in mixed)
    both = torch.stack([counts, torch.zeros(30, dtype=torch.float64)])
    cells = Sites().fit(points, Tally(both, torch.stack([sums, torch.zeros_like(sums)])), 0.1)
    assert (SEARCH.epoch(cells, both, 0.1, order, sites=2, turn=1, most=5) // 30).tolist() == [1, 0, 1, 0, 1]


@pytest.mark.parametrize("unit", [1.0, 2.0**-60, 2.0**60])
def test_repetitions_do_not_depend_on_the_unit_and_stay_at_their_site(unit):
    points, counts, sums, order = table(3)
    for sigma, sites in ((0.1, 1), (0.01, 2)):
        seen = [torch.stack([part, part.flip(0)][:sites]).squeeze(0) for part in (counts, sums)]
        fits = [Sites().fit(points, Tally(seen[0], size * seen[1]), size * sigma) for size in (1.0, unit)]
        plain, other = (
            searching(fit, seen[0].flatten(), size * sigma, order.repeat(sites), 50, sites=sites).tolist()
            for fit, size in zip(fits, (1.0, unit), strict=True)
        )
        assert plain == other and [arm // 30 for arm in plain] == [*range(sites)] * (50 // sites)


def test_columns_of_one_category_share_a_length_scale():
    points, counts, sums, _ = table(5)
    level = torch.eye(3, dtype=torch.float64)[torch.arange(30) % 3]
    arms = torch.cat([in_cube(points[:, :1]), level / np.sqrt(2)], -1)
    fit = Sites(groups=(0, 1, 1, 1)).fit(torch.cat([arms[:, :1], level], -1), Tally(counts, sums), 0.1)
    assert len(fit.parameters) == 3  # two length scales and the misfit
    assert len(Sites().fit(arms, Tally(counts, sums), 0.1).parameters) == 5
    # rewards of options with one level say nothing about the category: its length scale is the mode of the prior, which
    # counts each of the four features
    counts, sums = (part * (torch.arange(30) % 3 == 0) for part in (counts, sums))
    category = Sites(groups=(0, 1, 1, 1)).fit(arms, Tally(counts, sums), 0.1).parameters[1].item()
    assert category == pytest.approx(np.sqrt(2) + np.log(4) / 2 - 3, abs=1e-4)


def test_the_shortfall_is_the_quantile_of_the_best_of_the_others():
    mean = torch.tensor([1.0, 0.5, 5.0, 0.9], dtype=torch.float64)
    fit = Independent(mean, torch.tensor([1e-12, 0.04, 1.0, 0.09]).double(), torch.arange(4))
    remain = torch.tensor([True, True, False, True])
    gaps = np.linspace(0, 3, 30_001)
    share = norm.cdf((1 + gaps - 0.5) / 0.2) * norm.cdf((1 + gaps - 0.9) / 0.3)
    assert shortfall(fit, 0, remain) == pytest.approx(gaps[np.searchsorted(share, 0.95)], abs=0.04)
    assert shortfall(fit, 2, torch.tensor([False, False, True, False])) == 0


@pytest.mark.parametrize("differ", [False, True])
def test_a_federation_searches_by_letters_without_repeats_and_finds_the_best(differ):
    points, _, _, _ = table(7, arms=40)
    means = torch.sin(5 * points).sum(-1)
    problems = [Problem("sines", points[None], means[None], (0,), 0, 0.01)] * 3
    plan = Plan(points, clients=3, fitting=Fitting(0.01, 8, SEARCH, differ))
    trace = play(problems if differ else problems[0], plan, 24)
    clients = torch.arange(trace.arm.shape[1]) % 3
    pulled = trace.arm[0] + (40 * clients if differ else 0)
    # a client whose turn ends an epoch goes on from the beginning of its share
    assert len(pulled) == plan.length + 24 <= len(pulled.unique()) + differ
    assert int(means.argmax()) in trace.arm[0].tolist()
    with pytest.raises(ValueError, match=r"goal is 'best': .*goal='reward'"):
        SEARCH.play(problems[0], 3, 8)
