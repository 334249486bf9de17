"""What the tables of the studies say: which settings are chosen, and in the regime map who wins, by how much, and who
gets stuck."""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from joblib import Parallel, delayed, effective_n_jobs

from fedgo._checks import count, on_cpu, require, require_kind
from fedgo.beyond.surrogates import GaussianProcess, Relinearised, Surrogate
from fedgo.confidence import Tally
from fedgo.experiments.player import Player, Setting, World
from fedgo.experiments.regime import EXPERIMENTS, TUNING_SEED, Regime
from fedgo.experiments.roster import ALGORITHMS, EVERY, LINE_THREE, PLAYERS
from fedgo.experiments.runner import Known, Regimes, key, read
from fedgo.experiments.studies import MAIN, MAP, REGIMES, STUDIES
from fedgo.experiments.summaries import Array, interval
from fedgo.trace import Trace

STUCK = 0.1  # of what uniform play loses: a run that loses more than that in its last tenth of the steps
BATCH = 50  # runs that `evaluate` plays at a time


@cache
def known(study: str) -> Known:
    """The rows of a study's table."""
    return Known(read(study))


def chosen(study: str, player: str, regime: Regime) -> dict[str, Any]:
    """The setting with which ``player`` plays ``regime`` in a study, as its table's rows decide it."""
    found = STUDIES[study].chosen(known(study), player, regime)
    require(found is not None, "player", player, f"it has no setting yet; make study NAME={study}")
    return dict(found or {})


@cache
def ranked(study: str, player: str, group: Regimes) -> list[list[dict[str, Any]]]:
    """The settings on every rung of a choice, from the best on."""
    found = STUDIES[study].choice(known(study), player, group)
    grid = {key(setting): dict(setting) for setting in STUDIES[study].players[player].grid}
    return [[grid[one] for one in rung] for rung in found.ranked]


def tuned(name: str, algorithm: str, study: str = "tune") -> dict[str, Any]:
    """The setting of ``algorithm`` that was best on the experiment ``name``, in the book's tuning or in another."""
    require(name in EXPERIMENTS, "name", name, f"choose one of {tuple(EXPERIMENTS)}")
    there = tuple(STUDIES[study].players)
    require(algorithm in there, "algorithm", algorithm, f"choose one of {there}")
    return dict(ranked(study, algorithm, (EXPERIMENTS[name],))[-1][0])


@on_cpu
def evaluate(
    name: str,
    runs: int,
    seed: int = 0,
    algorithms: Sequence[str] = tuple(ALGORITHMS),
    study: str = "tune",
    **options: Any,
) -> dict[str, Trace]:
    """The traces of ``algorithms`` at their tuned settings on ``runs`` runs of the experiment ``name``.

    The runs are taken fifty at a time, which bounds the memory and changes nothing else. Under
    ``joblib.parallel_config`` every algorithm and every fifty runs are played apart, with the same result. ``study``
    names another tuning than the book's (`tuned`), ``options`` go to the problem.
    """
    require_kind(not isinstance(algorithms, str), "algorithms", algorithms, "give a sequence of names")
    unknown = [algorithm for algorithm in algorithms if algorithm not in ALGORITHMS | LINE_THREE]
    require(not unknown, "algorithms", unknown, f"choose from {(*ALGORITHMS, *LINE_THREE)}")
    count("runs", runs, "give at least one run")
    require(seed != TUNING_SEED, "seed", seed, "it is the tuning instances' own; evaluate on another")
    settings = {algorithm: tuned(name, algorithm, study) for algorithm in algorithms}
    together = effective_n_jobs() == 1  # they share a Phase I
    groups = [settings] if together else [{algorithm: one} for algorithm, one in settings.items()]
    batches = [range(first, min(first + BATCH, runs)) for first in range(0, runs, BATCH)]
    parts = Parallel()(
        delayed(_traces)(EXPERIMENTS[name], batch, seed, group, options)
        for batch, group in product(batches, groups)
    )
    return {
        algorithm: Trace.join([part[algorithm] for part in parts if algorithm in part])
        for algorithm in algorithms
    }


def _traces(
    regime: Regime, runs: range, seed: int, settings: Mapping[str, Setting], options: Mapping[str, Any]
) -> dict[str, Trace]:
    world = regime.world(runs, seed, **options)
    return {algorithm: EVERY[algorithm].run(world, setting) for algorithm, setting in settings.items()}


def traces(
    player: Player, regime: Regime, setting: Setting, runs: int, seed: int = 0, **options: Any
) -> Trace:
    """``runs`` runs of a ``player`` on ``regime``, fifty at a time."""
    batches = [
        range(first, min(first + BATCH, runs))
        for first in range(0, count("runs", runs, "give at least one run"), BATCH)
    ]
    return Trace.join([player.run(regime.world(batch, seed, **options), setting) for batch in batches])


# --- The regime map


@cache
def cells() -> Mapping[tuple[Regime, str], Any]:
    """The rows of every (regime, player) of the map's evaluation, run by run."""
    table = read("map")
    rows = table[table["seed"] == MAP.seed]
    found = {}
    for (*where, player), part in rows.groupby(["problem", "arms", "sigma", "rounds", "clients", "player"]):
        found[Regime(*where), player] = part.sort_values("run")
    return found


