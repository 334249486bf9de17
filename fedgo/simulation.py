"""The loop of Phase II (Algorithm 1, lines 2–10): clients in round robin, whole rounds of all runs at once.

Between two synchronisations the learners do not influence each other, so every pass lets all of them choose at
once; where learner i of a run triggers, the choices of those after i in that run are dropped and made again after
the synchronisation. The noise is indexed by (run, step), so the result is the sequential one.
"""

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from fedgo._checks import count, on_cpu, require, require_kind
from fedgo._streams import uniform_draws
from fedgo.phase_one import Exploration
from fedgo.problem import Problem
from fedgo.star import Ledger, Star, When
from fedgo.trace import Trace

LearnerState = TypeVar("LearnerState")


class Learner(Protocol[LearnerState]):
    """M learners per run (N clients with a model each, or one that all share) and their protocol."""

    @property
    def learners(self) -> int:
        """M; the step t of Phase II is made by learner t mod M."""

    def begin(self) -> LearnerState:
        """The state before Phase II."""

    def index(self, state: LearnerState) -> Tensor:
        """The optimistic value of every arm, (S, M, K).

        It may be asked several times for one step, as choices after a synchronisation are made again: an index that is
        drawn at random has to be a function of the run and the step, which a learner that `Samples` is given.
        """

    def fires(self, state: LearnerState, arm: Tensor) -> Tensor:
        """Whether pulling ``arm`` (S, M) makes each learner ask for a synchronisation, (S, M) bool."""

    def learn(self, state: LearnerState, arm: Tensor, reward: Tensor, turn: Tensor) -> LearnerState:
        """The state after the learners with ``turn`` 1 pulled ``arm`` and saw ``reward``, all (S, M)."""

    def synchronise(self, state: LearnerState, star: Star, when: When) -> LearnerState:
        """The state after the runs ``when.run`` synchronised over ``star``."""


@runtime_checkable
class Samples(Protocol):
    """A learner whose index depends on the step, a posterior sample for instance, drawn from a tape made beforehand."""

    def index_at(self, state: Any, step: Tensor) -> Tensor:
        """That of each learner's next pull, which is the ``step`` (S, M) of its run; `Learner.index` is not asked."""


@runtime_checkable
class Annotates(Protocol):
    """A learner that has something to say of each pull, a certificate of its regret for instance."""

    def notes(self, state: Any, index: Tensor, arm: Tensor) -> Mapping[str, Tensor]:
        """By name, what there is to say, (S, M) each, before the learners pull ``arm`` (S, M) because of ``index``."""


@on_cpu
def simulate(
    name: str,
    problem: Problem,
    learner: Learner[LearnerState],
    exploration: Exploration,
    clients: int,
    steps: int,
    together: bool = False,
) -> Trace:
    """Run ``steps`` steps of Phase II after ``exploration`` and return the trace of both phases.

    Arms whose index is within rounding of the largest are a tie, which the learner's own seeded order of the arms
    decides: where features are alike, round-off would decide otherwise, and it differs between machines. A
    ``ValueError`` where an index is NaN.

    A run that fires may wait until all have, and the runs synchronise ``together``: the result is the same, and faster
    where a synchronisation costs more than the passes in which others play on.
    """
    require_kind(isinstance(problem, Problem), "problem", problem, "give a Problem")
    clients = count("clients", clients, "give N, at least one client")
    steps = count("steps", steps, "give at least one step of Phase II")
    runs, first = exploration.arm.shape
    given = len(problem.runs)
    require(given == runs, "the number of runs", given, f"Phase I had {runs}; give the same")
    learners = learner.learners
    total = first + steps
    noise = problem.tape(total)
    arms, rewards = _extend(exploration.arm, steps), _extend(exploration.reward, steps)
    sync = torch.zeros(runs, total, dtype=torch.bool)
    ledger = Ledger(*(_extend(part, steps) for part in exploration.ledger))
    star = Star(clients, ledger)
    notes: dict[str, Tensor] = {}
    speaks = learner if isinstance(learner, Annotates) else None
    sampler = learner if isinstance(learner, Samples) else None
    order = order_of_ties(problem, learners)
    seat = torch.arange(learners)
    position = torch.full((runs,), first)
    end = torch.full((runs, 1), total)  # before which a run plays on: 0 while it waits for the others
    waiting: list[When] = []
    state = learner.begin()
    while int(position.amin()) < total:
        served = (position - first) % learners
        step = (position - served).unsqueeze(1) + seat
        turn = (seat >= served.unsqueeze(1)) & (step < end)
        at = step.clamp(max=total - 1)
        index = sampler.index_at(state, at) if sampler else learner.index(state)
        arm = largest(index, order)
        fires = learner.fires(state, arm) & turn
        calls = bool(fires.any())
        if calls:
            turn &= fires.cumsum(1) <= fires  # up to the first that fires: no other has before
            fires &= turn
        reward = problem.observe(arm, noise.gather(1, at))
        run, learner_number = turn.nonzero(as_tuple=True)
        taken = step[run, learner_number]
        if speaks is not None:
            for note, values in speaks.notes(state, index, arm).items():
                kept = notes.setdefault(note, values.new_zeros(runs, total))
                kept[run, taken] = values[run, learner_number]
        state = learner.learn(state, arm, reward, turn.to(reward.dtype))
        arms[run, taken] = arm[run, learner_number]
        rewards[run, taken] = reward[run, learner_number]
        position = position + turn.sum(1)
        if calls:
            run, learner_number = fires.nonzero(as_tuple=True)
            waiting.append(When(run, step[run, learner_number]))
            if together:
                end[run] = 0
        if waiting and not (together and bool((position.unsqueeze(1) < end).any())):
            when = When(*(torch.cat(part) for part in zip(*waiting, strict=True)))
            sync[when] = True
            state = learner.synchronise(state, star, when)
            waiting.clear()
            end.fill_(total)
    return Trace(
        name, problem.name, clients, first, arms, rewards, problem.regret(arms), *ledger, sync, notes
    )


def _extend(part: Tensor, steps: int) -> Tensor:
    return torch.cat([part, part.new_zeros(len(part), steps)], 1)


def order_of_ties(problem: Problem, learners: int) -> Tensor:
    """A random place in [0, 1) for each arm in every learner's order of ties, (S, M, K)."""
    return uniform_draws(problem.generators("order of ties"), learners, problem.arms.shape[1])


def largest(index: Tensor, order: Tensor) -> Tensor:
    """The arm (S, M) of the largest ``index`` (S, M, K); among those within 1e-9 of it the last in ``order``."""
    top = index.amax(-1, keepdim=True)
    remedy = "rewards, features or settings are out of range: scale them to order 1, or raise λ"
    require(not bool(top.isnan().any()), "the index of an arm", float("nan"), remedy)
    # for an infinite index (an arm never pulled) the slack must stay finite
    slack = 1e-9 * top.abs().clamp(1.0, 1e300)
    return order.masked_fill(index < top - slack, -1.0).argmax(-1)
