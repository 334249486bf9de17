"""The studies of the paper's part of the book: which players play which regimes, on how many runs.

A player is an algorithm with the settings that it may choose from, and a regime a problem with its sizes. ``python -m
fedgo.experiments NAME`` computes the table of a study.
"""

import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch

from fedgo.algorithms.controls import exact_kernel_ucb
from fedgo.algorithms.go_ucb import fed_go_ucb
from fedgo.algorithms.gp_ucb import gp_ucb
from fedgo.experiments import readings
from fedgo.experiments.halving import Rung
from fedgo.experiments.players import Player, grid, measured
from fedgo.experiments.roster import ALGORITHMS, GO_SETTINGS, LINE_THREE
from fedgo.experiments.runner import Job, Listing, Regimes, Sweep, read
from fedgo.experiments.world import EXPERIMENTS, Regime, Setting
from fedgo.langevin import Langevin
from fedgo.network import Network
from fedgo.phase_one import shared_start
from fedgo.phase_two import Settings
from fedgo.trace import Trace

CLAIM_RUNS, CLAIM_SEED = 30, 0  # the first runs of the claims, on which two studies repeat the verdicts
CLAIMED = ("regret", "scalars", "scalars_phase_two", "scalars_late")


# --- The paper's comparison: a setting for each algorithm on each problem

RUNGS = (Rung(32, 10), Rung(12, 30), Rung(8, 100))


def _each_alone(name: str) -> list[Regimes]:
    """Return each experiment of the paper as a group of its own, the same for every player."""
    return [(regime,) for regime in EXPERIMENTS.values()]


TUNE = Sweep(
    "tune",
    "successive halving for every algorithm of the paper's comparison on its four problems",
    ALGORITHMS,
    ("regret", "seconds"),
    chosen_on=_each_alone,
    rungs=lambda name: RUNGS,
    batch=100,
)
LINE3 = Sweep(
    "line3",
    "line 3 as printed: its own tuning, and the winners on the runs of the claims",
    LINE_THREE,
    CLAIMED,
    chosen_on=lambda name: [(EXPERIMENTS[e],) for e in ("hartmann6", "cosine8")],
    rungs=lambda name: (Rung(8, 30),),
    regimes=tuple(EXPERIMENTS[e] for e in ("hartmann6", "cosine8")),
    runs=lambda name, regime: CLAIM_RUNS,
    encoding="dense",
    batch=30,
)
# The setting of the paper's algorithm is chosen on the runs on which the claims are decided, which nobody can do
# beforehand. Its regret is about the lowest that the paper's authors may have had.
IN_SAMPLE = Sweep(
    "in_sample",
    "the paper's algorithm at the settings that are best on the runs of the claims themselves",
    {name: ALGORITHMS[name] for name in ("Fed-GO-UCB", "One-GO-UCB")},
    CLAIMED,
    chosen_on=_each_alone,
    rungs=lambda name: (Rung(32, CLAIM_RUNS),),
    tuning_seed=CLAIM_SEED,
    encoding="dense",
    batch=30,
)


ALTERED = Listing(
    "readings",
    "other readings of the setup, and other constants of Fed-GO-UCB, at the settings tuned for the book's own",
    readings.reading_players(TUNE),
    ("regret",),
    listed=lambda name: [EXPERIMENTS[readings.READINGS.get(name, ("hartmann6",))[0]]],
    runs=lambda name, regime: 10 if name in readings.READINGS else 20,
)
BILLS = Listing(
    "bills",
    "regret, and the scalars sent in the cheapest form and as matrices, by threshold",
    readings.senders(TUNE),
    ("regret", "scalars", "scalars_dense"),
    listed=lambda name: EXPERIMENTS.values(),
    runs=lambda name, regime: 10,
    encoding="cheapest",
)

# --- What a run of Phase II costs to compute


def sizes(**changes: tuple[int, ...]) -> list[Regime]:
    """Return a regime of Hartmann6 for each combination of the given sizes, such as ``arms=(50, 500)``."""
    return [Regime("hartmann6", **dict(values)) for values in grid(**changes)]


# For each curve of computing costs, the size that varies along it, and its regimes.
CURVES: Mapping[str, tuple[str, list[Regime]]] = {
    "parameter space": ("arms", sizes(arms=(50, 500, 5_000, 50_000))),
    "arm space": ("arms", sizes(arms=(50, 200, 500, 1_000))),
    "kernel UCB, at once": ("arms", sizes(arms=(50, 200, 500, 1_000))),
    "GP-UCB (BoTorch), 40 steps": ("arms", sizes(arms=(50, 500, 5_000))),
    "clients": ("clients", sizes(arms=(500,), rounds=(20,), clients=(10, 100, 1_000))),
    "rounds": ("rounds", sizes(arms=(500,), clients=(5,), rounds=(20, 100, 500))),
    "units": ("hidden", sizes(arms=(2_000,), rounds=(20,))),
}


