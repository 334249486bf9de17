"""What a run costs to compute: CPU seconds and peak memory of Phase II by K, N, T and d_w, and their record.

``python -m fedgo.experiments.costs`` measures all, each in a process of its own on one thread, and writes the
table "costs"
of `fedgo.experiments.record`.
"""

import multiprocessing
import resource
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Literal, NamedTuple

import torch

from fedgo.algorithms.controls import exact_kernel_ucb
from fedgo.algorithms.go_ucb import fed_go_ucb
from fedgo.algorithms.gp_ucb import gp_ucb
from fedgo.beyond.epochs import Growing, surrogate_ucb
from fedgo.beyond.surrogates import GaussianProcess
from fedgo.experiments import record, store
from fedgo.experiments.comparison import GO_SETTINGS
from fedgo.experiments.tune import commit
from fedgo.langevin import Langevin
from fedgo.network import Network
from fedgo.phase_one import shared_start
from fedgo.phase_two import Settings
from fedgo.problems import hartmann6
from fedgo.trace import Trace

Player = Literal["parameters", "arms", "kernel", "process", "GP-UCB"]
MADE_BY = (
    ("fedgo.algorithms.go_ucb", "fedgo.algorithms.controls", "fedgo.beyond.epochs"),
    ("paper/costs.py",),
)
_BRIEF = Langevin(rounds=200)  # Phase II does not care how well ŵ₀ fits
_SHORT = 40  # steps of GP-UCB, whose Gaussian process has every datum


@dataclass(frozen=True)
class Size:
    """K = ``arms``, N = ``clients``, T = ``rounds``, H = ``hidden`` units (d_w = 8H + 1); the paper's on Hartmann6."""

    arms: int = 50
    clients: int = 20
    rounds: int = 100
    hidden: int = 25

    @property
    def parameters(self) -> int:
        """d_w."""
        return Network(6, self.hidden).size


class Curve(NamedTuple):
    """A ``player`` on the ``sizes``, of which "K", "N", "T" or "d_w" is what ``by`` says."""

    player: Player
    by: str
    sizes: tuple[Size, ...]


def _many(base: Size, **grid: tuple[int, ...]) -> tuple[Size, ...]:
    ((name, values),) = grid.items()
    return tuple(replace(base, **{name: value}) for value in values)


CURVES: Mapping[str, Curve] = {
    "parameter space": Curve("parameters", "K", _many(Size(), arms=(50, 500, 5_000, 50_000))),
    "arm space": Curve("arms", "K", _many(Size(), arms=(50, 200, 500, 1_000))),
    "kernel UCB, at once": Curve("kernel", "K", _many(Size(), arms=(50, 200, 500, 1_000))),
    "process, in epochs": Curve("process", "K", _many(Size(), arms=(50, 500, 2_000))),
    "GP-UCB (BoTorch), 40 steps": Curve("GP-UCB", "K", _many(Size(), arms=(50, 500, 5_000))),
    "clients": Curve("parameters", "N", _many(Size(arms=500, rounds=20), clients=(10, 100, 1_000))),
    "rounds": Curve("parameters", "T", _many(Size(arms=500, clients=5), rounds=(20, 100, 500))),
    "units": Curve("parameters", "d_w", _many(Size(arms=2_000, rounds=20), hidden=(25, 50, 100, 250))),
}


def value(curve: Curve, size: Size) -> int:
    """The one of K, N, T and d_w that the ``curve`` is by."""
    return {"K": size.arms, "N": size.clients, "T": size.rounds, "d_w": size.parameters}[curve.by]


class Timed(NamedTuple):
    """A run's ``trace`` and the CPU ``seconds`` of its Phase II, or of all where Phase I is not apart."""

    trace: Trace
    seconds: float


def play(player: Player, size: Size, seed: int = 0) -> Timed:
    """One run on Hartmann6 with `GO_SETTINGS`."""
    problem, clients, rounds = hartmann6(1, arms=size.arms, seed=seed), size.clients, size.rounds
    task: Callable[[], Trace]
    if player in ("parameters", "arms"):
        start = shared_start(problem, Network(6, size.hidden), clients, rounds, _BRIEF)
        task = partial(
            fed_go_ucb, problem, start, GO_SETTINGS, space="arms" if player == "arms" else "parameters"
        )
    elif player == "kernel":
        task = partial(exact_kernel_ucb, problem, clients, clients * rounds, Settings(0.01, 0.03))
    elif player == "process":
        task = partial(surrogate_ucb, problem, GaussianProcess(), clients, rounds, until=Growing(2.0))
    else:
        task = partial(gp_ucb, problem, clients, _SHORT, 4.0)
    begin = time.process_time()
    trace = task()
    return Timed(trace, time.process_time() - begin)


class Row(NamedTuple):
    """One measurement: ``seconds``, the ``gigabytes`` of the whole process at its largest, and the synchronisations."""

    curve: str
    value: int
    seconds: float
    gigabytes: float
    syncs: int


def measured(name: str, size: Size) -> Row:
    """`play`, in a process that has done nothing else; the memory is read as Linux counts it, in kilobytes."""
    torch.set_num_threads(1)
    curve = CURVES[name]
    found = play(curve.player, size)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    syncs = int(found.trace.sync.sum())
    return Row(name, value(curve, size), round(found.seconds, 3), round(peak, 3), syncs)


def recorded(name: str) -> list[Row]:
    """What the record says of the curve ``name``."""
    return [
        Row(
            name,
            int(row["value"]),
            float(row["seconds"]),
            float(row["gigabytes"]),
            int(row["syncs"]),
        )
        for row in record.read("costs").rows
        if row["curve"] == name
    ]


def exponent(rows: list[Row]) -> float:
    """p of seconds ∝ valueᵖ between the last two of ``rows``, where what does not grow weighs least."""
    sizes, seconds = ([float(getattr(row, part)) for row in rows[-2:]] for part in ("value", "seconds"))
    x, y = (torch.tensor(values, dtype=torch.float64).log() for values in (sizes, seconds))
    return float((y[1] - y[0]) / (x[1] - x[0]))


def measure_all() -> list[Row]:
    """Every curve, one measurement after the other."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        tasks = [pool.submit(measured, name, size) for name, curve in CURVES.items() for size in curve.sizes]
        return [task.result() for task in tasks]


def main() -> None:
    """Measure all and write the table."""
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    about = {"made": made, "command": "python -m fedgo.experiments.costs", "commit": commit()}
    about |= {"code": store.Made({}, *MADE_BY).code, "threads": "1"}
    print(record.write("costs", about, Row._fields, measure_all()))


if __name__ == "__main__":
    main()
