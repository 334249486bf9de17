"""One notebook is executed by the book's own kernel, recorded, checked, and put in its place or not at all."""

import os
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
import small_book
from book_modules import BOOK
from small_book import HEADER, PARAMETERS, cell, chapters, edit, execute, executed, execution, why

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project, and the environment that the build sets, until the end of the test."""
    made = small_book.make(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    return made


@pytest.fixture
def ready(project):
    """The project, with all that its kernels find when they start."""
    execution.set_environment(project.root)
    folder = project.root / "book/_executed/.matplotlib"
    folder.mkdir(parents=True)
    (folder / "fontlist-v0.json").touch()  # nothing is drawn here
    execution.prepare(project.root)
    return project


def write(project, *codes, name="01_a"):
    (project.root / f"notebooks/{name}.md").write_text(
        HEADER + "\n# A title\n\n" + PARAMETERS + "".join(map(cell, codes))
    )


def text_of(project, index=-1, name="01_a"):
    return "".join("".join(out["text"]) for out in executed(project, name)["cells"][index]["outputs"])


@pytest.mark.slow
def test_the_kernel_notes_what_is_used(ready):
    """With the real kernel: the same tables of what is used as the other tests pretend, and no more."""
    execute(ready, "01_a")
    execute(ready, "02_b")
    assert text_of(ready) == "30\n"
    stamps = [executed(ready, name)["metadata"]["fedgo"] for name in ready.names]
    used = [stamp["used"] for stamp in stamps]
    assert used[0] == {
        "fedgo/__init__.py": {"Star": used[0]["fedgo/__init__.py"]["Star"]},
        "fedgo/star.py": used[0]["fedgo/star.py"],
    }
    assert used[0]["fedgo/star.py"].keys() == {"LINES", "Star", "Star._factor", "Star.send"}
    assert used[1]["fedgo/star.py"].keys() == {"Path", "arms", "csv"}
    assert [stamp["read"].keys() for stamp in stamps] == [set(), {"fedgo/data/arms.csv"}]
    assert [stamp["parameters"] for stamp in stamps] == [{"runs": "10"}] * 2
    assert why(ready) == {}
    assert "%used" not in chapters.executed_path(ready.root, "01_a").read_text()
    edit(ready.root / "fedgo/star.py", '"""The cost."""', '"""What it costs."""')
    assert why(ready) == {}
    edit(ready.root / "fedgo/star.py", "return 1", "return 2")
    assert why(ready) == {"01_a": "fedgo/star.py: Star._factor changed"}


def test_source_that_a_cell_shows_is_read(ready):
    write(ready, "import inspect\n\nimport fedgo\n\nprint(inspect.getsource(fedgo.Star.receive))")
    execute(ready)
    assert "return 2" in text_of(ready)
    edit(ready.root / "fedgo/star.py", '"""The cost."""', '"""What it costs."""')
    assert why(ready)["01_a"] == "fedgo/star.py, which it reads, changed"


def test_source_of_which_only_a_hash_is_taken_is_not_read(ready):
    """As the store of traces does, which knows the code of a trace without its docstrings."""
    folder = ready.root / "fedgo/experiments"
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").touch()
    text = (
        "from pathlib import Path\n\nSIZE = len(Path(__file__).parents[1].joinpath('star.py').read_text())\n"
    )
    (folder / "code.py").write_text(text)
    write(
        ready,
        "import fedgo\nfrom fedgo.experiments.code import SIZE\n\nprint(SIZE > 0, fedgo.Star().send(1))",
    )
    execute(ready)
    assert "True" in text_of(ready)
    edit(ready.root / "fedgo/star.py", '"""The cost."""', '"""What it costs."""')
    assert "01_a" not in why(ready)


@pytest.mark.slow
def test_nobodys_own_configuration_is_used(project, tmp_path, monkeypatch):
    """Another checkout on PYTHONPATH, start-up code, a kernel in the user's home, matplotlib without images."""
    other = tmp_path / "other"
    (other / "fedgo").mkdir(parents=True)
    (other / "fedgo/__init__.py").write_text("class Star:\n    def send(self, n):\n        return -1\n")
    (other / "start.py").write_text("started = 1\n")
    spec = tmp_path / "home/kernels/fedgo-book/kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text('{"argv": ["/no/such/python"], "display_name": "Python 3", "language": "python"}')
    planted = {
        "PYTHONPATH": str(other),
        "PYTHONSTARTUP": str(other / "start.py"),
        "JUPYTER_DATA_DIR": str(tmp_path / "home"),
        "JUPYTER_PATH": str(tmp_path / "home"),
        "MPLBACKEND": "agg",
        "OMP_NUM_THREADS": "7",
    }
    os.environ.update(planted)
    write(
        project,
        "import os, sys\n\nimport fedgo\n\nprint(fedgo.Star().send(runs), fedgo.__file__)",
        "print('started' in globals(), os.environ['OMP_NUM_THREADS'], sys.executable, sys.path[0])",
    )
    execution.set_environment(project.root)
    execution.prepare(project.root)
    execute(project)
    assert text_of(project, -2) == f"30 {project.root}/fedgo/__init__.py\n"
    assert text_of(project) == f"False 1 {sys.executable} {project.root}\n"


