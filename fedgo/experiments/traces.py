"""A store of traces that chapters share, which joblib keeps in the folder that ``FEDGO_TRACES`` names.

A trace is found by its problem, the numbers of clients and rounds, the form of the messages and the bound F, by the
algorithm and its setting, by the versions of the libraries, and by the hash of the code that played it. joblib alone
would not see a change in a function that is called by the function that it watches.
"""

import os
import warnings
from collections.abc import Callable
from importlib.metadata import version

from joblib import Memory
from joblib import hash as digest

from fedgo.experiments.code import code
from fedgo.experiments.world import Setting, World
from fedgo.phase_two import Settings
from fedgo.trace import Trace

VARIABLE = "FEDGO_TRACES"  # the environment variable with the folder of the store
VERSIONED = ("torch", "numpy", "botorch")  # libraries whose versions may change the numbers


def stored(call: Callable[[World, Setting], Trace], key: str, world: World, setting: Setting) -> Trace:
    """Return the trace of all runs of ``world``, which is played only if it is not stored yet.

    Args:
        call: Plays a world with a setting.
        key: The dotted name of the algorithm that ``call`` calls, and its options; nothing is stored if it is empty.
        world: The runs.
        setting: The setting.
    """
    folder = os.environ.get(VARIABLE)
    if not folder or not key:
        return call(world, setting)
    problem = world.problem
    wrapper = call.__module__ if call.__module__.startswith("fedgo.") else "fedgo.experiments.players"
    how = (
        (key, sorted(({"gamma": Settings().gamma} | dict(setting)).items())),
        (world.clients, world.rounds, world.encoding, world.bound),
        (problem.name, problem.runs, problem.seed, problem.sigma, problem.reward),
        (problem.arms.numpy(), problem.means.numpy()),
        [version(name) for name in VERSIONED],
        # the code of the module that calls counts, but not that of the modules that it imports
        code((key,), (wrapper.removeprefix("fedgo.").replace(".", "/") + ".py",)),
    )
    kept = Memory(folder, verbose=0).cache(_played, ignore=["call", "world", "setting"])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Persisting input arguments")  # on a busy machine
        trace: Trace = kept(digest(how), call, world, setting)
    return trace


def _played(how: str, call: Callable[[World, Setting], Trace], world: World, setting: Setting) -> Trace:
    """Return what ``call`` plays; ``how`` is a hash of all on which it depends."""
    return call(world, setting)
