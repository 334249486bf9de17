"""The trace of an experiment: what happened at each step, and the file that keeps it.

The regret R_t and the communication C_t of the paper (Section 3) are sums over the steps up to step t. All arrays are
(S, steps) for S runs, with the T₀ steps of Phase I before those of Phase II.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedgo._checks import count, require, require_each, require_kind


@dataclass(frozen=True, eq=False)
class Trace:
    """The record of an experiment, step by step. Traces are equal if all entries are; NaN equals nothing.

    Args:
        algorithm: The name of the algorithm.
        problem: The name of the problem.
        clients: The number N of clients.
        phase_one: The number T₀ of steps of Phase I; 0 for an algorithm without it.
        arm: The number of the arm x_t that is pulled at each step t, int64.
        reward: The reward of the pull, float64.
        regret: The instantaneous regret f(x*) − f(x_t), with the mean reward f and the best arm x*, float64.
        up: The number of scalars that all clients send to the server at the step, int64.
        down: The number of scalars that the server sends to all clients at the step, int64.
        sync: Whether the step ends with a synchronisation, bool.
        notes: Further arrays (S, steps), of any dtype, by the name of the note that the learner made.

    Raises:
        TypeError: An array is not a tensor, a name is not a text, or a number is not whole.
        ValueError: An array has another shape than ``arm`` or, except for a note, another dtype; or a number is out of
            range.
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
    notes: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        arrays = {name: getattr(self, name) for name in ARRAYS}
        arrays |= {f"the note {name!r}": note for name, note in self.notes.items()}
        for name, values in arrays.items():
            require_kind(isinstance(values, Tensor), name, values, "give a tensor")
            shape, dtype = tuple(values.shape), ARRAYS.get(name, values.dtype)
            require(values.dtype == dtype, f"the dtype of {name}", values.dtype, f"give {dtype}")
            fits = len(shape) == 2 and shape == self.arm.shape
            remedy = f"give (S, steps), as of arm: {tuple(self.arm.shape)}"
            require(fits, f"the shape of {name}", shape, remedy)
        for name in ("algorithm", "problem"):
            require_kind(isinstance(getattr(self, name), str), name, getattr(self, name), "give a name")
        count("clients", self.clients, "give N, at least one client")
        steps = self.arm.shape[1]
        count("phase_one", self.phase_one, f"give T₀, from 0 to {steps}", least=0, most=steps)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        mine, theirs = self._entries(), other._entries()
        return mine.keys() == theirs.keys() and all(np.array_equal(mine[name], theirs[name]) for name in mine)

    def _entries(self) -> dict[str, Any]:
        """Return all fields but ``notes`` by name, and every note as "note: " and its name."""
        named = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "notes"}
        return named | {_NOTE + name: values for name, values in self.notes.items()}

    @property
    def cumulative_regret(self) -> Tensor:
        """The cumulative regret R_t of each run after each step, (S, steps) float64, Phase I included."""
        return self.regret.cumsum(1)

    @property
    def communication(self) -> Tensor:
        """The cumulative number C_t of scalars sent up and down, (S, steps) int64, Phase I included."""
        return (self.up + self.down).cumsum(1)

    def first(self, runs: int) -> "Trace":
        """Return a trace of the first ``runs`` runs.

        Raises:
            ValueError: ``runs`` is below 1 or above the number of runs of this trace.
            TypeError: ``runs`` is not a whole number.
        """
        count("runs", runs, f"available are {len(self.arm)}", most=len(self.arm))
        arrays: dict[str, Any] = {name: getattr(self, name)[:runs] for name in ARRAYS}
        return replace(self, **arrays, notes={name: values[:runs] for name, values in self.notes.items()})

    @classmethod
    def join(cls, traces: Sequence["Trace"]) -> "Trace":
        """Return one trace with all runs of ``traces`` of one experiment, in their order.

        A trace does not contain seeds and settings, so that these are not compared.

        Raises:
            ValueError: The list is empty, or the traces differ in the algorithm, the problem, the clients, the steps or
                the names of their notes.
        """
        require(len(traces) >= 1, "traces", traces, "give at least one trace")
        kinds = {
            (t.algorithm, t.problem, t.clients, t.phase_one, t.arm.shape[1], *sorted(t.notes)) for t in traces
        }
        require(len(kinds) == 1, "the experiments", sorted(kinds), "join the runs of one experiment only")
        whole: dict[str, Any] = {name: torch.cat([getattr(t, name) for t in traces]) for name in ARRAYS}
        notes = {name: torch.cat([t.notes[name] for t in traces]) for name in traces[0].notes}
        return replace(traces[0], **whole, notes=notes)

    def to_frame(self) -> Any:
        """Return a pandas frame with a row for each run and the results of the run as columns.

        Returns:
            A frame with ``problem``, ``algorithm`` and ``run`` (the position of the run, from 0), and the columns

            - ``regret``: the final cumulative regret, Phase I included;
            - ``late_regret``: the mean regret of a step in the last tenth of all n steps, which are ⌈n/10⌉;
            - ``misses_best``: whether each of these steps has a positive regret, so that none pulls a best arm;
            - ``scalars``, ``scalars_phase_two`` and ``scalars_late``: the number of scalars sent, up and down, in both
              phases, in Phase II, and in its second half, which includes a middle step;
            - ``synchronisations``: the number of steps that end with a synchronisation.
        """
        import pandas

        steps, sent = self.arm.shape[1], self.up + self.down
        late = self.regret[:, -math.ceil(steps / 10) :]
        half = self.phase_one + (steps - self.phase_one) // 2
        columns = {
            "regret": self.cumulative_regret[:, -1],
            "late_regret": late.mean(1),
            "misses_best": (late > 0).all(1),
            "scalars": sent.sum(1),
            "scalars_phase_two": sent[:, self.phase_one :].sum(1),
            "scalars_late": sent[:, half:].sum(1),
            "synchronisations": self.sync.sum(1),
        }
        about = {"problem": self.problem, "algorithm": self.algorithm, "run": range(len(self.arm))}
        return pandas.DataFrame(about | {name: values.numpy() for name, values in columns.items()})

    def save(self, path: str | Path) -> None:
        """Write the trace to the ``.npz`` file ``path``; an older file stays whole until the new one is complete."""
        entries = self._entries()
        arrays = {name: entries.pop(name).numpy() for name in [*entries] if isinstance(entries[name], Tensor)}
        target = Path(path).resolve()
        partial = target.with_name(f".{target.name}")
        with open(partial, "wb") as file:
            np.savez_compressed(file, about=np.array(json.dumps(entries)), **arrays)
        partial.replace(target)

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Return the trace that `save` wrote to ``path``.

        Raises:
            ValueError: The file is damaged, is no trace, or has a number that no trace can have; the message names the
                file.
            OSError: There is no such file, or it cannot be read.
        """
        try:
            with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
                missing = {"about", *ARRAYS} - {*file.files}
                require(not missing, "what the file has", file.files, f"{sorted(missing)} are missing")
                about = json.loads(str(file["about"]))
                arrays = {name: torch.from_numpy(file[name]) for name in file.files if name != "about"}
            notes = {
                name.removeprefix(_NOTE): values for name, values in arrays.items() if name.startswith(_NOTE)
            }
            trace = cls(**about | {name: arrays[name] for name in ARRAYS}, notes=notes)
            for name, least in {"arm": 0, "up": 0, "down": 0, "regret": 0, "reward": -math.inf}.items():
                values = arrays[name]
                require_each(values.isfinite() & (values >= least), name, values, "the file is damaged")
            return trace
        except OSError:
            raise
        except Exception as error:  # zipfile, zlib, pickle, NumPy and json have errors of their own
            # for a file that it cannot read, NumPy advises to allow pickles, which would run the code in the file
            reason = "it is a file of another kind" if "pickle" in str(error) else str(error)
            raise ValueError(f"the trace file is {str(path)!r}: {reason}; give a saved Trace") from error


_NOTE = "note: "  # what stands before the name of a note in a file
ARRAYS = {
    "arm": torch.int64,
    "reward": torch.float64,
    "regret": torch.float64,
    "up": torch.int64,
    "down": torch.int64,
    "sync": torch.bool,
}
