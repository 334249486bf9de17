"""The part of the package beyond the paper: a recommended method, its rivals, studies, federations and guards.

Its public names are those in ``__all__``. The module of each is loaded when the name is first asked for.
"""

# ruff: noqa: F401 (type checkers read the imports; at run time they are those of `_MODULES`)

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedgo.beyond.federation.client import Client
    from fedgo.beyond.federation.local import at_random, converse, play
    from fedgo.beyond.federation.plan import Fitting, Plan
    from fedgo.beyond.federation.server import Server
    from fedgo.beyond.federation.wire import Kind, Letter, Refused, decode
    from fedgo.beyond.guarantees.guarantee import Guarantee, guarded, guarded_fed_go_ucb
    from fedgo.beyond.guarantees.optimist import exact_go_ucb, optimistic_ucb1
    from fedgo.beyond.method.advised import ADVISED, METHODS, SEARCH, UCB1, Advised
    from fedgo.beyond.method.epochs import Growing, Optimism, each_arm, surrogate_ucb
    from fedgo.beyond.method.gaussian_process import GaussianProcess
    from fedgo.beyond.method.networks import Relinearised
    from fedgo.beyond.method.surrogates import IndependentArms, Surrogate
    from fedgo.beyond.study.setup import Setup
    from fedgo.beyond.study.study import Study
    from fedgo.beyond.study.table import Options
    from fedgo.beyond.study.trials import Standing, as_lines, next_trials, standings

_MODULES = {
    "method.advised": ("ADVISED", "METHODS", "SEARCH", "UCB1", "Advised",),
    "method.epochs": ("Growing", "Optimism", "each_arm", "surrogate_ucb",),
    "federation.client": ("Client",),
    "federation.local": ("at_random", "converse", "play",),
    "federation.plan": ("Fitting", "Plan",),
    "federation.server": ("Server",),
    "federation.wire": ("Kind", "Letter", "Refused", "decode",),
    "guarantees.guarantee": ("Guarantee", "guarded", "guarded_fed_go_ucb",),
    "guarantees.optimist": ("exact_go_ucb", "optimistic_ucb1",),
    "study.setup": ("Setup",),
    "study.study": ("Study",),
    "study.table": ("Options",),
    "study.trials": ("Standing", "as_lines", "next_trials", "standings",),
    "method.gaussian_process": ("GaussianProcess",),
    "method.surrogates": ("IndependentArms", "Surrogate",),
    "method.networks": ("Relinearised",),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """Return the object with the public ``name`` of this package, and load its module if it is not loaded yet.

    Python calls this function if the package has no attribute of this name (PEP 562).

    Raises:
        AttributeError: ``name`` is not in ``__all__``.
    """
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
