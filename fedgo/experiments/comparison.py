"""The paper's experiments (Section 6) as frozen data: problems, sizes, algorithms, and their tuned settings."""

import pickle
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import Any, Protocol

import torch

from fedgo._checks import count, on_cpu, require, require_kind
from fedgo.algorithms.approx_dis_kernel_ucb import approx_dis_kernel_ucb
from fedgo.algorithms.controls import exact_kernel_ucb, shared_ucb1, uniform_random
from fedgo.algorithms.dis_lin_ucb import dis_lin_ucb
from fedgo.algorithms.fed_glb_ucb import fed_glb_ucb
from fedgo.algorithms.go_ucb import fed_go_ucb, n_go_ucb, one_go_ucb, private_start
from fedgo.algorithms.gp_ucb import gp_ucb
from fedgo.experiments import code, record, store
from fedgo.experiments.record import Setting
from fedgo.messages import Encoding
from fedgo.network import Network
from fedgo.phase_one import Start, phase_one_length, shared_start
from fedgo.phase_two import Settings
from fedgo.problem import Problem
from fedgo.problems import clustered, cosine8, hartmann6
from fedgo.trace import Trace

HIDDEN = 25  # units of the network; d_w = 25 d_x + 51

# One setting for the three GO algorithms on all four problems, from a coarse look at λ, β ∈ {0.01, …, 10} and
# γ ∈ {0.1, …, 10} on instances of TUNING_SEED, which no evaluation uses. The paper gives none of the three.
GO_SETTINGS = Settings(lam=0.01, beta=0.1, gamma=1.0)

TUNING_SEED = 1000

_BATCH = 50


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
    """How to ``compute`` a trace with a setting, and whether the paper compares with it."""

    compute: Run
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


class Radii(Settings):
    """Settings with a β for each run, (S, 1, 1): many settings that differ in nothing else are computed at once."""

    def __post_init__(self) -> None:
        pass  # every β was a number in a setting


def _settings(values: Mapping[str, Any], encoding: Encoding) -> Settings:
    kind = Radii if isinstance(values.get("beta"), torch.Tensor) else Settings
    return kind(**{**values, "encoding": encoding})


def _from_start(run: Callable[..., Trace], private: bool = False, **options: Any) -> Run:
    """An algorithm that Phase I prepares, as the registry calls it."""

    @wraps(run)
    def within(world: World, setting: Setting) -> Trace:
        start = world.private if private else world.shared
        return run(world.problem, start, _settings(setting, world.encoding), **options)

    within.__name__ += "".join(
        f", {name}={value}" for name, value in options.items()
    )  # the store knows it by this
    return within


def _from_scratch(run: Callable[..., Trace], *own: str) -> Run:
    """An algorithm that makes all T₀ + NT steps itself; ``own`` names its parameters beside those of `Settings`."""

    @wraps(run)
    def within(world: World, setting: Setting) -> Trace:
        others = {name: value for name, value in setting.items() if name not in own}
        parameters = {name: setting[name] for name in own}
        settings = _settings(others, world.encoding)
        return run(world.problem, world.clients, world.steps, settings, **parameters)

    return within


@wraps(uniform_random)
def _uniform(world: World, setting: Setting) -> Trace:
    return uniform_random(world.problem, world.clients, world.steps)


ALGORITHMS = {
    "Fed-GO-UCB": Algorithm(_from_start(fed_go_ucb)),
    "One-GO-UCB": Algorithm(_from_start(one_go_ucb)),
    "N-GO-UCB": Algorithm(_from_start(n_go_ucb, private=True)),
    "DisLinUCB": Algorithm(_from_scratch(dis_lin_ucb)),
    "Fed-GLB-UCB": Algorithm(_from_scratch(fed_glb_ucb, "link")),
    "ApproxDisKernelUCB": Algorithm(_from_scratch(approx_dis_kernel_ucb, "lengthscale")),
    "Kernel UCB, at once": Algorithm(_from_scratch(exact_kernel_ucb, "lengthscale"), in_paper=False),
    "UCB1, shared": Algorithm(_from_scratch(shared_ucb1), in_paper=False),
    "Uniform": Algorithm(_uniform, in_paper=False),
}

# Line 3 as printed, by projected ascent, instead of the first-order index.
LINE_THREE = {
    "Fed-GO-UCB, line 3": Algorithm(_from_start(fed_go_ucb, argmax="ascent")),
    "One-GO-UCB, line 3": Algorithm(_from_start(one_go_ucb, argmax="ascent")),
}

# Centralised Bayesian optimisation as a yardstick, too slow for whole experiments: on the first YARDSTICK_STEPS steps
# of one of them.
YARDSTICK, YARDSTICK_ON, YARDSTICK_STEPS = "GP-UCB (BoTorch)", "hartmann6", 150


