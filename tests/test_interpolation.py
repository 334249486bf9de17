"""The search for w*: it fits every arm, moves least where that has a closed form, and says so when it cannot fit."""

import pytest
import torch
from instances import sample

from fedgo import Network, SingleUnit, cosine8, hartmann6
from fedgo.theory.interpolation import interpolate


@pytest.mark.parametrize("problem", [hartmann6(3), cosine8(3, arms=20)])
@pytest.mark.parametrize("seed", range(3))
def test_every_arm_has_its_mean_reward(problem, seed):
    network = Network(problem.arms.shape[-1])
    start = sample(3, network.size, seed=seed)
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
    gap = means.atanh().unsqueeze(-1) - arms @ start.unsqueeze(-1)
    nearest = start + (torch.linalg.pinv(arms) @ gap).squeeze(-1)
    assert torch.allclose(interpolate(unit, start, arms, means, 1e-13), nearest, atol=1e-9, rtol=0)


def test_more_arms_than_parameters_are_refused(monkeypatch):
    monkeypatch.setattr("fedgo.theory.interpolation._MOST_STEPS", 50)
    problem = hartmann6(1)
    with pytest.raises(ArithmeticError, match="no parameter fits all arms"):
        interpolate(Network(6, 2), torch.zeros(1, 17, dtype=torch.float64), problem.arms, problem.means)
