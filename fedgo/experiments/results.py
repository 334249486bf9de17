"""What the tables of the studies say: which settings are chosen, how sure each choice is, and their traces."""

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
    """The settings on every rung of a choice, from the best on."""
    return STUDIES[study].choice(known(study), player, group).ranked


def tuned(name: str, algorithm: str, study: str = "tune") -> dict[str, Any]:
    """The setting of ``algorithm`` that was best on the experiment ``name``, in the book's tuning or in another."""
    require(name in EXPERIMENTS, "name", name, f"choose one of {tuple(EXPERIMENTS)}")
    there = tuple(STUDIES[study].players)
    require(algorithm in there, "algorithm", algorithm, f"choose one of {there}")
    return STUDIES[study].setting(algorithm, EXPERIMENTS[name])


def evaluated(study: str, regime: Regime) -> dict[str, Any]:
    """The rows of every player's evaluation on ``regime``, run by run, in the order of the study's players."""
    there = known(study).cells.items()
    found = {name: rows for (one, name, _, seed), rows in there if (one, seed) == (regime, SEED)}
    return {name: found[name].reset_index(drop=True) for name in STUDIES[study].players if name in found}


def tried(study: str, player: str, regime: Regime) -> list[tuple[Setting, Any]]:
    """Every setting of a player's grid, with its rows on the tuning runs of ``regime``."""
    there, seed = known(study).cells, STUDIES[study].tuning_seed
    grid = STUDIES[study].players[player].grid
    return [(setting, there[cell(regime, player, setting, seed)]) for setting in grid]


def judged(name: str, algorithm: str, study: str = "tune") -> Any:
    """Every setting on every rung, rung by rung and from the best on, as a frame: the mean ``regret`` of its ``runs``,
    the standard ``error``, and the 95 % interval from ``low`` to ``high`` of its mean difference to the winner."""
    regime, seed = EXPERIMENTS[name], STUDIES[study].tuning_seed
    kept = read("rungs")
    kept = kept[(kept["study"] == study) & (kept["problem"] == name) & (kept["player"] == algorithm)]
    if len(kept):
        return kept.drop(columns="study").dropna(axis=1)
    rungs, rows = ranked(study, algorithm, (regime,)), []

    def regrets(setting: Setting, runs: int) -> Array:
        there = known(study).regrets(cell(regime, algorithm, setting, seed))
        return np.array([*there.values()])[:runs]

    for rung, settings in zip(STUDIES[study].rungs(algorithm), rungs, strict=True):
        best = regrets(rungs[-1][0], rung.runs)
        for setting in settings:
            own = regrets(setting, rung.runs)
            mean, error = mean_error(own)
            _, low, high = interval(np.mean, own - best)
            numbers = {"regret": float(mean), "error": float(error), "low": low, "high": high}
            rows.append({**setting, "runs": rung.runs} | numbers)
    return pd.DataFrame(rows)


class Chosen(NamedTuple):
    """The winner of a tuning: its mean ``regret`` and standard ``error`` on ``runs`` runs, and how sure the choice is.

    ``alike``: how many of the other settings cannot be told from it, each on all the runs that it had. ``worst`` and
    ``median``: the mean of the worst and of the middle setting over the winner's, on the runs of the first rung.
    """

    regret: float
    error: float
    runs: int
    alike: int
    worst: float
    median: float


def summary(name: str, algorithm: str, study: str = "tune") -> Chosen:
    """What the tuning of ``algorithm`` on the experiment ``name`` came to."""
    rows = judged(name, algorithm, study)
    parts = list(ranked(study, algorithm, (EXPERIMENTS[name],))[0][0])
    winner = tuned(name, algorithm, study)
    is_winner = (rows[parts] == pd.Series(winner, dtype=object)[parts]).all(axis=1)
    best = rows[is_winner].iloc[-1]
    others = rows[~is_winner].drop_duplicates(parts, keep="last")
    alike = int(((others["low"] <= 0) & (others["high"] >= 0)).sum())
    first = rows[rows["runs"] == rows["runs"].min()]["regret"]
    base = rows[is_winner].iloc[0]["regret"]
    spread = (float(value / base) for value in (first.max(), first.median()))
    return Chosen(float(best["regret"]), float(best["error"]), int(best["runs"]), alike, *spread)


@on_cpu
def evaluate(
    name: str, runs: int, seed: int = 0, algorithms: Sequence[str] = tuple(ALGORITHMS)
) -> dict[str, Trace]:
    """The traces of ``algorithms`` at their tuned settings on ``runs`` runs of the experiment ``name``."""
    require_kind(not isinstance(algorithms, str), "algorithms", algorithms, "give a sequence of names")
    unknown = [algorithm for algorithm in algorithms if algorithm not in ALGORITHMS]
    require(not unknown, "algorithms", unknown, f"choose from {tuple(ALGORITHMS)}")
    count("runs", runs, "give at least one run")
    require(seed != TUNING_SEED, "seed", seed, "it is the tuning instances' own; evaluate on another")
    return {algorithm: played(name, runs, seed, algorithm) for algorithm in algorithms}


def played(
    name: str,
    runs: int,
    seed: int = 0,
    algorithm: str = "Fed-GO-UCB",
    players: Mapping[str, Player] = ALGORITHMS,
    **changes: Any,
) -> Trace:
    """An experiment played by an ``algorithm`` of ``players``, at its tuned setting but for ``changes``, such as a γ.

    The runs are taken fifty at a time, which bounds the memory and changes nothing else.
    """
    player = players[algorithm]
    setting = tuned(name, player.setting_of or algorithm) | changes
    parts = [range(first, min(first + BATCH, runs)) for first in range(0, runs, BATCH)]
    worlds = [shared_world(EXPERIMENTS[name], part, seed, "dense", "all") for part in parts]
    return Trace.join([player.run(world, setting) for world in worlds])
