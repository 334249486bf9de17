"""An executed notebook is executed again if something that it used changed, and for no other reason."""

import json
import shutil

import nbformat
import pytest
import small_book
from book_modules import shared
from small_book import cell, chapters, edit, execute, executed, freshness, why

definitions = shared("definitions")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project whose two notebooks are executed."""
    made = small_book.make(tmp_path)
    text = nbformat.v4.new_output("stream", text="30\n")
    small_book.pretend(tmp_path, monkeypatch, [text])
    for name in made.names:
        execute(made, name)
    return made


def test_what_was_just_executed_is_fresh(project):
    assert why(project) == {}


BOTH = {"01_a", "02_b"}


@pytest.mark.parametrize(
    ("file", "old", "new", "stale"),
    [
        ("notebooks/01_a.md", "Prose.", "Other prose.", set()),
        ("notebooks/01_a.md", "import fedgo\n", "import fedgo  # the package\n\n", set()),
        ("notebooks/01_a.md", "send(runs)", "send(runs + 1)", {"01_a"}),
        ("notebooks/01_a.md", "send(runs))", "send(runs));", {"01_a"}),
        ("notebooks/01_a.md", "runs = 10", "runs = 20", {"01_a"}),
        ("notebooks/01_a.md", ":tags: [parameters]", ":tags: []", {"01_a"}),
        ("fedgo/star.py", '"""Sends."""', '"""Sends a message."""', set()),
        ("fedgo/star.py", "return n * LINES", "return LINES * n", {"01_a"}),
        ("fedgo/star.py", "list(csv", "tuple(csv", {"02_b"}),
        ("fedgo/star.py", "return 1", "return 1.0", {"01_a"}),
        ("fedgo/star.py", "return 2", "return 3", set()),
        ("fedgo/star.py", "LINES = 3", "LINES = 4", {"01_a"}),
        ("fedgo/star.py", "UNUSED = 1", "UNUSED = 2", set()),
        ("fedgo/star.py", "UNUSED = 1", "UNUSED = 1\nprint(1)", set()),
        ("fedgo/other.py", "x = 1", "x = 2", set()),
        ("fedgo/data/arms.csv", "1,2", "1,3", {"02_b"}),
        ("fedgo/data/other.csv", "3,4", "3,5", set()),
        ("requirements.lock", "2.4.6", "2.4.7", BOTH),
    ],
)
def test_an_edit_makes_stale_what_used_it(project, file, old, new, stale):
    edit(project.root / file, old, new)
    assert why(project).keys() == stale


def test_the_reasons_say_what_it_was(project):
    edit(project.root / "notebooks/01_a.md", "send(runs)", "send(1)")
    edit(project.root / "fedgo/data/arms.csv", "1,2", "1,3")
    assert why(project) == {
        "01_a": "code cell 1 (import fedgo) changed",
        "02_b": "fedgo/data/arms.csv, which it reads, changed",
    }
    edit(project.root / "fedgo/star.py", "list(csv", "tuple(csv")
    assert why(project)["02_b"] == "fedgo/star.py: arms changed"
    (project.root / "fedgo/star.py").unlink()
    assert why(project)["02_b"] == "fedgo/star.py is gone"
    chapters.executed_path(project.root, "02_b").unlink()
    assert why(project)["02_b"] == "has not been executed"


def test_another_python_executes_again(project, monkeypatch):
    monkeypatch.setattr(freshness.platform, "python_version", lambda: "3.99.0")
    assert why(project).keys() == BOTH
    assert "and this is CPython 3.99.0" in why(project)["01_a"]


def test_a_copy_of_the_tree_is_as_fresh(project, tmp_path):
    copy = tmp_path / "elsewhere"
    shutil.copytree(project.root, copy, ignore=lambda folder, names: ["elsewhere"])
    project.root = copy
    assert why(project) == {}


def rewritten(project, change) -> None:
    """Change the data of the executed 01_a."""
    path = chapters.executed_path(project.root, "01_a")
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def other_output(data):
    data["cells"][-1]["outputs"][0]["text"] = "424242\n"


def other_number(data):
    data["cells"][-1]["outputs"] = []


def other_code(data):
    data["cells"][-1]["source"] = "print(1)"


def missing_cell(data):
    del data["cells"][1]


def other_parameter(data):
    data["metadata"]["fedgo"]["parameters"]["runs"] = "2"


def injected(data):
    data["cells"].insert(2, data["cells"][1] | {"source": "runs = 2", "id": "injected"})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (other_output, "its outputs were changed after the run"),
        (other_number, "its outputs were changed after the run"),
        (other_code, "code cell 1 (import fedgo) changed"),
        (missing_cell, "2 cells with code, the executed one 1 of 2"),
        (other_parameter, "it was executed with the parameters {'runs': '2'}"),
        (injected, "2 cells with code, the executed one 3 of 2"),
    ],
)
def test_an_executed_file_edited_by_hand_is_found(project, change, reason):
    rewritten(project, change)
    assert reason in why(project)["01_a"]


STAMPS = [[], None, "a", 1, {}, {"cells": 3}, {"cells": [], "parameters": []}]
STAMPS += [{"used": used} for used in ([], {"fedgo/star.py": []}, {"fedgo/star.py": {"Star": 1}}, None, "x")]
STAMPS += [{"traces": traces} for traces in (None, 1, [1], [{}], [{"modules": 1, "files": [], "code": ""}])]
STAMPS += [
    {"cells": [1, 2]},
    {"parameters": None},
    {"read": None},
    {"read": {"fedgo/data": ""}},
    {"lock": []},
]


@pytest.mark.parametrize("planted", STAMPS, ids=str)
def test_a_damaged_stamp_is_a_reason_and_no_crash(project, planted):
    def change(data):
        whole = isinstance(planted, dict) and planted and len(planted) == 1
        data["metadata"]["fedgo"] = data["metadata"]["fedgo"] | planted if whole else planted

    rewritten(project, change)
    assert why(project)["01_a"]


NOTEBOOK = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
DAMAGED = ["", "{}", "[]", "null", "3", '"a"', "{", "\0", json.dumps(NOTEBOOK), json.dumps(NOTEBOOK)[:40]]
DAMAGED += [json.dumps(NOTEBOOK | part) for part in ({"cells": [{}]}, {"cells": None}, {"nbformat": 99})]
DAMAGED += [json.dumps(NOTEBOOK | part) for part in ({"metadata": []}, {"metadata": None}, {"cells": [[]]})]
DAMAGED += [json.dumps(NOTEBOOK | {"metadata": {"fedgo": stamp}}) for stamp in ([], None, {"cells": []})]


@pytest.mark.slow
@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_executed_again(project, content):
    chapters.executed_path(project.root, "01_a").write_text(content)
    assert why(project).keys() == {"01_a"}
    execute(project)
    assert why(project) == {}


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_a_file_that_is_no_text_is_executed_again(project, content):
    path = chapters.executed_path(project.root, "01_a")
    path.unlink()
    path.mkdir() if content is None else path.write_bytes(content)
    assert why(project)["01_a"] == "what was executed cannot be read"


def test_todays_text_is_put_around_the_outputs(project):
    before = executed(project)
    path = chapters.executed_path(project.root, "01_a")
    text = project.root / "notebooks/01_a.md"
    edit(text, "Prose.", "Better prose.")
    edit(text, "import fedgo\n", "import fedgo  # as the page says\n")
    edit(text, ":tags: [parameters]", ":tags: [parameters, hide-input]")
    assert why(project) == {}
    freshness.refresh(project.root, "01_a")
    after = executed(project)
    assert "Better prose." in after["cells"][0]["source"][-1]
    assert after["cells"][-1]["source"][0] == "import fedgo  # as the page says\n"
    assert after["cells"][1]["metadata"]["tags"] == ["parameters", "hide-input"]
    assert after["cells"][-1]["outputs"] == before["cells"][-1]["outputs"]
    stamps = [data["metadata"]["fedgo"] for data in (before, after)]
    assert stamps[0].pop("notebook") != stamps[1].pop("notebook")
    assert stamps[0] == stamps[1]
    assert why(project) == {}
    written = path.stat().st_mtime_ns
    freshness.refresh(project.root, "01_a")
    assert path.stat().st_mtime_ns == written  # the same again is not written again


def test_an_edit_while_the_kernel_runs_leaves_the_notebook_stale(project, monkeypatch):
    run = small_book.execution.run

    def slow(*arguments):
        edit(project.root / "fedgo/star.py", "LINES = 3", "LINES = 4")  # before the kernel imports it
        return run(*arguments)

    monkeypatch.setattr(small_book.execution, "run", slow)
    execute(project)
    assert why(project)["01_a"] == f"fedgo/star.py was {definitions.CHANGING}"


def test_other_processes_may_have_used_everything(project):
    now = definitions.package(project.root)
    star = "fedgo/star.py"
    report = {"ran": {star: []}, "contents": {star: now[star].content}, "processes": False}
    assert freshness.used(report, [], now) == {star: {}}
    report["processes"] = True
    assert freshness.used(report, [], now).keys() == now.keys()
    assert "Star.receive" in freshness.used(report, [], now)[star]


def test_the_stamp_says_where_a_page_came_from(project):
    stamp = executed(project)["metadata"]["fedgo"]
    assert stamp["parameters"] == {"runs": "10"}
    assert {"notebook", "package", "lock", "python", "commit", "seconds", "date"} < stamp.keys()
    assert str(project.root) not in chapters.executed_path(project.root, "01_a").read_text()
    other = executed(project, "02_b")["metadata"]["fedgo"]
    assert other["read"].keys() == {"fedgo/data/arms.csv"}
    assert other["used"]["fedgo/star.py"].keys() == {"Path", "arms", "csv"}


def test_a_text_that_is_no_python_is_compared_as_it_stands(project):
    text = project.root / "notebooks/01_a.md"
    text.write_text(text.read_text() + cell("%%bash\necho 1"))
    execute(project)
    assert why(project) == {}
    edit(text, "echo 1", "echo 2")
    assert why(project)["01_a"] == "code cell 2 (%%bash) changed"
