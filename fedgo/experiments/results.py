"""Results of the studies' tables: the settings chosen, how sure each choice is, and traces with these settings."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedgo._checks import count, on_cpu, require, require_kind
from fedgo.experiments.players import Player
from fedgo.experiments.roster import ALGORITHMS
from fedgo.experiments.runner import SEED, Regimes, Sweep, cell, read, shared_world, shipped, until_written
from fedgo.experiments.studies import STUDIES
from fedgo.experiments.summaries import Array, interval, mean_error
from fedgo.experiments.world import EXPERIMENTS, TUNING_SEED, Regime, Setting
from fedgo.trace import Trace

Named = str | Sweep  # a study beyond the paper, or the name of one of the paper's


def _study(study: Named) -> Sweep:
    """Return the ``study``, which may be given by its name in `STUDIES`."""
    return study if isinstance(study, Sweep) else STUDIES[study]


BATCH = 50  # the largest number of runs that are played at a time


@until_written
def ranked(study: Named, player: str, group: Regimes) -> list[list[Setting]]:
    """Return, for each finished round of successive halving, a list of the settings that were compared, best first.

    Successive halving compares all settings of a player on a few runs, and the best of them on more runs in the next
    round. The best setting has the lowest mean final regret, or for several regimes the lowest geometric mean of 1 +
    the mean final regret on each. The result has the first round first; it is cached and must not be changed. It is
    empty if no round is finished, for instance because nothing was played on these regimes.

    Args:
        study: The study, or its name, in which the rounds were played.
        player: The name of the player that chose a setting.
        group: The regimes on which the player chose one setting together, a tuple of at least one.

    Raises:
        ValueError: There is no table of the study.
        KeyError: The study or the player is unknown.
        TypeError: ``group`` is a list, which cannot be cached.
    """
    own = _study(study)
    return own.choice(shipped(own), player, group).ranked


def tuned(name: str, algorithm: str, study: Named = "tune") -> dict[str, Any]:
    """Return the setting with which an algorithm plays an experiment, as the stored table of a study decides.

    The result is a new dictionary with the values of the algorithm's parameters by name. If the study chose no setting
    on this experiment, the result is the setting that it chose on the first of its experiments; if it chooses on none,
    the result is the only setting of the player.

    Args:
        name: The name of the experiment in `fedgo.experiments.world.EXPERIMENTS`.
        algorithm: The name of the player.
        study: The study, or its name, in which its setting was chosen.

    Raises:
        ValueError: The experiment or algorithm is unknown, the study has no table, it has not chosen yet because the
            table lacks rows, or it chooses no settings although the player has several.
        KeyError: The study is unknown.
    """
    require(name in EXPERIMENTS, "name", name, f"choose one of {tuple(EXPERIMENTS)}")
    players = tuple(_study(study).players)
    require(algorithm in players, "algorithm", algorithm, f"choose one of {players}")
    return _study(study).setting(algorithm, EXPERIMENTS[name])


def evaluated(study: Named, regime: Regime) -> dict[str, Any]:
    """Return each player's rows for ``regime`` and the seed 0 (`SEED`), that of evaluations, in the table of a study.

    Args:
        study: The study, or its name if it is one of the paper's.
        regime: The problem with its sizes.

    Returns:
        A dictionary with a pandas frame for each player's name, sorted by run. Players without such rows are left out.
        If a player has such rows with several settings, only those of the setting that comes last in the table are
        returned.

    Raises:
        ValueError: There is no table of the study, or no such study.
        KeyError: There is a table of this name, but it is not that of a study.
    """
    own = _study(study)
    stored = shipped(own).cells.items()
    rows = {name: rows for (on, name, _, seed), rows in stored if (on, seed) == (regime, SEED)}
    return {name: rows[name].reset_index(drop=True) for name in own.players if name in rows}


def tried(study: Named, player: str, regime: Regime) -> list[tuple[Setting, Any]]:
    """Return a list of pairs: a setting that a player may choose, and a pandas frame with its tuning runs on a regime.

    The list has a pair for each setting, in the order of the player's ``grid``. The frame has those rows of the study's
    table that have this setting and the seed of the tuning, a row for each run.

    Args:
        study: The study, or its name if it is one of the paper's.
        player: The name of the player.
        regime: The problem with its sizes.

    Raises:
        ValueError: There is no table of the study, or no such study.
        KeyError: The table has no such row for one of the settings, the player is unknown, or there is a table of this
            name, but it is not that of a study.
    """
    own = _study(study)
    stored, grid = shipped(own).cells, own.players[player].grid
    return [(setting, stored[cell(regime, player, setting, own.tuning_seed)]) for setting in grid]


def judged(name: str, algorithm: str, study: Named = "tune") -> Any:
    """Return a pandas frame of the settings that an algorithm tried on an experiment, by round of the tuning.

    It has a row for each setting in each round, the first round first and in each round the best setting first. The
    columns are the parameters of a setting, the number of ``runs`` of the round, the mean final ``regret`` over these
    runs and its standard ``error``, and ``low`` and ``high``. These two are the ends of the 95 % interval of the mean
    difference in final regret on the same runs: the setting's minus that of the setting finally chosen. If the table
    "rungs" keeps these numbers, because the single runs were removed, the frame also has the columns of the regime, the
    player and the seed. If the study has no round of tuning for the algorithm, the frame is empty.

    Args:
        name: The name of the experiment in `fedgo.experiments.world.EXPERIMENTS`.
        algorithm: The name of the player.
        study: The study, or its name, in which it chose.

    Raises:
        ValueError: The player is unknown, or the study has no table, has not chosen yet, does not tune on this
            experiment although it has rounds, or chooses no settings although the player has several.
        KeyError: The experiment or the study is unknown.
    """
    regime, own = EXPERIMENTS[name], _study(study)
    kept = read("rungs")
    kept = kept[(kept["study"] == own.name) & (kept["problem"] == name) & (kept["player"] == algorithm)]
    if len(kept):
        return kept.drop(columns="study").dropna(axis=1)
    # If the table lacks rows, this raises an error that names the command that adds them.
    winner = tuned(name, algorithm, study)
    rungs, rows = ranked(study, algorithm, (regime,)), []

    def regrets(setting: Setting, runs: int) -> Array:
        """Return the final regrets of ``setting`` on the first ``runs`` tuning runs of the experiment, (``runs``,).

        If the table has fewer runs, the result is shorter.
        """
        by_run = shipped(own).regrets(cell(regime, algorithm, setting, own.tuning_seed))
        return np.array([*by_run.values()])[:runs]

    for rung, settings in zip(own.rungs(algorithm), rungs, strict=True):
        best = regrets(winner, rung.runs)
        for setting in settings:
            final = regrets(setting, rung.runs)
            mean, error = mean_error(final)
            _, low, high = interval(np.mean, final - best)
            numbers = {"regret": float(mean), "error": float(error), "low": low, "high": high}
            rows.append({**setting, "runs": rung.runs} | numbers)
    return pd.DataFrame(rows)


class Chosen(NamedTuple):
    """The result of a tuning: the regret of the setting that was chosen, and how sure the choice is.

    Args:
        regret: The mean final regret of the chosen setting, over the runs of the last round of the tuning.
        error: The standard error of this mean.
        runs: The number of runs of the mean.
        alike: The number of other settings for which the 95 % interval of the mean difference of their final regret to
            that of the chosen setting contains 0, for each of them in the last round that compared it.
        worst: The largest mean final regret of any setting, divided by that of the chosen one, both on the runs of the
            first round.
        median: The median of the settings' mean final regrets, divided by that of the chosen one, on the runs of the
            first round.
    """

    regret: float
    error: float
    runs: int
    alike: int
    worst: float
    median: float


def summary(name: str, algorithm: str, study: Named = "tune") -> Chosen:
    """Return the mean final regret of the setting that an algorithm has chosen, and how sure the choice is.

    The regret is that on the tuning runs of an experiment. How many other settings are alike, and how much worse the
    median and the worst setting are, says how sure the choice is (`Chosen`).

    Args:
        name: The name of the experiment in `fedgo.experiments.world.EXPERIMENTS`.
        algorithm: The name of the player.
        study: The study, or its name, in which it chose.

    Raises:
        ValueError: The algorithm is unknown, or the study has no table, has not chosen yet, does not tune on this
            experiment although it has rounds, or chooses no settings although the player has several.
        KeyError: The experiment or the study is unknown.
        IndexError: The study has no round of tuning for the algorithm, which has a single setting.
    """
    rows = judged(name, algorithm, study)
    parts = list(ranked(study, algorithm, (EXPERIMENTS[name],))[0][0])
    winner = tuned(name, algorithm, study)
    is_winner = (rows[parts] == pd.Series(winner, dtype=object)[parts]).all(axis=1)
    best = rows[is_winner].iloc[-1]
    others = rows[~is_winner].drop_duplicates(parts, keep="last")
    alike = int(((others["low"] <= 0) & (others["high"] >= 0)).sum())
    first = rows[rows["runs"] == rows["runs"].min()]["regret"]
    base = rows[is_winner].iloc[0]["regret"]
    worst, median = float(first.max() / base), float(first.median() / base)
    return Chosen(float(best["regret"]), float(best["error"]), int(best["runs"]), alike, worst, median)


@on_cpu
def evaluate(
    name: str, runs: int, seed: int = 0, algorithms: Sequence[str] = tuple(ALGORITHMS)
) -> dict[str, Trace]:
    """Play ``algorithms`` at their tuned settings on the experiment ``name``, and return their traces by name.

    The result is a dictionary; it is empty if there is no algorithm, and then ``name`` is not checked. The settings are
    those of the study "tune".

    Args:
        name: The name of an experiment in `fedgo.experiments.world.EXPERIMENTS`.
        runs: The number of runs.
        seed: The seed of the runs, which must not be 1000, that of the tuning.
        algorithms: The names of algorithms in `fedgo.experiments.roster.ALGORITHMS`; all of them by default.

    Raises:
        ValueError: A name is unknown, ``runs`` is below 1, or the seed is negative or 1000.
        TypeError: ``algorithms`` is a single text, or ``runs`` or the seed is not a whole number.
        ImportError: The problem needs BoTorch, which is not installed.
    """
    require_kind(not isinstance(algorithms, str), "algorithms", algorithms, "give a sequence of names")
    unknown = [algorithm for algorithm in algorithms if algorithm not in ALGORITHMS]
    require(not unknown, "algorithms", unknown, f"choose from {tuple(ALGORITHMS)}")
    count("runs", runs, "give at least one run")
    require(seed != TUNING_SEED, "seed", seed, "settings were tuned on the runs of this seed; give another")
    return {algorithm: played(name, runs, seed, algorithm) for algorithm in algorithms}


def played(
    name: str,
    runs: int,
    seed: int = 0,
    algorithm: str = "Fed-GO-UCB",
    players: Mapping[str, Player] = ALGORITHMS,
    **changes: Any,
) -> Trace:
    """Play an algorithm at its tuned setting on the experiment ``name``, and return its trace.

    At most fifty runs are played at a time (`BATCH`), which bounds the memory and changes no result. Messages are
    counted in the dense form, as matrices.

    Args:
        name: The name of an experiment in `fedgo.experiments.world.EXPERIMENTS`.
        runs: The number of runs.
        seed: The seed of the runs.
        algorithm: The name of a player. The setting is that which the study "tune" has chosen for this name, or for
            the name in the player's ``setting_of``.
        players: The players by name.
        changes: Entries of the setting that replace the tuned ones or are added to them, such as ``gamma``.

    Raises:
        ValueError: ``name`` is unknown, the study "tune" has no setting of the player, ``runs`` is below 1, or the seed
            is negative.
        TypeError: ``runs`` or the seed is not a whole number.
        KeyError: ``algorithm`` is not one of ``players``.
        Exception: The player refuses an entry in ``changes``; the error is that of its ``play``, for instance a
            ``ValueError`` if a value is out of range, or a ``TypeError`` if it does not know the entry.
        ImportError: The problem needs BoTorch, which is not installed.
    """
    player = players[algorithm]
    setting = tuned(name, player.setting_of or algorithm) | changes  # `tuned` refuses an unknown name
    batches = [range(first, min(first + BATCH, runs)) for first in range(0, runs, BATCH)]
    worlds = [shared_world(EXPERIMENTS[name], batch, seed, "dense", "all") for batch in batches]
    return Trace.join([player.play(world, setting) for world in worlds])
