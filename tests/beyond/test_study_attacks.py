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


def two_threads_tell_while_one_looks(folder: Path) -> None:
    study, stop = begun(folder), threading.Event()

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
    assert sorted(told(folder)) == ["a"] * 30 + ["b"] * 30


def the_disk_is_full(folder: Path) -> None:
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

    ends = wherever(folder, full, tell)
    for (error, words), counted in ends:
        assert counted == (not error) and (not error or "nothing is changed" in error)
        assert all(word.startswith("told, but") and "cannot be written" not in word for word in words)
    assert sum(bool(words) for (_, words), _ in ends) >= 2 and ends[-1] == (("", []), 1)


def a_request_fails_after_it_was_saved(folder: Path) -> None:
    study = begun(folder)
    with pytest.MonkeyPatch.context() as patch, pytest.warns(module.DoneBut, match="asked, but"):
        patch.setattr(_files, "_synchronise", lambda folder: os.stat(folder / "missing"))
        study.ask()
    assert len(study.open) == 1


def a_file_has_a_name_like_that_of_a_partial_one(folder: Path) -> None:
    others = [folder / ".study.json.original", folder / ".notes.0123abcd"]
    left, written = folder / ".study.json.0123abcd", folder / ".study.json.abcdabcd"
    for path in (*others, left, written):
        path.write_text("x", encoding="utf-8")
        os.utime(path, (time.time() - 7200 * (path != written),) * 2)
    for name in ("study.json", "*"):
        with _files.whole(folder / name, "the study") as file:
            file.write(b"{}")
    assert all(path.exists() for path in (*others, written)) and not left.exists()


def a_study_is_opened_with_other_arguments(folder: Path) -> None:
    begun(folder, seed=5, sites=("north",))
    for name, value in (("method", "advised"), ("seed", 0), ("sites", ()), ("centre", 0.0)):
        with pytest.raises(ValueError, match=f"was begun with is {{'{name}'.*begin another file"):
            Study(folder / "study.json", **{name: value})
    Study(folder / "study.json", seed=5, sites=["north"], **HOW)


def the_holder_of_the_lock_stops(folder: Path) -> None:
    study, lock = begun(folder), folder / ".study.json.lock"
    with pytest.MonkeyPatch.context() as patch, FileLock(lock):
        patch.setattr(module, "_WAIT", 0.1)
        for said, holder in (("process 7 on north", "process 7 on north"), ("", "a process")):
            lock.write_text(said)
            with pytest.raises(TimeoutError, match=f": {holder} has held it for 0.1 s: end that process"):
                study.tell("a", 1.0)
        assert study.verdict() and not study.told


def a_user_may_only_read(folder: Path) -> None:
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
            assert "b  " in CliRunner().invoke(cli.main, ["--study", str(study.path), "show"]).output
            with pytest.raises(PermissionError, match=r"nothing is changed.*no right to write the study"):
                seen.tell("a", 2.0)

        child = get_context("fork").Process(target=look)
        child.start()
        child.join()
        assert child.exitcode == 0
        place.chmod(0o755)
        assert (study.path.read_bytes(), study.path.stat().st_mtime_ns) == before and not lock.exists()


def a_name_is_a_script(folder: Path) -> None:
    name = "<img src=x onerror=alert(1)>"
    study = begun(folder, f"name,x\n{name},0\nb,1\nc,2\n")
    for option, reward in ((name, 3.0), ("b", 1.0), ("c", 0.5)):
        study.tell(option, reward)
    html = study.to_frame().to_html()
    assert "<img" not in html and "&lt;img" in html


def files_are_edited_badly(folder: Path) -> None:
    study, draw, refused = begun(folder, sites=("north", "süd")), random.Random(0), 0
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


def an_open_option_is_retired(folder: Path) -> None:
    study = begun(folder)
    first = study.ask()
    study.retire(first)
    assert study.open == [] and study.ask() != first
    content = unsealed(study)
    content["open"].insert(0, [first, ""])
    study.path.write_text(json.dumps(content))
    assert study.ask() != first


def a_name_is_typed_with_other_accents(folder: Path) -> None:
    name, typed = "süß $\\frac$", unicodedata.normalize("NFD", " süß  $\\frac$")
    study = begun(folder, f"name,x\n{typed},0\nb,1\n")
    for option in (name, typed, "b"):
        study.tell(option, 3.0, again=True)
    assert told(folder) == [name, name, "b"] and study.untell(typed) == (name, 3.0)
    study.plot().figure.canvas.draw()


def a_user_interrupts(folder: Path) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    def tell(study: Study) -> tuple[int, str]:
        done = CliRunner().invoke(cli.main, ["--study", str(study.path), "tell", "a", "1", "--again"])
        return done.exit_code, done.output.strip().splitlines()[-1][:17]

    ends = wherever(folder, interrupted, tell)
    assert {(code, counted) for (code, _), counted in ends} == {(1, 0), (3, 1), (0, 1)}
    assert ((3, "Note: told, but i"), 1) in ends and ((1, "Aborted!"), 0) in ends


