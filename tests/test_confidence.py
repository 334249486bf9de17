"""The confidence set: arm space against parameter space, LinUCB as the linear case, the truth inside."""

import pytest
import torch
from instances import sample

from fedgo import Network, realizable
from fedgo.confidence import Tally, ball, compress, condition, first_order, statistics
from fedgo.theory.ball import radius


@pytest.fixture(params=[(4, 9), (9, 4), (6, 6)], ids=["K<d", "K>d", "K=d"])
def data(request):
    """Gradients G (2, 3, K, d), ŵ₀, offsets f(ŵ₀) and a tally with arms never pulled."""
    arms, size = request.param
    gradients, w0, offsets = sample(2, 3, arms, size), sample(2, 3, size, seed=1), sample(2, 3, arms, seed=2)
    counts = torch.randint(0, 4, (2, 3, arms), generator=torch.Generator().manual_seed(3)).double()
    return gradients, w0, offsets, Tally(counts, counts.sqrt() * sample(2, 3, arms, seed=4))


def test_arm_space_is_parameter_space_seen_from_the_arms(data):
    gradients, w0, offsets, tally = data
    features, basis = compress(gradients)
    torch.testing.assert_close(features @ basis.mT, gradients, rtol=0, atol=1e-12)
    dense = ball(gradients, w0, 0.7, 2.0, tally)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(dense.sigma))
    covariance = gradients @ inverse @ gradients.mT
    mean = offsets + (gradients @ (dense.centre - w0).unsqueeze(-1)).squeeze(-1)
    for seen in (gradients, features):
        posterior = condition(seen, offsets, 0.7, tally)
        torch.testing.assert_close(posterior.covariance, covariance, rtol=0, atol=1e-10)
        torch.testing.assert_close(posterior.mean, mean, rtol=0, atol=1e-10)


def test_for_a_model_linear_in_w_the_index_is_linucb():
    x, counts = sample(5, 3), torch.tensor([2.0, 0.0, 1.0, 3.0, 0.0]).double()
    total = counts * sample(5, seed=1)  # f_x(w) = xᵀw at ŵ₀ = 0: residuals are rewards
    posterior = condition(x, torch.zeros(5).double(), 0.5, Tally(counts, total))
    a = 0.5 * torch.eye(3).double() + sum(n * torch.outer(row, row) for n, row in zip(counts, x, strict=True))
    theta = torch.linalg.lstsq(a, (x.T @ total)[:, None]).solution[:, 0]
    width = torch.stack([torch.sqrt(row @ torch.linalg.lstsq(a, row[:, None]).solution[:, 0]) for row in x])
    torch.testing.assert_close(first_order(posterior, 4.0), x @ theta + 2 * width, rtol=0, atol=1e-12)


def test_no_leading_dimension_is_one_client_on_one_machine(data):
    gradients, w0, offsets, tally = data
    one = Tally(tally.counts[1, 2], tally.sums[1, 2])
    alone = condition(gradients[1, 2], offsets[1, 2], 0.7, one)
    batch = condition(gradients, offsets, 0.7, tally)
    torch.testing.assert_close(alone.mean, batch.mean[1, 2], rtol=0, atol=1e-12)
    arm, reward, turn = torch.tensor(1), torch.tensor(0.3).double(), torch.tensor(1.0).double()
    assert alone.absorb(arm, reward, turn).covariance.shape == alone.covariance.shape
    assert alone.gain(arm).shape == ()
    centre = ball(gradients[1, 2], w0[1, 2], 0.7, 1.0, one).centre
    torch.testing.assert_close(centre, ball(gradients, w0, 0.7, 1.0, tally).centre[1, 2], rtol=0, atol=1e-12)


@pytest.mark.slow
def test_the_ball_of_that_radius_holds_the_truth():
    """400 runs with w* known; the lemma allows a share δ/2 = 0.05 of failures at any of the 40 steps."""
    network = Network(2, 3)
    problem = realizable(network, 400, arms=8, sigma=0.3)
    w0 = problem.truth + 0.1 * sample(400, network.size, seed=1)
    gradients, offsets = network.gradients(w0, problem.arms), network.values(w0, problem.arms)
    distance = (w0 - problem.truth).norm(dim=-1)
    hessian = torch.func.hessian(lambda w, x: network.values(w, x.unsqueeze(0)).squeeze(0))
    points = torch.func.vmap(torch.func.vmap(hessian, (None, 0)))
    along = [points(problem.truth + part * (w0 - problem.truth), problem.arms) for part in (0.0, 0.5, 1.0)]
    curvature = 1.2 * torch.linalg.matrix_norm(torch.stack(along), 2).max().item()
    arm = torch.randint(8, (400, 40), generator=torch.Generator().manual_seed(2))
    reward = problem.observe(arm, problem.tape(40))
    tally = Tally(torch.zeros(400, 8).double(), torch.zeros(400, 8).double())
    outside = torch.zeros(400, dtype=torch.bool)
    for t in range(40):
        now = arm[:, t]
        residual = reward[:, t] - offsets.gather(1, now[:, None])[:, 0]
        tally = tally.record(now, residual, torch.ones(400).double())
        factor = torch.linalg.cholesky(statistics(gradients, w0, 1.0, tally)[0])
        information = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        beta = radius(
            information, torch.tensor(t + 1.0).double(), 0,
            clients=1, lam=1.0, sigma=0.3, distance=distance, curvature=curvature, delta=0.1,
        )  # fmt: skip
        outside |= ~ball(gradients, w0, 1.0, beta, tally).contains(problem.truth)
    assert outside.double().mean() <= 0.05
