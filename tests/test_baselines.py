"""DisLinUCB, Fed-GLB-UCB and ApproxDisKernelUCB: plain transcriptions."""

import pytest
from instances import GAMMAS, INF, assert_same, random_problem, rewards
from reference.approx_dis_kernel_ucb import plain_kernel_ucb
from reference.dis_lin_ucb import plain_dis_lin_ucb
from reference.fed_glb_ucb import plain_fed_glb_ucb

from fedgo import Settings, approx_dis_kernel_ucb, dis_lin_ucb, fed_glb_ucb, hartmann6
from fedgo.algorithms.fed_glb_ucb import LINKS


def assert_transcribed(trace, problem, steps, play):
    """Every run of ``trace`` is what ``play`` of its row, arms and rewards says."""
    for row in range(3):
        assert_same(trace, row, play(row, problem.arms[row].numpy(), rewards(problem, row, steps)))
    assert trace.phase_one == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_dis_lin_ucb_is_its_plain_transcription(seed):
    problem, draw = random_problem(seed)
    clients, steps = int(draw.integers(1, 6)), 41
    settings = Settings(10.0 ** draw.uniform(-2, 1), 10.0 ** draw.uniform(-2, 0.5), GAMMAS[seed % 6])

    def play(row, arms, reward_of):
        return plain_dis_lin_ucb(arms, reward_of, clients, steps, settings)

    assert_transcribed(dis_lin_ucb(problem, clients, steps, settings), problem, steps, play)


@pytest.mark.slow
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("seed", range(12))
def test_fed_glb_ucb_is_its_plain_transcription(seed, link):
    problem, draw = random_problem(50 + seed, reward="bernoulli" if seed % 2 else "gaussian")
    clients, steps = int(draw.integers(1, 6)), 31
    lam, beta, gamma = 10.0 ** draw.uniform(-1, 1), 10.0 ** draw.uniform(-2, 0.5), GAMMAS[seed % 6]

    def play(row, arms, reward_of):
        return plain_fed_glb_ucb(arms, reward_of, clients, steps, lam, beta, gamma, link)

    trace = fed_glb_ucb(problem, clients, steps, Settings(lam, beta, gamma), link)
    assert_transcribed(trace, problem, steps, play)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_approx_dis_kernel_ucb_is_its_plain_transcription(seed):
    problem, draw = random_problem(200 + seed, sizes=(4, 12))
    clients, steps = int(draw.integers(1, 6)), 31
    lam, oversampling = 10.0 ** draw.uniform(-1, 0), 10.0 ** draw.uniform(-2, 0.5)
    settings = Settings(lam, 10.0 ** draw.uniform(-2, 0.5), (0.0, 0.3, 2.0, 2.0, 8.0, INF)[seed % 6])

    def play(row, arms, reward_of):
        return plain_kernel_ucb(problem, row, reward_of, clients, steps, settings, 0.4, oversampling)

    trace = approx_dis_kernel_ucb(problem, clients, steps, settings, 0.4, oversampling)
    assert_transcribed(trace, problem, steps, play)


def test_a_descent_that_does_not_arrive_is_an_error(monkeypatch):
    monkeypatch.setattr("fedgo.algorithms.fed_glb_ucb.MOST_ROUNDS", 2)
    with pytest.raises(ArithmeticError, match="2 rounds; raise λ"):
        fed_glb_ucb(hartmann6(1, arms=5), 2, 20, Settings(0.01, 1.0, 0.0), "logistic")
