"""How players beyond the paper play a world with a setting: UCB1, guards, surrogates, the advised setting, rivals."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fedgo._checks import require
from fedgo.beyond.advised import ADVISED, Advised
from fedgo.beyond.epochs import Beginning, Event, Growing, Optimism, Planning, each_arm, surrogate_ucb
from fedgo.beyond.guard.guarantee import Guarantee, guarded_fed_go_ucb
from fedgo.beyond.guard.optimist import optimistic_ucb1
from fedgo.beyond.map.rivals import fitted_kernel_ucb
from fedgo.beyond.surrogates.models import Surrogate
from fedgo.experiments.players import Play, known_as
from fedgo.experiments.world import Setting, World
from fedgo.phase_two import Settings
from fedgo.trace import Trace

GUARD_GAMMA = 0.3  # with which a guard synchronises about as often as Fed-GO-UCB with γ = 1


SurrogateOf = Callable[[World], Surrogate | tuple[Surrogate, ...]]  # one for all runs, or one for each


@known_as(optimistic_ucb1)
def ucb1(world: World, setting: Setting) -> Trace:
    """Play UCB1 on the counts of all clients in ``world``, with β = bσ² if the ``setting`` has "b", otherwise its
    "beta". The threshold γ of the event is its "gamma", or 1.
    """
    beta = setting["b"] * world.problem.sigma**2 if "b" in setting else setting["beta"]
    return optimistic_ucb1(world.problem, world.clients, world.steps, beta, setting.get("gamma", 1.0))


@known_as(fitted_kernel_ucb)
def kernel(world: World, setting: Setting) -> Trace:
    """Play kernel UCB with hyperparameters fitted once after Phase I, and κ = ``setting["kappa"]``."""
    return fitted_kernel_ucb(world.problem, world.clients, world.rounds, setting["kappa"])


@known_as(guarded_fed_go_ucb)
def play_guarded(world: World, setting: Setting) -> Trace:
    """Play Fed-GO-UCB inside a guard, with λ and β the "lam" and "beta" of the ``setting``. All other entries of the
    setting replace fields of the world's `guarantee`, for instance F or σ.
    """
    promise = guarantee(world, **{name: setting[name] for name in setting if name not in ("lam", "beta")})
    how = Settings(setting["lam"], setting["beta"], encoding=world.encoding)
    return guarded_fed_go_ucb(world.problem, world.shared, how, promise)


def guarantee(world: World, **values: Any) -> Guarantee:
    """Return the `Guarantee` of a guard on ``world``.

    F and σ are those of its problem, γ is `GUARD_GAMMA`, and ``simultaneous`` is true, because all clients of the
    simulator synchronise at the same step. The other fields have the defaults of `Guarantee`.

    Args:
        world: The problem and the clients.
        values: Fields of `Guarantee` that replace any of these.

    Raises:
        ValueError: Neither the problem nor ``values`` has a bound F on |f|.
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
    """Return a `Play` in which a surrogate is played in epochs (`surrogate_ucb`), with κ the "kappa" of the setting.

    Args:
        model: A function from a world to one surrogate, or to one for each run. In the second case they are linearised
            at the ŵ₀ of Phase I, which is then played with the world's start.
        until: When an epoch ends.
        planning: "joint" or "own".
        informed: Whether the surrogate sees the data of Phase I.
        guard: The γ of a guard inside which the surrogate plays. None means without a guard.
        arms_first: Whether each arm is pulled once in place of Phase I. Phase II is then shorter, so that the pulls of
            both are at most NT.
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
    """Return a `Play` of the advised setting, or of another setting ``how``; the entries of a player's setting replace
    fields of it.
    """

    @known_as(Advised.play, {} if how == ADVISED else {"how": how})
    def play(world: World, setting: Setting) -> Trace:
        return replace(how, **setting).play(world.problem, world.clients, world.rounds)

    return play
