"""The search for w*: it fits every arm, moves least where that has a closed form, and says so when it cannot fit."""

import pytest
import torch

from fedgo import Network, SingleUnit, cosine8, hartmann6
from fedgo.theory.interpolation import interpolate


@pytest.mark.parametrize("problem", [hartmann6(3), cosine8(3, arms=20)])
@pytest.mark.parametrize("seed", range(3))
def test_every_arm_has_its_mean_reward(problem, seed):
    network = Network(problem.arms.shape[-1])
    source = torch.Generator().manual_seed(seed)
    start = torch.randn(3, network.size, generator=source, dtype=torch.float64)
    found = interpolate(network, start, problem.arms, problem.means)
    assert (network.values(found, problem.arms) - problem.means).abs().max() <= 1e-10
    assert ((found - start).norm(dim=1) > 1e-3).all()


@pytest.mark.parametrize("seed", range(10))
def test_one_tanh_unit_moves_to_the_nearest_parameter(seed):
    # tanh(wᵀx) = y is wᵀx = artanh y, and every step is in the span of the arms: w* = w₀ + X⁺(artanh y − Xw₀)
    source = torch.Generator().manual_seed(seed)
    unit, start = SingleUnit(6), torch.randn(2, 6, generator=source, dtype=torch.float64) / 4
    arms = torch.randn(2, 4, 6, generator=source, dtype=torch.float64)
    means = 1.6 * torch.rand(2, 4, generator=source, dtype=torch.float64) - 0.8
    nearest = start + (
        torch.linalg.pinv(arms) @ (means.atanh() - (arms @ start.unsqueeze(-1)).squeeze(-1)).unsqueeze(-1)
    ).squeeze(-1)
    assert torch.allclose(interpolate(unit, start, arms, means, 1e-13), nearest, atol=1e-9, rtol=0)


def test_a_run_does_not_depend_on_its_neighbours():
    problem = hartmann6(4)
    network = Network(6)
    start = torch.randn(4, network.size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    together = interpolate(network, start, problem.arms, problem.means)
    for r in range(4):
        alone = interpolate(network, start[[r]], problem.arms[[r]], problem.means[[r]])
        assert torch.allclose(alone[0], together[r], atol=1e-6, rtol=0)  # a run that waits is polished


def test_a_parameter_that_fits_stays_where_it_is():
    network, problem = Network(6), hartmann6(2)
    start = torch.ones(2, network.size, dtype=torch.float64)
    means = network.values(start, problem.arms)
    assert torch.equal(interpolate(network, start, problem.arms, means), start)


def test_more_arms_than_parameters_are_refused(monkeypatch):
    monkeypatch.setattr("fedgo.theory.interpolation._MOST_STEPS", 50)
    problem = hartmann6(1)
    with pytest.raises(ArithmeticError, match="no parameter fits all arms"):
        interpolate(Network(6, 2), torch.zeros(1, 17, dtype=torch.float64), problem.arms, problem.means)
