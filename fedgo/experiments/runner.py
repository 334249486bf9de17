"""One runner for every study: it plays settings of players on regimes and keeps a table with a row for each run.

A regime is a problem with its sizes, a player an algorithm with the settings that it may choose from, and a study says
which players play which regimes. All rows of one regime, player, setting and seed are called a cell.

`run` computes the rows that the table lacks and adds them, so that an interrupted study continues where it was. It
removes rows only if ``fresh`` asks for that. Each call notes in the table's JSON file when it was made, from which
commit and by which command. `check` plays some rows again and compares them, which shows whether the present code still
gives the same numbers. One process at a time may write a table.

The jobs go through joblib, with one thread in each process: ``joblib.parallel_config`` sets the number of processes, or
a cluster.
"""

import json
import math
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed

from fedgo._checks import require
from fedgo.experiments.halving import Halving, Rung, halve, score_of
from fedgo.experiments.players import Player
from fedgo.experiments.world import PROBLEMS, REGIME, TUNING_SEED, Entry, Regime, Setting, World
from fedgo.messages import Encoding

DATA = Path(__file__).parent / "data"
SHIPPED = (
    DATA,
    *sorted(DATA.parents[1].glob("beyond/*/data")),
)  # the folders of the package that have tables
SEED = 0  # the seed of the evaluation runs
PAUSE = 10.0  # seconds between two writes of a table that grows
DECIMALS = 6  # the numbers of a table are rounded to these decimals
MEASURED = ("seconds", "gigabytes")  # columns that differ whenever they are measured
# A number that is played again may differ by this share of it, or by half of the last decimal of the coarsest tables.
TOLERANCE = {"rtol": 1e-9, "atol": 0.0051}

P = ParamSpec("P")
T = TypeVar("T")
Regimes = tuple[Regime, ...]
Cell = tuple[Regime, str, tuple[tuple[str, Any], ...], int]  # a regime, a player, a setting, a seed


_written = 0  # how often tables were written: the caches of `until_written` begin anew


def until_written(function: Callable[P, T]) -> Callable[P, T]:
    """Return ``function`` with a cache of its values, which are computed anew after `run` has written a table.

    Args:
        function: A function whose arguments can all be hashed. Its values must not be changed.
    """

    kept: Any = lru_cache(4096)(lambda written, *args, **how: function(*args, **how))

    @wraps(function)
    def current(*args: P.args, **how: P.kwargs) -> T:
        result: T = kept(_written, *args, **how)
        return result

    return current


def forget() -> None:
    """Let all functions that `until_written` decorates compute their values anew."""
    global _written
    _written += 1


class Job(NamedTuple):
    """Some runs of one player on one regime with one setting, which one process computes.

    A job carries all that another process may not know: the study with its players, and the regime with its problems.

    Args:
        study: The study.
        regime: The problem with its sizes.
        name: The player's name in the study.
        setting: The setting with which the player plays, the values of its parameters by name.
        seed: The seed of the runs.
        runs: The numbers of the runs, from 0 on.
    """

    study: "Sweep"
    regime: Regime
    name: str
    setting: Setting
    seed: int
    runs: tuple[int, ...]


def measure(job: Job) -> list[dict[str, Any]]:
    """Play the ``job`` on one thread and return its rows of the study's table, a dictionary for each of its runs.

    A row has the fields of the regime by their names, "player", the parameters of the setting, "seed", "run", and the
    columns of the study. "seconds" is the processor time of the job divided by its number of runs. It contains the time
    of Phase I only if this process does not have the result yet: later jobs of the same player on the same runs share
    it (`shared_world`). "scalars_dense" is NaN if the player is not ``dense``.

    From then on this process computes on one thread.

    Raises:
        ValueError: The problem is unknown, there is no run, a run is given twice, or the number of arms, the noise
            level or the seed is out of range.
        KeyError: The player is unknown, or the study has a column that does not exist.
        ImportError: A library that the problem or the player needs is not installed.
        NotImplementedError: The player is `fedgo.experiments.players.measured`, whose study has another ``measure``.
        Exception: The player refuses the setting, or its Phase I fails. The error is that of the player's ``play``, for
            instance a ``ValueError`` if a value is out of range.
    """
    torch.set_num_threads(1)
    columns, player = job.study.columns, job.study.players[job.name]
    world = shared_world(job.regime, job.runs, job.seed, job.study.encoding, (job.name, job.regime.entry))
    begun = time.process_time()
    trace = player.call(world, job.setting)
    seconds = (time.process_time() - begun) / len(job.runs)
    frame = trace.to_frame().assign(run=job.runs, seconds=round(seconds, 3), scalars_dense=np.nan)
    if player.dense and "scalars_dense" in columns:
        dense = player.call(job.regime.world(job.runs, job.seed, "dense"), job.setting)
        frame["scalars_dense"] = dense.communication[:, -1].numpy()
    where = {**job.regime.columns, "player": job.name, **job.setting, "seed": job.seed}
    return [where | row for row in frame[["run", *columns]].to_dict("records")]


