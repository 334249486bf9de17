"""A store of traces that chapters share, run by run, because a run is the same alone and together with others.

The traces are stored in the folder that the environment variable ``FEDGO_TRACES`` names; if it is not set, nothing is
stored. A stored run is found by its arms, mean rewards and noise, by the numbers of clients and rounds, the form of
the messages and the bound F, by the algorithm and its setting, by the versions of the libraries, and by the code that
played it.
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

VARIABLE = "FEDGO_TRACES"  # the environment variable with the folder of the store
VERSIONED = ("torch", "numpy", "botorch")  # libraries whose versions may change the numbers


def stored(play: Callable[[World, Setting], Trace], key: str, world: World, setting: Setting) -> Trace:
    """Return the trace of all runs of ``world``, playing only those runs that are not stored yet, and store these.

    Traces that other code has stored for the same algorithm, setting, numbers of clients and rounds, form of the
    messages, bound F and library versions are removed, whatever their problem is. A run whose stored file is damaged or
    cannot be read is played again.

    Args:
        play: A function that plays a world with a setting.
        key: The dotted name of the algorithm that ``play`` calls, and its options. If it is empty, or the environment
            variable ``FEDGO_TRACES`` is empty or not set, all runs are played and nothing is stored.
        world: The runs.
        setting: The setting, whose values JSON can hold.

    Raises:
        OSError: The folder or a file cannot be written.
        ModuleNotFoundError: Traces are stored, and torch, NumPy or BoTorch, whose versions are stored with them, is not
            installed.
        TypeError: Traces are stored, and JSON cannot hold a value of the setting.
        Exception: ``play`` refuses the setting or the world; the error is its own.
    """
    folder = os.environ.get(VARIABLE)
    if not folder or not key:
        return play(world, setting)
    how = {
        "algorithm": key,
        "setting": {"gamma": Settings().gamma} | dict(setting),
        "size": (world.clients, world.rounds, world.encoding, world.bound),
    }
    name = hash_of([json.dumps(how, sort_keys=True), *map(version, VERSIONED)])
    wrapper = play.__module__ if play.__module__.startswith("fedgo.") else "fedgo.experiments.players"
    # the code of this module counts, but not that of the modules that it imports
    file = wrapper.removeprefix("fedgo.").replace(".", "/") + ".py"
    place = Path(folder) / f"{name}-{code((key,), (file,))}"
    paths = [place / f"{run}.npz" for run in each_run(world.problem)]
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(place.parent / f"{name}.lock"):  # a process that asks for the same traces waits meanwhile
        place.mkdir(exist_ok=True)
        for older in place.parent.glob(f"{name}-*"):
            if older != place:  # these traces were stored by other code
                shutil.rmtree(older)
        stored_runs = {}
        for k, path in enumerate(paths):
            with suppress(OSError, ValueError):  # the file is missing or damaged
                stored_runs[k] = Trace.load(path)
        lacking = [k for k in range(len(paths)) if k not in stored_runs]
        # without stored runs the world itself is played, because it may have run Phase I already
        if lacking:
            rest = replace(world, problem=world.problem.only(*lacking)) if stored_runs else world
            played = play(rest, setting)
            for number, k in enumerate(lacking):
                stored_runs[k] = played.part(slice(number, number + 1))
                stored_runs[k].save(paths[k])
    return Trace.join([stored_runs[k] for k in range(len(paths))])


def each_run(problem: Problem) -> list[str]:
    """Return a list with a hash of each run of ``problem``, as 16 hexadecimal digits.

    The hash depends on the problem's name, the arms, the mean rewards, and on what determines the noise: the seed, the
    noise level σ, the kind of rewards and the number of the run.
    """
    about = (problem.name, problem.seed, problem.sigma, problem.reward)
    return [
        hash_of([repr((*about, run)), arms.numpy().tobytes(), means.numpy().tobytes()])
        for run, arms, means in zip(problem.runs, problem.arms, problem.means, strict=True)
    ]
