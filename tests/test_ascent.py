"""Line 3 as printed: points inside the ball, stationary, and the same choice when arms are ruled out."""

import pytest
import torch

from fedgo import Network
from fedgo.confidence import Tally, ball, compress
from fedgo.line_three import _slope, line_three, points, view


def setting(hidden=4, arms=7, d_x=3, seed=0):
    draw = torch.Generator().manual_seed(seed)
    network = Network(d_x, hidden)
    x = torch.rand(2, 1, arms, d_x, generator=draw, dtype=torch.float64)
    w0 = torch.randn(2, 1, network.size, generator=draw, dtype=torch.float64)
    counts = torch.randint(0, 3, (2, 5, arms), generator=draw).double()
    tally = Tally(counts, 0.2 * counts * torch.randn(2, 5, arms, generator=draw, dtype=torch.float64))
    return network, x, w0, compress(network.gradients(w0, x)), tally


BALLS = [(1.0, 0.01), (1.0, 0.3), (0.1, 1.0), (0.01, 0.5), (2.0, 0.0)]


@pytest.mark.parametrize(("lam", "beta"), BALLS)
@pytest.mark.parametrize("hidden", [1, 4])
def test_every_point_lies_in_its_ball_and_has_the_value_returned(lam, beta, hidden):
    network, x, w0, coordinates, tally = setting(hidden)
    found = line_three(view(network, w0, x, coordinates), lam, beta, tally, rule_out=False)
    w = points(network, x, w0, coordinates, lam, tally, found.u)
    confidence = ball(network.gradients(w0, x).expand(-1, 5, -1, -1), w0.expand(-1, 5, -1), lam, beta, tally)
    inside = confidence._replace(centre=confidence.centre.unsqueeze(-2), sigma=confidence.sigma.unsqueeze(-3))
    assert (inside.distance(w) <= beta * (1 + 1e-9) + 1e-18).all()
    at_point = network.values(w, x.unsqueeze(-2)).squeeze(-1)
    torch.testing.assert_close(at_point, found.value, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("lam", "beta"), BALLS[:3])
def test_it_is_never_below_the_linear_solution_and_ends_where_the_gradient_points_out_of_the_ball(lam, beta):
    network, x, w0, coordinates, tally = setting()
    seen = view(network, w0, x, coordinates)
    found = line_three(seen, lam, beta, tally, rule_out=False)
    gradients = network.gradients(w0, x).expand(-1, 5, -1, -1)
    confidence = ball(gradients, w0.expand(-1, 5, -1), lam, beta, tally)
    factor = torch.linalg.cholesky(confidence.sigma).unsqueeze(-3)
    half = torch.linalg.solve_triangular(factor, gradients.unsqueeze(-1), upper=False)
    step = torch.linalg.solve_triangular(factor.mT, half, upper=True).squeeze(-1)
    linear = confidence.centre.unsqueeze(-2) + beta**0.5 * step / half.norm(dim=-2)
    start = network.values(linear, x.unsqueeze(-2)).squeeze(-1)
    assert (found.value >= start - 1e-10).all()
    # stationary on the sphere: Σ^{-½}∇f(w) parallel to Σ^{½}(w − ŵ)
    w = points(network, x, w0, coordinates, lam, tally, found.u)
    steepest = network.gradients(w, x.expand(2, 5, -1, -1).unsqueeze(-2))
    out = torch.linalg.solve_triangular(factor, steepest.mT, upper=False).squeeze(-1)
    away = (factor.mT @ (w - confidence.centre.unsqueeze(-2)).unsqueeze(-1)).squeeze(-1)
    cosine = (out * away).sum(-1) / (out.norm(dim=-1) * away.norm(dim=-1))
    assert cosine.min() > (1 - 1e-6 if beta < lam else 0.99)  # slow where the ball is large


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("lam", "beta"), BALLS)
def test_ruling_arms_out_changes_no_choice(lam, beta, seed):
    network, x, w0, coordinates, tally = setting(arms=20, seed=seed)
    seen = view(network, w0, x, coordinates)
    some, every = (line_three(seen, lam, beta, tally, rule_out=flag) for flag in (True, False))
    assert torch.equal(some.value.argmax(-1), every.value.argmax(-1))
    assert every.ascended.all()
    if beta / lam < 0.1:
        assert some.ascended.double().mean() < 0.5  # otherwise nothing would have been ruled out


def test_the_upper_bound_that_rules_arms_out_holds_at_random_points_of_the_ball():
    """No arm's value anywhere in the ball may beat the best arm found, and be of an arm that was ruled out."""
    network, x, w0, coordinates, tally = setting(arms=20)
    lam, beta = 1.0, 0.05
    found = line_three(view(network, w0, x, coordinates), lam, beta, tally)
    best = found.value.amax(-1)
    confidence = ball(network.gradients(w0, x).expand(-1, 5, -1, -1), w0.expand(-1, 5, -1), lam, beta, tally)
    factor = torch.linalg.cholesky(confidence.sigma)
    for seed in range(50):
        direction = torch.randn(2, 5, network.size, 1, generator=torch.Generator().manual_seed(seed)).double()
        direction = beta**0.5 * direction / direction.norm(dim=-2, keepdim=True)
        step = torch.linalg.solve_triangular(factor.mT, direction, upper=True).squeeze(-1)
        value = network.values(confidence.centre + step, x.expand(-1, 5, -1, -1))
        assert (value.amax(-1) <= best + 1e-9).all()


def test_slope_is_the_derivative_of_the_value():
    theta = torch.randn(
        3, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    ).requires_grad_()
    hidden = 4
    value = (theta[:, hidden:-1] * torch.sigmoid(theta[:, :hidden])).sum(-1) + theta[:, -1]
    torch.testing.assert_close(_slope(theta), torch.autograd.grad(value.sum(), theta)[0])
