"""The paper's experiments (Section 6) as frozen data: problems, sizes, algorithms with their grids, tuned settings."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from itertools import product
from pathlib import Path
from typing import Any, Protocol

from fedgo._checks import count, on_cpu, require, require_kind
from fedgo.algorithms.approx_dis_kernel_ucb import approx_dis_kernel_ucb
from fedgo.algorithms.controls import exact_kernel_ucb, shared_ucb1, uniform_random
from fedgo.algorithms.dis_lin_ucb import dis_lin_ucb
from fedgo.algorithms.fed_glb_ucb import fed_glb_ucb
from fedgo.algorithms.go_ucb import fed_go_ucb, n_go_ucb, one_go_ucb
from fedgo.algorithms.gp_ucb import gp_ucb
from fedgo.messages import Encoding
from fedgo.network import Network
from fedgo.paper import store
from fedgo.paper.problems import clustered, cosine8, hartmann6
from fedgo.phase_one import Start, phase_one_length, private_start, shared_start
from fedgo.phase_two import Settings
from fedgo.problem import Problem
from fedgo.trace import Trace

HIDDEN = 25  # units of the network; d_w = 25 d_x + 51

# One setting for the three GO algorithms on all four problems, from a coarse look at λ, β ∈ {0.01, …, 10} and
# γ ∈ {0.1, …, 10} on instances of TUNING_SEED, which no evaluation uses. The paper gives none of the three.
GO_SETTINGS = Settings(lam=0.01, beta=0.1, gamma=1.0)

TUNING_SEED = 1000
TUNING_RUNS = 10
TUNED_FILE = Path(__file__).parent / "data" / "tuned.json"

_BATCH = 50

Setting = Mapping[str, Any]


@dataclass(frozen=True)
class Experiment:
    """One row of Figure 2 or 3: N = ``clients``, T = ``rounds``, and ``problem(runs, seed=…)``."""

    problem: Callable[..., Problem]
    clients: int
    rounds: int


EXPERIMENTS = {
    "hartmann6": Experiment(hartmann6, clients=20, rounds=100),
    "cosine8": Experiment(cosine8, clients=20, rounds=100),
    "magic": Experiment(lambda runs, **options: clustered("magic", runs, **options), 100, 100),
    "shuttle": Experiment(lambda runs, **options: clustered("shuttle", runs, **options), 100, 100),
}


@dataclass(frozen=True)
class World:
    """One problem with its N and T; Phase I is run when first asked for, and shared by whoever needs it.

    ``encoding`` is the form in which all algorithms send their statistics.
    """

    problem: Problem
    clients: int
    rounds: int
    encoding: Encoding = "dense"

    @property
    def steps(self) -> int:
        """T₀ + NT: every algorithm makes as many evaluations as Fed-GO-UCB does in both phases."""
        return phase_one_length(self.clients, self.rounds) + self.clients * self.rounds

    @cached_property
    def network(self) -> Network:
        """The parametric class F of the paper's experiments."""
        return Network(self.problem.arms.shape[-1], HIDDEN)

    @cached_property
    def shared(self) -> Start:
        """Phase I of Fed-GO-UCB and One-GO-UCB."""
        return shared_start(self.problem, self.network, self.clients, self.rounds, encoding=self.encoding)

    @cached_property
    def private(self) -> Start:
        """Phase I of N-GO-UCB."""
        return private_start(self.problem, self.network, self.clients, self.rounds)


class Run(Protocol):
    """A function with a name that plays an algorithm on a `World` with a setting."""

    __name__: str

    def __call__(self, world: World, setting: Setting, /) -> Trace: ...


@dataclass(frozen=True)
class Algorithm:
    """How to ``compute`` a trace with a setting from its ``grid``, and whether the paper compares with it."""

    compute: Run
    grid: tuple[Setting, ...]
    in_paper: bool = True

    def run(self, within: World, setting: Setting) -> Trace:
        """The trace of all runs of ``within`` with ``setting``, from the store where there is one."""
        source = self.compute.__module__
        how = {
            "algorithm": f"{source}.{self.compute.__name__}",
            "setting": {"gamma": Settings().gamma} | dict(setting),
            "size": (within.clients, within.rounds, within.encoding),
        }

        def compute(problem: Problem) -> Trace:
            same = problem is within.problem  # then Phase I may be there already
            return self.compute(within if same else replace(within, problem=problem), setting)

        made = store.Made(how, (source,), ("paper/experiments.py",))
        return store.stored(made, within.problem, compute)


def _grid(**axes: tuple[Any, ...]) -> tuple[Setting, ...]:
    return tuple(dict(zip(axes, values, strict=True)) for values in product(*axes.values()))


def _from_start(run: Callable[[Problem, Start, Settings], Trace], private: bool = False) -> Run:
    """An algorithm that Phase I prepares, as the registry calls it."""

    @wraps(run)
    def within(world: World, setting: Setting) -> Trace:
        start = world.private if private else world.shared
        return run(world.problem, start, Settings(**{**setting, "encoding": world.encoding}))

    return within


def _from_scratch(run: Callable[..., Trace], *own: str) -> Run:
    """An algorithm that makes all T₀ + NT steps itself; ``own`` names its parameters beside those of `Settings`."""

    @wraps(run)
    def within(world: World, setting: Setting) -> Trace:
        others = {name: value for name, value in setting.items() if name not in own}
        parameters = {name: setting[name] for name in own}
        settings = Settings(**{**others, "encoding": world.encoding})
        return run(world.problem, world.clients, world.steps, settings, **parameters)

    return within


