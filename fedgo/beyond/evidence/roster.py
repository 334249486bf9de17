"""The players beyond the paper: how each of them plays a world with a setting, and which of them a study compares.

A player is an algorithm with the settings that it may choose from. A setting has the values of its parameters by name.
A world has some runs of a bandit problem, with N clients and T rounds (`fedgo.experiments.world.World`). `PLAYERS` are
those of the regime map, which compares them on many problems and sizes. `VARIANTS` are surrogates that differ in one
thing each.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fedgo.beyond.evidence.rivals import fitted_kernel_ucb, fn_ucb
from fedgo.beyond.guarantees.guarantee import Guarantee, guarded_fed_go_ucb
from fedgo.beyond.guarantees.optimist import optimistic_ucb1
from fedgo.beyond.method.advised import ADVISED, UCB1, Advised
from fedgo.beyond.method.epochs import Growing, Optimism, each_arm, surrogate_ucb
from fedgo.beyond.method.gaussian_process import GaussianProcess
from fedgo.beyond.method.networks import Relinearised
from fedgo.beyond.method.surrogates import Surrogate
from fedgo.experiments.players import Call, Player, from_scratch, grid, known_as, measured
from fedgo.experiments.roster import ALGORITHMS
from fedgo.experiments.world import Regime, Setting, World
from fedgo.pages.figures import STYLES
from fedgo.phase_two import Settings
from fedgo.trace import Trace

GUARD_GAMMA = 0.3  # at this γ a guard synchronises about as often as Fed-GO-UCB with γ = 1


SurrogateOf = Callable[[World], Surrogate]


@known_as(optimistic_ucb1)
def ucb1(world: World, setting: Setting) -> Trace:
    """Play UCB1 in ``world``, where all clients share their counts and sums when an event fires (`optimistic_ucb1`).

    The setting has β as "beta", or b = β/σ² as "b", and perhaps γ as "gamma".
    """
    beta = setting["b"] * world.problem.sigma**2 if "b" in setting else setting["beta"]
    return optimistic_ucb1(world.problem, world.clients, world.steps, beta, setting.get("gamma", 1.0))


@known_as(fitted_kernel_ucb)
def kernel(world: World, setting: Setting) -> Trace:
    """Play kernel UCB with hyperparameters that are fitted once, after Phase I; the setting has κ as "kappa"."""
    return fitted_kernel_ucb(world.problem, world.clients, world.rounds, setting["kappa"])


@known_as(guarded_fed_go_ucb)
def play_guarded(world: World, setting: Setting) -> Trace:
    """Play Fed-GO-UCB inside a guard; the setting has "lam" and "beta", and fields of `guarantee`."""
    promise = guarantee(world, **{name: setting[name] for name in setting if name not in ("lam", "beta")})
    how = Settings(setting["lam"], setting["beta"], encoding=world.encoding)
    return guarded_fed_go_ucb(world.shared, how, promise)


def guarantee(world: World, **values: Any) -> Guarantee:
    """Return the numbers of a guard for ``world``: its F and σ, γ = `GUARD_GAMMA`, δ = 0.1 and κ = 2, or ``values``.

    ``simultaneous`` is True, because all clients of the simulator synchronise at the same step.
    """
    given = {"value": world.bound, "sigma": world.problem.sigma, "gamma": GUARD_GAMMA, "simultaneous": True}
    return Guarantee(**given | values)


def surrogate(
    model: SurrogateOf,
    until: Growing,
    guard: float | None = None,
    arms_first: bool = False,
) -> Call:
    """Return a function that plays a surrogate in epochs, with the "kappa" of a setting as the weight of exploration.

    Args:
        model: Returns for a world the surrogate of all runs.
        until: The rule that ends an epoch.
        guard: The threshold γ for synchronisations of a guard inside which the surrogate plays; None means without one.
        arms_first: Whether each of the K arms is pulled once in place of Phase I. Phase II is then shortened or
            lengthened to a whole number of rounds, so that both phases have at most ⌈√(NT)⌉ + NT pulls.
    """

    def play(world: World, setting: Setting) -> Trace:
        fitted, arms, rounds = model(world), world.problem.means.shape[1], world.rounds
        exploration = None
        if arms_first:
            exploration, rounds = each_arm(world.problem, arms), (world.steps - arms) // world.clients
        promise = None if guard is None else guarantee(world, gamma=guard)
        return surrogate_ucb(
            world.problem, fitted, world.clients, rounds, until=until,
            optimism=Optimism(setting["kappa"]), exploration=exploration, guarantee=promise,
        )  # fmt: skip

    return play


EPOCHS = Growing(1.6)  # the factor is large because the fits take most of the time


WITHOUT_MISFIT = replace(ADVISED, surrogate=GaussianProcess(warp=True, misfit=False), until=EPOCHS)


def advised(how: Advised = ADVISED) -> Call:
    """Return a function that plays the recommended method, or another method ``how`` of the same kind.

    The entries of a setting replace numbers of the method by name (`Advised.setting`).
    """

    @known_as(Advised.play, **({} if how == ADVISED else {"how": how}))
    def play(world: World, setting: Setting) -> Trace:
        return how.set({**how.setting, **setting}).play(world.problem, world.clients, world.rounds)

    return play


def process(world: World) -> Surrogate:
    """Return BoTorch's Gaussian process as the surrogate of every run."""
    return GaussianProcess()