@lru_cache(maxsize=16)
def shared_world(regime: Regime, runs: Sequence[int], seed: int, encoding: Encoding, by: Hashable) -> World:
    """Return a world with the given runs of a regime, the same object for equal arguments, so that Phase I is run once.

    Only the 16 worlds that were used last are kept; an older one is made again. The numbers of clients and rounds and
    the form of the messages are not checked here.

    Args:
        regime: The problem with its sizes.
        runs: The numbers of the runs, in a sequence that can be hashed, such as a tuple.
        seed: The seed of the runs.
        encoding: The form of all messages (`fedgo.messages`).
        by: Any value that can be hashed; only callers with an equal one share a world.

    Raises:
        ValueError: The regime's ``problems`` have no problem of its name; the number of arms, the
            noise level, the seed or the number of a run is out of range; there is no run; or a run is given twice.
        TypeError: An argument cannot be hashed, or one of these numbers is of another kind.
        ImportError: A library that the problem needs, BoTorch for instance, is not installed.
    """
    return regime.world(runs, seed, encoding)


@dataclass(frozen=True, eq=False)
class Sweep:
    """A study that tunes: its players choose settings on tuning runs, and then play the evaluation with them.

    A player chooses one setting of its grid for each group of regimes, by successive halving: in each round the best
    settings of the round before play more runs. Then the player plays the regimes of the evaluation, each with the
    setting that it chose on the first group that contains the regime, or else on its first group. A player with
    ``setting_of`` plays with the settings that the named player chose. A player without groups chooses nothing, and its
    grid must have exactly one setting.

    Args:
        name: The name of the study, which is also that of the file with its table.
        about: What the study is about, in words.
        players: The players by name.
        columns: The measured columns of the table. With the usual ``measure`` a column is one of the results in
            `fedgo.trace.Trace.to_frame`, such as "regret"; "seconds" for the processor time of a run; or
            "scalars_dense" for the scalars of the same run with messages in matrices (NaN if the player is not
            ``dense``).
        chosen_on: A function that returns, for a player's name, the groups of regimes on which it chooses settings,
            each a tuple of at least one regime.
        rungs: A function that returns, for a player's name, the rounds of its successive halving, at least one if the
            player has groups.
        regimes: The regimes of the evaluation. If it is empty, the study only tunes.
        runs: A function that returns, for a player's name and a regime, the number of its evaluation runs, with the
            seed `SEED`.
        problems: The problems that the regimes in the study's table may name.
        tuning_seed: The seed of the tuning runs.
        encoding: The form of the messages (`fedgo.messages`).
        batch: The largest number of runs in one job.
        tail: The names of players in whose choices the worst tenth of the runs counts as much as the mean.
        measure: A function that plays a `Job` and returns its rows.
        at_once: The number of jobs that `run` plays at a time; the configuration of joblib decides if it is None.
        needs: For some players, the name of a top-level module that they import and that this package does not install.
        folder: The folder in which ``python -m fedgo.experiments`` keeps the table. The function `run` does not use it,
            because it has an argument for the folder.
    """

    name: str
    about: str
    players: Mapping[str, Player]
    columns: tuple[str, ...]
    chosen_on: Callable[[str], Sequence[Regimes]] = lambda name: ()
    rungs: Callable[[str], Sequence[Rung]] = lambda name: ()
    regimes: Regimes = ()
    runs: Callable[[str, Regime], int] = lambda name, regime: 0
    problems: Mapping[str, Entry] = field(default_factory=lambda: PROBLEMS)
    tuning_seed: int = TUNING_SEED
    encoding: Encoding = "counts"
    batch: int = 10
    tail: tuple[str, ...] = ()
    measure: Callable[[Job], list[dict[str, Any]]] = measure
    at_once: int | None = None
    needs: Mapping[str, str] = field(default_factory=dict)
    folder: Path = DATA

    def choice(self, stored: "Stored", name: str, group: Regimes) -> Halving:
        """Return how far the player ``name`` has come with choosing one setting for the regimes of ``group``.

        The player chooses in its own grid. ``stored`` has the rows of the table, which decide.

        Returns:
            The rankings of the settings in the finished rounds of successive halving (``ranked``), the settings that
            the next round compares (``waiting``), and the number of runs on which it compares them (``runs``). If all
            rounds are finished, ``waiting`` is empty and ``runs`` is 0.

        Raises:
            KeyError: The player is unknown, or the table has such rows, but no column "regret".
            IndexError: The player's grid has no setting.
            ZeroDivisionError: The group has no regime.
        """

        def score(setting: Setting, runs: int) -> float | None:
            """Return the score of ``setting`` on the first ``runs`` tuning runs of each regime of the group.

            For one regime the score is the mean final regret, or for a player in ``tail`` the average of this mean and
            of the mean over the worst tenth of the runs, as `Stored.score` returns it, rounded to three decimals. For
            several regimes it is the geometric mean of 1 + these numbers, minus 1. The result is None if ``stored`` has
            for one of the regimes neither these runs nor their mean.
            """
            tuning = [cell(regime, name, setting, self.tuning_seed) for regime in group]
            return score_of([stored.score(rows, runs, name in self.tail) for rows in tuning])

        return halve(self.players[name].grid, self.rungs(name), score)

    def played_on(self, name: str) -> list[Regime]:
        """Return a list of the regimes of the evaluation that the player ``name`` plays.

        They are the regimes on which it has at least one evaluation run. If the study has no evaluation, they are the
        regimes of all groups on which the player itself chooses settings (``chosen_on``). Whether the study has this
        player is not checked.
        """
        if self.regimes:
            return [regime for regime in self.regimes if self.runs(name, regime)]
        return [regime for group in self.chosen_on(name) for regime in group]

    def group(self, name: str, regime: Regime) -> Regimes:
        """Return the group of regimes on which the setting of the player ``name`` for ``regime`` is chosen, or ().

        The groups are those of the player or, if it has ``setting_of``, those of the player that is named there. The
        result is the first group that contains the regime. If none contains it, the result is the first of all groups,
        and () if there is no group.

        Raises:
            KeyError: The player is unknown.
        """
        groups = self.chosen_on(self.players[name].setting_of or name)
        return next((group for group in groups if regime in group), groups[0] if groups else ())

    def chosen(self, stored: "Stored", name: str, regime: Regime) -> Setting | None:
        """Return the setting with which the player ``name`` plays ``regime``, or None if it is not chosen yet.

        ``stored`` has the rows of the table, which decide. A player for which there is no group of regimes (`group`)
        plays with the only setting of its grid; with ``setting_of`` the grid is that of the named player.

        Raises:
            ValueError: There is no group, and the grid does not have exactly one setting.
            IndexError: There is a group, but the study has no round of successive halving for the player, or the grid
                has no setting.
            KeyError: The player, or the player whose setting it uses, is unknown.
        """
        chooser, group = self.players[name].setting_of or name, self.group(name, regime)
        if not group:
            (only,) = self.players[chooser].grid
            return only
        choice = self.choice(stored, chooser, group)
        return None if choice.waiting else choice.ranked[-1][0]

    def setting(self, name: str, regime: Regime) -> dict[str, Any]:
        """Return the setting with which the player ``name`` plays ``regime``, as the stored table of the study decides.

        The table is the one that the package ships. The result is a new dictionary with the values of the parameters by
        name.

        Raises:
            ValueError: The setting is not chosen yet, because the table lacks rows; there is no table of this study or
                no table "rungs"; or there is no group of regimes, and the grid does not have exactly one setting.
            IndexError: There is a group, but the study has no round of successive halving for the player, or the grid
                has no setting.
            KeyError: The player, or the player whose setting it uses, is unknown.
        """
        setting = self.chosen(shipped(self), name, regime)
        require(setting is not None, "player", name, f"it has no setting; run make study NAME={self.name}")
        return dict(setting or {})

    def jobs(self, stored: "Stored", name: str, regime: str = "", most: float = math.inf) -> Iterator[Job]:
        """Yield the jobs of the player ``name`` that can be played now and whose rows the table lacks.

        While a setting is being chosen, they are the runs of the next round of the successive halving. Once it is
        chosen, they are runs of the evaluation. If the player uses the setting of another player, the runs of the
        rounds are that player's. An error is raised when one iterates over the jobs, not by the call itself.

        Args:
            stored: The rows that the table has.
            name: The name of the player.
            regime: A text that the text of a played regime (`played_on`), such as "hartmann6, K=50, sigma=0.1, T=100,
                N=20", must contain. Only the settings that these regimes need are chosen, each on all regimes of its
                group.
            most: The largest number of evaluation runs on each regime. It does not limit the runs of the rounds.

        Raises:
            KeyError: The player, or the player whose setting it uses, is unknown.
            ValueError: The player plays a regime for which there is no group of regimes, and the grid does not have
                exactly one setting.
            IndexError: There is a group, but the study has no round of successive halving for the player, or the grid
                has no setting.
        """
        wanted = [played for played in self.played_on(name) if regime in str(played)]
        chooser = self.players[name].setting_of or name
        for group in filter(None, dict.fromkeys(self.group(name, played) for played in wanted)):
            choice = self.choice(stored, chooser, group)
            for tuned in group:
                yield from self._lacking(
                    stored, chooser, tuned, choice.waiting, self.tuning_seed, choice.runs
                )
        for played in wanted if self.regimes else ():
            setting, runs = self.chosen(stored, name, played), min(self.runs(name, played), most)
            if setting is not None:
                yield from self._lacking(stored, name, played, [setting], SEED, runs)

    def _lacking(
        self, stored: "Stored", name: str, regime: Regime, settings: Sequence[Setting], seed: int, runs: float
    ) -> Iterator[Job]:
        """Yield the jobs for those of the first ``runs`` runs of each of the ``settings`` that the table lacks.

        The runs are counted from 0. They are runs of the player ``name`` on ``regime`` with ``seed``, at most ``batch``
        in a job; ``stored`` has the rows of the table.
        """
        for setting in settings:
            have = stored.runs(cell(regime, name, setting, seed))
            missing = tuple(run for run in range(int(runs)) if run not in have)
            for first in range(0, len(missing), self.batch):
                yield self.job(regime, name, setting, seed, missing[first : first + self.batch])

    def job(self, regime: Regime, name: str, setting: Setting, seed: int, runs: tuple[int, ...]) -> Job:
        """Return the job in which the player ``name`` plays some runs of ``regime`` with ``setting``.

        ``runs`` has the numbers of the runs, and ``seed`` is their seed. Nothing is checked here, not even the names.
        """
        return Job(self, regime, name, setting, seed, runs)


