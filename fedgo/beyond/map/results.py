"""Results of the regime map: which player has the lowest regret where, by how much, and in how many runs it is stuck.

A player is an algorithm with its setting. A regime is a problem with its number of arms K, noise σ, rounds T and
clients N. A run is stuck if it still loses much in its last tenth of the steps (`stuck`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgo.beyond.map.roster import PLAYERS
from fedgo.beyond.map.studies import MAIN, REGIMES
from fedgo.experiments.results import evaluated
from fedgo.experiments.runner import SEED, known, until_written
from fedgo.experiments.summaries import RESAMPLES, Array, interval
from fedgo.experiments.world import Regime

# A run is stuck if its regret per step in the last tenth of the steps is more than this share of uniform play's.
STUCK = 0.1
Statistic = Callable[..., Any]  # a statistic of samples (…, S), called with the axis of the runs
Estimate = tuple[float, float, float]  # a value, and the lower and the upper end of its 95 % interval


@until_written
def evaluations(study: str = "map") -> Mapping[tuple[Regime, str], Any]:
    """Return the rows of the evaluation of ``study`` by pairs of a regime and a player's name.

    A regime is a problem with its numbers of arms, rounds and clients and its noise. Each value is a frame with one row
    for each run, in the order of the runs, with the setting that comes last in the table. Pairs without rows are left
    out. The result is cached and must not be changed.

    Raises:
        ValueError: There is no table of the study.
        KeyError: There is a table of this name, but no study.
    """
    played = dict.fromkeys(regime for regime, *_ in known(study).cells)
    return {(regime, name): rows for regime in played for name, rows in evaluated(study, regime).items()}


def regimes() -> list[Regime]:
    """Return the regimes of the map, in its order, on which every player in `MAIN` has been evaluated.

    A regime is a problem with its numbers of arms, rounds and clients and its noise.
    """
    return [regime for regime in REGIMES if all((regime, name) in evaluations() for name in MAIN)]


def players_on(regime: Regime) -> list[str]:
    """Return the names of the players that have been evaluated on ``regime``, in the order of `PLAYERS`.

    A player is an algorithm with its setting; a regime is a problem with its numbers of arms, rounds and clients and
    its noise.
    """
    return [name for name in PLAYERS if (regime, name) in evaluations()]


def title(name: str) -> str:
    """Return the name under which the book shows the player ``name`` of the map, a key of `PLAYERS`.

    It is ``name`` itself if the player has no title.

    Raises:
        KeyError: There is no such player.
    """
    return PLAYERS[name].title or name


def worst(regrets: Any, axis: int = -1) -> Any:
    """Return the mean regret of the worst tenth of S runs, those with the largest regrets, (…,).

    The worst tenth has S/10 runs, rounded to a whole number (a half to the even one), and at least one.

    Args:
        regrets: The regret of each run, (…, S).
        axis: The axis of the runs, which has to be the last one.
    """
    several = np.sort(regrets, axis)[..., -max(1, round(np.shape(regrets)[axis] / 10)) :]
    return several.mean(axis)


@until_written
def uniform_loss(regime: Regime, runs: int = 50, seed: int = SEED) -> float:
    """Return the expected regret of one pull on ``regime`` (a problem with its sizes) if the arm is drawn uniformly.

    Args:
        regime: A problem with its number of arms and its noise. Its numbers of rounds and clients are not used.
        runs: The number of runs over which the mean is taken; by default as many as the players in
            `fedgo.beyond.map.studies.DECIDE` have.
        seed: The seed of these runs, that of the evaluation unless given.

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

    A run is stuck if its regret per step in the last tenth of the steps is more than `STUCK` = 0.1 times that of
    uniform play (`uniform_loss`).

    Raises:
        KeyError: The player has not been evaluated on ``regime``.
        ImportError: A library that the problem needs is not installed.
    """
    return np.asarray(evaluations()[regime, player].late_regret > STUCK * uniform_loss(regime))


class Across(NamedTuple):
    """The results of a player on a group of regimes.

    Args:
        regret: The geometric mean over the regimes of the player's mean regret divided by that of uniform play.
        tenth: The same with the mean regret of the player's worst tenth of runs (`worst`) as the numerator.
        stuck: The number of runs that are `stuck`, over all regimes.
        runs: The number of runs, over all regimes.
    """

    regret: float
    tenth: float
    stuck: int
    runs: int


def across(group: Sequence[Regime], player: str) -> Across:
    """Return the results of ``player`` on the regimes (problems with their sizes) of ``group``.

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
        regime: The regime.
        ours: The name of the first player.
        other: The name of the second player.
        column: The column of the table, by default the final regret.
        study: The study whose evaluation is read.

    Raises:
        ValueError: There is no table of the study.
        KeyError: One of the players has not been evaluated on ``regime``, or the table has no such column.
    """
    rows = evaluations(study)
    one, two = (rows[regime, name][column].to_numpy(dtype=float) for name in (ours, other))
    runs = min(len(one), len(two))
    return one[:runs], two[:runs]


def difference(regime: Regime, ours: str, other: str, **which: str) -> Estimate:
    """Return the mean of ``ours`` minus ``other`` over their common runs, and the two ends of its 95 % interval.

    Args:
        regime: The regime.
        ours: The name of the first player.
        other: The name of the second player.
        which: The ``column`` and the ``study`` that `paired` takes; by default the final regret in the map's
            evaluation.

    Returns:
        The mean difference, the lower end and the upper end of the interval. With a single common run the interval is
        the whole line.

    Raises:
        ValueError: There is no table of the study.
        KeyError: One of the players has not been evaluated on ``regime``, or the table has no such column.
        TypeError: ``which`` has another name than these two.
    """
    one, two = paired(regime, ours, other, **which)
    return interval(np.mean, one - two)


def ratio(regime: Regime, ours: str, other: str, of: Statistic = np.mean, study: str = "map") -> Estimate:
    """Return a statistic of the regret of ``ours`` divided by that of ``other``, and the two ends of its 95 % interval.

    Both statistics are taken over the common runs of the two players.

    Args:
        regime: The regime.
        ours: The name of the first player.
        other: The name of the second player.
        of: The statistic of the regrets of one player, by default their mean. It is called with the regrets and
            ``axis``.
        study: The study whose evaluation is read.

    Returns:
        The ratio, the lower end and the upper end of the interval. With a single common run the interval is the whole
        line.

    Raises:
        ValueError: There is no table of the study.
        KeyError: One of the players has not been evaluated on ``regime``.
    """
    one, two = paired(regime, ours, other, study=study)
    return interval(lambda *both, axis: of(both[0], axis=axis) / of(both[1], axis=axis), one, two)


def half_tail(regrets: Any, axis: int = -1) -> Any:
    """Return the average of the mean regret of S runs and the mean regret of their worst tenth, (…,).

    The settings of the players in `fedgo.beyond.map.studies.DECIDE` are chosen by it.

    Args:
        regrets: The regret of each run, (…, S).
        axis: The axis of the runs, which has to be the last one.
    """
    return (np.mean(regrets, axis) + worst(regrets, axis)) / 2


def geometric(group: Sequence[Regime], ours: str, other: str, of: Statistic = np.mean) -> Estimate:
    """Return the geometric mean over the regimes of ``group`` of the ratio of two players' regrets, and the two ends of
    its 95 % interval.

    The ends of the interval are percentiles over `RESAMPLES` = 2,000 bootstrap resamples, always with the same random
    numbers. In each resample the common runs of each regime are drawn anew, independently of the other regimes; the two
    regrets of a run stay together.

    Args:
        group: The regimes.
        ours: The name of the player in the numerator.
        other: The name of the player in the denominator.
        of: The statistic of the regrets of one player, by default their mean. It is called with the regrets alone.

    Returns:
        The geometric mean, the lower end and the upper end of the interval; NaN if ``group`` is empty.

    Raises:
        KeyError: One of the players has not been evaluated on a regime.
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
    """The numbers of regimes in which one player's regret is lower or higher than another's.

    Args:
        less: The number of regimes where it is lower with 95 % confidence.
        level: The number of regimes where the paired runs do not tell the two players apart.
        more: The number of regimes where it is higher with 95 % confidence.
    """

    less: int
    level: int
    more: int