@wraps(gp_ucb)
def _gp_ucb(world: World, setting: Setting) -> Trace:
    return gp_ucb(world.problem, world.clients, YARDSTICK_STEPS, setting["beta"])


YARDSTICKS = {YARDSTICK: Algorithm(_gp_ucb, in_paper=False)}

EVERY = ALGORITHMS | LINE_THREE | YARDSTICKS


def world(name: str, runs: int | Sequence[int], seed: int = 0, **options: Any) -> World:
    """The experiment ``name`` with ``runs`` runs of ``seed``, at the paper's N and T."""
    require(name in EXPERIMENTS, "name", name, f"choose one of {tuple(EXPERIMENTS)}")
    experiment = EXPERIMENTS[name]
    return World(experiment.problem(runs, seed=seed, **options), experiment.clients, experiment.rounds)


def tuned(name: str, algorithm: str, study: str = "") -> dict[str, Any]:
    """The setting of ``algorithm`` that ``make tune`` found best on the experiment ``name``.

    ``study`` names another tuning than the book's: ``"line3"`` or ``"in_sample"`` (`fedgo.experiments.tuning.STUDIES`).
    """
    table = record.read(f"{study}_tuned" if study else "tuned")
    found = {(row["experiment"], row["algorithm"]): row["setting"] for row in table.rows}
    there = [other for experiment, other in found if experiment == name]
    require(bool(there), "name", name, f"choose one of {tuple(dict.fromkeys(part for part, _ in found))}")
    require(algorithm in there, "algorithm", algorithm, f"choose one of {tuple(there)}")
    return record.parse(found[name, algorithm])


@on_cpu
def evaluate(
    name: str,
    runs: int,
    seed: int = 0,
    algorithms: Sequence[str] = tuple(ALGORITHMS),
    executor: Executor | None = None,
    study: str = "",
    **options: Any,
) -> dict[str, Trace]:
    """The traces of ``algorithms`` at their tuned settings on ``runs`` runs of the experiment ``name``.

    The runs are taken fifty at a time, which bounds the memory and changes nothing else. An ``executor`` (of
    `concurrent.futures`, Dask's, …) computes every algorithm and every fifty runs apart, with the same result.
    ``study`` names another tuning than the book's (`tuned`), ``options`` go to the problem.
    """
    require_kind(not isinstance(algorithms, str), "algorithms", algorithms, "give a sequence of names")
    unknown = [algorithm for algorithm in algorithms if algorithm not in ALGORITHMS | LINE_THREE]
    require(not unknown, "algorithms", unknown, f"choose from {(*ALGORITHMS, *LINE_THREE)}")
    count("runs", runs, "give at least one run")
    require(seed != TUNING_SEED, "seed", seed, "it is the tuning instances' own; evaluate on another")
    require(name in EXPERIMENTS, "name", name, f"choose one of {tuple(EXPERIMENTS)}")
    remedy = "give a concurrent.futures.Executor"
    require_kind(executor is None or isinstance(executor, Executor), "executor", executor, remedy)
    settings = {algorithm: tuned(name, algorithm, study) for algorithm in algorithms}
    groups = [settings] if executor is None else [{a: setting} for a, setting in settings.items()]
    batches = [range(first, min(first + _BATCH, runs)) for first in range(0, runs, _BATCH)]
    jobs = [(name, batch, seed, group, options) for batch in batches for group in groups]
    if executor is None:
        parts = [_traces(*job) for job in jobs]
    else:
        futures = [executor.submit(_traces_elsewhere, *job) for job in jobs]
        parts = [pickle.loads(future.result()) for future in futures]
    return {
        algorithm: Trace.join([part[algorithm] for part in parts if algorithm in part])
        for algorithm in algorithms
    }


def _traces(
    name: str, runs: range, seed: int, settings: Mapping[str, Setting], options: Mapping[str, Any]
) -> dict[str, Trace]:
    """The traces of the algorithms in ``settings`` on ``runs``; those that share a Phase I compute it once."""
    within = world(name, runs, seed, **options)
    return {algorithm: EVERY[algorithm].run(within, setting) for algorithm, setting in settings.items()}


def _traces_elsewhere(*job: Any) -> bytes:
    """`_traces` in a worker, which has one thread. As bytes: torch would leave its tensors in shared memory."""
    torch.set_num_threads(1)
    return pickle.dumps(_traces(*job))


def made_by(name: str, algorithm: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The modules and the files of the package that a trace comes from: the algorithm's and the problem's."""
    table = f"paper/data/{name}.csv"
    files = ("paper/experiments.py", *([table] if (code.PACKAGE / table).is_file() else []))
    return (EVERY[algorithm].compute.__module__, "fedgo.problems"), files