@dataclass(frozen=True, eq=False)
class Listing(Sweep):
    """A study that tunes nothing: its players play a list of regimes.

    A player plays runs on each of its regimes with every setting of its grid and with the seed 0 (`SEED`). The fields
    that are not described here are those of `Sweep`. Of these, the jobs do not use ``regimes``, ``chosen_on``,
    ``rungs``, ``tuning_seed`` and ``tail``.

    Args:
        listed: A function that returns the regimes of a player, for the player's name.
        runs: A function that returns, for a player's name and a regime, the number of runs with each setting.
    """

    listed: Callable[[str], Iterable[Regime]] = lambda name: ()
    runs: Callable[[str, Regime], int] = lambda name, regime: 1

    def played_on(self, name: str) -> list[Regime]:
        """Return a list of the regimes that ``listed`` gives for the player ``name``.

        Regimes on which the player has no run are in it too. Whether the study has this player is not checked.
        """
        return [*self.listed(name)]

    def jobs(self, stored: "Stored", name: str, regime: str = "", most: float = math.inf) -> Iterator[Job]:
        """Yield the jobs of the player ``name`` that the table lacks, with every setting of its grid.

        An error is raised when one iterates over the jobs, not by the call itself.

        Args:
            stored: The rows that the table has.
            name: The name of the player.
            regime: A text that the text of a regime, such as "hartmann6, K=50, sigma=0.1, T=100, N=20", must contain.
            most: The largest number of runs on each regime with each setting.

        Raises:
            KeyError: The player is unknown, and ``listed`` gives a regime with this text for its name.
        """
        for played in self.played_on(name):
            if regime in str(played):
                runs = min(self.runs(name, played), most)
                yield from self._lacking(stored, name, played, self.players[name].grid, SEED, runs)


