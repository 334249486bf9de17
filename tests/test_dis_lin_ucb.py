"""DisLinUCB against a plain transcription, ridge regression and a ledger counted by hand."""

import numpy as np
import pytest
from instances import INF, assert_same, random_problem, rewards
from reference.dis_lin_ucb import plain_dis_lin_ucb
from sklearn.linear_model import Ridge

from fedgo import EventTriggered, Settings, dis_lin_ucb

GAMMAS = (0.0, 0.05, 0.3, 1.0, 5.0, INF)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_dis_lin_ucb_is_its_plain_transcription(seed):
    problem, draw = random_problem(seed)
    clients, steps = int(draw.integers(1, 6)), 41
    settings = Settings(10.0 ** draw.uniform(-2, 1), 10.0 ** draw.uniform(-2, 0.5), GAMMAS[seed % 6])
    trace = dis_lin_ucb(problem, clients, steps, settings)
    for row in range(3):
        arms, reward_of = problem.arms[row].numpy(), rewards(problem, row, steps)
        expected = plain_dis_lin_ucb(arms, reward_of, clients, steps, settings)
        assert_same(trace, row, expected)
    assert trace.phase_one == 0


@pytest.mark.parametrize(("clients", "gamma"), [(1, INF), (3, 0.0)])
def test_dis_lin_ucb_is_ridge_regression_at_every_step(watch, clients, gamma):
    problem, _ = random_problem(3, runs=1, sizes=(9, 10), least=3)
    arms = problem.arms[0].numpy()
    calls = watch(EventTriggered, "index")
    trace = dis_lin_ucb(problem, clients, 25, Settings(0.7, 0.5, gamma))
    assert len(calls) == 25
    for t, call in enumerate(calls):
        posterior = call.args[1].posterior
        mean, variance = (part[0, t % clients].numpy() for part in (posterior.mean, posterior.variance))
        x, y = arms[trace.arm[0, :t].numpy()], trace.reward[0, :t].numpy()
        theta = Ridge(alpha=0.7, fit_intercept=False).fit(x, y).coef_ if t else np.zeros(arms.shape[1])
        inverse = np.linalg.inv(0.7 * np.eye(arms.shape[1]) + x.T @ x)
        np.testing.assert_allclose(mean, arms @ theta, rtol=0, atol=1e-12)
        np.testing.assert_allclose(variance, np.einsum("kd,de,ke->k", arms, inverse, arms), rtol=1e-11)
        index = call.result[0, t % clients].numpy()
        np.testing.assert_allclose(index, mean + np.sqrt(0.5 * variance), rtol=1e-12)