def time_of(curve: str, regime: Regime, hidden: int = 25, seed: int = 0) -> tuple[Trace, float]:
    """Play one run of the algorithm of a curve of computing costs, and return its trace and its processor seconds.

    The seconds are those of Phase II, or of the whole run if the algorithm has no Phase I. GP-UCB makes 40 steps.

    Args:
        curve: "kernel UCB, at once", "GP-UCB (BoTorch), 40 steps", "arm space" for Fed-GO-UCB in arm space, or any
            other name for Fed-GO-UCB in parameter space.
        regime: The sizes of the run, on Hartmann6.
        hidden: The number of hidden units of the network of Fed-GO-UCB.
        seed: The seed of the run.
    """
    world = regime.world(1, seed)
    problem, clients, rounds = world.problem, world.clients, world.rounds
    if curve == "kernel UCB, at once":
        task = partial(exact_kernel_ucb, problem, clients, clients * rounds, Settings(0.01, 0.03))
    elif curve == "GP-UCB (BoTorch), 40 steps":
        # only 40 steps are played, because the Gaussian process is conditioned on each datum, which takes long
        task = partial(gp_ucb, problem, clients, 40, 4.0)
    else:
        brief = Langevin(rounds=200)  # the time of Phase II does not depend on how well ŵ₀ fits
        start = shared_start(problem, Network(6, hidden), clients, rounds, brief)
        space: Any = "arms" if curve == "arm space" else "parameters"
        task = partial(fed_go_ucb, start, GO_SETTINGS, space=space)
    return timed(task)


def timed(task: Callable[[], Trace]) -> tuple[Trace, float]:
    """Call ``task``, and return the trace that it plays and the processor seconds that this takes."""
    begin = time.process_time()
    trace = task()
    return trace, time.process_time() - begin


def costs(time_of: Callable[..., tuple[Trace, float]], job: Job) -> list[dict[str, Any]]:
    """Return the row of a ``job``: the processor time and the peak memory of a new process that plays one run of it.

    Another process must be able to import ``time_of`` by its name.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        return pool.submit(_cost, time_of, job.name, job.regime, job.setting).result()


def _cost(
    time_of: Callable[..., tuple[Trace, float]], curve: str, regime: Regime, setting: Setting
) -> list[dict[str, Any]]:
    """Return the row of one run that this process plays on one thread, with its peak memory in gibibytes."""
    import resource  # only Unix has it

    torch.set_num_threads(1)
    trace, seconds = time_of(curve, regime, int(setting["hidden"]))
    unit = 2**30 if sys.platform == "darwin" else 2**20  # macOS counts in bytes, Linux in kibibytes
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    row = {**regime.columns, "player": curve, **setting, "seed": 0, "run": 0}
    row |= {"seconds": round(seconds, 3), "gigabytes": round(peak, 3)}
    return [row | {"synchronisations": int(trace.sync.sum())}]


def _units(curve: str) -> tuple[Setting, ...]:
    """Return the settings of ``curve``: several sizes of the network for the curve "units", one for all others."""
    return grid(hidden=(25, 50, 100, 250) if curve == "units" else (25,))


COSTS = Listing(
    "costs",
    "processor seconds and peak memory of Phase II by K, N, T and the units of the network, on one thread",
    {curve: Player(measured, _units(curve)) for curve in CURVES},
    ("seconds", "gigabytes", "synchronisations"),
    listed=lambda curve: CURVES[curve][1],
    measure=partial(costs, time_of),
    at_once=1,  # so that each job has the machine to itself
)


def curve(name: str, study: str = "costs") -> Any:
    """Return the measurements of the curve ``name`` by size; ``value`` is the size that varies, or d_w for H."""
    rows, by = read(study), CURVES[name][0] if name in CURVES else "arms"
    rows = rows[rows["player"] == name].sort_values(by)
    return rows.assign(value=8 * rows[by] + 1 if by == "hidden" else rows[by])


def exponent(rows: Any) -> float:
    """Return the exponent p of seconds ∝ valueᵖ between the last two of ``rows``, where fixed costs matter least."""
    values, seconds = np.log(rows["value"].to_numpy()[-2:]), np.log(rows["seconds"].to_numpy()[-2:])
    return float((seconds[1] - seconds[0]) / (values[1] - values[0]))


STUDIES: Mapping[str, Sweep] = {
    study.name: study for study in (TUNE, LINE3, IN_SAMPLE, ALTERED, BILLS, COSTS)
}
