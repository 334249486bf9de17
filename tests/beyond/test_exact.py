"""Theorem S: the computable λ, the belief, the radius, and the certificate of any trace."""

import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import about, certificates, double
from protocols import kernel_widths, log_ratio

from fedgo import Langevin, Network, realizable, shared_start
from fedgo.beyond.guarantees import exact
from fedgo.beyond.guarantees.optimist import exact_go_ucb
from fedgo.confidence import Tally, compress, condition

BRIEF = Langevin(rounds=40, step=0.1)
cases = settings(max_examples=150, deadline=None, derandomize=True)
sizes = st.tuples(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 12))


def draw(seed, *shape):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def features_of(size, exponent):
    """(K, 12 + K): any gradients, of rank below K too, over √λ, and beside them a little of every arm's own."""
    seed, arms, rank = size
    gradients = draw(seed, arms, rank) @ draw(seed + 1, rank, 12)
    return torch.cat([gradients / 10.0 ** (exponent / 2), 0.3 * torch.eye(arms, dtype=torch.float64)], 1)


def counts_of(seed, arms):
    """Pulls from none to thousands, many of them none."""
    chance = np.random.default_rng(seed)
    return torch.from_numpy(np.floor(10 ** chance.uniform(0, 4, arms)) * (chance.random(arms) < 0.7))


# The parameter, and what a client can compute of it


@given(st.integers(0, 10**6), st.integers(1, 12), st.floats(0.1, 10), st.floats(0.01, 3))
@cases
def test_the_computable_lam_makes_the_bias_at_most_sigma(seed, arms, value, sigma):
    g, offsets = draw(seed, arms, 12), 3 * draw(seed + 2, arms)
    corner = value * draw(seed + 3, arms).sign()
    inside = corner * draw(seed + 4, arms).sigmoid()
    made = exact.Prior.of(g, offsets, exact.computable_lam(g, offsets, value, sigma))
    for means in (corner, inside, -value * offsets.sign()):
        assert made.bias(means) <= sigma * (1 + 1e-6)


def test_the_lam_is_attained_by_one_arm_and_no_larger_one_will_do():
    g, offsets = double([[3.0, 4.0]]), double([-0.5])
    lam = exact.computable_lam(g, offsets, 2.0, 0.1)
    worst = double([2.0])
    assert lam.item() == about(0.04)  # σ_min = 5, F + |f(ŵ₀)| = 2.5: (0.1·5/2.5)²
    assert exact.Prior.of(g, offsets, lam).bias(worst).item() == about(0.1)
    assert exact.Prior.of(g, offsets, 1.01 * lam).bias(worst) > 0.1


# The belief


@given(sizes, st.floats(-6, 2))
@cases
def test_the_belief_is_the_dense_one(size, exponent):
    seed, arms, _ = size
    features, offsets = features_of(size, exponent), draw(seed + 2, arms)
    counts = counts_of(seed + 3, arms)
    sums = counts * draw(seed + 4, arms)
    found = exact.Prior(compress(features).features, offsets).after(Tally(counts, sums))
    # ridge in the features with weight 1
    features, n = features.numpy(), counts.numpy()
    kernel = features @ features.T
    sigma = np.eye(features.shape[1]) + features.T @ (n[:, None] * features)
    moved = np.linalg.solve(sigma, features.T @ (sums - counts * offsets).numpy())
    scale = 1 + np.sqrt(np.diag(kernel)).max()
    np.testing.assert_allclose(found.mean.numpy(), offsets.numpy() + features @ moved, atol=1e-7 * scale)
    np.testing.assert_allclose(found.width.square().numpy(), kernel_widths(kernel, n), rtol=1e-6, atol=1e-7)
    assert found.information.item() == pytest.approx(log_ratio(kernel, n), rel=1e-6, abs=1e-6)
    means = draw(seed + 5, arms)
    away = (means - found.mean).numpy()
    squared = away @ np.linalg.solve(kernel, away) + away @ (n * away)
    assert found.distance(means).item() == pytest.approx(math.sqrt(squared), rel=1e-4)


def exact_widths(g, lam, counts):
    """(A⁻¹)_xx of A = λ(GGᵀ)⁻¹ + diag(n), with fifty digits."""
    with mpmath.workdps(50):
        gradients = mpmath.matrix(g.tolist())
        precision = mpmath.mpf(lam) * (gradients * gradients.T) ** -1 + mpmath.diag(counts.tolist())
        widths = precision**-1
        return [float(widths[x, x]) for x in range(len(counts))]


