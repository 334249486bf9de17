"""Players of the studies: how an algorithm plays a world with a setting, and which settings it may choose from.

A world has some runs of a problem, with the numbers of clients and rounds (`fedgo.experiments.world.World`). A setting
is a dictionary with λ and β as "lam" and "beta", or in units of the noise as "s" and "kappa": with the prior w ~ N(0,
s²I) of the parameter, κ standard deviations of optimism and the noise's standard deviation σ, λ = (σ/s)² and β = (κσ)².
The players of the paper's studies are in `fedgo.experiments.roster`.
"""

from collections.abc import Callable
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


def known_as(algorithm: Callable[..., Trace], **options: Any) -> Callable[[Call], Call]:
    """Return a decorator that gives a function the ``key`` under which its traces are stored: algorithm and options."""

    def named(call: Call) -> Call:
        parts = [f"{name}={value}" for name, value in options.items()]
        vars(call)["key"] = ", ".join([f"{algorithm.__module__}.{algorithm.__qualname__}", *parts])
        return call

    return named


@dataclass(frozen=True)
class Player:
    """An algorithm in a study, with the settings that it may choose from.

    Args:
        call: Plays a world with a setting. If it has a ``key`` (`known_as`), its traces may be stored.
        grid: The settings that the player may choose from.
        title: The name of the algorithm in the book; if it is empty, the book uses the player's name in the study.
        style: The colour and the marker in figures, or None.
        plays_on: Returns whether the player plays a regime, for the studies that ask when they list their regimes.
        setting_of: The name of the player whose chosen setting it uses; if it is empty, it chooses one of its own.
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
        """Return the trace of all runs of ``world``, perhaps a stored one (`fedgo.experiments.traces`)."""
        return traces.stored(self.call, getattr(self.call, "key", ""), world, setting)


def grid(**axes: tuple[Any, ...]) -> tuple[Setting, ...]:
    """Return all combinations of the values on the ``axes`` as settings; the last axis varies fastest."""
    return tuple(dict(zip(axes, values, strict=True)) for values in product(*axes.values()))


def in_units(world: World, setting: Setting) -> Settings:
    """Return the `Settings` that ``setting`` describes, with the form of messages of ``world``.

    With "s" and "kappa", entries "lam" and "beta" are not used. Entries that are missing have the defaults.
    """
    values = dict(setting)
    if "s" in values:
        sigma = world.problem.sigma
        values["lam"], values["beta"] = (sigma / values.pop("s")) ** 2, (values.pop("kappa") * sigma) ** 2
    return Settings(**{**values, "encoding": world.encoding})


def from_start(run: Callable[..., Trace], private: bool = False, **options: Any) -> Call:
    """Return how an algorithm that begins with Phase I plays a world.

    Fed-GO-UCB computes in the space of its parameters if the world has more than 100 arms (`MANY`).

    Args:
        run: The algorithm, a function of the result of Phase I and settings.
        private: Whether each client fits a ŵ₀ of its own; if not, all clients of a run share one.
        options: Further arguments of ``run``, by name.
    """

    @known_as(run, **options)
    def play(world: World, setting: Setting) -> Trace:
        start, space = world.private if private else world.shared, {}
        if run is fed_go_ucb and world.problem.means.shape[1] > MANY:
            space = {"space": "parameters"}
        return run(start, in_units(world, setting), **space, **options)

    return play


def from_scratch(run: Callable[..., Trace], *names: str) -> Call:
    """Return how an algorithm without Phase I plays a world, in T₀ + NT steps, as many as those with a Phase I.

    ``names`` are the entries of a setting that are arguments of ``run``, not fields of `fedgo.phase_two.Settings`.
    """

    @known_as(run)
    def play(world: World, setting: Setting) -> Trace:
        of_settings = {name: value for name, value in setting.items() if name not in names}
        further = {name: setting[name] for name in names}
        return run(world.problem, world.clients, world.steps, in_units(world, of_settings), **further)

    return play


@known_as(uniform_random)
def play_uniform(world: World, setting: Setting) -> Trace:
    """Play uniformly drawn arms for all steps of ``world``; ``setting`` is not used."""
    return uniform_random(world.problem, world.clients, world.steps)


def measured(world: World, setting: Setting) -> Trace:
    """Refuse to play, because the study of this player has a function of its own that measures the runs."""
    raise NotImplementedError("the study of this player measures its runs itself: use its measure")
