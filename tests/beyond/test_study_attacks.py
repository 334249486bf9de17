"""Attacks on a study that once succeeded: each row of the list of attacks that concerns a study, by its identifier.

S-b and S-d, kills and processes that tell at once, are among the random attacks; S-h and M-g, what the exit code says,
are in `test_shell`; S-g, M-f and M-i, names that a table has, are in `test_study_tables`.
"""

import errno
import json
import os
import random
import stat
import tempfile
import threading
import time
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from filelock import FileLock
from test_study_tables import said

from fedgo.beyond import Study, _files
from fedgo.beyond.study import cli
from fedgo.beyond.study import study as module

TABLE = "name,x\na,0\nb,1\nc,2\n"
HOW: dict[str, Any] = {"trials": 400, "noise": 0.1, "method": "ucb1"}


def begun(folder: Path, table: str = TABLE, **how: Any) -> Study:
    """Return a study of the options in the ``table``."""
    (folder / "options.csv").write_text(table, encoding="utf-8")
    return Study(folder / "study.json", folder / "options.csv", **HOW | how)


def unsealed(study: Study) -> dict[str, Any]:
    """Return the content of the file of a ``study``, whose checksum a person who edits it removes."""
    content: dict[str, Any] = json.loads(study.path.read_text(encoding="utf-8"))
    return {name: value for name, value in content.items() if name != "checksum"}


def told(folder: Path) -> list[str]:
    return [option for option, *_ in Study(folder / "study.json").told]


@contextmanager
def failing(at: int, fail: Callable[[], None]) -> Iterator[None]:
    """Call ``fail`` instead of the call number ``at`` to the operating system or to a file's write."""
    made = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal made
            made += 1
            if made == at:
                fail()
            return function(*args, **kwargs)

        return call

    def opened(*args: Any, **kwargs: Any) -> Any:
        file = open(*args, **kwargs)  # noqa: SIM115
        for name in ("write", "flush"):
            with suppress(AttributeError):
                setattr(file, name, counted(getattr(file, name)))
        return file

    with pytest.MonkeyPatch.context() as patch:
        for name in ("open", "close", "fsync", "replace", "chmod", "chown", "unlink"):
            patch.setattr(os, name, counted(getattr(os, name)))
        patch.setattr(_files, "open", counted(opened), raising=False)
        yield


def wherever(folder: Path, fail: Callable[[], None], tell: Callable[[Study], Any]) -> list[tuple[Any, int]]:
    """``tell`` a study one reward for each call of a transaction, which fails, and then with no call failing.

    Returns what ``tell`` returned, and how many rewards more the file has, each time.
    """
    study, ends = begun(folder), []
    study.tell("a", 0.0)
    for at in range(1, 30):
        before = len(told(folder))
        with failing(at, fail):
            result = tell(study)
        ends.append((result, len(told(folder)) - before))
    return ends


def test_two_threads_tell_while_one_looks(tmp_path: Path) -> None:
    """S-a."""
    study, stop = begun(tmp_path), threading.Event()

    def look() -> None:
        while not stop.is_set():
            study.verdict()

    def tell(option: str) -> None:
        for k in range(30):
            study.tell(option, float(k % 7), again=True)

    looking = threading.Thread(target=look)
    telling = [threading.Thread(target=tell, args=(option,)) for option in "ab"]
    for thread in (looking, *telling):
        thread.start()
    for thread in telling:
        thread.join()
    stop.set()
    looking.join()
    assert sorted(told(tmp_path)) == ["a"] * 30 + ["b"] * 30


def test_the_disk_is_full(tmp_path: Path) -> None:
    """S-d."""

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def tell(study: Study) -> tuple[str, list[str]]:
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            try:
                study.tell("a", 1.0, again=True)
            except OSError as error:
                return str(error), []
        return "", [str(warning.message) for warning in noted]

    ends = wherever(tmp_path, full, tell)
    for (error, words), counted in ends:
        assert counted == (not error) and (not error or "nothing is changed" in error)
        assert all(word.startswith("told, but") and "cannot be written" not in word for word in words)
    assert sum(bool(words) for (_, words), _ in ends) >= 2 and ends[-1] == (("", []), 1)


def test_a_request_fails_after_it_was_saved(tmp_path: Path) -> None:
    """S-d, of a request."""
    study = begun(tmp_path)
    with pytest.MonkeyPatch.context() as patch, pytest.warns(module.DoneBut, match="asked, but"):
        patch.setattr(_files, "_synchronise", lambda folder: os.stat(folder / "missing"))
        study.ask()
    assert len(study.open) == 1


