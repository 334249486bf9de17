"""`make tune`: successive halving on every core; writes the tables of `fedgo.experiments.record`.

What is finished is kept in a local database: a tuning that was interrupted goes on where it was, and one that was
finished with the same code computes nothing again (``make tune FRESH=1`` does).
"""

import argparse
import json
import math
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from pathlib import Path
from typing import NamedTuple

import torch

from fedgo.experiments import record
from fedgo.experiments.code import code, digest
from fedgo.experiments.comparison import EVERY, Run, World, evaluate, made_by, tuned, world
from fedgo.experiments.record import Setting
from fedgo.experiments.tuning import (
    CLAIM_RUNS,
    CLAIM_SEED,
    STUDIES,
    Bracket,
    Chosen,
    Evaluated,
    HeldOut,
    Judged,
    Outside,
    Regrets,
    Rung,
    Study,
    chosen,
    edges,
    evaluated,
    held_out,
    judged,
    outside,
)
from fedgo.phase_one import Exploration, Start
from fedgo.problem import Problem
from fedgo.star import Ledger

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "book" / "_traces" / "tuning.sqlite"
WORKERS = 2
AT_ONCE = 64  # tasks handed to an executor: enough for many workers, and few to cancel

TOGETHER = ("N-GO-UCB",)  # its Phase I costs more than its Phase II: one task for all settings of a rung
# A step costs these about the same for ten runs as for hundreds: one batch for all settings that differ in β alone.
IN_A_BATCH = ("One-GO-UCB", "Fed-GLB-UCB", "Kernel UCB, at once", "UCB1, shared")


class Task(NamedTuple):
    """Some ``settings`` of one bracket, as texts, on the runs from ``first`` to before ``end`` of ``seed``."""

    experiment: str
    algorithm: str
    settings: tuple[str, ...]
    seed: int
    first: int
    end: int


class Measured(NamedTuple):
    """The final regrets of every setting of a task, and the seconds that it took."""

    regrets: tuple[tuple[float, ...], ...]
    seconds: float


def measure(task: Task) -> Measured:
    """Run the algorithm of ``task`` with each of its settings, on one thread."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    within = _world(task.experiment, task.seed, task.first, task.end)
    compute = EVERY[task.algorithm].compute
    settings = [record.parse(setting) for setting in task.settings]
    if task.algorithm in IN_A_BATCH and len(settings) > 1:
        final = _in_a_batch(compute, within, settings)
    else:
        final = [compute(within, setting).cumulative_regret[:, -1].tolist() for setting in settings]
    return Measured(tuple(map(tuple, final)), time.perf_counter() - start)


def _in_a_batch(compute: Run, within: World, settings: Sequence[Setting]) -> list[list[float]]:
    """The final regrets of ``settings`` that differ in β alone, from one batch that has every run once for each."""
    runs = len(within.problem.runs)
    beta = torch.tensor([setting["beta"] for setting in settings], dtype=torch.float64)
    of_each = beta.repeat_interleave(runs).view(-1, 1, 1)
    trace = compute(_again(within, len(settings)), {**settings[0], "beta": of_each})
    final: list[list[float]] = trace.cumulative_regret[:, -1].view(len(settings), runs).tolist()
    return final


class _Again(Problem):
    """A problem's runs several times with the same noise, which a `Problem` refuses."""

    def __post_init__(self) -> None:
        pass  # the problem was checked


@dataclass(frozen=True, kw_only=True)
class _Many(World):
    """A World whose runs are those of ``one``, each ``times`` times, and whose Phase I, which no β changes, is its."""

    one: World
    times: int

    @cached_property
    def shared(self) -> Start:
        start = self.one.shared
        arm, reward, ledger = start.exploration
        arm, reward, up, down, w0, loss = (
            _repeated(part, self.times) for part in (arm, reward, *ledger, start.w0, start.loss)
        )
        again = Exploration(arm, reward, Ledger(up, down))
        return replace(start, problem=self.problem, exploration=again, w0=w0, loss=loss)


def _again(within: World, times: int) -> _Many:
    parts = {part.name: getattr(within.problem, part.name) for part in fields(Problem)}
    parts |= {name: _repeated(parts[name], times) for name in ("arms", "means")}
    problem = _Again(**{**parts, "runs": within.problem.runs * times, "truth": None})
    return _Many(problem, within.clients, within.rounds, within.encoding, one=within, times=times)


def _repeated(part: torch.Tensor, times: int) -> torch.Tensor:
    return part.repeat(times, *(1 for _ in part.shape[1:]))


