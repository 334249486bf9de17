"""The searches of "Many arms": functions on a cube without arms, and the ways to search it, as a study.

A run is a seed; its row has the best mean reward pulled after so many evaluations, the mean over all, and the bill.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from botorch.test_functions.synthetic import Ackley, Hartmann
from torch import Tensor

from fedgo._checks import require
from fedgo._streams import generator, normal_tape
from fedgo.beyond.continuum import Cube, Search, search
from fedgo.experiments.players import HIDDEN, Player, uniform
from fedgo.experiments.regimes import Regime
from fedgo.experiments.runner import Job, Study
from fedgo.network import Network

CLIENTS, FIRST, EPOCHS = 5, 10, 12  # 70 evaluations
BEST = tuple(f"best_{FIRST + CLIENTS * epoch}" for epoch in range(EPOCHS + 1))
CUBES: Mapping[str, str] = {
    "hartmann6": "Hartmann6",
    "ackley10": "Ackley, d = 10",
    "network15": "network, d = 15",
}

# What is played. The table has two ways more, of earlier code: TuRBO's trust region, and the refitted network.
WAYS: Mapping[str, Mapping[str, Any]] = {
    "process, bound": {},
    "process, qLogEI": {"choice": "improvement"},
    "uniform": {"choice": "uniform"},
}


@cache
def cube(name: str, seed: int) -> Cube:
    """Hartmann6; Ackley's of ten dimensions, negated, of [−32.8, 32.8]¹⁰; a network whose w* ~ N(0, I) is a seed's."""
    require(name in CUBES, "name", name, f"choose one of {tuple(CUBES)}")
    if name == "network15":
        network = Network(15, HIDDEN)
        truth = normal_tape(generator(seed, 0, "truth"), network.size)
        return Cube(CUBES[name], 15, partial(network.values, truth))
    double = torch.float64  # of Hartmann's tables but for 4e-8
    function: Any = Hartmann(6, dtype=double) if name == "hartmann6" else Ackley(10, dtype=double)
    low, high = function.bounds[0].double(), function.bounds[1].double()

    def value(x: Tensor) -> Tensor:
        found: Tensor = -function.evaluate_true(low + (high - low) * x)
        return found

    return Cube(CUBES[name], int(function.dim), value)


def play(problem: str, way: str, seed: int, epochs: int = EPOCHS) -> Search:
    """One search."""
    return search(cube(problem, seed), CLIENTS, epochs, first=FIRST, seed=seed, **WAYS[way])


def best(found: Search) -> npt.NDArray[np.float64]:
    """The largest mean reward pulled by the end of Phase I and of every epoch, (epochs + 1,)."""
    running: npt.NDArray[np.float64] = found.values.cummax(0).values[FIRST - 1 :: CLIENTS].numpy()
    return running


def measure(job: Job) -> list[dict[str, Any]]:
    """The rows of ``job``, whose runs are seeds."""
    torch.set_num_threads(1)
    rows = []
    for seed in job.runs:
        begin = time.process_time()
        found = play(job.regime.problem, job.name, seed)
        sent = int(found.ledger.up.sum() + found.ledger.down.sum())
        row = {**asdict(job.regime), "player": job.name, "seed": job.seed, "run": seed}
        row |= dict(zip(BEST, best(found).tolist(), strict=True))
        seconds = round(time.process_time() - begin, 1)
        rows.append(row | {"average": found.values.mean().item(), "scalars": sent, "seconds": seconds})
    return rows


SEARCHES = Study(
    "searches",
    "functions on a cube, 70 evaluations: the best mean reward pulled so far, by the way to choose a point",
    dict.fromkeys(WAYS, Player(uniform)),
    (*BEST, "average", "scalars", "seconds"),
    regimes=tuple(Regime(name, 0, rounds=EPOCHS, clients=CLIENTS) for name in CUBES),
    runs=lambda way, regime: 20,
    batch=1,
    measure=measure,
)
