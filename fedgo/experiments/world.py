"""Problems by name, regimes and worlds.

A regime is a problem with its number K of arms, standard deviation σ of the noise, number N of clients and number T of
rounds. A world has some runs of a problem, with N and T. ``runs`` is the number of runs, or a sequence of their
numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from fedgo._checks import require
from fedgo.algorithms.go_ucb import private_start
from fedgo.messages import Encoding
from fedgo.network import Network
from fedgo.phase_one import Start, phase_one_length, shared_start
from fedgo.problem import Problem
from fedgo.problems import clustered, cosine8, hartmann6

Setting = Mapping[str, Any]  # the values of an algorithm's parameters, by their names
TUNING_SEED = 1000  # the seed of the runs on which settings are chosen
HIDDEN = 25  # the hidden units of the paper's network, which has d_w = 25 d_x + 51 parameters


@dataclass(frozen=True)
class Entry:
    """A problem that regimes can name.

    Args:
        make: Makes the problem, called as ``make(runs=…, arms=K, sigma=σ, seed=…)``.
        title: The name of the problem in the book.
        bound: A bound F ≥ |f| on the mean rewards, if the formula of the problem gives one. It must not be computed
            from the arms of a run, because that would tell an algorithm the best value.
        options: Further keyword arguments of ``make``.
    """

    make: Callable[..., Problem]
    title: str
    bound: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)


def _clusters(name: Any, runs: int | Sequence[int], *, arms: int, **options: Any) -> Problem:
    """Return the data set ``name``, after a check that 20 arms are asked for."""
    require(arms == 20, "arms", arms, f"give 20, the number of clusters of {name}")
    return clustered(name, runs, **options)


# The number is the bound F: Σ_i ᾱ_i for Hartmann's function, 8·(1 + 0.1) for the cosine mixture on [−1, 1]⁸, and 1
# for the share of the positive class in a cluster.
PROBLEMS: Mapping[str, Entry] = {
    "hartmann6": Entry(hartmann6, "Hartmann6", 8.4),
    "cosine8": Entry(cosine8, "Cosine8", 8.8),
    "cosine8 printed": Entry(cosine8, "Cosine8 as printed", 8.8, {"negated": False}),
    "magic": Entry(_clusters, "MagicTelescope", 1.0, {"name": "magic"}),
    "shuttle": Entry(_clusters, "Shuttle", 1.0, {"name": "shuttle"}),
}


@dataclass(frozen=True)
class World:
    """Some runs of a problem, with the numbers of clients and rounds, on which algorithms play.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        rounds: The number T of rounds.
        encoding: The form in which all algorithms send their statistics (`fedgo.messages`).
        bound: A bound F ≥ |f| on the mean rewards f, or None if none is known.
        regime: The regime that made this world, or None.
    """

    problem: Problem
    clients: int
    rounds: int
    encoding: Encoding = "dense"
    bound: float | None = None
    regime: "Regime | None" = None

    @property
    def steps(self) -> int:
        """The number T₀ + NT of pulls, T₀ = ⌈√(NT)⌉, which algorithms without a Phase I make too."""
        return phase_one_length(self.clients, self.rounds) + self.clients * self.rounds

    @cached_property
    def network(self) -> Network:
        """The network of the paper's experiments for these arms, with 25 hidden units."""
        return Network(self.problem.arms.shape[-1], HIDDEN)

    @cached_property
    def shared(self) -> Start:
        """The result of Phase I with one ŵ₀ for all clients of a run; it is run when first asked for, and kept."""
        return shared_start(self.problem, self.network, self.clients, self.rounds, encoding=self.encoding)

    @cached_property
    def private(self) -> Start:
        """The result of Phase I with a ŵ₀ for each client of a run; it is run when first asked for, and kept."""
        return private_start(self.problem, self.network, self.clients, self.rounds)


@dataclass(frozen=True)
class Regime:
    """A problem with its sizes, by which the tables and figures name the experiments.

    Args:
        problem: The name of the problem, a key of ``problems``.
        arms: The number K of arms.
        sigma: The standard deviation σ of the noise.
        rounds: The number T of rounds.
        clients: The number N of clients.
        problems: The problems by name. Two regimes that differ in it alone are equal.
    """

    problem: str
    arms: int = 50
    sigma: float = 0.1
    rounds: int = 100
    clients: int = 20
    problems: Mapping[str, Entry] = field(default_factory=lambda: PROBLEMS, compare=False, repr=False)

    @property
    def columns(self) -> dict[str, Any]:
        """The problem and its sizes, by the names of the columns that tables have for them."""
        return {name: getattr(self, name) for name in REGIME}

    def __str__(self) -> str:
        return f"{self.problem}, K={self.arms}, sigma={self.sigma:g}, T={self.rounds}, N={self.clients}"

    @property
    def entry(self) -> Entry:
        """The problem's entry."""
        known = tuple(self.problems)
        require(self.problem in known, "problem", self.problem, f"choose one of {known}")
        return self.problems[self.problem]

    @property
    def pulls(self) -> float:
        """The mean number NT/K of pulls of an arm in Phase II."""
        return self.clients * self.rounds / self.arms

    def world(
        self, runs: int | Sequence[int], seed: int = 0, encoding: Encoding = "dense", **options: Any
    ) -> World:
        """Return a world with the given runs of the problem.

        ``options`` are further arguments of the problem's function.
        """
        how = {"arms": self.arms, "sigma": self.sigma, "seed": seed} | options
        problem = self.entry.make(runs=runs, **self.entry.options, **how)
        return World(problem, self.clients, self.rounds, encoding, self.entry.bound, self)


# The columns of a table that name the regime.
REGIME = tuple(field.name for field in fields(Regime) if field.compare)

# The experiments in the rows of the paper's Figures 2 and 3.
EXPERIMENTS: Mapping[str, Regime] = {
    "hartmann6": Regime("hartmann6"),
    "cosine8": Regime("cosine8"),
    "magic": Regime("magic", arms=20, clients=100),
    "shuttle": Regime("shuttle", arms=20, clients=100),
}


def world(name: str, runs: int | Sequence[int], seed: int = 0, **options: Any) -> World:
    """Return a world of an experiment in `EXPERIMENTS`; ``options`` are those of `Regime.world`."""
    require(name in EXPERIMENTS, "name", name, f"choose one of {tuple(EXPERIMENTS)}")
    return EXPERIMENTS[name].world(runs, seed, **options)
