"""Results of the regime map: which player has the lowest regret where, by how much, and in how many runs it is stuck.

A player is an algorithm with its setting. A regime is a problem with its number of arms K, noise σ, rounds T and
clients N. The map is the study "map", which plays many players on many regimes. A run is stuck if its regret in the
last tenth of the steps is still large (`stuck`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgo.beyond.evidence.roster import PLAYERS
from fedgo.beyond.evidence.studies import MAIN, REGIMES, STUDIES
from fedgo.experiments.results import evaluated
from fedgo.experiments.runner import SEED, shipped, until_written
from fedgo.experiments.summaries import RESAMPLES, Array, interval
from fedgo.experiments.world import Regime

# A run is stuck if its regret per step in the last tenth of the steps is more than this share of uniform play's.
STUCK = 0.1
Statistic = Callable[..., Any]  # a statistic of samples (…, S), called with the axis of the runs
Estimate = tuple[float, float, float]  # a value, and the lower and the upper end of its 95 % interval


@until_written
def evaluations(study: str = "map") -> Mapping[tuple[Regime, str], Any]:
    """Return the rows of the evaluation of ``study`` by pairs of a regime and a player's name.

    A regime is a problem with its numbers of arms, rounds and clients and its noise; a player is an algorithm with its
    setting. Each value is a pandas frame with one row for each run, in the order of the runs. Its columns are those of
    the study's table, for instance "run" and "regret". If there are rows with several settings, only those with the
    setting that comes last in the table are there. Pairs without rows are left out; a study that evaluates nothing
    gives an empty result. The result is cached and must not be changed.

    Raises:
        ValueError: There is no table of the study.
        KeyError: There is a table of this name, but no study.
    """
    own = STUDIES[study]
    played = dict.fromkeys(regime for regime, *_ in shipped(own).cells)
    return {(regime, name): rows for regime in played for name, rows in evaluated(own, regime).items()}


def regimes() -> list[Regime]:
    """Return the regimes of the map on which all main players have been evaluated, in the order of the study "map".

    A regime is a problem with its numbers of arms, rounds and clients and its noise. The main players are the five in
    `fedgo.beyond.evidence.studies.MAIN`.
    """
    return [regime for regime in REGIMES if all((regime, name) in evaluations() for name in MAIN)]


def players_on(regime: Regime) -> list[str]:
    """Return the names of the players of the map that have been evaluated on ``regime``, in the order of `PLAYERS`.

    A player is an algorithm with its setting; a regime is a problem with its numbers of arms, rounds and clients and
    its noise. If none has been evaluated, the list is empty.
    """
    return [name for name in PLAYERS if (regime, name) in evaluations()]


def title(name: str) -> str:
    """Return the title under which the book shows the player (algorithm) ``name`` of the map, a key of `PLAYERS`.

    It is ``name`` itself if the player has no title.

    Raises:
        KeyError: There is no such player.
    """
    return PLAYERS[name].title or name


def worst(regrets: Any, axis: int = -1) -> Any:
    """Return the mean regret of the worst tenth of S runs, those with the largest regrets, (…,).

    The worst tenth has S/10 runs, rounded to a whole number (a half to the even one), and at least one. If S is 0, the
    result is NaN.

    Args:
        regrets: The regret of each run, (…, S).
        axis: The axis of the runs, which has to be the last one.
    """
    several = np.sort(regrets, axis)[..., -max(1, round(np.shape(regrets)[axis] / 10)) :]
    return several.mean(axis)


@until_written
def uniform_loss(regime: Regime, runs: int = 50, seed: int = SEED) -> float:
    """Return the expected regret of one pull on ``regime`` (a problem with its sizes) if the arm is drawn uniformly.

    It is the largest mean reward less the average one, averaged over the runs, each of which has arms of its own. The
    result is cached.

    Args:
        regime: A problem with its number of arms and its noise. Its numbers of rounds and clients are not used.
        runs: The number of runs over which the mean is taken, from run 0 on.
        seed: The seed of these runs; by default 0, the seed of all evaluations.

    Raises:
        ValueError: The problem of the regime is unknown, or its number of arms, its noise, ``runs`` or the seed is
            out of range.
        TypeError: One of these is of another kind.
        ImportError: A library that the problem needs is not installed.
    """
    means = regime.world(range(runs), seed).problem.means
    return float((means.amax(1) - means.mean(1)).mean())


def stuck(regime: Regime, player: str) -> npt.NDArray[np.bool_]:
    """Return for each of the S runs of ``player`` on ``regime`` whether it is stuck, (S,) bool.

    A run is stuck if its mean regret of a step in the last tenth of the steps is more than `STUCK` = 0.1 times the
    expected regret of a uniformly drawn arm (`uniform_loss`).

    Args:
        regime: A problem with its numbers of arms, rounds and clients and its noise.
        player: The name of a player (algorithm) of the study "map".

    Raises:
        KeyError: The player has not been evaluated on ``regime``.
        ImportError: A library that the problem needs is not installed.
    """
    return np.asarray(evaluations()[regime, player].late_regret > STUCK * uniform_loss(regime))


class Across(NamedTuple):
    """The results of a player on a group of regimes.

    A regime is a problem with its sizes. Uniform play draws every arm uniformly; its expected regret is that of one
    pull (`uniform_loss`) times the number of steps.

    Args:
        regret: The geometric mean over the regimes of r, where r is the player's mean final regret over its runs on a
            regime, divided by the expected regret of uniform play there.
        tenth: The geometric mean over the regimes of r′, where r′ is the mean final regret of the player's worst tenth
            of runs on a regime (`worst`), divided by the expected regret of uniform play there.
        stuck: The number of runs, over all regimes, that are `stuck`: their regret is still large at the end.
        runs: The number of runs, over all regimes.
    """

    regret: float
    tenth: float
    stuck: int
    runs: int


def across(group: Sequence[Regime], player: str) -> Across:
    """Return the results of ``player``, an algorithm of the map, on the regimes (problems with their sizes) of
    ``group``.

    Returns:
        The geometric means over the regimes of the player's mean regret, and of that of its worst tenth of runs, each
        divided by the expected regret of uniform play; the number of runs that are `stuck`; and the number of runs.

    Raises:
        KeyError: The player has not been evaluated on one of the regimes.
        TypeError: There is no regime in ``group``.
        ImportError: A library that a problem needs is not installed.
    """
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
    """Return the values of one column for two players on their S common runs, those of ``ours`` and of ``other``,
    (S,) each.

    Run r of one player has the same problem as run r of the other. The common runs are the first S, with S the smaller
    number of runs of the two.

    Args:
        regime: A problem with its numbers of arms, rounds and clients and its noise.
        ours: The name of the first player (algorithm).
        other: The name of the second player.
        column: The column of the study's table, by default the final regret; its entries have to be numbers.
        study: The name of the study whose evaluation is read.

    Raises:
        ValueError: There is no table of the study, or an entry of the column is no number.
        KeyError: One of the players has not been evaluated on ``regime``, or the table has no such column.
    """
    rows = evaluations(study)
    one, two = (rows[regime, name][column].to_numpy(dtype=float) for name in (ours, other))
    runs = min(len(one), len(two))
    return one[:runs], two[:runs]


def difference(regime: Regime, ours: str, other: str, **which: str) -> Estimate:
    """Return the mean of a column for ``ours`` minus that for ``other`` over their common runs, with its 95 % interval.

    The common runs are the first runs, as many as both players have. The interval is a bootstrap over these runs.

    Args:
        regime: A problem with its numbers of arms, rounds and clients and its noise.
        ours: The name of the first player (algorithm).
        other: The name of the second player.
        which: ``column``, the name of a column of the study's table, by default "regret", the final regret; and
            ``study``, the name of the study whose evaluation is read, by default "map".

    Returns:
        The mean difference, the lower end and the upper end of the interval. With a single common run the interval is
        the whole line.

    Raises:
        ValueError: There is no table of the study, or an entry of the column is no number.
        KeyError: One of the players has not been evaluated on ``regime``, or the table has no such column.
        TypeError: ``which`` has another name than these two.
    """
    one, two = paired(regime, ours, other, **which)
    return interval(np.mean, one - two)


def ratio(regime: Regime, ours: str, other: str, of: Statistic = np.mean, study: str = "map") -> Estimate:
    """Return a statistic of the regret of ``ours`` divided by that of ``other``, and the two ends of its 95 % interval.

    Both statistics are taken over the common runs of the two players, the first runs, as many as both have. The
    interval is a bootstrap over these runs.

    Args:
        regime: A problem with its numbers of arms, rounds and clients and its noise.
        ours: The name of the player (algorithm) in the numerator.
        other: The name of the player in the denominator.
        of: The statistic of the final regrets of one player, by default their mean. It is called with arrays of
            regrets, (…, S) for S runs, and ``axis=-1``, and returns an array (…).
        study: The name of the study whose evaluation is read.

    Returns:
        The ratio, the lower end and the upper end of the interval. With a single common run the interval is the whole
        line.

    Raises:
        ValueError: There is no table of the study.
        KeyError: One of the players has not been evaluated on ``regime``, or the table has no column "regret".
    """
    one, two = paired(regime, ours, other, study=study)
    return interval(lambda *both, axis: of(both[0], axis=axis) / of(both[1], axis=axis), one, two)


def half_tail(regrets: Any, axis: int = -1) -> Any:
    """Return the average of the mean regret of S runs and the mean regret of their worst tenth, (…,).

    The worst tenth are the S/10 runs with the largest regrets, rounded to a whole number but at least one (`worst`).
    The study "map" chooses by it the settings of the players that decide the advice.

    Args:
        regrets: The regret of each run, (…, S).
        axis: The axis of the runs, which has to be the last one.
    """
    return (np.mean(regrets, axis) + worst(regrets, axis)) / 2


def geometric(
    group: Sequence[Regime],
    ours: str,
    other: str,
    of: Statistic = np.mean,
    plus: float = 0.0,
    **which: str,
) -> Estimate:
    """Return the geometric mean over the regimes of ``group`` of the ratio of two players' regrets, and the two ends of
    its 95 % interval.

    The regrets are the final ones in the study "map" unless ``which`` says otherwise. On each regime only the common
    runs of the two players count, the first runs, as many as both have. The ends of the interval are percentiles over
    `RESAMPLES` = 2,000 bootstrap resamples, always with the same random numbers. In each resample the common runs of
    each regime are drawn anew, independently of the other regimes; the two regrets of a run stay together.

    Args:
        group: The regimes, which are problems with their numbers of arms, rounds and clients and their noise.
        ours: The name of the player (algorithm) in the numerator.
        other: The name of the player in the denominator.
        of: The statistic of the regrets of one player on a regime, by default their mean. It is called with the regrets
            (S,) of S runs alone, and returns a number.
        plus: A number that is added to both statistics, so that neither is 0.
        which: ``column`` and ``study``, as for `paired`.

    Returns:
        The geometric mean, the lower end and the upper end of the interval; NaN if ``group`` is empty.

    Raises:
        KeyError: One of the players has not been evaluated on a regime.
    """
    parts = [paired(regime, ours, other, **which) for regime in group]
    draws, source = [], np.random.default_rng(0)
    for resample in range(RESAMPLES + 1):
        logs = []
        for one, two in parts:
            runs = source.integers(len(one), size=len(one)) if resample else slice(None)
            logs.append(np.log((of(one[runs]) + plus) / (of(two[runs]) + plus)))
        draws.append(np.exp(np.mean(logs)))
    low, high = np.quantile(draws[1:], (0.025, 0.975))
    return float(draws[0]), float(low), float(high)


class Compared(NamedTuple):
    """The numbers of regimes in which one player's regret is lower or higher than another's.

    A regime is a problem with its sizes. In each, the ratio of the two players' mean regrets has a 95 % interval.

    Args:
        less: The number of regimes where the interval lies below 1, so that the first player's regret is lower.
        level: The number of all other regimes, where the runs do not tell the two players apart.
        more: The number of regimes where the interval lies above 1, so that the first player's regret is higher.
    """

    less: int
    level: int
    more: int


def count_regimes(group: Sequence[Regime], ours: str, other: str) -> Compared:
    """Return in how many regimes of ``group`` the regret of ``ours`` is lower than, not told apart from, or higher than
    ``other``'s, three numbers in this order.

    A regime is a problem with its sizes, and ``ours`` and ``other`` are names of players (algorithms). The regret
    counts as lower if the 95 % interval of the ratio of the two mean regrets (`ratio`) lies below 1, as higher if it
    lies above 1, and as not told apart otherwise.

    Raises:
        KeyError: One of the players has not been evaluated on a regime.
    """
    intervals = [ratio(regime, ours, other)[1:] for regime in group]
    less, more = sum(high < 1 for _, high in intervals), sum(low > 1 for low, _ in intervals)
    return Compared(less, len(intervals) - less - more, more)


def leader(regime: Regime) -> str:
    """Return the name of the player (algorithm) that leads on ``regime``, a problem with its sizes, by mean regret.

    The players that have been evaluated on the regime are compared one after the other, those with the most runs first,
    and of players with equally many runs in the order of `PLAYERS`. A player takes the lead if its mean regret is lower
    than that of the leader so far, on the runs that both have.

    Raises:
        ValueError: No player has been evaluated on ``regime``.
    """
    first, *others = sorted(players_on(regime), key=lambda name: -len(evaluations()[regime, name]))
    for name in others:
        first = name if difference(regime, name, first)[0] < 0 else first
    return first


def alike(regime: Regime) -> list[str]:
    """Return the names of the `leader` on ``regime``, a problem with its sizes, and of all players (algorithms) that
    cannot be told apart from it.

    The leader, the player that `leader` finds by mean regret, comes first. The others are the players for which the
    95 % interval of their mean regret minus the leader's, on common runs, begins at 0 or below, in the order of
    `PLAYERS`.

    Raises:
        ValueError: No player has been evaluated on ``regime``.
    """
    first = leader(regime)
    others = [name for name in players_on(regime) if name != first]
    return [first, *(name for name in others if difference(regime, name, first)[1] <= 0)]
