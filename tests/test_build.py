"""The book's build executes what changed and nothing else, checks every page, and says in a sentence why it stopped."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import small_book
import yaml
from book_modules import shared
from small_book import cell, chapters, edit, executed, execution, why

ROOT = Path(__file__).resolve().parents[1]
build, schedule, website = map(shared, ("build", "schedule", "website"))
FIGURE = {"figure": {"name": "fig-a", "caption": "A."}, "image": {"alt": "A line."}}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project that is the build's own, until the end of the test, with no kernels and no pages."""
    made = small_book.make(tmp_path)
    made.seen = []
    small_book.pretend(tmp_path, monkeypatch, seen=made.seen)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(execution, "prepare", lambda root: None)

    def one_by_one(root, jobs, progress, limit):
        for job in jobs:
            execution.execute(root, job.name, job.parameters, job.output, limit)

    monkeypatch.setattr(build, "run", one_by_one)
    monkeypatch.setattr(website, "build", lambda root: root / "index.html")
    return made


def run(project, *arguments) -> list[str]:
    """The titles of what `build.py` with these arguments executes."""
    project.seen.clear()
    build.main([*arguments])
    return sorted(project.seen)


def refused(*arguments) -> str:
    """What `build.py` says before it exits."""
    with pytest.raises(SystemExit) as stopped:
        build.main([*arguments])
    return stopped.value.code


BOTH = ["# A title", "# Another"]


def test_names_come_from_the_table_of_contents(project):
    assert chapters.names(project.root) == ["01_a", "02_b"]
    (project.root / "notebooks/02_b.md").unlink()
    assert "_toc.yml names notebooks that do not exist: 02_b" in refused()


def test_the_books_own_table_of_contents_names_every_notebook_once():
    names = [path.stem for path in sorted((ROOT / "notebooks").glob("*.md"))]
    assert sorted(chapters.names(ROOT)) == names


def test_what_changed_is_executed_once(project, capsys):
    assert run(project) == BOTH
    assert f"Open {project.root}/index.html" in capsys.readouterr().out
    assert run(project) == []
    edit(project.root / "fedgo/star.py", "list(csv", "tuple(csv")
    assert run(project) == ["# Another"]
    edit(project.root / "notebooks/01_a.md", "Prose.", "Better prose.")
    assert run(project) == []
    assert "Better prose." in "".join(executed(project)["cells"][0]["source"])


def test_fresh_means_everything_and_no_store(project):
    run(project)
    assert os.environ["FEDGO_TRACES"] == str(project.root / "book/_traces")
    assert run(project, "--fresh") == BOTH
    assert "FEDGO_TRACES" not in os.environ


def test_stale_says_what_would_be_executed_and_why(project, capsys):
    run(project)
    capsys.readouterr()
    assert run(project, "--stale") == []
    assert capsys.readouterr().out == ""
    edit(project.root / "fedgo/star.py", "list(csv", "tuple(csv")
    assert run(project, "--stale") == []
    assert capsys.readouterr().out == "02_b: fedgo/star.py: arms changed\n"


def test_a_draft_is_all_of_it_somewhere_else(project):
    run(project)
    before = [executed(project, name) for name in project.names]
    assert run(project, "--draft") == BOTH
    for name in project.names:
        stamp = json.loads((project.root / f"_build/draft/{name}.ipynb").read_text())["metadata"]["fedgo"]
        assert stamp["parameters"] == {"runs": "2"}
    assert [executed(project, name) for name in project.names] == before


def plant(**changes):
    """A change of the last cell of the first executed notebook."""

    def change(root: Path) -> None:
        path = root / "book/_executed/01_a.ipynb"
        notebook = nbformat.read(path, as_version=4)
        notebook.cells[-1].update(changes)
        nbformat.write(notebook, path)

    return change


def captioned(root: Path) -> None:
    """A caption that the text has since the run, over a cell without a figure."""
    head = "```{code-cell} ipython3\n---\nmystnb:\n  figure: {name: a, caption: A.}\n---\nimport fedgo"
    edit(root / "notebooks/01_a.md", "```{code-cell} ipython3\nimport fedgo", head)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (plant(outputs=[]), None),
        (plant(outputs=[small_book.nbformat.v4.new_output("stream", text="1")]), "outputs were changed after the run"),
        (captioned, "cell 2 (import fedgo): declares a figure but has no image"),
        (lambda root: (root / "book/_executed/02_b.ipynb").unlink(), "notebook 02_b: has not been executed; run `make"),
        (lambda root: (root / "book/a.md").write_text("took 3.5 s"), "book/a.md, line 1: the number '3.5'"),
        (lambda root: (root / "notebooks/01_a.md").write_text("# A title"), "01_a: it has 0 cells with code"),
    ],
)  # fmt: skip
def test_the_build_stops_at_every_gate(project, capsys, fault, message):
    """From the command line: no page is built, and the exit says why."""
    run(project)
    capsys.readouterr()
    fault(project.root)
    if message is None:
        build.main(["--no-execute"])
        assert "Open" in capsys.readouterr().out
    else:
        assert message in refused("--no-execute")
        assert "Open" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "03_c"], "no notebook '03_c' in _toc.yml; there are: 01_a, 02_b"),
        (["--only", "01_a", "-p", "run", "5", "--output", "out.ipynb"], "01_a has no parameter 'run'; it has: runs"),
        (["--only", "01_a", "-p", "runs", "abc", "--output", "out.ipynb"], "the notebook has 10, give int too"),
        (["--only", "01_a", "-p", "runs", "2", "--output", "book/_executed/01_a.ipynb"], "is a place of the book"),
        (["--only", "01_a", "-p", "runs", "2", "--output", "book/_executed/x/y.ipynb"], "is a place of the book"),
    ],
)  # fmt: skip
def test_a_run_of_one_notebook_is_refused(project, monkeypatch, arguments, message):
    monkeypatch.chdir(project.root)
    assert message in refused(*arguments)
    assert not [*project.root.glob("**/*.ipynb")]


