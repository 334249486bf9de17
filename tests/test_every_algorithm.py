"""Every learner of the package: the same noise, the same run alone as in a batch, Bernoulli rewards."""

from functools import cache

import pytest
import torch
from learners import LEARNERS

from fedgo import Problem, Trace, clustered, hartmann6

CLIENTS, ROUNDS = 3, 12


@cache
def batch(name: str) -> tuple[Problem, Trace]:
    problem = hartmann6(4, arms=8)
    return problem, LEARNERS[name](problem, CLIENTS, ROUNDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_meets_the_same_noise(name: str) -> None:
    problem, trace = batch(name)
    noise = trace.reward - problem.means.gather(1, trace.arm)
    drawn = problem.sigma * problem.tape(trace.arm.shape[1])
    torch.testing.assert_close(noise, drawn, rtol=0, atol=1e-12)
    torch.testing.assert_close(trace.regret, problem.means.amax(1, True) - problem.means.gather(1, trace.arm))


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_a_run_alone_is_that_run_in_a_batch(name: str) -> None:
    problem, together = batch(name)
    for run in range(4):
        alone = LEARNERS[name](problem.only(run), CLIENTS, ROUNDS)
        for part in ("arm", "up", "down", "sync"):
            assert torch.equal(getattr(alone, part)[0], getattr(together, part)[run]), (run, part)
        torch.testing.assert_close(alone.reward[0], together.reward[run], rtol=0, atol=1e-12)
        for note, values in alone.notes.items():
            torch.testing.assert_close(values[0], together.notes[note][run], rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_only_the_tape_is_drawn_from_the_generator_of_the_noise(name: str, watch) -> None:
    drawn, tapes = watch(Problem, "generators"), watch(Problem, "tape")
    LEARNERS[name](hartmann6(1, arms=8), 2, 6)
    assert [call.args[1] for call in drawn].count("noise") == len(tapes) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_plays_bernoulli_rewards(name: str) -> None:
    reward = LEARNERS[name](clustered("magic", 2, reward="bernoulli"), 2, 6).reward
    assert set(reward.flatten().tolist()) <= {0.0, 1.0}
