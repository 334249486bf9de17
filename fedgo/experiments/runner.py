"""One runner for every study: players × regimes × settings × runs make one table, with a row for each run.

`run` computes the rows that the table lacks and adds them, so that an interrupted study continues where it was. It
removes rows only if ``fresh`` asks for that. Each write takes a lock, reads the file again and merges the new rows into
it; therefore several processes may work on one table. The column ``made`` gives for each row the position, in the list
``made`` of the table's JSON file, of the entry about its origin: when, from which commit, by which command and with
which libraries it was computed. `check` plays some rows again and compares them, which shows whether the present code
still gives the same numbers.

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
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import pandas as pd
import torch
from filelock import FileLock
from joblib import Parallel, delayed

from fedgo._checks import require
from fedgo._files import whole
from fedgo.experiments.halving import Halving, Rung, halve, score_of
from fedgo.experiments.players import Player
from fedgo.experiments.traces import LIBRARIES
from fedgo.experiments.world import PROBLEMS, TUNING_SEED, Entry, Regime, Setting, World
from fedgo.messages import Encoding

DATA = Path(__file__).parent / "data"
SHIPPED = [DATA]  # the folders with tables of the package; a module with studies of its own adds its folder
REGIME = tuple(field.name for field in fields(Regime))  # the columns of a regime
SEED = 0  # of the evaluation
PAUSE = 10.0  # seconds between two writes of a table that grows
DECIMALS = 6  # to which the numbers of a table are rounded
MEASURED = ("seconds", "gigabytes")  # columns that depend on the machine, and differ between two runs

P = ParamSpec("P")
T = TypeVar("T")
Regimes = tuple[Regime, ...]
Cell = tuple[Regime, str, tuple[tuple[str, Any], ...], int]  # a regime, a player, a setting, a seed


_cached: list[Any] = []  # the functions that `until_written` decorates


def until_written(function: Callable[P, T]) -> Callable[P, T]:
    """Return ``function`` with a cache that `run` empties; for functions whose values depend on the stored tables."""
    _cached.append(cache(function))
    decorated: Callable[P, T] = _cached[-1]
    return decorated


def forget() -> None:
    """Empty the caches of all functions that `until_written` decorates."""
    for function in _cached:
        function.cache_clear()


class Job(NamedTuple):
    """Some runs of one player on one regime with one setting, which a process computes at once.

    ``name`` is the player's name in the ``study``, and ``runs`` are the numbers of the runs of ``seed``. A job carries
    what another process may not know: the study with its players, and the ``entry`` of the problem.
    """

    study: "Sweep"
    entry: Entry | None
    regime: Regime
    name: str
    setting: Setting
    seed: int
    runs: tuple[int, ...]


def measure(job: Job) -> list[dict[str, Any]]:
    """Play the ``job`` on one thread and return the rows of the study's table, one for each of its runs."""
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
    """Return a world with the given runs of a regime, the same object for equal arguments, so that Phase I is run once.

    Args:
        regime: The regime.
        runs: The numbers of the runs.
        seed: The seed of the runs.
        encoding: The form of all messages.
        by: Only callers with an equal value share a world.
    """
    return regime.world(runs, seed, encoding)


