"""GP-UCB with BoTorch: a valid trace that beats uniform play, and what it refuses."""

import sys
from pathlib import Path

import pytest
import torch

from fedgo import Problem, uniform_random

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from gp_ucb import gp_ucb


def hill(runs=1):
    """Ten arms on a line, the best at 0.7."""
    x = torch.linspace(0, 1, 10).double().expand(runs, 10).unsqueeze(-1)
    return Problem("hill", x, 1 - 4 * (x[..., 0] - 0.7).square(), tuple(range(runs)), sigma=0.05)


def test_botorchs_gp_ucb_is_a_valid_trace_that_beats_uniform_play():
    problem = hill()
    trace, blind = gp_ucb(problem, 3, 25, 2.0, first=6, refit=8), uniform_random(problem, 3, 25)
    assert trace.arm.shape == (1, 25) and trace.phase_one == 0
    assert 0 <= trace.arm.min() <= trace.arm.max() < 10
    assert (trace.up == 2).all() and (trace.down == 6).all() and trace.sync.all()
    assert trace.regret[0, 6:].mean() < 0.3 * blind.regret.mean()
    assert trace.regret[0, -5:].max() < 0.02  # at the best arm, 0.667, or at its neighbour


def test_botorchs_gp_ucb_plays_uniformly_while_all_rewards_are_equal():
    problem = Problem("zero", hill().arms, torch.zeros(1, 10).double(), (0,), reward="bernoulli")
    few, more = (gp_ucb(problem, 2, 14, 2.0, first=first) for first in (3, 14))
    assert torch.equal(few.arm, more.arm)


@pytest.mark.parametrize(("name", "value"), [("beta", -1.0), ("first", 15), ("refit", 0), ("steps", 0)])
def test_what_is_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=name):
        gp_ucb(**{"problem": hill(), "clients": 2, "steps": 14, "beta": 2.0} | {name: value})
