"""Traces that chapters share: run r of a seed is the same alone and in any batch, so each is kept by itself.

They are kept in the folder that the environment variable ``FEDGO_TRACES`` names; without it, nothing is. A run is known
by its arms, mean rewards and noise, by how it was played, and by the code that played it. What has no key is not kept.
"""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock

from fedgo.experiments.code import code, hash_of
from fedgo.experiments.world import Setting, World
from fedgo.phase_two import Settings
from fedgo.problem import Problem
from fedgo.trace import Trace

FOLDER = "FEDGO_TRACES"
LIBRARIES = ("torch", "numpy", "botorch")  # another version may give other numbers


def stored(play: Callable[[World, Setting], Trace], key: str, world: World, setting: Setting) -> Trace:
    """Return the trace of all runs of ``world``, playing only those runs that are not stored yet.

    Args:
        play: Plays a world with a setting.
        key: The name of the algorithm that ``play`` calls, with dots, and its options; with an empty one nothing is
            stored.
        world: The runs.
        setting: The setting.
    """
    folder = os.environ.get(FOLDER)
    if not folder or not key:
        return play(world, setting)
    how = {
        "algorithm": key,
        "setting": {"gamma": Settings().gamma} | dict(setting),
        "size": (world.clients, world.rounds, world.encoding, world.bound),
    }
    name = hash_of([json.dumps(how, sort_keys=True), *map(version, LIBRARIES)])
    wrapper = play.__module__ if play.__module__.startswith("fedgo.") else "fedgo.experiments.players"
    file = wrapper.removeprefix("fedgo.").replace(".", "/") + ".py"  # not all that it imports
    place = Path(folder) / f"{name}-{code((key,), (file,))}"
    paths = [place / f"{run}.npz" for run in each_run(world.problem)]
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(place.parent / f"{name}.lock"):  # others that want the same wait meanwhile
        place.mkdir(exist_ok=True)
        for other in place.parent.glob(f"{name}-*"):  # what older code has left
            if other != place:
                shutil.rmtree(other)
        stored_runs = {}
        for k, path in enumerate(paths):
            with suppress(OSError, ValueError):  # the file is missing, or not what was written
                stored_runs[k] = Trace.load(path)
        lacking = [k for k in range(len(paths)) if k not in stored_runs]
        if lacking:  # if nothing is stored, the world may have Phase I already
            some = replace(world, problem=world.problem.only(*lacking)) if stored_runs else world
            played = play(some, setting)
            for number, k in enumerate(lacking):
                stored_runs[k] = played.part(slice(number, number + 1))
                stored_runs[k].save(paths[k])
    return Trace.join([stored_runs[k] for k in range(len(paths))])


def each_run(problem: Problem) -> list[str]:
    """Return a hash for each run, of its arms, its mean rewards, and what names its noise."""
    about = (problem.name, problem.seed, problem.sigma, problem.reward)
    return [
        hash_of([repr((*about, run)), arms.numpy().tobytes(), means.numpy().tobytes()])
        for run, arms, means in zip(problem.runs, problem.arms, problem.means, strict=True)
    ]