def test_a_file_has_a_name_like_that_of_a_partial_one(tmp_path: Path) -> None:
    """S-e."""
    others = [tmp_path / ".study.json.original", tmp_path / ".notes.0123abcd"]
    left, written = tmp_path / ".study.json.0123abcd", tmp_path / ".study.json.abcdabcd"
    for path in (*others, left, written):
        path.write_text("x", encoding="utf-8")
        os.utime(path, (time.time() - 7200 * (path != written),) * 2)
    for name in ("study.json", "*"):
        with _files.whole(tmp_path / name, "the study") as file:
            file.write(b"{}")
    assert all(path.exists() for path in (*others, written)) and not left.exists()


def test_a_study_is_opened_with_other_arguments(tmp_path: Path) -> None:
    """S-f."""
    begun(tmp_path, seed=5, sites=("north",))
    for name, value in (("method", "advised"), ("seed", 0), ("sites", ()), ("centre", 0.0)):
        with pytest.raises(ValueError, match=f"was begun with is {{'{name}'.*begin another file"):
            Study(tmp_path / "study.json", **{name: value})
    Study(tmp_path / "study.json", seed=5, sites=["north"], **HOW)


def test_the_holder_of_the_lock_stops(tmp_path: Path) -> None:
    """H-h."""
    study, lock = begun(tmp_path), tmp_path / ".study.json.lock"
    with pytest.MonkeyPatch.context() as patch, FileLock(lock):
        patch.setattr(module, "_WAIT", 0.1)
        for text, holder in (("process 7 on north", "process 7 on north"), ("", "a process")):
            lock.write_text(text)
            with pytest.raises(TimeoutError, match=f": {holder} has held it for 0.1 s: end that process"):
                study.tell("a", 1.0)
        assert study.verdict() and not study.told


def test_a_user_may_only_read() -> None:
    """H-i."""
    with tempfile.TemporaryDirectory() as name:  # another user may not enter pytest's folders
        place = Path(name)
        study, lock = begun(place), place / ".study.json.lock"
        study.path.chmod(0o664)
        if os.geteuid() == 0:
            os.chown(study.path, -1, 12345)
        study.tell("b", 1.0)
        for file in (study.path, lock):  # a group shares both
            assert stat.S_IMODE(file.stat().st_mode) == 0o664
            assert os.geteuid() != 0 or file.stat().st_gid == 12345
        lock.unlink()
        study.plot()  # so that all is loaded
        study.path.chmod(0o444)
        place.chmod(0o555)
        before = study.path.read_bytes(), study.path.stat().st_mtime_ns

        def look() -> None:
            if os.geteuid() == 0:
                os.setuid(65534)
            seen = Study(study.path, **HOW)
            assert seen.standings() and seen.verdict() and seen.plot() and len(seen.told) == 1
            assert "b  " in said(study.path, "show")
            with pytest.raises(PermissionError, match=r"nothing is changed.*no right to write the study"):
                seen.tell("a", 2.0)

        child = get_context("fork").Process(target=look)
        child.start()
        child.join()
        assert child.exitcode == 0
        place.chmod(0o755)
        assert (study.path.read_bytes(), study.path.stat().st_mtime_ns) == before and not lock.exists()


def test_a_name_is_a_script(tmp_path: Path) -> None:
    """P-b."""
    name = "<img src=x onerror=alert(1)>"
    study = begun(tmp_path, f"name,x\n{name},0\nb,1\nc,2\n")
    for option, reward in ((name, 3.0), ("b", 1.0), ("c", 0.5)):
        study.tell(option, reward)
    html = study.to_frame().to_html()
    assert "<img" not in html and "&lt;img" in html


def test_files_are_edited_badly(tmp_path: Path) -> None:
    """M-c."""
    study, draw, refused = begun(tmp_path, sites=("north", "süd")), random.Random(0), 0
    for k in range(8):
        study.tell("abc"[k % 3], float(k), "north")
    study.batch(2, "süd")
    whole = unsealed(study)
    odd: list[Any] = [None, True, -1, 0, 10**400, 1e400, float("nan"), "", "x", [], {}, [[]], ["a"], "a\nb"]
    odd += ["\ud800", 1e99, 3]
    for _ in range(150):
        content = node = deepcopy(whole)
        while True:
            key = draw.choice(list(node) if isinstance(node, dict) else range(len(node)))
            if not isinstance(node[key], dict | list) or not node[key] or draw.random() < 0.3:
                break
            node = node[key]
        if draw.random() < 0.3:
            del node[key]
        else:
            node[key] = draw.choice(odd)
        study.path.write_text(json.dumps(content), encoding="utf-8")
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
    assert 50 < refused < 150