def cell(regime: Regime, name: str, setting: Setting, seed: int) -> Cell:
    """Return the key under which `Stored` has the rows of one regime, player, setting and seed.

    It is the tuple of these four, with the setting as a tuple of pairs that is sorted by the name of the parameter.
    """
    return regime, name, tuple(sorted(setting.items())), seed


def cells(table: Any, problems: Mapping[str, Entry] = PROBLEMS) -> dict[Cell, Any]:
    """Return the rows of ``table``, a pandas frame, grouped by regime, player, setting and seed.

    The result has a frame of rows for each key that `cell` returns; it is empty if the table has no rows. The columns
    of the table between "player" and "seed" hold the parameters of all settings. Such a column is empty (NaN) in the
    rows of a setting without that parameter.

    Raises:
        ValueError: The table has rows, but no column "problem" or "seed".
        KeyError: Another field of the regime, or "player", is no column between these two.
    """
    rows_of = {}
    if len(table):
        names = list(table.columns)
        names = names[names.index(REGIME[0]) : names.index("seed") + 1]
        for _, rows in table.groupby(names, dropna=False, sort=False):
            (first,) = rows.head(1)[names].to_dict("records")
            regime = Regime(**{name: first.pop(name) for name in REGIME}, problems=problems)
            player, seed = first.pop("player"), first.pop("seed")
            setting = {name: value for name, value in first.items() if value == value}
            rows_of[cell(regime, player, setting, seed)] = rows
    return rows_of


