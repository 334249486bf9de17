"""Who plays in the regime map, on what, and how a row of its table is made.

A regime is a family of problems with K, σ, T and N; a player has four settings to choose from, or takes another's. All
are told σ, and their widths are in units of it. A row keeps the code that made it: this file and all that it plays.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import NamedTuple

import torch

from fedgo.algorithms.go_ucb import fed_go_ucb
from fedgo.beyond.counted import optimistic_ucb1
from fedgo.beyond.epochs import Growing, surrogate_ucb
from fedgo.beyond.guard import Guarantee
from fedgo.beyond.surrogates import GaussianProcess, Relinearised, Surrogate
from fedgo.experiments import record
from fedgo.experiments.code import code
from fedgo.experiments.comparison import ALGORITHMS, HIDDEN, World
from fedgo.experiments.families import levy10, magic_rows, realizable, two_ridge
from fedgo.experiments.fitted_kernel import fitted_kernel_ucb
from fedgo.experiments.fn_ucb import HIDDEN as FN_HIDDEN
from fedgo.experiments.fn_ucb import fn_ucb
from fedgo.experiments.record import Setting
from fedgo.langevin import Langevin
from fedgo.messages import scalars
from fedgo.network import Network
from fedgo.phase_two import Settings
from fedgo.problem import Problem
from fedgo.problems import clustered, cosine8, hartmann6
from fedgo.trace import Trace

GROWTH = 1.6  # the factor of an epoch: fits are what costs time
GUARD_GAMMA = 1.0
MANY = 100  # arms from which the engine for many arms is used


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
    """K = ``arms`` of a ``family``, the noise ``sigma``, T = ``rounds``, N = ``clients``."""

    family: str
    arms: int = 500
    sigma: float = 0.1
    rounds: int = 100
    clients: int = 20

    @property
    def name(self) -> str:
        """What stands in the table."""
        return f"{self.family}, K={self.arms}, sigma={self.sigma:g}, T={self.rounds}, N={self.clients}"

    def world(self, runs: range, seed: int = 0) -> World:
        """The ``runs`` of ``seed``; statistics are sent as counts."""
        made = FAMILIES[self.family].problem(runs, arms=self.arms, sigma=self.sigma, seed=seed)
        return World(made, self.clients, self.rounds, encoding="counts")


@dataclass(frozen=True)
class Player:
    """How to ``play`` a world with a setting, by which ``modules``; its ``grid``, or whose setting it takes; and
    whether it is ``guarded``, which needs a bound on |f|."""

    play: Callable[[World, Setting], Trace]
    modules: tuple[str, ...]
    grid: tuple[Setting, ...] = ()
    setting_of: str = ""
    guarded: bool = False


def _ridge(world: World, setting: Setting) -> Settings:
    """w ~ N(0, s²I) and κ standard deviations: λ = (σ/s)², β = (κσ)²."""
    sigma = world.problem.sigma
    lam, beta = (sigma / setting["s"]) ** 2, (setting["kappa"] * sigma) ** 2
    return Settings(lam, beta, encoding=world.encoding)


def _fed_go(world: World, setting: Setting) -> Trace:
    space = "parameters" if world.problem.means.shape[1] > MANY else "arms"
    return fed_go_ucb(world.problem, world.shared, _ridge(world, setting), space=space)  # type: ignore[arg-type]


def _published(name: str) -> Callable[[World, Setting], Trace]:
    """An algorithm of the paper that is told λ, β, and what the setting has beside s and κ."""

    def play(world: World, setting: Setting) -> Trace:
        ridge, own = _ridge(world, setting), {k: v for k, v in setting.items() if k not in ("s", "kappa")}
        return ALGORITHMS[name].compute(world, {"lam": ridge.lam, "beta": ridge.beta} | own)

    return play


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
_RIDGE = _grid(s=(3.0, 10.0), kappa=(1.0, 4.0))
_LINEAR = _grid(s=(1.0, 10.0), kappa=(1.0, 4.0))
_EPOCHS, _GO = ("fedgo.beyond.epochs",), ("fedgo.algorithms.go_ucb",)
PLAYERS: Mapping[str, Player] = {
    "UCB1": Player(_ucb1, ("fedgo.beyond.counted",), _grid(b=(0.02, 0.06, 0.2, 0.6))),
    "Fed-GO-UCB": Player(_fed_go, _GO, _RIDGE),
    "process": Player(_surrogate("process", False), _EPOCHS, _KAPPA),
    "network": Player(_surrogate("network", False), _EPOCHS, _KAPPA),
    "kernel": Player(_kernel, ("fedgo.experiments.fitted_kernel",), _KAPPA),
    "FN-UCB": Player(_fn_ucb, ("fedgo.experiments.fn_ucb",), _grid(s=(0.3, 3.0), kappa=(0.5, 2.0))),
    "process, guarded": Player(_surrogate("process", True), _EPOCHS, setting_of="process", guarded=True),
    "network, guarded": Player(_surrogate("network", True), _EPOCHS, setting_of="network", guarded=True),
    "One-GO-UCB": Player(_published("One-GO-UCB"), _GO, _RIDGE),
    "N-GO-UCB": Player(_published("N-GO-UCB"), _GO, _RIDGE),
    "DisLinUCB": Player(_published("DisLinUCB"), ("fedgo.algorithms.dis_lin_ucb",), _LINEAR),
    "Fed-GLB-UCB": Player(
        _published("Fed-GLB-UCB"),
        ("fedgo.algorithms.fed_glb_ucb",),
        tuple({**setting, "link": "identity"} for setting in _LINEAR),
    ),
    "ApproxDisKernelUCB": Player(
        _published("ApproxDisKernelUCB"),
        ("fedgo.algorithms.approx_dis_kernel_ucb",),
        _grid(s=(1.0,), kappa=(1.0, 4.0), lengthscale=(0.3, 1.0)),
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


def dense(world: World, trace: Trace, player: str, setting: Setting) -> float:
    """Scalars of a run, on average, with the statistics as matrices: as the paper counts. NaN where there are none.

    Where the number of synchronisations decides them, they are counted; else the runs are played again, with up to
    `MANY` arms.
    """
    n, syncs = world.clients, trace.sync.sum(1).double().mean().item()
    d_x = world.problem.arms.shape[-1]
    langevin = (2 * Langevin().rounds + 1) * n * world.network.size
    match player:
        case "Fed-GO-UCB":
            return langevin + syncs * 2 * n * float(scalars("dense", world.network.size, 1, 1))
        case "One-GO-UCB":
            return langevin + syncs * (n + 1) * float(scalars("dense", world.network.size, 1, 1))
        case "N-GO-UCB":
            return 0.0
        case "DisLinUCB":
            return syncs * 2 * n * float(scalars("dense", d_x, 1, 1))
        case "FN-UCB":
            return syncs * 2 * n * float(2 * scalars("dense", Network(d_x, FN_HIDDEN).size, 1, 1) + 1)
        case "Fed-GLB-UCB" | "ApproxDisKernelUCB" if world.problem.means.shape[1] <= MANY:
            again = PLAYERS[player].play(replace(world, encoding="dense"), setting)
            return again.communication[:, -1].double().mean().item()
    return math.nan


@cache
def code_of(player: str) -> str:
    """A hash of the code that ``player`` and the problems are."""
    modules = (*PLAYERS[player].modules, "fedgo.experiments.families", "fedgo.problems")
    return code(modules, ("paper/players.py", "paper/experiments.py", "paper/data/magic_rows.csv"))


def _list(values: torch.Tensor, digits: int) -> str:
    return " ".join(f"{value:.{digits}f}" for value in values.tolist())


def measure(job: Job) -> Row:
    """The row of ``job``."""
    torch.set_num_threads(1)
    world = job.regime.world(job.runs, job.seed)
    begun = time.process_time()
    setting = record.parse(job.setting)
    trace = PLAYERS[job.player].play(world, setting)
    seconds = (time.process_time() - begun) / len(job.runs)
    last = -(-trace.regret.shape[1] // 10)
    sent = trace.communication[:, -1].double()
    return Row(
        *job.key,
        len(job.runs),
        _list(trace.cumulative_regret[:, -1], 2),
        _list(trace.regret[:, -last:].mean(1), 4),
        _list(sent, 0),
        round(dense(world, trace, job.player, setting), 0),
        round(trace.sync.sum(1).double().mean().item(), 1),
        round(seconds, 3),
        code_of(job.player),
    )
