"""The loop of Phase II (Algorithm 1, lines 2–10): clients in round robin, whole rounds of all runs at once.

Between two synchronisations the learners do not influence each other, so every pass lets all of them choose at
once; where learner i of a run triggers, the choices of those after i in that run are dropped and made again after
the synchronisation. The noise is indexed by (run, step), so the result is the sequential one.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

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
    total = first + steps
    noise, order = problem.tape(total), order_of_ties(problem, learner.learners)
    record = Record.after(exploration, steps)
    star = Star(clients, record.ledger)
    position = torch.full((runs,), first)
    end = torch.full((runs, 1), total)  # before which a run plays on: 0 while it waits for the others
    waiting: list[When] = []
    speaks = learner if isinstance(learner, Annotates) else None
    state = learner.begin()
    while int(position.amin()) < total:
        chosen = _choose(learner, state, position, end, order, first, total)
        reward = problem.observe(chosen.arm, noise.gather(1, chosen.step.clamp(max=total - 1)))
        if speaks is not None:
            record.annotate(chosen, speaks.notes(state, chosen.indices, chosen.arm))
        state = learner.learn(state, chosen.arm, reward, chosen.turn.to(reward.dtype))
        record.pull(chosen, reward)
        position = position + chosen.turn.sum(1)
        if bool(chosen.fires.any()):
            run, learner_number = chosen.fires.nonzero(as_tuple=True)
            waiting.append(When(run, chosen.step[run, learner_number]))
            if together:
                end[run] = 0
        if waiting and not (together and bool((position.unsqueeze(1) < end).any())):
            when = When(*(torch.cat(parts) for parts in zip(*waiting, strict=True)))
            record.sync[when.run, when.step] = True
            state = learner.synchronise(state, star, when)
            waiting.clear()
            end.fill_(total)
    return record.trace(name, problem, clients, first)


class Choice(NamedTuple):
    """What the learners of all runs would do at once, (S, M) each, with the ``indices`` of all arms, (S, M, K).

    ``step`` is the step t of each learner, ``arm`` its arm, ``turn`` whether it makes this pull, and ``fires`` whether
    the pull fires the event.
    """

    step: Tensor
    indices: Tensor
    arm: Tensor
    turn: Tensor
    fires: Tensor


def _choose(
    learner: Learner[LearnerState],
    state: LearnerState,
    position: Tensor,
    end: Tensor,
    order: Tensor,
    first: int,
    total: int,
) -> Choice:
    """Return the arms of the rest of a round, up to and with the first learner of each run whose pull fires the event.

    ``position`` (S,) is the next step of each run, which plays on before ``end`` (S, 1); ``order`` decides ties.
    """
    seat = torch.arange(learner.learners)
    served = (position - first) % learner.learners
    step = (position - served).unsqueeze(1) + seat
    turn = (seat >= served.unsqueeze(1)) & (step < end)
    if isinstance(learner, Samples):
        indices = learner.index_at(state, step.clamp(max=total - 1))
    else:
        indices = learner.index(state)
    arm = largest(indices, order)
    fires = learner.fires(state, arm) & turn
    if bool(fires.any()):
        earlier = fires.cumsum(1) - fires.long()  # learners of the round that fire before this one
        turn = turn & (earlier == 0)
        fires = fires & turn
    return Choice(step, indices, arm, turn, fires)


class Record(NamedTuple):
    """What a trace is made of, (S, T₀ + NT) each, written in place as the steps are played."""

    arm: Tensor
    reward: Tensor
    sync: Tensor
    ledger: Ledger
    notes: dict[str, Tensor]

    @classmethod
    def after(cls, exploration: Exploration, steps: int) -> "Record":
        """Return the record of ``exploration``, with room for ``steps`` steps of Phase II."""
        arm, reward = _extend(exploration.arm, steps), _extend(exploration.reward, steps)
        ledger = Ledger(*(_extend(scalars, steps) for scalars in exploration.ledger))
        return cls(arm, reward, torch.zeros(arm.shape, dtype=torch.bool), ledger, {})

    def pull(self, chosen: Choice, reward: Tensor) -> None:
        """Write the arms and rewards (S, M) of the pulls that are made."""
        run, learner_number = chosen.turn.nonzero(as_tuple=True)
        step = chosen.step[run, learner_number]
        self.arm[run, step] = chosen.arm[run, learner_number]
        self.reward[run, step] = reward[run, learner_number]

    def annotate(self, chosen: Choice, notes: Mapping[str, Tensor]) -> None:
        """Write what a learner says of the pulls that are made, (S, M) by name."""
        run, learner_number = chosen.turn.nonzero(as_tuple=True)
        for name, values in notes.items():
            of_steps = self.notes.setdefault(name, values.new_zeros(self.arm.shape))
            of_steps[run, chosen.step[run, learner_number]] = values[run, learner_number]

    def trace(self, name: str, problem: Problem, clients: int, first: int) -> Trace:
        """Return the trace of all steps, of which ``first`` are Phase I's."""
        regret = problem.regret(self.arm)
        return Trace(
            name,
            problem.name,
            clients,
            first,
            self.arm,
            self.reward,
            regret,
            *self.ledger,
            self.sync,
            self.notes,
        )


def _extend(values: Tensor, steps: int) -> Tensor:
    """Return ``values`` (S, T₀) with zeros for ``steps`` more steps."""
    return torch.cat([values, values.new_zeros(len(values), steps)], 1)


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
