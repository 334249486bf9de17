"""What the regime map says: who wins, by how much, and who gets stuck."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgo.beyond.map.roster import PLAYERS
from fedgo.beyond.map.studies import MAIN, REGIMES
from fedgo.experiments.results import evaluated
from fedgo.experiments.runner import until_written
from fedgo.experiments.summaries import RESAMPLES, Array, interval
from fedgo.experiments.world import Regime

STUCK = (
    0.1  # of what uniform play loses: a run that loses more than that in its last tenth of the steps is stuck
)
Statistic = Callable[..., Any]  # of samples (…, S), called with the axis of the runs


@until_written
def evaluations() -> Mapping[tuple[Regime, str], Any]:
    """The rows of every (regime, player) of the map's evaluation, run by run."""
    return {(regime, name): rows for regime in REGIMES for name, rows in evaluated("map", regime).items()}


def regimes() -> list[Regime]:
    """The regimes of the map, in its order, on which all of `MAIN` have a cell."""
    return [regime for regime in REGIMES if all((regime, name) in evaluations() for name in MAIN)]


def players_on(regime: Regime) -> list[str]:
    """Who has a cell on ``regime``, in the order of the registry."""
    return [name for name in PLAYERS if (regime, name) in evaluations()]


def title(name: str) -> str:
    """What the book calls a player of the map."""
    return PLAYERS[name].title or name


def worst(regrets: Any, axis: int = -1) -> Any:
    """Return the mean of the worst tenth of the runs on the last ``axis`` of ``regrets``, of one run at least."""
    several = np.sort(regrets, axis)[..., -max(1, round(np.shape(regrets)[axis] / 10)) :]
    return several.mean(axis)


@until_written
def uniform_loss(regime: Regime) -> float:
    """What a step of uniform play loses, on average over the runs of ``regime`` that somebody has."""
    runs = max(len(evaluations()[regime, name]) for name in players_on(regime))
    means = regime.world(range(runs)).problem.means
    return float((means.amax(1) - means.mean(1)).mean())


def stuck(regime: Regime, player: str) -> npt.NDArray[np.bool_]:
    """Which runs still lose, in the last tenth of the steps, more than `STUCK` of what uniform play does, (S,) bool."""
    return np.asarray(evaluations()[regime, player].late_regret > STUCK * uniform_loss(regime))


class Across(NamedTuple):
    """What a player does on a group of regimes.

    Args:
        regret: The geometric mean over the regimes of its mean regret over what uniform play loses in as many steps.
        tenth: The same of its worst tenth.
        stuck: How many of its runs are `stuck`.
        runs: How many runs it has.
    """

    regret: float
    tenth: float
    stuck: int
    runs: int


def across(group: Sequence[Regime], player: str) -> Across:
    """What ``player`` does on the regimes of ``group``."""
    regrets = [
        evaluations()[regime, player].regret / uniform_loss(regime) / regime.world(1).steps
        for regime in group
    ]
    logs = np.log([[each.mean(), worst(each)] for each in regrets])
    regret, tenth = np.exp(logs.mean(0)).tolist()
    flags = np.concatenate([stuck(regime, player) for regime in group])
    return Across(regret, tenth, int(flags.sum()), len(flags))


def paired(
    regime: Regime, ours: str, other: str, column: str = "regret", study: str = "map"
) -> tuple[Array, Array]:
    """Return a ``column`` of two players, their final regrets unless given, on their common runs, (S,) each."""
    found = (
        evaluated(study, regime)
        if study != "map"
        else {name: evaluations()[regime, name] for name in (ours, other)}
    )
    one, two = (found[name][column].to_numpy(dtype=float) for name in (ours, other))
    runs = min(len(one), len(two))
    return one[:runs], two[:runs]


def difference(regime: Regime, ours: str, other: str, **which: str) -> tuple[float, float, float]:
    """Return the mean of ``ours`` minus that of ``other``, with its interval; ``which`` as `paired` has it."""
    one, two = paired(regime, ours, other, **which)
    return interval(np.mean, one - two)


def ratio(
    regime: Regime, ours: str, other: str, of: Statistic = np.mean, study: str = "map"
) -> tuple[float, float, float]:
    """Return the mean regret of ``ours`` over that of ``other`` with its interval, or another statistic ``of`` it."""
    one, two = paired(regime, ours, other, study=study)
    return interval(lambda *both, axis: of(both[0], axis=axis) / of(both[1], axis=axis), one, two)


def half_tail(regrets: Any, axis: int = -1) -> Any:
    """Return the middle between the mean and the worst tenth of ``regrets``, by which settings are chosen."""
    return (np.mean(regrets, axis) + worst(regrets, axis)) / 2


def geometric(
    group: Sequence[Regime], ours: str, other: str, of: Statistic = np.mean
) -> tuple[float, float, float]:
    """Return the geometric mean over the regimes of ``group`` of `ratio`, with its interval.

    The runs of each regime are drawn again independently of those of the others.
    """
    parts = [paired(regime, ours, other) for regime in group]
    draws, source = [], np.random.default_rng(0)
    for resample in range(RESAMPLES + 1):
        logs = []
        for one, two in parts:
            runs = source.integers(len(one), size=len(one)) if resample else slice(None)
            logs.append(np.log(of(one[runs]) / of(two[runs])))
        draws.append(np.exp(np.mean(logs)))
    low, high = np.quantile(draws[1:], (0.025, 0.975))
    return float(draws[0]), float(low), float(high)


class Compared(NamedTuple):
    """In how many regimes one player has ``less`` regret than another, in how many ``more``, each with 95 %
    confidence, and in how many the two are ``level``: their paired runs do not tell them apart."""

    less: int
    level: int
    more: int


def count_regimes(group: Sequence[Regime], ours: str, other: str) -> Compared:
    """Count the regimes of ``group`` where the interval of `ratio`, the regret of ``ours`` over that of ``other``,
    lies below 1, holds 1, or lies above 1."""
    intervals = [ratio(regime, ours, other)[1:] for regime in group]
    less, more = sum(high < 1 for _, high in intervals), sum(low > 1 for low, _ in intervals)
    return Compared(less, len(intervals) - less - more, more)


def leader(regime: Regime) -> str:
    """The player with the least mean regret: one after the other, those with most runs first, over common runs."""
    first, *others = sorted(players_on(regime), key=lambda name: -len(evaluations()[regime, name]))
    for name in others:
        first = name if difference(regime, name, first)[0] < 0 else first
    return first


def alike(regime: Regime) -> list[str]:
    """The leader, and who cannot be told from it: the interval of the paired difference holds 0."""
    first = leader(regime)
    others = [name for name in players_on(regime) if name != first]
    return [first, *(name for name in others if difference(regime, name, first)[1] <= 0)]