def shell(folder: Path, *words: str) -> tuple[int, str]:
    """Return the exit code and the output of a command."""
    done = CliRunner().invoke(cli.main, ["--study", str(folder / "study.json"), *words])
    return done.exit_code, done.output


def a_name_looks_like_an_option_of_the_command(folder: Path) -> None:
    names = ["-20 C, hot", "-h", "-5x", "-"]
    begun(folder, "name,x\n" + "".join(f'"{name}",{k}\n' for k, name in enumerate(names)))
    for name in names:
        assert shell(folder, "tell", name, "-3")[0] == 0
        assert shell(folder, "retire", name)[0] == shell(folder, "retire", name, "--again")[0] == 0
    assert told(folder) == names


def the_lock_is_removed_while_it_is_held(folder: Path) -> None:
    study = begun(folder)
    with (
        pytest.raises(OSError, match=r"nothing is changed.*its file was removed"),
        study._changing("told") as held,
    ):
        (folder / ".study.json.lock").unlink()
        study.tell("a", 1.0)
        held[2](*held[:2])
    assert told(folder) == ["a"]


def the_lock_has_another_name(folder: Path) -> None:
    study = begun(folder)
    (folder / ".study.json.lock").unlink(missing_ok=True)
    (folder / "victim").write_text("precious")
    os.link(folder / "victim", folder / ".study.json.lock")
    with pytest.raises(ValueError, match="a lock is emptied: remove this name"):
        study.tell("a", 1.0)
    assert (folder / "victim").read_text() == "precious"


def a_file_is_merged_or_damaged(folder: Path) -> None:
    study = begun(folder)
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


def a_device_or_a_pipe_is_given(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    for path in ("/dev/zero", str(folder / "pipe")):
        assert shell(folder, "begin", path, "--trials", "9")[0] == 1
        code, said = shell(folder, "--study", path, "show")
        assert code == 1 and "give the path of a file" in said


def a_certificate_is_promised_no_more(folder: Path) -> None:
    begun(folder, "name,x\na,0\nb,1\n", centre=0.0, reach=1.0)
    (folder / "options.csv").write_text("name,x\n" + "".join(f"n{k},{k}\n" for k in range(17_000)))
    grown = Study(folder / "study.json", folder / "options.csv")
    assert "no certificate is promised any more" in grown.verdict()


def a_picture_has_no_ending_or_is_a_folder(folder: Path) -> None:
    begun(folder)
    assert shell(folder, "plot", str(folder / "p")) == (0, f"{folder / 'p.png'}\n")
    assert shell(folder, "plot", str(folder))[0] == 1


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
        done = CliRunner().invoke(cli.main, ["--study", path, "show"])
        assert done.exit_code == 1 and done.output.startswith("Error: ") and done.output.count("\n") == 1
        assert not list(folder.glob(".*.lock"))

    return attack


ATTACKS = {
    "S-i": a_name_looks_like_an_option_of_the_command,
    "S-k": the_lock_is_removed_while_it_is_held,
    "S-l": a_file_is_merged_or_damaged,
    "H-l": a_device_or_a_pipe_is_given,
    "P-e": the_lock_has_another_name,
    "M-j": a_certificate_is_promised_no_more,
    "M-p": a_picture_has_no_ending_or_is_a_folder,
    "S-a": two_threads_tell_while_one_looks,
    "S-d full": the_disk_is_full,
    "S-d asked": a_request_fails_after_it_was_saved,
    "S-e": a_file_has_a_name_like_that_of_a_partial_one,
    "S-f": a_study_is_opened_with_other_arguments,
    "H-h": the_holder_of_the_lock_stops,
    "H-i": a_user_may_only_read,
    "P-b": a_name_is_a_script,
    "M-b centre": refused({"centre": "x"}, "centre is 'x'"),
    "M-b nan": refused({"centre": float("nan")}, "centre is nan"),
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
    "M-c": files_are_edited_badly,
    "M-c told": refused(("told", [["z", "", 1.0]]), r"study.json' cannot be read as a study: option is 'z'"),
    "M-c about": refused(("about", {}), "what about has is .*give centre"),
    "M-c name": refused(("method", "best"), "method is 'best': choose one of"),
    "M-c retired": refused(("retired", ["a", "b", "c"]), "retired is .*keep at least one"),
    "M-c features": refused(
        ("options", {"a": ["a", "nan"], "b": ["b", "1"], "c": ["c", "2"]}),
        r"'x' of \['a'\] is \['nan'\]: give a number",
    ),
    "M-d": an_open_option_is_retired,
    "M-e accents": a_name_is_typed_with_other_accents,
    "M-e interrupt": a_user_interrupts,
    "M-e loop": not_there("loop", "links lead in a circle|Too many levels|cannot be read"),
    "M-e no name": not_there("", "cannot be read as a study.*give the path of a file"),
    "M-e missing": not_there("missing.json", "cannot be read as a study: No such file.*to begin one"),
    "M-e trials": not_there("new.json", "trials is None: .*--trials", noise=0.1),
    "M-f unseen": refused("name,x\na\u200b,0\nb,1\n", r"the name of option 1 is 'a\\u200b'"),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_a_study_withstands(attack: Callable[[Path], None], tmp_path: Path) -> None:
    attack(tmp_path)
