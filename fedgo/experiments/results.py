"""Results of the studies' tables: the settings chosen, how sure each choice is, and traces with these settings."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedgo._checks import count, on_cpu, require, require_kind
from fedgo.experiments.players import Player
from fedgo.experiments.roster import ALGORITHMS
from fedgo.experiments.runner import SEED, Regimes, cell, known, read, shared_world, until_written
from fedgo.experiments.studies import STUDIES
from fedgo.experiments.summaries import Array, interval, mean_error
from fedgo.experiments.world import EXPERIMENTS, TUNING_SEED, Regime, Setting
from fedgo.trace import Trace

BATCH = 50  # the largest number of runs that are played at a time


@until_written
def ranked(study: str, player: str, group: Regimes) -> list[list[Setting]]:
    """Return a list of the settings that were compared, the best first, for each finished round of successive halving.

    The result is cached and must not be changed.

    Args:
        study: The name of the study in which the rounds were played.
        player: The name of the player that chose a setting.
        group: The regimes on which it chose one setting.

    Raises:
        ValueError: There is no table of the study.
        KeyError: The study or the player is unknown.
    """
    return STUDIES[study].choice(known(study), player, group).ranked


def tuned(name: str, algorithm: str, study: str = "tune") -> dict[str, Any]:
    """Return the setting with which an algorithm plays an experiment, as the stored table of a study decides.

    Args:
        name: The name of the experiment in `fedgo.experiments.world.EXPERIMENTS`.
        algorithm: The name of the player.
        study: The name of the study in which its setting was chosen.

    Raises:
        ValueError: The experiment or algorithm is unknown, the study has no table, or it has not chosen yet.
        KeyError: The study is unknown.
    """
    require(name in EXPERIMENTS, "name", name, f"choose one of {tuple(EXPERIMENTS)}")
    players = tuple(STUDIES[study].players)
    require(algorithm in players, "algorithm", algorithm, f"choose one of {players}")
    return STUDIES[study].setting(algorithm, EXPERIMENTS[name])


def evaluated(study: str, regime: Regime) -> dict[str, Any]:
    """Return each player's rows of the evaluation on ``regime``, which have the seed `SEED`, in the table of ``study``.

    The result has a frame for each player's name, sorted by run. Players without such rows are left out. If a player
    has such rows with several settings, only those of the setting that comes last in the table are returned.

    Raises:
        ValueError: There is no table of the study, or no such study.
        KeyError: There is a table of this name, but it is not that of a study.
    """
    stored = known(study).cells.items()
    rows = {name: rows for (on, name, _, seed), rows in stored if (on, seed) == (regime, SEED)}
    return {name: rows[name].reset_index(drop=True) for name in STUDIES[study].players if name in rows}


def tried(study: str, player: str, regime: Regime) -> list[tuple[Setting, Any]]:
    """Return a list of pairs: a setting of the grid of ``player``, and a frame of its tuning runs on ``regime``.

    The list has a pair for each setting, and the runs are those in the table of ``study``.

    Raises:
        ValueError: There is no table of the study, or no such study.
        KeyError: The table has no run of one of the settings, or the player is unknown.
    """
    stored, seed = known(study).cells, STUDIES[study].tuning_seed
    grid = STUDIES[study].players[player].grid
    return [(setting, stored[cell(regime, player, setting, seed)]) for setting in grid]


def judged(name: str, algorithm: str, study: str = "tune") -> Any:
    """Return a frame of all settings that an algorithm tried on an experiment, by round of the tuning, best first.

    Its columns are the parameters of a setting, the number of ``runs`` of the round, the mean final ``regret`` over
    them and its standard ``error``, and ``low`` and ``high``, the ends of the 95 % interval of the mean difference
    between the setting's regret and that of the setting finally chosen, on the same runs. If these numbers come from
    the table "rungs", which keeps them for studies whose single runs were removed, the frame also has the columns of
    the regime, the player and the seed.

    Args:
        name: The name of the experiment in `fedgo.experiments.world.EXPERIMENTS`.
        algorithm: The name of the player.
        study: The name of the study in which it chose.

    Raises:
        ValueError: The player is unknown, or the study has no table or has not chosen yet.
        KeyError: The experiment or the study is unknown.
    """
    regime, seed = EXPERIMENTS[name], STUDIES[study].tuning_seed
    kept = read("rungs")
    kept = kept[(kept["study"] == study) & (kept["problem"] == name) & (kept["player"] == algorithm)]
    if len(kept):
        return kept.drop(columns="study").dropna(axis=1)
    # If the table lacks rows, this raises an error that names the command that adds them.
    winner = tuned(name, algorithm, study)
    rungs, rows = ranked(study, algorithm, (regime,)), []

    def regrets(setting: Setting, runs: int) -> Array:
        """Return the final regrets of ``setting`` on the first ``runs`` tuning runs of the experiment, (``runs``,)."""
        by_run = known(study).regrets(cell(regime, algorithm, setting, seed))
        return np.array([*by_run.values()])[:runs]

    for rung, settings in zip(STUDIES[study].rungs(algorithm), rungs, strict=True):
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
        regret: The mean final regret of the chosen setting.
        error: The standard error of this mean.
        runs: The number of runs of the mean.
        alike: The number of other settings whose 95 % interval of the difference to the chosen one contains 0, for each
            of them in the last round that compared it.
        worst: The largest mean regret of any setting, divided by that of the chosen one, on the runs of the first
            round.
        median: The median of the settings' mean regrets, divided by that of the chosen one, on the same runs.
    """

    regret: float
    error: float
    runs: int
    alike: int
    worst: float
    median: float