def network(world: World) -> Surrogate:
    """Return a surrogate that at every fit fits the network of ``world`` to all data anew and linearises it there."""
    return Relinearised(world.network)


CERTIFIED = 20  # a guard certifies something from about this many pulls of each arm on


def up_to_500(regime: Regime) -> bool:
    """Return whether ``regime`` has at most 500 arms and 100 rounds, as players that are slow on larger ones need."""
    return regime.arms <= 500 and regime.rounds <= 100


def few_arms(regime: Regime) -> bool:
    """Return whether the slowest players play on ``regime``: with at most 50 arms, or 500 on Hartmann6."""
    return up_to_500(regime) and (regime.arms <= 50 or regime == Regime("hartmann6", 500))


def bounded(regime: Regime) -> bool:
    """Return whether the players with a guard play on ``regime``: F is known, NT/K ≥ `CERTIFIED` and K ≤ 50."""
    return regime.entry.bound is not None and regime.pulls >= CERTIFIED and regime.arms <= 50


_KAPPA = grid(kappa=(1.0, 2.0, 3.0, 5.0))


_NOISE = grid(s=(3.0, 10.0), kappa=(1.0, 4.0))


_LINEAR = grid(s=(1.0, 10.0), kappa=(1.0, 4.0))


_GLB = grid(s=(1.0, 10.0), kappa=(1.0, 4.0), link=("identity",))


_KERNEL = grid(s=(1.0,), kappa=(1.0, 4.0), lengthscale=(0.3, 1.0))


PLAYERS: dict[str, Player] = {
    "advised": Player(
        advised(), grid(bold=(ADVISED.bold,), share=(ADVISED.share,)), style=STYLES["advised"]
    ),
    "before": Player(  # the recommended method before its model had a misfit and was fitted more often
        advised(WITHOUT_MISFIT),
        grid(bold=(ADVISED.bold,), share=(ADVISED.share,)), style=("#3D8BFD", "h"),
    ),
    "UCB1, planned": Player(advised(UCB1), grid(kappa=(1.0, 2.0, 3.0, 4.0)), style=("#9A6FB0", "d")),
    "each arm first": Player(
        advised(replace(ADVISED, few=1e9)), setting_of="advised", style=("#B08030", "P"),
        plays_on=lambda regime: regime.pulls >= 2,
    ),
    "UCB1": Player(ucb1, grid(b=(0.02, 0.06, 0.2, 0.6)), style=ALGORITHMS["UCB1, shared"].style),
    "Fed-GO-UCB": replace(ALGORITHMS["Fed-GO-UCB"], grid=_NOISE),
    "process": Player(surrogate(process, EPOCHS), _KAPPA, title="Gaussian process", style=("#8F8A00", "D")),
    "network": Player(surrogate(network, EPOCHS), _KAPPA, title="network, refitted", style=("#5B5BD6", "^")),
    "kernel": Player(
        kernel, _KAPPA, title="kernel, fitted once", style=ALGORITHMS["Kernel UCB, at once"].style,
        plays_on=up_to_500,
    ),
    "FN-UCB": Player(
        from_scratch(fn_ucb), grid(s=(0.3, 3.0), kappa=(0.5, 2.0)), style=("#E0607E", "X"), plays_on=up_to_500,
        dense=True,
    ),
    "process, guarded": Player(
        surrogate(process, EPOCHS, guard=1.0), title="Gaussian process, guarded", plays_on=bounded,
        setting_of="process",
    ),
    "network, guarded": Player(
        surrogate(network, EPOCHS, guard=1.0), title="network, guarded", plays_on=bounded,
        setting_of="network",
    ),
    "One-GO-UCB": replace(ALGORITHMS["One-GO-UCB"], grid=_NOISE, plays_on=up_to_500),
    "N-GO-UCB": replace(ALGORITHMS["N-GO-UCB"], grid=_NOISE, plays_on=few_arms),
    "DisLinUCB": replace(ALGORITHMS["DisLinUCB"], grid=_LINEAR, plays_on=few_arms),
    "Fed-GLB-UCB": replace(ALGORITHMS["Fed-GLB-UCB"], grid=_GLB, plays_on=up_to_500),
    "ApproxDisKernelUCB": replace(ALGORITHMS["ApproxDisKernelUCB"], grid=_KERNEL, plays_on=few_arms),
}  # fmt: skip


_DOUBLING = Growing(2.0)


def _variant(model: SurrogateOf, until: Growing = _DOUBLING, **how: Any) -> Player:
    """Return a player of the surrogate ``model`` in epochs, with κ from 1, 2, 4 and 8; ``how`` is for `surrogate`."""
    return Player(surrogate(model, until, **how), grid(kappa=(1.0, 2.0, 4.0, 8.0)))


_REMOVED = Player(measured, grid(kappa=(1.0, 2.0, 4.0, 8.0)))  # `ABLATION` says which code has it

VARIANTS: dict[str, Player] = {
    "process": _variant(process),
    "process, each for itself": _REMOVED,
    "process, event": _REMOVED,
    "process, short epochs": _variant(process, until=Growing(1.3)),
    "process, each arm first": _variant(process, arms_first=True),
    "network, refitted": _variant(network),
    "network, as printed but refitted": _REMOVED,
    "network, linearised once": _REMOVED,
    "network, as printed with Phase I data": _REMOVED,
    "network, as printed": _REMOVED,
}


WITH_MANY = ("process", "network, refitted", "network, linearised once")
