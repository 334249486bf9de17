"""fedgo: "Communication-Efficient Federated Non-Linear Bandit Optimization" as code to run and to check."""

from fedgo.algorithms.go_ucb import Start, fed_go_ucb, n_go_ucb, one_go_ucb, private_start, shared_start
from fedgo.confidence import (
    Ball,
    Coordinates,
    Posterior,
    Tally,
    ball,
    compress,
    condition,
    first_order,
    radius,
    statistics,
)
from fedgo.network import Network, SingleUnit
from fedgo.oracle import Langevin, deal, explore, langevin_rounds, last, phase_one_length
from fedgo.phase_two import EventTriggered, Immediate, Settings
from fedgo.problem import Problem, clustered, cosine8, hartmann6, realizable
from fedgo.simulate import Trace, simulate
from fedgo.star import Ledger, Star, When

__all__ = [
    "Ball",
    "Coordinates",
    "EventTriggered",
    "Immediate",
    "Langevin",
    "Ledger",
    "Network",
    "Posterior",
    "Problem",
    "Settings",
    "SingleUnit",
    "Star",
    "Start",
    "Tally",
    "Trace",
    "When",
    "ball",
    "clustered",
    "compress",
    "condition",
    "cosine8",
    "deal",
    "explore",
    "fed_go_ucb",
    "first_order",
    "hartmann6",
    "langevin_rounds",
    "last",
    "n_go_ucb",
    "one_go_ucb",
    "phase_one_length",
    "private_start",
    "radius",
    "realizable",
    "shared_start",
    "simulate",
    "statistics",
]
