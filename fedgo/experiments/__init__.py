"""The experiments of the paper: which algorithms play which problems with which settings, and the results in tables."""

from fedgo.experiments.players import Player
from fedgo.experiments.results import evaluate
from fedgo.experiments.runner import Sweep, run
from fedgo.experiments.world import Regime

__all__ = ["Player", "Regime", "Sweep", "evaluate", "run"]