def summary(name: str, algorithm: str, study: str = "tune") -> Chosen:
    """Return the regret of the setting that an algorithm has chosen on an experiment, and how sure the choice is.

    Args:
        name: The name of the experiment in `fedgo.experiments.world.EXPERIMENTS`.
        algorithm: The name of the player.
        study: The name of the study in which it chose.

    Raises:
        ValueError: The algorithm is unknown, or the study has no table or has not chosen yet.
        KeyError: The experiment or the study is unknown.
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
    """Return the traces of ``algorithms`` at their tuned settings on the experiment ``name``, by the algorithm's name.

    Args:
        name: The name of an experiment in `fedgo.experiments.world.EXPERIMENTS`.
        runs: The number of runs.
        seed: The seed of the runs, which must not be that of the tuning.
        algorithms: The names of algorithms in `fedgo.experiments.roster.ALGORITHMS`.

    Raises:
        ValueError: A name is unknown, ``runs`` is below 1, or the seed is negative or that of the tuning.
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
    """Return the trace of an algorithm at its tuned setting on the experiment ``name``.

    Fifty runs are played at a time, which bounds the memory and changes no result.

    Args:
        name: The name of an experiment in `fedgo.experiments.world.EXPERIMENTS`.
        runs: The number of runs.
        seed: The seed of the runs.
        algorithm: The name of a player.
        players: The players by name.
        changes: Entries of the setting that replace the tuned ones, such as ``gamma``.

    Raises:
        ValueError: ``name`` is unknown, the study "tune" has no setting of the player, ``runs`` is below 1, the seed is
            negative, or a value in ``changes`` is out of range.
        TypeError: ``runs`` or the seed is not a whole number, or ``changes`` has an entry that the player does not
            know, or a value of another kind.
        KeyError: ``algorithm`` is not one of ``players``.
        ImportError: The problem needs BoTorch, which is not installed.
    """
    player = players[algorithm]
    setting = tuned(name, player.setting_of or algorithm) | changes  # `tuned` refuses an unknown name
    batches = [range(first, min(first + BATCH, runs)) for first in range(0, runs, BATCH)]
    worlds = [shared_world(EXPERIMENTS[name], batch, seed, "dense", "all") for batch in batches]
    return Trace.join([player.run(world, setting) for world in worlds])
