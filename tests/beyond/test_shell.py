"""Each command of the shell: what it says, and the exit code where its output is lost or its file cannot be read."""

import builtins
import errno
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fedgo.beyond import Study
from fedgo.beyond.study import cli

# The words of a command, and the file that it makes or changes.
COMMANDS = {
    "--study new.json begin options.csv --trials 9": "new.json",
    "begin grown.csv": "study.json",
    "begin options.csv --check": "",
    "ask": "study.json",
    "ask --count 2 --to trials.csv": "study.json",
    "tell α 2.5": "study.json",
    "tell plate.csv": "study.json",
    "untell": "study.json",
    "drop α": "study.json",
    "retire α": "study.json",
    "show": "",
    "plot picture.png": "picture.png",
    "export results.csv": "results.csv",
}


def test_no_command_is_left_out() -> None:
    assert {word for words in COMMANDS for word in words.split()} >= {*cli.main.commands}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study that has results and an open trial."""
    folder = tmp_path_factory.mktemp("study")
    table = "name,x\nα,0\nb,1\nc,2\n"
    (folder / "options.csv").write_text(table, "utf-8")
    (folder / "grown.csv").write_text(table + "δ,3\n", "utf-8")
    (folder / "plate.csv").write_text("name,x,result\nα,0,1.5\nb,1,\n", "utf-8")
    study = Study(folder / "study.json", folder / "options.csv", trials=9, noise=0.1)
    for option in study.batch(3):
        if option != "α":
            study.tell(option, 1.0)
    study.tell("α", 2.0)
    study.batch(3)
    assert ("α", "") in study.open
    return folder


def unreadable(path: str) -> None:
    """From the moment when a file has been replaced, the one at ``path`` cannot be read."""
    replace, open_file = Path.replace, builtins.open

    def opened(file: Any, *args: Any, **how: Any) -> Any:
        if str(file).endswith(path):
            raise OSError(errno.EIO, "Input/output error")
        return open_file(file, *args, **how)

    def replaced(self: Path, target: Path) -> Path:
        builtins.open = opened
        Path.read_bytes = Path.read_text = lambda self, *_, **how: opened(self).read()  # type: ignore[method-assign]
        return replace(self, target)

    Path.replace = replaced  # type: ignore[method-assign]


def run(folder: Path, words: str, output: int, charset: str, broken: str) -> tuple[int, str]:
    """Return the exit code of a command in a process of its own, and what it writes to stderr."""
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        os.dup2(output, 1)
        sys.stdout = open(1, "w", encoding=charset, closefd=False)  # noqa: SIM115
        sys.stderr = open("stderr", "w", encoding="utf-8")  # noqa: SIM115
        if broken:
            unreadable(broken)
        code: Any = 70
        try:
            cli.main(words.split())
        except SystemExit as end:
            sys.stdout.flush()
            code = end.code
        finally:
            sys.stderr.flush()
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, (folder / "stderr").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("output", ["cp1252", "latin-1", "closed pipe", "full device", "EIO"])
@pytest.mark.parametrize("words", COMMANDS)
def test_the_exit_code_says_whether_a_change_was_made(
    words: str, output: str, prepared: Path, tmp_path: Path
) -> None:
    folder, changed = tmp_path / "folder", COMMANDS[words]
    shutil.copytree(prepared, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    charset, broken = output if output[-1].isdecimal() else "utf-8", changed * (output == "EIO")
    if output == "closed pipe":
        read, out = os.pipe()
        os.close(read)
    else:
        out = os.open("/dev/full" if output == "full device" else folder / "out", os.O_WRONLY | os.O_CREAT)
    code, said = run(folder, words, out, charset, broken)
    os.close(out)
    after = {
        path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".json", ".csv", ".png")
    }
    differ = {name for name in after if after[name] != before.get(name)} - {"trials.csv"}
    lost = output in ("closed pipe", "full device")
    assert differ == ({changed} if changed else set()), said
    if lost or code:
        assert code == (3 if changed else 1) and ("done, but" in said) == (code == 3), (code, said)
    elif output in ("cp1252", "latin-1"):
        assert b"\\u03b1" in (folder / "out").read_bytes() or "α" not in words


def test_mistakes_are_refused_in_words(prepared: Path, tmp_path: Path) -> None:
    shutil.copytree(prepared, tmp_path / "folder")
    path = tmp_path / "folder/study.json"

    def said(*words: str, code: int = 0) -> str:
        done = CliRunner(env={"FEDGO_STUDY": str(path)}).invoke(cli.main, words)
        assert done.exit_code == code, done.output
        return done.output

    assert "fedgo tell" in said("--help")
    assert said("tell", "nobody", "2.5", code=1).startswith("Error: option is 'nobody': did you mean")
    assert "is not a valid number" in said("tell", "b", "much", code=2)
    assert said("tell", "b", "-2.5").startswith(
        "b: -2.5; 4 results, of it 1, -2.5 ("
    ) and "taken back: -2.5 of b" in said("untell")
    assert "open: α" in said("show")
    said("show", "--top", "0", code=2)
    said("retire", "α")
    assert "retired" in said("show", "--top", "1") and not said("ask").startswith("α")


def test_a_plate_and_an_export_have_the_decimal_commas_of_the_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["Öl;T;Ausbeute", "A;1,5;5,25", "B;2;", "C;3,5;", "D;4,5;7,5"]
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    run = lambda *words: CliRunner().invoke(cli.main, words)  # noqa: E731
    assert run("begin", "t.csv", "--result", "Ausbeute", "--trials", "4", "--name", "Öl").exit_code == 0
    assert run("ask", "--count", "2", "--to", "p.csv").exit_code == 0
    plate = (tmp_path / "p.csv").read_text(encoding="utf-8-sig").splitlines()
    assert plate[0] == lines[0] and {*plate[1:]} == {"B;2;", "C;3,5;"}
    (tmp_path / "p.csv").write_text("\n".join([lines[0], "B;2;6,125", "C;3,5;8"]), encoding="utf-8")
    assert "p.csv: 2 results" in run("tell", "p.csv").output
    assert run("tell", "C", "8.5").exit_code == 0 and run("export", "out.csv").exit_code == 0
    assert ";8,0 8,5;" in (tmp_path / "out.csv").read_text(encoding="utf-8-sig")
    assert "4 options, 1 features, 5 results" in run("begin", "--check", "out.csv").output
