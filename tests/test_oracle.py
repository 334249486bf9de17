"""Phase I: its length, uniform pulls, and private fits that do not depend on their company."""

import pytest
import torch

from fedgo import Langevin, Network, hartmann6, phase_one_length, private_start
from fedgo.phase_one import explore


def test_phase_one_length_is_the_ceiling_of_the_root():
    assert [phase_one_length(20, 100), phase_one_length(100, 100), phase_one_length(1, 1)] == [45, 100, 1]
    assert phase_one_length(10, 10) == 10 and phase_one_length(101, 1) == 11


def test_exploration_is_uniform_over_the_arms():
    problem = hartmann6(20, arms=5)
    arm = explore(problem, 1000).arm
    share = torch.stack([(arm == k).double().mean() for k in range(5)])
    assert (share - 0.2).abs().max() < 4 * (0.2 * 0.8 / 20_000) ** 0.5


@pytest.mark.parametrize("clients", [3, 40, 101])
def test_private_fits_of_a_run_do_not_depend_on_how_many_are_fitted_at_once(clients):
    problem, network, brief = hartmann6(5, arms=8), Network(6, 3), Langevin(rounds=70)
    start = private_start(problem, network, clients, 20, brief)
    assert start.w0.shape == (5, clients, network.size) and start.loss.shape == (5, clients)
    assert len(start.w0.flatten(0, 1).unique(dim=0)) == 5 * clients  # the noise of each is its own
    for run in range(5):
        alone = private_start(problem.only(run), network, clients, 20, brief)
        assert torch.allclose(start.w0[run], alone.w0[0], atol=1e-12, rtol=0)
        assert torch.allclose(start.loss[run], alone.loss[0], atol=1e-12, rtol=0)
