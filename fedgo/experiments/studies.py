"""The studies of the book, as lists: who plays what, on how many runs (``python -m fedgo.experiments NAME``)."""

import multiprocessing
import resource
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import torch

from fedgo.algorithms.controls import exact_kernel_ucb
from fedgo.algorithms.go_ucb import fed_go_ucb
from fedgo.algorithms.gp_ucb import gp_ucb
from fedgo.beyond.advised import ADVISED
from fedgo.beyond.epochs import Growing, surrogate_ucb
from fedgo.beyond.surrogates import GaussianProcess
from fedgo.experiments import readings
from fedgo.experiments.elsewhere import LIBRARIES, OPTUNA
from fedgo.experiments.elsewhere import measure as elsewhere
from fedgo.experiments.halving import Rung
from fedgo.experiments.players import Player, Setting, grid, uniform
from fedgo.experiments.regimes import EXPERIMENTS, Regime
from fedgo.experiments.roster import ALGORITHMS, GO_SETTINGS, LINE_THREE, PLAYERS, VARIANTS, WITH_MANY
from fedgo.experiments.runner import Job, Regimes, Study, read
from fedgo.langevin import Langevin
from fedgo.network import Network
from fedgo.phase_one import shared_start
from fedgo.phase_two import Settings
from fedgo.trace import Trace

CLAIM_RUNS, CLAIM_SEED = 30, 0  # the instances that the claims are decided on
CLAIMED = ("regret", "scalars", "scalars_phase_two", "scalars_late")


# --- The paper's comparison: a setting for each algorithm on each problem

RUNGS = (Rung(32, 10), Rung(12, 30), Rung(8, 100))


def _each_alone(name: str) -> list[Regimes]:
    """Every experiment has a setting of its own."""
    return [(regime,) for regime in EXPERIMENTS.values()]


