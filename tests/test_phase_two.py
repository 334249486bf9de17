"""Phase II: an index that is drawn at random, and runs that wait for each other to synchronise."""

from dataclasses import dataclass, field
from functools import partial

import pytest
import torch

import fedgo
from fedgo.confidence import compress
from fedgo.star import Ledger

BRIEF = fedgo.Langevin(rounds=40, step=0.1)
CLIENTS, ROUNDS = 5, 12


@pytest.fixture(scope="module")
def world():
    problem, network = fedgo.hartmann6(4, arms=9), fedgo.Network(6, 3)
    return problem, network, fedgo.shared_start(problem, network, CLIENTS, ROUNDS, BRIEF)


def linearised(world):
    """Features, offsets and the dimension of learners on the gradients at ŵ₀."""
    problem, network, start = world
    arms = problem.arms.unsqueeze(1)
    features = compress(network.gradients(start.w0, arms)).features
    return features, network.values(start.w0, arms), network.size


@dataclass(frozen=True)
class Thompson(fedgo.EventTriggered):
    """The arm of the largest sample of its posterior; ``normals`` (S, steps, K)."""

    normals: torch.Tensor = field(kw_only=True)

    def index_at(self, state, step):
        normals = self.normals[torch.arange(len(step)).unsqueeze(1), step]
        return state.posterior.mean + self.settings.beta**0.5 * state.posterior.variance.sqrt() * normals


def test_an_index_that_is_drawn_is_drawn_once_a_step(world):
    (problem, _, start), (features, offsets, size) = world, linearised(world)
    steps = start.exploration.arm.shape[1] + CLIENTS * ROUNDS
    normals = torch.stack(
        [torch.randn(steps, 9, generator=source).double() for source in problem.generators("samples")]
    )

    def play(run, gamma):
        settings = fedgo.Settings(0.5, 0.3, gamma)
        learner = Thompson(CLIENTS, features[run], offsets[run], size, settings, normals=normals[run])
        pulls = start.exploration.arm[run]
        begun = fedgo.Exploration(pulls, start.exploration.reward[run], Ledger.blank(*pulls.shape))
        return fedgo.simulate("Thompson", problem.only(*run), learner, begun, CLIENTS, CLIENTS * ROUNDS)

    batch = play([0, 1, 2, 3], 0.5)
    assert batch.sync.any(1).all() and not batch.sync[:, batch.phase_one :].all()
    for run in range(4):
        alone = play([run], 0.5)
        assert torch.equal(alone.arm[0], batch.arm[run]) and torch.equal(alone.sync[0], batch.sync[run])
    first = play([0], float("inf"))
    for t in range(first.phase_one, first.phase_one + CLIENTS):  # nobody has data yet
        prior = offsets[0, 0] + (0.3 * features[0, 0].square().sum(-1) / 0.5).sqrt() * normals[0, t]
        assert first.arm[0, t] == prior.argmax()


def test_runs_that_wait_for_each_other_to_synchronise_do_the_same(world, watch):
    problem, _, start = world
    learner = fedgo.EventTriggered(CLIENTS, *linearised(world), fedgo.Settings(0.5, 0.3, 1.5))
    play = partial(fedgo.simulate, "either", problem, learner, start.exploration, CLIENTS, CLIENTS * ROUNDS)
    calls = watch(fedgo.EventTriggered, "synchronise")
    alone, apart = play(), len(calls)
    assert play(together=True) == alone
    assert len(calls) - apart < apart  # so somebody waited
