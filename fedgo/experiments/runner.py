"""One runner for every study: players × regimes × settings × runs make one table, with a row for each run.

A run computes the rows that the table lacks and adds them, so an interrupted study goes on where it was. It removes a
row only where ``fresh`` asks for that. Each write takes a lock, reads the file again and merges the new rows into it.
Several processes may therefore work on one table. The column ``made`` says for each row which entry of the list
``made`` in the table's JSON file describes the run that made it: when, from which commit, by which command and with
which libraries.
Whether the code of today still gives the same rows is found by playing some of them again (`check`).

The work goes through joblib, with one thread in each process: ``joblib.parallel_config`` says to how many processes, or
to which cluster.
"""

import json
import math
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch
from filelock import FileLock
from joblib import Parallel, delayed

from fedgo._checks import require
from fedgo.experiments.halving import Halving, Rung, halve, together
from fedgo.experiments.players import Player
from fedgo.experiments.traces import LIBRARIES
from fedgo.experiments.world import PROBLEMS, TUNING_SEED, Entry, Regime, Setting, World
from fedgo.messages import Encoding

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

DATA = Path(__file__).parent / "data"
SHIPPED = [DATA]  # the folders of tables that the package has; whoever adds studies adds theirs
REGIME = tuple(field.name for field in fields(Regime))
SEED = 0  # of what is evaluated
PAUSE = 10.0  # seconds between two writings of a table that grows
DIGITS = 6  # behind the point, to which a number is rounded when it is written
MEASURED = ("seconds", "gigabytes")  # columns of the machine, which no second run gives again

T = TypeVar("T")
Regimes = tuple[Regime, ...]
Cell = tuple[Regime, str, tuple[tuple[str, Any], ...], int]  # a regime, a player, a setting, a seed


_of_tables: "list[_lru_cache_wrapper[Any]]" = []


def until_written(function: Callable[..., T]) -> "_lru_cache_wrapper[T]":
    """Return ``function`` with a cache that `run` empties, for functions of the stored tables."""
    _of_tables.append(cache(function))
    return _of_tables[-1]


def forget() -> None:
    """Empty the caches of all functions that `until_written` decorates."""
    for cached in _of_tables:
        cached.cache_clear()


class Job(NamedTuple):
    """Some runs of one player on one regime with one setting.

    A job carries what another process may not know: the ``study`` with its players, and the ``entry`` of the problem.
    """

    study: "Sweep"
    entry: Entry | None
    regime: Regime
    name: str
    setting: Setting
    seed: int
    runs: tuple[int, ...]


def measure(job: Job) -> list[dict[str, Any]]:
    """Return the rows of ``job``, played on one thread."""
    torch.set_num_threads(1)
    if job.entry:
        PROBLEMS[job.regime.problem] = job.entry
    columns, player = job.study.columns, job.study.players[job.name]
    world = shared_world(job.regime, job.runs, job.seed, job.study.encoding, (job.name, job.entry))
    begun = time.process_time()
    trace = player.play(world, job.setting)
    seconds = (time.process_time() - begun) / len(job.runs)
    frame = trace.to_frame().assign(run=job.runs, seconds=round(seconds, 3), scalars_dense=np.nan)
    if player.dense and "scalars_dense" in columns:
        dense = player.play(job.regime.world(job.runs, job.seed, "dense"), job.setting)
        frame["scalars_dense"] = dense.communication[:, -1].numpy()
    where = {**asdict(job.regime), "player": job.name, **job.setting, "seed": job.seed}
    return [where | row for row in frame[["run", *columns]].to_dict("records")]


@lru_cache(maxsize=16)
def shared_world(regime: Regime, runs: Sequence[int], seed: int, encoding: Encoding, by: Hashable) -> World:
    """Return a world with ``runs`` of a regime, the same object for equal arguments, so that its Phase I is run once.

    Worlds are shared among plays with the same ``by``.
    """
    return regime.world(runs, seed, encoding)


