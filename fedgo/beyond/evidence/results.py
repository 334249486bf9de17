"""Results of the regime map: which player has the lowest regret where, by how much, and in how many runs it is stuck.

A player is an algorithm, here with the setting that tuning chose. A regime is a problem with its number of arms K,
noise σ, rounds T and clients N. The map is the study "map", which plays many players on many regimes. Run r of one
player has the same problem as run r of another, so that two players are compared on their S common runs, the first
ones. An `Estimate` is a value with the ends of its 95 % bootstrap interval over these runs; with a single run it is the
whole line. A run is stuck if its regret in the last tenth of the steps is still large (`stuck`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgo.beyond.evidence.roster import PLAYERS
from fedgo.beyond.evidence.studies import MAIN, REGIMES, STUDIES
from fedgo.experiments.runner import SEED, Sweep, cell, shipped, until_written
from fedgo.experiments.summaries import RESAMPLES, Array, interval
from fedgo.experiments.world import Regime, Setting

# A run is stuck if its regret per step in the last tenth of the steps is more than this share of uniform play's.
STUCK = 0.1
Statistic = Callable[..., Any]  # a statistic of samples (…, S), called with the axis of the runs
Estimate = tuple[float, float, float]  # a value, and the lower and the upper end of its 95 % interval


def evaluated(study: Sweep, regime: Regime) -> dict[str, Any]:
    """Return each player's evaluation rows for ``regime`` in the table of a study, sorted by run, by name.

    Players without such rows are left out. Of several settings only the one that comes last in the table counts.
    """
    stored = shipped(study).cells.items()
    rows = {name: rows for (on, name, _, seed), rows in stored if (on, seed) == (regime, SEED)}
    return {name: rows[name].reset_index(drop=True) for name in study.players if name in rows}


def tried(study: Sweep, player: str, regime: Regime) -> list[tuple[Setting, Any]]:
    """Return pairs of each setting in a player's ``grid`` and its tuning runs on ``regime``."""
    stored, grid = shipped(study).cells, study.players[player].grid
    return [(setting, stored[cell(regime, player, setting, study.tuning_seed)]) for setting in grid]


@until_written
def evaluations(study: str = "map") -> Mapping[tuple[Regime, str], Any]:
    """Return the evaluation rows of ``study`` by regime and player, sorted by run; cached, not to be changed.

    Of several settings only the one that comes last in the table counts.
    """
    own = STUDIES[study]
    played = dict.fromkeys(regime for regime, *_ in shipped(own).cells)
    return {(regime, name): rows for regime in played for name, rows in evaluated(own, regime).items()}


def regimes() -> list[Regime]:
    """Return the regimes of the map on which all main players (`MAIN`) have been evaluated."""
    return [regime for regime in REGIMES if all((regime, name) in evaluations() for name in MAIN)]


def players_on(regime: Regime) -> list[str]:
    """Return the names of the players of the map that have been evaluated on ``regime``."""
    return [name for name in PLAYERS if (regime, name) in evaluations()]


def title(name: str) -> str:
    """Return the title under which the book shows the player ``name``."""
    return PLAYERS[name].title or name


def where(regime: Regime) -> str:
    """Return the title of ``regime``: the problem, K, and those other sizes that are not the usual ones."""
    parts = [regime.entry.title, f"{regime.arms:,} arms"]
    if regime.sigma != 0.1:
        parts.append("coins" if regime.problem == "magic rows" else f"noise {regime.sigma:g}")
    if regime.rounds != 100:
        parts.append(f"T {regime.rounds:,}")
    if regime.clients in (1, 12):
        parts.append(f"{regime.clients} clients" if regime.clients > 1 else "1 client")
    return ", ".join(parts)


def worst(regrets: Any, axis: int = -1) -> Any:
    """Return the mean of the worst tenth of ``regrets`` (…, S), at least one run, (…,)."""
    several = np.sort(regrets, axis)[..., -max(1, round(np.shape(regrets)[axis] / 10)) :]
    return several.mean(axis)


@until_written
def uniform_loss(regime: Regime, runs: int = 50, seed: int = SEED) -> float:
    """Return the expected regret of one pull on ``regime`` if the arm is drawn uniformly, a mean over ``runs`` runs."""
    means = regime.world(range(runs), seed).problem.means
    return float((means.amax(1) - means.mean(1)).mean())


def stuck(regime: Regime, player: str) -> npt.NDArray[np.bool_]:
    """Return for each run of ``player`` on ``regime`` whether it is stuck, (S,) bool.

    It is if its mean regret of a step in the last tenth of the steps is more than `STUCK` times `uniform_loss`.
    """
    return np.asarray(evaluations()[regime, player].late_regret > STUCK * uniform_loss(regime))