@wraps(uniform_random)
def _uniform(world: World, setting: Setting) -> Trace:
    return uniform_random(world.problem, world.clients, world.steps)


_RIDGE = _grid(lam=(0.0001, 0.001, 0.01, 0.1), beta=(0.003, 0.01, 0.03, 0.1, 0.3, 1.0))
_GLB = _grid(link=("identity", "logistic"), lam=(0.03, 0.1, 1.0), beta=(0.01, 0.1, 1.0, 10.0))
_KERNEL = _grid(lengthscale=(0.3, 1.0, 3.0), lam=(0.01, 0.1), beta=(0.003, 0.03, 0.3, 3.0))
_UCB1 = _grid(beta=tuple(round(10 ** (k / 6 - 4), 6) for k in range(24)))
_NO_CHOICE: tuple[Setting, ...] = ({},)

# 24 settings each. The threshold γ is not tuned: for regret alone its best value is 0. It is 1 everywhere.
ALGORITHMS = {
    "Fed-GO-UCB": Algorithm(_from_start(fed_go_ucb), _RIDGE),
    "One-GO-UCB": Algorithm(_from_start(one_go_ucb), _RIDGE),
    "N-GO-UCB": Algorithm(_from_start(n_go_ucb, private=True), _RIDGE),
    "DisLinUCB": Algorithm(_from_scratch(dis_lin_ucb), _RIDGE),
    "Fed-GLB-UCB": Algorithm(_from_scratch(fed_glb_ucb, "link"), _GLB),
    "ApproxDisKernelUCB": Algorithm(_from_scratch(approx_dis_kernel_ucb, "lengthscale"), _KERNEL),
    "Kernel UCB, at once": Algorithm(_from_scratch(exact_kernel_ucb, "lengthscale"), _KERNEL, in_paper=False),
    "UCB1, shared": Algorithm(_from_scratch(shared_ucb1), _UCB1, in_paper=False),
    "Uniform": Algorithm(_uniform, _NO_CHOICE, in_paper=False),
}

# Centralised Bayesian optimisation as a yardstick, too slow for whole experiments: the same budget, but on the first
# YARDSTICK_STEPS steps of one of them.
YARDSTICK, YARDSTICK_ON, YARDSTICK_STEPS = "GP-UCB (BoTorch)", "hartmann6", 150


@wraps(gp_ucb)
def _gp_ucb(world: World, setting: Setting) -> Trace:
    return gp_ucb(world.problem, world.clients, YARDSTICK_STEPS, setting["beta"])


YARDSTICKS = {
    YARDSTICK: Algorithm(
        _gp_ucb,
        _grid(beta=tuple(round(10 ** (k / 6 - 2), 4) for k in range(24))),
        in_paper=False,
    )
}


def world(name: str, runs: int | Sequence[int], seed: int = 0, **options: Any) -> World:
    """The experiment ``name`` with ``runs`` runs of ``seed``, at the paper's N and T."""
    require(name in EXPERIMENTS, "name", name, f"choose one of {tuple(EXPERIMENTS)}")
    experiment = EXPERIMENTS[name]
    return World(experiment.problem(runs, seed=seed, **options), experiment.clients, experiment.rounds)


def tuned(name: str, algorithm: str) -> Setting:
    """The setting of ``algorithm`` that ``make tune`` found best on the experiment ``name``."""
    found = json.loads(TUNED_FILE.read_text(encoding="utf-8"))["experiments"]
    require(name in found, "name", name, f"choose one of {tuple(found)}")
    require(algorithm in found[name], "algorithm", algorithm, f"choose one of {tuple(found[name])}")
    winner: Setting = found[name][algorithm]["winner"]
    return winner


@on_cpu
def evaluate(
    name: str, runs: int, seed: int = 0, algorithms: Sequence[str] = tuple(ALGORITHMS), **options: Any
) -> dict[str, Trace]:
    """The traces of ``algorithms`` at their tuned settings on ``runs`` runs of the experiment ``name``.

    The runs are taken fifty at a time, which bounds the memory and changes nothing else; ``options`` go to the
    problem.
    """
    require_kind(not isinstance(algorithms, str), "algorithms", algorithms, "give a sequence of names")
    unknown = [algorithm for algorithm in algorithms if algorithm not in ALGORITHMS]
    require(not unknown, "algorithms", unknown, f"choose from {tuple(ALGORITHMS)}")
    count("runs", runs, "give at least one run")
    require(seed != TUNING_SEED, "seed", seed, "it is the tuning instances' own; evaluate on another")
    require(name in EXPERIMENTS, "name", name, f"choose one of {tuple(EXPERIMENTS)}")
    parts: dict[str, list[Trace]] = {algorithm: [] for algorithm in algorithms}
    for first in range(0, runs, _BATCH):
        within = world(name, range(first, min(first + _BATCH, runs)), seed, **options)
        for algorithm, traces in parts.items():
            traces.append(ALGORITHMS[algorithm].run(within, tuned(name, algorithm)))
    return {algorithm: Trace.join(traces) for algorithm, traces in parts.items()}
