"""The experiments of the paper: regimes, players, studies, and what their tables say."""

from typing import TYPE_CHECKING

from fedgo._lazy import loader

if TYPE_CHECKING:
    from fedgo.experiments.players import Play, Player, grid, settings
    from fedgo.experiments.results import evaluate, tuned
    from fedgo.experiments.roster import ALGORITHMS
    from fedgo.experiments.runner import Sweep, check, read, run
    from fedgo.experiments.studies import STUDIES
    from fedgo.experiments.world import PROBLEMS, Entry, Regime, World

_MODULES = {
    "players": ("Play", "Player", "grid", "settings",),
    "results": ("evaluate", "tuned",),
    "roster": ("ALGORITHMS",),
    "runner": ("Sweep", "check", "read", "run",),
    "studies": ("STUDIES",),
    "world": ("PROBLEMS", "Entry", "Regime", "World",),
}  # fmt: skip
__all__ = [
    "ALGORITHMS", "PROBLEMS", "STUDIES", "Entry", "Play", "Player", "Regime", "Sweep", "World", "check",
    "evaluate", "grid", "read", "run", "settings", "tuned",
]  # fmt: skip
__getattr__ = loader(__name__, _MODULES)