@dataclass(frozen=True)
class Sweep:
    """A study that tunes: its players choose settings on tuning runs and then play the evaluation with them.

    ``players`` choose among their grids by ``rungs`` on runs of ``tuning_seed``, one setting for each group of regimes
    that ``chosen_on`` gives for a name. Then each plays ``runs`` (a function of name and regime) runs of `SEED` on
    ``regimes``, with the choice of the group that contains the regime, or of the only group. In the choices of those in
    ``tail`` the worst tenth counts as much as the mean.

    ``columns`` are those of `Trace.to_frame`, the "seconds" of a run, and "scalars_dense", the scalars of the same run
    with messages in matrices. ``measure`` makes the rows of a job, which has at most ``batch`` runs. ``at_once`` is the
    number of jobs at a time; joblib decides if it is None. ``needs`` names, by player, a module that the player imports
    and that this package does not install. ``folder`` is where the table is kept.
    """

    name: str
    about: str
    players: Mapping[str, Player]
    columns: tuple[str, ...]
    chosen_on: Callable[[str], Sequence[Regimes]] = lambda name: ()
    rungs: Callable[[str], Sequence[Rung]] = lambda name: ()
    regimes: Regimes = ()
    runs: Callable[[str, Regime], int] = lambda name, regime: 0
    tuning_seed: int = TUNING_SEED
    encoding: Encoding = "counts"
    batch: int = 10
    tail: tuple[str, ...] = ()
    measure: Callable[[Job], list[dict[str, Any]]] = measure
    at_once: int | None = None  # how many jobs, if joblib is not to say
    needs: Mapping[str, str] = field(default_factory=dict)
    folder: Path = DATA  # where its table is kept

    def choice(self, known: "Known", name: str, group: Regimes) -> Halving:
        """Return how far the choice of ``name`` on the regimes of ``group`` has come."""

        def score(setting: Setting, runs: int) -> float | None:
            """Return the score of ``setting`` on its first ``runs`` runs of all regimes, or None if one is missing."""
            each_regime = [cell(one, name, setting, self.tuning_seed) for one in group]
            return together([known.score(each, runs, name in self.tail) for each in each_regime])

        return halve(self.players[name].grid, self.rungs(name), score)

    def played_on(self, name: str) -> list[Regime]:
        """Return the regimes that ``name`` plays; in a study without an evaluation, those on which it chooses."""
        if self.regimes:
            return [one for one in self.regimes if self.runs(name, one)]
        return [one for group in self.chosen_on(name) for one in group]

    def chooser(self, name: str) -> str:
        """Return the player with whose setting ``name`` plays."""
        return self.players[name].setting_of or name

    def group(self, name: str, regime: Regime) -> Regimes:
        """Return the regimes on which ``name`` chooses its setting for ``regime``, or nothing if it has no choice."""
        groups = self.chosen_on(self.chooser(name))
        return next((group for group in groups if regime in group), groups[0] if groups else ())

    def chosen(self, known: "Known", name: str, regime: Regime) -> Setting | None:
        """Return the setting with which ``name`` plays ``regime``, or None before it is chosen."""
        of, group = self.chooser(name), self.group(name, regime)
        if not group:
            (only,) = self.players[of].grid
            return only
        choice = self.choice(known, of, group)
        return None if choice.waiting else choice.ranked[-1][0]

    def setting(self, name: str, regime: Regime) -> dict[str, Any]:
        """Return the setting with which ``name`` plays ``regime``, as the rows of the study's table decide it."""
        setting = self.chosen(known(self.name), name, regime)
        require(setting is not None, "player", name, f"it has no setting yet; make study NAME={self.name}")
        return dict(setting or {})

    def jobs(self, known: "Known", name: str, regime: str = "", most: float = math.inf) -> Iterator[Job]:
        """Yield what ``name`` lacks next: a rung of its choice, or runs of the evaluation.

        Only regimes with ``regime`` in their name count, and of each evaluation the first ``most`` runs.
        """
        wanted = [one for one in self.played_on(name) if regime in str(one)]
        of = self.chooser(name)
        for group in filter(None, dict.fromkeys(self.group(name, one) for one in wanted)):
            choice = self.choice(known, of, group)
            for one in group:
                yield from self._lacking(known, of, one, choice.waiting, self.tuning_seed, choice.runs)
        for one in wanted if self.regimes else ():
            setting, runs = self.chosen(known, name, one), min(self.runs(name, one), most)
            if setting is not None:
                yield from self._lacking(known, name, one, [setting], SEED, runs)

    def _lacking(
        self, known: "Known", name: str, regime: Regime, settings: Sequence[Setting], seed: int, runs: float
    ) -> Iterator[Job]:
        """Yield the jobs of the first ``runs`` runs that the table lacks, for each of ``settings``."""
        for setting in settings:
            stored = known.runs(cell(regime, name, setting, seed))
            missing = tuple(run for run in range(int(runs)) if run not in stored)
            for first in range(0, len(missing), self.batch):
                yield self.job(regime, name, setting, seed, missing[first : first + self.batch])

    def job(self, regime: Regime, name: str, setting: Setting, seed: int, runs: tuple[int, ...]) -> Job:
        """Return the job in which ``name`` plays these ``runs`` of ``seed`` with ``setting`` on ``regime``."""
        return Job(self, PROBLEMS.get(regime.problem), regime, name, setting, seed, runs)


