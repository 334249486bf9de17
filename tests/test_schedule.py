"""Two notebooks at a time, the longest first; one line says how far it is; nothing is left behind by a stop."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from book_modules import BOOK, shared

chapters, schedule = shared("chapters"), shared("schedule")


def jobs(*names):
    return [schedule.Job(name, {}, Path(f"{name}.ipynb")) for name in names]


def test_the_longest_is_first_and_before_it_what_nobody_has_timed():
    order = schedule.longest_first(jobs("a", "b", "new", "c"), {"a": 1, "b": 3, "c": 2})
    assert [job.name for job in order] == ["new", "b", "c", "a"]


@pytest.mark.parametrize(
    ("running", "waiting", "left"),
    [([], [], 0), ([5], [], 5), ([5, 2], [4], 6), ([5, 2], [4, 4], 9), ([], [3, 2, 2], 4)],
)
def test_time_left_on_two_places(running, waiting, left):
    assert schedule.time_left(running, waiting) == left


@pytest.mark.parametrize(("seconds", "words"), [(1, "5 s"), (62, "60 s"), (89, "90 s"), (100, "2 min")])
def test_spoken(seconds, words):
    assert schedule.spoken(seconds) == words


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(stream, seconds):
    """What is written while three jobs run, by a clock that is set by hand."""
    now = [0.0]
    progress = schedule.Progress(jobs("a", "b", "c"), seconds, stream, lambda: now[0])
    progress.started("a")
    progress.started("b")
    now[0] = 10
    progress.show()
    progress.finished("b")
    progress.started("c")
    now[0] = 70
    progress.finished("a")
    progress.finished("c")
    return stream.getvalue()


SECONDS = {"a": 60.0, "b": 20.0, "c": 30.0}


def test_on_a_terminal_there_is_one_line_that_changes():
    text = shown(Terminal(), SECONDS)
    assert "\n" not in text
    lines = text.split("\r\x1b[K")
    assert "[0/3] a 10 s, b 10 s; about 50 s left" in lines
    assert "[1/3] a 10 s, c 0 s; about 50 s left" in lines
    assert lines[-1] == ""  # in the end nothing stays


def test_elsewhere_there_is_a_line_for_every_notebook():
    assert (
        shown(io.StringIO(), SECONDS)
        == "[1/3] b: 10 s; about 50 s left\n[2/3] a: 70 s; about 5 s left\n[3/3] c: 60 s\n"
    )


def test_no_time_is_promised_where_one_is_not_known():
    assert "left" not in shown(io.StringIO(), {"a": 60.0, "b": 1.0})


def test_a_narrow_terminal_gets_a_short_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    assert max(len(line) for line in shown(Terminal(), SECONDS).split("\r\x1b[K")) == 19


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs jobs that note when they began and ended, or misbehave by their names; returns those notes."""
    log = tmp_path / "log"
    log.touch()

    def note(text):
        with log.open("a") as stream:
            stream.write(f"{text}\n")

    def execute(root, name, parameters, output, limit):
        note(f"+{name}")
        if name == "bad":
            raise chapters.BuildError("notebook bad failed")
        if name == "full":
            raise OSError(28, "No space left on device", "out.ipynb")
        if name == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(float(name.rpartition("_")[2]) if name[-1].isdigit() else 0)
        note(f"-{name}")

    def start(*names):
        monkeypatch.setattr(schedule, "execute", execute)
        todo = jobs(*names)
        schedule.run(tmp_path, todo, schedule.Progress(todo, {}, io.StringIO()), 10)

    start.notes = lambda: log.read_text().split()
    return start


def test_two_run_at_a_time_in_their_order(run):
    run("a_0.6", "b_0.2", "c_0.1", "d")
    running, most = 0, 0
    for note in run.notes():
        running += 1 if note[0] == "+" else -1
        most = max(most, running)
    assert (running, most) == (0, 2)
    started = [note for note in run.notes() if note[0] == "+"]
    assert (sorted(started[:2]), started[2:]) == (["+a_0.6", "+b_0.2"], ["+c_0.1", "+d"])


@pytest.mark.parametrize("first", ["maker_0.6", "other_0.1"])
def test_who_reads_traces_waits_for_who_makes_them(run, monkeypatch, first):
    monkeypatch.setattr(schedule, "MAKER", "maker_0.6")
    monkeypatch.setattr(schedule, "READERS", ("reader", "reader_0.1"))
    rest = [name for name in ("maker_0.6", "reader", "reader_0.1", "other_0.1") if name != first]
    run(first, *rest)
    notes = run.notes()
    assert len(notes) == 8
    assert notes.index("-other_0.1") < notes.index("-maker_0.6") < notes.index("+reader")
    assert notes.index("-maker_0.6") < notes.index("+reader_0.1")


def test_readers_alone_wait_for_nobody(run):
    there = {path.stem for path in (Path(__file__).parents[1] / "notebooks").glob("*.md")}
    assert {schedule.MAKER, *schedule.READERS} <= there
    run(*schedule.READERS[:2])
    assert sorted(note for note in run.notes() if note[0] == "+") == sorted(
        f"+{n}" for n in schedule.READERS[:2]
    )


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("bad", "notebook bad failed"),
        ("full", "notebook full: No space left on device: out.ipynb"),
        ("killed", "notebook killed: the process that executed it ended with -9"),
    ],
)
def test_after_a_fault_nothing_is_started_and_what_runs_is_waited_for(run, name, fault):
    with pytest.raises(chapters.BuildError) as raised:
        run("a_0.5", name, "c", "d")
    assert str(raised.value) == fault
    assert sorted(run.notes()) == sorted(["+a_0.5", f"+{name}", "-a_0.5"])


PROGRAM = """
import signal, sys, time
from pathlib import Path
sys.path.insert(0, {book!r})
import execution, schedule
from small_book import make, cell, HEADER, PARAMETERS
root = Path({root!r})
project = make(root)
for name in project.names:
    loop = cell("import os, pathlib, time\\n\\npathlib.Path(f'{{os.getpid()}}.pid').touch()\\ntime.sleep(100)")
    (root / f"notebooks/{{name}}.md").write_text(HEADER + PARAMETERS + loop)
execution.set_environment(root)
(root / "book/_executed/.matplotlib").mkdir(parents=True)
(root / "book/_executed/.matplotlib/fontlist-v0.json").touch()
execution.prepare(root)
todo = [schedule.Job(name, {{}}, root / f"book/_executed/{{name}}.ipynb") for name in project.names]
signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))
schedule.run(root, todo, schedule.Progress(todo, {{}}), 1000)
"""


def alive(pid: int) -> bool:
    """Whether the process is there, and not merely waiting to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_a_stop_ends_the_kernels_and_leaves_nothing_behind(tmp_path):
    program = PROGRAM.format(book=str(BOOK), root=str(tmp_path))
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stderr=subprocess.PIPE, text=True
    )
    for _ in range(600):
        if len(kernels := [int(path.stem) for path in tmp_path.glob("*.pid")]) == 2:
            break
        time.sleep(0.1)
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1 and said.strip() == "told to stop"
    assert len(kernels) == 2
    for _ in range(100):
        if not any(map(alive, kernels)):
            break
        time.sleep(0.1)
    assert not any(map(alive, kernels))
    assert [path.name for path in (tmp_path / "book/_executed").iterdir() if path.is_file()] == []
