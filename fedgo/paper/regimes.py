"""The regime map: who is to be run when, on a base regime for every family of problems and one factor moved at a time.

Every player has four settings to choose from, chosen once, on instances of `TUNING_SEED` of the regimes
`TUNING`, for all regimes: the geometric mean over the regimes of 1 + the mean final regret. All are told σ, and their
widths are in units of it. What is measured is kept in tables of the package, a few runs of one player on one regime in
a row, with the code that made it; ``make map`` computes what is missing or made by other code, the first runs of all
regimes first.
"""

import argparse
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from tempfile import gettempdir
from typing import NamedTuple, get_type_hints

import torch
from filelock import FileLock, Timeout

from fedgo._checks import require
from fedgo.algorithms.dis_lin_ucb import dis_lin_ucb
from fedgo.algorithms.go_ucb import fed_go_ucb
from fedgo.beyond.counted import optimistic_ucb1
from fedgo.beyond.epochs import Growing, surrogate_ucb
from fedgo.beyond.fitted_kernel import fitted_kernel_ucb
from fedgo.beyond.fn_ucb import fn_ucb
from fedgo.beyond.guard import Guarantee
from fedgo.beyond.surrogates import GaussianProcess, Relinearised, Surrogate
from fedgo.langevin import Langevin
from fedgo.messages import scalars
from fedgo.network import Network
from fedgo.paper import record
from fedgo.paper.code import code, digest
from fedgo.paper.experiments import HIDDEN, TUNING_SEED, World
from fedgo.paper.families import levy10, magic_rows, realizable, two_ridge
from fedgo.paper.problems import clustered, cosine8, hartmann6
from fedgo.paper.record import Setting
from fedgo.phase_two import Settings
from fedgo.problem import Problem
from fedgo.trace import Trace

BATCH = 5  # runs that make a row
GROWTH = 1.6  # the factor of an epoch: fits are what costs time
GUARD_GAMMA = 1.0
MANY = 100  # arms from which the engine for many arms is used
TABLE, TUNED = "regimes", "regimes_tuned"


@dataclass(frozen=True)
class Family:
    """``problem(runs, seed=…, …)``, F = ``value`` ≥ |f| for a guard, if it can be read off the formula, and whether the
    tuning ``saw`` other instances of it."""

    problem: Callable[..., Problem]
    value: float | None = None
    saw: bool = False


FAMILIES: Mapping[str, Family] = {
    "hartmann6": Family(hartmann6, 8.4, saw=True),
    "cosine8": Family(cosine8, 8.8, saw=True),
    "cosine8 printed": Family(lambda runs, **options: cosine8(runs, negated=False, **options), 8.8),
    "levy10": Family(levy10),
    "two ridges": Family(two_ridge, 2.0),
    "network 6": Family(lambda runs, **options: realizable(runs, d_x=6, **options)),
    "network 15": Family(lambda runs, **options: realizable(runs, d_x=15, **options)),
    "magic": Family(lambda runs, arms, **options: clustered("magic", runs, **options), 1.0),
    "shuttle": Family(lambda runs, arms, **options: clustered("shuttle", runs, **options), 1.0),
    "magic rows": Family(magic_rows, 1.0),
}


@dataclass(frozen=True)
class Regime:
    """K = ``arms`` of a ``family``, the noise ``sigma``, T = ``rounds``, N = ``clients``, and how many ``runs``."""

    family: str
    arms: int = 500
    sigma: float = 0.1
    rounds: int = 100
    clients: int = 20
    runs: int = 30

    @property
    def name(self) -> str:
        """What stands in the table, and tells all of the regime but the number of runs."""
        return f"{self.family}, K={self.arms}, sigma={self.sigma:g}, T={self.rounds}, N={self.clients}"

    def world(self, runs: range, seed: int = 0) -> World:
        """The ``runs`` of ``seed``; statistics are sent as counts."""
        made = FAMILIES[self.family].problem(runs, arms=self.arms, sigma=self.sigma, seed=seed)
        return World(made, self.clients, self.rounds, encoding="counts")


