"""Measure what one run of Phase II costs to compute: `python benchmarks/costs.py [costs] [advised_costs]`.

Each run has a process and the machine to itself, on one thread. The processor time and the peak memory are added to the
package's tables ``costs`` and ``advised_costs``, which keep the rows that they have. A curve is an algorithm with the
sizes of its runs. Only Unix says how much memory a process took.
"""

import multiprocessing
import resource
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import torch
from gp_ucb import gp_ucb

from fedgo.algorithms.controls import exact_kernel_ucb
from fedgo.algorithms.go_ucb import fed_go_ucb
from fedgo.beyond.evidence.families import TABLES
from fedgo.beyond.evidence.roster import VARIANTS, advised
from fedgo.experiments.players import Player, grid, measured
from fedgo.experiments.roster import GO_SETTINGS
from fedgo.experiments.runner import Job, Sweep, run
from fedgo.experiments.world import Regime, World
from fedgo.langevin import Langevin
from fedgo.network import Network
from fedgo.phase_one import shared_start
from fedgo.phase_two import Settings


def sizes(**changes: tuple[int, ...]) -> list[Regime]:
    """Return a regime of Hartmann6 for each combination of the given sizes, such as ``arms=(50, 500)``."""
    return [Regime("hartmann6", **dict(values)) for values in grid(**changes)]


KERNEL, PROCESS, EPOCHS = "kernel UCB, at once", "GP-UCB (BoTorch), 40 steps", "process, in epochs"
CURVES: Mapping[str, Mapping[str, list[Regime]]] = {
    "costs": {
        "parameter space": sizes(arms=(50, 500, 5_000, 50_000)),
        "arm space": sizes(arms=(50, 200, 500, 1_000)),
        KERNEL: sizes(arms=(50, 200, 500, 1_000)),
        PROCESS: sizes(arms=(50, 500, 5_000)),
        "clients": sizes(arms=(500,), rounds=(20,), clients=(10, 100, 1_000)),
        "rounds": sizes(arms=(500,), clients=(5,), rounds=(20, 100, 500)),
        "units": sizes(arms=(2_000,), rounds=(20,)),
    },
    "advised_costs": {
        EPOCHS: sizes(arms=(50, 500, 2_000)),
        "advised": sizes(arms=(50, 500, 5_000, 20_000, 50_000)),
    },
}
UNITS = {"units": (25, 50, 100, 250)}  # of the network; 25 for all other curves


def task_of(curve: str, world: World, hidden: int) -> Any:
    """Return the function whose call is timed: Phase II, or the whole run of an algorithm without Phase I."""
    problem, clients, rounds = world.problem, world.clients, world.rounds
    if curve == KERNEL:
        return partial(exact_kernel_ucb, problem, clients, clients * rounds, Settings(0.01, 0.03))
    if curve == PROCESS:  # only 40 steps, because the process is conditioned on each datum, which takes long
        return partial(gp_ucb, problem, clients, 40, 4.0)
    if curve == EPOCHS:
        return partial(VARIANTS["process"].call, world, {"kappa": 3.0})
    if curve == "advised":
        return partial(advised(), world, {})
    brief = Langevin(rounds=200)  # the time of Phase II does not depend on how well ŵ₀ fits
    start = shared_start(problem, Network(6, hidden), clients, rounds, brief)
    return partial(fed_go_ucb, start, GO_SETTINGS, space="arms" if curve == "arm space" else "parameters")


def cost(curve: str, regime: Regime, hidden: int) -> dict[str, Any]:
    """Return the row of one run, which this process plays, with its peak memory in gibibytes."""
    torch.set_num_threads(1)
    task = task_of(curve, regime.world(1), hidden)
    begin = time.process_time()
    trace = task()
    seconds = time.process_time() - begin
    unit = 2**30 if sys.platform == "darwin" else 2**20  # macOS counts in bytes, Linux in kibibytes
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    row = {**regime.columns, "player": curve, "hidden": hidden, "seed": 0, "run": 0}
    row |= {"seconds": round(seconds, 3), "gigabytes": round(peak, 3)}
    return row | {"synchronisations": int(trace.sync.sum())}


def measure(job: Job) -> list[dict[str, Any]]:
    """Return the row of a ``job``, whose run a new process plays."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return [pool.submit(cost, job.name, job.regime, int(job.setting["hidden"])).result()]


STUDIES = {
    name: Sweep(
        name,
        f"processor seconds and peak memory of Phase II on one thread, of {', '.join(curves)}",
        {curve: Player(measured, grid(hidden=UNITS.get(curve, (25,)))) for curve in curves},
        ("seconds", "gigabytes", "synchronisations"),
        regimes=curves.__getitem__,
        measure=measure,
    )
    for name, curves in CURVES.items()
}

if __name__ == "__main__":
    for name in sys.argv[1:] or STUDIES:
        own = {"folder": TABLES} if name == "advised_costs" else {}
        print(run(STUDIES[name], **own).to_string())
