"""Players of the studies: how an algorithm plays a world with a setting, and which settings it may choose from.

A setting has λ and β as "lam" and "beta", or in units of the noise as "s" and "kappa": with the prior w ~ N(0, s²I) and
κ standard deviations of optimism, λ = (σ/s)² and β = (κσ)². The players of the paper's studies are in
`fedgo.experiments.roster`.
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

MANY = 100  # arms above which the learner for many arms is used


@dataclass(frozen=True)
class Play:
    """How an algorithm plays a world with a setting.

    ``call`` plays. ``key`` is the dotted name of the algorithm with its options, by which stored traces are found; if
    it is empty, no trace is stored.
    """

    call: Callable[[World, Setting], Trace]
    key: str = ""

    def __call__(self, world: World, setting: Setting) -> Trace:
        """Return the trace of all runs of ``world`` with ``setting``."""
        return self.call(world, setting)


def known_as(
    algorithm: Callable[..., Trace], options: Mapping[str, Any] | None = None
) -> Callable[[Callable[[World, Setting], Trace]], Play]:
    """Return a decorator that makes a `Play` with the key of ``algorithm`` and its ``options``."""
    named = [f"{algorithm.__module__}.{algorithm.__qualname__}"]
    named += [f"{name}={value}" for name, value in (options or {}).items()]
    return lambda call: Play(call, ", ".join(named))


@dataclass(frozen=True)
class Player:
    """An algorithm in a study, with the settings that it may choose from.

    ``play`` is called with a setting of the ``grid``, or with the setting that the player named ``setting_of`` has
    chosen. ``title`` is the name of the algorithm in the book, and ``style`` its colour and marker in figures.
    ``plays_on`` returns whether it plays a regime. If ``dense`` is True, its scalars are also counted with matrices as
    messages, as in the paper.
    """

    play: Play
    grid: tuple[Setting, ...] = ({},)
    title: str = ""
    style: tuple[str, str] | None = None
    plays_on: Callable[[Regime], bool] = lambda regime: True
    setting_of: str = ""
    dense: bool = False

    def run(self, world: World, setting: Setting) -> Trace:
        """Return the trace of all runs of ``world`` with ``setting``.

        Runs that `fedgo.experiments.traces` has stored are not played again.
        """
        return traces.stored(self.play.call, self.play.key, world, setting)


def grid(**axes: tuple[Any, ...]) -> tuple[Setting, ...]:
    """Return a setting for each combination of the values on the ``axes``."""
    return tuple(dict(zip(axes, values, strict=True)) for values in product(*axes.values()))


def settings(world: World, setting: Setting) -> Settings:
    """Return the `Settings` that ``setting`` describes, with the form of messages of ``world``.

    With "s" and "kappa" in the setting, λ = (σ/s)² and β = (κσ)², with the noise σ of the problem.
    """
    values = dict(setting)
    if "s" in values:
        sigma = world.problem.sigma
        values["lam"], values["beta"] = (sigma / values.pop("s")) ** 2, (values.pop("kappa") * sigma) ** 2
    return Settings(**{**values, "encoding": world.encoding})


def from_start(run: Callable[..., Trace], private: bool = False, **options: Any) -> Play:
    """Return how an algorithm plays that begins with Phase I.

    Fed-GO-UCB computes in the space of its parameters if there are more than `MANY` arms.

    Args:
        run: The algorithm, called with a problem, the result of Phase I, and settings.
        private: Whether each client fits a ŵ₀ of its own.
        options: Further arguments of ``run``.
    """

    @known_as(run, options)
    def play(world: World, setting: Setting) -> Trace:
        """Run Phase II from the Phase I of ``world``."""
        start, space = world.private if private else world.shared, {}
        if run is fed_go_ucb and world.problem.means.shape[1] > MANY:
            space = {"space": "parameters"}
        return run(world.problem, start, settings(world, setting), **space, **options)

    return play


def from_scratch(run: Callable[..., Trace], *names: str) -> Play:
    """Return how an algorithm plays that has no Phase I, and makes all T₀ + NT steps itself.

    ``run`` is called with a problem, N, the number of steps and settings. ``names`` are those parts of a setting that
    are further arguments of ``run`` and not of `fedgo.phase_two.Settings`.
    """

    @known_as(run)
    def play(world: World, setting: Setting) -> Trace:
        """Run the algorithm for all steps of ``world``."""
        of_settings = {name: value for name, value in setting.items() if name not in names}
        further = {name: setting[name] for name in names}
        return run(world.problem, world.clients, world.steps, settings(world, of_settings), **further)

    return play


@known_as(uniform_random)
def play_uniform(world: World, setting: Setting) -> Trace:
    """Play uniformly drawn arms for all steps of ``world``; ``setting`` is not used."""
    return uniform_random(world.problem, world.clients, world.steps)
