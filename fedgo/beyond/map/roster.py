"""The players beyond the paper.

`PLAYERS` are those of the regime map. `VARIANTS` are surrogates that differ in one thing each. `EVERY` has the paper's
algorithms and two players with the event of a guard.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedgo.beyond.advised import ADVISED, BEFORE, UCB1
from fedgo.beyond.epochs import Event, Growing
from fedgo.beyond.map import players as play
from fedgo.beyond.map.players import surrogate
from fedgo.beyond.surrogates.gaussian_process import GaussianProcess
from fedgo.beyond.surrogates.models import Surrogate
from fedgo.beyond.surrogates.networks import LinearisedOnce, Relinearised
from fedgo.experiments.figures import STYLES
from fedgo.experiments.players import Player, grid
from fedgo.experiments.roster import ALGORITHMS, GO_SETTINGS
from fedgo.experiments.world import Regime, Setting, World

# the paper's algorithms, Fed-GO-UCB in a guard, and UCB1 with the event and the messages of a guard
EVERY: Mapping[str, Player] = {
    **ALGORITHMS,
    "guarded": Player(play.play_guarded, setting_of="Fed-GO-UCB"),
    "counted": Player(play.ucb1, setting_of="UCB1, shared"),
}


def process(world: World) -> Surrogate:
    """Return BoTorch's Gaussian process as the surrogate for every run."""
    return GaussianProcess()


def network(world: World) -> Surrogate:
    """Return the network of ``world`` as a surrogate that is fitted and linearised again at every fit."""
    return Relinearised(world.network)


def once(world: World) -> tuple[Surrogate, ...]:
    """Return for each run the network of ``world`` as a surrogate that is linearised once, at ŵ₀.

    Its regularisation weight λ = 0.0001 is the one that the tuning chose for Fed-GO-UCB on Hartmann6.
    """
    return LinearisedOnce.at(world.shared, lam=0.0001)


CERTIFIED = 20  # a guard certifies something from about this many pulls of each arm on


def up_to_500(regime: Regime) -> bool:
    """Return whether ``regime`` has at most 500 arms and 100 rounds; players that are slow beyond play only there."""
    return regime.arms <= 500 and regime.rounds <= 100


def few_arms(regime: Regime) -> bool:
    """Return whether ``regime`` is one on which the slowest players play.

    It has at most 50 arms and 100 rounds, or is Hartmann6 with 500 arms.
    """
    return up_to_500(regime) and (regime.arms <= 50 or regime == Regime("hartmann6", 500))


def bounded(regime: Regime) -> bool:
    """Return whether a guard plays on ``regime``.

    It does if a bound on |f| is known, each arm has at least `CERTIFIED` = 20 pulls on average, and there are at most
    50 arms.
    """
    return regime.entry.bound is not None and regime.pulls >= CERTIFIED and regime.arms <= 50


_KAPPA = grid(kappa=(1.0, 2.0, 3.0, 5.0))


_NOISE = grid(s=(3.0, 10.0), kappa=(1.0, 4.0))


_LINEAR = grid(s=(1.0, 10.0), kappa=(1.0, 4.0))


GROWTH = 1.6  # the factor by which an epoch grows; it is large because the fits take most of the time


_EPOCHS = Growing(GROWTH)


def _of_the_paper(name: str, settings: tuple[Setting, ...], **changes: Any) -> Player:
    """Return the paper's player ``name`` with the grid ``settings`` and other ``changes`` of its fields."""
    return replace(ALGORITHMS[name], grid=settings, **changes)


