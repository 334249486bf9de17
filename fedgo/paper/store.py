"""Traces that were computed before: run r of seed s is the same alone and in any batch, so more runs only add to them.

They are kept in the folder that the environment variable FEDGO_TRACES names; without it, nothing is. A file belongs to
an experiment with the options of its problem, an algorithm with its setting, a seed, and to the code that computed it.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock

from fedgo.paper.code import code, digest
from fedgo.trace import Trace

FOLDER = "FEDGO_TRACES"
EVENT = "fedgo.trace"


@dataclass(frozen=True)
class Key:
    """What a trace is of, and what computes it: ``modules`` with all they import, and ``files`` of the package."""

    experiment: str
    options: Mapping[str, Any]
    algorithm: str
    setting: Mapping[str, Any]
    seed: int
    modules: tuple[str, ...]
    files: tuple[str, ...]

    @cached_property
    def code(self) -> str:
        """The hash of the code."""
        return code(self.modules, self.files)

    @property
    def stem(self) -> str:
        """The path below the folder, as far as it does not depend on the code."""
        choices = json.dumps([self.options, self.setting, self.seed], sort_keys=True, default=repr)
        name = re.sub(r"\W+", "-", self.algorithm).lower()
        return f"{self.experiment}/{name}-{digest([choices, torch.__version__, np.__version__])}"


def _folder() -> Path | None:
    named = os.environ.get(FOLDER)
    return Path(named) if named else None


@contextmanager
def locked(keys: Iterable[Key]) -> Iterator[None]:
    """Keep other processes from computing the traces of ``keys`` as well: they wait, and then find them."""
    folder = _folder()
    with ExitStack() as stack:
        for stem in sorted(
            {key.stem for key in keys} if folder else ()
        ):  # in one order: nobody waits in a circle
            assert folder
            (folder / stem).parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(folder / f"{stem}.lock"))
        yield


def read(key: Key, runs: int) -> Trace | None:
    """The stored trace, at most its first ``runs`` runs; None where there is none, or none that can be read.

    What is taken is announced by the audit event "fedgo.trace", with the facts that say where it comes from.
    """
    folder = _folder()
    path = folder / f"{key.stem}-{key.code}.npz" if folder else None
    if path is None or not path.is_file():
        return None
    try:
        trace = Trace.load(path)
    except (OSError, ValueError):
        return None
    trace = trace.first(min(runs, len(trace.arm)))
    facts = {
        "experiment": key.experiment,
        "algorithm": key.algorithm,
        "setting": dict(key.setting),
        "seed": key.seed,
        "runs": len(trace.arm),
        "made": datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds"),
        "modules": list(key.modules),
        "files": list(key.files),
        "code": key.code,
    }
    sys.audit(EVENT, facts)
    return trace


def write(key: Key, trace: Trace) -> None:
    """Store ``trace``, and remove what other code has stored for the same."""
    if folder := _folder():
        path = folder / f"{key.stem}-{key.code}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        trace.save(path)
        for other in path.parent.glob(f"{Path(key.stem).name}-*.npz"):
            if other != path:
                other.unlink(missing_ok=True)