@cache
def _world(experiment: str, seed: int, first: int, end: int) -> World:
    """Kept by each worker, as Phase I does not depend on the setting; with the messages whose count costs least time,
    which no choice depends on."""
    return replace(world(experiment, range(first, end), seed), encoding="counts")


class Kept:
    """The finished results in a database, each with the hash of the code that made it (`code_of`)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._create()
        except sqlite3.OperationalError as error:
            raise OSError(f"{str(path)!r} cannot be used: {error}") from error
        except sqlite3.DatabaseError:  # the file is something else, or damaged
            path.unlink()
            self._create()

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The database for one transaction, and closed after it."""
        with closing(sqlite3.connect(self.path)) as base, base:
            yield base

    def _create(self) -> None:
        with self._open() as base:
            base.execute(
                "create table if not exists results (experiment, algorithm, setting, seed, first, end, code,"
                " regrets, seconds, primary key (experiment, algorithm, setting, seed, first, end))"
            )

    def get(self, task: Task) -> Measured | None:
        """What is kept of ``task``, if all of it is, and made by today's code."""
        query = (
            "select regrets, seconds from results where experiment = ? and algorithm = ? and setting = ?"
            " and seed = ? and first = ? and end = ? and code = ?"
        )
        with self._open() as base:
            rows = [base.execute(query, _key(task, setting)).fetchone() for setting in task.settings]
        if None in rows:
            return None
        return Measured(tuple(tuple(json.loads(row[0])) for row in rows), sum(row[1] for row in rows))

    def split(self, task: Task) -> list[Task]:
        """``task`` in two, the settings that are kept and the others, where there are both."""
        is_kept = {
            setting: self.get(task._replace(settings=(setting,))) is not None for setting in task.settings
        }
        parts = (tuple(s for s, there in is_kept.items() if there == wanted) for wanted in (True, False))
        return [task._replace(settings=part) for part in parts if part]

    def put(self, task: Task, found: Measured) -> None:
        """Keep ``found``, all of it or nothing."""
        share = found.seconds / len(task.settings)
        rows = [
            (*_key(task, setting), json.dumps(regrets), share)
            for setting, regrets in zip(task.settings, found.regrets, strict=True)
        ]
        with self._open() as base:
            base.executemany("insert or replace into results values (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def forget(self, seed: int, names: Sequence[tuple[str, str]]) -> None:
        """Drop what is kept of the (experiment, algorithm) in ``names`` with this ``seed``."""
        with self._open() as base:
            base.executemany(
                "delete from results where seed = ? and experiment = ? and algorithm = ?",
                [(seed, *name) for name in names],
            )


def _key(task: Task, setting: str) -> tuple[str | int, ...]:
    made = code_of(task.experiment, task.algorithm)
    return (task.experiment, task.algorithm, setting, task.seed, task.first, task.end, made)


@cache
def code_of(experiment: str, algorithm: str) -> str:
    """A hash of all code and data that a regret of ``algorithm`` on ``experiment`` depends on."""
    return code(*made_by(experiment, algorithm))


class Progress:
    """How much of the ``brackets`` is done, and how long the rest takes at the speed seen so far, by the ``clock``."""

    def __init__(self, brackets: Sequence[Bracket], clock: Callable[[], float] = time.monotonic) -> None:
        self.brackets, self.clock, self.start = brackets, clock, clock()
        self.settings, self.finished, self.computed = 0, 0, 0.0
        self.runs: dict[tuple[str, str], int] = {}
        self.seconds: dict[tuple[str, str], float] = {}

    def add(self, task: Task, found: Measured, old: bool) -> None:
        """Count a finished ``task``; an ``old`` result took no time now."""
        name = (task.experiment, task.algorithm)
        self.settings += len(task.settings)
        self.computed += 0.0 if old else found.seconds
        self.runs[name] = self.runs.get(name, 0) + len(task.settings) * (task.end - task.first)
        self.seconds[name] = self.seconds.get(name, 0.0) + found.seconds

    @property
    def left(self) -> float | None:
        """Seconds, or None before the first new result: what the missing runs of every bracket cost, where none is done
        yet on average, over the number of workers that were busy until now."""
        if not self.computed:
            return None
        average = sum(self.seconds.values()) / sum(self.runs.values())
        cost = 0.0
        for bracket in self.brackets:
            name = (bracket.experiment, bracket.algorithm)
            done = self.runs.get(name, 0)
            cost += (bracket.budget - done) * (self.seconds[name] / done if done else average)
        return cost * (self.clock() - self.start) / self.computed

    def __str__(self) -> str:
        total = sum(rung.settings for bracket in self.brackets for rung in bracket.rungs)
        left = "" if self.left is None else f", {math.ceil(self.left / 60)} min left"
        return (
            f"{self.settings:,} of {total:,} settings, {self.finished} of {len(self.brackets)} brackets{left}"
        )


class Climb:
    """The ``brackets`` on their way up: what is known of each, and the tasks that this leaves."""

    def __init__(self, brackets: Sequence[Bracket], seed: int, kept: Kept) -> None:
        self.brackets, self.seed, self.kept, self.progress = brackets, seed, kept, Progress(brackets)
        self.regrets: list[dict[str, tuple[float, ...]]] = [{} for _ in brackets]
        self.waiting_for = [0] * len(brackets)
        self.ready: deque[tuple[int, Task]] = deque()
        for number in range(len(brackets)):
            self._next_rung(number)

    def take(self, number: int, task: Task, found: Measured, old: bool) -> None:
        """The result of a task of bracket ``number``; the last one of a rung opens the next."""
        known = self.regrets[number]
        for setting, new in zip(task.settings, found.regrets, strict=True):
            known[setting] = known.get(setting, ()) + tuple(new)
        self.progress.add(task, found, old)
        self.waiting_for[number] -= 1
        if not self.waiting_for[number]:
            self._next_rung(number)

    def _next_rung(self, number: int) -> None:
        """A bracket that has begun comes before the others, and of these the last: the large problems."""
        needed = tasks_of(self.brackets[number], self.seed, self.regrets[number])
        tasks = [part for task in needed for part in self.kept.split(task)]
        self.waiting_for[number] = len(tasks)
        self.ready.extendleft((number, task) for task in reversed(tasks))
        self.progress.finished += not tasks


def tasks_of(bracket: Bracket, seed: int, regrets: Regrets) -> Iterator[Task]:
    """What ``bracket`` needs next: a task for each setting, for those that differ in β alone, or for all."""
    missing = bracket.missing(regrets)
    groups: dict[str, list[str]] = {}
    for setting in missing:
        others = {name: value for name, value in bracket.settings[setting].items() if name != "beta"}
        key = setting
        if bracket.algorithm in TOGETHER:
            key = ""
        elif bracket.algorithm in IN_A_BATCH:
            key = record.text(others)
        groups.setdefault(key, []).append(setting)
    for settings in groups.values():
        runs = missing[settings[0]]
        yield Task(bracket.experiment, bracket.algorithm, tuple(settings), seed, runs.start, runs.stop)


def tune(
    brackets: Sequence[Bracket],
    seed: int,
    kept: Kept,
    executor: Executor | None = None,
    measure: Callable[[Task], Measured] = measure,
    show: Callable[[Progress], None] = lambda progress: None,
) -> list[dict[str, tuple[float, ...]]]:
    """The final regrets of the settings of each of the ``brackets``, on the runs that its rungs ask for.

    Tasks go to the ``executor``, or are computed here; the result does not depend on who computes what and when.
    """
    climb = Climb(brackets, seed, kept)
    running: dict[Future[Measured], tuple[int, Task]] = {}
    while climb.ready or running:
        while climb.ready and len(running) < (1 if executor is None else AT_ONCE):
            number, task = climb.ready.popleft()
            found = kept.get(task)
            if found is None:
                running[_submit(executor, measure, task)] = number, task
            else:
                climb.take(number, task, found, old=True)
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            number, task = running.pop(future)
            kept.put(task, future.result())
            climb.take(number, task, future.result(), old=False)
        show(climb.progress)
    return climb.regrets


def _submit(executor: Executor | None, measure: Callable[[Task], Measured], task: Task) -> Future[Measured]:
    if executor is not None:
        return executor.submit(measure, task)
    future: Future[Measured] = Future()
    future.set_result(measure(task))
    return future


def look_outside(
    study: Study,
    regrets: Sequence[Regrets],
    run: Callable[[Sequence[Bracket]], Sequence[Regrets]],
) -> list[Outside]:
    """What lies one step outside every edge that matters, on the runs of the second rung; ``run`` computes brackets as
    it did those of the study."""
    asked = []
    for bracket, known in zip(study.brackets, regrets, strict=True):
        rows = judged(bracket, known)
        best, runs = chosen(bracket, rows), bracket.rungs[1].runs
        for edge in edges(best, rows):
            if edge.matters:
                alone = replace(bracket, grid=(record.parse(edge.outside),), rungs=(Rung(1, runs),))
                asked.append((best, edge, known[best.setting], alone))
    found = run([alone for *_, alone in asked])
    return [
        outside(best, edge, of_winner, new[edge.outside])
        for (best, edge, of_winner, _), new in zip(asked, found, strict=True)
    ]


def write(
    study: Study,
    regrets: Sequence[Regrets],
    further: Sequence[Outside] = (),
    executor: Executor | None = None,
    runs: int = CLAIM_RUNS,
) -> list[Path]:
    """Write the tables of ``study``, each headed by when, by which command and with which code it was made.

    The winners of a named study play the ``runs`` of the claims too, on the ``executor``.
    """
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    about = {"made": made, "command": study.command, "commit": commit()}
    about |= {"code": digest(code_of(part.experiment, part.algorithm) for part in study.brackets)}
    about |= {"seed": str(study.seed), "criterion": "mean final regret, Phase I included"}
    pairs = list(zip(study.brackets, regrets, strict=True))
    rows = [judged(bracket, known) for bracket, known in pairs]
    best = [chosen(bracket, part) for bracket, part in zip(study.brackets, rows, strict=True)]
    every = [row for part in rows for row in part]
    paths = [
        record.write(study.table("tuned"), about, Chosen._fields, best),
        record.write(study.table("tuning"), about, Judged._fields, every),
    ]
    if not study.name:  # what chapter 7 asks of the book's own choice
        apart = [row for bracket, known in pairs for row in held_out(bracket, known)]
        paths.append(record.write(study.table("held_out"), about, HeldOut._fields, apart))
        paths.append(record.write(study.table("outside"), about, Outside._fields, further))
    else:  # what chapter 10 asks of the others
        about |= {"seed": str(CLAIM_SEED), "criterion": "none: the winners on the runs of the claims"}
        played = [row for name in study.experiments for row in _played(study, name, runs, executor)]
        paths.append(record.write(study.table("evaluated"), about, Evaluated._fields, played))
    return paths


def _played(study: Study, experiment: str, runs: int, executor: Executor | None) -> Iterator[Evaluated]:
    """The winners on ``experiment`` that the tables of ``study`` name, on ``runs`` runs of the claims."""
    algorithms = [part.algorithm for part in study.brackets if part.experiment == experiment]
    traces = evaluate(experiment, runs, CLAIM_SEED, algorithms, executor, study.name)
    for algorithm, trace in traces.items():
        yield from evaluated(experiment, algorithm, tuned(experiment, algorithm, study.name), trace)


def commit() -> str:
    """The commit of the working copy, with "-dirty" where files differ from it, its records apart: they are written."""
    git, records = ("git", "-C", str(ROOT)), ":(top,exclude)fedgo/experiments/data"
    try:
        run = partial(subprocess.run, check=True, capture_output=True, text=True)
        changed = run([*git, "status", "--porcelain", "--untracked-files=no", "--", ":/", records]).stdout
        return run([*git, "rev-parse", "--short=12", "HEAD"]).stdout.strip() + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


class Display:
    """One line that is renewed on a terminal; elsewhere a line for every bracket that is finished."""

    def __init__(self, terminal: bool) -> None:
        self.terminal, self.last = terminal, -1

    def __call__(self, progress: Progress) -> None:
        if self.terminal:
            print(f"\r{progress}\x1b[K", end="", flush=True)
        elif progress.finished > self.last:
            print(progress, flush=True)
        self.last = progress.finished


def _begin_worker() -> None:
    """Ctrl-C ends a worker at once and in silence, and so does the end of its parent, however that came about."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def main() -> None:
    """Tune one study on `WORKERS` processes."""
    parser = argparse.ArgumentParser(prog="make tune", description=__doc__)
    parser.add_argument("study", nargs="?", default="", choices=[name for name in STUDIES])
    parser.add_argument("--fresh", action="store_true", help="compute again what is kept")
    arguments = parser.parse_args()
    study = STUDIES[arguments.study]
    try:
        kept = Kept(KEPT)
        if arguments.fresh:
            kept.forget(study.seed, [(b.experiment, b.algorithm) for b in study.brackets])
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(WORKERS, spawn, _begin_worker) as pool:
            try:
                show = Display(sys.stdout.isatty())
                run = partial(tune, seed=study.seed, kept=kept, executor=pool, show=show)
                regrets = run(study.brackets)
                further = [] if study.name else look_outside(study, regrets, run)
                paths = write(study, regrets, further, pool)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        print("\n" * sys.stdout.isatty() + "\n".join(str(path) for path in paths))
    except KeyboardInterrupt:
        sys.exit(f"\ninterrupted: what is finished is kept, and `{study.command}` goes on from there")
    except OSError as error:
        sys.exit(f"{study.command}: {error}")


if __name__ == "__main__":
    main()