def count_regimes(group: Sequence[Regime], ours: str, other: str) -> Compared:
    """Return in how many regimes of ``group`` the regret of ``ours`` is lower than, not told apart from, or higher than
    ``other``'s.

    The regret counts as lower if the 95 % interval of the ratio of the two mean regrets (`ratio`) lies below 1, as not
    told apart if this interval contains 1, and as higher if it lies above 1.

    Raises:
        KeyError: One of the players has not been evaluated on a regime.
    """
    intervals = [ratio(regime, ours, other)[1:] for regime in group]
    less, more = sum(high < 1 for _, high in intervals), sum(low > 1 for low, _ in intervals)
    return Compared(less, len(intervals) - less - more, more)


def leader(regime: Regime) -> str:
    """Return the name of the player (algorithm) that leads on ``regime``, by mean regret on common runs.

    The players are compared one after the other, those with the most runs first, and of players with equally many runs
    in the order of `PLAYERS`. A player takes the lead if its mean regret is lower than that of the leader so far, on
    the runs that both have.

    Raises:
        ValueError: No player has been evaluated on ``regime``.
    """
    first, *others = sorted(players_on(regime), key=lambda name: -len(evaluations()[regime, name]))
    for name in others:
        first = name if difference(regime, name, first)[0] < 0 else first
    return first


def alike(regime: Regime) -> list[str]:
    """Return the names of the `leader` on ``regime``, which comes first, and of all players (algorithms) that cannot be
    told apart from it.

    The latter are the players for which the 95 % interval of their mean regret minus the leader's, on common runs,
    reaches down to 0 or below, in the order of `PLAYERS`.

    Raises:
        ValueError: No player has been evaluated on ``regime``.
    """
    first = leader(regime)
    others = [name for name in players_on(regime) if name != first]
    return [first, *(name for name in others if difference(regime, name, first)[1] <= 0)]
