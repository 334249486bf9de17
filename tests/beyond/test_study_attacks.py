"""Attacks on a study that once succeeded, by their names in a list of attacks, each with what happens instead."""

import errno
import json
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from filelock import FileLock

from fedgo import _files
from fedgo.beyond import Study
from fedgo.beyond.study import cli
from fedgo.beyond.study import study as module
from fedgo.beyond.study.study import DoneBut

OPTIONS = "name,x\na,0\nb,1\nc,2\n"
HOW: dict[str, Any] = {"trials": 400, "noise": 0.1, "method": "ucb1"}
CALLS = ["open", "close", "fsync", "replace", "chmod", "chown", "unlink"]


def begun(folder: Path, table: str = OPTIONS, **how: Any) -> Study:
    """Return a study of the options in the ``table``."""
    (folder / "options.csv").write_text(table, encoding="utf-8")
    return Study(folder / "study.json", folder / "options.csv", **HOW | how)


def told(folder: Path) -> list[str]:
    return [option for option, *_ in Study(folder / "study.json").told]


@contextmanager
def failing(at: int, fail: Callable[[], None]) -> Iterator[list[int]]:
    """Call ``fail`` instead of the call number ``at`` to the operating system or to a file's write; count the calls."""
    made, patch = [0], pytest.MonkeyPatch()

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            made[0] += 1
            if made[0] == at:
                fail()
            return function(*args, **kwargs)

        return call

    def opened(*args: Any, **kwargs: Any) -> Any:
        file = open(*args, **kwargs)  # noqa: SIM115
        for name in ("write", "flush"):
            with suppress(AttributeError):
                setattr(file, name, counted(getattr(file, name)))
        return file

    with patch.context() as context:
        for name in CALLS:
            context.setattr(os, name, counted(getattr(os, name)))
        context.setattr(_files, "open", counted(opened), raising=False)
        yield made


def full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def in_a_child(work: Callable[[], Any]) -> int:
    """Start ``work`` in a process of its own and return its number."""
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            work()
            os._exit(0)
        os._exit(1)
    return child


def s_a(folder: Path) -> None:
    """No reward is lost while other threads look and tell."""
    study, stop = begun(folder), threading.Event()

    def look() -> None:
        while not stop.is_set():
            study.verdict()

    def tell(option: str) -> None:
        for k in range(30):
            study.tell(option, float(k % 7))

    looking = threading.Thread(target=look)
    telling = [threading.Thread(target=tell, args=(option,)) for option in "ab"]
    for thread in (looking, *telling):
        thread.start()
    for thread in telling:
        thread.join()
    stop.set()
    looking.join()
    assert sorted(told(folder)) == ["a"] * 30 + ["b"] * 30


def s_b(folder: Path) -> None:
    """Two processes that tell by two paths have one lock, beside the file; no reward is lost."""
    begun(folder)
    (folder / "other").mkdir()
    (folder / "other/link.json").symlink_to(folder / "study.json")

    def tell(path: Path) -> None:
        for k in range(30):
            Study(path).tell("a", float(k))

    children = [
        in_a_child(lambda path=path: tell(path))
        for path in (folder / "study.json", folder / "other/link.json")
    ]
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)
    assert len(told(folder)) == 60 and (folder / "other/link.json").is_symlink()
    assert [path.name for path in folder.rglob(".*.lock")] == [".study.json.lock"]


def s_d(folder: Path) -> None:
    """Wherever a call fails, an error says that nothing is told, or a warning that it is."""
    study, at, after = begun(folder), 0, 0
    study.tell("a", 0.0)
    while True:
        at, before = at + 1, len(told(folder))
        with failing(at, full) as made, warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            try:
                study.tell("a", float(at))
                error = ""
            except OSError as raised:
                error = str(raised)
        words = [str(warning.message) for warning in noted if warning.category is DoneBut]
        assert len(told(folder)) == before + (not error)
        assert not error or "nothing is changed" in error
        assert all(word.startswith("told, but") and "cannot be written" not in word for word in words)
        after += len(words)
        if made[0] < at:
            break
    assert at > 8 and after >= 2


def s_d_kill(folder: Path) -> None:
    """A process that is killed at any call leaves a whole file, with the reward or without, and no lock."""
    study, at = begun(folder), 0
    study.tell("a", 0.0)
    while True:
        at, before = at + 1, len(told(folder))

        def tell(at: int = at) -> None:
            with failing(at, killed):
                study.tell("a", float(at))

        _, status = os.waitpid(in_a_child(tell), 0)
        assert len(told(folder)) in (before, before + 1)
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
    assert at > 8


