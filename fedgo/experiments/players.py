"""How an algorithm plays a world with a setting; a player is that, the settings it may choose from, and where it plays.

A setting has λ and β by their names, or is in units of the noise: with w ~ N(0, s²I) and κ standard deviations of
optimism λ = (σ/s)² and β = (κσ)². The entries themselves are in `fedgo.experiments.roster`.
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

MANY = 100  # arms from which the engine for many arms is used


@dataclass(frozen=True)
class Play:
    """How an algorithm plays a world with a setting.

    ``call`` plays. ``key`` names the algorithm, with dots, and its options, and is what the store of traces knows it
    by; with an empty key nothing is stored.
    """

    call: Callable[[World, Setting], Trace]
    key: str = ""

    def __call__(self, world: World, setting: Setting) -> Trace:
        """Return the trace of all runs of ``world``."""
        return self.call(world, setting)


def known_as(
    algorithm: Callable[..., Trace], options: Mapping[str, Any] | None = None
) -> Callable[[Callable[[World, Setting], Trace]], Play]:
    """Return a decorator that makes a `Play` with the key of ``algorithm`` and its ``options``."""
    words = [f"{algorithm.__module__}.{algorithm.__qualname__}"]
    words += [f"{name}={value}" for name, value in (options or {}).items()]
    return lambda call: Play(call, ", ".join(words))


@dataclass(frozen=True)
class Player:
    """An algorithm in a study: ``play`` it with a setting of its ``grid``, or with what ``setting_of`` has chosen.

    ``title`` and ``style`` (colour and marker) are what the book calls and draws it by. ``plays_on`` says on
    which regimes it is played. ``dense``: its statistics are matrices in the paper's count.
    """

    play: Play
    grid: tuple[Setting, ...] = ({},)
    title: str = ""
    style: tuple[str, str] | None = None
    plays_on: Callable[[Regime], bool] = lambda regime: True
    setting_of: str = ""
    dense: bool = False

    def run(self, world: World, setting: Setting) -> Trace:
        """The trace of all runs of ``world``, from the store of `fedgo.experiments.traces` as far as it has them."""
        return traces.stored(self.play.call, self.play.key, world, setting)


def grid(**axes: tuple[Any, ...]) -> tuple[Setting, ...]:
    """Every combination of the values on the ``axes``."""
    return tuple(dict(zip(axes, values, strict=True)) for values in product(*axes.values()))


def settings(world: World, setting: Setting) -> Settings:
    """λ, β and whatever else ``setting`` has of `Settings`, with the messages of the ``world``."""
    values = dict(setting)
    if "s" in values:
        sigma = world.problem.sigma
        values["lam"], values["beta"] = (sigma / values.pop("s")) ** 2, (values.pop("kappa") * sigma) ** 2
    return Settings(**{**values, "encoding": world.encoding})


def from_start(run: Callable[..., Trace], private: bool = False, **options: Any) -> Play:
    """An algorithm that Phase I prepares; Fed-GO-UCB in the space of its parameters where there are many arms."""

    @known_as(run, options)
    def play(world: World, setting: Setting) -> Trace:
        start, space = world.private if private else world.shared, {}
        if run is fed_go_ucb and world.problem.means.shape[1] > MANY:
            space = {"space": "parameters"}
        return run(world.problem, start, settings(world, setting), **space, **options)

    return play


def from_scratch(run: Callable[..., Trace], *own: str) -> Play:
    """An algorithm that makes all T₀ + NT steps itself; ``own`` names its parameters beside those of `Settings`."""

    @known_as(run)
    def play(world: World, setting: Setting) -> Trace:
        others = {name: value for name, value in setting.items() if name not in own}
        parameters = {name: setting[name] for name in own}
        return run(world.problem, world.clients, world.steps, settings(world, others), **parameters)

    return play


@known_as(uniform_random)
def play_uniform(world: World, setting: Setting) -> Trace:
    """Uniform play."""
    return uniform_random(world.problem, world.clients, world.steps)