class Stored:
    """The rows of a study's table, grouped by regime, player, setting and seed.

    ``cells`` has a frame of rows for each key that `cell` returns. For some settings only the mean regrets over the
    first runs were kept, in the table "rungs"; ``means`` has them by key and then by the number of runs.

    Args:
        table: The table of the study, a pandas frame.
        study: The study.
        means: Whether to read ``means``; if not, it is empty.
    """

    def __init__(self, table: Any, study: Sweep, means: bool = True) -> None:
        self.cells, kept = cells(table, study.problems), read("rungs")
        kept = kept[kept["study"] == (study.name if means else "")]
        self.means = {
            key: dict(zip(rows["runs"], rows["regret"], strict=True)) for key, rows in cells(kept).items()
        }

    def runs(self, key: Cell) -> set[int]:
        """Return the set of the numbers of the runs that the table has for ``key``: a regime, player, setting and seed
        (`cell`).
        """
        return set(self.cells[key]["run"].tolist()) if key in self.cells else set()

    def regrets(self, key: Cell) -> dict[int, float]:
        """Return the final regrets that the table has for ``key``, by the number of the run.

        ``key`` is a regime, player, setting and seed, as `cell` returns it. The result is empty if the table has no
        such rows.

        Raises:
            KeyError: The table has such rows, but no column "regret".
        """
        if key not in self.cells:
            return {}
        rows = self.cells[key]
        return dict(zip(rows["run"].tolist(), rows["regret"].tolist(), strict=True))

    def score(self, key: Cell, runs: int, tail: bool = False) -> float | None:
        """Return the mean final regret of the first ``runs`` runs for ``key`` (`cell`), by which settings are compared.

        The runs are counted from 0. With ``tail`` the result is the average of that mean and of the mean over the worst
        of these runs, of which there are ``runs``/10, rounded, and at least one. If the table lacks one of these runs,
        the result is the mean that the table "rungs" has for this number of runs, even with ``tail``, or None if it has
        none. ``runs`` is at least 1.

        Raises:
            KeyError: The table has rows for ``key``, but no column "regret".
        """
        by_run = self.regrets(key)
        if all(run in by_run for run in range(runs)):
            regrets = sorted(by_run[run] for run in range(runs))
            mean, worst = math.fsum(regrets) / runs, regrets[-max(1, round(runs / 10)) :]
            return (mean + math.fsum(worst) / len(worst)) / 2 if tail else mean
        return self.means.get(key, {}).get(runs)


def path_of(name: str, folder: Path, kind: str = "csv") -> Path:
    """Return the path of the table of the study ``name``, or with ``kind`` "json" that of the JSON file beside it.

    It is a path in ``folder`` if ``folder`` has a table of this name, or else in the first of the package's folders of
    tables that has one. If none has one, it is a path in ``folder``. Whether the JSON file exists is not checked.
    """
    holders = (holder for holder in (folder, *SHIPPED) if (holder / f"{name}.csv").is_file())
    return next(holders, folder) / f"{name}.{kind}"


