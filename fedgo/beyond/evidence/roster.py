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
from fedgo.beyond.method.epochs import Beginning, Growing, Optimism, each_arm, surrogate_ucb
from fedgo.beyond.method.gaussian_process import GaussianProcess
from fedgo.beyond.method.networks import LinearisedOnce, Relinearised
from fedgo.beyond.method.surrogates import Surrogate
from fedgo.experiments.players import Call, Player, from_scratch, grid, known_as
from fedgo.experiments.roster import ALGORITHMS
from fedgo.experiments.world import Regime, Setting, World
from fedgo.pages.figures import STYLES
from fedgo.phase_two import Settings
from fedgo.trace import Trace

GUARD_GAMMA = 0.3  # at this γ a guard synchronises about as often as Fed-GO-UCB with γ = 1


SurrogateOf = Callable[[World], Surrogate | tuple[Surrogate, ...]]  # one for all runs, or one for each


@known_as(optimistic_ucb1)
def ucb1(world: World, setting: Setting) -> Trace:
    """Play UCB1 in ``world``, where all clients share their counts and sums of rewards when an event fires.

    A client pulls the arm with the largest mean + √(2β ln t/n), where n counts the pulls of the arm and t those of all
    arms that the client knows of. It asks for a synchronisation when an event with the threshold γ fires
    (`optimistic_ucb1`).

    Args:
        world: Some runs of a problem, with N clients and T rounds.
        setting: A dictionary with β as "beta", or with b = β/σ² as "b", where σ is the standard deviation of the
            problem's noise. If it has "b", "beta" is not used. It may have γ as "gamma"; otherwise γ is 1.

    Returns:
        The trace of all ⌈√(NT)⌉ + NT pulls.

    Raises:
        KeyError: The ``setting`` has neither "b" nor "beta".
        ValueError: β is negative or not finite, γ is negative or NaN, or N or T is below 1.
        TypeError: A value is not a number.
    """
    beta = setting["b"] * world.problem.sigma**2 if "b" in setting else setting["beta"]
    return optimistic_ucb1(world.problem, world.clients, world.steps, beta, setting.get("gamma", 1.0))


@known_as(fitted_kernel_ucb)
def kernel(world: World, setting: Setting) -> Trace:
    """Play kernel UCB in ``world``, with hyperparameters that are fitted once, after the uniform pulls of Phase I.

    Args:
        world: Some runs of a problem, with N clients and T rounds.
        setting: A dictionary with κ ≥ 0 as "kappa", the weight of the posterior standard deviation in the index of an
            arm.

    Returns:
        The trace of the ⌈√(NT)⌉ pulls of Phase I and the NT pulls after them.

    Raises:
        KeyError: The ``setting`` has no "kappa".
        ValueError: κ is negative or not finite, N or T is below 1, or the Gaussian process refuses the data of Phase I,
            because fewer than two arms have been pulled, all mean rewards are equal, or the noise σ is 0.
        TypeError: κ is not a number.
        ImportError: BoTorch is missing.
        Exception: BoTorch finds no fit (its ``ModelFittingError``).
    """
    return fitted_kernel_ucb(world.problem, world.clients, world.rounds, setting["kappa"])


@known_as(guarded_fed_go_ucb)
def play_guarded(world: World, setting: Setting) -> Trace:
    """Play Fed-GO-UCB inside a guard in ``world``.

    The guard plays the arm that Fed-GO-UCB proposes if counts and sums of rewards certify it, and otherwise the arm
    with the largest upper confidence bound.

    Args:
        world: Some runs of a problem, with N clients and T rounds. Its Phase I is played if it has not been yet.
        setting: A dictionary with the regularisation weight λ and the squared radius β of Fed-GO-UCB as "lam" and
            "beta". All its other entries replace fields of the guard's numbers (`guarantee`), for instance the bound F
            on the mean rewards ("value") or the noise σ ("sigma").

    Returns:
        The trace of Phase I and Phase II.

    Raises:
        KeyError: The ``setting`` has no "lam" or no "beta".
        ValueError: A value is out of its range, or the fit of Phase I fails because the rewards are not of order 1.
        TypeError: There is no bound F, a value is of another kind, or an entry is no field of `Guarantee`.
    """
    promise = guarantee(world, **{name: setting[name] for name in setting if name not in ("lam", "beta")})
    how = Settings(setting["lam"], setting["beta"], encoding=world.encoding)
    return guarded_fed_go_ucb(world.shared, how, promise)


