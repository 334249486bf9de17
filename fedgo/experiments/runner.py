"""One runner for every study: it plays settings of players on regimes and keeps a table with a row for each run.

A regime is a problem with its sizes, a player an algorithm with the settings that it may choose from, and a study says
which players play which regimes. All rows of one regime, player, setting and seed are called a cell. The text of a
regime is for instance "hartmann6, K=50, sigma=0.1, T=100, N=20"; an argument ``regime`` that is a text asks for all
regimes that have it in their text.

`run` computes the rows that the table lacks and adds them, so that an interrupted study continues where it was. It
removes rows only if ``fresh`` asks for that. Each call that adds rows notes in the table's JSON file when it was made,
from which commit and by which command. `check` plays some rows again and compares them, which shows whether the
present code still gives the same numbers. One process at a time may write a table. Frames that are returned are cached
and must not be changed.

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
# the folders of the package that have tables
SHIPPED = (DATA, *sorted(DATA.parents[1].glob("beyond/*/data")))
SEED = 0  # the seed of the evaluation runs
PAUSE = 10.0  # seconds between two writes of a table that grows
DECIMALS = 6  # the numbers of a table are rounded to these decimals
MEASURED = ("seconds", "gigabytes")  # columns that differ whenever they are measured
# A number that is played again may differ by this share of it, or by half of the last decimal of the coarsest tables.
TOLERANCE = {"rtol": 1e-9, "atol": 0.0051}
NO_ROWS = pd.DataFrame(columns=["run", "regret"])

P = ParamSpec("P")
T = TypeVar("T")
Regimes = tuple[Regime, ...]
Cell = tuple[Regime, str, tuple[tuple[str, Any], ...], int]  # a regime, a player, a setting, a seed


_written = 0  # how often tables were written: the caches of `until_written` begin anew


def until_written(function: Callable[P, T]) -> Callable[P, T]:
    """Return ``function`` with a cache of its values, which are computed anew after `run` has written a table."""
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

    It carries what another process may not know: the study with its players, and the regime with its problems.

    Args:
        study: The study.
        regime: The problem with its sizes.
        name: The player's name in the study.
        setting: The values of the player's parameters by name.
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

    A row has the fields of the regime, "player", the parameters of the setting, "seed", "run", and the columns of the
    study. "seconds" is the processor time of the job divided by its number of runs, with Phase I only if this process
    does not have its result yet (`shared_world`).
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

    Only callers with an equal ``by`` share a world, and only the 16 worlds that were used last are kept.
    """
    return regime.world(runs, seed, encoding)