@until_written
def read(name: str, folder: Path = DATA) -> Any:
    """Return the table of the study ``name`` as a pandas frame, which must not be changed because it is cached.

    It is read from ``folder``, or from the package if ``folder`` has none.

    Raises:
        ValueError: There is no table of this name, or its file is empty.
    """
    path = path_of(name, folder)
    require(path.is_file(), "the study", name, f"there is no table of it; run make study NAME={name}")
    return _stored(name, folder)


@until_written
def shipped(study: Sweep) -> Stored:
    """Return the rows of the shipped table of ``study``, which must not be changed because they are cached."""
    return Stored(read(study.name), study)


def facts(name: str, folder: Path = DATA) -> dict[str, Any]:
    """Return the contents of the JSON file beside the table of the study ``name`` in ``folder``, or in the package.

    Returns:
        A dictionary with ``study`` and ``about``, two texts, and ``made``, a list with an entry for each call of `run`
        that added rows: ``when`` (a time in UTC), ``commit``, ``command`` and ``rows``, their number. If that was not
        recorded, ``origin`` says so, and ``between`` has the two times between which the rows were made. ``batch
        means`` names the columns that hold, in these rows, a mean over several runs.
    """
    return dict(json.loads(path_of(name, folder, "json").read_text(encoding="utf-8")))


def dates(name: str, folder: Path = DATA) -> str:
    """Return the day on which the rows of the table of the study ``name`` were made, as text such as "2026-11-22".

    The day is in UTC. If there are several days, the text has the first and the last one with "to" between them.
    """
    made = facts(name, folder)["made"]
    days = sorted(text[:10] for entry in made for text in entry.get("between") or [entry["when"]])
    return " to ".join(dict.fromkeys([days[0], days[-1]]))


def run(
    study: Sweep,
    players: Sequence[str] = (),
    regime: str = "",
    runs: float = math.inf,
    fresh: bool = False,
    folder: Path = DATA,
) -> Any:
    """Play the jobs that the table of ``study`` lacks, write their rows, and return the table.

    Args:
        study: The study.
        players: The names of the players; all if there are none.
        regime: A text; only regimes that have it in their text, such as "hartmann6, K=50, sigma=0.1, T=100, N=20", are
            played. The settings that these need are chosen first, each on all regimes of its group.
        runs: The largest number of evaluation runs on each regime.
        fresh: Whether to remove all rows of these players on these regimes first, those of the tuning runs included.
            The mean regrets that the table "rungs" keeps are then not used to choose settings.
        folder: The folder in which the table is kept; it is made if it does not exist. If it has no table of the study,
            the table that is written there begins with the rows of the package's table, if there is one.

    Returns:
        The whole table as a pandas frame, which must not be changed because it is cached.

    Raises:
        ValueError: A player is unknown, no regime that the players play has ``regime`` in its text, a player has
            neither a group of regimes nor exactly one setting, or there is neither a table nor a row to add.
        ImportError: A library that a problem or a player needs is not installed, or BoTorch is not installed, whose
            version is noted with the rows.
        IndexError: A player has a group of regimes, but no round of successive halving or no setting.
        OSError: The table cannot be written.
        Exception: A job cannot be played; the error is that of the study's ``measure``.
    """
    names = tuple(players) or tuple(study.players)
    for name in names:
        require(name in study.players, "player", name, f"choose from {tuple(study.players)}")
    played = {str(on): None for name in names for on in study.played_on(name)}
    is_played = any(regime in title for title in played)
    require(is_played, "regime", regime, f"give a part of the name of one that {names} play: {tuple(played)}")
    folder.mkdir(parents=True, exist_ok=True)
    call = {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "commit": commit(),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }
    try:
        table = _stored(study.name, folder)
        if fresh and len(table):
            table = _write(study, table[~asked(table, names, regime)], [], folder, call)
        while jobs := _lacking(study, Stored(table, study, not fresh), names, regime, runs):
            table = _grown(study, table, jobs, folder, call)
    finally:
        forget()
    return read(study.name, folder)


def asked(table: Any, players: Sequence[str], regime: str) -> Any:
    """Return which rows of a study's table are of one of the ``players`` and of a regime with ``regime`` in its text.

    The text of a regime is for instance "hartmann6, K=50, sigma=0.1, T=100, N=20"; an empty ``regime`` is in all of
    them. ``table`` is a pandas frame, and the result a boolean series with an entry for each of its rows.

    Raises:
        KeyError: The table lacks a field of the regime, or "player", as a column.
    """
    in_regime = [regime in str(Regime(*row)) for row in table[list(REGIME)].itertuples(index=False)]
    return table["player"].isin(players) & np.array(in_regime, dtype=bool)


