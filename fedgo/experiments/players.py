"""Players of the studies: how an algorithm plays a world with a setting, and which settings it may choose from.

A world has some runs of a problem, with the numbers of clients and rounds (`fedgo.experiments.world.World`). A setting
is a dictionary with λ and β as "lam" and "beta", or in units of the noise as "s" and "kappa": with the prior w ~
N(0, s²I) of the parameter, κ standard deviations of optimism and the noise's standard deviation σ, λ = (σ/s)² and β =
(κσ)². The players of the paper's studies are in `fedgo.experiments.roster`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from fedgo.algorithms.controls import uniform_random
from fedgo.algorithms.go_ucb import fed_go_ucb
from fedgo.experiments import traces
from fedgo.experiments.world import Regime, Setting, World
from fedgo.phase_two import Settings
from fedgo.trace import Trace

MANY = 100  # with more arms than this, Fed-GO-UCB uses the learner for many arms


Call = Callable[[World, Setting], Trace]  # how an algorithm plays a world with a setting


def known_as(
    algorithm: Callable[..., Trace], options: Mapping[str, Any] | None = None
) -> Callable[[Call], Call]:
    """Return a decorator that gives a function the name under which its traces are stored, as its ``key``.

    Args:
        algorithm: The function that plays, whose dotted name begins the key.
        options: The further arguments, by name, that the decorated function gives to the algorithm.
    """

    def named(call: Call) -> Call:
        parts = [f"{name}={value}" for name, value in (options or {}).items()]
        vars(call)["key"] = ", ".join([f"{algorithm.__module__}.{algorithm.__qualname__}", *parts])
        return call

    return named


@dataclass(frozen=True)
class Player:
    """An algorithm in a study, with the settings that it may choose from.

    Args:
        call: The function that plays a world with a setting. If it has a ``key`` (`known_as`), its traces may be
            stored.
        grid: The settings that the player may choose from.
        title: The name of the algorithm in the book; if it is empty, the book uses the player's name in the study.
        style: The colour and the marker in figures, or None.
        plays_on: A function that returns whether the player plays a regime. Some studies ask it when they list their
            regimes; `run` does not.
        setting_of: The name of the player whose chosen setting it uses; if it is empty, it chooses a setting of its
            own.
        dense: Whether a study may also count the player's scalars with matrices as messages, as in the paper.
    """

    call: Call
    grid: tuple[Setting, ...] = ({},)
    title: str = ""
    style: tuple[str, str] | None = None
    plays_on: Callable[[Regime], bool] = lambda regime: True
    setting_of: str = ""
    dense: bool = False

    def play(self, world: World, setting: Setting) -> Trace:
        """Return the trace of all runs of ``world`` with ``setting``.

        If the environment variable ``FEDGO_TRACES`` names a folder and ``call`` has a key, the trace is stored there,
        and is not played again.
        """
        return traces.stored(self.call, getattr(self.call, "key", ""), world, setting)


def grid(**axes: tuple[Any, ...]) -> tuple[Setting, ...]:
    """Return all combinations of the values on the ``axes`` as settings; the last axis varies fastest.

    An axis is a keyword with the name of a parameter and a tuple of its values. For instance, ``grid(lam=(1, 2),
    beta=(3,))`` returns ``({"lam": 1, "beta": 3}, {"lam": 2, "beta": 3})``. Without axes the result is one empty
    setting, ``({},)``.

    Raises:
        TypeError: The values of an axis are a single number.
    """
    return tuple(dict(zip(axes, values, strict=True)) for values in product(*axes.values()))


def in_units(world: World, setting: Setting) -> Settings:
    """Return the parameters of Phase II that ``setting`` describes, with the form of messages of ``world``.

    If the setting has "s" and "kappa", the regularisation weight is λ = (σ/s)² and the squared radius β = (κσ)², with
    the standard deviation σ of the problem's noise and κ for "kappa"; entries "lam" and "beta" are then not used. The
    other entries are fields of `fedgo.phase_two.Settings`, and those that are missing have its defaults. An entry
    "encoding" is not used.

    Raises:
        ValueError: A value is out of range; for instance λ is 0 because the problem has no noise.
        TypeError: A value is of another kind, an entry is no field of `fedgo.phase_two.Settings`, or the setting has
            "kappa" without "s".
        KeyError: The setting has "s" without "kappa".
        ZeroDivisionError: "s" is 0.
    """
    values = dict(setting)
    if "s" in values:
        sigma = world.problem.sigma
        values["lam"], values["beta"] = (sigma / values.pop("s")) ** 2, (values.pop("kappa") * sigma) ** 2
    return Settings(**{**values, "encoding": world.encoding})


def from_start(run: Callable[..., Trace], private: bool = False, **options: Any) -> Call:
    """Return how an algorithm that begins with Phase I plays a world.

    If ``run`` is `fedgo.algorithms.go_ucb.fed_go_ucb` and the world has more than 100 arms (`MANY`), it computes in the
    space of its parameters.

    Args:
        run: The algorithm, a function of the result of Phase I and settings, which returns a trace.
        private: Whether each client fits a parameter ŵ₀ of its own in Phase I; if not, all clients of a run share one.
        options: Further arguments of ``run``, by name.
    """

    @known_as(run, options)
    def play(world: World, setting: Setting) -> Trace:
        """Run Phase II with ``setting``, from the Phase I of ``world``, and return the trace of both."""
        start, space = world.private if private else world.shared, {}
        if run is fed_go_ucb and world.problem.means.shape[1] > MANY:
            space = {"space": "parameters"}
        return run(start, in_units(world, setting), **space, **options)

    return play


def from_scratch(run: Callable[..., Trace], *names: str) -> Call:
    """Return how an algorithm that has no Phase I plays a world.

    The algorithm makes as many steps as those with a Phase I: T₀ + NT for N clients and T rounds, with T₀ = ⌈√(NT)⌉.

    Args:
        run: The algorithm, a function of a problem, the number N of clients, the number of steps, and settings, which
            returns a trace.
        names: The entries of a setting that are further arguments of ``run``, not fields of `fedgo.phase_two.Settings`.
            If a setting lacks one, playing it raises a ``KeyError``.
    """

    @known_as(run)
    def play(world: World, setting: Setting) -> Trace:
        """Run the algorithm with ``setting`` for all T₀ + NT steps of ``world``, and return its trace."""
        of_settings = {name: value for name, value in setting.items() if name not in names}
        further = {name: setting[name] for name in names}
        return run(world.problem, world.clients, world.steps, in_units(world, of_settings), **further)

    return play


@known_as(uniform_random)
def play_uniform(world: World, setting: Setting) -> Trace:
    """Play uniformly drawn arms for all steps of ``world``, and return the trace; ``setting`` is not used.

    There are ⌈√(NT)⌉ + NT steps, for N clients and T rounds, as many as an algorithm with Phase I makes.
    """
    return uniform_random(world.problem, world.clients, world.steps)


def measured(world: World, setting: Setting) -> Trace:
    """Refuse to play, because the study of this player has a function of its own that measures the runs.

    Raises:
        NotImplementedError: Always.
    """
    raise NotImplementedError("the study of this player measures its runs itself: use its measure")