class Across(NamedTuple):
    """The results of a player on a group of regimes, relative to uniform play (`uniform_loss`).

    Args:
        regret: The geometric mean over the regimes of its mean final regret, divided by that of uniform play.
        tenth: The same of its worst tenth of runs (`worst`).
        stuck: The number of runs, over all regimes, that are stuck.
        runs: The number of runs, over all regimes.
    """

    regret: float
    tenth: float
    stuck: int
    runs: int


def across(group: Sequence[Regime], player: str) -> Across:
    """Return the results of ``player`` on the regimes of ``group``."""
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
    """Return the values of ``column`` for two players on their common runs, (S,) each."""
    rows = evaluations(study)
    one, two = (rows[regime, name][column].to_numpy(dtype=float) for name in (ours, other))
    runs = min(len(one), len(two))
    return one[:runs], two[:runs]


def difference(regime: Regime, ours: str, other: str, **which: str) -> Estimate:
    """Return the mean of ``column`` for ``ours`` minus that for ``other``; ``which`` is ``column`` and ``study``."""
    one, two = paired(regime, ours, other, **which)
    return interval(np.mean, one - two)


def ratio(regime: Regime, ours: str, other: str, of: Statistic = np.mean, study: str = "map") -> Estimate:
    """Return a statistic (``of``) of the regret of ``ours`` divided by that of ``other``."""
    one, two = paired(regime, ours, other, study=study)
    return interval(lambda *both, axis: of(both[0], axis=axis) / of(both[1], axis=axis), one, two)


def half_tail(regrets: Any, axis: int = -1) -> Any:
    """Return the average of the mean of ``regrets`` (…, S) and of their worst tenth, (…,).

    By it the study "map" chooses the settings of the players that decide the advice.
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
    """Return the geometric mean over ``group`` of the ratio of a statistic of two players' regrets.

    Args:
        group: The regimes.
        ours: The player in the numerator.
        other: The player in the denominator.
        of: The statistic of the regrets (S,) of one player on a regime.
        plus: A number that is added to both statistics, so that neither is 0.
        which: ``column`` and ``study``, as for `paired`.
    """
    return mean_ratio([paired(regime, ours, other, **which) for regime in group], of, plus)


def mean_ratio(parts: Sequence[tuple[Array, Array]], of: Statistic = np.mean, plus: float = 0.0) -> Estimate:
    """Return the geometric mean over the ``parts`` of the ratio of a statistic, as `geometric` does for players.

    In each resample the runs of each part are drawn anew, independently of the other parts.

    Args:
        parts: Two arrays (S,) of paired runs for each regime.
        of: The statistic of one array.
        plus: A number that is added to both statistics.
    """
    source = np.random.default_rng(0)
    drawn = [[source.integers(len(one), size=len(one)) for one, _ in parts] for _ in range(RESAMPLES)]
    logs = []
    for (one, two), *resamples in zip(parts, *drawn, strict=True):
        runs = np.stack([np.arange(len(one)), *resamples])
        logs.append(np.log((of(one[runs], axis=-1) + plus) / (of(two[runs], axis=-1) + plus)))
    draws = np.exp(np.mean(logs, axis=0))
    low, high = np.quantile(draws[1:], (0.025, 0.975))
    return float(draws[0]), float(low), float(high)


class Compared(NamedTuple):
    """The numbers of regimes in which the interval of the `ratio` lies below 1, contains it, and lies above 1."""

    less: int
    level: int
    more: int


def count_regimes(group: Sequence[Regime], ours: str, other: str) -> Compared:
    """Return in how many regimes the regret of ``ours`` is lower, not told apart, or higher than ``other``'s."""
    intervals = [ratio(regime, ours, other)[1:] for regime in group]
    less, more = sum(high < 1 for _, high in intervals), sum(low > 1 for low, _ in intervals)
    return Compared(less, len(intervals) - less - more, more)


def leader(regime: Regime) -> str:
    """Return the player that leads on ``regime`` by mean regret.

    Players are compared one after the other, those with the most runs first. A player takes the lead if its mean regret
    on the common runs is lower than that of the leader so far.
    """
    first, *others = sorted(players_on(regime), key=lambda name: -len(evaluations()[regime, name]))
    for name in others:
        first = name if difference(regime, name, first)[0] < 0 else first
    return first


def alike(regime: Regime) -> list[str]:
    """Return the `leader` on ``regime``, and then all players that cannot be told apart from it."""
    first = leader(regime)
    others = [name for name in players_on(regime) if name != first]
    return [first, *(name for name in others if difference(regime, name, first)[1] <= 0)]