@dataclass(frozen=True)
class Sweep:
    """A study that tunes: its players choose settings on tuning runs and then play the evaluation with them.

    The player ``name`` of ``players`` chooses one setting of its grid for each group of regimes in ``chosen_on(name)``,
    by successive halving with ``rungs(name)`` on runs of ``tuning_seed``. Then it plays ``runs(name, regime)`` runs of
    `SEED` on each of the ``regimes``, with the setting that it chose on the group that contains the regime, or else on
    the first group. In the choices of the players in ``tail`` the worst tenth of the runs counts as much as the mean.

    ``columns`` are those of `fedgo.trace.Trace.to_frame`, the processor "seconds" of a run, and "scalars_dense", the
    scalars of the same run with messages in matrices. ``encoding`` is the form of the messages. ``measure`` returns the
    rows of a job, which has at most ``batch`` runs. ``at_once`` is the number of jobs at a time; joblib decides if it
    is None. ``needs`` maps a player to a module that it imports and that this package does not install. ``folder`` is
    where the table is kept.
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
    at_once: int | None = None
    needs: Mapping[str, str] = field(default_factory=dict)
    folder: Path = DATA

    def choice(self, known: "Known", name: str, group: Regimes) -> Halving:
        """Return how far the choice of the player ``name`` on the regimes of ``group`` has come."""

        def score(setting: Setting, runs: int) -> float | None:
            """Return the score of ``setting`` on its first ``runs`` runs of all regimes, or None if one is missing."""
            tuning = [cell(regime, name, setting, self.tuning_seed) for regime in group]
            return score_of([known.score(rows, runs, name in self.tail) for rows in tuning])

        return halve(self.players[name].grid, self.rungs(name), score)

    def played_on(self, name: str) -> list[Regime]:
        """Return the regimes of the evaluation of the player ``name``; without an evaluation, those of its choices."""
        if self.regimes:
            return [regime for regime in self.regimes if self.runs(name, regime)]
        return [regime for group in self.chosen_on(name) for regime in group]

    def group(self, name: str, regime: Regime) -> Regimes:
        """Return the group of regimes on which ``name`` chooses its setting for ``regime``, or () if there is none."""
        groups = self.chosen_on(self.players[name].setting_of or name)
        return next((group for group in groups if regime in group), groups[0] if groups else ())

    def chosen(self, known: "Known", name: str, regime: Regime) -> Setting | None:
        """Return the setting with which ``name`` plays ``regime``, or None before it is chosen."""
        chooser, group = self.players[name].setting_of or name, self.group(name, regime)
        if not group:
            (only,) = self.players[chooser].grid
            return only
        choice = self.choice(known, chooser, group)
        return None if choice.waiting else choice.ranked[-1][0]

    def setting(self, name: str, regime: Regime) -> dict[str, Any]:
        """Return the setting with which ``name`` plays ``regime``, as the rows of the study's table decide it.

        Raises:
            ValueError: The table lacks rows that decide about the setting.
        """
        setting = self.chosen(known(self.name), name, regime)
        require(setting is not None, "player", name, f"it has no setting yet; make study NAME={self.name}")
        return dict(setting or {})

    def jobs(self, known: "Known", name: str, regime: str = "", most: float = math.inf) -> Iterator[Job]:
        """Yield the jobs of the player ``name`` that can be played now and whose rows the table lacks.

        While a setting is being chosen, they are the runs of the next rung of the successive halving. Once it is
        chosen, they are runs of the evaluation.

        Args:
            known: The rows that the table has.
            name: The player.
            regime: A text that the name of a regime must contain.
            most: The largest number of evaluation runs on each regime.
        """
        wanted = [played for played in self.played_on(name) if regime in str(played)]
        chooser = self.players[name].setting_of or name
        for group in filter(None, dict.fromkeys(self.group(name, played) for played in wanted)):
            choice = self.choice(known, chooser, group)
            for tuned in group:
                yield from self._lacking(known, chooser, tuned, choice.waiting, self.tuning_seed, choice.runs)
        for played in wanted if self.regimes else ():
            setting, runs = self.chosen(known, name, played), min(self.runs(name, played), most)
            if setting is not None:
                yield from self._lacking(known, name, played, [setting], SEED, runs)

    def _lacking(
        self, known: "Known", name: str, regime: Regime, settings: Sequence[Setting], seed: int, runs: float
    ) -> Iterator[Job]:
        """Yield the jobs that the table lacks of the first ``runs`` runs of each of the ``settings``."""
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

    The player ``name`` plays ``runs(name, regime)`` runs with each setting of its grid on each regime of
    ``listed(name)``. The other fields are those of `Sweep`.
    """

    listed: Callable[[str], Iterable[Regime]] = lambda name: ()
    runs: Callable[[str, Regime], int] = lambda name, regime: 1

    def played_on(self, name: str) -> list[Regime]:
        """Return the regimes that are listed for ``name``."""
        return [*self.listed(name)]

    def jobs(self, known: "Known", name: str, regime: str = "", most: float = math.inf) -> Iterator[Job]:
        """Yield the jobs of the player ``name`` that the table lacks; the arguments are those of `Sweep.jobs`."""
        for played in self.played_on(name):
            if regime in str(played):
                runs = min(self.runs(name, played), most)
                yield from self._lacking(known, name, played, self.players[name].grid, SEED, runs)


