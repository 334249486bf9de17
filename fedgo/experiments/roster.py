"""Who plays: an entry for each player, with its function, the settings that it may choose from, and how it is drawn.

`ALGORITHMS` are the paper's comparison, `PLAYERS` those of the regime map, `VARIANTS` surrogates that differ in one
thing each. A new entry changes nothing for the others.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from fedgo.algorithms.approx_dis_kernel_ucb import approx_dis_kernel_ucb
from fedgo.algorithms.controls import exact_kernel_ucb, shared_ucb1
from fedgo.algorithms.dis_lin_ucb import dis_lin_ucb
from fedgo.algorithms.fed_glb_ucb import fed_glb_ucb
from fedgo.algorithms.go_ucb import fed_go_ucb, n_go_ucb, one_go_ucb
from fedgo.beyond.epochs import Event, Growing
from fedgo.beyond.surrogates import GaussianProcess, IndependentArms, LinearisedOnce, Relinearised, Surrogate
from fedgo.experiments import players as play
from fedgo.experiments.players import Player, Setting, World, from_scratch, from_start, grid, surrogate
from fedgo.experiments.regimes import Regime
from fedgo.phase_two import Settings

# One setting for the three GO algorithms on all four problems, from a coarse look at λ, β ∈ {0.01, …, 10} and
# γ ∈ {0.1, …, 10} on instances of the tuning seed, which no evaluation uses. The paper gives none of the three.
GO_SETTINGS = Settings(lam=0.01, beta=0.1, gamma=1.0)


def _wide(settings: Iterable[Setting], ratios: tuple[float, ...]) -> tuple[Setting, ...]:
    """``settings`` with every β for which β/λ is among ``ratios``: as λ falls, results depend on this ratio alone."""
    return tuple(
        {**setting, "beta": float(f"{setting['lam'] * ratio:.3g}")}
        for setting in settings
        for ratio in ratios
    )


def _decades(each: int, first: float, number: int) -> tuple[Setting, ...]:
    """``number`` β from 10^first on, ``each`` for a factor of ten."""
    return grid(beta=tuple(float(f"{10 ** (k / each + first):.3g}") for k in range(number)))


# The threshold γ is not tuned: for regret alone its best value is 0. It is 1 everywhere.
_RIDGE = _wide(grid(lam=(0.00001, 0.0001, 0.001, 0.01)), (1, 3, 10, 30, 100, 300, 1000, 3000))
_GLB = _wide(grid(link=("identity", "logistic"), lam=(0.01, 0.03, 0.1, 0.3)), (1, 10, 100, 1000))
_KERNEL = _wide(grid(lengthscale=(0.1, 0.3, 1.0, 3.0), lam=(0.001, 0.01)), (0.3, 3, 30, 300))

# The paper's.
SIX = ("Fed-GO-UCB", "One-GO-UCB", "N-GO-UCB", "DisLinUCB", "Fed-GLB-UCB", "ApproxDisKernelUCB")

# Colours that are seen on white and in the dark (contrast 3 with both grounds) and remain apart for colour-blind
# readers; the marker says the same without colour. The two greys turn lighter and darker in the dark.
ALGORITHMS: dict[str, Player] = {
    "Fed-GO-UCB": Player(from_start(fed_go_ucb), _RIDGE, style=("#D55E00", "o"), dense=True),
    "One-GO-UCB": Player(from_start(one_go_ucb), _RIDGE, style=("#0072B2", "s"), dense=True),
    "N-GO-UCB": Player(from_start(n_go_ucb, private=True), _RIDGE, style=("#5A965A", "^"), dense=True),
    "DisLinUCB": Player(from_scratch(dis_lin_ucb), _RIDGE, style=("#C31E6E", "v"), dense=True),
    "Fed-GLB-UCB": Player(from_scratch(fed_glb_ucb, "link"), _GLB, style=("#825F1E", "P"), dense=True),
    "ApproxDisKernelUCB": Player(
        from_scratch(approx_dis_kernel_ucb, "lengthscale"), _KERNEL, style=("#05A0C8", "X"), dense=True
    ),
    "Kernel UCB, at once": Player(
        from_scratch(exact_kernel_ucb, "lengthscale"), _KERNEL, style=("#AA5AE1", "*")
    ),
    "UCB1, shared": Player(from_scratch(shared_ucb1), _decades(8, -4.5, 32), style=("#444444", "d")),
    "Uniform": Player(play.uniform, style=("#888888", ".")),
}

# Line 3 as printed, by projected ascent, instead of the first-order index. Its grid has smaller balls than that of the
# first-order index: in a wide ball line 3 stays optimistic about every arm, however often the arm was pulled.
_SMALL = _wide(grid(lam=(0.0001, 0.01)), (0.1, 1, 10, 100))
LINE_THREE: dict[str, Player] = {
    "Fed-GO-UCB, line 3": Player(from_start(fed_go_ucb, argmax="ascent"), _SMALL),
    "One-GO-UCB, line 3": Player(from_start(one_go_ucb, argmax="ascent"), _SMALL),
}

# With them Fed-GO-UCB in a guard, and UCB1 on the guard's event and with its messages.
EVERY: Mapping[str, Player] = {
    **ALGORITHMS,
    "guarded": Player(play.guarded, setting_of="Fed-GO-UCB"),
    "counted": Player(play.ucb1, setting_of="UCB1, shared"),
}


def process(world: World) -> Surrogate:
    """BoTorch's Gaussian process."""
    return GaussianProcess()