@dataclass(frozen=True)
class Listing(Sweep):
    """A study that tunes nothing: its players play a list of regimes.

    A player plays its ``runs``, one unless the study says otherwise, with each setting of its grid on each regime that
    ``listed`` gives for it.
    """

    listed: Callable[[str], Iterable[Regime]] = lambda name: ()
    runs: Callable[[str, Regime], int] = lambda name, regime: 1

    def played_on(self, name: str) -> list[Regime]:
        """Return the regimes that are listed for ``name``."""
        return [*self.listed(name)]

    def jobs(self, known: "Known", name: str, regime: str = "", most: float = math.inf) -> Iterator[Job]:
        """Yield what the table lacks of ``name`` on the regimes with ``regime`` in their name."""
        for one in self.played_on(name):
            if regime in str(one):
                runs = min(self.runs(name, one), most)
                yield from self._lacking(known, name, one, self.players[name].grid, SEED, runs)


def cell(regime: Regime, name: str, setting: Setting, seed: int) -> Cell:
    """Return what is equal for the rows of one regime, player, setting and seed, and for no other rows."""
    return regime, name, tuple(sorted(setting.items())), seed


def cells(table: Any) -> dict[Cell, Any]:
    """Return the rows of ``table`` by regime, player, setting and seed.

    The columns of settings are those between the player and the seed; they are empty (NaN) where a setting has no such
    part.
    """
    rows_of = {}
    if len(table):
        names = list(table.columns)
        names = names[names.index(REGIME[0]) : names.index("seed") + 1]
        for _, rows in table.groupby(names, dropna=False, sort=False):
            (first,) = rows.head(1)[names].to_dict("records")
            regime = Regime(**{name: first.pop(name) for name in REGIME})
            player, seed = first.pop("player"), first.pop("seed")
            setting = {name: value for name, value in first.items() if value == value}
            rows_of[cell(regime, player, setting, seed)] = rows
    return rows_of