def cell(regime: Regime, name: str, setting: Setting, seed: int) -> Cell:
    """Return the key under which the rows of one regime, player, setting and seed are found in `Known`."""
    return regime, name, tuple(sorted(setting.items())), seed


def cells(table: Any) -> dict[Cell, Any]:
    """Return the rows of ``table``, grouped by their `cell`: a regime, a player, a setting and a seed.

    The columns between "player" and "seed" hold the parameters of all settings. Such a column is empty (NaN) in the
    rows of a setting without that parameter.
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
    """The rows of a study's table by `cell`.

    For some settings only the mean regrets over the first runs were kept, in the table "rungs". ``means`` has them, by
    cell and by the number of runs.
    """

    def __init__(self, table: Any, study: str = "") -> None:
        self.cells, means = cells(table), read("rungs")
        kept = cells(means[means["study"] == study]).items()
        self.means = {key: dict(zip(rows["runs"], rows["regret"], strict=True)) for key, rows in kept}

    def runs(self, key: Cell) -> set[int]:
        """Return the numbers of the runs that the table has of the cell ``key``."""
        return set(self.cells[key]["run"].tolist()) if key in self.cells else set()

    def regrets(self, key: Cell) -> dict[int, float]:
        """Return the final regrets that the table has of the cell ``key``, by the number of the run."""
        if key not in self.cells:
            return {}
        rows = self.cells[key]
        return dict(zip(rows["run"].tolist(), rows["regret"].tolist(), strict=True))

    def score(self, key: Cell, runs: int, tail: bool = False) -> float | None:
        """Return the mean final regret of the first ``runs`` runs of the cell ``key``, or None if a run is missing.

        With ``tail`` it is the average of that mean and of the mean of the worst tenth of the runs.
        """
        by_run = self.regrets(key)
        if all(run in by_run for run in range(runs)):
            regrets = sorted(by_run[run] for run in range(runs))
            mean, worst = math.fsum(regrets) / runs, regrets[-max(1, round(runs / 10)) :]
            return (mean + math.fsum(worst) / len(worst)) / 2 if tail else mean
        return self.means.get(key, {}).get(runs)


def path_of(name: str, folder: Path, kind: str = "csv") -> Path:
    """Return the path of the table of the study ``name``, or with ``kind`` "json" of its JSON file.

    The file lies beside the table. If ``folder`` has no table of this name, but the package ships one, it is that one.
    """
    holders = (holder for holder in (folder, *SHIPPED) if (holder / f"{name}.csv").is_file())
    return next(holders, folder) / f"{name}.{kind}"


@until_written
def read(name: str, folder: Path = DATA) -> Any:
    """Return the table of the study ``name`` in ``folder``, or as shipped, as a frame that must not be changed.

    Raises:
        ValueError: There is no table of this name.
    """
    path = path_of(name, folder)
    require(path.is_file(), "the study", name, f"there is no table of it; make study NAME={name}")
    return _stored(name, folder)


@until_written
def known(study: str) -> Known:
    """Return the rows of the shipped table of ``study``, by cell."""
    return Known(read(study), study)


def facts(name: str, folder: Path = DATA) -> dict[str, Any]:
    """Return the contents of the JSON file beside the table of the study ``name``.

    Returns:
        ``study`` and ``about``, two texts, and ``made``, a list with one entry for each run that added rows. An entry
        has ``when``, ``commit``, ``command``, ``rows`` (the number of rows added) and the versions of the libraries. If
        that was not recorded, ``origin`` says so. ``batch means`` names the columns that hold, in these rows, a mean
        over several runs.
    """
    return dict(json.loads(path_of(name, folder, "json").read_text(encoding="utf-8")))


def dates(name: str, folder: Path = DATA) -> str:
    """Return the day on which the rows of the study's table were made, or the first and the last day, as text."""
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
    """Play the jobs that the table of ``study`` lacks, write their rows, and return the table.

    Args:
        study: The study.
        players: The names of the players; all if there are none.
        regime: Only regimes with this text in their name are played.
        runs: At most so many runs of an evaluation are played.
        fresh: Whether to remove the rows of these players and regimes first, and play them again.
        folder: Where the table is kept.

    Raises:
        ValueError: A player is unknown, or no regime has the text in its name.
    """
    names = tuple(players) or tuple(study.players)
    for name in names:
        require(name in study.players, "player", name, f"choose from {tuple(study.players)}")
    played = {str(on): None for name in names for on in study.played_on(name)}
    is_played = any(regime in title for title in played)
    require(is_played, "regime", regime, f"give a part of the name of one that {names} play: {tuple(played)}")
    folder.mkdir(parents=True, exist_ok=True)
    origin = _origin()
    try:
        table = _stored(study.name, folder)
        if fresh and len(table):
            table = _merge(study, [], folder, origin, lambda rows: asked(rows, names, regime))
        means = "" if fresh else study.name
        while jobs := _lacking(study, Known(table, means), names, regime, runs):
            table = _grown(study, table, jobs, folder, origin)
    finally:
        forget()
    return read(study.name, folder)


