"""F, C_g, C_h, μ and ζ in closed form against automatic differentiation, dense grids and corners of the box."""

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


def instance(size, seed, width=1.0):
    """A network, the lower and upper corner of a random box, and arms."""
    d_x, hidden, arms = size
    network = Network(d_x, hidden)
    ends = 2 * sample(2, network.size, seed=seed)
    middle = ends.mean(0)
    low, high = (middle + width * (end - middle) for end in (ends.amin(0), ends.amax(0)))
    return network, low, high, 1.5 * sample(arms, d_x, seed=100 + seed)


def inside(low, high, count, seed=0):
    """Random points of the box, a third of their coordinates at an end of it."""
    source = torch.Generator().manual_seed(seed)
    share = torch.rand(count, len(low), generator=source, dtype=torch.float64)
    return low + (1.5 * share - 0.25).clamp(0, 1) * (high - low)


def hessian_norms(network, w, arms):
    """‖∇²f_x(w)‖ by automatic differentiation, (n, K), at points ``w`` (n, d_w)."""
    hessian = torch.func.hessian(lambda w, x: network.values(w, x.unsqueeze(0)).squeeze(0))
    every = torch.func.vmap(torch.func.vmap(hessian, (None, 0)), (0, None))
    return torch.linalg.eigvalsh(every(w, arms)).abs().amax(-1)


# A box


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", SIZES)
def test_no_point_of_the_box_exceeds_a_bound(size, seed):
    network, low, high, arms = instance(size, seed, (1.0, 0.2, 3.0)[seed % 3])
    region, w = box(network, low, high, arms), inside(low, high, 300, seed)
    value = network.values(w, arms)
    assert (region.values[:, 0] <= value + 1e-12).all() and (value <= region.values[:, 1] + 1e-12).all()
    assert value.abs().max() <= value_bound(region) + 1e-12
    assert network.gradients(w, arms).norm(dim=-1).max() <= gradient_bound(region) + 1e-12
    assert hessian_norms(network, w[:60], arms).max() <= curvature_bound(region) + 1e-12
    layers = network.split(w)
    z = arms @ layers.w1.mT + layers.c1.unsqueeze(-2)
    assert (region.low <= z + 1e-12).all() and (z <= region.high + 1e-12).all()
    assert (layers.w2.abs() <= region.outer).all()


# A segment


# The suprema along a segment

BOUNDS = (value_bound, gradient_bound, curvature_bound)


def on_line(network, start, end, arms, share):
    """Largest |f|, |∇f| and |∇²f| at the points ``share`` (n,) of the way, exact, by the box of a single point."""
    w = start + share.unsqueeze(-1) * (end - start)
    point = box(network, w, w, arms)
    return [bound(point).amax() for bound in BOUNDS]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("size", SIZES)
def test_a_supremum_is_above_all_samples_and_below_the_interval_bound(size, seed):
    network, _, _, arms = instance(size, seed)
    start, end = 2 * sample(2, network.size, seed=40 + seed)
    share = torch.rand(400, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    share[:3] = torch.tensor([0.0, 0.5, 1.0])
    found, region = suprema(network, start, end, arms), segment(network, start, end, arms)
    for most, seen, bound in zip(found, on_line(network, start, end, arms, share), BOUNDS, strict=True):
        assert seen <= most * (1 + 1e-12)
        assert most <= bound(region) * (1 + 1e-12)
        assert most <= seen * 1.02


# The curvature of the loss


def loss_hessian(network, truth, arms):
    """∇²L(w*) by automatic differentiation."""
    target = network.values(truth, arms)
    return torch.func.hessian(lambda w: (network.values(w, arms) - target).square().mean())(truth)


@pytest.mark.parametrize("arms", [1, 3, 8, 9, 10, 40])
def test_the_curvature_of_the_loss_is_that_of_automatic_differentiation(arms):
    network = Network(2, 2)
    truth, x = 2 * sample(network.size, seed=5), 2 * sample(arms, 2, seed=6)
    found = loss_curvature(network.gradients(truth, x))
    spectrum = torch.linalg.eigvalsh(loss_hessian(network, truth, x))
    torch.testing.assert_close(found.zeta, spectrum[-1])
    rank = min(arms, network.size)
    torch.testing.assert_close(found.mu_plus, spectrum[-rank], rtol=1e-6, atol=1e-14)
    if arms < network.size:
        assert found.mu == 0 < found.mu_plus
    else:
        torch.testing.assert_close(found.mu, found.mu_plus, rtol=0, atol=0)


# The single unit


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