def test_a_run_of_one_notebook(project, capsys):
    out = project.root / "out.ipynb"
    assert run(project, "--only", "01_a", "-p", "runs", "5", "--output", str(out)) == ["# A title"]
    assert capsys.readouterr().out == f"{out}\n"
    assert json.loads(out.read_text())["metadata"]["fedgo"]["parameters"] == {"runs": "5"}
    run(project, "--only", "01_a")
    assert why(project).keys() == {"02_b"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "problem", "-p", "runs", "5"], "-p needs --only and --output"),
        (["--output", "a.ipynb"], "--output needs --only"),
    ],
)
def test_parameters_belong_to_a_run_outside_the_book(capsys, arguments, message):
    with pytest.raises(SystemExit):
        build.main(arguments)
    assert message in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_one_sentence(project):
    (project.root / "book/_executed").write_text("a file where a folder should be")
    said = refused("--only", "01_a")
    assert said.startswith("\nThe book was not built: ") and said.count("\n") == 1
    assert "book/_executed" in said


def test_the_order_is_by_the_last_run_and_in_a_clone_by_the_committed_times(project, monkeypatch):
    order = []
    monkeypatch.setattr(
        build, "run", lambda root, jobs, progress, limit: order.extend(job.name for job in jobs)
    )
    jobs = [schedule.Job(name, {}, Path("x")) for name in project.names]
    (project.root / build.SECONDS).write_text('{"01_a": 1, "02_b": 2}')
    build.execute_all(project.root, jobs, chapters.EXECUTED, 1)
    assert order == ["02_b", "01_a"]
    execution.execute(project.root, "01_a", {}, chapters.executed_path(project.root, "01_a"))
    path = chapters.executed_path(project.root, "01_a")
    path.write_text(re.sub('"seconds": [0-9.]+', '"seconds": 3', path.read_text()))
    build.execute_all(project.root, jobs, chapters.EXECUTED, 1)
    assert order[2:] == ["01_a", "02_b"]
    build.main(["--note-seconds"])
    assert json.loads((project.root / build.SECONDS).read_text()) == {"01_a": 3, "02_b": 2}


def test_the_committed_times_name_notebooks_of_the_book():
    seconds = json.loads((ROOT / build.SECONDS).read_text(encoding="utf-8"))
    assert seconds and set(seconds) <= set(chapters.names(ROOT))


def test_two_builds_of_one_tree_follow_each_other(project, capsys):
    program = (
        f"import sys, time; sys.path.insert(0, {str(ROOT / 'book')!r}); import build; from pathlib import Path\n"
        f"with build.alone(Path({str(project.root)!r})): print('in', flush=True); time.sleep(1)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "in\n"
        with build.alone(project.root):
            assert other.wait(timeout=10) == 0
    assert capsys.readouterr().out == "Another build of this book is running; waiting for its end.\n"
    with build.alone(project.root):
        assert capsys.readouterr().out == ""


def test_a_new_notebook_needs_no_entry_anywhere_but_in_the_table_of_contents(project):
    (project.root / "notebooks/03_c.md").write_text(small_book.HEADER + "\n# Another\n" + cell("1"))
    with (project.root / "_toc.yml").open("a") as stream:
        stream.write("- file: book/_executed/03_c\n")
    assert len(run(project)) == 3


def test_the_book_silences_no_warning():
    settings = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["sphinx"]["config"]
    assert [name for name in ("suppress_warnings", "nitpick_ignore") if name in settings] == []
    ((kind, ignored),) = settings["nitpick_ignore_regex"]  # in signatures: types that have no page here
    assert kind == "py:class"
    assert re.fullmatch(ignored, "torch.Tensor")
    assert not any(
        re.fullmatch(ignored, f"fedgo.{name}") for name in ("star.Star", "confidence.Ball", "Gone")
    )