def _lacking(study: Sweep, stored: Stored, names: Sequence[str], regime: str, runs: float) -> list[Job]:
    """Return the jobs of some players whose rows the table lacks, each job once, sorted by its first run.

    Args:
        study: The study.
        stored: The rows that the table has.
        names: The names of the players.
        regime: A text that the text of a played regime must contain.
        runs: The largest number of evaluation runs on each regime.
    """
    jobs = [job for name in names for job in study.jobs(stored, name, regime, runs)]
    once = {(cell(job.regime, job.name, job.setting, job.seed), job.runs): job for job in jobs}
    return sorted(once.values(), key=lambda job: job.runs[0])


def _grown(study: Sweep, table: Any, jobs: Sequence[Job], folder: Path, call: Mapping[str, Any]) -> Any:
    """Play ``jobs``, write their rows, and return the table with them.

    When a job ends more than `PAUSE` seconds after the last write, or after the start, the rows so far are written, and
    a line on stderr says how many jobs are done and estimates how long the others take. The rows that are left are
    written at the end, also after an interruption.

    Args:
        study: The study.
        table: The table before; it is returned if there is no new row.
        jobs: The jobs.
        folder: The folder in which the table is kept.
        call: When and how `run` was called, for the JSON file.
    """
    rows: list[dict[str, Any]] = []
    begun = written = time.monotonic()
    results = Parallel(study.at_once, return_as="generator_unordered")(
        delayed(study.measure)(job) for job in jobs
    )
    try:
        for number, new_rows in enumerate(results, 1):
            rows += new_rows
            now = time.monotonic()
            if now - written > PAUSE:
                left = (now - begun) / number * (len(jobs) - number) / 60
                print(f"{study.name}: {number:,} of {len(jobs):,} jobs, {left:.0f} min left", file=sys.stderr)
                table, rows, written = _write(study, table, rows, folder, call), [], time.monotonic()
    finally:
        if rows:
            table = _write(study, table, rows, folder, call)
    return table


def _stored(name: str, folder: Path) -> Any:
    """Return the table of the study ``name`` in ``folder`` or in the package, or an empty frame."""
    path = path_of(name, folder)
    # some tables still have a column of positions in ``made``, of which nothing is read any more
    return pd.read_csv(path).drop(columns="made", errors="ignore") if path.is_file() else pd.DataFrame()


def _write(study: Sweep, table: Any, rows: list[Any], folder: Path, call: Mapping[str, Any]) -> Any:
    """Return ``table`` with ``rows``, after it and its JSON file are written; of two rows for one run the newer stays.

    The new numbers are rounded to `DECIMALS` decimals. The entry of this ``call`` counts the rows that it has added.
    """
    path = path_of(study.name, folder, "json")
    made = facts(study.name, folder)["made"] if path.is_file() else []
    if rows:
        entry = next((entry for entry in made if call.items() <= entry.items()), None)
        if entry is None:
            made.append(entry := {**call, "rows": 0})
        entry["rows"] += len(rows)
        new = pd.DataFrame(rows)
        new[list(study.columns)] = new[list(study.columns)].round(DECIMALS)
        table = pd.concat([table, new], ignore_index=True)
    first, last = [*REGIME, "player"], ["seed", "run"]
    settings = [name for name in table.columns if name not in (*first, *last, *study.columns)]
    order = [*first, *settings, *last]
    table = table.drop_duplicates(order, keep="last").reindex(columns=[*order, *study.columns])
    table = table.sort_values(order, ignore_index=True)
    content = {"study": study.name, "about": study.about, "made": made}
    texts = {
        "json": json.dumps(content, indent=1, ensure_ascii=False) + "\n",
        "csv": table.to_csv(index=False),
    }
    for kind, text in texts.items():
        partial = folder / f".{study.name}.{kind}"  # an interruption leaves the older file whole
        partial.write_text(text, encoding="utf-8")
        partial.replace(folder / f"{study.name}.{kind}")
    return table


def commit() -> str:
    """Return the commit of the working copy, with "-dirty" if more than data differs, or "unknown" without git."""
    git, but = ("git", "-C", str(DATA)), ":(top,exclude,glob)fedgo/**/data/**"
    try:
        head = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], check=True, capture_output=True, text=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    clean = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", ":/", but], check=False).returncode == 0
    return head.stdout.strip() + ("" if clean else "-dirty")