@dataclass(frozen=True, eq=False)
class Sweep:
    """A study: its players choose settings on tuning runs, and then play the evaluation with them.

    A player chooses one setting of its grid for each group of regimes, by successive halving
    (`fedgo.experiments.halving`). Then it plays the regimes of the evaluation, each with the setting that it chose on
    the first group that contains the regime, or else on its first group. A player with ``setting_of`` plays with the
    settings that the named player chose. A player without groups chooses nothing, and plays with every
    setting of its grid.

    Args:
        name: The name of the study, which is also that of the file with its table.
        about: What the study is about, in words.
        players: The players by name.
        columns: The measured columns of the table: results in `fedgo.trace.Trace.to_frame`; "seconds" for the processor
            time of a run; or "scalars_dense" for the scalars of the same run with messages in matrices (NaN if the
            player is not ``dense``).
        chosen_on: Returns the groups of regimes on which the player of a name chooses settings.
        rungs: Returns the rounds of its successive halving, at least one if it has groups.
        regimes: Returns the regimes that a player plays in the evaluation. If there are none, the player only tunes.
        runs: Returns the number of evaluation runs of a player on a regime, with the seed `SEED`.
        problems: The problems that the regimes in the study's table may name.
        tuning_seed: The seed of the tuning runs.
        encoding: The form of the messages (`fedgo.messages`).
        batch: The largest number of runs in one job.
        tail: The players in whose choices the worst tenth of the runs counts as much as the mean.
        measure: Plays a `Job` and returns its rows.
        needs: For some players, a module that they import and that this package does not install.
        folder: The folder in which ``python -m fedgo.experiments`` keeps the table; `run` has an argument for it.
    """

    name: str
    about: str
    players: Mapping[str, Player]
    columns: tuple[str, ...]
    chosen_on: Callable[[str], Sequence[Regimes]] = lambda name: ()
    rungs: Callable[[str], Sequence[Rung]] = lambda name: ()
    regimes: Callable[[str], Iterable[Regime]] = lambda name: ()
    runs: Callable[[str, Regime], int] = lambda name, regime: 1
    problems: Mapping[str, Entry] = field(default_factory=lambda: PROBLEMS)
    tuning_seed: int = TUNING_SEED
    encoding: Encoding = "counts"
    batch: int = 10
    tail: tuple[str, ...] = ()
    measure: Callable[[Job], list[dict[str, Any]]] = measure
    needs: Mapping[str, str] = field(default_factory=dict)
    folder: Path = DATA

    def choice(self, stored: "Stored", name: str, group: Regimes) -> Halving:
        """Return how far the player ``name`` has come with choosing one setting for the regimes of ``group``."""

        def score(setting: Setting, runs: int) -> float | None:
            """Return the score of ``setting`` on the first ``runs`` tuning runs, or None if one of them is missing."""
            tuning = [cell(regime, name, setting, self.tuning_seed) for regime in group]
            return score_of([stored.score(rows, runs, name in self.tail) for rows in tuning])

        return halve(self.players[name].grid, self.rungs(name), score)

    def played_on(self, name: str) -> list[Regime]:
        """Return the regimes that the player ``name`` plays in the evaluation, or tunes on if there is none."""
        regimes = [*self.regimes(name)]
        if regimes:
            return [regime for regime in regimes if self.runs(name, regime)]
        return [regime for group in self.chosen_on(name) for regime in group]

    def group(self, name: str, regime: Regime) -> Regimes:
        """Return the group on which the setting of player ``name`` for ``regime`` is chosen, or () if it has none."""
        groups = self.chosen_on(self.players[name].setting_of or name)
        return next((group for group in groups if regime in group), groups[0] if groups else ())

    def settings(self, stored: "Stored", name: str, regime: Regime) -> Sequence[Setting]:
        """Return the settings with which the player ``name`` plays ``regime``; there are none while it chooses."""
        chooser, group = self.players[name].setting_of or name, self.group(name, regime)
        if not group:
            return self.players[chooser].grid
        choice = self.choice(stored, chooser, group)
        return () if choice.waiting else choice.ranked[-1][:1]

    def setting(self, name: str, regime: Regime) -> dict[str, Any]:
        """Return the setting of player ``name`` on ``regime`` by the shipped table, which has to have one."""
        settings = self.settings(shipped(self), name, regime)
        require(len(settings) == 1, "player", name, f"it has no setting; run make study NAME={self.name}")
        return dict(settings[0])

    def jobs(self, stored: "Stored", name: str, regime: str = "", most: float = math.inf) -> Iterator[Job]:
        """Yield the jobs of the player ``name`` that can be played now and whose rows the table lacks.

        While a setting is being chosen, they are the runs of the next round, on all regimes of the group. Once it is
        chosen, they are runs of the evaluation, at most ``most`` on each regime.
        """
        wanted = [played for played in self.played_on(name) if regime in str(played)]
        chooser = self.players[name].setting_of or name
        needed: list[tuple[Regime, str, Sequence[Setting], int, float]] = []
        for group in filter(None, dict.fromkeys(self.group(name, played) for played in wanted)):
            choice = self.choice(stored, chooser, group)
            needed += [(on, chooser, choice.waiting, self.tuning_seed, choice.runs) for on in group]
        for on in wanted if [*self.regimes(name)] else ():
            settings, runs = self.settings(stored, name, on), min(self.runs(name, on), most)
            needed.append((on, name, settings, SEED, runs))
        for on, player, settings, seed, runs in needed:
            for setting in settings:
                have = stored.cells.get(cell(on, player, setting, seed), NO_ROWS)["run"].tolist()
                lacking = tuple(run for run in range(int(runs)) if run not in have)
                for first in range(0, len(lacking), self.batch):
                    yield Job(self, on, player, setting, seed, lacking[first : first + self.batch])


