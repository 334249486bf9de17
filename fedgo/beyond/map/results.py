"""What the regime map says: who wins, by how much, and who gets stuck."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgo.beyond.map.roster import PLAYERS
from fedgo.beyond.map.studies import MAIN, REGIMES
from fedgo.experiments.results import evaluated
from fedgo.experiments.runner import until_written
from fedgo.experiments.summaries import Array, interval
from fedgo.experiments.world import Regime

STUCK = 0.1  # of what uniform play loses: a run that loses more than that in its last tenth of the steps


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


def worst(regrets: Any) -> float:
    """The mean of the worst tenth of the runs, of one run at least."""
    return float(np.sort(regrets)[-max(1, round(len(regrets) / 10)) :].mean())


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
    """What a player does on a group of regimes: the geometric means of its mean ``regret`` and of its worst ``tenth``,
    both over what uniform play loses in as many steps, and how many of its ``runs`` still ``lose`` at the end."""

    regret: float
    tenth: float
    lose: int
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


def paired(regime: Regime, ours: str, other: str) -> tuple[Array, Array]:
    """The final regrets of two players on their common runs."""
    one, two = (evaluations()[regime, name].regret.to_numpy() for name in (ours, other))
    runs = min(len(one), len(two))
    return one[:runs], two[:runs]


def difference(regime: Regime, ours: str, other: str) -> tuple[float, float, float]:
    """The mean regret of ``ours`` minus that of ``other`` over their common runs, with its interval."""
    one, two = paired(regime, ours, other)
    return interval(np.mean, one - two)


def ratio(regime: Regime, ours: str, other: str) -> tuple[float, float, float]:
    """The mean regret of ``ours`` over that of ``other`` on their common runs, with its interval."""
    return interval(lambda one, two, axis: one.mean(axis) / two.mean(axis), *paired(regime, ours, other))


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
