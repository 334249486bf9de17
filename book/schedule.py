"""Execute notebooks two at a time, the longest first but readers of traces after their maker; say how far that is."""

import multiprocessing
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from chapters import BuildError
from execution import execute

WORKERS = 2
# The first keeps the traces of many runs that the others read; at the same time all would compute them.
MAKER, READERS = "results", ("fairness", "readers_questions", "claims", "messages")


class Job(NamedTuple):
    """A notebook to execute, with which parameters, and where it goes."""

    name: str
    parameters: Mapping[str, Any]
    output: Path


def longest_first(jobs: Iterable[Job], seconds: Mapping[str, float]) -> list[Job]:
    """The jobs in the order to start them; what nobody has timed yet may be long."""
    return sorted(jobs, key=lambda job: -seconds.get(job.name, float("inf")))


def next_job(waiting: Sequence[Job], running: Iterable[str]) -> Job | None:
    """The first of the jobs that need not wait for another: no reader of traces while their maker waits or runs."""
    early = MAKER in {*running, *(job.name for job in waiting)}
    return next((job for job in waiting if not (early and job.name in READERS)), None)


def time_left(running: Iterable[float], waiting: Iterable[float]) -> float:
    """Seconds until all is done, if the ``running`` jobs need as many still, and the ``waiting`` ones follow."""
    slots = sorted([*running, *[0.0] * WORKERS], reverse=True)[:WORKERS]
    for seconds in waiting:
        first = slots.index(min(slots))
        slots[first] += seconds
    return max(slots)


def spoken(seconds: float) -> str:
    """A duration in words."""
    return f"{max(5, round(seconds / 5) * 5)} s" if seconds < 90 else f"{round(seconds / 60)} min"


class Progress:
    """How many of the jobs are done, which run, and how long the rest will take by the times of the last run.

    One line that changes on a terminal, elsewhere a line for every job that is done.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        seconds: Mapping[str, float],
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.waiting = [job.name for job in jobs]
        self.total, self.done = len(jobs), 0
        self.running: dict[str, float] = {}
        self.seconds, self.clock, self.stream = seconds, clock, stream or sys.stdout

    def left(self) -> str:
        """The time left, where it is known."""
        now = self.clock()
        if any(name not in self.seconds for name in (*self.running, *self.waiting)):
            return ""
        running = [max(0, self.seconds[name] - (now - since)) for name, since in self.running.items()]
        seconds = time_left(running, [self.seconds[name] for name in self.waiting])
        return f"; about {spoken(seconds)} left" if self.done < self.total else ""

    def started(self, name: str) -> None:
        """The job ``name`` runs now."""
        self.waiting.remove(name)
        self.running[name] = self.clock()
        self.show()

    def finished(self, name: str) -> None:
        """The job ``name`` is done."""
        seconds = self.clock() - self.running.pop(name)
        self.done += 1
        if not self.stream.isatty():
            line = f"[{self.done}/{self.total}] {name}: {seconds:.0f} s{self.left()}"
            print(line, file=self.stream, flush=True)
        self.show()

    def show(self) -> None:
        """Draw the line again, on a terminal."""
        if not self.stream.isatty():
            return
        now = self.clock()
        running = ", ".join(f"{name} {now - since:.0f} s" for name, since in self.running.items())
        line = f"[{self.done}/{self.total}] {running}{self.left()}" if self.running else ""
        width = shutil.get_terminal_size().columns - 1
        self.stream.write(f"\r\x1b[K{line[:width]}")
        self.stream.flush()


def _work(job: Job, root: Path, limit: float, answer: Connection) -> None:
    """A process that executes one notebook and says what was wrong, if anything."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exception, so that the kernel is ended too
    try:
        execute(root, job.name, job.parameters, job.output, limit)
        answer.send("")
    except BuildError as error:
        answer.send(str(error))
    except OSError as error:
        answer.send(f"notebook {job.name}: {error.strerror}: {error.filename or job.output}")
    except KeyboardInterrupt:
        sys.exit(130)


def run(root: Path, jobs: Sequence[Job], progress: Progress, limit: float) -> None:
    """Execute the ``jobs`` in their order. After a fault none is started; those that run are waited for."""
    waiting, faults = [*jobs], list[str]()
    running: dict[Connection, tuple[Job, multiprocessing.Process]] = {}
    try:
        while running or (waiting and not faults):
            while not faults and len(running) < WORKERS:
                job = next_job(waiting, [started.name for started, _ in running.values()])
                if job is None:
                    break
                waiting.remove(job)
                receive, send = multiprocessing.Pipe(duplex=False)
                process = multiprocessing.Process(target=_work, args=(job, root, limit, send))
                process.start()
                send.close()
                running[receive] = job, process
                progress.started(job.name)
            for ready in wait([*running], timeout=1):
                assert isinstance(ready, Connection)
                job, process = running.pop(ready)
                try:
                    fault = ready.recv()
                except EOFError:
                    process.join()
                    fault = f"notebook {job.name}: the process that executed it ended with {process.exitcode}"
                process.join()
                progress.finished(job.name)
                if fault:
                    faults.append(fault)
            progress.show()
    finally:
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            process.join(10)
            process.kill()
    if faults:
        raise BuildError("\n".join(faults))
