"""Surrogates against formulas written out, and their epochs against a plain transcription."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from instances import INF, double, random_problem, tally
from reference.go_ucb import value_and_gradient

from fedgo import Network, realizable
from fedgo.beyond.method.epochs import Growing, each_arm, surrogate_ucb
from fedgo.beyond.method.gaussian_process import GaussianProcess
from fedgo.beyond.method.networks import Relinearised
from fedgo.beyond.method.surrogates import IndependentArms, Observed, fitted
from fedgo.confidence import Tally

# The loop


def test_an_epoch_grows_and_its_sums_are_counted_by_hand():
    problem, _ = random_problem(1)
    trace = surrogate_ucb(problem, IndependentArms(), 4, 25, until=Growing(1.5, 7))
    first = trace.phase_one
    assert first == 10  # ⌈√100⌉; then 7, 9 of 17, 13 of 26, 20 of 39, 30 of 59, and 21 of 45 are left
    assert [(run + 1).tolist() for run in trace.sync[0, first:].nonzero().squeeze(1)] == [7, 16, 29, 49, 79]
    # counts and sums of Phase I, of whose pulls nobody knows: 2 scalars a pull of each client, up to 2K
    arms = problem.means.shape[1]
    up = sum(2 * min(pulls, arms) for pulls in (3, 3, 2, 2))
    assert trace.up[:, :first].tolist() == [[0] * 9 + [up]] * 3
    assert trace.down[:, :first].sum(1).tolist() == [4 * 2 * min(10, arms)] * 3


# The surrogates


PROBLEM = realizable(Network(2, 3), 2, arms=9, seed=7, sigma=0.1, scale=2.0)
DATA = tally(PROBLEM, [1, 4, 0, 2, 9, 0, 1, 30, 2])
SEEN = [0, 1, 3, 4, 6, 7, 8]
MEANS, NOISE = DATA.sums[SEEN] / DATA.counts[SEEN], 0.01 / DATA.counts[SEEN]


def gaussian(prior_mean, prior, at, means, noise):
    """Mean and covariance of N(prior_mean, prior) given ``means`` at the places ``at``, by the textbook."""
    gain = prior[:, at] @ np.linalg.inv(prior[np.ix_(at, at)] + np.diag(noise))
    return prior_mean + gain @ (means - prior_mean[at]), prior - gain @ prior[at]


def close(found, expected, atol=1e-9):
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-7, atol=atol)


def test_botorchs_process_knows_the_noise_of_a_mean():
    found = fitted(GaussianProcess(), PROBLEM.arms[0], DATA, 0.1)
    with torch.no_grad():
        model, x = found.model, found.arms
        assert x.amin() == 0 and x.amax() == 1
        kernel = model.covar_module(x).to_dense().numpy()
        constant = model.mean_module.constant.item()
    centre, scale = MEANS.mean().item(), MEANS.std().item()
    mean, covariance = gaussian(
        np.full(9, constant), kernel, SEEN, (MEANS.numpy() - centre) / scale, NOISE.numpy() / scale**2
    )
    close(found.mean, centre + scale * mean, 1e-6)
    close(found.variance, scale**2 * covariance.diagonal(), 1e-6)
    among = torch.tensor([8, 2, 5])
    close(found.columns(among, among), scale**2 * covariance[np.ix_(among, among)], 1e-6)


def test_a_fit_neither_depends_on_nor_changes_torchs_generator():
    torch.manual_seed(1)
    one = fitted(GaussianProcess(), PROBLEM.arms[0], DATA, 0.1)
    torch.manual_seed(2)
    before = torch.random.get_rng_state()
    two = fitted(GaussianProcess(), PROBLEM.arms[0], DATA, 0.1)
    assert torch.equal(one.mean, two.mean) and torch.equal(one.variance, two.variance)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_each_arm_is_pulled_before_one_is_pulled_again():
    problem, _ = random_problem(2)
    arms = problem.means.shape[1]
    for length in (1, arms - 1, arms, 2 * arms + 1):
        found = each_arm(problem, length)
        assert found.arm.shape == (3, length)
        counts = torch.nn.functional.one_hot(found.arm, arms).sum(1)
        assert (counts.amax(1) - counts.amin(1) <= 1).all()
    trace = surrogate_ucb(problem, IndependentArms(), 2, 4, exploration=found)
    assert trace.phase_one == length and torch.equal(trace.arm[:, :length], found.arm)


@pytest.mark.parametrize("effect", [True, False])
def test_a_refitted_network_is_stationary_and_its_posterior_the_textbooks(effect):
    network = Network(2, 3)
    found = fitted(Relinearised(network, 3, effect), PROBLEM.arms[0], DATA, 0.1)
    arms, centre, scale = PROBLEM.arms[0], MEANS.mean().item(), MEANS.std().item()
    x, y, noise = (
        (arms - arms.mean(0)) / arms.std(0, correction=0),
        (MEANS - centre) / scale,
        NOISE / scale**2,
    )
    w, decay, tau = found.w.numpy(), found.decay.numpy(), found.effect / scale**2
    assert (tau > 0) == effect and len(np.unique(decay)) > 1
    pairs = [value_and_gradient(w, row, 3) for row in x.numpy()]
    values, gradients = (np.array(part) for part in zip(*pairs, strict=True))
    slope = gradients[SEEN].T @ ((y.numpy() - values[SEEN]) / (noise.numpy() + tau)) - decay * w
    assert np.abs(slope).max() < 1e-2 * np.abs(decay * w).max()
    prior = gradients / decay @ gradients.T + tau * np.eye(9)
    mean, covariance = gaussian(values - gradients @ w, prior, SEEN, y.numpy(), noise.numpy())
    close(found.mean, centre + scale * mean, 1e-7)
    close(found.variance, scale**2 * covariance.diagonal(), 1e-7)
    among = torch.tensor([2, 5, 1])
    close(found.columns(among, among), scale**2 * covariance[np.ix_(among, among)], 1e-7)


@dataclass(frozen=True)
class Line:
    """f_x(w) = wᵀx: a class without layers, where everything is known in closed form."""

    d_x: int

    @property
    def size(self):
        return self.d_x

    def values(self, w, x):
        return (x @ w.unsqueeze(-1)).squeeze(-1)

    def gradients(self, w, x):
        return x.expand(*w.shape[:-1], *x.shape[-2:])


@pytest.mark.parametrize(
    "noise", [0.5, 40.0]
)  # with the second the data determine the parameters in part only
def test_the_weight_decay_is_where_the_evidence_is_largest(noise):
    x = torch.randn(40, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = x @ double([2.0, -1.0, 0.5, 0.0, 1.0])
    seen = Observed(torch.arange(40), y, torch.full((40,), noise, dtype=torch.float64), noise**0.5)
    w, decay, _, evidence = Relinearised(Line(5), 1, effect=False)._climb(x, seen, torch.zeros(1, 5).double())

    def log_evidence(alpha):
        covariance = x.numpy() @ x.numpy().T / alpha + noise * np.eye(40)
        return -y.numpy() @ np.linalg.solve(covariance, y.numpy()) / 2 - np.linalg.slogdet(covariance)[1] / 2

    alpha = decay[0, 0].item()
    assert evidence.item() == pytest.approx(log_evidence(alpha), rel=1e-9)
    assert log_evidence(alpha) > max(log_evidence(alpha * f) for f in (0.8, 0.95, 1.05, 1.25))
    precision = x.T.numpy() @ x.numpy() / noise + alpha * np.eye(5)
    close(w[0], np.linalg.solve(precision, x.T.numpy() @ y.numpy() / noise))


# A surrogate that breaks down


@dataclass(frozen=True)
class Broken:
    """A surrogate that returns what it should not."""

    mean: torch.Tensor
    variance: torch.Tensor

    def fit(self, arms, data, sigma, before=None):
        return self


ZERO, ONE, FOUR = torch.zeros(9).double(), torch.ones(9).double(), torch.tensor([4])


BAD = {
    r"shape of the mean by Broken is \(8,\): give \(K,\) = \(9,\)": (ZERO[:8], ONE),
    r"shape of the variance by Broken is \(9, 1\)": (ZERO, ONE.unsqueeze(1)),
    r"the mean by Broken\[4\] is nan: the fit broke down": (ZERO.index_fill(0, FOUR, torch.nan), ONE),
    r"the variance by Broken\[4\] is inf": (ZERO, ONE.index_fill(0, FOUR, INF)),
    r"the variance by Broken\[4\] is -0.01: it is negative": (ZERO, ONE.index_fill(0, FOUR, -0.01)),
}


@pytest.mark.parametrize("message", BAD)
def test_a_surrogate_that_breaks_down_is_named(message):
    with pytest.raises(ValueError, match=message):
        surrogate_ucb(PROBLEM, Broken(*BAD[message]), 2, 4)


def test_an_arm_by_itself_has_its_mean_and_an_untried_one_that_of_all_with_a_wide_prior():
    data = Tally(double([2.0, 0.0, 1.0]), double([3.0, 0.0, 0.5]))
    fit = IndependentArms(wide=10.0).fit(torch.zeros(3, 1), data, 0.3)
    assert fit.mean.tolist() == [1.5, 1.0, 0.5]
    assert fit.variance.tolist() == pytest.approx([0.3**2 / 2, 10**2 * (1 + 0.3**2), 0.3**2])