def guarantee(world: World, **values: Any) -> Guarantee:
    """Return the numbers of a guard for ``world``.

    A guard plays a proposed arm only if counts and sums of rewards certify it. The bound F on |f|, with f the mean
    reward of an arm, and the noise σ are those of the problem. The threshold γ of the event that starts a
    synchronisation is `GUARD_GAMMA` = 0.3, the failure probability δ = 0.1 and the price κ = 2. ``simultaneous`` is
    True, because all clients of the simulator synchronise at the same step.

    Args:
        world: Some runs of a problem, with its bound F if one is known.
        values: Fields of `Guarantee` that replace any of these, by name: F is "value", σ is "sigma", and the others are
            "gamma", "delta", "kappa" and "simultaneous".

    Raises:
        ValueError: A value is out of its range.
        TypeError: Neither the ``world`` nor ``values`` has a bound F, a value is of another kind, or one of ``values``
            is no field of `Guarantee`.
    """
    given = {"value": world.bound, "sigma": world.problem.sigma, "gamma": GUARD_GAMMA, "simultaneous": True}
    return Guarantee(**given | values)


def surrogate(
    model: SurrogateOf,
    until: Growing,
    informed: bool = True,
    guard: float | None = None,
    arms_first: bool = False,
) -> Call:
    """Return a function that plays a surrogate, a model of the rewards, in epochs.

    The surrogate is fitted anew before each epoch, which is planned by the largest posterior mean + κ·(posterior
    standard deviation).

    Args:
        model: A function from a world (some runs of a problem with N clients and T rounds) to one surrogate for all
            runs, or to a tuple with one for each run. The surrogates of a tuple have to be linearised at the ŵ₀ of the
            world's Phase I, because this Phase I is then the first part of the trace.
        until: The rule that ends an epoch.
        informed: Whether the surrogate is fitted to the data of Phase I too. If not, the first fit has no data, which
            only a `LinearisedOnce` accepts; with another surrogate it raises a ``ValueError``.
        guard: The threshold γ for synchronisations of a guard inside which the surrogate plays. None means without a
            guard.
        arms_first: Whether each of the K arms is pulled once in place of the ⌈√(NT)⌉ pulls of Phase I. Phase II is then
            shortened or lengthened to a whole number of rounds, so that both phases together have at most
            ⌈√(NT)⌉ + NT pulls. With a tuple of surrogates, or if no round is left, it raises a ``ValueError``.

    Returns:
        A function of a world and a setting, which has κ as "kappa". When it is called, it raises a
        ``KeyError`` if the setting has no "kappa"; a ``TypeError`` if there is to be a guard and no bound F on the mean
        rewards is known; and the errors of ``model`` and of `fedgo.beyond.method.epochs.surrogate_ucb`, for instance a
        ``ValueError`` if the first fit of a run fails.
    """

    def play(world: World, setting: Setting) -> Trace:
        """Play the surrogate of ``world`` in epochs, with the "kappa" of the ``setting`` as the weight of exploration,
        and return the trace.
        """
        fitted, arms, rounds = model(world), world.problem.means.shape[1], world.rounds
        start = world.shared if isinstance(fitted, tuple) else None  # linearised once, at each run's own ŵ₀
        exploration = None
        if arms_first:
            exploration, rounds = each_arm(world.problem, arms), (world.steps - arms) // world.clients
        begins = Beginning(start, exploration, informed)
        promise = None if guard is None else guarantee(world, gamma=guard)
        return surrogate_ucb(
            world.problem, fitted, world.clients, rounds, until=until,
            optimism=Optimism(setting["kappa"]), begins=begins, guarantee=promise,
        )  # fmt: skip

    return play


WITHOUT_MISFIT = replace(ADVISED, surrogate=GaussianProcess(warp=True, misfit=False))


def advised(how: Advised = ADVISED) -> Call:
    """Return a function that plays the recommended method, or of another method ``how`` of the same kind.

    It takes a world (some runs of a problem with N clients and T rounds) and a setting. The entries of
    the setting replace numbers of the method by name: "kappa", "untried", "share", "few", "bold", "least" or "growth"
    (`Advised.setting`). It raises a ``ValueError`` if an entry has another name or is out of its range, a
    ``TypeError`` if it is of another kind, and the errors of `Advised.play`.
    """

    @known_as(Advised.play, {} if how == ADVISED else {"how": how})
    def play(world: World, setting: Setting) -> Trace:
        """Play the method in ``world``, with the entries of the ``setting`` in place of its numbers, and return the
        trace.
        """
        return how.set({**how.setting, **setting}).play(world.problem, world.clients, world.rounds)

    return play