def network(world: World) -> Surrogate:
    """The paper's network, fitted and linearised again and again."""
    return Relinearised(world.network)


def once(world: World) -> tuple[Surrogate, ...]:
    """The paper's network linearised once, at ŵ₀; λ is what the tuning chose for Fed-GO-UCB on Hartmann6."""
    return LinearisedOnce.at(world.shared, lam=0.0001)


# --- The regime map: all are told σ, and have four settings in units of it, or another's.

CERTIFIED = 20  # pulls for each arm from which a guard certifies something


def up_to_500(regime: Regime) -> bool:
    """Of those that are slow with many arms or rounds."""
    return regime.arms <= 500 and regime.rounds <= 100


def few_arms(regime: Regime) -> bool:
    """Of those that the map has on few arms, and on one regime with many."""
    return up_to_500(regime) and (regime.arms <= 50 or regime == Regime("hartmann6", 500))


def bounded(regime: Regime) -> bool:
    """Of a guard: where a bound on |f| can be read off, something would be certified, and arms are few."""
    return regime.entry.bound is not None and regime.pulls >= CERTIFIED and regime.arms <= 50


_KAPPA = grid(kappa=(1.0, 2.0, 3.0, 5.0))
_NOISE = grid(s=(3.0, 10.0), kappa=(1.0, 4.0))
_LINEAR = grid(s=(1.0, 10.0), kappa=(1.0, 4.0))
GROWTH = 1.6  # the factor of an epoch: fits are what costs time
_EPOCHS: Any = {"until": Growing(GROWTH)}


def _of_the_paper(name: str, settings: tuple[Setting, ...], **changes: Any) -> Player:
    return replace(ALGORITHMS[name], grid=settings, **changes)


PLAYERS: dict[str, Player] = {
    "advised": Player(
        play.advised(), grid(kappa=(2.0, 3.0), untried=(4.0, 5.0, 6.0), share=(0.5, 1.0)), style=("#0A7F5A", "*")
    ),
    "bold": Player(  # the advised setting with one κ for all arms, tried or not; the same where all are tried first
        play.advised(), grid(kappa=(3.0,), untried=(3.0,), share=(0.5,)), style=("#3D8BFD", "h"),
        plays_on=lambda regime: regime.pulls < 8,
    ),
    "UCB1, planned": Player(
        play.advised(surrogate=IndependentArms()), grid(kappa=(1.0, 2.0, 3.0, 4.0)), style=("#9A6FB0", "d")
    ),
    "each arm first": Player(
        play.advised(few=math.inf), setting_of="advised", style=("#B08030", "P"),
        plays_on=lambda regime: regime.pulls >= 2,
    ),
    "UCB1": Player(play.ucb1, grid(b=(0.02, 0.06, 0.2, 0.6)), style=ALGORITHMS["UCB1, shared"].style),
    "Fed-GO-UCB": _of_the_paper("Fed-GO-UCB", _NOISE),
    "process": Player(
        surrogate(process, **_EPOCHS), _KAPPA, title="Gaussian process", style=("#8F8A00", "D")
    ),
    "network": Player(
        surrogate(network, **_EPOCHS), _KAPPA, title="network, refitted", style=("#5B5BD6", "^")
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
        surrogate(process, guard=1.0, **_EPOCHS), title="Gaussian process, guarded", plays_on=bounded,
        setting_of="process",
    ),
    "network, guarded": Player(
        surrogate(network, guard=1.0, **_EPOCHS), title="network, guarded", plays_on=bounded,
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

# --- The ablation of "The map". Of the processes and of the networks refitted the first is the base; the
# others change one thing of it.

KAPPAS = (1.0, 2.0, 4.0, 8.0)
_DOUBLING: Any = {"until": Growing(2.0)}
_EVENT: Any = {"until": Event(GO_SETTINGS.gamma)}


def _variant(model: play.Model, **options: Any) -> Player:
    return Player(surrogate(model, **_DOUBLING | options), grid(kappa=KAPPAS))


VARIANTS: dict[str, Player] = {
    "process": _variant(process),
    "process, each for itself": _variant(process, planning="own"),
    "process, event": _variant(process, **_EVENT),
    "process, short epochs": _variant(process, until=Growing(1.3)),
    "process, each arm first": _variant(process, arms_first=True),
    "network, refitted": _variant(network),
    "network, as printed but refitted": _variant(network, planning="own", **_EVENT),
    "network, linearised once": _variant(once),
    "network, as printed with Phase I data": _variant(once, planning="own", **_EVENT),
    "network, as printed": _variant(once, planning="own", informed=False, **_EVENT),
}
WITH_MANY = ("process", "network, refitted", "network, linearised once")

# Each part with the variant that has it and the one that has not.
PARTS: Mapping[str, tuple[str, str]] = {
    "network refitted": ("network, refitted", "network, linearised once"),
    "network refitted, otherwise as printed": (
        "network, as printed but refitted",
        "network, as printed with Phase I data",
    ),
    "Phase I data in the model": ("network, as printed with Phase I data", "network, as printed"),
    "joint plan, not each for itself": ("process", "process, each for itself"),
    "epochs that double, not the event": ("process", "process, event"),
    "epochs that double, not by 1.3": ("process", "process, short epochs"),
    "process, not network": ("process", "network, refitted"),
    "each arm first, not uniform": ("process, each arm first", "process"),
}
