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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache
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
from fedgo.trace import Trace

DATA = Path(__file__).parent / "data"
REGIME = tuple(field.name for field in fields(Regime))
PAUSE = 10.0  # seconds between two writings of a table that grows
BY_BATCH = (
    "seconds",
    "gigabytes",
    "scalars_dense",
    "synchronisations",
)  # in old rows the mean of several runs

Key = tuple[tuple[str, Any], ...]  # of a setting
Regimes = tuple[Regime, ...]


class Job(NamedTuple):
    """Some ``runs`` of one ``player``, called ``name``, on one regime with ``settings``, and the ``columns`` asked for.

    It has with it what a process elsewhere may not know: the player and the ``entry`` of the problem.
    """

    regime: Regime
    entry: Entry | None
    name: str
    player: Player
    settings: tuple[Setting, ...]
    seed: int
    runs: tuple[int, ...]
    encoding: Encoding
    columns: tuple[str, ...]


def measure(job: Job) -> list[dict[str, Any]]:
    """The rows of ``job``, made on one thread."""
    torch.set_num_threads(1)
    if job.entry:
        PROBLEMS.setdefault(job.regime.problem, job.entry)
    world = job.regime.world(job.runs, job.seed, job.encoding)
    rows = []
    for settings in _batches(job):
        begun = time.process_time()
        traces = _played(job.player, world, settings)
        seconds = (time.process_time() - begun) / (len(job.runs) * len(settings))
        for setting, trace in zip(settings, traces, strict=True):
            frame = trace.to_frame().assign(run=job.runs, seconds=round(seconds, 3), scalars_dense=np.nan)
            if job.player.dense and "scalars_dense" in job.columns:
                dense = job.regime.world(job.runs, job.seed, "dense")
                frame["scalars_dense"] = job.player.play(dense, setting).communication[:, -1].numpy()
            where = {**asdict(job.regime), "player": job.name, **setting, "seed": job.seed}
            rows += [where | row for row in frame[["run", *job.columns]].to_dict("records")]
    return rows


def _batches(job: Job) -> list[list[Setting]]:
    """The settings of ``job`` that are played at once: one alone, or all that differ in β alone."""
    groups: dict[Key, list[Setting]] = {}
    for setting in job.settings:
        others = {name: value for name, value in setting.items() if name != "beta"}
        groups.setdefault(key(others if job.player.together == "batch" else setting), []).append(setting)
    return list(groups.values())


def _played(player: Player, world: World, settings: list[Setting]) -> list[Trace]:
    """The traces of ``settings`` that differ in β alone, from one batch that has every run once for each."""
    if len(settings) == 1:
        return [player.play(world, settings[0])]
    beta = torch.tensor([setting["beta"] for setting in settings], dtype=torch.float64)
    of_each = beta.repeat_interleave(len(world.problem.runs)).view(-1, 1, 1)
    trace = player.play(world.repeated(len(settings)), {**settings[0], "beta": of_each})
    runs = len(world.problem.runs)
    return [trace.part(slice(first, first + runs)) for first in range(0, len(trace.arm), runs)]


