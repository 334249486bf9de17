"""One runner for every study: players × regimes × settings × runs make one table, with a row for each run.

What a table lacks is computed and added, and no row goes that was not asked for; so an interrupted study goes on where
it was. Rows are known by regime, player, setting, seed and run, not by the code that made them: whether they are still
true is found by playing some of them again (`check`). The work goes through joblib, one thread in each process:
``joblib.parallel_config`` says to how many processes, or to which cluster.
"""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed

from fedgo._checks import require
from fedgo.experiments.halving import Halving, Rung, halve, together
from fedgo.experiments.players import Player, Setting, World
from fedgo.experiments.regimes import PROBLEMS, TUNING_SEED, Entry, Regime
from fedgo.messages import Encoding

DATA = Path(__file__).parent / "data"
REGIME = tuple(field.name for field in fields(Regime))
SEED = 0  # of what is evaluated
PAUSE = 10.0  # seconds between two writings of a table that grows
BY_BATCH = (
    "seconds",
    "gigabytes",
    "scalars_dense",
    "synchronisations",
)  # in old rows the mean of several runs

Regimes = tuple[Regime, ...]
Cell = tuple[Regime, str, tuple[tuple[str, Any], ...], int]  # a regime, a player, a setting, a seed


class Job(NamedTuple):
    """Some ``runs`` of the player ``name`` of a ``study`` on one regime with one setting.

    It has with it what a process elsewhere may not know: the study with its players, and the ``entry`` of the problem.
    """

    study: "Study"
    entry: Entry | None
    regime: Regime
    name: str
    setting: Setting
    seed: int
    runs: tuple[int, ...]


def measure(job: Job) -> list[dict[str, Any]]:
    """The rows of ``job``, made on one thread."""
    torch.set_num_threads(1)
    if job.entry:
        PROBLEMS.setdefault(job.regime.problem, job.entry)
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
    """``runs`` of a regime: the same world, with its Phase I, for all that is played ``by`` the same."""
    return regime.world(runs, seed, encoding)


