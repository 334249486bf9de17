"""Line 3 as printed: points inside the ball, stationary, and the same choice where upper bounds rule arms out."""

import itertools
import math

import pytest
import torch
from reference import go_ucb as reference

from fedgo import Network
from fedgo.confidence import Tally, ball
from fedgo.optimism.cuts import bounds, prior_cuts, tighten, unit_maxima
from fedgo.optimism.images import images, view
from fedgo.optimism.line_three import LineThree, Optimum, _blank, _images, _search, line_three


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


def searched(seen, lam, beta, tally):
    """What the index finds at its first call, where arms are ascended that may be the largest."""
    images = _images(seen, lam, beta, tally)
    found, _ = _search(images, _blank(images), None, torch.ones_like(images.spare, dtype=torch.bool), True)
    return Optimum(*(part.reshape(2, 5, *part.shape[2:]) for part in found))


BALLS = [(1.0, 0.01), (1.0, 0.3), (0.1, 1.0), (0.01, 0.5), (2.0, 0.0)]
WIDE = [(0.1, 1.0), (0.01, 0.5), (1e-4, 1.0)]


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


@pytest.mark.parametrize(("lam", "beta"), BALLS[:3])
def test_it_is_never_below_the_linear_solution_and_ends_where_the_gradient_points_out_of_the_ball(lam, beta):
    network, x, w0, tally = setting()
    seen = view(network, w0, x)
    found = line_three(seen, lam, beta, tally)
    gradients = network.gradients(w0, x).expand(-1, 5, -1, -1)
    confidence = ball(gradients, w0.expand(-1, 5, -1), lam, beta, tally)
    factor = torch.linalg.cholesky(confidence.sigma).unsqueeze(-3)
    half = torch.linalg.solve_triangular(factor, gradients.unsqueeze(-1), upper=False)
    step = torch.linalg.solve_triangular(factor.mT, half, upper=True).squeeze(-1)
    linear = confidence.centre.unsqueeze(-2) + beta**0.5 * step / half.norm(dim=-2)
    start = network.values(linear, x.unsqueeze(-2)).squeeze(-1)
    assert (found.value >= start - 1e-10).all()
    # stationary on the sphere: Σ^{-½}∇f(w) parallel to Σ^{½}(w − ŵ)
    w = points(network, x, confidence, found.u)
    steepest = network.gradients(w, x.expand(2, 5, -1, -1).unsqueeze(-2))
    out = torch.linalg.solve_triangular(factor, steepest.mT, upper=False).squeeze(-1)
    away = (factor.mT @ (w - confidence.centre.unsqueeze(-2)).unsqueeze(-1)).squeeze(-1)
    cosine = (out * away).sum(-1) / (out.norm(dim=-1) * away.norm(dim=-1))
    assert cosine.min() > (1 - 1e-6 if beta < lam else 0.99)  # slow where the ball is large


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("lam", "beta"), [*BALLS, WIDE[2]])
def test_ruling_arms_out_changes_no_choice(lam, beta, seed):
    network, x, w0, tally = setting(arms=20, seed=seed)
    every = line_three(view(network, w0, x), lam, beta, tally)
    assert every.ascended.all()
    for own in (w0, w0.expand(-1, 5, -1)):  # learners that share their cuts, and with cuts of their own
        some = searched(view(network, own, x), lam, beta, tally)
        assert torch.equal(some.value.argmax(-1), every.value.argmax(-1))
        best = some.value.argmax(-1, keepdim=True)
        assert some.ascended.gather(-1, best).all()
    if 0 < beta / lam < 0.1:
        assert some.ascended.double().mean() < 0.5  # otherwise nothing would have been ruled out


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("lam", "beta"), [*BALLS[:4], WIDE[2]])
def test_no_point_of_the_ball_has_a_value_above_the_upper_bound(lam, beta, seed):
    network, x, w0, tally = setting(arms=20, seed=seed)
    seen = view(network, w0, x)
    upper = searched(seen, lam, beta, tally).upper
    every = line_three(seen, lam, beta, tally)
    assert (every.value <= upper + 1e-9 * upper.abs()).all()  # the best points known
    confidence = ball(network.gradients(w0, x).expand(-1, 5, -1, -1), w0.expand(-1, 5, -1), lam, beta, tally)
    factor = torch.linalg.cholesky(confidence.sigma)
    draw = torch.Generator().manual_seed(seed)
    for _ in range(50):
        direction = torch.randn(2, 5, network.size, 1, generator=draw, dtype=torch.float64)
        direction = beta**0.5 * direction / direction.norm(dim=-2, keepdim=True)
        step = torch.linalg.solve_triangular(factor.mT, direction, upper=True).squeeze(-1)
        assert (network.values(confidence.centre + step, x.expand(-1, 5, -1, -1)) <= upper + 1e-9).all()