def cell(regime: Regime, name: str, setting: Setting, seed: int) -> Cell:
    """Return the key under which `Stored` has the rows of one regime, player, setting and seed."""
    return regime, name, tuple(sorted(setting.items())), seed


def cells(table: Any, problems: Mapping[str, Entry] = PROBLEMS) -> dict[Cell, Any]:
    """Return the rows of ``table`` by cell. A parameter that a setting does not have is empty in its rows."""
    rows_of = {}
    if len(table):
        names = [*table.loc[:, REGIME[0] : "seed"].columns]
        groups = [rows for _, rows in table.groupby(names, dropna=False, sort=False)]
        firsts = table.loc[[rows.index[0] for rows in groups], names].to_dict("records")
        for first, rows in zip(firsts, groups, strict=True):
            regime = Regime(**{name: first.pop(name) for name in REGIME}, problems=problems)
            player, seed = first.pop("player"), first.pop("seed")
            setting = {name: value for name, value in first.items() if value == value}
            rows_of[cell(regime, player, setting, seed)] = rows
    return rows_of


class Stored:
    """The rows of a study's table, ``cells``, and the ``means`` of removed tuning runs, from the table "rungs".

    ``means`` has mean regrets by cell and by the number of the first runs; it is empty if the argument is False.
    """

    def __init__(self, table: Any, study: Sweep, means: bool = True) -> None:
        self.cells, kept = cells(table, study.problems), read("rungs")
        kept = kept[kept["study"] == (study.name if means else "")]
        self.means = {
            key: dict(zip(rows["runs"], rows["regret"], strict=True)) for key, rows in cells(kept).items()
        }

    def regrets(self, key: Cell) -> dict[int, float]:
        """Return the final regrets that the table has for the cell ``key``, by the number of the run."""
        rows = self.cells.get(key, NO_ROWS)
        return dict(zip(rows["run"].tolist(), rows["regret"].tolist(), strict=True))

    def score(self, key: Cell, runs: int, tail: bool = False) -> float | None:
        """Return the mean final regret of the first ``runs`` runs of the cell ``key``, or None if a run is missing.

        With ``tail`` it is the average of that mean and of the mean over the worst tenth of these runs. The means of
        the table "rungs" count where the runs are missing, even with ``tail``.
        """
        by_run = self.regrets(key)
        if all(run in by_run for run in range(runs)):
            regrets = sorted(by_run[run] for run in range(runs))
            mean, worst = math.fsum(regrets) / runs, regrets[-max(1, round(runs / 10)) :]
            return (mean + math.fsum(worst) / len(worst)) / 2 if tail else mean
        return self.means.get(key, {}).get(runs)


def path_of(name: str, folder: Path, kind: str = "csv") -> Path:
    """Return the path of the table of a study, or of its JSON file, in ``folder`` or in the package."""
    holders = (holder for holder in (folder, *SHIPPED) if (holder / f"{name}.csv").is_file())
    return next(holders, folder) / f"{name}.{kind}"


@until_written
def read(name: str, folder: Path = DATA) -> Any:
    """Return the table of the study ``name`` from ``folder``, or from the package if ``folder`` has none."""
    path = path_of(name, folder)
    require(path.is_file(), "the study", name, f"there is no table of it; run make study NAME={name}")
    return pd.read_csv(path)


@until_written
def shipped(study: Sweep) -> Stored:
    """Return the rows of the shipped table of ``study``."""
    return Stored(read(study.name), study)


