"""Traces that chapters share: kept by joblib, under what was played, on what, with which settings and by which code.

They are kept in the folder that the environment variable ``FEDGO_TRACES`` names; without it, nothing is. Kept are the
algorithms of the package that are wrapped under their own names: of others nobody can tell the code.
"""

import os
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock
from joblib import Memory, hash

from fedgo.experiments.code import code
from fedgo.phase_two import Settings
from fedgo.problem import Problem
from fedgo.trace import Trace

if TYPE_CHECKING:
    from fedgo.experiments.players import Play, Setting, World

FOLDER = "FEDGO_TRACES"
LIBRARIES = ("torch", "numpy", "botorch")  # another version may give other numbers


def stored(play: "Play", world: "World", setting: "Setting") -> Trace:
    """The trace of all runs of ``world``: the one that is kept, or else it is played, and kept."""
    folder = os.environ.get(FOLDER)
    algorithm = getattr(play, "__wrapped__", None)
    if not folder or algorithm is None or not algorithm.__module__.startswith("fedgo."):
        return play(world, setting)
    about = {
        "algorithm": f"{play.__module__}.{play.__name__}",
        "setting": {"gamma": Settings().gamma} | dict(setting),
        "size": (world.clients, world.rounds, world.encoding, world.bound),
        "problem": _known_by(world.problem),
        "code": code((play.__module__,), ("experiments/players.py",)),
        "libraries": [*map(version, LIBRARIES)],
    }
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / f"{hash(about)}.lock"):  # others that want the same wait meanwhile
        kept: Trace = Memory(place, verbose=0).cache(_played, ignore=["play", "world", "setting"])(
            about, play, world, setting
        )
    return kept


def _played(about: dict[str, Any], play: "Play", world: "World", setting: "Setting") -> Trace:
    return play(world, setting)


def _known_by(problem: Problem) -> tuple[Any, ...]:
    """The arms and mean rewards of every run, and what names its noise."""
    values = (problem.arms.numpy(), problem.means.numpy())
    return (problem.name, problem.runs, problem.seed, problem.sigma, problem.reward, *values)