@pytest.mark.parametrize(("lam", "beta"), [*BALLS[:3], WIDE[2]])
def test_tightened_bounds_hold_and_are_close_to_the_values(lam, beta):
    network, x, w0, tally = setting(arms=20)
    own = Tally(*(part.reshape(10, 1, 20) for part in tally))
    flat = view(network, w0.expand(-1, 5, -1).flatten(0, 1), x.expand(-1, 5, -1, -1).flatten(0, 1))
    seen, cuts = images(flat, lam, beta, own), prior_cuts(flat, lam, beta)
    value = line_three(view(network, w0, x), lam, beta, tally).value.view(10, 1, 20)
    loose = bounds(cuts, seen).amin(-1)
    for _ in range(3):
        cuts = tighten(cuts, seen, value.amin(-1, keepdim=True), torch.ones_like(value, dtype=torch.bool))
    tight = bounds(cuts, seen).amin(-1)
    assert (tight >= value - 1e-9 * value.abs()).all()
    assert (tight <= loose).all()
    assert (tight - value).median() < 0.4 * (loose - value).median()
    assert beta > 0.01 or (tight - value).median() < 0.01 * value.std()


@pytest.mark.slow
def test_the_maximum_over_a_unit_is_bounded_closely():
    """Against φ on a fine grid: never below, and seldom far above, where φ is concave and where it has two hills."""
    draw = torch.Generator().manual_seed(0)
    z, outer = (4 * torch.randn(400, 1, generator=draw, dtype=torch.float64) for _ in range(2))
    size, nu = (10 ** (4 * torch.rand(400, generator=draw, dtype=torch.float64) - low) for low in (1, 3))
    found, theta = unit_maxima(torch.cat([z, outer, torch.zeros_like(z)], -1), size, nu)
    t = torch.cat([torch.linspace(-40, 40, 80_001, dtype=torch.float64).expand(400, -1), z, theta[:, :1]], -1)
    sigma = torch.sigmoid(t)
    nu_, size_ = nu.unsqueeze(-1), size.unsqueeze(-1)
    phi = outer * sigma + sigma.square() / (2 * nu_) - nu_ / (2 * size_) * (t - z).square()
    gap = found - 1 / (2 * nu) - phi.amax(-1)
    scale = outer.abs().squeeze(-1) + 1 / nu
    assert (gap >= -1e-9 * scale).all()
    assert (gap <= 2e-3 * scale).all()
    concave = nu / size > outer.abs().squeeze(-1) / (6 * math.sqrt(3)) + 0.08 / nu
    assert concave.sum() > 50 and (~concave).sum() > 50
    assert (gap[concave] <= 1e-3 * scale[concave]).all() and gap[concave].median() < 1e-9


def pulls(tally, beta, lam, seen, steps):
    """The tallies and values of ``steps`` calls: some learners pull, others wait, in the middle all get all data."""
    index, draw = LineThree(seen, lam, beta), torch.Generator().manual_seed(1)
    for step in range(steps):
        values = index(None, tally)
        yield tally, values
        arm = values.argmax(-1)
        noise = torch.randn(arm.shape, generator=draw, dtype=torch.float64)
        turn = torch.randint(0, 2, arm.shape, generator=draw).double()
        tally = tally.record(arm, 0.3 * noise, turn)
        if step == steps // 2:
            tally = Tally(*(part.sum(1, keepdim=True).expand_as(part) for part in tally))


@pytest.mark.slow
@pytest.mark.parametrize(("lam", "beta"), WIDE)
def test_the_ascent_begins_at_the_linear_solution_or_where_the_last_one_ended(lam, beta):
    """Against the plain ascent in parameter space, arm for arm, in balls that rule no arm out."""
    network, x, w0, tally = setting(hidden=2, arms=3)
    seen, gradients, u, last, others = view(network, w0, x), network.gradients(w0, x), None, {}, 0
    for known, _ in pulls(tally, beta, lam, seen, 5):
        confidence = ball(gradients.expand(-1, 5, -1, -1), w0.expand(-1, 5, -1), lam, beta, known)
        found = line_three(seen, lam, beta, known, u=u)
        u = found.u
        for s, m, k in itertools.product(range(2), range(5), range(3)):
            centre, sigma = (part[s, m].numpy() for part in confidence[:2])
            of = (x[s, 0, k].numpy(), w0[s, 0].numpy(), centre, sigma, beta, 2)
            cold, _ = reference.ascent(*of)
            value, last[s, m, k] = reference.ascent(*of, last=last.get((s, m, k)))
            assert found.value[s, m, k] == pytest.approx(value, rel=1e-6, abs=1e-8)
            others += abs(value - cold) > 1e-6 * abs(cold)
    assert others > 0 or lam == 0.1  # in a wide ball it ends elsewhere
