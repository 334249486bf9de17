"""Traces that were computed before: run r of seed s is the same alone and in any batch, so more runs only add to them.

They are kept in the folder that the environment variable ``FEDGO_TRACES`` names; without it, nothing is. A trace is
known by the arms, mean rewards and noise of its runs, by how it was played, and by the code that computed it.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock

from fedgo.experiments.code import code, digest
from fedgo.problem import Problem
from fedgo.trace import Trace

FOLDER = "FEDGO_TRACES"
EVENT = "fedgo.trace"
LIBRARIES = ("torch", "numpy", "botorch")  # another version may give other numbers


@dataclass(frozen=True)
class Made:
    """How a trace is made: ``how`` it is played, in plain data, by ``modules`` with all they import, and ``files``."""

    how: Mapping[str, Any]
    modules: tuple[str, ...]
    files: tuple[str, ...]

    @cached_property
    def code(self) -> str:
        """The hash of the code that makes it."""
        return code(self.modules, self.files)


def each_run(problem: Problem) -> list[str]:
    """A hash of every run: its arms and mean rewards, and what names its noise."""
    about = (problem.name, problem.seed, problem.sigma, problem.reward)
    return [
        digest([repr((*about, run)), arms.numpy().tobytes(), means.numpy().tobytes()])
        for run, arms, means in zip(problem.runs, problem.arms, problem.means, strict=True)
    ]


def stored(made: Made, problem: Problem, compute: Callable[[Problem], Trace]) -> Trace:
    """The trace of all runs of ``problem``: those that are stored, and the others computed and then stored.

    Other processes that want the same wait meanwhile. What is read is announced by the audit event "fedgo.trace".
    """
    folder = os.environ.get(FOLDER)
    if not folder:
        return compute(problem)
    wanted = each_run(problem)
    how = json.dumps(dict(made.how), sort_keys=True)
    name = digest([how, wanted[0], *map(version, LIBRARIES)])
    path = Path(folder) / f"{name}-{made.code}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.parent / f"{name}.lock"):
        known, trace = _read(path)
        same = next(
            (n for n, pair in enumerate(zip(known, wanted, strict=False)) if pair[0] != pair[1]), None
        )
        same = min(len(known), len(wanted)) if same is None else same
        if 2 * same < len(wanted):  # Phase I is the dearer the more often it is begun
            same = 0
        if trace and same:
            _announce(made, problem, trace.first(same), path)
        if trace and same == len(wanted):
            return trace.first(same)
        rest = problem.only(*range(same, len(wanted))) if same else problem
        parts = [trace.first(same)] if trace and same else []
        whole = Trace.join([*parts, compute(rest)])
        _write(path, wanted, whole)
        for other in path.parent.glob(f"{name}-*"):  # what older code has stored
            if other.stem != path.stem:
                other.unlink(missing_ok=True)
    return whole


def _read(path: Path) -> tuple[list[str], Trace | None]:
    """The hashes of the stored runs, and their trace; nothing where one of the two files is not what was written."""
    try:
        about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        if hashlib.sha256(path.read_bytes()).hexdigest() != about["sha256"]:
            return [], None
        return list(about["runs"]), Trace.load(path)
    except (OSError, ValueError, KeyError, TypeError):
        return [], None


def _write(path: Path, runs: list[str], trace: Trace) -> None:
    about = path.with_suffix(".json")
    about.unlink(missing_ok=True)
    trace.save(path)
    content = {"runs": runs, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    about.write_text(json.dumps(content), encoding="utf-8")


def _announce(made: Made, problem: Problem, trace: Trace, path: Path) -> None:
    facts = {
        "problem": problem.name,
        "algorithm": trace.algorithm,
        "runs": len(trace.arm),
        "seed": problem.seed,
        "made": datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds"),
        **asdict(made),
        "code": made.code,
    }
    sys.audit(EVENT, facts)
