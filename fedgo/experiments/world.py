"""Problems by name, regimes and worlds.

A regime is a problem with its number K of arms, standard deviation σ of the noise, number N of clients and number T of
rounds. A world has some runs of a problem, with N and T.
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
        make: A function that makes the problem, called as ``make(runs=…, arms=K, sigma=σ, seed=…)``. ``runs`` is the
            number of runs, or a sequence of their numbers.
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
    """Return `fedgo.problems.clustered` of the data set ``name``, after a check that 20 arms are asked for."""
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

    Phase I is run when an algorithm first needs it. All algorithms with one ŵ₀ for a run share its result (``shared``),
    and so do all with a ŵ₀ for each client (``private``).

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
        """The number T₀ + NT of pulls: T₀ = ⌈√(NT)⌉ of Phase I, and one by each of N clients in each of T rounds.

        An algorithm without a Phase I makes as many pulls.

        Raises:
            ValueError: N or T is below 1 or above 2⁵³.
            TypeError: N or T is not a whole number.
        """
        return phase_one_length(self.clients, self.rounds) + self.clients * self.rounds

    @cached_property
    def network(self) -> Network:
        """The parametric class F of the paper's experiments for these arms: a network with 25 hidden units.

        For arms of dimension d_x it has d_w = 25 d_x + 51 parameters.
        """
        return Network(self.problem.arms.shape[-1], HIDDEN)

    @cached_property
    def shared(self) -> Start:
        """The result of Phase I of Fed-GO-UCB and One-GO-UCB here, with one parameter ŵ₀ for all clients of a run.

        Phase I is run when its result is first asked for, and the result is kept.

        Raises:
            ValueError: N or T is below 1 or above 2⁵³, ``encoding`` is unknown, or the fit fails because the rewards
                are not of order 1 or not finite.
            TypeError: N or T is not a whole number.
        """
        return shared_start(self.problem, self.network, self.clients, self.rounds, encoding=self.encoding)

    @cached_property
    def private(self) -> Start:
        """The result of Phase I of N-GO-UCB here, with a parameter ŵ₀ for each client of a run.

        Phase I is run when its result is first asked for, and the result is kept.

        Raises:
            ValueError: N or T is below 1 or above 2⁵³, or the fits fail because the rewards are not of order 1 or not
                finite.
            TypeError: N or T is not a whole number.
        """
        return private_start(self.problem, self.network, self.clients, self.rounds)


@dataclass(frozen=True)
class Regime:
    """A problem with its sizes, by which the tables and figures name the experiments.

    The text of a regime, ``str(regime)``, is for instance "hartmann6, K=50, sigma=0.1, T=100, N=20". Nothing is checked
    when a regime is made.

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
        """The problem's entry.

        Raises:
            ValueError: ``problems`` has no problem of this name.
        """
        require(
            self.problem in self.problems, "problem", self.problem, f"choose one of {tuple(self.problems)}"
        )
        return self.problems[self.problem]

    @property
    def title(self) -> str:
        """The title of the regime in the book: that of the problem, the number K of arms, and some other sizes.

        The standard deviation σ of the noise is named if it is not 0.1, the number T of rounds if it is not 100, and
        the number N of clients if it is 1 or 12. For the problem "magic rows" a σ other than 0.1 is named "coins".

        Raises:
            ValueError: ``problems`` has no problem of this name.
        """
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
        """The mean number NT/K of pulls of an arm in the NT steps of Phase II, for K arms, N clients and T rounds."""
        return self.clients * self.rounds / self.arms

    def world(
        self, runs: int | Sequence[int], seed: int = 0, encoding: Encoding = "dense", **options: Any
    ) -> World:
        """Return a world with the given runs of the problem, and the N clients and T rounds of this regime.

        The world also has the bound on the mean rewards that the problem's entry gives, and this regime.

        Args:
            runs: The number of runs, or a sequence of their numbers.
            seed: The seed of the runs.
            encoding: The form in which all algorithms send their statistics (`fedgo.messages`).
            options: Further arguments of the problem's function, by name. ``arms`` and ``sigma`` among them replace the
                regime's number K of arms and its noise level σ.

        Raises:
            ValueError: ``problems`` has no problem of this name, an argument of the problem's function is out of range,
                or a run is given twice. N, T and ``encoding`` are not checked here.
            TypeError: ``runs``, K, σ or ``seed`` is of another kind, or the problem's function has no such option.
            ImportError: A library that the problem needs, BoTorch for instance, is not installed.
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
    """Return a world of the experiment ``name``, with the numbers of clients and rounds of the paper.

    Args:
        name: The name of an experiment in `EXPERIMENTS`: "hartmann6", "cosine8", "magic" or "shuttle".
        runs: The number of runs, or a sequence of their numbers.
        seed: The seed of the runs.
        options: Further arguments of `Regime.world`, by name: ``encoding``, or arguments of the problem's function.

    Raises:
        ValueError: The name is unknown, an argument of the problem's function is out of range, or a run is given twice.
        TypeError: An argument is of another kind, or the problem's function has no such option.
        ImportError: The problem needs BoTorch, which is not installed.
    """
    require(name in EXPERIMENTS, "name", name, f"choose one of {tuple(EXPERIMENTS)}")
    return EXPERIMENTS[name].world(runs, seed, **options)