@dataclass(frozen=True)
class Study:
    """Who plays what: the ``players`` choose among their grids by ``rungs`` on runs of ``tuning_seed``, a setting for
    each group of regimes that ``chosen_on`` gives for a name, and then play ``runs`` (of a name and a regime) runs of
    ``seed`` on ``regimes``, with the choice of the group that has the regime, or of the only one.

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
    seed: int = 0
    tuning_seed: int = TUNING_SEED
    encoding: Encoding = "counts"
    batch: int = 10
    digits: int = 2
    tail: tuple[str, ...] = ()
    measure: Callable[[Job], list[dict[str, Any]]] = measure
    at_once: int | None = None  # how many jobs, if joblib is not to say

    def choice(self, known: "Known", name: str, group: Regimes) -> "Halving[Key]":
        """How far the choice of ``name`` on the regimes of ``group`` has come."""

        def score(setting: Key, runs: int) -> float | None:
            tail = name in self.tail
            return together([known.score(one, name, setting, self.tuning_seed, runs, tail) for one in group])

        return halve([key(setting) for setting in self.players[name].grid], self.rungs(name), score)

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
        found = self.choice(known, of, group) if group else None
        if found is None:
            (only,) = self.players[of].grid
            return only
        return None if found.waiting else dict(found.ranked[-1][0])

    def jobs(self, known: "Known", name: str, regime: str = "", most: int | None = None) -> Iterator[Job]:
        """What ``name`` lacks next: a rung of a choice, or runs of the evaluation.

        Asked for are the regimes with ``regime`` in their name, and the first ``most`` runs.
        """
        wanted = [one for one in self.played_on(name) if self.regimes and regime in str(one)]
        groups = [self.group(name, one) for one in wanted]
        if not self.regimes:
            groups = [group for group in self.chosen_on(name) if any(regime in str(one) for one in group)]
        of = self.chooser(name)
        settings = {key(setting): setting for setting in self.players[of].grid}
        for group in dict.fromkeys(filter(None, groups)):
            found = self.choice(known, of, group)
            waiting = [settings[one] for one in found.waiting]
            for one in group if waiting else ():
                yield from self._lacking(known, of, one, waiting, self.tuning_seed, found.runs)
        for one in wanted:
            runs, chosen = self.runs(name, one), self.chosen(known, name, one)
            if chosen is not None:
                runs = runs if most is None else min(runs, most)
                yield from self._lacking(known, name, one, [chosen], self.seed, runs)

    def _lacking(
        self, known: "Known", name: str, regime: Regime, settings: list[Setting], seed: int, runs: int
    ) -> Iterator[Job]:
        player = self.players[name]
        lacking: dict[tuple[int, ...], list[Setting]] = {}
        for setting in settings:
            there = known.runs(regime, name, key(setting), seed)
            missing = tuple(run for run in range(runs) if run not in there)
            lacking.setdefault(missing, []).append(setting)
        for missing, group in lacking.items():
            parts = [tuple(group)] if player.together else [(setting,) for setting in group]
            for first in range(0, len(missing), self.batch):
                for part in parts:
                    yield self.job(regime, name, part, seed, missing[first : first + self.batch])

    def job(
        self, regime: Regime, name: str, settings: tuple[Setting, ...], seed: int, runs: tuple[int, ...]
    ) -> Job:
        """Of these runs."""
        player = self.players[name]
        return Job(
            regime,
            PROBLEMS.get(regime.problem),
            name,
            player,
            settings,
            seed,
            runs,
            self.encoding,
            self.columns,
        )


def key(setting: Setting) -> Key:
    """What tells a setting from others."""
    return tuple(sorted(setting.items()))


class Known:
    """The rows of a ``table`` by what they are; and of some settings the mean over their first runs, where a table of
    ``means`` is all that is left of these."""

    def __init__(self, table: Any, means: Any = None) -> None:
        self.cells: dict[tuple[Regime, str, Key, int], dict[int, float]] = {}
        self.means: dict[tuple[Regime, str, Key, int, int], float] = {}
        for cell, row in _cells(table):
            self.cells.setdefault(cell, {})[row["run"]] = row.get("regret", 0.0)
        for cell, row in _cells(means) if means is not None else ():
            self.means[*cell, row["runs"]] = row["regret"]

    def runs(self, regime: Regime, name: str, setting: Key, seed: int) -> Mapping[int, float]:
        """The final regret of every run that is there."""
        return self.cells.get((regime, name, setting, seed), {})

    def score(
        self, regime: Regime, name: str, setting: Key, seed: int, runs: int, tail: bool = False
    ) -> float | None:
        """The mean final regret of the first ``runs`` runs, None unless they are there; if the ``tail`` counts, the
        middle between that and the mean of their worst tenth."""
        there = self.runs(regime, name, setting, seed)
        if all(run in there for run in range(runs)):
            regrets = sorted(there[run] for run in range(runs))
            mean, worst = math.fsum(regrets) / runs, regrets[-max(1, round(runs / 10)) :]
            return (mean + math.fsum(worst) / len(worst)) / 2 if tail else mean
        return self.means.get((regime, name, setting, seed, runs))


def _cells(table: Any) -> Iterator[tuple[tuple[Regime, str, Key, int], dict[str, Any]]]:
    """The rows of ``table``, each with its regime, player, setting and seed."""
    names = settings_of(table)
    for row in table.to_dict("records"):
        setting = {name: row[name] for name in names if row[name] == row[name]}  # NaN: it has no such part
        yield (regime_of(row), row["player"], key(setting), row["seed"]), row


def regime_of(row: Mapping[str, Any]) -> Regime:
    """The regime of a row."""
    return Regime(**{name: row[name] for name in REGIME})


def settings_of(table: Any) -> list[str]:
    """The columns of ``table`` that are of settings: those between the player and the seed."""
    names = list(table.columns)
    return names[names.index("player") + 1 : names.index("seed")] if names else []


def path_of(name: str, folder: Path = DATA) -> Path | None:
    """The table of the study ``name`` in ``folder``, as text or compressed."""
    there = [folder / f"{name}.csv{end}" for end in ("", ".gz")]
    return next((path for path in there if path.is_file()), None)


@cache
def read(name: str, folder: Path = DATA) -> Any:
    """The table of the study ``name`` in ``folder``, or as shipped, as a frame that is not to be changed."""
    path = path_of(name, folder) or path_of(name)
    require(path is not None, "the study", name, f"there is no table of it; make study NAME={name}")
    return pd.read_csv(path)


@cache
def known(study: str, folder: Path = DATA) -> Known:
    """What the tables of a study say; of some choices the means of their rungs were kept, and no single runs."""
    table = read(study, folder) if path_of(study, folder) or path_of(study) else pd.DataFrame()
    return Known(table, _rungs(study))


def _rungs(study: str) -> Any:
    means = read("rungs")
    return means[means["study"] == study].drop(columns="study")


def facts(name: str, folder: Path = DATA) -> dict[str, Any]:
    """What stands beside the table ``name``: its columns, and when, from which commit and by which command its rows
    were made."""
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return found


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
    asked = any(regime in one for one in played)
    require(asked, "regime", regime, f"give a part of the name of one that {names} play: {tuple(played)}")
    folder.mkdir(parents=True, exist_ok=True)

    there = path_of(study.name, folder) or path_of(study.name)
    table = read(study.name, folder) if there else pd.DataFrame()
    if fresh and len(table):
        table = table[~_asked(table, names, regime)]
    before = len(table)
    try:
        means = None if fresh else _rungs(study.name)
        while jobs := _lacking(study, Known(table, means), names, regime, runs):
            table = _grown(study, table, jobs, folder)
    finally:
        if path_of(study.name, folder):
            read.cache_clear()
            known.cache_clear()
            _note(study, len(read(study.name, folder)) - before, folder)
    return read(study.name, folder)


def _asked(table: Any, players: Sequence[str], regime: str) -> Any:
    """Which rows of ``table`` are of these ``players``, on regimes with ``regime`` in their name."""
    there = np.array([regime in str(regime_of(row)) for row in table.to_dict("records")], dtype=bool)
    return table["player"].isin(players) & there


def _lacking(study: Study, known: Known, names: Sequence[str], regime: str, runs: int | None) -> list[Job]:
    """What is lacking next, the first runs of everything first, and nothing twice."""
    jobs = [job for name in names for job in study.jobs(known, name, regime, runs)]
    once = {(job.regime, job.name, job.seed, job.runs, *map(key, job.settings)): job for job in jobs}
    return sorted(once.values(), key=lambda job: job.runs[0])


def _grown(study: Study, table: Any, jobs: Sequence[Job], folder: Path) -> Any:
    """``table`` with the rows of ``jobs``, written now and then, and at the end however it comes."""
    rows: list[dict[str, Any]] = []
    begun = written = time.monotonic()
    try:
        for number, found in enumerate(_results(study, jobs), 1):
            rows += found
            now = time.monotonic()
            if now - written > PAUSE:
                left = (now - begun) / number * (len(jobs) - number) / 60
                print(f"{study.name}: {number:,} of {len(jobs):,} jobs, {left:.0f} min left", file=sys.stderr)
                table, rows, written = _write(study, table, rows, folder), [], time.monotonic()
    finally:
        table = _write(study, table, rows, folder)
    return table


def _results(study: Study, jobs: Sequence[Job]) -> Iterator[list[dict[str, Any]]]:
    """The rows of each of ``jobs``, in the order in which they are done."""
    found: Iterator[list[dict[str, Any]]] = Parallel(study.at_once, return_as="generator_unordered")(
        delayed(study.measure)(job) for job in jobs
    )
    return found


def _write(study: Study, table: Any, rows: list[dict[str, Any]], folder: Path) -> Any:
    """``table`` with ``rows``, in order and on disk; the file that was there stays whole until the new one is."""
    table = pd.concat([table, pd.DataFrame(rows)], ignore_index=True)
    settings = [
        name for name in table.columns if name not in (*REGIME, "player", "seed", "run", *study.columns)
    ]
    order = [*REGIME, "player", *settings, "seed", "run", *study.columns]
    table = table[order].sort_values(order[: -len(study.columns)], ignore_index=True)
    path = path_of(study.name, folder) or folder / (path_of(study.name) or Path(f"{study.name}.csv")).name
    partial = path.with_name(f".{os.getpid()}.{path.name}")
    how = {"method": "gzip", "mtime": 0} if path.suffix == ".gz" else None
    table.to_csv(partial, index=False, compression=how)
    partial.replace(path)
    return table


def _note(study: Study, rows: int, folder: Path) -> None:
    """Write beside the table what its columns are, and that ``rows`` were added now."""
    path = folder / f"{study.name}.json"
    made = facts(study.name, folder)["made"] if path.is_file() else []
    if rows:
        when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        versions = {name: version(name) for name in ("torch", "numpy", "botorch")}
        made = [*made, {"when": when, "commit": commit(), "command": command(), "rows": rows, **versions}]
    content = {"study": study.name, "about": study.about, "made": made}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def command() -> str:
    """How this process was called."""
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])


def commit() -> str:
    """The commit of the working copy, with "-dirty" where files differ from it, its tables apart: they are written."""
    git, tables = ("git", "-C", str(DATA)), ":(top,exclude)fedgo/experiments/data"
    try:
        changed, head = (
            subprocess.run([*git, *words], check=True, capture_output=True, text=True).stdout.strip()
            for words in (
                ("status", "--porcelain", "--untracked-files=no", "--", ":/", tables),
                ("rev-parse", "--short=12", "HEAD"),
            )
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("-dirty" if changed else "")


def afresh(study: Study, rows: Any) -> Any:
    """The ``rows`` of a table of ``study`` played again, in their order."""
    jobs: dict[tuple[Regime, str, Key, int], list[tuple[int, int]]] = {}
    for place, (cell, row) in enumerate(_cells(rows)):
        jobs.setdefault(cell, []).append((row["run"], place))
    wanted = [
        study.job(regime, name, (dict(setting),), seed, tuple(run for run, _ in runs))
        for (regime, name, setting, seed), runs in jobs.items()
    ]
    found = [row for part in Parallel()(delayed(study.measure)(job) for job in wanted) for row in part]
    places = [place for runs in jobs.values() for _, place in runs]
    return pd.DataFrame(found, index=places).sort_index().set_index(rows.index)[list(study.columns)]


def check(
    study: Study,
    players: Sequence[str] = (),
    regime: str = "",
    seed: int | None = None,
    folder: Path = DATA,
) -> Any:
    """One row of each player, drawn by ``seed`` (or anew at every call) and played again.

    A frame of what is stored and what comes out ("… now"), and "same", whether they are equal in all digits stored.
    """
    table = read(study.name, folder)
    asked = table[_asked(table, tuple(players) or tuple(study.players), regime)]
    rows = asked.groupby("player").sample(1, random_state=seed)
    now = afresh(study, rows)
    exact = [name for name in study.columns if name not in BY_BATCH]
    close = 0.51 * 10.0**-study.digits
    same = np.isclose(rows[exact].astype(float), now[exact].astype(float), rtol=0, atol=close)
    found = rows.join(now.add_suffix(" now"))
    return found.assign(same=(same | rows[exact].isna().to_numpy()).all(1))
