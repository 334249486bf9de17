"""A store of traces that chapters share, which joblib keeps in the folder that ``FEDGO_TRACES`` names.

A trace is found by its problem, the numbers of clients and rounds, the form of the messages and the bound F, by the
algorithm and its setting, by the versions of the libraries, and by the code of all that plays. joblib alone
would not see a change in a function that is called by the function that it watches.
"""

import ast
import os
import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path

from joblib import Memory
from joblib import hash as digest

from fedgo.experiments.world import Setting, World
from fedgo.phase_two import Settings
from fedgo.trace import Trace

PACKAGE = Path(__file__).resolve().parents[1]
VARIABLE = "FEDGO_TRACES"  # the environment variable with the folder of the store
VERSIONED = ("torch", "numpy", "botorch")  # libraries whose versions may change the numbers
# The folders of the algorithms and of what they use, and the files that say how players and worlds are made.
ROOMS = (".", "algorithms", "line_three", "theory", "beyond/guarantees", "beyond/method")
FILES = ("experiments/players", "experiments/world", "beyond/evidence/rivals", "beyond/evidence/roster")


def bare(file: Path) -> str:
    """Return what the code in ``file`` does, as text: its syntax without comments, layout and docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(value=ast.Constant(value=str())), *rest]:
                    node.body = rest
    return ast.dump(tree)


def files() -> list[Path]:
    """Return the files whose code decides what is played; a test compares them with what the players import."""
    rooms = [file for room in ROOMS for file in sorted((PACKAGE / room).glob("*.py"))]
    return [*rooms, *(PACKAGE / f"{name}.py" for name in FILES)]


@cache
def code() -> str:
    """Return a hash of the code in `files`."""
    return str(digest([bare(file) for file in files()]))


def stored(call: Callable[[World, Setting], Trace], key: str, world: World, setting: Setting) -> Trace:
    """Return the trace of all runs of ``world``, which is played only if it is not stored yet.

    Args:
        call: Plays a world with a setting.
        key: The name of the algorithm that ``call`` calls, and its options; nothing is stored if it is empty.
        world: The runs.
        setting: The setting.
    """
    folder = os.environ.get(VARIABLE)
    if not folder or not key:
        return call(world, setting)
    problem = world.problem
    how = (
        (key, sorted(({"gamma": Settings().gamma} | dict(setting)).items())),
        (world.clients, world.rounds, world.encoding, world.bound),
        (problem.name, problem.runs, problem.seed, problem.sigma, problem.reward),
        (problem.arms.numpy(), problem.means.numpy()),
        ([version(name) for name in VERSIONED], code()),
    )
    kept = Memory(folder, verbose=0).cache(_played, ignore=["call", "world", "setting"])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Persisting input arguments")  # on a busy machine
        trace: Trace = kept(digest(how), call, world, setting)
    return trace


def _played(how: str, call: Callable[[World, Setting], Trace], world: World, setting: Setting) -> Trace:
    """Return what ``call`` plays; ``how`` is a hash of all on which it depends."""
    return call(world, setting)
