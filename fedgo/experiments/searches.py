"""The searches of "Many arms": functions on a cube without arms, the ways to search it, and their record.

``python -m fedgo.experiments.searches hartmann6`` (or another of `CUBES`) computes a function and writes its table of
`fedgo.experiments.record`.
"""

import argparse
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from botorch.test_functions.synthetic import Ackley, Hartmann
from torch import Tensor

from fedgo._checks import require
from fedgo._streams import generator, normal_tape
from fedgo.beyond.continuum import Cube, Search, search
from fedgo.experiments import record, store
from fedgo.experiments.comparison import HIDDEN
from fedgo.experiments.tune import commit
from fedgo.network import Network

CLIENTS, FIRST, EPOCHS = 5, 10, 12  # 70 evaluations
SEEDS = 20
MADE_BY = (("fedgo.beyond.continuum",), ("paper/searches.py",))


CUBES = ("hartmann6", "ackley10", "network15")


@cache
def cube(name: str, seed: int) -> Cube:
    """Hartmann6; Ackley's of ten dimensions, negated, of [−32.8, 32.8]¹⁰; a network, d = 15, whose w* ~ N(0, I) is a
    seed's."""
    require(name in CUBES, "name", name, f"choose one of {CUBES}")
    if name == "network15":
        network = Network(15, HIDDEN)
        truth = normal_tape(generator(seed, 0, "truth"), network.size)
        return Cube("network, d = 15", 15, partial(network.values, truth))
    double = torch.float64  # of Hartmann's tables but for 4e-8
    function: Any = Hartmann(6, dtype=double) if name == "hartmann6" else Ackley(10, dtype=double)
    low, high = function.bounds[0].double(), function.bounds[1].double()

    def value(x: Tensor) -> Tensor:
        found: Tensor = -function.evaluate_true(low + (high - low) * x)
        return found

    return Cube({"hartmann6": "Hartmann6", "ackley10": "Ackley, d = 10"}[name], int(function.dim), value)


# What is played. The record has two ways more, of earlier code: TuRBO's trust region, and the refitted network.
WAYS: Mapping[str, Mapping[str, Any]] = {
    "process, bound": {},
    "process, qLogEI": {"choice": "improvement"},
    "uniform": {"choice": "uniform"},
}


class Row(NamedTuple):
    """One search: the best mean reward that was pulled after every epoch, the mean over all pulls, and what it took."""

    way: str
    seed: int
    best: str
    average: float
    scalars: int
    seconds: str


class Outcome(NamedTuple):
    """The record of a way: ``best`` (S, epochs + 1), ``average`` (S,), ``scalars`` and ``seconds`` of a run."""

    best: npt.NDArray[np.float64]
    average: npt.NDArray[np.float64]
    scalars: int
    seconds: float


def play(problem: str, way: str, seed: int, epochs: int = EPOCHS) -> Search:
    """One search."""
    return search(cube(problem, seed), CLIENTS, epochs, first=FIRST, seed=seed, **WAYS[way])


def best(found: Search) -> npt.NDArray[np.float64]:
    """The largest mean reward pulled by the end of Phase I and of every epoch, (epochs + 1,)."""
    running: npt.NDArray[np.float64] = found.values.cummax(0).values[FIRST - 1 :: CLIENTS].numpy()
    return running


def measured(problem: str, way: str, seed: int) -> Row:
    """`play`, and the row that says how it went."""
    begin = time.process_time()
    found = play(problem, way, seed)
    shown = " ".join(f"{value:.6g}" for value in best(found))
    sent = int(found.ledger.up.sum() + found.ledger.down.sum())
    seconds = f"{time.process_time() - begin:.1f}"
    return Row(way, seed, shown, found.values.mean().item(), sent, seconds)


def recorded(problem: str) -> dict[str, Outcome]:
    """What the record says of every way on ``problem``."""
    require(problem in CUBES, "problem", problem, f"choose one of {CUBES}")
    table, found = record.read(f"searches_{problem}").rows, {}
    for way in dict.fromkeys(row["way"] for row in table):
        rows = [row for row in table if row["way"] == way]
        found[way] = Outcome(
            np.array([row["best"].split() for row in rows], dtype=np.float64),
            np.array([row["average"] for row in rows], dtype=np.float64),
            int(rows[0]["scalars"]),
            float(np.mean([float(row["seconds"]) for row in rows])),
        )
    return found


def main() -> None:
    """Compute one function and write the table after every seed; an interrupted one goes on where it was."""
    parser = argparse.ArgumentParser(prog="python -m fedgo.experiments.searches", description=__doc__)
    parser.add_argument("problem", choices=CUBES)
    problem = parser.parse_args().problem
    name = f"searches_{problem}"
    torch.set_num_threads(1)
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    about = {"made": made, "command": f"python -m fedgo.experiments.searches {problem}", "commit": commit()}
    about |= {"code": store.Made({}, *MADE_BY).code}
    rows: list[tuple[object, ...]] = []
    if (record.DATA / f"{name}.csv").exists() and record.read(name).about["code"] == about["code"]:
        rows = [tuple(row.values()) for row in record.read(name).rows]
    for seed in range(len(rows) // len(WAYS), SEEDS):
        rows += [measured(problem, way, seed) for way in WAYS]
        print(record.write(name, about, Row._fields, rows), seed, flush=True)


if __name__ == "__main__":
    main()