@pytest.mark.parametrize("seed", range(6))
def test_the_widths_are_right_at_lam_1e_12_where_the_factor_of_sigma_loses_them(seed):
    # two arms nearly alike, as on the data sets: Σ's smallest and largest eigenvalues are 1e18 apart
    g = draw(seed, 7, 9)
    g[1] = g[0] + 1e-3 * g[1]
    counts = double([2000.0, 3, 0, 1, 500, 0, 7])
    offsets, tally = torch.zeros(7).double(), Tally(counts, torch.zeros(7).double())
    truth = torch.tensor(exact_widths(g, 1e-12, counts), dtype=torch.float64)
    found = exact.Prior.of(g, offsets, 1e-12).after(tally).width.square()
    assert (found / truth - 1).abs().max() < 1e-7
    lost = condition(g, offsets, 1e-12, tally).variance
    assert (lost / truth - 1).abs().max() > 1e-6


# The player and the certificate


@pytest.fixture(scope="module", params=[0, 1])
def played(request):
    """The problem, Phase I, the bound on |f| and four runs of either of two problems."""
    network = Network(3, 30)
    problem = realizable(network, 4, arms=9, seed=request.param, sigma=0.2, scale=1.5)
    start = shared_start(problem, network, 4, 25, BRIEF)
    value = 1.5 * problem.means.abs().max().item()
    trace = exact_go_ucb(start, value, gamma=0.5)
    return problem, start, value, trace


def test_the_certificate_of_the_run_is_that_of_its_trace_and_within_the_closed_form(played):
    _, start, value, trace = played
    assert trace.sync.sum() > 8
    intervals = exact.exact_intervals(start, value)
    found = certificates(trace, intervals, 9)
    most = double([bound.total for bound in exact.exact_regret(intervals, 25, 0.5)])
    assert (found.sum(1) <= most).all()
    torch.testing.assert_close(trace.notes["certificate"][:, trace.phase_one :], found, rtol=1e-9, atol=1e-9)
    assert (trace.notes["certificate"][:, : trace.phase_one] == 2 * value).all()
    assert (trace.regret <= trace.notes["certificate"]).all()


PRIOR = exact.Prior(torch.diag_embed(double([[2.0, 1.0]])), double([[0.5, -0.2]]))  # Q = diag(4, 1)
TWO_ARMS = exact.ExactIntervals(2, 0.1, 3.0, prior=PRIOR)


def test_the_intervals_by_hand():
    # three pulls of the first arm with a sum of 1.2: A = diag(1/4 + 3, 1), ln det QA = ln 13
    known = Tally(double([[[3.0, 0.0]]]), double([[[1.2, 0.0]]]))
    found = TWO_ARMS.after(known, torch.tensor([[1]]), shared=known)
    root = 0.1 * math.sqrt(math.log(13) + 2 * math.log(math.pi**2 * 2 * 4 / 0.6)) + 0.1
    for x, (mean, width) in enumerate(((0.5 - 0.3 / 3.25, math.sqrt(1 / 3.25)), (-0.2, 1.0))):
        assert found.lower[0, 0, x].item() == about(mean - root * width)
        assert found.upper[0, 0, x].item() == about(mean + root * width)
        assert found.gain[0, 0, x].item() == about(math.log1p(width**2))


def test_the_closed_form_by_hand():
    # no width above 2; N = 2, T = 5
    bound = 2 * math.log1p(10 * 4 / 2)  # R = K ln(1 + NT·4/K)
    syncs = bound / 1.6 + math.sqrt((bound / 1.6) ** 2 + 5 * bound / 0.8)
    root = 0.1 * math.sqrt(bound + 2 * math.log(math.pi**2 * 2 * (min(syncs, 10) + 1) ** 2 / 0.6)) + 0.1
    clip = min(3.0 / root, 2.0)
    scale = 2 * root * math.sqrt(clip**2 / math.log1p(clip**2))
    (found,) = exact.exact_regret(TWO_ARMS, 5, 0.8)
    assert found.good == about(scale * math.sqrt(math.e * 10 * bound))
    assert found.bad == about(math.floor(bound) * (2 * scale * math.sqrt(0.8) + 6))
    assert found.second_order == 0
