"""How the players beyond the paper play a world: UCB1, guards, surrogates, the recommended method, and rivals.

A world is some runs of a problem with its numbers of clients and rounds. A setting has the values of an algorithm's
parameters by name.
"""

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

GUARD_GAMMA = 0.3  # at this γ a guard synchronises about as often as Fed-GO-UCB with γ = 1


SurrogateOf = Callable[[World], Surrogate | tuple[Surrogate, ...]]  # one for all runs, or one for each


@known_as(optimistic_ucb1)
def ucb1(world: World, setting: Setting) -> Trace:
    """Play UCB1 on the counts of all clients in ``world``.

    The ``setting`` has the weight β of the interval's width as "beta", or b = β/σ² as "b", with σ the noise of the
    problem. It may have the threshold γ of the event as "gamma"; otherwise γ is 1.
    """
    beta = setting["b"] * world.problem.sigma**2 if "b" in setting else setting["beta"]
    return optimistic_ucb1(world.problem, world.clients, world.steps, beta, setting.get("gamma", 1.0))


@known_as(fitted_kernel_ucb)
def kernel(world: World, setting: Setting) -> Trace:
    """Play kernel UCB with hyperparameters that are fitted once, after Phase I.

    The ``setting`` has as "kappa" the weight κ of the posterior standard deviation in the index of an arm.
    """
    return fitted_kernel_ucb(world.problem, world.clients, world.rounds, setting["kappa"])


@known_as(fn_ucb)
def federated_neural(world: World, setting: Setting) -> Trace:
    """Play FN-UCB in ``world``, with the weight ν√λ = κσ of the widths and the regularisation weight λ = (σ/s)².

    σ is the noise of the problem, and the ``setting`` has κ as "kappa" and s as "s".
    """
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
    """Play Fed-GO-UCB inside a guard in ``world``.

    The ``setting`` has the regularisation weight λ and the squared radius β of Fed-GO-UCB as "lam" and "beta". All its
    other entries replace fields of the guard's numbers (`guarantee`), for instance the bound F or σ.
    """
    promise = guarantee(world, **{name: setting[name] for name in setting if name not in ("lam", "beta")})
    how = Settings(setting["lam"], setting["beta"], encoding=world.encoding)
    return guarded_fed_go_ucb(world.problem, world.shared, how, promise)


def guarantee(world: World, **values: Any) -> Guarantee:
    """Return the numbers of a guard for ``world``.

    F is the bound of its problem on |f|, σ its noise, γ is `GUARD_GAMMA`, and ``simultaneous`` is True, because all
    clients of the simulator synchronise at the same step. The other fields have the defaults of `Guarantee`.

    Args:
        world: The problem and the clients.
        values: Fields of `Guarantee` that replace any of these.

    Raises:
        ValueError: Neither the problem nor ``values`` has a bound F on |f|, or a value is out of its range.
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
    """Return a `Play` that plays a surrogate in epochs, with the "kappa" of a setting as the weight κ of exploration.

    Args:
        model: A function from a world to one surrogate for all runs, or to a tuple with one for each run. The
            surrogates of a tuple are linearised at the ŵ₀ of Phase I, so that this Phase I is played first.
        until: The rule that ends an epoch.
        planning: "joint" for one plan for all clients, or "own" if each client plans for itself.
        informed: Whether the surrogate is fitted to the data of Phase I too.
        guard: The threshold γ of a guard inside which the surrogate plays. None means without a guard.
        arms_first: Whether each arm is pulled once in place of Phase I. Phase II is then shorter, so that both phases
            together have at most as many pulls as any other player has.
    """

    def play(world: World, setting: Setting) -> Trace:
        """Play the surrogate of ``world`` in epochs, with κ the "kappa" of the ``setting``."""
        fitted, arms, rounds = model(world), world.problem.means.shape[1], world.rounds
        once = isinstance(fitted, tuple)  # the surrogates are linearised once, at each run's own ŵ₀
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
    """Return a `Play` of the recommended method, or of another method ``how`` of the same kind.

    The entries of the setting that the `Play` is given replace fields of the method.
    """

    @known_as(Advised.play, {} if how == ADVISED else {"how": how})
    def play(world: World, setting: Setting) -> Trace:
        """Play the method in ``world``, with the entries of the ``setting`` as its fields."""
        return replace(how, **setting).play(world.problem, world.clients, world.rounds)

    return play