@dataclass(frozen=True)
class Study:
    """Who plays what: the ``players`` choose among their grids by ``rungs`` on runs of ``tuning_seed``, a setting for
    each group of regimes that ``chosen_on`` gives for a name, and then play ``runs`` (of a name and a regime) runs of
    `SEED` on ``regimes``, with the choice of the group that has the regime, or of the only one.

    ``columns`` are those of `Trace.to_frame`, "seconds" of a run, and "scalars_dense", the bill of the same run with
    its statistics as matrices. A job has at most ``batch`` runs; ``measure`` makes its rows, which come again to so
    many ``digits`` behind the point. In the choices of those in ``tail`` the worst tenth counts as much as the mean.
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
    digits: int = 2
    tail: tuple[str, ...] = ()
    measure: Callable[[Job], list[dict[str, Any]]] = measure
    at_once: int | None = None  # how many jobs, if joblib is not to say

    def choice(self, known: "Known", name: str, group: Regimes) -> Halving:
        """How far the choice of ``name`` on the regimes of ``group`` has come."""

        def score(setting: Setting, runs: int) -> float | None:
            there = [cell(one, name, setting, self.tuning_seed) for one in group]
            return together([known.score(each, runs, name in self.tail) for each in there])

        return halve(self.players[name].grid, self.rungs(name), score)

    def played_on(self, name: str) -> list[Regime]:
        """The regimes that ``name`` plays; where nothing is evaluated, those on which it chooses."""
        if self.regimes:
            return [one for one in self.regimes if self.runs(name, one)]
        return [one for group in self.chosen_on(name) for one in group]

    def chooser(self, name: str) -> str:
        """The player with whose setting ``name`` plays."""
        return self.players[name].setting_of or name

    def group(self, name: str, regime: Regime) -> Regimes:
        """The regimes on which ``name`` chooses the setting for ``regime``; none where there is nothing to choose."""
        groups = self.chosen_on(self.chooser(name))
        return next((group for group in groups if regime in group), groups[0] if groups else ())

    def chosen(self, known: "Known", name: str, regime: Regime) -> Setting | None:
        """The setting with which ``name`` is to play ``regime``, None before it is chosen."""
        of, group = self.chooser(name), self.group(name, regime)
        if not group:
            (only,) = self.players[of].grid
            return only
        found = self.choice(known, of, group)
        return None if found.waiting else found.ranked[-1][0]

    def setting(self, name: str, regime: Regime) -> dict[str, Any]:
        """The setting with which ``name`` plays ``regime``, as the rows of the study's table decide it."""
        found = self.chosen(known(self.name), name, regime)
        require(found is not None, "player", name, f"it has no setting yet; make study NAME={self.name}")
        return dict(found or {})

    def jobs(self, known: "Known", name: str, regime: str = "", most: int | None = None) -> Iterator[Job]:
        """What ``name`` lacks next: a rung of a choice, or runs of the evaluation.

        Asked for are the regimes with ``regime`` in their name, and the first ``most`` runs.
        """
        wanted = [one for one in self.played_on(name) if regime in str(one)]
        of = self.chooser(name)
        for group in filter(None, dict.fromkeys(self.group(name, one) for one in wanted)):
            found = self.choice(known, of, group)
            for one in group:
                yield from self._lacking(known, of, one, found.waiting, self.tuning_seed, found.runs)
        for one in wanted if self.regimes else ():
            setting, runs = self.chosen(known, name, one), self.runs(name, one)
            if setting is not None:
                runs = runs if most is None else min(runs, most)
                yield from self._lacking(known, name, one, [setting], SEED, runs)

    def _lacking(
        self, known: "Known", name: str, regime: Regime, settings: Sequence[Setting], seed: int, runs: int
    ) -> Iterator[Job]:
        for setting in settings:
            there = set(known.regrets(cell(regime, name, setting, seed)))
            missing = tuple(run for run in range(runs) if run not in there)
            for first in range(0, len(missing), self.batch):
                yield self.job(regime, name, setting, seed, missing[first : first + self.batch])

    def job(self, regime: Regime, name: str, setting: Setting, seed: int, runs: tuple[int, ...]) -> Job:
        """Of these runs."""
        return Job(self, PROBLEMS.get(regime.problem), regime, name, setting, seed, runs)


def cell(regime: Regime, name: str, setting: Setting, seed: int) -> Cell:
    """What tells rows from others."""
    return regime, name, tuple(sorted(setting.items())), seed


def cells(table: Any) -> dict[Cell, Any]:
    """The rows of ``table`` by regime, player, setting and seed; the columns of settings are those between the player
    and the seed, empty (NaN) where a setting has no such part."""
    found = {}
    if len(table):
        names = list(table.columns)
        names = names[names.index(REGIME[0]) : names.index("seed") + 1]
        for _, rows in table.groupby(names, dropna=False, sort=False):
            (first,) = rows.head(1)[names].to_dict("records")
            regime = Regime(**{name: first.pop(name) for name in REGIME})
            player, seed = first.pop("player"), first.pop("seed")
            setting = {name: value for name, value in first.items() if value == value}
            found[cell(regime, player, setting, seed)] = rows
    return found


