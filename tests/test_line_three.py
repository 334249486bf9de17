"""Line 3 as printed: points inside the ball, stationary, the same as the plain ascent in parameter space."""

import pytest
import torch

from fedgo import Network
from fedgo.confidence import Tally, ball
from fedgo.line_three.ascent import line_three
from fedgo.line_three.images import view


def setting(hidden=4, arms=7, d_x=3, seed=0):
    draw = torch.Generator().manual_seed(seed)
    network = Network(d_x, hidden)
    x = torch.rand(2, 1, arms, d_x, generator=draw, dtype=torch.float64)
    w0 = torch.randn(2, 1, network.size, generator=draw, dtype=torch.float64)
    counts = torch.randint(0, 3, (2, 5, arms), generator=draw).double()
    tally = Tally(counts, 0.2 * counts * torch.randn(2, 5, arms, generator=draw, dtype=torch.float64))
    return network, x, w0, tally


def points(network, x, confidence, u):
    """The parameters w = ŵ + Σ⁻¹A_xᵀu of the dual points ``u``, by dense algebra."""
    inputs = u[..., : network.hidden].unsqueeze(-1) * x.unsqueeze(-2)
    lifted = torch.cat([inputs.flatten(-2), u], -1)
    moved = torch.cholesky_solve(lifted.mT, torch.linalg.cholesky(confidence.sigma))
    return confidence.centre.unsqueeze(-2) + moved.mT


BALLS = [(1.0, 0.01), (1.0, 0.3), (0.1, 1.0), (0.01, 0.5), (2.0, 0.0)]


@pytest.mark.parametrize(("lam", "beta"), BALLS)
@pytest.mark.parametrize("hidden", [1, 4])
def test_every_point_lies_in_its_ball_and_has_the_value_returned(lam, beta, hidden):
    network, x, w0, tally = setting(hidden)
    found = line_three(view(network, w0, x), lam, beta, tally)
    confidence = ball(network.gradients(w0, x).expand(-1, 5, -1, -1), w0.expand(-1, 5, -1), lam, beta, tally)
    w = points(network, x, confidence, found.u)
    inside = confidence._replace(centre=confidence.centre.unsqueeze(-2), sigma=confidence.sigma.unsqueeze(-3))
    assert (inside.distance(w) <= beta * (1 + 1e-9) + 1e-18).all()
    at_point = network.values(w, x.unsqueeze(-2)).squeeze(-1)
    torch.testing.assert_close(at_point, found.value, rtol=0, atol=1e-9)