REGIMES = (
    Regime("hartmann6", arms=50),
    Regime("hartmann6"),
    Regime("cosine8"),
    Regime("cosine8", arms=50),
    Regime("magic rows", sigma=0.5),
    Regime("network 15"),
    Regime("two ridges"),
    Regime("hartmann6", sigma=0.5),
    Regime("hartmann6", rounds=20),
    Regime("magic", arms=20, clients=100),
    Regime("shuttle", arms=20, clients=100),
    Regime("cosine8 printed"),
    Regime("levy10"),
    Regime("network 6"),
    Regime("hartmann6", arms=50, sigma=0.5),
    Regime("hartmann6", arms=50, rounds=20),
    Regime("hartmann6", arms=5000, runs=10),
    Regime("hartmann6", rounds=1000, runs=10),
)
TUNING = (Regime("hartmann6", runs=4), Regime("cosine8", arms=50, runs=4))


@dataclass(frozen=True)
class Player:
    """How to ``play`` a world with a setting, by which ``modules``; its ``grid``, or whose setting it takes, and up to
    how many ``arms``, ``steps`` T and ``runs`` it is affordable."""

    play: Callable[[World, Setting], Trace]
    modules: tuple[str, ...]
    grid: tuple[Setting, ...] = ()
    setting_of: str = ""
    guarded: bool = False
    arms: int = 10**9
    rounds: int = 10**9
    runs: int = 10**9

    def takes(self, regime: Regime) -> bool:
        """Whether it plays on ``regime``."""
        bounded = FAMILIES[regime.family].value is not None
        return regime.arms <= self.arms and regime.rounds <= self.rounds and (bounded or not self.guarded)


def _ridge(world: World, setting: Setting) -> Settings:
    """w ~ N(0, s²I) and κ standard deviations: λ = (σ/s)², β = (κσ)²."""
    sigma = world.problem.sigma
    lam, beta = (sigma / setting["s"]) ** 2, (setting["kappa"] * sigma) ** 2
    return Settings(lam, beta, encoding=world.encoding)


def _fed_go(world: World, setting: Setting) -> Trace:
    space = "parameters" if world.problem.means.shape[1] > MANY else "arms"
    return fed_go_ucb(world.problem, world.shared, _ridge(world, setting), space=space)  # type: ignore[arg-type]


def _dis_lin(world: World, setting: Setting) -> Trace:
    return dis_lin_ucb(world.problem, world.clients, world.steps, _ridge(world, setting))


def _ucb1(world: World, setting: Setting) -> Trace:
    beta = setting["b"] * world.problem.sigma**2
    return optimistic_ucb1(world.problem, world.clients, world.steps, beta)


def _kernel(world: World, setting: Setting) -> Trace:
    return fitted_kernel_ucb(world.problem, world.clients, world.rounds, setting["kappa"])


def _fn_ucb(world: World, setting: Setting) -> Trace:
    sigma = world.problem.sigma
    return fn_ucb(
        world.problem,
        world.clients,
        world.steps,
        lam=(sigma / setting["s"]) ** 2,
        optimism=setting["kappa"] * sigma,
        encoding="counts",
        space="parameters" if world.problem.means.shape[1] > MANY else "arms",
    )


def _surrogate(kind: str, guard: bool) -> Callable[[World, Setting], Trace]:
    def play(world: World, setting: Setting) -> Trace:
        network = Network(world.problem.arms.shape[-1], HIDDEN)
        surrogate: Surrogate = GaussianProcess() if kind == "process" else Relinearised(network)
        given = None
        if guard:
            given = Guarantee(setting["value"], world.problem.sigma, gamma=GUARD_GAMMA)
        until, kappa = Growing(GROWTH), setting["kappa"]
        return surrogate_ucb(
            world.problem,
            surrogate,
            world.clients,
            world.rounds,
            until=until,
            kappa=kappa,
            guarantee=given,
        )

    return play


def _grid(**axes: tuple[float, ...]) -> tuple[Setting, ...]:
    return tuple(dict(zip(axes, values, strict=True)) for values in product(*axes.values()))