class Known:
    """The rows of a ``table`` by what they are; and of some settings the mean over their first runs, where such means
    are all that was kept of the choices of a ``study``."""

    def __init__(self, table: Any, study: str = "") -> None:
        self.cells, means = cells(table), read("rungs")
        kept = cells(means[means["study"] == study]).items()
        self.means = {each: dict(zip(rows["runs"], rows["regret"], strict=True)) for each, rows in kept}

    def regrets(self, each: Cell) -> dict[int, float]:
        """The final regret of every run that is there."""
        if each not in self.cells:
            return {}
        rows = self.cells[each]
        regret = rows["regret"] if "regret" in rows else 0.0 * rows["run"]
        return dict(zip(rows["run"].tolist(), regret.tolist(), strict=True))

    def score(self, each: Cell, runs: int, tail: bool = False) -> float | None:
        """The mean final regret of the first ``runs`` runs, None unless they are there; if the ``tail`` counts, the
        middle between that and the mean of their worst tenth."""
        there = self.regrets(each)
        if all(run in there for run in range(runs)):
            regrets = sorted(there[run] for run in range(runs))
            mean, worst = math.fsum(regrets) / runs, regrets[-max(1, round(runs / 10)) :]
            return (mean + math.fsum(worst) / len(worst)) / 2 if tail else mean
        return self.means.get(each, {}).get(runs)


def path_of(name: str, folder: Path) -> Path:
    """The table of the study ``name`` in ``folder``, or where it is shipped."""
    own = folder / f"{name}.csv"
    return own if own.is_file() else DATA / own.name


@cache
def read(name: str, folder: Path = DATA) -> Any:
    """The table of the study ``name`` in ``folder``, or as shipped, as a frame that is not to be changed."""
    path = path_of(name, folder)
    require(path.is_file(), "the study", name, f"there is no table of it; make study NAME={name}")
    return pd.read_csv(path)


@cache
def known(study: str) -> Known:
    """What the table of a study says."""
    return Known(read(study), study)


def facts(name: str, folder: Path = DATA) -> dict[str, Any]:
    """What stands beside the table ``name``: its columns, and when, from which commit and by which command its rows
    were made."""
    return dict(json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))


def run(
    study: Study,
    players: Sequence[str] = (),
    regime: str = "",
    runs: int | None = None,
    fresh: bool = False,
    folder: Path = DATA,
) -> Any:
    """The table of ``study``, with what it lacked of the ``players`` (all unless said) computed, and on disk.

    ``regime``: only those with this in their name; ``runs``: at most so many of an evaluation; ``fresh``: what is asked
    for is computed again.
    """
    names = tuple(players) or tuple(study.players)
    for name in names:
        require(name in study.players, "player", name, f"choose from {tuple(study.players)}")
    played = {str(one): None for name in names for one in study.played_on(name)}
    there = any(regime in one for one in played)
    require(there, "regime", regime, f"give a part of the name of one that {names} play: {tuple(played)}")
    folder.mkdir(parents=True, exist_ok=True)
    table = read(study.name, folder) if path_of(study.name, folder).is_file() else pd.DataFrame()
    if fresh and len(table):
        table = table[~asked(table, names, regime)]
    before, means = len(table), "" if fresh else study.name
    try:
        while jobs := _lacking(study, Known(table, means), names, regime, runs):
            table = _grown(study, table, jobs, folder)
    finally:
        read.cache_clear()
        known.cache_clear()
        if (folder / f"{study.name}.csv").is_file():
            _note(study, len(read(study.name, folder)) - before, folder)
    return read(study.name, folder)


def asked(table: Any, players: Sequence[str], regime: str) -> Any:
    """Which rows of ``table`` are of these ``players``, on regimes with ``regime`` in their name."""
    there = [regime in str(Regime(*row)) for row in table[list(REGIME)].itertuples(index=False)]
    return table["player"].isin(players) & np.array(there, dtype=bool)


def _lacking(study: Study, known: Known, names: Sequence[str], regime: str, runs: int | None) -> list[Job]:
    """What is lacking next, the first runs of everything first, and nothing twice."""
    jobs = [job for name in names for job in study.jobs(known, name, regime, runs)]
    once = {(cell(job.regime, job.name, job.setting, job.seed), job.runs): job for job in jobs}
    return sorted(once.values(), key=lambda job: job.runs[0])


