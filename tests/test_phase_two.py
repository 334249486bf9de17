"""Phase II over the star: what the server knows, what is reset, what is charged, and what a batch must not change."""

from dataclasses import dataclass, field, replace

import pytest
import torch

import fedgo
from fedgo.confidence import Tally, compress, statistics
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
class Watched(fedgo.EventTriggered):
    """Keeps the server's data after every synchronisation."""

    seen: list[tuple[torch.Tensor, torch.Tensor, Tally]] = field(default_factory=list)

    def synchronise(self, state, star, when):
        after = super().synchronise(state, star, when)
        self.seen.append((*when, Tally(*(part.clone() for part in after.server))))
        return after


@pytest.fixture(scope="module")
def watched(world):
    problem, _, start = world
    learner = Watched(CLIENTS, *linearised(world), fedgo.Settings(0.5, 0.3, 0.3))
    trace = fedgo.simulate("watched", problem, learner, start.exploration, CLIENTS, CLIENTS * ROUNDS)
    assert len(learner.seen) > 4
    return learner, trace


def test_at_every_sync_the_server_holds_the_definitions_on_all_clients_data(world, watched):
    problem, network, start = world
    learner, trace = watched
    gradients = network.gradients(start.w0[:, 0], problem.arms)
    offsets = network.values(start.w0[:, 0], problem.arms)
    for runs, steps, data in learner.seen:
        for run, step in zip(runs.tolist(), steps.tolist(), strict=True):
            arm = trace.arm[run, trace.phase_one : step + 1]
            reward = trace.reward[run, trace.phase_one : step + 1]
            g = gradients[run, arm]
            residual = reward - offsets[run, arm]
            sigma = 0.5 * torch.eye(network.size).double() + g.T @ g
            b = g.T @ (g @ start.w0[run, 0] + residual)
            found = statistics(gradients[run], start.w0[run, 0], 0.5, data.of(run))
            torch.testing.assert_close(found[0], sigma, rtol=0, atol=1e-11)
            torch.testing.assert_close(found[1], b, rtol=0, atol=1e-11)


def test_threshold_zero_syncs_at_every_step_and_infinity_never(world):
    _, _, start = world
    always, never = (
        fedgo.fed_go_ucb(start, fedgo.Settings(0.5, 0.3, gamma)) for gamma in (0.0, float("inf"))
    )
    assert always.sync[:, always.phase_one :].all() and not always.sync[:, : always.phase_one].any()
    assert not never.sync.any()


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


def test_runs_that_wait_for_each_other_to_synchronise_do_the_same(world, watched):
    _, _, start = world
    traces, calls = [], []
    for together in (False, True):
        learner = replace(watched[0], settings=fedgo.Settings(0.5, 0.3, 1.5), seen=[])
        size = (start.exploration, CLIENTS, CLIENTS * ROUNDS)
        traces.append(fedgo.simulate("watched", start.problem, learner, *size, together=together))
        calls.append(len(learner.seen))
    assert traces[0] == traces[1]
    assert calls[1] < calls[0]  # so somebody waited