TUNE = Study(
    "tune",
    "successive halving for every algorithm of the paper's comparison on its four problems",
    ALGORITHMS,
    ("regret", "seconds"),
    chosen_on=_each_alone,
    rungs=lambda name: RUNGS,
    batch=100,
)
LINE3 = Study(
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
# The paper's algorithm chosen on the very runs that the claims are decided on, which nobody can do beforehand: about
# the best that its authors may have had.
IN_SAMPLE = Study(
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


def _played_readings(name: str) -> list[Regimes]:
    return [(EXPERIMENTS[readings.READINGS[name][0] if name in readings.READINGS else "hartmann6"],)]


READINGS = Study(
    "readings",
    "other readings of the setup, and other constants of Fed-GO-UCB, at the settings tuned for the book's own",
    readings.players(TUNE),
    ("regret",),
    chosen_on=_played_readings,
    rungs=lambda name: (Rung(3, 10) if name in readings.READINGS else Rung(1, 20),),
    tuning_seed=0,
)
BILLS = Study(
    "bills",
    "regret, and the scalars sent as packed as may be and as matrices, by threshold",
    readings.senders(TUNE),
    ("regret", "scalars", "scalars_dense"),
    chosen_on=_each_alone,
    rungs=lambda name: (Rung(len(readings.GAMMAS) if name in readings.WITH_GAMMA else 1, 10),),
    tuning_seed=0,
    encoding="cheapest",
)

# --- The regime map: a base regime for every problem, and one factor moved at a time

BASE = (
    Regime("hartmann6", 50),
    Regime("hartmann6", 500),
    Regime("cosine8", 500),
    Regime("cosine8", 50),
    Regime("magic rows", 500, sigma=0.5),
    Regime("network 15", 500),
    Regime("hartmann6", 500, sigma=0.5),
    Regime("hartmann6", 500, rounds=20),
    Regime("magic", 20, clients=100),
    Regime("shuttle", 20, clients=100),
    Regime("cosine8 printed", 500),
    Regime("levy10", 500),
    Regime("network 6", 500),
    Regime("magic rows", 50, sigma=0.5),
    Regime("hartmann6", 50, sigma=0.5),
    Regime("hartmann6", 50, rounds=20),
    Regime("hartmann6", 50, rounds=1000),
    Regime("two ridges", 500),
    Regime("hartmann6", 500, rounds=1000),
    Regime("hartmann6", 5000),
)
# Few clients, families of other kinds, small versions: for the advice, and played by the main players alone.
WIDER = (
    Regime("hartmann6", 30, sigma=0.3, rounds=30, clients=12),
    Regime("diabetes", 30, sigma=0.3, rounds=30, clients=12),
    Regime("diabetes", 12, sigma=0.3, rounds=30, clients=12),
    Regime("diabetes", 50),
    Regime("diabetes", 400),
    Regime("tree", 50),
    Regime("tree", 500),
    Regime("unrelated", 50),
    Regime("unrelated", 500),
    Regime("levy10", 50),
    Regime("network 15", 50),
    Regime("two ridges", 50),
)
REGIMES = (*BASE, *WIDER)
TUNING = (Regime("hartmann6", 500), Regime("cosine8", 50))
TUNING_FEW = (Regime("hartmann6", 50), Regime("cosine8", 50))
TUNING_RUNS = 5
MAIN = ("advised", "UCB1", "Fed-GO-UCB", "process", "network")

# What the advice rests on: fifty runs of each, and its own choice on a hundred, of five of the twelve families.
DECIDE = ("advised", "bold", "UCB1, planned", "each arm first", "UCB1")
ADVICE_TUNING = (
    Regime("hartmann6", 50),
    Regime("hartmann6", 500),
    Regime("cosine8", 500),
    Regime("two ridges", 50),
    Regime("network 6", 500),
    Regime("magic rows", 50, sigma=0.5),
    Regime("hartmann6", 50, sigma=0.5),
    Regime("hartmann6", 30, sigma=0.3, rounds=30, clients=12),
)
ADVICE_RUNGS = (Rung(12, 20), Rung(4, 100))


def map_runs(name: str, regime: Regime) -> int:
    """10 runs; 50 of those that the advice rests on, 30 of the main players and their guards where that is cheap; 5 of
    those that are there for few arms. On the `WIDER` regimes nobody else plays."""
    player = PLAYERS[name]
    if not player.plays_on(regime):
        return 0
    if name in DECIDE:
        return 50
    if regime in WIDER:
        return 10 if name in MAIN else 0
    cheap = regime.arms <= 500 and regime.rounds <= 100 and regime.problem != "two ridges"
    if cheap and (name in MAIN or player.setting_of in MAIN):
        return 30
    return 5 if regime.arms > 50 and not player.plays_on(Regime("cosine8", 500)) else 10


def map_tuning(name: str) -> list[Regimes]:
    """Where ``name`` chooses its setting, if it has a choice."""
    if len(PLAYERS[name].grid) == 1:
        return []
    if name in DECIDE:
        return [ADVICE_TUNING]
    return [TUNING if PLAYERS[name].plays_on(Regime("cosine8", 500)) else TUNING_FEW]


MAP = Study(
    "map",
    "who is to be run when: every player at one setting for all regimes, the scalars as packed as may be",
    PLAYERS,
    ("regret", "late_regret", "scalars", "scalars_dense", "synchronisations", "seconds"),
    chosen_on=map_tuning,
    rungs=lambda name: ADVICE_RUNGS if name in DECIDE else (Rung(4, TUNING_RUNS),),
    regimes=REGIMES,
    runs=map_runs,
    batch=5,
    tail=DECIDE,
)

# --- "The map": what each part is worth

FEW, WITH_500 = Regime("hartmann6", 50), Regime("hartmann6", 500)
ABLATION_RUNS = {"tuning": 10, "evaluation": 30}


def _ablated(name: str) -> list[Regimes]:
    return [(FEW,), (WITH_500,)] if name in WITH_MANY else [(FEW,)]


ABLATION = Study(
    "ablation",
    "surrogates that differ in one thing each, every κ on the tuning runs and the best on others",
    VARIANTS,
    ("regret", "stuck", "scalars"),
    chosen_on=_ablated,
    rungs=lambda name: (Rung(4, ABLATION_RUNS["tuning"]),),
    regimes=(FEW, WITH_500),
    runs=lambda name, regime: ABLATION_RUNS["evaluation"] * ((regime,) in _ablated(name)),
)

# --- What a run of Phase II costs to compute

PARAMETERS = ("parameter space", "clients", "rounds", "units")


def _sizes(**changes: tuple[int, ...]) -> list[Regimes]:
    """A regime of Hartmann6, alone, for each combination of the values."""
    return [(Regime("hartmann6", **dict(values)),) for values in grid(**changes)]


# Each curve with the sizes it goes through, and the one of them that it is by.
CURVES: Mapping[str, tuple[str, list[Regimes]]] = {
    "parameter space": ("arms", _sizes(arms=(50, 500, 5_000, 50_000))),
    "arm space": ("arms", _sizes(arms=(50, 200, 500, 1_000))),
    "kernel UCB, at once": ("arms", _sizes(arms=(50, 200, 500, 1_000))),
    "process, in epochs": ("arms", _sizes(arms=(50, 500, 2_000))),
    "advised": ("arms", _sizes(arms=(50, 500, 5_000, 20_000, 50_000))),
    "GP-UCB (BoTorch), 40 steps": ("arms", _sizes(arms=(50, 500, 5_000))),
    "clients": ("clients", _sizes(arms=(500,), rounds=(20,), clients=(10, 100, 1_000))),
    "rounds": ("rounds", _sizes(arms=(500,), clients=(5,), rounds=(20, 100, 500))),
    "units": ("hidden", _sizes(arms=(2_000,), rounds=(20,))),
}


def time_of(curve: str, regime: Regime, hidden: int = 25, seed: int = 0) -> tuple[Trace, float]:
    """One run with `GO_SETTINGS` and a network of ``hidden`` units, as the ``curve`` has it, and the CPU seconds of its
    Phase II, or of all where Phase I is not apart."""
    world = regime.world(1, seed)
    problem, clients, rounds = world.problem, world.clients, world.rounds
    task: Callable[[], Trace]
    if curve in (*PARAMETERS, "arm space"):
        brief = Langevin(rounds=200)  # Phase II does not care how well ŵ₀ fits
        start = shared_start(problem, Network(6, hidden), clients, rounds, brief)
        space: Any = "arms" if curve == "arm space" else "parameters"
        task = partial(fed_go_ucb, problem, start, GO_SETTINGS, space=space)
    elif curve == "kernel UCB, at once":
        task = partial(exact_kernel_ucb, problem, clients, clients * rounds, Settings(0.01, 0.03))
    elif curve == "process, in epochs":
        task = partial(surrogate_ucb, problem, GaussianProcess(), clients, rounds, until=Growing(2.0))
    elif curve == "advised":
        task = partial(ADVISED.play, problem, clients, rounds)
    else:  # its Gaussian process has every datum
        task = partial(gp_ucb, problem, clients, 40, 4.0)
    begin = time.process_time()
    trace = task()
    return trace, time.process_time() - begin


def _costs(job: Job) -> list[dict[str, Any]]:
    """A row in a process that has done nothing else: Linux counts its memory in kilobytes."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        return pool.submit(_cost, job.name, job.regime, job.setting).result()


def _cost(curve: str, regime: Regime, setting: Setting) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    trace, seconds = time_of(curve, regime, int(setting["hidden"]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    row = {**asdict(regime), "player": curve, **setting, "seed": 0, "run": 0}
    row |= {"seconds": round(seconds, 3), "gigabytes": round(peak, 3)}
    return [row | {"synchronisations": int(trace.sync.sum())}]


def _units(curve: str) -> tuple[Setting, ...]:
    return grid(hidden=(25, 50, 100, 250) if curve == "units" else (25,))


COSTS = Study(
    "costs",
    "processor seconds and peak memory of Phase II by K, N, T and the units of the network, on one thread",
    {curve: Player(uniform, _units(curve)) for curve in CURVES},
    ("seconds", "gigabytes", "synchronisations"),
    chosen_on=lambda curve: CURVES[curve][1],
    rungs=lambda curve: (Rung(len(_units(curve)), 1),),
    tuning_seed=0,
    measure=_costs,
    at_once=1,  # each has both cores, and a process that may start one of its own
)


def curve(name: str) -> Any:
    """The measurements of a curve, with the ``value`` that it is by: K, N, T or d_w."""
    rows, by = read("costs"), CURVES[name][0]
    rows = rows[rows["player"] == name].sort_values(by)
    return rows.assign(value=8 * rows[by] + 1 if by == "hidden" else rows[by])


def exponent(rows: Any) -> float:
    """p of seconds ∝ valueᵖ between the last two of ``rows``, where what does not grow weighs least."""
    (x, other_x), (y, other_y) = (np.log(rows[part].to_numpy()[-2:]) for part in ("value", "seconds"))
    return float((other_y - y) / (other_x - x))


ELSEWHERE = Study(
    "elsewhere",
    "libraries that see every reward, and the advised setting, on the same arms and pulls",
    {name: Player(uniform) for name in ("advised", *LIBRARIES, OPTUNA)},
    ("regret", "gap", "seconds", "scalars"),
    regimes=(Regime("hartmann6", 500, rounds=20),),
    runs=lambda name, regime: 10,
    batch=1,
    measure=elsewhere,
    needs={OPTUNA: "optuna"},
)

STUDIES: Mapping[str, Study] = {
    study.name: study for study in (TUNE, LINE3, IN_SAMPLE, READINGS, BILLS, MAP, ABLATION, COSTS, ELSEWHERE)
}
