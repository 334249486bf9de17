"""Fed-GLB-UCB against a plain transcription, scikit-learn's optimum and a ledger counted by hand."""

import numpy as np
import pytest
import torch
from instances import INF, assert_same, random_problem, rewards
from reference.fed_glb_ucb import minimiser, objective, plain_fed_glb_ucb, warm_start
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, Ridge

from fedgo import Settings, fed_glb_ucb, hartmann6
from fedgo.algorithms.fed_glb_ucb import LINKS, GeneralisedLinear
from fedgo.confidence import Tally
from fedgo.star import Ledger, Star, When

GAMMAS = (0.0, 0.05, 0.3, 1.0, 5.0, INF)


@pytest.mark.slow
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("seed", range(12))
def test_fed_glb_ucb_is_its_plain_transcription(seed, link):
    problem, draw = random_problem(50 + seed, reward="bernoulli" if seed % 2 else "gaussian")
    clients, steps = int(draw.integers(1, 6)), 31
    settings = Settings(10.0 ** draw.uniform(-1, 1), 10.0 ** draw.uniform(-2, 0.5), GAMMAS[seed % 6])
    trace = fed_glb_ucb(problem, clients, steps, settings, link)
    for row in range(3):
        arms, reward_of = problem.arms[row].numpy(), rewards(problem, row, steps)
        lam, beta, gamma = settings.lam, settings.beta, settings.gamma
        expected = plain_fed_glb_ucb(arms, reward_of, clients, steps, lam, beta, gamma, link, warm_start)
        assert_same(trace, row, expected)
    assert trace.phase_one == 0


@pytest.mark.parametrize("link", LINKS)
def test_every_fit_is_within_its_tolerance_of_the_optimum(watch, link):
    problem, _ = random_problem(77, runs=2, reward="bernoulli", sizes=(9, 10), least=3)
    calls = watch(GeneralisedLinear, "synchronise")
    trace = fed_glb_ucb(problem, 3, 60, Settings(0.5, 0.3, 0.5), link)
    checked = 0
    for call in calls:
        when = call.args[3]
        for run, step in zip(*(part.tolist() for part in when), strict=True):
            x = problem.arms[run, trace.arm[run, : step + 1]].numpy()
            y = trace.reward[run, : step + 1].numpy()
            theta, best = call.result.theta[run, 0].numpy(), minimiser(x, y, 0.5, link)
            excess = objective(theta, x, y, 0.5, link) - objective(best, x, y, 0.5, link)
            assert excess <= 1 / (3 * (step + 1)) ** 2
            if step > 5:  # the tolerance is not met by chance: zero, say, is further off
                assert objective(0 * theta, x, y, 0.5, link) - objective(best, x, y, 0.5, link) > excess
            checked += 1
    assert checked > 6


@pytest.mark.parametrize(
    ("link", "lam"), [("identity", 0.5), ("identity", 5.0), ("logistic", 0.5), ("logistic", 5.0)]
)
def test_the_descent_reaches_the_optimum_of_scikit_learn(watch, link, lam):
    problem, _ = random_problem(78, runs=2, reward="bernoulli", sizes=(9, 10), least=3)
    calls = watch(GeneralisedLinear, "synchronise")
    trace = fed_glb_ucb(problem, 3, 60, Settings(lam, 10.0, 30.0), link)
    when = calls[0].args[3]  # of both runs at once: take the one that fired first
    run, step = (part[when.step.argmin()].item() for part in when)
    assert 5 < step < 59
    arm, reward = trace.arm[run, : step + 1], trace.reward[run, : step + 1].numpy()
    x, n = problem.arms[run, arm].numpy(), step + 1
    assert set(reward) == {0.0, 1.0}
    if link == "identity":
        theta = Ridge(alpha=lam, fit_intercept=False).fit(x, reward).coef_
    else:
        model = LogisticRegression(C=1 / lam, fit_intercept=False, solver="newton-cholesky", tol=1e-12)
        theta = model.fit(x, reward).coef_[0]
    # |∇F| ≤ √(2(λ/n))/(Nn) where it stops, and the Hessian of F is at least (λ + c·λ_min(XᵀX))/n
    slope = 1.0 if link == "identity" else (expit(x @ theta) * (1 - expit(x @ theta))).min() / 2
    hessian = (lam + slope * np.linalg.eigvalsh(x.T @ x)[0]) / n
    found = calls[0].result.theta[run, 0].numpy()
    assert np.linalg.norm(found - theta) <= np.sqrt(2 * lam / n) / (3 * n) / hessian
    # the same data fitted as by 10⁵ clients, whose tolerance is 10⁻¹⁰/n²
    state, when = calls[0].args[1], When(torch.tensor([run]), torch.tensor([step]))
    learner = GeneralisedLinear(10**5, problem.arms, Settings(lam), LINKS[link])
    tight = learner.synchronise(state, Star(3, Ledger.blank(2, 60)), when).theta[run, 0].numpy()
    np.testing.assert_allclose(tight, theta, rtol=0, atol=2e-5)


@pytest.mark.parametrize("link", LINKS)
def test_the_ledger_of_fed_glb_ucb_by_hand(watch, link):
    problem, _ = random_problem(79, runs=1, sizes=(9, 10), least=3)
    asks = watch(Star, "ask")
    trace = fed_glb_ucb(problem, 4, 40, Settings(1.0, 0.3, 1.0), link)
    d, syncs = problem.arms.shape[-1], int(trace.sync.sum())
    booked = torch.zeros(40, dtype=torch.int64)
    for call in asks:
        booked[call.kwargs["when"].step] += 4 * d
    assert syncs > 2 and len(asks) > syncs
    assert torch.equal(trace.up[0], booked + trace.sync[0] * 4 * d * d)
    assert torch.equal(trace.down[0], booked + trace.sync[0] * 4 * (d * d + 2 * d))


def test_a_descent_that_does_not_arrive_is_an_error(monkeypatch):
    monkeypatch.setattr("fedgo.algorithms.fed_glb_ucb.MOST_ROUNDS", 2)
    with pytest.raises(ArithmeticError, match="2 rounds; raise λ"):
        fed_glb_ucb(hartmann6(1, arms=5), 2, 20, Settings(0.01, 1.0, 0.0), "logistic")


def test_tallies_of_the_own_data_survive_a_synchronisation(watch):
    calls = watch(GeneralisedLinear, "synchronise")
    trace = fed_glb_ucb(hartmann6(1, arms=5), 2, 20, Settings(1.0, 1.0, 0.0))
    last: Tally = calls[-1].result.own
    for client in range(2):
        own = trace.arm[0, client::2]
        assert torch.equal(last.counts[0, client], torch.bincount(own, minlength=5).double())
    assert not calls[-1].result.fresh.any()
