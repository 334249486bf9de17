"""F, C_g and C_h on a segment against samples and interval bounds; μ and ζ against automatic differentiation."""

import pytest
import torch
from instances import sample

from fedgo import Network
from fedgo.theory.smoothness import (
    box,
    curvature_bound,
    gradient_bound,
    loss_curvature,
    measured,
    segment,
    suprema,
    value_bound,
)

SIZES = [(1, 1, 1), (1, 3, 4), (2, 2, 3), (3, 1, 5)]  # d_x, H, K


BOUNDS = (value_bound, gradient_bound, curvature_bound)


def on_line(network, start, end, arms, share):
    """Largest |f|, |∇f| and |∇²f| at the points ``share`` (n,) of the way, exact, by the box of a single point."""
    w = start + share.unsqueeze(-1) * (end - start)
    point = box(network, w, w, arms)
    return [bound(point).amax() for bound in BOUNDS]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("size", SIZES)
def test_a_supremum_is_above_all_samples_and_below_the_interval_bound(size, seed):
    d_x, hidden, count = size
    network, arms = Network(d_x, hidden), 1.5 * sample(count, d_x, seed=100 + seed)
    start, end = 2 * sample(2, network.size, seed=40 + seed)
    share = torch.rand(400, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    share[:3] = torch.tensor([0.0, 0.5, 1.0])
    found, region = suprema(network, start, end, arms), segment(network, start, end, arms)
    for most, seen, bound in zip(found, on_line(network, start, end, arms, share), BOUNDS, strict=True):
        assert seen <= most * (1 + 1e-12)
        assert most <= bound(region) * (1 + 1e-12)
        assert most <= seen * 1.02


def test_the_least_curvature_of_the_loss_is_zero_with_fewer_arms_than_parameters():
    gradients = torch.tensor([[3.0, 0.0], [0.0, 1.0]], dtype=torch.float64)  # (2/K)JᵀJ is diag(9, 1)
    assert loss_curvature(gradients) == (1, 1, 9) and loss_curvature(gradients[:1]) == (0, 18, 18)


@pytest.mark.parametrize("scale", [0.2, 3.0])
def test_measured_constants_are_those_of_the_network_in_units_of_its_cube(scale):
    network, runs, count = Network(2, 2), 3, 4
    w, arms = scale * sample(runs, network.size, seed=1), sample(runs, count, 2, seed=2)
    found = measured(network, w, w, arms, 0.3)
    for row in range(runs):
        side, x = 2 * w[row].abs().max(), arms[row]
        v = w[row] / side
        assert v.abs().max() == 0.5

        def value(v, x=x, side=side):
            return network.values(side * v, x)

        def loss(v, x=x, truth=w[row], side=side):
            return (value(v, x, side) - network.values(truth, x)).square().mean()

        a, zeta = found[row]
        slope = torch.func.jacrev(value)(v).norm(dim=-1).max().item()
        bend = torch.linalg.matrix_norm(torch.func.hessian(value)(v), ord=2).max().item()
        eigenvalues = torch.linalg.eigvalsh(torch.func.hessian(loss)(v))
        assert (a.dimension, a.noise, a.value) == (9, 0.3, pytest.approx(value(v).abs().max().item()))
        assert (a.slope, a.curvature) == (pytest.approx(slope), pytest.approx(bend))
        assert (a.growth, zeta) == (
            pytest.approx(eigenvalues[-count].item()),
            pytest.approx(eigenvalues[-1].item()),
        )