def _grown(study: Study, table: Any, jobs: Sequence[Job], folder: Path) -> Any:
    """``table`` with the rows of ``jobs``, written now and then, and at the end however it comes."""
    rows: list[dict[str, Any]] = []
    begun = written = time.monotonic()
    results = Parallel(study.at_once, return_as="generator_unordered")(
        delayed(study.measure)(job) for job in jobs
    )
    try:
        for number, found in enumerate(results, 1):
            rows += found
            now = time.monotonic()
            if now - written > PAUSE:
                left = (now - begun) / number * (len(jobs) - number) / 60
                print(f"{study.name}: {number:,} of {len(jobs):,} jobs, {left:.0f} min left", file=sys.stderr)
                table, rows, written = _write(study, table, rows, folder), [], time.monotonic()
    finally:
        table = _write(study, table, rows, folder)
    return table


def _write(study: Study, table: Any, rows: list[dict[str, Any]], folder: Path) -> Any:
    """``table`` with ``rows``, in order and on disk; the file that was there stays whole until the new one is."""
    table = pd.concat([table, pd.DataFrame(rows)], ignore_index=True)
    first, last = [*REGIME, "player"], ["seed", "run"]
    settings = [name for name in table.columns if name not in (*first, *last, *study.columns)]
    order = [*first, *settings, *last]
    table = table[[*order, *study.columns]].sort_values(order, ignore_index=True)
    partial = folder / f".{os.getpid()}.{study.name}.csv"
    table.to_csv(partial, index=False)
    partial.replace(folder / f"{study.name}.csv")
    return table


def _note(study: Study, rows: int, folder: Path) -> None:
    """Write beside the table what its columns are, and that ``rows`` were added now."""
    path = folder / f"{study.name}.json"
    made = facts(study.name, folder)["made"] if path.is_file() else []
    if rows:
        when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        name = Path(sys.argv[0]).name.replace("__main__.py", "python -m fedgo.experiments")
        command = " ".join([name, *sys.argv[1:]])
        versions = {name: version(name) for name in ("torch", "numpy", "botorch")}
        made = [*made, {"when": when, "commit": commit(), "command": command, "rows": rows, **versions}]
    content = {"study": study.name, "about": study.about, "made": made}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def commit() -> str:
    """The commit of the working copy, with "-dirty" where files differ from it, its tables apart: they are written."""
    git, but = ("git", "-C", str(DATA)), ":(top,exclude)fedgo/experiments/data"
    try:
        head = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], check=True, capture_output=True, text=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    clean = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", ":/", but], check=False).returncode == 0
    return head.stdout.strip() + ("" if clean else "-dirty")


def afresh(study: Study, rows: Any) -> Any:
    """The ``rows`` of a table of ``study`` played again, in their order."""
    parts = cells(rows.reset_index(drop=True))
    jobs = [
        study.job(regime, name, dict(setting), seed, tuple(part["run"].tolist()))
        for (regime, name, setting, seed), part in parts.items()
    ]
    found = [row for part in Parallel()(delayed(study.measure)(job) for job in jobs) for row in part]
    places = [place for part in parts.values() for place in part.index]
    return pd.DataFrame(found, index=places).sort_index().set_index(rows.index)[list(study.columns)]


def check(
    study: Study, players: Sequence[str] = (), regime: str = "", seed: int | None = None, folder: Path = DATA
) -> Any:
    """One row of each player, drawn by ``seed`` (or anew at every call) and played again.

    A frame of what is stored and what comes out ("… now"), and "same", whether they are equal in all digits stored.
    """
    table = read(study.name, folder)
    rows = table[asked(table, tuple(players) or tuple(study.players), regime)]
    rows = rows.groupby("player").sample(1, random_state=seed)
    now = afresh(study, rows)
    exact = [name for name in study.columns if name not in BY_BATCH]
    close = 0.51 * 10.0**-study.digits
    same = np.isclose(rows[exact].astype(float), now[exact].astype(float), rtol=0, atol=close)
    found = rows.join(now.add_suffix(" now"))
    return found.assign(same=(same | rows[exact].isna().to_numpy()).all(1))
