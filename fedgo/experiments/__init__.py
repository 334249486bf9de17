"""The experiments of the paper and of the book: regimes, players, studies, and what their tables say."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedgo.experiments.players import Player, World, grid, settings
    from fedgo.experiments.regimes import PROBLEMS, Entry, Regime
    from fedgo.experiments.results import evaluate, tuned
    from fedgo.experiments.roster import ALGORITHMS, PLAYERS
    from fedgo.experiments.runner import Study, check, read, run
    from fedgo.experiments.studies import STUDIES

_WHERE = {
    "players": ("Player", "World", "grid", "settings"),
    "regimes": ("PROBLEMS", "Entry", "Regime"),
    "results": ("evaluate", "tuned"),
    "roster": ("ALGORITHMS", "PLAYERS"),
    "runner": ("Study", "check", "read", "run"),
    "studies": ("STUDIES",),
}
__all__ = [
    "ALGORITHMS", "PLAYERS", "PROBLEMS", "STUDIES", "Entry", "Player", "Regime", "Study", "World", "check",
    "evaluate", "grid", "read", "run", "settings", "tuned",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """A name is loaded when it is first asked for: the book's tools import this package for its `code` alone."""
    for module, names in _WHERE.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
