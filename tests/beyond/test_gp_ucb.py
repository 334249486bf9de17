"""GP-UCB with BoTorch, as the benchmark plays it: a valid trace that beats uniform play, and equal rewards."""

import torch
from gp_ucb import gp_ucb

from fedgo import Problem, uniform_random


def test_botorchs_gp_ucb_is_a_valid_trace_that_beats_uniform_play():
    x = torch.linspace(0, 1, 10).double().view(1, 10, 1)  # the best arm is at 0.7
    problem = Problem("hill", x, 1 - 4 * (x[..., 0] - 0.7).square(), (0,), sigma=0.05)
    trace, blind = gp_ucb(problem, 3, 25, 2.0, first=6, refit=8), uniform_random(problem, 3, 25)
    assert trace.arm.shape == (1, 25) and trace.phase_one == 0 <= trace.arm.min() <= trace.arm.max() < 10
    assert (trace.up == 2).all() and (trace.down == 6).all() and trace.sync.all()
    assert trace.regret[0, 6:].mean() < 0.3 * blind.regret.mean()
    assert trace.regret[0, -5:].max() < 0.02  # at the best arm, 0.667, or at its neighbour


def test_botorchs_gp_ucb_plays_uniformly_while_all_rewards_are_equal():
    arms = torch.linspace(0, 1, 10).double().view(1, 10, 1)
    problem = Problem("zero", arms, torch.zeros(1, 10).double(), (0,), reward="bernoulli")
    few, more = (gp_ucb(problem, 2, 14, 2.0, first=first) for first in (3, 14))
    assert torch.equal(few.arm, more.arm)
