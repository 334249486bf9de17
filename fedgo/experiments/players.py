"""How an algorithm plays a world with a setting; a player is that, the settings it may choose from, and where it plays.

A setting has λ and β by their names, or is in units of the noise: with w ~ N(0, s²I) and κ standard deviations of
optimism λ = (σ/s)² and β = (κσ)². The entries themselves are in `fedgo.experiments.roster`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from itertools import product
from typing import TYPE_CHECKING, Any

from fedgo._checks import require
from fedgo.algorithms.controls import uniform_random
from fedgo.algorithms.go_ucb import fed_go_ucb, private_start
from fedgo.beyond.advised import Advised
from fedgo.beyond.counted import optimistic_ucb1
from fedgo.beyond.epochs import each_arm, surrogate_ucb
from fedgo.beyond.guard import Guarantee, guarded_fed_go_ucb
from fedgo.beyond.surrogates import Surrogate
from fedgo.experiments import traces
from fedgo.experiments.peers import fitted_kernel_ucb, fn_ucb
from fedgo.messages import Encoding
from fedgo.network import Network
from fedgo.phase_one import Start, phase_one_length, shared_start
from fedgo.phase_two import Settings
from fedgo.problem import Problem
from fedgo.trace import Trace

if TYPE_CHECKING:
    from fedgo.experiments.regimes import Regime

Setting = Mapping[str, Any]

HIDDEN = 25  # units of the network; d_w = 25 d_x + 51
MANY = 100  # arms from which the engine for many arms is used
GUARD_GAMMA = 0.3  # with which a guard synchronises about as often as Fed-GO-UCB with γ = 1


@dataclass(frozen=True)
class World:
    """Some runs of a problem with N and T; Phase I is run when first asked for, and shared by whoever needs it.

    ``encoding`` is the form in which all algorithms send their statistics, ``bound`` the F that a guard is given.
    """

    problem: Problem
    clients: int
    rounds: int
    encoding: Encoding = "dense"
    bound: float | None = None

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


Play = Callable[[World, Setting], Trace]
Model = Callable[[World], Surrogate | tuple[Surrogate, ...]]  # one for all runs, or one for each


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
    plays_on: "Callable[[Regime], bool]" = lambda regime: True
    setting_of: str = ""
    dense: bool = False

    def run(self, world: World, setting: Setting) -> Trace:
        """The trace of all runs of ``world``, from the store of `fedgo.experiments.traces` as far as it has them."""
        return traces.stored(self.play, world, setting)


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


def _named(play: Play, run: Callable[..., Any], options: Mapping[str, Any]) -> Play:
    """``play`` with the name and module of the algorithm ``run``, and its ``options`` in the name."""
    named = wraps(run)(play)
    named.__name__ += "".join(f", {name}={value}" for name, value in options.items())
    return named


def from_start(run: Callable[..., Trace], private: bool = False, **options: Any) -> Play:
    """An algorithm that Phase I prepares; Fed-GO-UCB in the space of its parameters where there are many arms."""

    def play(world: World, setting: Setting) -> Trace:
        start, space = world.private if private else world.shared, {}
        if run is fed_go_ucb and world.problem.means.shape[1] > MANY:
            space = {"space": "parameters"}
        return run(world.problem, start, settings(world, setting), **space, **options)

    return _named(play, run, options)


def from_scratch(run: Callable[..., Trace], *own: str) -> Play:
    """An algorithm that makes all T₀ + NT steps itself; ``own`` names its parameters beside those of `Settings`."""

    def play(world: World, setting: Setting) -> Trace:
        others = {name: value for name, value in setting.items() if name not in own}
        parameters = {name: setting[name] for name in own}
        return run(world.problem, world.clients, world.steps, settings(world, others), **parameters)

    return _named(play, run, {})


@wraps(uniform_random)
def uniform(world: World, setting: Setting) -> Trace:
    """Uniform play."""
    return uniform_random(world.problem, world.clients, world.steps)


@wraps(optimistic_ucb1)
def ucb1(world: World, setting: Setting) -> Trace:
    """UCB1 on counts, with β or β = bσ²."""
    beta = setting["b"] * world.problem.sigma**2 if "b" in setting else setting["beta"]
    return optimistic_ucb1(world.problem, world.clients, world.steps, beta, setting.get("gamma", 1.0))


@wraps(fitted_kernel_ucb)
def kernel(world: World, setting: Setting) -> Trace:
    """Kernel UCB whose hyperparameters are fitted once."""
    return fitted_kernel_ucb(world.problem, world.clients, world.rounds, setting["kappa"])


@wraps(fn_ucb)
def federated_neural(world: World, setting: Setting) -> Trace:
    """FN-UCB, its ν√λ and λ in units of the noise."""
    how = settings(world, setting)
    return fn_ucb(
        world.problem,
        world.clients,
        world.steps,
        lam=how.lam,
        optimism=setting["kappa"] * world.problem.sigma,
        encoding="dense" if world.encoding == "dense" else "counts",
        space="parameters" if world.problem.means.shape[1] > MANY else "arms",
    )


@wraps(guarded_fed_go_ucb)
def guarded(world: World, setting: Setting) -> Trace:
    """Fed-GO-UCB with λ and β in a guard, which has whatever else the setting names; F and σ are the world's unless."""
    promise = guarantee(world, **{name: setting[name] for name in setting if name not in ("lam", "beta")})
    how = Settings(setting["lam"], setting["beta"], encoding=world.encoding)
    return guarded_fed_go_ucb(world.problem, world.shared, how, promise)


def guarantee(world: World, **values: Any) -> Guarantee:
    """Return what a guard is told on ``world``: F and σ of its problem, γ = `GUARD_GAMMA`, and ``simultaneous=True``.

    The latter because all clients of the simulator synchronise at one and the same step. The rest is as `Guarantee` has
    it unless said. ``values`` replace any of these fields.

    Raises:
        ValueError: If neither the problem nor ``values`` has a bound F on |f|.
    """
    given = {"value": world.bound, "sigma": world.problem.sigma, "gamma": GUARD_GAMMA, "simultaneous": True}
    known = given | values
    require(known["value"] is not None, "the bound F on |f|", None, "give its problem one")
    return Guarantee(**known)


def surrogate(model: Model, guard: float | None = None, arms_first: bool = False, **options: Any) -> Play:
    """A ``model`` fitted in epochs, by κ, with the ``options`` of `surrogate_ucb`; if told γ = ``guard``, in a guard.

    With ``arms_first`` each arm is pulled once in place of Phase I, out of the same budget.
    """

    def play(world: World, setting: Setting) -> Trace:
        fitted, arms, rounds = model(world), world.problem.means.shape[1], world.rounds
        more: dict[str, Any] = dict(options)
        if isinstance(fitted, tuple):  # linearised once, at each run's own ŵ₀
            more["start"] = world.shared
        if arms_first:
            more["exploration"] = each_arm(world.problem, arms)
            rounds = (world.steps - arms) // world.clients
        if guard is not None:
            more["guarantee"] = guarantee(world, gamma=guard)
        return surrogate_ucb(world.problem, fitted, world.clients, rounds, kappa=setting["kappa"], **more)

    return play


def advised(**options: Any) -> Play:
    """What the book advises, or that but for some ``options``; a setting names others."""

    def play(world: World, setting: Setting) -> Trace:
        return Advised(**{**options, **setting}).play(world.problem, world.clients, world.rounds)

    return _named(play, Advised.play, options)
