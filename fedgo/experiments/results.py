"""What the tables of the studies say: which settings are chosen, and in the regime map who wins, by how much, and who
gets stuck."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedgo._checks import count, on_cpu, require, require_kind
from fedgo.experiments.players import Setting
from fedgo.experiments.regimes import EXPERIMENTS, TUNING_SEED, Regime
from fedgo.experiments.roster import ALGORITHMS, EVERY, PLAYERS
from fedgo.experiments.runner import SEED, Regimes, cell, known, read, shared_world, until_written
from fedgo.experiments.studies import MAIN, REGIMES, STUDIES
from fedgo.experiments.summaries import Array, interval, mean_error
from fedgo.trace import Trace

STUCK = 0.1  # of what uniform play loses: a run that loses more than that in its last tenth of the steps
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


def played(name: str, runs: int, seed: int = 0, algorithm: str = "Fed-GO-UCB", **changes: Any) -> Trace:
    """An experiment played by an ``algorithm`` of `EVERY`, at its tuned setting but for ``changes`` of it, such as a γ.

    The runs are taken fifty at a time, which bounds the memory and changes nothing else.
    """
    player = EVERY[algorithm]
    setting = tuned(name, player.setting_of or algorithm) | changes
    parts = [range(first, min(first + BATCH, runs)) for first in range(0, runs, BATCH)]
    worlds = [shared_world(EXPERIMENTS[name], part, seed, "dense", "all") for part in parts]
    return Trace.join([player.run(world, setting) for world in worlds])


# --- The regime map


@until_written
def cells() -> Mapping[tuple[Regime, str], Any]:
    """The rows of every (regime, player) of the map's evaluation, run by run."""
    return {(regime, name): rows for regime in REGIMES for name, rows in evaluated("map", regime).items()}


def regimes() -> list[Regime]:
    """The regimes of the map, in its order, on which all of `MAIN` have a cell."""
    return [regime for regime in REGIMES if all((regime, name) in cells() for name in MAIN)]


def players(regime: Regime) -> list[str]:
    """Who has a cell on ``regime``, in the order of the registry."""
    return [name for name in PLAYERS if (regime, name) in cells()]


def title(name: str) -> str:
    """What the book calls a player of the map."""
    return PLAYERS[name].title or name


def worst(regrets: Any) -> float:
    """The mean of the worst tenth of the runs, of one run at least."""
    return float(np.sort(regrets)[-max(1, round(len(regrets) / 10)) :].mean())


@until_written
def uniform(regime: Regime) -> float:
    """What a step of uniform play loses, on average over the runs of ``regime`` that somebody has."""
    runs = max(len(cells()[regime, name]) for name in players(regime))
    means = regime.world(range(runs)).problem.means
    return float((means.amax(1) - means.mean(1)).mean())


def stuck(regime: Regime, player: str) -> npt.NDArray[np.bool_]:
    """Which runs still lose, in the last tenth of the steps, more than `STUCK` of what uniform play does, (S,) bool."""
    return np.asarray(cells()[regime, player].late_regret > STUCK * uniform(regime))


class Across(NamedTuple):
    """What a player does on a group of regimes: the geometric means of its mean ``regret`` and of its worst ``tenth``,
    both over what uniform play loses in as many steps, and how many of its ``runs`` still ``lose`` at the end."""

    regret: float
    tenth: float
    lose: int
    runs: int


def across(group: Sequence[Regime], player: str) -> Across:
    """What ``player`` does on the regimes of ``group``."""
    regrets = [cells()[regime, player].regret / uniform(regime) / regime.world(1).steps for regime in group]
    logs = np.log([[each.mean(), worst(each)] for each in regrets])
    regret, tenth = np.exp(logs.mean(0)).tolist()
    flags = np.concatenate([stuck(regime, player) for regime in group])
    return Across(regret, tenth, int(flags.sum()), len(flags))


def paired(regime: Regime, ours: str, other: str) -> tuple[Array, Array]:
    """The final regrets of two players on their common runs."""
    one, two = (cells()[regime, name].regret.to_numpy() for name in (ours, other))
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


def compared(group: Sequence[Regime], ours: str, other: str) -> Compared:
    """Count the regimes of ``group`` where the interval of `ratio`, the regret of ``ours`` over that of ``other``,
    lies below 1, holds 1, or lies above 1."""
    intervals = [ratio(regime, ours, other)[1:] for regime in group]
    less, more = sum(high < 1 for _, high in intervals), sum(low > 1 for low, _ in intervals)
    return Compared(less, len(intervals) - less - more, more)


def leader(regime: Regime) -> str:
    """The player with the least mean regret: one after the other, those with most runs first, over common runs."""
    first, *others = sorted(players(regime), key=lambda name: -len(cells()[regime, name]))
    for name in others:
        first = name if difference(regime, name, first)[0] < 0 else first
    return first


def alike(regime: Regime) -> list[str]:
    """The leader, and who cannot be told from it: the interval of the paired difference holds 0."""
    first = leader(regime)
    others = [name for name in players(regime) if name != first]
    return [first, *(name for name in others if difference(regime, name, first)[1] <= 0)]
