"""The class of one tanh unit: what is drawn, and the certified constants against grids, corners and random pairs."""

import itertools
import math

import pytest
import torch

from fedgo import SingleUnit, theory


def rand(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_problem_is_realizable_inside_the_cube_and_its_arms_have_both_signs():
    found = theory.worlds.single_unit(40, 3, 20, seed=5, sigma=0.2, scale=3.0)
    assert found.arms.shape == (40, 20, 3) and found.truth.shape == (40, 3) and found.sigma == 0.2
    assert torch.equal(found.means, SingleUnit(3).values(found.truth, found.arms))
    assert 0.2 <= found.truth.min() < 0.22 and 0.78 < found.truth.max() <= 0.8
    assert -1.5 <= found.arms.min() < -1.49 and 1.49 < found.arms.max() <= 1.5


def test_a_run_is_the_same_alone_in_any_batch():
    all_runs, alone = theory.worlds.single_unit(4, 2, 6, seed=1), theory.worlds.single_unit([2], 2, 6, seed=1)
    assert torch.equal(all_runs.arms[2:3], alone.arms) and torch.equal(all_runs.truth[2:3], alone.truth)


@pytest.mark.parametrize(("dimension", "scale"), [(1, 1.0), (2, 1.0), (3, 4.0)])
def test_the_constants_bound_value_slope_and_curvature_and_are_attained(dimension, scale):
    problem, unit = theory.worlds.single_unit(3, dimension, 12, seed=7, scale=scale), SingleUnit(dimension)
    known = theory.worlds.single_unit_assumptions(problem)
    corners = torch.tensor(list(itertools.product((0.0, 1.0), repeat=dimension)), dtype=torch.float64)
    at_corners = unit.values(corners.unsqueeze(1), problem.arms.flatten(0, 1)).abs()
    assert known.value == pytest.approx(at_corners.max().item(), rel=1e-12)
    w = 3 * torch.randn(500, 1, dimension, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    points = problem.arms.flatten(0, 1)
    assert unit.gradients(w.squeeze(1), points).norm(dim=-1).max() <= known.slope
    flat = unit.gradients(torch.zeros(dimension).double(), points).norm(dim=-1)
    assert flat.max().item() == pytest.approx(known.slope, rel=1e-12)
    # ∇²f = tanh″(wᵀx) xxᵀ, and |tanh″| is largest where tanh² = 1/3
    longest = points[points.norm(dim=-1).argmax()]
    at = longest / longest.square().sum() * math.atanh(1 / math.sqrt(3))
    bent = [
        torch.autograd.functional.hessian(lambda v: unit.values(v, longest.unsqueeze(0)).squeeze(), v)
        for v in (at, 1.1 * at, 0.9 * at, -at)
    ]
    norms = [torch.linalg.eigvalsh(hessian).abs().max().item() for hessian in bent]
    assert norms[0] == pytest.approx(known.curvature, rel=1e-9)
    assert max(norms) <= known.curvature * (1 + 1e-12)
    assert known.noise == problem.sigma and known.dimension == dimension and known.tail == math.inf


@pytest.mark.parametrize("seed", range(8))
def test_the_growth_holds_between_any_two_points_of_the_cube(seed):
    problem, unit = theory.worlds.single_unit(1, 2, 4, seed=seed, scale=3.0), SingleUnit(2)
    known = theory.worlds.single_unit_assumptions(problem)
    one, two = rand(4000, 2, seed=seed), rand(4000, 2, seed=seed + 100).round(decimals=1)
    apart = unit.values(one, problem.arms[0]) - unit.values(two, problem.arms[0])
    assert (apart.square().mean(-1) >= known.growth / 2 * (one - two).square().sum(-1)).all()
