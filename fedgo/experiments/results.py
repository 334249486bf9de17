"""Results of the studies' tables: the settings that were chosen, how sure each choice is, and traces with them."""

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

BATCH = 50  # runs that are played at a time


@until_written
def ranked(study: str, player: str, group: Regimes) -> list[list[Setting]]:
    """Return the settings that each round of successive halving compared, the best first.

    The rounds are those in which ``study`` chose the setting of ``player`` on the regimes ``group``.
    """
    return STUDIES[study].choice(known(study), player, group).ranked


def tuned(name: str, algorithm: str, study: str = "tune") -> dict[str, Any]:
    """Return the setting that ``algorithm`` has chosen on the experiment ``name`` in the study ``study``.

    Raises:
        ValueError: The experiment or algorithm is unknown, or the study has not chosen yet.
        KeyError: The study is unknown.
    """
    require(name in EXPERIMENTS, "name", name, f"choose one of {tuple(EXPERIMENTS)}")
    players = tuple(STUDIES[study].players)
    require(algorithm in players, "algorithm", algorithm, f"choose one of {players}")
    return STUDIES[study].setting(algorithm, EXPERIMENTS[name])


def evaluated(study: str, regime: Regime) -> dict[str, Any]:
    """Return the rows of each player's evaluation on ``regime`` in ``study``, by player and sorted by run."""
    stored = known(study).cells.items()
    rows = {name: rows for (on, name, _, seed), rows in stored if (on, seed) == (regime, SEED)}
    return {name: rows[name].reset_index(drop=True) for name in STUDIES[study].players if name in rows}


def tried(study: str, player: str, regime: Regime) -> list[tuple[Setting, Any]]:
    """Return each setting of the grid of ``player`` with its rows on the tuning runs of ``regime``."""
    stored, seed = known(study).cells, STUDIES[study].tuning_seed
    grid = STUDIES[study].players[player].grid
    return [(setting, stored[cell(regime, player, setting, seed)]) for setting in grid]


def judged(name: str, algorithm: str, study: str = "tune") -> Any:
    """Return a frame of all settings that ``algorithm`` tried on the experiment ``name``, rung by rung, the best first.

    Its columns are the parts of a setting, the number of ``runs`` of the rung, the mean ``regret`` and its standard
    ``error``, and the 95 % interval from ``low`` to ``high`` of the mean difference to the regret of the winner.
    """
    regime, seed = EXPERIMENTS[name], STUDIES[study].tuning_seed
    kept = read("rungs")
    kept = kept[(kept["study"] == study) & (kept["problem"] == name) & (kept["player"] == algorithm)]
    if len(kept):
        return kept.drop(columns="study").dropna(axis=1)
    rungs, rows = ranked(study, algorithm, (regime,)), []

    def regrets(setting: Setting, runs: int) -> Array:
        """Return the final regrets of ``setting`` on the first ``runs`` tuning runs."""
        by_run = known(study).regrets(cell(regime, algorithm, setting, seed))
        return np.array([*by_run.values()])[:runs]

    for rung, settings in zip(STUDIES[study].rungs(algorithm), rungs, strict=True):
        best = regrets(rungs[-1][0], rung.runs)
        for setting in settings:
            final = regrets(setting, rung.runs)
            mean, error = mean_error(final)
            _, low, high = interval(np.mean, final - best)
            numbers = {"regret": float(mean), "error": float(error), "low": low, "high": high}
            rows.append({**setting, "runs": rung.runs} | numbers)
    return pd.DataFrame(rows)


class Chosen(NamedTuple):
    """The result of a tuning: the winner's regret, and how sure the choice is.

    ``regret`` and ``error`` are the winner's mean regret and standard error on ``runs`` runs. ``alike`` is the number
    of other settings whose 95 % interval of the difference to the winner contains 0. ``worst`` and ``median`` are the
    mean regrets of the worst setting and of the median setting, divided by the winner's, on the runs of the first rung.
    """

    regret: float
    error: float
    runs: int
    alike: int
    worst: float
    median: float


def summary(name: str, algorithm: str, study: str = "tune") -> Chosen:
    """Return the result of the tuning of ``algorithm`` on the experiment ``name`` in the study ``study``."""
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
    """Return the traces of ``algorithms`` at their tuned settings on the experiment ``name``, by algorithm.

    Args:
        name: The name of an experiment in `EXPERIMENTS`.
        runs: The number of runs.
        seed: The seed of the runs, which must not be that of the tuning.
        algorithms: The names of algorithms in `fedgo.experiments.roster.ALGORITHMS`.

    Raises:
        ValueError: A name is unknown, or the seed is that of the tuning.
        TypeError: ``algorithms`` is a single text.
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

    Fifty runs are played at a time, which bounds the memory and changes nothing else.

    Args:
        name: The name of an experiment in `EXPERIMENTS`.
        runs: The number of runs.
        seed: The seed of the runs.
        algorithm: The name of a player.
        players: The players by name.
        changes: Parts of the setting that replace the tuned ones, such as γ.
    """
    player = players[algorithm]
    setting = tuned(name, player.setting_of or algorithm) | changes  # it refuses an unknown name
    batches = [range(first, min(first + BATCH, runs)) for first in range(0, runs, BATCH)]
    worlds = [shared_world(EXPERIMENTS[name], batch, seed, "dense", "all") for batch in batches]
    return Trace.join([player.run(world, setting) for world in worlds])