class Known:
    """The rows of a study's table by cell.

    Of some settings only mean regrets over the first runs were kept, in the table "rungs"; ``means`` has these.
    """

    def __init__(self, table: Any, study: str = "") -> None:
        self.cells, means = cells(table), read("rungs")
        kept = cells(means[means["study"] == study]).items()
        self.means = {each: dict(zip(rows["runs"], rows["regret"], strict=True)) for each, rows in kept}

    def runs(self, each: Cell) -> set[int]:
        """Return the numbers of the runs that the table has of a cell."""
        return set(self.cells[each]["run"].tolist()) if each in self.cells else set()

    def regrets(self, each: Cell) -> dict[int, float]:
        """Return the final regret of every run that the table has of a cell."""
        if each not in self.cells:
            return {}
        rows = self.cells[each]
        return dict(zip(rows["run"].tolist(), rows["regret"].tolist(), strict=True))

    def score(self, each: Cell, runs: int, tail: bool = False) -> float | None:
        """Return the mean final regret of the first ``runs`` runs of a cell, or None if a run is missing.

        With ``tail`` it is the middle between that mean and the mean of the worst tenth.
        """
        by_run = self.regrets(each)
        if all(run in by_run for run in range(runs)):
            regrets = sorted(by_run[run] for run in range(runs))
            mean, worst = math.fsum(regrets) / runs, regrets[-max(1, round(runs / 10)) :]
            return (mean + math.fsum(worst) / len(worst)) / 2 if tail else mean
        return self.means.get(each, {}).get(runs)


def path_of(name: str, folder: Path, kind: str = "csv") -> Path:
    """Return the path of the study's table, or of its JSON file: the shipped one unless ``folder`` has a table."""
    holders = (one for one in (folder, *SHIPPED) if (one / f"{name}.csv").is_file())
    return next(holders, folder) / f"{name}.{kind}"


@until_written
def read(name: str, folder: Path = DATA) -> Any:
    """Return the table of the study ``name`` in ``folder``, or as shipped, as a frame that is not to be changed."""
    path = path_of(name, folder)
    require(path.is_file(), "the study", name, f"there is no table of it; make study NAME={name}")
    return _stored(name, folder)


@until_written
def known(study: str) -> Known:
    """Return the rows of the shipped table of ``study``, by cell."""
    return Known(read(study), study)


def facts(name: str, folder: Path = DATA) -> dict[str, Any]:
    """Return what the JSON file beside the table of the study ``name`` says.

    Returns:
        ``study`` and ``about``, two texts, and ``made``, a list with one entry for each run that added rows: ``when``,
        ``commit``, ``command``, ``rows`` (how many it added) and the versions of the libraries. Where that was not
        recorded, ``origin`` says so. ``batch means`` names the columns that hold, in these rows, a mean over several
        runs.
    """
    return dict(json.loads(path_of(name, folder, "json").read_text(encoding="utf-8")))


def dates(name: str, folder: Path = DATA) -> str:
    """Return the day on which the rows of the table were made, or the first and the last of several days."""
    made = facts(name, folder)["made"]
    origins = [made[int(place)] for place in read(name, folder)["made"].dropna().unique()]
    days = sorted(text[:10] for entry in origins for text in entry.get("between") or [entry["when"]])
    return " to ".join(dict.fromkeys([days[0], days[-1]]))


def run(
    study: Sweep,
    players: Sequence[str] = (),
    regime: str = "",
    runs: float = math.inf,
    fresh: bool = False,
    folder: Path = DATA,
) -> Any:
    """Play what the table of ``study`` lacks, write it, and return the table.

    Args:
        study: The study.
        players: The names of the players; all if there are none.
        regime: Only regimes with this text in their name are played.
        runs: At most so many runs of an evaluation are played.
        fresh: Remove the rows that are asked for and play them again.
        folder: Where the table is kept.

    Raises:
        ValueError: A name is unknown, or no regime is asked for.
    """
    names = tuple(players) or tuple(study.players)
    for name in names:
        require(name in study.players, "player", name, f"choose from {tuple(study.players)}")
    played = {str(one): None for name in names for one in study.played_on(name)}
    is_played = any(regime in one for one in played)
    require(is_played, "regime", regime, f"give a part of the name of one that {names} play: {tuple(played)}")
    folder.mkdir(parents=True, exist_ok=True)
    origin = _origin()
    try:
        table = _stored(study.name, folder)
        if fresh and len(table):
            table = _write(study, [], folder, origin, lambda rows: asked(rows, names, regime))
        means = "" if fresh else study.name
        while jobs := _lacking(study, Known(table, means), names, regime, runs):
            table = _grown(study, table, jobs, folder, origin)
    finally:
        forget()
    return read(study.name, folder)


