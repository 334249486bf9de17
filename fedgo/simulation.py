"""The loop of Phase II (Algorithm 1, lines 2–10): clients in round robin, whole rounds of all runs at once.

Between two synchronisations the learners do not influence each other. Every pass of the loop therefore lets all
learners of a run choose at once. If the pull of learner i triggers a synchronisation, the choices of the learners after
i in that run are dropped, and made again after the synchronisation. The noise is indexed by (run, step), so that the
result is that of one learner after the other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
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
    """A rule of play for M learners in each of S runs, and the way in which they synchronise.

    Either each of the N clients has a model of its own (M = N), or all clients share one model (M = 1).
    """

    @property
    def learners(self) -> int:
        """The number M of learners; learner t mod M makes the step t of Phase II."""

    def begin(self) -> LearnerState:
        """Return the state before Phase II."""

    def index(self, state: LearnerState) -> Tensor:
        """Return the optimistic value of each arm for each learner, (S, M, K).

        The loop may ask several times for one step, because it makes the choices after a synchronisation again. An
        index that is drawn at random therefore has to be a function of the run and the step; `Samples` is for such a
        learner.
        """

    def fires(self, state: LearnerState, arm: Tensor) -> Tensor:
        """Return whether each learner asks for a synchronisation after it pulls its ``arm`` (S, M), (S, M) bool."""

    def learn(self, state: LearnerState, arm: Tensor, reward: Tensor, turn: Tensor) -> LearnerState:
        """Return the state after the learners with ``turn`` 1 pulled ``arm`` and saw ``reward``, (S, M) each."""

    def synchronise(self, state: LearnerState, star: Star, when: When) -> LearnerState:
        """Return the state after the learners of some of the runs have exchanged their data.

        Args:
            state: The state of the learners of all S runs.
            star: The network by which the learners send their messages. Its methods `Star.collect`, `Star.broadcast`
                and `Star.ask` add the scalars of each message to its ledger (S, steps), unless it is not ``charged``.
            when: The R runs that synchronise, and the step of each at which its scalars are counted, (R,) each.
        """


@runtime_checkable
class Samples(Protocol):
    """A learner whose index depends on the step, for instance a posterior sample drawn with numbers made beforehand."""

    def index_at(self, state: Any, step: Tensor) -> Tensor:
        """Return the index (S, M, K) for each learner's next pull, which is the step ``step`` (S, M) of its run.

        The loop asks this method in place of `Learner.index`.
        """


@runtime_checkable
class Annotates(Protocol):
    """A learner that adds notes to the trace about each pull, for instance a certificate of its regret."""

    def notes(self, state: Any, index: Tensor, arm: Tensor) -> Mapping[str, Tensor]:
        """Return the notes on each learner's pull by name, (S, M) each.

        Args:
            state: The state before the pull.
            index: The index that the arms were chosen by, (S, M, K).
            arm: The arms that the learners pull, (S, M) int64.
        """


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
    """Run Phase II after ``exploration`` and return the trace of both phases.

    Arms whose index is within rounding of the largest are a tie, and the learner's own seeded order of the arms decides
    it. Otherwise round-off would decide between arms with equal features, and round-off differs between machines.

    Args:
        name: What the algorithm is called in the trace.
        problem: S runs of a bandit problem.
        learner: The rule of play.
        exploration: Phase I of the same runs.
        clients: The number N of clients.
        steps: The number of steps of Phase II.
        together: Let a run that fires wait until all runs have fired, and synchronise them in one call. The result is
            the same. It is faster where a synchronisation costs more than the passes in which other runs play on.

    Raises:
        ValueError: An argument is out of range, ``problem`` and ``exploration`` have different numbers of runs, or an
            index is NaN.
    """
    require_kind(isinstance(problem, Problem), "problem", problem, "give a Problem")
    clients = count("clients", clients, "give N, at least one client")
    steps = count("steps", steps, "give at least one step of Phase II")
    runs, first = exploration.arm.shape
    given = len(problem.runs)
    require(given == runs, "the number of runs", given, f"Phase I had {runs}; give the same")
    total = first + steps
    noise, order = problem.tape(total), order_of_ties(problem, learner.learners)
    trace = _with_room(name, problem, clients, exploration, steps)  # its arrays are written in place
    notes: dict[str, Tensor] = {}
    star = Star(clients, Ledger(trace.up, trace.down))
    position = torch.full((runs,), first)
    end = torch.full((runs, 1), total)  # before which a run plays on: 0 while it waits for the others
    waiting: list[When] = []
    speaks = learner if isinstance(learner, Annotates) else None
    state = learner.begin()
    while int(position.amin()) < total:
        chosen = _choose(learner, state, position, end, order, first, total)
        reward = problem.observe(chosen.arm, noise.gather(1, chosen.step.clamp(max=total - 1)))
        if speaks is not None:
            said = speaks.notes(state, chosen.indices, chosen.arm)
            notes = notes or {key: values.new_zeros(runs, total) for key, values in said.items()}
            _record(chosen, [(notes[key], values) for key, values in said.items()])
        state = learner.learn(state, chosen.arm, reward, chosen.turn.to(reward.dtype))
        _record(chosen, [(trace.arm, chosen.arm), (trace.reward, reward)])
        position = position + chosen.turn.sum(1)
        if bool(chosen.fires.any()):
            run, learner_number = chosen.fires.nonzero(as_tuple=True)
            waiting.append(When(run, chosen.step[run, learner_number]))
            if together:
                end[run] = 0
        if waiting and not (together and bool((position.unsqueeze(1) < end).any())):
            when = When(*(torch.cat(parts) for parts in zip(*waiting, strict=True)))
            trace.sync[when.run, when.step] = True
            state = learner.synchronise(state, star, when)
            waiting.clear()
            end.fill_(total)
    return replace(trace, regret=problem.regret(trace.arm), notes=notes)


class Choice(NamedTuple):
    """What the M learners of each of S runs would do in one pass of the loop, with shape (S, M) each.

    ``step`` is the step t of each learner, ``indices`` (S, M, K) its index of all arms, ``arm`` its arm, ``turn``
    whether it makes this pull, and ``fires`` whether the pull fires the event.
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
    """Return what the learners of the rest of the round do, up to the first learner of each run whose pull fires.

    Args:
        learner: The rule of play.
        state: Its state.
        position: The next step of each run, (S,).
        end: The step before which each run plays on, (S, 1).
        order: The order that decides ties, (S, M, K).
        first: The number of steps of Phase I.
        total: The number of all steps.
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


def _with_room(name: str, problem: Problem, clients: int, exploration: Exploration, steps: int) -> Trace:
    """Return a trace of ``exploration`` that has room for ``steps`` steps of Phase II, all zero so far."""
    phase_one = (exploration.arm, exploration.reward, *exploration.ledger)
    arm, reward, up, down = (
        torch.cat([values, values.new_zeros(len(values), steps)], 1) for values in phase_one
    )
    regret, sync = torch.zeros_like(reward), torch.zeros_like(arm, dtype=torch.bool)
    return Trace(name, problem.name, clients, exploration.arm.shape[1], arm, reward, regret, up, down, sync)


def _record(chosen: Choice, pulled: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Write the values of the pulls that are made into arrays, at the steps of the pulls.

    ``pulled`` has pairs of an array (S, steps) and the values (S, M) that are written into it.
    """
    run, learner_number = chosen.turn.nonzero(as_tuple=True)
    step = chosen.step[run, learner_number]
    for array, values in pulled:
        array[run, step] = values[run, learner_number]


def order_of_ties(problem: Problem, learners: int) -> Tensor:
    """Return the order in which each learner prefers arms that tie: a random number in [0, 1) for each, (S, M, K).

    Of tied arms, `largest` takes the one with the largest number.
    """
    return uniform_draws(problem.generators("order of ties"), learners, problem.arms.shape[1])


def largest(index: Tensor, order: Tensor) -> Tensor:
    """Return each learner's arm with the largest ``index`` (S, M, K), (S, M) int64.

    Arms whose index is within 1e-9 of the largest, relative to it if it exceeds 1, tie. Of these the arm with the
    largest ``order`` (S, M, K) is taken.

    Raises:
        ValueError: The index of an arm is NaN.
    """
    top = index.amax(-1, keepdim=True)
    remedy = "rewards, features or settings are out of range: scale them to order 1, or raise λ"
    require(not bool(top.isnan().any()), "the index of an arm", float("nan"), remedy)
    # for an infinite index (an arm never pulled) the slack must stay finite
    slack = 1e-9 * top.abs().clamp(1.0, 1e300)
    return order.masked_fill(index < top - slack, -1.0).argmax(-1)