def process(world: World) -> Surrogate:
    """Return BoTorch's Gaussian process as the surrogate, the model of the rewards, for every run.

    ``world``, some runs of a problem, is not used.

    Raises:
        ImportError: BoTorch is missing.
    """
    return GaussianProcess()


def network(world: World) -> Surrogate:
    """Return a surrogate that at every fit fits a network to all data anew and linearises it at the fitted parameters.

    It is the network with 25 hidden units for the features of the arms of ``world``, which is some runs of a problem
    with N clients and T rounds.
    """
    return Relinearised(world.network)


def once(world: World) -> tuple[Surrogate, ...]:
    """Return for each run the network of ``world`` as a surrogate that is linearised once, at the ŵ₀ of Phase I.

    ŵ₀ are the parameters that are fitted to the rewards of Phase I, which is played if it has not been yet. The
    regularisation weight λ = 0.0001 is the one that the tuning chose for Fed-GO-UCB on Hartmann6.

    Raises:
        ValueError: The number of clients or rounds of ``world`` is below 1, or the fit of Phase I fails because the
            rewards are not of order 1.
    """
    return LinearisedOnce.at(world.shared, lam=0.0001)


CERTIFIED = 20  # a guard certifies something from about this many pulls of each arm on


def up_to_500(regime: Regime) -> bool:
    """Return whether ``regime``, a problem with its sizes, has at most 500 arms and at most 100 rounds.

    Players that are slow on larger regimes play only on such ones.
    """
    return regime.arms <= 500 and regime.rounds <= 100


def few_arms(regime: Regime) -> bool:
    """Return whether ``regime``, a problem with its sizes, is one on which the slowest players play.

    It is if it has at most 50 arms and at most 100 rounds, or if it is Hartmann6 with 500 arms, noise of the standard
    deviation σ = 0.1, 100 rounds and 20 clients.
    """
    return up_to_500(regime) and (regime.arms <= 50 or regime == Regime("hartmann6", 500))


def bounded(regime: Regime) -> bool:
    """Return whether the players with a guard play on ``regime``, a problem with K arms, N clients and T rounds.

    They do if a bound on the mean rewards of the problem is known, each arm has at least `CERTIFIED` = 20 of the NT
    pulls of Phase II on average (NT/K ≥ 20), and K is at most 50.

    Raises:
        ValueError: The problem of the regime is unknown.
    """
    return regime.entry.bound is not None and regime.pulls >= CERTIFIED and regime.arms <= 50


_KAPPA = grid(kappa=(1.0, 2.0, 3.0, 5.0))


_NOISE = grid(s=(3.0, 10.0), kappa=(1.0, 4.0))


_LINEAR = grid(s=(1.0, 10.0), kappa=(1.0, 4.0))


_GLB = grid(s=(1.0, 10.0), kappa=(1.0, 4.0), link=("identity",))


_KERNEL = grid(s=(1.0,), kappa=(1.0, 4.0), lengthscale=(0.3, 1.0))


EPOCHS = Growing(1.6)  # the factor is large because the fits take most of the time


PLAYERS: dict[str, Player] = {
    "advised": Player(
        advised(), grid(bold=(ADVISED.bold,), share=(ADVISED.share,)), style=STYLES["advised"]
    ),
    "before": Player(  # the recommended method before its model had a misfit
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
    """Return a player that plays the surrogate ``model`` in epochs and chooses the weight κ of exploration from 1, 2, 4
    and 8.

    ``until`` is the rule that ends an epoch, and ``how`` are further arguments of `surrogate`.
    """
    return Player(surrogate(model, until, **how), grid(kappa=(1.0, 2.0, 4.0, 8.0)))


def removed(world: World, setting: Setting) -> Trace:
    """Refuse to play a variant whose code was removed; its rows were played at commit d8000e1 or before."""
    raise NotImplementedError(
        "its clients planned each for itself or on an event; commit d8000e1 can play it"
    )


_REMOVED = Player(removed, grid(kappa=(1.0, 2.0, 4.0, 8.0)))

VARIANTS: dict[str, Player] = {
    "process": _variant(process),
    "process, each for itself": _REMOVED,
    "process, event": _REMOVED,
    "process, short epochs": _variant(process, until=Growing(1.3)),
    "process, each arm first": _variant(process, arms_first=True),
    "network, refitted": _variant(network),
    "network, as printed but refitted": _REMOVED,
    "network, linearised once": _variant(once),
    "network, as printed with Phase I data": _REMOVED,
    "network, as printed": _REMOVED,
}


WITH_MANY = ("process", "network, refitted", "network, linearised once")