def test_a_package_from_elsewhere_is_refused(ready):
    write(
        ready,
        "import sys, types\n\nsys.modules['fedgo'] = types.ModuleType('fedgo')",
        "import fedgo\n\nfedgo.__file__ = '/x.py'",
    )
    with pytest.raises(
        chapters.BuildError, match=r"notebook 01_a imported /x\.py, which is not of this tree"
    ):
        execute(ready)


@pytest.mark.slow
def test_a_failing_cell_keeps_the_previous_output_and_is_named(ready, capfd):
    execute(ready)
    output = chapters.executed_path(ready.root, "01_a")
    before = output.read_bytes()
    write(ready, "# why\nraise ValueError('runs is 10; give 20')")
    with pytest.raises(chapters.BuildError) as fault:
        execute(ready)
    text = "notebook 01_a failed at cell 2 (# why):\n    ValueError: runs is 10; give 20"
    assert str(fault.value) == text
    assert output.read_bytes() == before
    assert [path.name for path in output.parent.glob("*01_a*")] == ["01_a.ipynb"]
    said = capfd.readouterr()
    assert "KeyboardInterrupt" not in said.err + said.out


@pytest.mark.slow
def test_other_parameters_and_another_place(ready):
    execute(ready)
    before = chapters.executed_path(ready.root, "01_a").read_bytes()
    other = ready.root / "out.ipynb"
    execute(ready, "01_a", {"runs": 50}, other)
    found = nbformat.read(other, as_version=4)
    assert found.cells[-1].outputs[0].text == "150\n"
    assert found.metadata.fedgo.parameters == {"runs": "50"}
    assert chapters.executed_path(ready.root, "01_a").read_bytes() == before
    other.replace(chapters.executed_path(ready.root, "01_a"))
    assert "3 of 3" in why(ready)["01_a"]  # papermill's own cell with the parameters is one more
    with pytest.raises(chapters.BuildError, match="01_a has no parameter 'run'; it has: runs"):
        execute(ready, "01_a", {"run": 5}, ready.root / "never.ipynb")
    assert not (ready.root / "never.ipynb").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (
            "# forever\nimport time\n\nwhile True:\n    time.sleep(1)",
            r"stopped at cell 2 \(# forever\): it reached its",
        ),
        ("# gone\nimport os\n\nos._exit(3)", r"its kernel died \(out of memory\?\) at cell 2 \(# gone\)"),
        (
            "import sys\n\nprint('careful', file=sys.stderr)",
            r"cell 2 \(import sys\): writes to stderr: careful",
        ),
        (
            "import warnings\n\nwarnings.warn('no')",
            r"cell 2 \(import warnings\): writes to stderr: .*UserWarning: no",
        ),
        ("print('x' * 10_000_000)", r"cell 2 \(print.*its outputs are 10\.0 million characters"),
        ("from myst_nb import glue\n\nglue('a', float('nan'), display=False)", "glues 'a', which is nan"),
    ],
)
def test_a_cell_that_misbehaves_is_named(ready, code, fault, capfd, caplog):
    write(ready, code)
    start = time.monotonic()
    with pytest.raises(chapters.BuildError, match=fault):
        execution.execute(ready.root, "01_a", {}, ready.root / "out.ipynb", limit=8)
    assert time.monotonic() - start < 60
    assert not (ready.root / "out.ipynb").exists()
    assert capfd.readouterr() == ("", "") and caplog.records == []  # the fault is said once, by the build


def test_with_other_parameters_a_gap_is_allowed(ready):
    """Two runs may have no spread: a draft says "nan" where the book must not."""
    write(ready, "from myst_nb import glue\n\nglue('a', float('nan'), display=False)")
    execute(ready, "01_a", {"runs": 2}, ready.root / "out.ipynb")
    assert (ready.root / "out.ipynb").exists()


PROGRAM = """
import resource, sys
from pathlib import Path
sys.path.insert(0, {book!r})
import chapters
{before}
try:
    chapters.write(Path({path!r}), "x" * 5_000_000)
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.slow
@pytest.mark.parametrize("there", [True, False])
def test_a_full_disk_leaves_what_was_there(tmp_path, there):
    path = tmp_path / "a.ipynb"
    if there:
        path.write_text("old")
    limit = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))"
    program = PROGRAM.format(book=str(BOOK), path=str(path), before=limit)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "File too large\n"
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a.ipynb", "old")] * there


def test_what_a_killed_run_left_is_tidied(tmp_path):
    old, new, other = (tmp_path / name for name in (".01_a.x1.partial", ".01_a.x2.partial", "01_a.ipynb"))
    for path in (old, new, other):
        path.touch()
    os.utime(old, (0, 0))
    chapters.tidy(tmp_path, time.time())
    assert sorted(tmp_path.iterdir()) == sorted([new, other])


def test_the_same_content_is_not_written_again(tmp_path):
    path = tmp_path / "folder/a.ipynb"
    chapters.write(path, "é\n")
    os.utime(path, (0, 0))
    chapters.write(path, "é\n")
    assert path.stat().st_mtime == 0
    chapters.write(path, "e\n")
    assert path.read_text() == "e\n"
    assert path.stat().st_mode & 0o777 == 0o644


def test_no_two_kernels_share_a_place():
    """Two that start at once may be given the same port, and the second then dies before it replies."""
    one, two = (execution.Kernels() for _ in range(2))
    assert one.transport == two.transport == ("ipc" if os.name == "posix" else "tcp")
    assert one.ip != two.ip or one.transport == "tcp"
