"""The searches of "Many arms": functions on a cube without arms, the ways to search it, and their record.

``python -m fedgo.paper.searches`` computes all and writes the table "searches" of `fedgo.paper.record`.
"""

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
from fedgo.network import Network
from fedgo.paper import record, store
from fedgo.paper.experiments import HIDDEN
from fedgo.paper.tune import commit

CLIENTS, FIRST, EPOCHS = 5, 10, 12  # 70 evaluations
SEEDS = 10
MADE_BY = (("fedgo.beyond.continuum",), ("paper/searches.py",))


@cache
def cube(name: str, seed: int) -> Cube:
    """ "Hartmann6", "Ackley-10" (negated, of [−32.8, 32.8]¹⁰) or "network, d = 15", whose w* ~ N(0, I) is a seed's."""
    if name == "network, d = 15":
        network = Network(15, HIDDEN)
        truth = normal_tape(generator(seed, 0, "truth"), network.size)
        return Cube(name, 15, partial(network.values, truth))
    require(name in ("Hartmann6", "Ackley-10"), "name", name, f"choose one of {CUBES}")
    double = torch.float64  # of Hartmann's tables but for 4e-8
    function: Any = Hartmann(6, dtype=double) if name == "Hartmann6" else Ackley(10, dtype=double)
    low, high = function.bounds[0].double(), function.bounds[1].double()

    def value(x: Tensor) -> Tensor:
        found: Tensor = -function.evaluate_true(low + (high - low) * x)
        return found

    return Cube(name, int(function.dim), value)


CUBES = ("Hartmann6", "Ackley-10", "network, d = 15")
WAYS: Mapping[str, Mapping[str, Any]] = {
    "process, bound": {},
    "process, qLogEI": {"choice": "improvement"},
    "network, bound": {"network": True},
    "uniform": {"choice": "uniform"},
}


class Row(NamedTuple):
    """One search: the best mean reward that was pulled after every epoch, the mean over all pulls, and what it took."""

    problem: str
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
    there, options = cube(problem, seed), dict(WAYS[way])
    if "network" in options:
        options["network"] = Network(there.dimension, HIDDEN)
    return search(there, CLIENTS, epochs, first=FIRST, seed=seed, **options)


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
    return Row(
        problem, way, seed, shown, found.values.mean().item(), sent, f"{time.process_time() - begin:.1f}"
    )


def recorded(problem: str) -> dict[str, Outcome]:
    """What the record says of every way on ``problem``."""
    require(problem in CUBES, "problem", problem, f"choose one of {CUBES}")
    found = {}
    for way in WAYS:
        rows = [r for r in record.read("searches").rows if (r["problem"], r["way"]) == (problem, way)]
        found[way] = Outcome(
            np.array([row["best"].split() for row in rows], dtype=np.float64),
            np.array([row["average"] for row in rows], dtype=np.float64),
            int(rows[0]["scalars"]),
            float(np.mean([float(row["seconds"]) for row in rows])),
        )
    return found


def main() -> None:
    """Compute all and write the table after every seed; an interrupted one goes on where it was."""
    torch.set_num_threads(1)
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    about = {"made": made, "command": "python -m fedgo.paper.searches", "commit": commit()}
    about |= {"code": store.Made({}, *MADE_BY).code}
    rows: list[tuple[object, ...]] = []
    if (record.DATA / "searches.csv").exists() and record.read("searches").about["code"] == about["code"]:
        rows = [tuple(row.values()) for row in record.read("searches").rows]
    for seed in range(len(rows) // (len(CUBES) * len(WAYS)), SEEDS):
        rows += [measured(problem, way, seed) for problem in CUBES for way in WAYS]
        print(record.write("searches", about, Row._fields, rows), seed, flush=True)


if __name__ == "__main__":
    main()
