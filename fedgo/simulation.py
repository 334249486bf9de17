"""The loop of Phase II (Algorithm 1, lines 2–10): clients in round robin, whole rounds of all runs at once.

Between two synchronisations the learners do not influence each other, so every pass lets all of them choose at
once; where learner i of a run triggers, the choices of those after i in that run are dropped and made again after
the synchronisation. The noise is indexed by (run, step), so the result is the sequential one.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedgo._checks import require
from fedgo.phase_one import Exploration
from fedgo.problem import Problem
from fedgo.star import Ledger, Star, When

State = TypeVar("State")


class Learner(Protocol[State]):
    """M learners per run (N clients with a model each, or one that all share) and their protocol."""

    @property
    def learners(self) -> int:
        """M; the step t of Phase II is made by learner t mod M."""
        ...

    def begin(self) -> State:
        """The state before Phase II."""
        ...

    def index(self, state: State) -> Tensor:
        """The optimistic value of every arm, (S, M, K)."""
        ...

    def fires(self, state: State, arm: Tensor) -> Tensor:
        """Whether pulling ``arm`` (S, M) makes each learner ask for a synchronisation, (S, M) bool."""
        ...

    def learn(self, state: State, arm: Tensor, reward: Tensor, turn: Tensor) -> State:
        """The state after the learners with ``turn`` 1 pulled ``arm`` and saw ``reward``, all (S, M)."""
        ...

    def synchronise(self, state: State, star: Star, when: When) -> State:
        """The state after the runs ``when.run`` synchronised over ``star``."""
        ...


@dataclass(frozen=True, eq=False)
class Trace:
    """What an experiment did, all arrays (S, steps): Phase I in the first ``phase_one`` steps, then Phase II.

    ``arm`` int64, ``reward``, ``regret`` f(x*) − f(x_t) float64, ``up`` and ``down`` scalars int64, ``sync`` bool.
    Two traces are equal if every entry of every array is.
    """

    algorithm: str
    problem: str
    clients: int
    phase_one: int
    arm: Tensor
    reward: Tensor
    regret: Tensor
    up: Tensor
    down: Tensor
    sync: Tensor

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        pairs = [(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)]
        return all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in pairs)

    @property
    def cumulative_regret(self) -> Tensor:
        """R_t, Phase I included (S, steps)."""
        return self.regret.cumsum(1)

    @property
    def communication(self) -> Tensor:
        """C_t: scalars sent up and down until step t, the oracle included (S, steps)."""
        return (self.up + self.down).cumsum(1)

    def first(self, runs: int) -> "Trace":
        """The first ``runs`` runs."""
        part: dict[str, Any] = {name: getattr(self, name)[:runs] for name in _ARRAYS}
        return replace(self, **part)

    @classmethod
    def join(cls, traces: Sequence["Trace"]) -> "Trace":
        """The runs of several traces of one experiment as one trace."""
        whole: dict[str, Any] = {
            name: torch.cat([getattr(trace, name) for trace in traces]) for name in _ARRAYS
        }
        return replace(traces[0], **whole)

    def save(self, path: str | Path) -> None:
        """Write everything to one ``.npz`` file."""
        columns = asdict(self)
        tensors = {name: columns.pop(name).numpy() for name in list(columns) if name in _ARRAYS}
        with open(path, "wb") as file:
            np.savez_compressed(file, about=np.array(json.dumps(columns)), **tensors)

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Read what ``save`` wrote; a ``ValueError`` where the file is something else."""
        with np.load(path, allow_pickle=False) as file:
            missing = {"about", *_ARRAYS} - set(file.files)
            require(
                not missing, "the trace file", str(path), f"it lacks {sorted(missing)}; give a saved Trace"
            )
            arrays = {name: torch.from_numpy(file[name]) for name in _ARRAYS}
            about: dict[str, Any] = json.loads(str(file["about"]))
            return cls(**(about | arrays))


_ARRAYS = tuple(field.name for field in fields(Trace) if field.type is Tensor)


def simulate(
    name: str, problem: Problem, learner: Learner[State], exploration: Exploration, clients: int, steps: int
) -> Trace:
    """Run ``steps`` steps of Phase II after ``exploration`` and return the trace of both phases."""
    require(clients >= 1, "clients", clients, "give N, at least one client")
    require(steps >= 1, "steps", steps, "give at least one step of Phase II")
    runs, first = exploration.arm.shape
    require(
        len(problem.runs) == runs,
        "the number of runs",
        len(problem.runs),
        f"Phase I had {runs}; give the same",
    )
    learners = learner.learners
    total = first + steps
    noise = problem.tape(total)
    arms, rewards = _extend(exploration.arm, steps), _extend(exploration.reward, steps)
    sync = torch.zeros(runs, total, dtype=torch.bool)
    ledger = Ledger(*(_extend(part, steps) for part in exploration.ledger))
    star = Star(clients, ledger)
    seat = torch.arange(learners)
    position = torch.full((runs,), first)
    state = learner.begin()
    while bool((position < total).any()):
        served = (position - first) % learners
        step = (position - served).unsqueeze(1) + seat
        turn = (seat >= served.unsqueeze(1)) & (step < total)
        arm = learner.index(state).argmax(-1)
        fires = learner.fires(state, arm) & turn
        # keep the turns up to the first that fires: its position among the turns is where the count is still 0
        turn &= fires.cumsum(1) - fires.long() == 0
        fires &= turn
        at = step.clamp(max=total - 1)
        reward = problem.observe(arm, noise.gather(1, at))
        state = learner.learn(state, arm, reward, turn.to(reward.dtype))
        run, learner_number = turn.nonzero(as_tuple=True)
        taken = step[run, learner_number]
        arms[run, taken] = arm[run, learner_number]
        rewards[run, taken] = reward[run, learner_number]
        position = position + turn.sum(1)
        if fires.any():
            run, learner_number = fires.nonzero(as_tuple=True)
            when = When(run, step[run, learner_number])
            sync[when] = True
            state = learner.synchronise(state, star, when)
    return Trace(name, problem.name, clients, first, arms, rewards, problem.regret(arms), *ledger, sync)


def _extend(part: Tensor, steps: int) -> Tensor:
    return torch.cat([part, part.new_zeros(len(part), steps)], 1)