PLAYERS: dict[str, Player] = {
    "advised": Player(
        play.advised(), grid(bold=(ADVISED.bold,), share=(ADVISED.share,)), style=STYLES["advised"]
    ),
    "before": Player(  # the advised setting before it knew its budget
        play.advised(BEFORE), grid(kappa=(3.0,), untried=(5.0,), share=(0.5,)), style=("#3D8BFD", "h"),
        plays_on=lambda regime: not BEFORE.tries_all(regime.clients * regime.rounds, regime.arms),
    ),
    "UCB1, planned": Player(play.advised(UCB1), grid(kappa=(1.0, 2.0, 3.0, 4.0)), style=("#9A6FB0", "d")),
    "each arm first": Player(
        play.advised(replace(BEFORE, few=1e9)), setting_of="before", style=("#B08030", "P"),
        plays_on=lambda regime: regime.pulls >= 2,
    ),
    "UCB1": Player(play.ucb1, grid(b=(0.02, 0.06, 0.2, 0.6)), style=ALGORITHMS["UCB1, shared"].style),
    "Fed-GO-UCB": _of_the_paper("Fed-GO-UCB", _NOISE),
    "process": Player(
        surrogate(process, _EPOCHS), _KAPPA, title="Gaussian process", style=("#8F8A00", "D")
    ),
    "network": Player(
        surrogate(network, _EPOCHS), _KAPPA, title="network, refitted", style=("#5B5BD6", "^")
    ),
    "kernel": Player(
        play.kernel, _KAPPA, title="kernel, fitted once", style=ALGORITHMS["Kernel UCB, at once"].style,
        plays_on=up_to_500,
    ),
    "FN-UCB": Player(
        play.federated_neural, grid(s=(0.3, 3.0), kappa=(0.5, 2.0)), style=("#E0607E", "X"), plays_on=up_to_500,
        dense=True,
    ),
    "process, guarded": Player(
        surrogate(process, _EPOCHS, guard=1.0), title="Gaussian process, guarded", plays_on=bounded,
        setting_of="process",
    ),
    "network, guarded": Player(
        surrogate(network, _EPOCHS, guard=1.0), title="network, guarded", plays_on=bounded,
        setting_of="network",
    ),
    "One-GO-UCB": _of_the_paper("One-GO-UCB", _NOISE, plays_on=up_to_500),
    "N-GO-UCB": _of_the_paper("N-GO-UCB", _NOISE, plays_on=few_arms),
    "DisLinUCB": _of_the_paper("DisLinUCB", _LINEAR, plays_on=few_arms),
    "Fed-GLB-UCB": _of_the_paper(
        "Fed-GLB-UCB", tuple({**setting, "link": "identity"} for setting in _LINEAR), plays_on=up_to_500
    ),
    "ApproxDisKernelUCB": _of_the_paper(
        "ApproxDisKernelUCB", grid(s=(1.0,), kappa=(1.0, 4.0), lengthscale=(0.3, 1.0)), plays_on=few_arms
    ),
}  # fmt: skip


KAPPAS = (1.0, 2.0, 4.0, 8.0)


_DOUBLING = Growing(2.0)


_EVENT = Event(GO_SETTINGS.gamma)


def _variant(model: play.SurrogateOf, until: Growing | Event = _DOUBLING, **how: Any) -> Player:
    """Return a player that plays the surrogate ``model`` in epochs and chooses κ from `KAPPAS`.

    ``until`` is the rule that ends an epoch, and ``how`` are further arguments of `surrogate`.
    """
    return Player(surrogate(model, until, **how), grid(kappa=KAPPAS))


VARIANTS: dict[str, Player] = {
    "process": _variant(process),
    "process, each for itself": _variant(process, planning="own"),
    "process, event": _variant(process, _EVENT),
    "process, short epochs": _variant(process, until=Growing(1.3)),
    "process, each arm first": _variant(process, arms_first=True),
    "network, refitted": _variant(network),
    "network, as printed but refitted": _variant(network, _EVENT, planning="own"),
    "network, linearised once": _variant(once),
    "network, as printed with Phase I data": _variant(once, _EVENT, planning="own"),
    "network, as printed": _variant(once, _EVENT, planning="own", informed=False),
}


WITH_MANY = ("process", "network, refitted", "network, linearised once")


# each design choice with the variant that makes it and the variant that does not
PARTS: Mapping[str, tuple[str, str]] = {
    "network refitted": ("network, refitted", "network, linearised once"),
    "network refitted, otherwise as printed": (
        "network, as printed but refitted",
        "network, as printed with Phase I data",
    ),
    "Phase I data in the model": ("network, as printed with Phase I data", "network, as printed"),
    "joint plan instead of separate plans": ("process", "process, each for itself"),
    "epochs that double, not the event": ("process", "process, event"),
    "epochs that double, not by 1.3": ("process", "process, short epochs"),
    "process, not network": ("process", "network, refitted"),
    "each arm first, not uniform": ("process, each arm first", "process"),
}
