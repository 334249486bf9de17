"""Hiding every reward: the mechanism, the model that counts with the noise, and its certificate.

The chapter on hiding rewards tests that no reward influences anything before it is released.
"""

import math

import pytest
import torch

from fedgo import Problem
from fedgo.beyond.evidence import private
from fedgo.beyond.evidence.private import Hiding, counted, fit_hidden, plan_hidden
from fedgo.beyond.evidence.studies import PRIVATE
from fedgo.confidence import Tally
from fedgo.experiments.runner import afresh, compared, read
from fedgo.experiments.world import Regime

PROBLEM = Regime("hartmann6", 20, rounds=20, clients=5).world(3, 1000).problem


def play(problem, **how):
    usual = {"steps": 100, "hiding": Hiding(5, 8.0), "batch": 2, "model": "less noise"}
    return private.play_hidden(problem, **usual | how)


def test_the_multiplier_is_the_least_that_balle_and_wang_allow():
    for epsilon, m in {0.5: 7.03, 1.0: 3.73, 2.0: 1.99, 4.0: 1.08, 8.0: 0.60}.items():
        multiplier = private.least_multiplier(epsilon, 1e-5)
        assert multiplier == pytest.approx(m, abs=0.005)
        assert private.leak(multiplier, epsilon) == pytest.approx(1e-5)
        assert private.leak(0.999 * multiplier, epsilon) > 1e-5
    # δ is the integral of the positive part of the one density less e^ε times the other
    z = torch.linspace(-40, 40, 400_001, dtype=torch.float64)
    one, other = torch.exp(-((z - 1) ** 2) / 2 / 1.2**2), torch.exp(-(z**2) / 2 / 1.2**2)
    excess = (one - math.e**1.5 * other).clamp(min=0).sum() * (z[1] - z[0]) / (1.2 * math.sqrt(2 * math.pi))
    assert private.leak(1.2, 1.5) == pytest.approx(float(excess), rel=1e-6)


def test_who_adds_the_noise_decides_how_much_there_is():
    once = 3.5 * private.least_multiplier(8.0, 1e-5)
    noise = [Hiding(20, 8.0, way=way).noise for way in private.WAYS]
    assert noise == pytest.approx([once, once * math.sqrt(20 / 14), once * math.sqrt(20)])
    assert Hiding(20, 8.0, low=-1.0, high=6.0).noise == pytest.approx(2 * noise[1])


def test_a_release_is_the_sum_of_cut_rewards_with_the_noise_of_the_mechanism():
    arms, means = torch.rand(2000, 5, 2).double(), torch.ones(2000, 5).double()
    problem, hiding = Problem("flat", arms, means, tuple(range(2000))), Hiding(5, 2.0, low=0.0, high=0.5)
    _, releases = play(problem, steps=10, hiding=hiding)
    left = releases[0] - 2 * 0.5  # every reward is cut to 0.5
    assert left.std().item() == pytest.approx(hiding.noise, rel=0.03)
    assert abs(left.mean().item()) < 4 * left.std().item() / 100


def test_a_cell_counts_as_many_pulls_as_its_noise_leaves_and_a_plan_piles_up():
    pulls, noise, sigma = torch.tensor([0.0, 1.0, 50.0]).double(), 3.0, 0.5
    n = counted(pulls, noise, sigma)
    torch.testing.assert_close(sigma**2 / n[1:], (sigma**2 * pulls[1:] + noise**2) / pulls[1:] ** 2)
    assert n[0] == 0
    alike, order = (torch.zeros(4).double(), torch.eye(4).double()), torch.rand(1, 4).double()
    assert (plan_hidden([alike], order, 40, 1e-9, sigma)[0].bincount() == 10).all()
    ahead = (torch.tensor([1.0, 0, 0, 0]).double(), torch.eye(4).double())
    first, later = (plan_hidden([ahead], order, 40, noise, sigma)[0].tolist() for noise in (1e-9, 3.0))
    assert first[:2] != [0, 0] and later[:4] == 4 * [0]  # under noise one pull of an arm says nearly nothing
    assert plan_hidden([alike], order, 2_500, noise, sigma).shape == (1, 2_500)


def test_the_spread_of_f_is_that_of_the_means_less_the_noise(monkeypatch):
    monkeypatch.setattr(private, "mode", lambda *_, **__: torch.full((7,), -8.0).double())
    arms, counts = torch.rand(400, 6).double(), torch.full((400,), 4.0).double()
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0]).double()] * 2).repeat(100, 1)
    sums = counts * (0.3 * signs[:, 0] + 0.5 * signs[:, 1])  # f, and noise of σ/√4
    for model, spread in (("less noise", 0.3), ("as seen", math.hypot(0.3, 0.5))):
        _, covariance = fit_hidden(model, 0.01, 1.0, arms, counts, sums)
        expected = 1 / (1 / spread**2 + 1 / 0.5**2)  # of arms that say nothing of each other
        assert covariance.diagonal().mean().item() == pytest.approx(expected, rel=0.01)
    f, covariance = fit_hidden("warped", 0.01, 1.0, arms, counts, sums)
    assert f.shape == (400,) and covariance.shape == (400, 400)


@pytest.mark.slow
def test_a_stored_run_with_every_model_comes_again():
    rows = read("private").query("rounds == 100 and run == 0").dropna(subset="model").drop_duplicates("model")
    assert len(rows) == 3 and compared(PRIVATE, rows, afresh(PRIVATE, rows))["same"].all()


def test_the_interval_under_noise_by_hand():
    # two cells of 3 and 5 pulls: ñ = 9/(3 + 4) + 25/(5 + 4), with (ν/σ)² = 4
    told = Tally(
        torch.tensor([9 / 7 + 25 / 9, 0.0]).double(), torch.tensor([3 * 0.9 / 7 + 5 * 2.0 / 9, 0.0]).double()
    )
    n = told.counts[0].item()
    lower, upper, _ = private.interval_under_noise(told, 0.5, 0.1)
    half = 0.5 * math.sqrt((1 + n) * (math.log(1 + n) + 2 * math.log(2 / 0.1))) / n
    assert (upper - lower)[0].item() == pytest.approx(2 * half)
    assert (upper + lower)[0].item() / 2 == pytest.approx(told.sums[0].item() / n)
    assert upper[1] == -lower[1] == math.inf  # nothing was released of the other arm


def test_a_large_delta_is_warned_of_and_cut_rewards_are_counted():
    with pytest.warns(UserWarning, match=r"delta is 0.02: give less than 1/\(NT\) = 0.01"):
        play(PROBLEM, hiding=Hiding(5, 1.0, 0.02))
    trace, _ = play(PROBLEM, hiding=Hiding(5, 1.0, low=0.2))
    assert torch.equal(trace.notes["cut"], (trace.reward < 0.2) | (trace.reward > 3.5))
    assert trace.notes["cut"].any() and (trace.reward < 0.2).any()
