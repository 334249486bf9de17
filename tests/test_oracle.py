"""Phase I and Algorithm 2: its length, uniform pulls, the Gibbs measure of a quadratic, and fits that stand alone."""

import pytest
import torch
from instances import sample

from fedgo import Langevin, Network, hartmann6, phase_one_length, private_start
from fedgo.langevin import langevin_rounds
from fedgo.phase_one import deal, explore
from fedgo.star import answer


class Line:
    """f_x(w) = xᵀw, for which the loss is a quadratic."""

    def __init__(self, size):
        self.size = size

    def squared_loss(self, w, x, y, mask):
        error = ((x @ w.unsqueeze(-1)).squeeze(-1) - y) * mask
        return error.square().sum(-1), 2 * (error.unsqueeze(-1) * x).sum(-2)


def test_phase_one_length_is_the_ceiling_of_the_root():
    assert [phase_one_length(20, 100), phase_one_length(100, 100), phase_one_length(1, 1)] == [45, 100, 1]
    assert phase_one_length(10, 10) == 10 and phase_one_length(101, 1) == 11


def test_exploration_is_uniform_over_the_arms():
    problem = hartmann6(20, arms=5)
    arm = explore(problem, 1000).arm
    share = torch.stack([(arm == k).double().mean() for k in range(5)])
    assert (share - 0.2).abs().max() < 4 * (0.2 * 0.8 / 20_000) ** 0.5


def test_gld_on_a_quadratic_recovers_the_gibbs_mean_and_covariance():
    points, rewards = sample(12, 2, seed=3), sample(12, seed=4)
    shards = deal(points.expand(40, -1, -1), rewards.expand(40, -1), 3)
    langevin = Langevin(rounds=3000, step=0.05, hot=20.0, cold=20.0)
    sources = [torch.Generator().manual_seed(run) for run in range(40)]
    path = torch.stack([w for w, _ in langevin_rounds(Line(2), shards, langevin, sources, answer)])[300:]
    hessian = 2 / 12 * points.T @ points
    mean = torch.cholesky_solve((2 / 12 * points.T @ rewards)[:, None], torch.linalg.cholesky(hessian))[:, 0]
    # of the discrete chain: (2/τ₂)(2H − τ₁H²)⁻¹, which tends to the Gibbs covariance H⁻¹/τ₂ as τ₁ → 0
    discrete = 2 / 20 * torch.cholesky_inverse(torch.linalg.cholesky(2 * hessian - 0.05 * hessian @ hessian))
    found = path.flatten(0, 1)
    torch.testing.assert_close(found.mean(0), mean, rtol=0, atol=0.02)
    torch.testing.assert_close(found.T.cov(), discrete, rtol=0.06, atol=0.002)
    gibbs = torch.cholesky_inverse(torch.linalg.cholesky(hessian)) / 20
    torch.testing.assert_close(found.T.cov(), gibbs, rtol=0.1, atol=0.003)


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
