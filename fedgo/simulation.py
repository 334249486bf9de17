"""The loop of Phase II (Algorithm 1, lines 2–10), in which the clients take turns; all runs are played at once.

Between two synchronisations the learners, which choose the arms for the clients, do not influence each other. Every
pass of the loop therefore lets all learners of a run choose at once. If the pull of learner i triggers a
synchronisation, the choices of the learners after i in that run are dropped, and made again after the synchronisation.
The noise of a reward depends on its run and step only. Therefore the result is the same as if one learner played after
the other.

There are S runs, K arms and N clients, with M = N learners if each client has a model of its own and M = 1 if all share
one. Steps are counted from 0 with Phase I included; learner t mod M makes the pull of step t of Phase II. ``arm`` (S,
M) int64 is the arm that each learner pulls or would pull.
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
    """A bandit algorithm for Phase II: the interface that `simulate` expects of M learners in each of S runs.

    The state of all learners is one object, which the methods receive and return. `simulate` does not use a state again
    after it has passed it to `learn` or `synchronise`, so that these two may overwrite its memory.
    """

    @property
    def learners(self) -> int:
        """The number M of learners in each run, N or 1."""

    def begin(self) -> LearnerState:
        """Return the state of the learners of all runs before Phase II."""

    def index(self, state: LearnerState) -> Tensor:
        """Return a value of each arm for each learner, (S, M, K) float64; a learner pulls the arm with the largest one.

        No value may be NaN; +∞ and −∞ are allowed. The loop may ask several times for one step, because the choices
        that follow a synchronisation are made again. An index that is drawn at random therefore has to be a function of
        the run and the step (`Samples`).
        """

    def fires(self, state: LearnerState, arm: Tensor) -> Tensor:
        """Return whether each learner asks for a synchronisation after it pulls its ``arm``, (S, M) bool.

        ``state`` is that before the pull. Answers of learners that do not pull in this pass are ignored.
        """

    def learn(self, state: LearnerState, arm: Tensor, reward: Tensor, turn: Tensor) -> LearnerState:
        """Return the state after one pull of some of the learners.

        Args:
            state: The state before the pull.
            arm: The arm that each learner has chosen, (S, M) int64.
            reward: The reward of this arm, (S, M) float64.
            turn: 1 for the learners that make this pull; 0 for the others, whose part of the state has to stay as it
                is; (S, M) float64.
        """

    def synchronise(self, state: LearnerState, star: Star, when: When) -> LearnerState:
        """Return the state after the learners of some of the runs have exchanged their data.

        Args:
            state: The state of all runs before the synchronisation.
            star: Carries the messages and counts their scalars.
            when: The runs that synchronise, and the step to which each is charged.
        """


@runtime_checkable
class Samples(Protocol):
    """An optional interface of a learner whose index depends on the step, for instance of Thompson sampling."""

    def index_at(self, state: Any, step: Tensor) -> Tensor:
        """Return the index, as `Learner.index` does, for the ``step`` (S, M) int64 at which each learner has its turn.

        The step may lie before the next step of the run, if the learner has had its turn already, and the last step
        stands for steps after it. The loop ignores the index in both cases.
        """


@runtime_checkable
class Annotates(Protocol):
    """An optional interface of a learner that adds notes about each pull to the trace, for instance a certificate."""

    def notes(self, state: Any, index: Tensor, arm: Tensor) -> Mapping[str, Tensor]:
        """Return the notes on the pull of each learner, a tensor (S, M) for each name, or none.

        All calls that return some must return the same names and dtypes. The trace has 0 for a pull without a note.

        Args:
            state: The state before the pull.
            index: The index by which the arms were chosen, (S, M, K).
            arm: The arms that the learners would pull, (S, M) int64.
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

    Indices that differ by rounding only are a tie, which the learner's own random order of the arms decides. Otherwise
    rounding errors, which differ between machines, would decide between arms with equal features. A synchronisation
    that the last step triggers is carried out too.

    Args:
        name: What the algorithm is called in the trace.
        problem: S runs of a bandit problem.
        learner: The algorithm, for the same runs, perhaps with the methods of `Samples` or `Annotates`.
        exploration: Phase I of the same runs, with T₀ pulls; T₀ is 0 for an algorithm without Phase I.
        clients: The number N of clients.
        steps: The number of steps of Phase II.
        together: Whether a run that asks for a synchronisation waits until all other runs have asked for one or have
            ended, so that one call synchronises all. The result is the same; this is faster where a synchronisation
            takes longer than the passes of the loop in which other runs play on.

    Raises:
        ValueError: ``clients`` or ``steps`` is below 1, ``problem`` and ``exploration`` have different numbers of runs,
            or an index is NaN.
        TypeError: ``problem`` is not a `Problem`, a number is not whole, or a name is not a text.
    """
    require_kind(isinstance(problem, Problem), "problem", problem, "give a Problem")
    clients = count("clients", clients, "give N, at least one client")
    steps = count("steps", steps, "give at least one step of Phase II")
    runs, first = exploration.arm.shape
    given = len(problem.runs)
    require(given == runs, "the number of runs", given, f"Phase I had {runs}; give the same")
    total = first + steps
    noise, order = problem.tape(total), order_of_ties(problem, learner.learners)
    phase_one = (exploration.arm, exploration.reward, *exploration.ledger)
    # one more column takes what the learners would do whose turn it is not
    arms, rewards, up, down = [torch.nn.functional.pad(values, (0, steps + 1)) for values in phase_one]
    sync = torch.zeros_like(arms, dtype=torch.bool)
    notes: dict[str, Tensor] = {}
    star = Star(clients, Ledger(up, down))
    position = torch.full((runs,), first)
    # a run plays the steps before its end; the end is 0 while the run waits for the others
    end = torch.full((runs, 1), total)
    waiting: list[When] = []
    # such a check takes as long as an operation on tensors
    samples = learner if isinstance(learner, Samples) else None
    speaks = learner if isinstance(learner, Annotates) else None
    state = learner.begin()
    while int(position.amin()) < total:
        chosen = _choose(learner, samples, state, position, end, order, first, total)
        reward = problem.observe(chosen.arm, noise.gather(1, chosen.step.clamp(max=total - 1)))
        column = chosen.step.where(chosen.turn, total)
        if speaks is not None:
            said = speaks.notes(state, chosen.indices, chosen.arm)
            notes = notes or {key: values.new_zeros(runs, total + 1) for key, values in said.items()}
            for key, values in said.items():
                notes[key].scatter_(1, column, values)
        state = learner.learn(state, chosen.arm, reward, chosen.turn.to(reward.dtype))
        arms.scatter_(1, column, chosen.arm)
        rewards.scatter_(1, column, reward)
        position = position + chosen.turn.sum(1)
        if bool(chosen.fires.any()):
            run, learner_number = chosen.fires.nonzero(as_tuple=True)
            waiting.append(When(run, chosen.step[run, learner_number]))
            if together:
                end[run] = 0
        if waiting and not (together and bool((position.unsqueeze(1) < end).any())):
            when = waiting[0]
            if len(waiting) > 1:
                when = When(*(torch.cat(parts) for parts in zip(*waiting, strict=True)))
            sync[when.run, when.step] = True
            state = learner.synchronise(state, star, when)
            waiting.clear()
            if together:
                end.fill_(total)
    arms, rewards, up, down, sync = (
        values[:, :total].contiguous() for values in (arms, rewards, up, down, sync)
    )
    notes = {key: values[:, :total].contiguous() for key, values in notes.items()}
    regret = problem.regret(arms)
    return Trace(name, problem.name, clients, first, arms, rewards, regret, up, down, sync, notes)


class Choice(NamedTuple):
    """What the learners would do in one pass of the loop.

    Args:
        step: The step at which each learner has its turn in the current round, perhaps after the last one, (S, M)
            int64.
        indices: Each learner's index of the arms, (S, M, K).
        arm: The arm that each learner would pull, (S, M) int64.
        turn: Whether the learner makes this pull in this pass, (S, M) bool.
        fires: Whether the pull is made and triggers a synchronisation, (S, M) bool.
    """

    step: Tensor
    indices: Tensor
    arm: Tensor
    turn: Tensor
    fires: Tensor


def _choose(
    learner: Learner[LearnerState],
    samples: Samples | None,
    state: LearnerState,
    position: Tensor,
    end: Tensor,
    order: Tensor,
    first: int,
    total: int,
) -> Choice:
    """Return what the learners choose, and which of them pull in this pass of the loop."""
    # In each run the learners pull that have not pulled in this round yet and whose step lies before `end` (S, 1), up
    # to and including the first of them that asks for a synchronisation. `position` (S,) is the next step of each run.
    step, several = position.unsqueeze(1), learner.learners > 1
    turn = step < end
    if several:
        seat = torch.arange(learner.learners)
        served = (step - first) % learner.learners
        step = step - served + seat
        turn = (seat >= served) & (step < end)
    indices = learner.index(state) if samples is None else samples.index_at(state, step.clamp(max=total - 1))
    arm = largest(indices, order)
    fires = learner.fires(state, arm) & turn
    if several and bool(fires.any()):
        earlier = fires.cumsum(1) - fires.long()  # how many learners before this one in the round fire
        turn = turn & (earlier == 0)
        fires = fires & turn
    return Choice(step, indices, arm, turn, fires)


def order_of_ties(problem: Problem, learners: int) -> Tensor:
    """Return a random number for each of M = ``learners`` learners and each arm, which decides between tied arms."""
    return uniform_draws(problem.generators("order of ties"), learners, problem.arms.shape[1])


def largest(index: Tensor, order: Tensor) -> Tensor:
    """Return the arm with the largest index for each learner, (S, M) int64, by ``order`` if arms tie.

    Those arms tie whose index is below the largest one by at most 1e-9 of the largest distance between two finite
    indices, or 1e-12 of the largest absolute value, which covers rounding. An index must not be NaN.
    """
    low, high = index.aminmax(dim=-1, keepdim=True)
    top, spread = high, high - low
    if not bool(spread.isfinite().all()):
        remedy = "rewards, features or settings are out of range; scale them to order 1, or raise λ"
        require(not bool(top.isnan().any()), "the index of an arm", float("nan"), remedy)
        # an arm may have the index ∞ if it was never pulled, and −∞ if it must not be
        finite = index.isfinite()
        low = index.where(finite, torch.inf).amin(-1, keepdim=True)
        high = index.where(finite, -torch.inf).amax(-1, keepdim=True)
        spread = high - low
    slack = 1e-9 * torch.maximum(spread, 1e-3 * torch.maximum(high, -low)).clamp(0, 1e300)
    return order.masked_fill(index < top - slack, -1.0).argmax(-1)