def afresh(study: Sweep, rows: Any) -> Any:
    """Play the ``rows`` of a table of ``study`` again, and return a frame with their new values, in the same order.

    ``rows`` are rows of a pandas frame, at least one, with each run once. The result has their index, and the measured
    columns of the study.

    Raises:
        KeyError: The study has no player of the name in a row, or there is no row.
        ImportError: A library that a problem or a player needs is not installed.
        Exception: A job cannot be played any more; the error is that of the study's ``measure``.
    """
    by_cell = cells(rows.reset_index(drop=True), study.problems)
    jobs = [
        study.job(regime, name, dict(setting), seed, tuple(same["run"].tolist()))
        for (regime, name, setting, seed), same in by_cell.items()
    ]
    new_rows = [row for made in Parallel()(delayed(study.measure)(job) for job in jobs) for row in made]
    places = [place for same in by_cell.values() for place in same.index]
    return pd.DataFrame(new_rows, index=places).sort_index().set_index(rows.index)[list(study.columns)]


def missing(study: Sweep) -> dict[str, str]:
    """Return the modules that players of ``study`` need and that are not installed, each by the name of its player.

    The study says in ``needs`` which player needs which module. The result is empty if all of these are installed.
    """
    return {name: module for name, module in study.needs.items() if find_spec(module) is None}


def check(
    study: Sweep, players: Sequence[str] = (), regime: str = "", seed: int | None = None, folder: Path = DATA
) -> Any:
    """Play one row of each player again, compare it with the table, and return the comparison.

    Players whose modules are not installed (`missing`) are not played. Nothing is written.

    Args:
        study: The study.
        players: The names of the players; all if there are none. Names without rows in the table are left out.
        regime: A text; only rows on regimes that have it in their text, such as "hartmann6, K=50, sigma=0.1, T=100,
            N=20", are played.
        seed: A number from 0 to 2³² − 1 that determines which row of each player is played; with None a row is drawn
            anew at every call.
        folder: The folder in which the table is kept; the table of the package is used if this folder has none.

    Returns:
        The frame that `compared` returns, with one row for each of these players that has rows on these regimes and can
        be played here.

    Raises:
        ValueError: The table has no row of these players and regimes that can be played here, there is no table, or
            ``seed`` is out of range.
        FileNotFoundError: The table has no JSON file.
        KeyError: The study has no player of the name in a row.
        ImportError: A library is not installed that a problem, or a player that is not in ``study.needs``, needs.
        Exception: A row cannot be played any more; the error is that of the study's ``measure``.
    """
    table = read(study.name, folder)
    wanted = asked(table, tuple(players) or tuple(study.players), regime)
    rows = table[wanted & ~table["player"].isin(missing(study))]
    remedy = "ask for a player of the table whose libraries are installed"
    require(len(rows) > 0, "the number of rows to play again", 0, remedy)
    rows = rows.groupby("player").sample(1, random_state=seed)
    return compared(study, rows, afresh(study, rows), folder)


def compared(study: Sweep, rows: Any, now: Any, folder: Path = DATA) -> Any:
    """Compare stored rows of a table with the same rows played again, up to `TOLERANCE`.

    Not compared are the columns in `MEASURED`, columns that hold a mean over several runs (``batch means`` in the
    table's JSON file), and numbers that the table lacks.

    Args:
        study: The study.
        rows: The stored rows, a pandas frame.
        now: The same rows with the new numbers, as `afresh` returns them, with the index of ``rows``.
        folder: The folder in which the table is kept. If it has no such table, that of the package is used.

    Returns:
        The rows with the new numbers in columns "… now"; with ``not_compared``, the names of the columns left out,
        joined by commas; and with ``same``, whether all other numbers are equal.
    """
    made = facts(study.name, folder)["made"]
    out = {*MEASURED, *(name for entry in made for name in entry.get("batch means", ()))}
    before, after = rows[list(study.columns)].astype(float), now[list(study.columns)].astype(float)
    skipped = before.isna() & after.notna()
    for name in out & {*study.columns}:
        skipped[name] = True
    close = np.isclose(before, after, equal_nan=True, **TOLERANCE) | skipped
    left_out = [
        ", ".join(study.columns[place] for place in np.flatnonzero(row)) for row in skipped.to_numpy()
    ]
    return rows.join(now.add_suffix(" now")).assign(not_compared=left_out, same=close.all(axis=1))
