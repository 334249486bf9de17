"""Fed-GLB-UCB against a plain transcription, scikit-learn's optimum and a ledger counted by hand."""

import pytest
from instances import INF, assert_same, random_problem, rewards
from reference.fed_glb_ucb import minimiser, objective, plain_fed_glb_ucb, warm_start

from fedgo import Settings, fed_glb_ucb, hartmann6
from fedgo.algorithms.fed_glb_ucb import LINKS, GeneralisedLinear

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


def test_a_descent_that_does_not_arrive_is_an_error(monkeypatch):
    monkeypatch.setattr("fedgo.algorithms.fed_glb_ucb.MOST_ROUNDS", 2)
    with pytest.raises(ArithmeticError, match="2 rounds; raise λ"):
        fed_glb_ucb(hartmann6(1, arms=5), 2, 20, Settings(0.01, 1.0, 0.0), "logistic")
