"""The experiments of the paper and of the book: regimes, players, studies, and what their tables say."""

from fedgo.experiments.players import Player, World, grid, settings
from fedgo.experiments.regimes import PROBLEMS, Entry, Regime
from fedgo.experiments.results import evaluate, tuned
from fedgo.experiments.roster import ALGORITHMS, PLAYERS
from fedgo.experiments.runner import Study, check, read, run
from fedgo.experiments.studies import STUDIES

__all__ = [
    "ALGORITHMS", "PLAYERS", "PROBLEMS", "STUDIES", "Entry", "Player", "Regime", "Study", "World", "check",
    "evaluate", "grid", "read", "run", "settings", "tuned",
]  # fmt: skip
