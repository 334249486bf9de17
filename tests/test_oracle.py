"""Phase I: its length, and uniform pulls."""

import torch

from fedgo import hartmann6, phase_one_length
from fedgo.phase_one import explore


def test_phase_one_length_is_the_ceiling_of_the_root():
    assert [phase_one_length(20, 100), phase_one_length(100, 100), phase_one_length(1, 1)] == [45, 100, 1]
    assert phase_one_length(10, 10) == 10 and phase_one_length(101, 1) == 11


def test_exploration_is_uniform_over_the_arms():
    problem = hartmann6(20, arms=5)
    arm = explore(problem, 1000).arm
    share = torch.stack([(arm == k).double().mean() for k in range(5)])
    assert (share - 0.2).abs().max() < 4 * (0.2 * 0.8 / 20_000) ** 0.5
