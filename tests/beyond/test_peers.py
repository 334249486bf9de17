"""FN-UCB against its transcription; UCB1 for many arms; the kernel whose hyperparameters are fitted once."""

import pytest
import torch
from instances import INF, assert_billed, assert_same, random_problem, rewards
from numpy.testing import assert_allclose
from transcriptions.fn_ucb import plain_fn_ucb

from fedgo import Network, Settings, hartmann6
from fedgo.beyond.evidence import rivals
from fedgo.beyond.evidence.rivals import fitted_kernel_ucb, fn_ucb, local_variances, tangent_start
from fedgo.beyond.method.gaussian_process import GaussianProcess
from fedgo.confidence import Tally
from fedgo.simulation import order_of_ties

GAMMAS = (0.0, 0.3, 2.0, INF)


@pytest.mark.slow
@pytest.mark.parametrize("many", [100, 0], ids=["in arm space", "in parameter space"])
@pytest.mark.parametrize("seed", range(8))
def test_fn_ucb_is_its_transcription(monkeypatch, seed, many):
    monkeypatch.setattr(rivals, "MANY", many)
    problem, draw = random_problem(seed, sizes=(3, 12))
    clients, hidden = int(draw.integers(1, 5)), 2 * int(draw.integers(1, 4))
    lam, optimism, gamma = float(draw.uniform(0.05, 1)), float(draw.uniform(0.05, 1)), GAMMAS[seed % 4]
    trace = fn_ucb(problem, clients, 30, Settings(lam, optimism**2, gamma), descent=9, hidden=hidden)
    x = problem.arms
    inputs = (x - x.mean(1, keepdim=True)) / x.std(1, correction=0, keepdim=True)
    theta0 = tangent_start(Network(x.shape[-1], hidden), problem)
    for row in range(3):
        expected = plain_fn_ucb(
            inputs[row].numpy(), theta0[row].numpy(), hidden, order_of_ties(problem, clients)[row].numpy(),
            rewards(problem, row, 30), clients, 30, lam, optimism, gamma, 9,
        )  # fmt: skip
        assert_same(trace, row, expected)


@pytest.mark.parametrize(("lam", "pulls"), [(0.3, 4.0), (1e-6, 1e9)])
def test_a_client_s_variances_are_those_of_the_inverse_and_never_negative(lam, pulls):
    features = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    counts = torch.full((1, 6), pulls, dtype=torch.float64)
    counts[0, 2:4] = 0
    sigma = lam * torch.eye(3, dtype=torch.float64) + features.T * counts[0] @ features
    expected = (features @ torch.cholesky_inverse(torch.linalg.cholesky(sigma)) * features).sum(-1)
    found = local_variances(features, lam, Tally(counts, 0 * counts))[0]
    assert (found >= 0).all()  # beside many pulls what is left of φᵀφ/λ is rounding
    assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_the_output_at_theta_zero_is_zero_and_every_run_has_its_own():
    problem, _ = random_problem(0)
    network = Network(problem.arms.shape[-1], 6)
    theta0 = tangent_start(network, problem)
    assert_allclose(network.values(theta0, problem.arms).numpy(), 0, atol=1e-12)
    assert not torch.equal(theta0[0], theta0[1])


def test_packed_the_same_choices_cost_counts_sums_and_what_the_server_trained():
    problem, _ = random_problem(5, sizes=(6, 7))
    dense, packed = (
        fn_ucb(problem, 2, 24, Settings(0.1, 0.3**2, 0.5, encoding), hidden=4)
        for encoding in ("dense", "counts")
    )
    assert torch.equal(dense.arm, packed.arm) and bool(dense.sync.any())
    size, arms = Network(problem.arms.shape[-1], 4).size, problem.means.shape[1]

    def bill(row, t, fresh):
        return sum(2 * min(k, arms) for k in fresh), 2 * (2 * min(sum(fresh), arms) + size + arms + 1)

    assert_billed(packed, bill)


@pytest.mark.parametrize("kappa", [0.5, 2.0])
def test_after_phase_one_the_fitted_kernel_is_kappa_standard_deviations_optimistic(kappa):
    problem = hartmann6(3, arms=30, seed=4)
    trace = fitted_kernel_ucb(problem, 5, 10, kappa=kappa)
    for row in range(3):
        arm, reward = trace.arm[row, : trace.phase_one], trace.reward[row, : trace.phase_one]
        data = Tally(torch.bincount(arm, minlength=30).double(), torch.bincount(arm, reward, minlength=30))
        fit = GaussianProcess().fit(problem.arms[row], data, 0.1)
        assert trace.arm[row, trace.phase_one] == (fit.mean + kappa * fit.variance.sqrt()).argmax()
