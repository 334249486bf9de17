"""Phase II over the star: what the server knows, what is reset, what is charged, and what a batch must not change."""

from dataclasses import dataclass, field, replace

import pytest
import torch

from fedgo import (
    EventTriggered,
    Exploration,
    Langevin,
    Network,
    Settings,
    fed_go_ucb,
    hartmann6,
    phase_two,
    shared_start,
    simulate,
)
from fedgo.confidence import compress, statistics
from fedgo.many_arms import ParameterSpace
from fedgo.phase_two import EventState
from fedgo.star import Ledger, Star, When

BRIEF = Langevin(rounds=40, step=0.1)
CLIENTS, ROUNDS = 5, 12


@pytest.fixture(scope="module")
def world():
    problem, network = hartmann6(4, arms=9), Network(6, 3)
    return problem, network, shared_start(problem, network, CLIENTS, ROUNDS, BRIEF)


def linearised(world):
    """Features, offsets and the dimension of learners on the gradients at ŵ₀."""
    problem, network, start = world
    arms = problem.arms.unsqueeze(1)
    features = compress(network.gradients(start.w0, arms)).features
    return features, network.values(start.w0, arms), network.size


@dataclass(frozen=True)
class Watched(EventTriggered):
    """Keeps the state after every synchronisation."""

    seen: list[tuple[torch.Tensor, torch.Tensor, EventState]] = field(default_factory=list)

    def synchronise(self, state, star, when):
        after = super().synchronise(state, star, when)
        self.seen.append((*when, after))
        return after


@pytest.fixture(scope="module")
def watched(world):
    problem, _, start = world
    learner = Watched(CLIENTS, *linearised(world), Settings(0.5, 0.3, 0.3))
    trace = simulate("watched", problem, learner, start.exploration, CLIENTS, CLIENTS * ROUNDS)
    assert len(learner.seen) > 4
    return learner, trace


def test_at_every_sync_the_server_holds_the_definitions_on_all_clients_data(world, watched):
    problem, network, start = world
    learner, trace = watched
    gradients = network.gradients(start.w0[:, 0], problem.arms)
    offsets = network.values(start.w0[:, 0], problem.arms)
    for runs, steps, state in learner.seen:
        for run, step in zip(runs.tolist(), steps.tolist(), strict=True):
            arm = trace.arm[run, trace.phase_one : step + 1]
            reward = trace.reward[run, trace.phase_one : step + 1]
            g = gradients[run, arm]
            residual = reward - offsets[run, arm]
            sigma = 0.5 * torch.eye(network.size).double() + g.T @ g
            b = g.T @ (g @ start.w0[run, 0] + residual)
            server = type(state.server)(*(part[run] for part in state.server))
            found = statistics(gradients[run], start.w0[run, 0], 0.5, server)
            torch.testing.assert_close(found[0], sigma, rtol=0, atol=1e-11)
            torch.testing.assert_close(found[1], b, rtol=0, atol=1e-11)


def test_threshold_zero_syncs_at_every_step_and_infinity_never(world):
    problem, _, start = world
    always, never = (fed_go_ucb(problem, start, Settings(0.5, 0.3, gamma)) for gamma in (0.0, float("inf")))
    assert always.sync[:, always.phase_one :].all() and not always.sync[:, : always.phase_one].any()
    assert not never.sync.any()


@dataclass(frozen=True)
class Thompson(EventTriggered):
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
        settings = Settings(0.5, 0.3, gamma)
        learner = Thompson(CLIENTS, features[run], offsets[run], size, settings, normals=normals[run])
        pulls = start.exploration.arm[run]
        begun = Exploration(pulls, start.exploration.reward[run], Ledger.blank(*pulls.shape))
        return simulate("Thompson", problem.only(*run), learner, begun, CLIENTS, CLIENTS * ROUNDS)

    batch = play([0, 1, 2, 3], 0.5)
    assert batch.sync.any(1).all() and not batch.sync[:, batch.phase_one :].all()
    for run in range(4):
        alone = play([run], 0.5)
        assert torch.equal(alone.arm[0], batch.arm[run]) and torch.equal(alone.sync[0], batch.sync[run])
    first = play([0], float("inf"))
    for t in range(first.phase_one, first.phase_one + CLIENTS):  # nobody has data yet
        prior = offsets[0, 0] + (0.3 * features[0, 0].square().sum(-1) / 0.5).sqrt() * normals[0, t]
        assert first.arm[0, t] == prior.argmax()


@pytest.mark.parametrize("engine", [EventTriggered, ParameterSpace])
def test_in_place_is_the_same_and_otherwise_a_state_stays_what_it_was(world, monkeypatch, engine):
    problem, _, start = world
    monkeypatch.setattr(phase_two, "_AFRESH", 3)
    learner = engine(CLIENTS, *linearised(world), Settings(0.5, 0.3, 1.5))
    size = (start.exploration, CLIENTS, CLIENTS * ROUNDS)
    one, other = (
        simulate("both", problem, replace(learner, in_place=in_place), *size) for in_place in (False, True)
    )
    assert one == other and one.sync.any()

    state, star = learner.begin(), Star(CLIENTS, Ledger.blank(4, 9))
    for k in range(7):
        arm = learner.index(state).argmax(-1)
        parts = (*state.posterior, *state.fresh, state.gain, *state.server)
        before = [part.clone() for part in parts]
        after = learner.learn(state, arm, torch.full_like(state.gain, 0.1 * k), torch.ones_like(state.gain))
        if k == 5:
            after = learner.synchronise(after, star, When(torch.arange(0, 4, 2), torch.tensor([5, 5])))
        assert all(torch.equal(part, kept) for part, kept in zip(parts, before, strict=True))
        state = after


def test_runs_that_wait_for_each_other_to_synchronise_do_the_same(world, watched):
    _, _, start = world
    traces, calls = [], []
    for together in (False, True):
        learner = replace(watched[0], settings=Settings(0.5, 0.3, 1.5), seen=[])
        size = (start.exploration, CLIENTS, CLIENTS * ROUNDS)
        traces.append(simulate("watched", start.problem, learner, *size, together=together))
        calls.append(len(learner.seen))
    assert traces[0] == traces[1]
    assert calls[1] < calls[0]  # so somebody waited
