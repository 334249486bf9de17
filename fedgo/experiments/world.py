"""Problems by name, regimes (a problem with its K, σ, N and T), and worlds (some runs of a problem with N and T)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from fedgo._checks import require
from fedgo.algorithms.go_ucb import private_start
from fedgo.messages import Encoding
from fedgo.network import Network
from fedgo.phase_one import Start, phase_one_length, shared_start
from fedgo.problem import Problem
from fedgo.problems import clustered, cosine8, hartmann6

Setting = Mapping[str, Any]  # the values of an algorithm's parameters, by their names
TUNING_SEED = 1000
HIDDEN = 25  # units of the network; d_w = 25 d_x + 51


@dataclass(frozen=True)
class Entry:
    """A problem that regimes can name.

    ``make`` is called as ``make(runs, arms=K, sigma=σ, seed=…)``. ``title`` is its name in the book. ``bound`` is an
    F ≥ |f| if the formula of the problem gives one. It must not be computed from the arms of a run, because that would
    tell an algorithm the best value.
    """

    make: Callable[..., Problem] = field(hash=False)
    title: str
    bound: float | None = None

    def _parts(self) -> tuple[Any, ...]:
        """Return the parts that two equal entries share; a `partial` counts as its function and its arguments."""
        make, about = self.make, (self.title, self.bound)
        return (make.func, make.args, make.keywords, *about) if isinstance(make, partial) else (make, *about)

    def __eq__(self, other: object) -> bool:
        """Return whether ``other`` has equal parts, so that an entry equals its copy from another process."""
        return self._parts() == other._parts() if isinstance(other, Entry) else NotImplemented


def _clusters(name: Any, runs: int | Sequence[int], *, arms: int, **options: Any) -> Problem:
    """Return the problem of clustered data ``name``, which always has 20 arms."""
    require(arms == 20, "arms", arms, f"{name} has 20 clusters")
    return clustered(name, runs, **options)


# F is Σ_i ᾱ_i for Hartmann's function, 8·(1 + 0.1) for the cosine mixture on [−1, 1]⁸, and 1 for a share.
PROBLEMS: dict[str, Entry] = {
    "hartmann6": Entry(hartmann6, "Hartmann6", 8.4),
    "cosine8": Entry(cosine8, "Cosine8", 8.8),
    "cosine8 printed": Entry(partial(cosine8, negated=False), "Cosine8 as printed", 8.8),
    "magic": Entry(partial(_clusters, "magic"), "MagicTelescope", 1.0),
    "shuttle": Entry(partial(_clusters, "shuttle"), "Shuttle", 1.0),
}


@dataclass(frozen=True)
class World:
    """Some runs of a ``problem`` with N = ``clients`` clients and T = ``rounds`` rounds, on which algorithms play.

    Phase I is run when an algorithm first needs it, and shared by all. ``encoding`` is the form in which all algorithms
    send their statistics, ``bound`` is an F ≥ |f| if one is known, and ``regime`` is the regime that made this world,
    or None.
    """

    problem: Problem
    clients: int
    rounds: int
    encoding: Encoding = "dense"
    bound: float | None = None
    regime: "Regime | None" = None

    @property
    def steps(self) -> int:
        """The number T₀ + NT of pulls, which Fed-GO-UCB makes in two phases, and every other algorithm makes too."""
        return phase_one_length(self.clients, self.rounds) + self.clients * self.rounds

    @cached_property
    def network(self) -> Network:
        """The parametric class F of the paper's experiments, a network for the arms of this problem."""
        return Network(self.problem.arms.shape[-1], HIDDEN)

    @cached_property
    def shared(self) -> Start:
        """The result of Phase I of Fed-GO-UCB and One-GO-UCB on this world."""
        return shared_start(self.problem, self.network, self.clients, self.rounds, encoding=self.encoding)

    @cached_property
    def private(self) -> Start:
        """The result of Phase I of N-GO-UCB on this world."""
        return private_start(self.problem, self.network, self.clients, self.rounds)


@dataclass(frozen=True)
class Regime:
    """A problem by its name in `PROBLEMS`, with K = ``arms``, σ = ``sigma``, T = ``rounds`` and N = ``clients``."""

    problem: str
    arms: int = 50
    sigma: float = 0.1
    rounds: int = 100
    clients: int = 20

    def __str__(self) -> str:
        return f"{self.problem}, K={self.arms}, sigma={self.sigma:g}, T={self.rounds}, N={self.clients}"

    @property
    def entry(self) -> Entry:
        """The entry of the problem in `PROBLEMS`, or a ``ValueError`` if there is none."""
        require(self.problem in PROBLEMS, "problem", self.problem, f"choose one of {tuple(PROBLEMS)}")
        return PROBLEMS[self.problem]

    @property
    def title(self) -> str:
        """The title of the problem with K, and with the sizes that differ from the defaults."""
        parts = [self.entry.title, f"{self.arms:,} arms"]
        if self.sigma != 0.1:
            parts.append("coins" if self.problem == "magic rows" else f"noise {self.sigma:g}")
        if self.rounds != 100:
            parts.append(f"T {self.rounds:,}")
        if self.clients in (1, 12):
            parts.append(f"{self.clients} clients" if self.clients > 1 else "1 client")
        return ", ".join(parts)

    @property
    def pulls(self) -> float:
        """The mean number NT/K of pulls of an arm in NT steps."""
        return self.clients * self.rounds / self.arms

    def world(
        self, runs: int | Sequence[int], seed: int = 0, encoding: Encoding = "dense", **options: Any
    ) -> World:
        """Return a world with the given runs of the problem.

        Args:
            runs: The number of runs, or their numbers.
            seed: The seed of the runs.
            encoding: The form in which all algorithms send their statistics.
            options: Further arguments of the problem; they replace the regime's K and σ.
        """
        how = {"arms": self.arms, "sigma": self.sigma, "seed": seed} | options
        problem = self.entry.make(runs, **how)
        return World(problem, self.clients, self.rounds, encoding, self.entry.bound, self)


# The rows of the paper's Figures 2 and 3.
EXPERIMENTS: Mapping[str, Regime] = {
    "hartmann6": Regime("hartmann6"),
    "cosine8": Regime("cosine8"),
    "magic": Regime("magic", arms=20, clients=100),
    "shuttle": Regime("shuttle", arms=20, clients=100),
}


def world(name: str, runs: int | Sequence[int], seed: int = 0, **options: Any) -> World:
    """Return a world of the experiment ``name`` with ``runs`` runs of ``seed``, at the paper's N and T."""
    require(name in EXPERIMENTS, "name", name, f"choose one of {tuple(EXPERIMENTS)}")
    return EXPERIMENTS[name].world(runs, seed, **options)