def regimes() -> list[Regime]:
    """The regimes of the map, in its order, on which all of `MAIN` have a cell."""
    return [regime for regime in REGIMES if all((regime, name) in cells() for name in MAIN)]


def players(regime: Regime) -> list[str]:
    """Who has a cell on ``regime``, in the order of the registry."""
    return [name for name in PLAYERS if (regime, name) in cells()]


def title(name: str) -> str:
    """What the book calls a player of the map."""
    return PLAYERS[name].title or name


def worst(regrets: Any) -> float:
    """The mean of the worst tenth of the runs, of one run at least."""
    return float(np.sort(regrets)[-max(1, round(len(regrets) / 10)) :].mean())


@cache
def uniform(regime: Regime) -> float:
    """What a step of uniform play loses, on average over the runs of ``regime`` that somebody has."""
    runs = max(len(cells()[regime, name]) for name in players(regime))
    means = regime.world(range(runs)).problem.means
    return float((means.amax(1) - means.mean(1)).mean())


def share(regime: Regime, player: str) -> float:
    """The mean regret of ``player`` over that of uniform play in as many steps."""
    return float(cells()[regime, player].regret.mean()) / (uniform(regime) * regime.world(1).steps)


def stuck(regime: Regime, player: str) -> npt.NDArray[np.bool_]:
    """Which runs still lose, in the last tenth of the steps, more than `STUCK` of what uniform play does, (S,) bool."""
    return np.asarray(cells()[regime, player].late_regret > STUCK * uniform(regime))


def paired(regime: Regime, ours: str, other: str) -> tuple[Array, Array]:
    """The final regrets of two players on their common runs."""
    one, two = (cells()[regime, name].regret.to_numpy() for name in (ours, other))
    runs = min(len(one), len(two))
    return one[:runs], two[:runs]


def difference(regime: Regime, ours: str, other: str) -> tuple[float, float, float]:
    """The mean regret of ``ours`` minus that of ``other`` over their common runs, with its interval."""
    one, two = paired(regime, ours, other)
    return interval(np.mean, one - two)


def ratio(regime: Regime, ours: str, other: str) -> tuple[float, float, float]:
    """The mean regret of ``ours`` over that of ``other`` on their common runs, with its interval."""
    return interval(lambda one, two, axis: one.mean(axis) / two.mean(axis), *paired(regime, ours, other))


def leader(regime: Regime) -> str:
    """The player with the least mean regret: one after the other, those with most runs first, over common runs."""
    first, *others = sorted(players(regime), key=lambda name: -len(cells()[regime, name]))
    for name in others:
        first = name if difference(regime, name, first)[0] < 0 else first
    return first


def alike(regime: Regime) -> list[str]:
    """The leader, and who cannot be told from it: the interval of the paired difference holds 0."""
    first = leader(regime)
    others = [name for name in players(regime) if name != first]
    return [first, *(name for name in others if difference(regime, name, first)[1] <= 0)]


def absent() -> dict[tuple[str, str], list[Regime]]:
    """The regimes on which a player is not played, by the player and the reason."""
    found: dict[tuple[str, str], list[Regime]] = {}
    for name, regime in product(PLAYERS, REGIMES):
        if reason := PLAYERS[name].not_on(regime):
            found.setdefault((name, reason), []).append(regime)
    return found


class Belief(NamedTuple):
    """What a surrogate believes at the end of a ``run`` with this ``regret``.

    The best arm was pulled ``pulls`` times; its mean reward is ``error`` of the surrogate's standard deviations above
    the surrogate's mean for it; and it takes κ = ``needed`` for the optimist to prefer it to the largest mean.
    """

    run: int
    regret: float
    pulls: int
    error: float
    needed: float


def beliefs(regime: Regime, player: str, picked: Sequence[int], **changes: float) -> list[Belief]:
    """The runs ``picked`` of a surrogate's cell played again, with ``changes`` of its setting, and what it believes."""
    world: World = regime.world(picked, encoding=MAP.encoding)
    trace = PLAYERS[player].play(world, chosen("map", player, regime) | changes)
    arms = world.problem.means.shape[1]
    surrogate: Surrogate = GaussianProcess() if player == "process" else Relinearised(world.network)
    found = []
    for at, run in enumerate(picked):
        counts = torch.bincount(trace.arm[at], minlength=arms).double()
        sums = torch.bincount(trace.arm[at], weights=trace.reward[at], minlength=arms)
        fit = surrogate.fit(world.problem.arms[at], Tally(counts, sums), world.problem.sigma)
        truth = world.problem.means[at]
        best = int(truth.argmax())
        spread = fit.variance[best].clamp(min=1e-12).sqrt()
        error, needed = (truth[best] - fit.mean[best], fit.mean.max() - fit.mean[best])
        regret, pulls = float(trace.regret[at].sum()), int(counts[best])
        found.append(Belief(run, regret, pulls, float(error / spread), float(needed / spread)))
    return found