_KAPPA = _grid(kappa=(1.0, 2.0, 3.0, 5.0))
_EPOCHS = ("fedgo.beyond.epochs",)
PLAYERS: Mapping[str, Player] = {
    "UCB1": Player(_ucb1, ("fedgo.beyond.counted",), _grid(b=(0.02, 0.06, 0.2, 0.6))),
    "Fed-GO-UCB": Player(_fed_go, ("fedgo.algorithms.go_ucb",), _grid(s=(3.0, 10.0), kappa=(1.0, 4.0))),
    "DisLinUCB": Player(
        _dis_lin,
        ("fedgo.algorithms.dis_lin_ucb",),
        _grid(s=(1.0, 10.0), kappa=(1.0, 4.0)),
        arms=50,
        runs=10,
    ),
    "process": Player(_surrogate("process", False), _EPOCHS, _KAPPA),
    "network": Player(_surrogate("network", False), _EPOCHS, _KAPPA),
    "kernel": Player(_kernel, ("fedgo.beyond.fitted_kernel",), _KAPPA, arms=500, rounds=100, runs=10),
    "FN-UCB": Player(
        _fn_ucb,
        ("fedgo.beyond.fn_ucb",),
        _grid(s=(0.3, 3.0), kappa=(0.5, 2.0)),
        arms=500,
        rounds=100,
        runs=10,
    ),
    "process, guarded": Player(
        _surrogate("process", True), _EPOCHS, setting_of="process", guarded=True, arms=50
    ),
    "network, guarded": Player(
        _surrogate("network", True), _EPOCHS, setting_of="network", guarded=True, arms=50
    ),
}


class Row(NamedTuple):
    """Of ``runs`` runs from ``first`` on: the final ``regrets``, the regret of a step in the last tenth of the steps,
    ``late``, and the scalars sent as ``packed`` as may be, run by run; the scalars that the ``dense`` statistics would
    have cost and the synchronisations, on average; the seconds of a run; and the hash of the code."""

    regime: str
    player: str
    setting: str
    seed: int
    first: int
    runs: int
    regrets: str
    late: str
    packed: str
    dense: float
    syncs: float
    seconds: float
    code: str


class Chosen(NamedTuple):
    """A ``setting`` of a ``player`` and the geometric ``mean`` of its regrets, 1 added, over the tuning regimes."""

    player: str
    setting: str
    mean: float


class Job(NamedTuple):
    """What makes a row."""

    regime: Regime
    player: str
    setting: str
    seed: int
    runs: range

    @property
    def key(self) -> tuple[str, str, str, int, int]:
        """What tells it from others."""
        return (self.regime.name, self.player, self.setting, self.seed, self.runs.start)


def dense(world: World, trace: Trace, player: str) -> float:
    """Scalars of a run, on average, with the statistics as matrices: as the paper counts. NaN where there are none."""
    n, syncs = world.clients, trace.sync.sum(1).double().mean().item()
    if player == "Fed-GO-UCB":
        d_w, rounds = world.network.size, Langevin().rounds
        return float((2 * rounds + 1) * n * d_w + syncs * 2 * n * scalars("dense", d_w, 1, 1))
    if player == "DisLinUCB":
        return float(syncs * 2 * n * scalars("dense", world.problem.arms.shape[-1], 1, 1))
    if player == "FN-UCB":
        size = Network(world.problem.arms.shape[-1], 26).size
        return float(syncs * 2 * n * (2 * scalars("dense", size, 1, 1) + 1))
    return math.nan


@cache
def code_of(player: str) -> str:
    """A hash of the code that ``player`` and the problems are."""
    modules = (*PLAYERS[player].modules, "fedgo.paper.families", "fedgo.paper.problems")
    return code(modules, ("paper/regimes.py", "paper/data/magic_rows.csv"))


def _list(values: torch.Tensor, digits: int) -> str:
    return " ".join(f"{value:.{digits}f}" for value in values.tolist())