def s_d_shell(folder: Path) -> None:
    """Where the words cannot be printed, the shell says that the reward counts, by its exit code too."""
    begun(folder)
    run = [sys.executable, "-m", "fedgo.beyond.study.cli", "--study", str(folder / "study.json")]
    with open("/dev/full", "w") as nowhere:
        done = subprocess.run([*run, "tell", "a", "1"], stdout=nowhere, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 3 and done.stderr.decode().startswith("Note: told, but this cannot be printed")
    assert told(folder) == ["a"] and b"Exception" not in done.stderr
    for words, code, said in ((["show"], 0, b""), (["tell", "b", "1"], 3, b"Note: told, but")):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run([*run, *words], stdout=write, stderr=subprocess.PIPE, check=False)
        os.close(write)
        assert done.returncode == code and done.stderr.startswith(said) and (said or not done.stderr)
    assert told(folder) == ["a", "b"]


def s_e(folder: Path) -> None:
    """Only what this package left is tidied."""
    others = [folder / ".study.json.original", folder / ".notes.0123abcd"]
    left = folder / ".study.json.0123abcd"
    for path in (*others, left):
        path.write_text("x", encoding="utf-8")
        os.utime(path, (time.time() - 7200,) * 2)
    for name in ("study.json", "*"):
        with _files.whole(folder / name, "the study") as file:
            file.write(b"{}")
    assert all(path.exists() for path in others) and not left.exists()


def s_f(folder: Path) -> None:
    """An argument that was given is compared with what the study was begun with."""
    begun(folder, seed=5, sites=("north",))
    for given in (
        {"method": "advised"},
        {"method": "every arm once"},
        {"seed": 0},
        {"sites": ()},
        {"trials": 5},
        {"centre": 0.0},
    ):
        with pytest.raises(
            ValueError, match=f"was begun with is {{'{next(iter(given))}'.*begin another file"
        ):
            Study(folder / "study.json", **given)
    Study(folder / "study.json", seed=5, sites=["north"], **HOW)


def s_g(folder: Path) -> None:
    """The first column of a table of numbers becomes names, which a warning says."""
    with pytest.warns(UserWarning, match=r"names are numbers, as '0': the first column .* is no feature"):
        begun(folder, "x,y\n0,1\n1,2\n")
    frame = pd.DataFrame({"x": [0.0, 1.0], "y": [1.0, 2.0]})
    with pytest.warns(UserWarning, match="names are numbers"):
        Study(folder / "frame.json", frame, **HOW)


def h_h(folder: Path) -> None:
    """Who waits too long for the lock is told who holds it; whoever looks does not wait."""
    study, patch = begun(folder), pytest.MonkeyPatch()
    with patch.context() as context, FileLock(folder / ".study.json.lock"):
        context.setattr(module, "_WAIT", 0.1)
        for words in (rf"process {os.getpid()} on .* has held it for 0.1 s", "a process that is not known"):
            with pytest.raises(TimeoutError, match=words):
                study.tell("a", 1.0)
            (folder / ".study.json.lock").write_bytes(b"\xff")
        assert study.verdict() and not study.told


def h_i(folder: Path) -> None:
    """Who may only read looks at a study, and changes nothing; who may write it shares it with a group."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        study = begun(place)
        study.tell("a", 1.0)
        path, lock = study.path, place / ".study.json.lock"
        path.chmod(0o664)
        if os.geteuid() == 0:
            os.chown(path, -1, 12345)
        study.tell("b", 1.0)
        for file in (path, lock):
            assert stat.S_IMODE(file.stat().st_mode) == 0o664
            assert os.geteuid() != 0 or file.stat().st_gid == 12345
        lock.unlink()
        study.plot()  # so that all is loaded
        path.chmod(0o444)
        place.chmod(0o555)
        before, user = (path.read_bytes(), path.stat().st_mtime_ns), os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            seen = Study(path, **HOW)
            assert seen.standings() and seen.verdict() and seen.plot() and len(seen.told) == 2
            done = CliRunner().invoke(cli.main, ["--study", str(path), "show"])
            assert done.exit_code == 0 and "a  " in done.output
            with pytest.raises(PermissionError, match=r"nothing is changed.*may only read the study"):
                seen.tell("a", 2.0)
        finally:
            os.seteuid(user)
            place.chmod(0o755)
        assert (path.read_bytes(), path.stat().st_mtime_ns) == before and not lock.exists()


def m_d(folder: Path) -> None:
    """An open option that is retired is not asked for again, even if a file has it so."""
    study = begun(folder)
    first = study.ask()
    study.retire(first)
    assert study.open == [] and study.ask() != first
    content = json.loads(study.path.read_text())
    content["open"].insert(0, [first, ""])
    study.path.write_text(json.dumps(content))
    assert study.ask() != first


def m_e(folder: Path) -> None:
    """A name may be typed with accents of its own; a $ begins no formula; a link loop and no name are said in words."""
    name = "süß $\\frac$"
    study = begun(folder, f"name,x\n{unicodedata.normalize('NFD', name)},0\nb,1\n")
    study.tell(name, 3.0)
    study.tell(unicodedata.normalize("NFD", name), 3.1)
    study.tell("b", 1.0)
    assert told(folder) == [name, name, "b"] and study.untell(unicodedata.normalize("NFD", name)) == (
        name,
        3.1,
    )
    study.plot().figure.canvas.draw()
    loop = folder / "loop.json"
    loop.symlink_to(loop)
    for call, words in (
        (lambda: Study(loop, folder / "options.csv", **HOW), "links lead in a circle|Too many levels"),
        (lambda: Study(loop), "Too many levels|not there"),
        (lambda: Study(""), "the path of the study is ''"),
        (
            lambda: Study(folder / "new.json", folder / "options.csv", noise=0.1),
            "trials is missing.*--trials",
        ),
        (lambda: Study(folder / "missing.json"), "it is not there: begin it"),
    ):
        with pytest.raises((ValueError, OSError), match=words):
            call()
    assert not (folder / ".missing.json.lock").exists()
    done = CliRunner().invoke(cli.main, ["--study", "", "show"])
    assert done.exit_code == 1 and done.output.startswith("Error: the path of the study")


def m_e_interrupt(folder: Path) -> None:
    """Ctrl-C after the change says that it counts, and before it that nothing is done."""
    study = begun(folder)

    def interrupted() -> None:
        raise KeyboardInterrupt

    for at, code, words in ((1, 1, "Aborted!"), (9, 3, "Note: told, but")):
        ends = set()
        for call in range(at, 30):
            before = len(study.told)
            with failing(call, interrupted) as made:
                done = CliRunner().invoke(cli.main, ["--study", str(study.path), "tell", "a", "1"])
            counted = len(study.told) - before
            assert (done.exit_code, counted) in {(1, 0), (3, 1), (0, 1)}, done.output
            ends.add((done.exit_code, done.output.splitlines()[-1].startswith(words)))
            if made[0] < call:
                break
        assert (code, True) in ends


def p_b(folder: Path) -> None:
    """A page shows the name of an option as text."""
    study = begun(folder, "name,x\n<img src=x onerror=alert(1)>,0\nb,1\nc,2\n")
    for option, reward in (("<img src=x onerror=alert(1)>", 3.0), ("b", 1.0), ("c", 0.5)):
        study.tell(option, reward)
    assert "<img" not in study._repr_html_() and "&lt;img" in study._repr_html_()


def damaged(folder: Path) -> None:
    """Each of 300 damaged files opens and goes on, or is refused in words."""
    study, draw = begun(folder, sites=("north", "süd")), random.Random(0)
    for k in range(8):
        study.tell("abc"[k % 3], float(k), "north")
    study.batch(2, "süd")
    whole = study.path.read_text(encoding="utf-8")
    odd = [
        None,
        True,
        -1,
        0,
        10**400,
        1e400,
        float("nan"),
        "",
        "x",
        [],
        {},
        [[]],
        ["a"],
        "a\nb",
        "\ud800",
        1e99,
        3,
    ]
    refused = 0
    for _ in range(300):
        if draw.random() < 0.3:
            cut, end = sorted(draw.choices(range(len(whole)), k=2))
            text = whole[:cut] + draw.choice(["", whole[cut:end] * 2, '"', "[", "9" * 30]) + whole[end:]
        else:
            content = node = json.loads(whole)
            while True:
                key = draw.choice(list(node) if isinstance(node, dict) else range(len(node)))
                if not isinstance(node[key], dict | list) or not node[key] or draw.random() < 0.3:
                    break
                node = node[key]
            if draw.random() < 0.3:
                del node[key]
            else:
                node[key] = draw.choice(odd)
            text = json.dumps(content)
        study.path.write_text(text, encoding="utf-8")
        try:
            again = Study(study.path)
        except ValueError as error:
            refused += 1
            assert "study.json" in str(error) and "Error" not in str(error)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            site = (again.sites or [None])[0]
            again.tell(again.ask(site), 1.0, site)
            assert again.verdict()
    assert 150 < refused < 300


CASES = {
    "S-a": s_a, "S-b": s_b, "S-d": s_d, "S-d kill": s_d_kill, "S-e": s_e, "S-f": s_f, "S-g": s_g, "H-h": h_h,
    "H-i": h_i, "M-c damaged": damaged, "M-d": m_d, "M-e": m_e, "M-e interrupt": m_e_interrupt, "P-b": p_b,
}  # fmt: skip


@pytest.mark.parametrize("attack", CASES.values(), ids=CASES)
def test_an_attack_on_a_study_fails(attack: Callable[[Path], None], tmp_path: Path) -> None:
    attack(tmp_path)


@pytest.mark.slow
def test_a_shell_that_cannot_print_says_what_counts(tmp_path: Path) -> None:
    s_d_shell(tmp_path)


REFUSED = [
    ("M-b", {"centre": "x"}, "centre is 'x'"),
    ("M-b", {"centre": float("nan")}, "centre is nan"),
    ("M-b", {"centre": float("inf")}, "centre is inf"),
    ("M-b", {"method": 3}, r"method is 3 \(int\): give the name of a method, or a Surrogate"),
    ("M-b", {"method": "fed-go-ucb"}, r"Plan\(arms, network=Network\(…\)\) does, over letters"),
    ("M-b", {"sites": "north"}, "sites is 'north'.*give a list of names"),
    ("M-b", {"sites": [1, 2]}, "the name of a site is 1"),
    ("M-b", {"sites": ["a", "a"]}, "stands twice"),
    ("M-b", {"noise": 1e160}, r"noise is 1e\+160: give σ > 0"),
    ("M-b", {"noise": 1e-160}, "noise is 1e-160: give σ > 0"),
    ("M-b", {"seed": -1}, "seed is -1"),
    ("M-b", {"method": "best"}, "method is 'best': choose one of"),
    ("M-c", ("told", [["z", "", 1.0]]), "study.json': option is 'z'"),
    ("M-c", ("about", {}), "what about has is .*give trials, noise"),
    ("M-c", ("method", "best"), "method is 'best': choose one of"),
    ("M-c", ("method", "fed-go-ucb"), r"study.json': method is 'fed-go-ucb'.*Plan\("),
    ("M-c", ("retired", ["a", "b", "c"]), "retired is .*keep at least one"),
    ("M-c", ("options", {"a": [float("nan")]}), r"the features of 'a' is \[nan\]"),
    ("M-f", "name\tx\na\t0\n", "separate by commas"),
    ("M-f", "sep=,\nname,x\na,0\n", "leave out a line 'sep='"),
    ("M-f", "name,x\n ,0\nb,1\n", "the name of an option is ''"),
    ("M-f", 'name,x\n"a\nb",0\nb,1\n', r"the name of an option is 'a\\nb'.*give a line of text"),
]


@pytest.mark.parametrize(
    ("attack", "what", "words"), REFUSED, ids=[f"{row[0]} {row[1]!r:.30}" for row in REFUSED]
)
def test_what_is_not_allowed_is_refused_where_it_enters(
    attack: str, what: Any, words: str, tmp_path: Path
) -> None:
    if isinstance(what, tuple):
        content = json.loads(begun(tmp_path).path.read_text())
        (content["about"] if what[0] == "method" else content)[what[0]] = what[1]
        (tmp_path / "study.json").write_text(json.dumps(content))
        with pytest.raises(ValueError, match=words):
            Study(tmp_path / "study.json")
        return
    with pytest.raises((ValueError, TypeError), match=words):
        begun(tmp_path, **({"table": what} if isinstance(what, str) else what))
    assert not (tmp_path / "study.json").exists()


@pytest.mark.parametrize(
    "table", ["name,x,,\na,0,,\n,,,\nb,1,,\n,,,\n", "name\na\nb\n"], ids=["M-f Excel", "M-f ucb1"]
)
def test_a_table_of_a_spreadsheet_and_one_without_features_are_taken(table: str, tmp_path: Path) -> None:
    study = begun(tmp_path, table)
    for _ in range(5):
        study.tell(study.ask(), 1.0)
    assert {row.option for row in study.standings()} == {"a", "b"}
