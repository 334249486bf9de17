"""How players beyond the paper play a world with a setting: UCB1, guards, surrogates, the advised setting, rivals."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fedgo._checks import require
from fedgo.beyond.advised import ADVISED, Advised
from fedgo.beyond.epochs import Beginning, Event, Growing, Optimism, Planning, each_arm, surrogate_ucb
from fedgo.beyond.guard.counted import optimistic_ucb1
from fedgo.beyond.guard.guarantee import Guarantee, guarded_fed_go_ucb
from fedgo.beyond.map.rivals import fitted_kernel_ucb, fn_ucb
from fedgo.beyond.surrogates.models import Surrogate
from fedgo.experiments.players import MANY, Play, known_as, settings
from fedgo.experiments.world import Setting, World
from fedgo.phase_two import Settings
from fedgo.trace import Trace

GUARD_GAMMA = 0.3  # with which a guard synchronises about as often as Fed-GO-UCB with γ = 1


SurrogateOf = Callable[[World], Surrogate | tuple[Surrogate, ...]]  # one for all runs, or one for each


@known_as(optimistic_ucb1)
def ucb1(world: World, setting: Setting) -> Trace:
    """UCB1 on counts, with β or β = bσ²."""
    beta = setting["b"] * world.problem.sigma**2 if "b" in setting else setting["beta"]
    return optimistic_ucb1(world.problem, world.clients, world.steps, beta, setting.get("gamma", 1.0))


@known_as(fitted_kernel_ucb)
def kernel(world: World, setting: Setting) -> Trace:
    """Kernel UCB whose hyperparameters are fitted once."""
    return fitted_kernel_ucb(world.problem, world.clients, world.rounds, setting["kappa"])


@known_as(fn_ucb)
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


@known_as(guarded_fed_go_ucb)
def play_guarded(world: World, setting: Setting) -> Trace:
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


def surrogate(
    model: SurrogateOf,
    until: Growing | Event,
    planning: Planning = "joint",
    informed: bool = True,
    guard: float | None = None,
    arms_first: bool = False,
) -> Play:
    """Return how a ``model`` is played in epochs, by κ; if told γ = ``guard``, in a guard.

    With ``arms_first`` each arm is pulled once in place of Phase I, out of the same budget. The others are arguments of
    `surrogate_ucb` and of its `Beginning`.
    """

    def play(world: World, setting: Setting) -> Trace:
        fitted, arms, rounds = model(world), world.problem.means.shape[1], world.rounds
        once = isinstance(fitted, tuple)  # linearised once, at each run's own ŵ₀
        if arms_first:
            rounds = (world.steps - arms) // world.clients
        return surrogate_ucb(
            world.problem,
            fitted,
            world.clients,
            rounds,
            until=until,
            planning=planning,
            optimism=Optimism(setting["kappa"]),
            begins=Beginning(
                start=world.shared if once else None,
                exploration=each_arm(world.problem, arms) if arms_first else None,
                informed=informed,
            ),
            guarantee=None if guard is None else guarantee(world, gamma=guard),
        )

    return Play(play)


def advised(how: Advised = ADVISED) -> Play:
    """Return how the advised setting is played, or another ``how``; a setting replaces some of its fields."""

    @known_as(Advised.play, {} if how == ADVISED else {"how": how})
    def play(world: World, setting: Setting) -> Trace:
        return replace(how, **setting).play(world.problem, world.clients, world.rounds)

    return play