def test_an_open_option_is_retired(tmp_path: Path) -> None:
    """M-d."""
    study = begun(tmp_path)
    first = study.ask()
    study.retire(first)
    assert study.open == [] and study.ask() != first
    content = unsealed(study)
    content["open"].insert(0, [first, ""])
    study.path.write_text(json.dumps(content))
    assert study.ask() != first


def test_a_name_is_typed_with_other_accents(tmp_path: Path) -> None:
    """M-e, accents."""
    name, typed = "süß $\\frac$", unicodedata.normalize("NFD", " süß  $\\frac$")
    study = begun(tmp_path, f"name,x\n{typed},0\nb,1\n")
    for option in (name, typed, "b"):
        study.tell(option, 3.0, again=True)
    assert told(tmp_path) == [name, name, "b"] and study.untell(typed) == (name, 3.0)
    study.plot().figure.canvas.draw()


def test_a_user_interrupts(tmp_path: Path) -> None:
    """M-e, Ctrl-C."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    def tell(study: Study) -> tuple[int, str]:
        done = CliRunner().invoke(cli.main, ["--study", str(study.path), "tell", "a", "1", "--again"])
        return done.exit_code, done.output.strip().splitlines()[-1][:17]

    ends = wherever(tmp_path, interrupted, tell)
    assert {(code, counted) for (code, _), counted in ends} == {(1, 0), (3, 1), (0, 1)}
    assert ((3, "Note: told, but i"), 1) in ends and ((1, "Aborted!"), 0) in ends


def test_a_name_looks_like_an_option_of_the_command(tmp_path: Path) -> None:
    """S-i."""
    names = ["-20 C, hot", "-h", "-5x", "-"]
    study = begun(tmp_path, "name,x\n" + "".join(f'"{name}",{k}\n' for k, name in enumerate(names)))
    for name in names:
        for words in (("tell", name, "-3"), ("retire", name), ("retire", name, "--again")):
            said(study.path, *words)
    assert told(tmp_path) == names


def test_the_lock_is_removed_while_it_is_held(tmp_path: Path) -> None:
    """S-k."""
    study = begun(tmp_path)
    with (
        pytest.raises(OSError, match=r"nothing is changed.*its file was removed"),
        study._changing("told") as held,
    ):
        (tmp_path / ".study.json.lock").unlink()
        study.tell("a", 1.0)
        held[2](*held[:2])
    assert told(tmp_path) == ["a"]


def test_the_lock_has_another_name(tmp_path: Path) -> None:
    """P-e."""
    study = begun(tmp_path)
    (tmp_path / ".study.json.lock").unlink(missing_ok=True)
    (tmp_path / "victim").write_text("precious")
    os.link(tmp_path / "victim", tmp_path / ".study.json.lock")
    with pytest.raises(ValueError, match="a lock is emptied: remove this name"):
        study.tell("a", 1.0)
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_file_is_merged_or_damaged(tmp_path: Path) -> None:
    """S-l."""
    study = begun(tmp_path)
    study.tell("a", 1.25)
    text = study.path.read_text()
    twice = "{" + text.partition("\n")[2][:-1] + ',"told": []}'
    edited = "the checksum is .*if you edited it, remove the entry 'checksum'"
    for other, words in ((twice, "what an object has twice is"), (text.replace("1.25", "1.35"), edited)):
        study.path.write_text(other)
        with pytest.raises(ValueError, match=words):
            Study(study.path)
    study.path.write_text("{" + text.partition("\n")[2].replace("1.25", "1.35"))
    study.tell("a", 2.0)
    assert [row[2] for row in Study(study.path).told] == [1.35, 2.0] and "checksum" in study.path.read_text()


def test_a_device_or_a_pipe_is_given(tmp_path: Path) -> None:
    """H-l."""
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", str(tmp_path / "pipe")):
        said(tmp_path / "study.json", "begin", path, "--trials", 9, code=1)
        assert "give the path of a file" in said(path, "show", code=1)


def test_a_certificate_is_promised_no_more(tmp_path: Path) -> None:
    """M-j."""
    begun(tmp_path, "name,x\na,0\nb,1\n", centre=0.0, reach=1.0)
    (tmp_path / "options.csv").write_text("name,x\n" + "".join(f"n{k},{k}\n" for k in range(17_000)))
    grown = Study(tmp_path / "study.json", tmp_path / "options.csv")
    assert "no certificate is promised any more" in grown.verdict()


def test_a_picture_has_no_ending_or_is_a_folder(tmp_path: Path) -> None:
    """M-p."""
    study = begun(tmp_path)
    assert said(study.path, "plot", tmp_path / "p") == f"{tmp_path / 'p.png'}\n"
    said(study.path, "plot", tmp_path, code=1)


def refused(what: Any, words: str) -> Callable[[Path], None]:
    """Return an attack by ``what`` a study is begun with, a table or arguments, or what its file is made to say."""

    def attack(folder: Path) -> None:
        if isinstance(what, tuple):
            content = unsealed(begun(folder))
            (content["about"] if what[0] == "method" else content)[what[0]] = what[1]
            (folder / "study.json").write_text(json.dumps(content))
        with pytest.raises((ValueError, TypeError), match=words):
            begun(folder, *[what] * isinstance(what, str), **(what if isinstance(what, dict) else {}))
        assert isinstance(what, tuple) == (folder / "study.json").exists()

    return attack


def not_there(name: str, words: str, **how: Any) -> Callable[[Path], None]:
    """Return an attack by a path, the ``name`` of a file, a link that leads to itself, or no name at all."""

    def attack(folder: Path) -> None:
        (folder / "loop").symlink_to(folder / "loop")
        path = str(folder / name) if name else ""
        (folder / "options.csv").write_text(TABLE)
        with pytest.raises((ValueError, OSError), match=words):
            Study(path, folder / "options.csv" if how else None, **how)
        output = said(path, "show", code=1)
        assert output.startswith("Error: ") and output.count("\n") == 1
        assert not list(folder.glob(".*.lock"))

    return attack


ATTACKS = {
    "M-b centre": refused({"centre": "x"}, "centre is 'x'"),
    "M-b method": refused({"method": 3}, r"method is 3 \(int\): give the name of a method, or a Surrogate"),
    "M-b site": refused({"sites": "north"}, "sites is 'north'.*give a list of names"),
    "M-b sites": refused({"sites": [1, 2]}, "the name of site 1 is 1"),
    "M-b twice": refused({"sites": ["a", "a"]}, "the name that two sites have is"),
    "sites alone": refused({"method": "advised", "differ": True, "sites": ["north"]}, "give two at least"),
    "sites ucb1": refused({"differ": True, "sites": ["a", "b"]}, "have their own model"),
    "sites 1": refused({"differ": 1, "sites": ["a", "b"]}, "differ is 1"),
    "M-b large": refused({"noise": 1e160}, r"noise is 1e\+160: give a number above 0"),
    "M-b small": refused({"noise": 1e-160}, "noise is 1e-160: give a number above 0"),
    "M-b seed": refused({"seed": -1}, "seed is -1"),
    "M-c told": refused(("told", [["z", "", 1.0]]), r"study.json' cannot be read as a study: option is 'z'"),
    "M-c about": refused(("about", {}), "what about has is .*give centre"),
    "M-c name": refused(("method", "best"), "method is 'best': choose one of"),
    "M-c retired": refused(("retired", ["a", "b", "c"]), "retired is .*keep at least one"),
    "M-c features": refused(
        ("options", {"a": ["a", "nan"], "b": ["b", "1"], "c": ["c", "2"]}),
        r"'x' of \['a'\] is \['nan'\]: give a number",
    ),
    "M-e loop": not_there("loop", "links lead in a circle|Too many levels|cannot be read"),
    "M-e no name": not_there("", "cannot be read as a study.*give the path of a file"),
    "M-e missing": not_there("missing.json", "cannot be read as a study: No such file.*to begin one"),
    "M-e trials": not_there("new.json", "trials is None: .*--trials", noise=0.1),
    "M-f unseen": refused("name,x\na\u200b,0\nb,1\n", r"the name of option 1 is 'a\\u200b'"),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_study_withstands(attack: Callable[[Path], None], tmp_path: Path) -> None:
    attack(tmp_path)