def facts(name: str, folder: Path = DATA) -> dict[str, Any]:
    """Return the contents of the JSON file beside the table of the study ``name``.

    ``made`` has an entry for each call of `run` that added rows: ``when`` (UTC), ``commit``, ``command`` and ``rows``,
    their number. If that was not recorded, ``origin`` says so, and ``between`` has the two times between which the rows
    were made. ``batch means`` names the columns that hold a mean over several runs.
    """
    return dict(json.loads(path_of(name, folder, "json").read_text(encoding="utf-8")))


def dates(name: str) -> str:
    """Return the day, or the first and the last day, on which the rows of a table were made, such as "2026-11-22"."""
    made = facts(name)["made"]
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

    Players whose modules are not installed (`missing`) are not played, and their rows stay.

    Args:
        study: The study.
        players: The names of the players; all if there are none.
        regime: Play only the regimes with this text. The settings that these need are chosen first.
        runs: The largest number of evaluation runs on each regime.
        fresh: Whether to remove all rows of these players on these regimes first, those of the tuning runs included,
            and to choose settings without the table "rungs".
        folder: The folder in which the table is kept; a new table there begins with the rows of the package's.
    """
    names = tuple(players) or tuple(study.players)
    for name in names:
        require(name in study.players, "player", name, f"choose from {tuple(study.players)}")
    played = {str(on): None for name in names for on in study.played_on(name)}
    is_played = any(regime in title for title in played)
    require(is_played, "regime", regime, f"give a part of the name of one that {names} play: {tuple(played)}")
    folder.mkdir(parents=True, exist_ok=True)
    path = path_of(study.name, folder)
    table, made = pd.DataFrame(), []
    if path.is_file():
        table, made = pd.read_csv(path), facts(study.name, folder)["made"]
    call = {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "commit": commit(),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }
    made.append({**call, "rows": 0})
    cannot = missing(study)
    names = tuple(name for name in names if name not in cannot)
    try:
        if fresh and len(table):
            table = _write(study, table[~asked(table, names, regime)], [], folder, made)
        while jobs := _lacking(study, Stored(table, study, not fresh), names, regime, runs):
            table = _grown(study, table, jobs, folder, made)
    finally:
        forget()
    return read(study.name, folder)


def asked(table: Any, players: Sequence[str], regime: str) -> Any:
    """Return which rows of a table are of one of the ``players`` and of a regime with the text ``regime``."""
    in_regime = [regime in str(Regime(*row)) for row in table[list(REGIME)].itertuples(index=False)]
    return table["player"].isin(players) & np.array(in_regime, dtype=bool)


def _lacking(study: Sweep, stored: Stored, names: Sequence[str], regime: str, runs: float) -> list[Job]:
    """Return the jobs of some players whose rows the table lacks, each job once, sorted by its first run."""
    jobs = [job for name in names for job in study.jobs(stored, name, regime, runs)]
    once = {(cell(job.regime, job.name, job.setting, job.seed), job.runs): job for job in jobs}
    return sorted(once.values(), key=lambda job: job.runs[0])


def _grown(study: Sweep, table: Any, jobs: Sequence[Job], folder: Path, made: list[Any]) -> Any:
    """Play ``jobs``, write their rows every `PAUSE` seconds and at the end, and return the table."""
    rows: list[dict[str, Any]] = []
    begun = written = time.monotonic()
    results = Parallel(return_as="generator_unordered")(delayed(study.measure)(job) for job in jobs)
    try:
        for number, new_rows in enumerate(results, 1):
            rows += new_rows
            now = time.monotonic()
            if now - written > PAUSE:
                left = (now - begun) / number * (len(jobs) - number) / 60
                print(f"{study.name}: {number:,} of {len(jobs):,} jobs, {left:.0f} min left", file=sys.stderr)
                table, rows, written = _write(study, table, rows, folder, made), [], time.monotonic()
    finally:  # an interruption loses no row of a finished job
        if rows:
            table = _write(study, table, rows, folder, made)
    return table


def _write(study: Sweep, table: Any, rows: list[Any], folder: Path, made: list[Any]) -> Any:
    """Return ``table`` with ``rows``, written with its JSON file; of two rows for one run the newer stays."""
    if rows:
        made[-1]["rows"] += len(rows)
        new = pd.DataFrame(rows)
        new[list(study.columns)] = new[list(study.columns)].round(DECIMALS)
        table = pd.concat([table, new], ignore_index=True)
    first, last = [*REGIME, "player"], ["seed", "run"]
    settings = [name for name in table.columns if name not in (*first, *last, *study.columns)]
    order = [*first, *settings, *last]
    table = table.drop_duplicates(order, keep="last").reindex(columns=[*order, *study.columns])
    table = table.sort_values(order, ignore_index=True)
    content = {"study": study.name, "about": study.about, "made": [call for call in made if call["rows"]]}
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    for kind, written in (("json", text), ("csv", table.to_csv(index=False))):
        partial = folder / f".{study.name}.{kind}"  # an interruption leaves the older file whole
        partial.write_text(written, encoding="utf-8")
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
    """Play the ``rows`` of a table of ``study`` again, and return a frame with their new values and their index."""
    by_cell = cells(rows.reset_index(drop=True), study.problems)
    jobs = [
        Job(study, regime, name, dict(setting), seed, tuple(same["run"].tolist()))
        for (regime, name, setting, seed), same in by_cell.items()
    ]
    new_rows = [row for made in Parallel()(delayed(study.measure)(job) for job in jobs) for row in made]
    places = [place for same in by_cell.values() for place in same.index]
    return pd.DataFrame(new_rows, index=places).sort_index().set_index(rows.index)[list(study.columns)]


def missing(study: Sweep) -> dict[str, str]:
    """Return the modules that players of ``study`` need and that are not installed, by the name of the player."""
    return {name: module for name, module in study.needs.items() if find_spec(module) is None}


def check(study: Sweep, players: Sequence[str] = (), regime: str = "", folder: Path = DATA) -> Any:
    """Play one row of each player again, compare it with the table, and return the comparison (`compared`).

    The rows are drawn anew at every call, but not from tuning runs if there are others, because a choice may be older
    than the method. Players whose modules are not installed (`missing`) are not played. Nothing is written.

    Args:
        study: The study.
        players: The names of the players; all if there are none.
        regime: Play only rows on regimes with this text.
        folder: The folder in which the table is kept, or the package.
    """
    table = read(study.name, folder)
    wanted = asked(table, tuple(players) or tuple(study.players), regime)
    rows = table[wanted & ~table["player"].isin(missing(study))]
    remedy = "ask for a player of the table whose libraries are installed"
    require(len(rows) > 0, "the number of rows to play again", 0, remedy)
    evaluated = rows[rows["seed"] != study.tuning_seed]
    rows = (evaluated if len(evaluated) else rows).groupby("player").sample(1)
    return compared(study, rows, afresh(study, rows), folder)


def compared(study: Sweep, rows: Any, now: Any, folder: Path = DATA) -> Any:
    """Return stored ``rows`` with the numbers ``now`` in columns "… now", and whether they are the ``same``.

    Numbers may differ by `TOLERANCE`. In ``not_compared`` are the columns in `MEASURED`, means over several runs
    (``batch means`` in `facts`), and numbers that the table lacks.
    """
    made = facts(study.name, folder)["made"]
    out = {*MEASURED, *(name for entry in made for name in entry.get("batch means", ()))}
    before, after = rows[list(study.columns)].astype(float), now[list(study.columns)].astype(float)
    skipped = (before.isna() & after.notna()) | before.columns.isin([*out])
    close = np.isclose(before, after, equal_nan=True, **TOLERANCE) | skipped
    left_out = [
        ", ".join(study.columns[place] for place in np.flatnonzero(row)) for row in skipped.to_numpy()
    ]
    return rows.join(now.add_suffix(" now")).assign(not_compared=left_out, same=close.all(axis=1))
