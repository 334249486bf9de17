"""What an experiment did, step by step, and its file: regret R_t and communication C_t (Section 3) are sums over it."""

import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedgo._checks import count, require, require_kind


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

    def __post_init__(self) -> None:
        for name, dtype in _ARRAYS.items():
            values = getattr(self, name)
            require_kind(isinstance(values, Tensor), name, values, f"give a tensor of {dtype}")
            require(values.dtype == dtype, f"the dtype of {name}", values.dtype, f"give {dtype}")
            require(
                values.ndim == 2 and values.shape == self.arm.shape,
                f"the shape of {name}",
                tuple(values.shape),
                f"give (S, steps), as of arm: {tuple(self.arm.shape)}",
            )
        for name in ("algorithm", "problem"):
            require_kind(isinstance(getattr(self, name), str), name, getattr(self, name), "give a name")
        count("clients", self.clients, "give N, at least one client")
        steps = self.arm.shape[1]
        count("phase_one", self.phase_one, f"give T₀, 0 to {steps} = steps", least=0)
        require(self.phase_one <= steps, "phase_one", self.phase_one, f"give T₀, 0 to {steps} = steps")

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
        there = len(self.arm)
        require(count("runs", runs, f"there are {there}") <= there, "runs", runs, f"there are {there}")
        part: dict[str, Any] = {name: getattr(self, name)[:runs] for name in _ARRAYS}
        return replace(self, **part)

    @classmethod
    def join(cls, traces: Sequence["Trace"]) -> "Trace":
        """The runs of several traces of one experiment as one trace."""
        require(len(traces) >= 1, "traces", traces, "give at least one trace")
        kinds = {
            (t.algorithm, t.problem, t.clients, t.phase_one, t.arm.shape[1]) for t in traces
        }  # the steps with them
        require(len(kinds) == 1, "the experiments", sorted(kinds), "join the runs of one experiment only")
        whole: dict[str, Any] = {
            name: torch.cat([getattr(trace, name) for trace in traces]) for name in _ARRAYS
        }
        return replace(traces[0], **whole)

    def save(self, path: str | Path) -> None:
        """Write everything to one ``.npz`` file; the file that was there stays whole until the new one is."""
        path = Path(path)
        about = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _ARRAYS}
        arrays = {name: getattr(self, name).numpy() for name in _ARRAYS}
        partial = None
        try:
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
                partial = Path(file.name)
                np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except OSError as error:
            raise OSError(
                f"the trace cannot be written to {str(path)!r}: {error.strerror or error}"
            ) from error
        finally:
            if partial is not None:
                partial.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Read what ``save`` wrote; a ``ValueError`` that names the file where it is something else."""
        try:
            with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
                missing = {"about", *_ARRAYS} - set(file.files)
                require(
                    not missing,
                    "the trace file",
                    str(path),
                    f"it lacks {sorted(missing)}; give a saved Trace",
                )
                arrays = {name: torch.from_numpy(file[name]) for name in _ARRAYS}
                about: dict[str, Any] = json.loads(str(file["about"]))
            trace = cls(**(about | arrays))
            for name in ("reward", "regret"):
                require(
                    bool(getattr(trace, name).isfinite().all()), name, "not finite", "the file is damaged"
                )
            low = min(int(trace.arm.min()), int(trace.up.min()), int(trace.down.min()))
            require(low >= 0, "the least arm or cost", low, "the file is damaged")
            least = float(trace.regret.min())
            require(least >= 0, "the least regret", least, "the file is damaged")
            return trace
        except FileNotFoundError:
            raise
        except _UNREADABLE as error:
            # numpy's own advice for what it cannot read is to allow pickles, which would run whatever is in them
            reason = "it is no .npz file" if "pickle" in str(error) else str(error)
            raise ValueError(f"the trace file is {str(path)!r}: {reason}; give a saved Trace") from error


_ARRAYS = {
    "arm": torch.int64,
    "reward": torch.float64,
    "regret": torch.float64,
    "up": torch.int64,
    "down": torch.int64,
    "sync": torch.bool,
}
_UNREADABLE = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error),
    *(ValueError, TypeError, KeyError, AttributeError, RuntimeError),
)
