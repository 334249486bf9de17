"""Results of the studies' tables: the settings chosen, how sure each choice is, and traces with these settings."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedgo._checks import count, on_cpu, require, require_kind
from fedgo.experiments.players import Player
from fedgo.experiments.roster import ALGORITHMS
from fedgo.experiments.runner import Regimes, cell, read, shared_world, shipped, until_written
from fedgo.experiments.studies import STUDIES
from fedgo.experiments.summaries import Array, interval, mean_error
from fedgo.experiments.world import EXPERIMENTS, TUNING_SEED, Setting
from fedgo.trace import Trace

BATCH = 50  # the largest number of runs that are played at a time


@until_written
def ranked(study: str, player: str, group: Regimes) -> list[list[Setting]]:
    """Return the settings that each finished round of successive halving compared for ``group``, best first."""
    own = STUDIES[study]
    return own.choice(shipped(own), player, group).ranked


def tuned(name: str, algorithm: str, study: str = "tune") -> dict[str, Any]:
    """Return the setting with which an algorithm plays the experiment ``name``, by the stored table of a study."""
    require(name in EXPERIMENTS, "name", name, f"choose one of {tuple(EXPERIMENTS)}")
    players = tuple(STUDIES[study].players)
    require(algorithm in players, "algorithm", algorithm, f"choose one of {players}")
    return STUDIES[study].setting(algorithm, EXPERIMENTS[name])


def judged(name: str, algorithm: str) -> Any:
    """Return a frame of the settings that an algorithm tried on the experiment ``name``, by round, best first.

    Beside the parameters it has the number of ``runs``, the mean final ``regret``, its standard ``error``, and the ends
    ``low`` and ``high`` of the 95 % interval of the mean difference from the setting finally chosen, on the same runs.
    """
    regime, own = EXPERIMENTS[name], STUDIES["tune"]
    kept = read("rungs")
    kept = kept[(kept["study"] == own.name) & (kept["problem"] == name) & (kept["player"] == algorithm)]
    if len(kept):
        return kept.drop(columns="study").dropna(axis=1)
    # If the table lacks rows, this raises an error that names the command that adds them.
    winner = tuned(name, algorithm)
    rungs, rows = ranked("tune", algorithm, (regime,)), []

    def regrets(setting: Setting, runs: int) -> Array:
        """Return the final regrets of ``setting`` on the first ``runs`` tuning runs that the table has."""
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
    """The setting that an algorithm has chosen, and how sure the choice is.

    Args:
        regret: Its mean final regret on the tuning runs of the last round.
        error: The standard error of this mean.
        runs: The number of these runs.
        alike: The number of other settings whose interval in their last round contains the difference 0.
        worst: The largest mean regret in the first round, divided by that of the chosen setting there.
        median: The median of these regrets, divided in the same way.
    """

    regret: float
    error: float
    runs: int
    alike: int
    worst: float
    median: float


def summary(name: str, algorithm: str) -> Chosen:
    """Return what `judged` says of the chosen setting."""
    rows = judged(name, algorithm)
    parts = list(ranked("tune", algorithm, (EXPERIMENTS[name],))[0][0])
    winner = tuned(name, algorithm)
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

    Args:
        name: The name of an experiment in `fedgo.experiments.world.EXPERIMENTS`.
        runs: The number of runs.
        seed: The seed of the runs, which must not be 1000, that of the tuning.
        algorithms: The names of algorithms in `fedgo.experiments.roster.ALGORITHMS`.
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
    """Play an algorithm at its tuned setting on the experiment ``name``, with dense messages, and return its trace.

    At most fifty runs are played at a time (`BATCH`), which bounds the memory and changes no result.

    Args:
        name: The name of an experiment in `fedgo.experiments.world.EXPERIMENTS`.
        runs: The number of runs.
        seed: The seed of the runs.
        algorithm: The name of a player, which has a setting in the study "tune".
        players: The players by name.
        changes: Entries of the setting that replace the tuned ones or are added to them, such as ``gamma``.
    """
    player = players[algorithm]
    setting = tuned(name, player.setting_of or algorithm) | changes  # `tuned` refuses an unknown name
    batches = [range(first, min(first + BATCH, runs)) for first in range(0, runs, BATCH)]
    worlds = [shared_world(EXPERIMENTS[name], batch, seed, "dense", "all") for batch in batches]
    return Trace.join([player.play(world, setting) for world in worlds])