def asked(table: Any, players: Sequence[str], regime: str) -> Any:
    """Return which rows of ``table`` are of these ``players`` and on regimes with ``regime`` in their name."""
    in_regime = [regime in str(Regime(*row)) for row in table[list(REGIME)].itertuples(index=False)]
    return table["player"].isin(players) & np.array(in_regime, dtype=bool)


def _lacking(study: Sweep, known: Known, names: Sequence[str], regime: str, runs: float) -> list[Job]:
    """Return the jobs that are missing, without duplicates, with the first runs of all players first."""
    jobs = [job for name in names for job in study.jobs(known, name, regime, runs)]
    once = {(cell(job.regime, job.name, job.setting, job.seed), job.runs): job for job in jobs}
    return sorted(once.values(), key=lambda job: job.runs[0])


def _grown(study: Sweep, table: Any, jobs: Sequence[Job], folder: Path, origin: Mapping[str, Any]) -> Any:
    """Play ``jobs`` and return the table with their rows.

    The rows are written every `PAUSE` seconds and at the end, also after an interruption.
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
                table, rows, written = _write(study, rows, folder, origin), [], time.monotonic()
    finally:
        if rows:
            table = _write(study, rows, folder, origin)
    return table


def _stored(name: str, folder: Path) -> Any:
    """Return the table as it is on disk now, an empty frame where there is none."""
    path = path_of(name, folder)
    table = pd.read_csv(path) if path.is_file() else pd.DataFrame()
    return table if "made" in table or table.empty else table.assign(made=math.nan)


def _write(study: Sweep, rows: list[Any], folder: Path, origin: Mapping[str, Any], leaves: Any = None) -> Any:
    """Merge ``rows`` into the table on disk and return it; of rows for the same run the newest stays.

    The rows for which ``leaves`` gives True are removed first. ``origin`` is the entry for the JSON file. A lock beside
    ``folder`` keeps other processes out meanwhile, and each of both files is replaced whole.
    """
    with FileLock(folder.resolve().parent / f".{folder.resolve().name}.{study.name}.lock"):
        table, path = _stored(study.name, folder), path_of(study.name, folder, "json")
        made = facts(study.name, folder)["made"] if path.is_file() else []
        if leaves is not None:
            table = table[~leaves(table)]
        if rows:
            before = [entry for entry in made if origin.items() <= entry.items()]
            made += [] if before else [{**origin, "rows": 0}]
            entry = before[0] if before else made[-1]
            entry["rows"] += len(rows)
            new = pd.DataFrame(rows).assign(made=made.index(entry))
            new[list(study.columns)] = new[list(study.columns)].round(DIGITS)
            table = pd.concat([table, new], ignore_index=True)
        first, last = [*REGIME, "player"], ["seed", "run"]
        settings = [name for name in table.columns if name not in (*first, *last, *study.columns, "made")]
        order = [*first, *settings, *last]
        table = table.drop_duplicates(order, keep="last").reindex(columns=[*order, *study.columns, "made"])
        table = table.astype({"made": "Int64"}).sort_values(order, ignore_index=True)
        content = {"study": study.name, "about": study.about, "made": made}
        _replace(folder / f"{study.name}.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        _replace(folder / f"{study.name}.csv", table.to_csv(index=False))
    return table


def _replace(path: Path, text: str) -> None:
    """Write a file whole: whoever reads ``path`` meanwhile finds the old text or the new one."""
    partial = path.with_name(f".{os.getpid()}.{path.name}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _origin() -> dict[str, Any]:
    """Return what the JSON file of a table says about the rows that this run makes, except their number."""
    called = Path(sys.argv[0])
    name = f"python -m fedgo.{called.parent.name}" if called.name == "__main__.py" else called.name
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "command": f"{name} {shlex.join(sys.argv[1:])}".strip(),
        **{name: version(name) for name in LIBRARIES},
    }


def commit() -> str:
    """Return the commit of the working copy, with "-dirty" if files other than the tables differ from it."""
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
    """Play the ``rows`` of a table of ``study`` again and return the new rows in their order."""
    parts = cells(rows.reset_index(drop=True))
    jobs = [
        study.job(regime, name, dict(setting), seed, tuple(part["run"].tolist()))
        for (regime, name, setting, seed), part in parts.items()
    ]
    new_rows = [row for part in Parallel()(delayed(study.measure)(job) for job in jobs) for row in part]
    places = [place for part in parts.values() for place in part.index]
    return pd.DataFrame(new_rows, index=places).sort_index().set_index(rows.index)[list(study.columns)]


def missing(study: Sweep) -> dict[str, str]:
    """Return the players of ``study`` that cannot be played here, each with the module that is not installed."""
    return {name: module for name, module in study.needs.items() if find_spec(module) is None}


def check(
    study: Sweep, players: Sequence[str] = (), regime: str = "", seed: int | None = None, folder: Path = DATA
) -> Any:
    """Play one row of each player again and compare it with the table.

    The row is drawn by ``seed``, or anew at every call. The players that `missing` names are not played. Returns what
    `compared` does.
    """
    table = read(study.name, folder)
    wanted = asked(table, tuple(players) or tuple(study.players), regime)
    rows = table[wanted & ~table["player"].isin(missing(study))]
    require(
        len(rows) > 0, "the rows to play again", 0, "ask for a player that is in the table and not missing"
    )
    rows = rows.groupby("player").sample(1, random_state=seed)
    return compared(study, rows, afresh(study, rows), folder)


def compared(study: Sweep, rows: Any, now: Any, folder: Path = DATA) -> Any:
    """Compare stored ``rows`` of a table with the same rows played ``now`` in all digits that were written.

    Rows of one origin (the column ``made``) are written with one number of digits for each column: the most that any of
    them has in the table. The number of now, rounded to it, has to be the stored one. Not compared are the columns in
    `MEASURED`, those that hold a mean over several runs, as the table's JSON file says, and numbers that the table does
    not have but the run of now does.

    Returns:
        The rows with what came out now ("… now"), ``not_compared``, the names of the columns left out, joined by
        commas, and ``same``, whether all other numbers are equal.
    """
    table, made = read(study.name, folder), facts(study.name, folder)["made"]
    origins = table["made"].fillna(-1)
    same, left_out = [], []
    for place, row in rows.iterrows():
        origin, then = -1 if pd.isna(row["made"]) else int(row["made"]), now.loc[place]
        out = {*MEASURED, *(made[origin].get("batch means", ()) if origin >= 0 else ())}
        out |= {name for name in study.columns if pd.isna(row[name]) and not pd.isna(then[name])}
        equal = True
        for name in (name for name in study.columns if name not in out and not pd.isna(row[name])):
            digits = _digits(table.loc[origins == origin, name])
            equal = equal and bool(row[name] == round(float(then[name]), digits))
        same.append(equal)
        left_out.append(", ".join(name for name in study.columns if name in out))
    return rows.join(now.add_suffix(" now")).assign(not_compared=left_out, same=same)


def _digits(values: Any) -> int:
    """Return the most digits behind the point with which one of ``values`` is written, `DIGITS` at most."""
    written = [Decimal(repr(value)) for value in values.dropna().astype(float).unique().tolist()]
    return min(DIGITS, max((-int(value.as_tuple().exponent) for value in written), default=0))