def measure(job: Job) -> Row:
    """The row of ``job``."""
    torch.set_num_threads(1)
    world = job.regime.world(job.runs, job.seed)
    begun = time.process_time()
    trace = PLAYERS[job.player].play(world, record.parse(job.setting))
    seconds = (time.process_time() - begun) / len(job.runs)
    last = -(-trace.regret.shape[1] // 10)
    sent = trace.communication[:, -1].double()
    return Row(
        *job.key,
        len(job.runs),
        _list(trace.cumulative_regret[:, -1], 2),
        _list(trace.regret[:, -last:].mean(1), 4),
        _list(sent, 0),
        round(dense(world, trace, job.player), 0),
        round(trace.sync.sum(1).double().mean().item(), 1),
        round(seconds, 3),
        code_of(job.player),
    )


def jobs(runs: int | None = None) -> Iterator[Job]:
    """What the map needs at the settings chosen, the first `BATCH` runs of all regimes first; ``runs`` at most."""
    best = {row.player: row.setting for row in chosen()}
    most = max(regime.runs for regime in REGIMES) if runs is None else runs
    for first in range(0, most, BATCH):
        for regime, (name, player) in product(REGIMES, PLAYERS.items()):
            if player.takes(regime) and first < min(regime.runs, player.runs):
                setting = best[player.setting_of or name]
                if player.guarded:
                    setting = f"{setting} value={FAMILIES[regime.family].value}"
                yield Job(regime, name, setting, 0, range(first, first + BATCH))


def tuning_jobs() -> Iterator[Job]:
    """Every setting of every grid on every tuning regime."""
    for regime, (name, player) in product(TUNING, PLAYERS.items()):
        for setting in player.grid if player.takes(regime) else ():
            yield Job(regime, name, record.text(setting), TUNING_SEED, range(regime.runs))


def rows(table: str = TABLE) -> list[Row]:
    """The rows of the map, or of its tuning."""
    types = get_type_hints(Row)
    return [
        Row(**{name: types[name](cell) for name, cell in found.items()}) for found in record.read(table).rows
    ]


def known(table: str) -> dict[tuple[str, str, str, int, int], Row]:
    """The rows of ``table`` by their keys; none where there is no such table yet."""
    record.read.cache_clear()  # another process may have written
    return {row[:5]: row for row in rows(table)} if (record.DATA / f"{table}.csv").is_file() else {}


def numbers(cell: str) -> list[float]:
    """The numbers of a cell."""
    return [float(part) for part in cell.split()]


def chosen(table: str = TUNED) -> list[Chosen]:
    """Of every player with a grid the setting with the least geometric mean over the tuning regimes of 1 + regret."""
    means: dict[tuple[str, str], list[float]] = {}
    for row in rows(table):
        regrets = numbers(row.regrets)
        means.setdefault((row.player, row.setting), []).append(math.fsum(regrets) / len(regrets))
    whole = [
        Chosen(*name, round(math.expm1(math.fsum(map(math.log1p, parts)) / len(parts)), 2))
        for name, parts in means.items()
        if len(parts) == sum(PLAYERS[name[0]].takes(regime) for regime in TUNING)
    ]
    players = dict.fromkeys(one.player for one in whole)
    return [min((one for one in whole if one.player == name), key=lambda one: one.mean) for name in players]


def compute(
    wanted: Sequence[Job], table: str, executor: Executor | None = None, seconds: float = math.inf
) -> None:
    """Fill ``table`` with the rows of ``wanted`` that it lacks, or that other code made.

    Several processes at once share the work, and after ``seconds`` none is begun any more.
    """
    end = time.monotonic() + seconds
    tasks = [(job, table, wanted, end) for job in _missing(wanted, table)]
    if executor is None:
        found: Iterator[str] = (_fill(*task) for task in tasks)
    else:
        found = (f.result() for f in as_completed([executor.submit(_fill, *task) for task in tasks]))
    for number, said in enumerate(found, 1):
        if said:
            print(f"{number} of {len(tasks)}: {said}", flush=True)


def _missing(wanted: Sequence[Job], table: str) -> list[Job]:
    there = known(table)
    return [job for job in wanted if job.key not in there or there[job.key].code != code_of(job.player)]


def _fill(job: Job, table: str, wanted: Sequence[Job], end: float) -> str:
    """Measure ``job`` unless somebody else does or did, write its row into ``table``, and say so."""
    place = Path(gettempdir())
    try:
        with FileLock(place / f"fedgo-{digest([table, *map(str, job.key)])}.lock", timeout=0):
            if time.monotonic() > end or not _missing([job], table):
                return ""
            row = measure(job)
            with FileLock(place / f"fedgo-{table}.lock"):
                there = known(table) | {row[:5]: row}
                about = {
                    "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
                    "command": "make map",
                }
                keys = dict.fromkeys([other.key for other in wanted if other.key in there])
                about["rows"] = f"{len(keys)} of {len(wanted)}"
                record.write(table, about, Row._fields, [there[key] for key in keys])
    except Timeout:
        return ""
    return f"{row.regime}, {row.player}, {row.seconds} s a run"


def main() -> None:
    """Tune, then measure."""
    parser = argparse.ArgumentParser(prog="make map", description=__doc__)
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no row after so many")
    options = parser.parse_args()
    require(options.workers >= 1, "workers", options.workers, "give at least one process")
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        executor = pool if options.workers > 1 else None
        tuning = [*tuning_jobs()]
        compute(tuning, TUNED, executor, options.seconds)
        if not _missing(tuning, TUNED):
            compute([*jobs()], TABLE, executor, options.seconds)


if __name__ == "__main__":
    main()