def asked(table: Any, players: Sequence[str], regime: str) -> Any:
    """Return for each row of ``table`` whether it is of the ``players`` and of a regime with ``regime`` in its name."""
    in_regime = [regime in str(Regime(*row)) for row in table[list(REGIME)].itertuples(index=False)]
    return table["player"].isin(players) & np.array(in_regime, dtype=bool)


def _lacking(study: Sweep, known: Known, names: Sequence[str], regime: str, runs: float) -> list[Job]:
    """Return the jobs of the players ``names`` whose rows ``known`` lacks, each job once, sorted by first run.

    The other arguments are those of `Sweep.jobs`.
    """
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
                table, rows, written = _merge(study, rows, folder, origin), [], time.monotonic()
    finally:
        if rows:
            table = _merge(study, rows, folder, origin)
    return table


def _stored(name: str, folder: Path) -> Any:
    """Return the table of the study ``name`` as it is on disk now, or an empty frame if there is none."""
    path = path_of(name, folder)
    table = pd.read_csv(path) if path.is_file() else pd.DataFrame()
    return table if "made" in table or table.empty else table.assign(made=math.nan)


def _merge(study: Sweep, rows: list[Any], folder: Path, origin: Mapping[str, Any], leaves: Any = None) -> Any:
    """Merge ``rows`` into the table on disk and return it; of two rows for the same run the newer stays.

    The rows for which ``leaves`` is True are removed first. ``origin`` is the entry for the JSON file. A lock beside
    ``folder`` keeps other processes out meanwhile, and the table and its JSON file are each replaced whole.
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
            new[list(study.columns)] = new[list(study.columns)].round(DECIMALS)
            table = pd.concat([table, new], ignore_index=True)
        first, last = [*REGIME, "player"], ["seed", "run"]
        settings = [name for name in table.columns if name not in (*first, *last, *study.columns, "made")]
        order = [*first, *settings, *last]
        table = table.drop_duplicates(order, keep="last").reindex(columns=[*order, *study.columns, "made"])
        table = table.astype({"made": "Int64"}).sort_values(order, ignore_index=True)
        content = {"study": study.name, "about": study.about, "made": made}
        texts = {
            "json": json.dumps(content, indent=1, ensure_ascii=False) + "\n",
            "csv": table.to_csv(index=False),
        }
        for kind, text in texts.items():
            with whole(folder / f"{study.name}.{kind}", "the table") as file:
                file.write(text.encode())
    return table


def _origin() -> dict[str, Any]:
    """Return the entry about the rows that this process makes for the JSON file of a table, without their number."""
    called = Path(sys.argv[0])
    name = f"python -m fedgo.{called.parent.name}" if called.name == "__main__.py" else called.name
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "command": f"{name} {shlex.join(sys.argv[1:])}".strip(),
        **{name: version(name) for name in LIBRARIES},
    }


def commit() -> str:
    """Return the commit of the working copy, with "-dirty" if a file outside the folders ``data`` differs from it.

    It is "unknown" if there is no git, or no repository.
    """
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
    """Play the ``rows`` of a table of ``study`` again, and return the columns of the study for them, in their order."""
    by_cell = cells(rows.reset_index(drop=True))
    jobs = [
        study.job(regime, name, dict(setting), seed, tuple(same["run"].tolist()))
        for (regime, name, setting, seed), same in by_cell.items()
    ]
    new_rows = [row for made in Parallel()(delayed(study.measure)(job) for job in jobs) for row in made]
    places = [place for same in by_cell.values() for place in same.index]
    return pd.DataFrame(new_rows, index=places).sort_index().set_index(rows.index)[list(study.columns)]


def missing(study: Sweep) -> dict[str, str]:
    """Return the players of ``study`` that cannot be played here, each with the module that is not installed."""
    return {name: module for name, module in study.needs.items() if find_spec(module) is None}


def check(
    study: Sweep, players: Sequence[str] = (), regime: str = "", seed: int | None = None, folder: Path = DATA
) -> Any:
    """Play one row of each player again, compare it with the table, and return what `compared` returns.

    The players that `missing` names are not played.

    Args:
        study: The study.
        players: The names of the players; all if there are none.
        regime: Only rows on regimes with this text in their name are played.
        seed: Determines which row is played. With None another one is drawn at every call.
        folder: Where the table is kept.

    Raises:
        ValueError: The table has no such row.
    """
    table = read(study.name, folder)
    wanted = asked(table, tuple(players) or tuple(study.players), regime)
    rows = table[wanted & ~table["player"].isin(missing(study))]
    remedy = "ask for a player of the table whose libraries are installed"
    require(len(rows) > 0, "the number of rows to play again", 0, remedy)
    rows = rows.groupby("player").sample(1, random_state=seed)
    return compared(study, rows, afresh(study, rows), folder)


def compared(study: Sweep, rows: Any, now: Any, folder: Path = DATA) -> Any:
    """Compare stored ``rows`` of a table with the same rows played ``now``, in all digits that were written.

    In each column the rows of one origin (the column ``made``) were written with the same number of decimals, which is
    the largest that any of them has in the table. The new number, rounded to it, has to equal the stored one. Not
    compared are the columns in `MEASURED`, columns that hold a mean over several runs (``batch means`` in the table's
    JSON file), and numbers that the table lacks and the new run has.

    Returns:
        The rows with the new numbers in columns "… now", with ``not_compared``, the names of the columns left out,
        joined by commas, and with ``same``, whether all other numbers are equal.
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
    """Return the largest number of decimals with which one of ``values`` is written, at most `DECIMALS`."""
    written = [Decimal(repr(value)) for value in values.dropna().astype(float).unique().tolist()]
    return min(DECIMALS, max((-int(value.as_tuple().exponent) for value in written), default=0))
