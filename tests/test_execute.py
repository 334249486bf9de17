"""A chapter is executed when something that it depends on has changed, and only then."""

import sys
from pathlib import Path

import execute
import jupytext
import nbformat
import pytest

CHAPTER = """---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {display_name: Python 3, language: python, name: python3}
---

# A chapter

```{code-cell} ipython3
:tags: [parameters]

runs = 10
```

```{code-cell} ipython3
from fedgo import radius

runs * radius()
```
"""
FILES = {
    "notebooks/one.md": CHAPTER,
    "fedgo/__init__.py": "from fedgo.ball import radius\nfrom fedgo.other import unused\n",
    "fedgo/ball.py": '"""A ball."""\n\nfrom fedgo import sizes\n\n\ndef radius():\n    return sizes.SIZE\n',
    "fedgo/sizes.py": "SIZE = 4.2\n",
    "fedgo/other.py": "def unused():\n    return 1\n",
    "fedgo/data/arms.csv": "1,2\n",
    "requirements.lock": "torch==1\n",
}


@pytest.fixture(autouse=True)
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A book of one chapter, which was executed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # of the kernel
    for module in [name for name in sys.modules if name.partition(".")[0] == "fedgo"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.syspath_prepend(tmp_path)
    execute.imports.cache_clear()
    for name, content in FILES.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(content)
    execute.EXECUTED.mkdir(parents=True)
    done = jupytext.read("notebooks/one.md")
    done.metadata.update(language_info={"name": "python"}, fedgo={"hash": execute.depends_on("one")})
    done.cells[-1].outputs = [nbformat.v4.new_output("execute_result", {"text/plain": "42.0"})]
    execute.write("one", jupytext.read("notebooks/one.md"), done)


@pytest.mark.parametrize(
    ("file", "old", "new", "reason"),
    [
        ("notebooks/one.md", "# A chapter", "# Another title", ""),
        ("notebooks/one.md", "runs * r", "# a comment\nruns*r", ""),
        ("notebooks/one.md", "radius()", "radius();", "its code"),
        ("fedgo/ball.py", "A ball.", "Another docstring.", ""),
        ("fedgo/ball.py", "SIZE", "SIZE / 2", "fedgo.ball"),
        ("fedgo/sizes.py", "4.2", "5.3", "fedgo.sizes"),
        ("fedgo/other.py", "1", "2", ""),
        ("fedgo/__init__.py", "import unused", "import unused as public", ""),
        ("fedgo/__init__.py", "ball import radius", "other import unused as radius",
         "fedgo.other, fedgo.ball, fedgo.sizes"),
        ("fedgo/data/arms.csv", "1", "2", "the data"),
        ("requirements.lock", "1", "2", "requirements.lock"),
    ],
)  # fmt: skip
def test_what_makes_a_chapter_stale(file: str, old: str, new: str, reason: str) -> None:
    assert execute.why_stale("one") == ""
    Path(file).write_text(FILES[file].replace(old, new))
    for module in [name for name in sys.modules if name.partition(".")[0] == "fedgo"]:
        del sys.modules[module]
    execute.imports.cache_clear()
    assert execute.why_stale("one") == reason


@pytest.mark.parametrize(
    "edit", ["42.0", '"seal"', '"hash"', '"language_info"', '"fedgo"', "[\n", "{}", "null", "cell"]
)
def test_a_chapter_that_was_edited_or_is_no_chapter_is_executed_again(edit: str) -> None:
    file = execute.EXECUTED / "one.ipynb"
    content = file.read_text()
    if edit in ("{}", "null"):
        content = edit
    elif edit == "cell":
        content = nbformat.writes(nbformat.v4.new_notebook(metadata=nbformat.reads(content, 4).metadata))
    file.write_text(content.replace(edit, edit[:-2] + edit[-1:], 1))
    assert execute.why_stale("one") == "not executed yet, or edited since"


def test_if_the_disk_is_full_the_outputs_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    Path("notebooks/one.md").write_text(CHAPTER.replace("# A chapter", "# Another title"))
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=r"the chapter one cannot be written to .*No space left"):
        execute.write("one", jupytext.read("notebooks/one.md"), execute.read_executed("one"))
    assert execute.why_stale("one") == ""


def test_todays_text_is_put_around_the_outputs() -> None:
    Path("notebooks/one.md").write_text(CHAPTER.replace("# A chapter", "# Another title"))
    execute.write("one", jupytext.read("notebooks/one.md"), execute.read_executed("one"))
    title, _, last = execute.read_executed("one").cells
    assert (title.source, last.outputs[0].data["text/plain"]) == ("# Another title", "42.0")


def test_named_code_is_put_in_its_place_or_stops_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the package itself
    text = "Before.\n\n```{source} fedgo.confidence.Ball.contains\n```\n\nAfter."
    shown = execute.written_out(text)
    assert "{src}`fedgo.confidence.Ball.contains`\n\n```python\ndef contains(" in shown
    assert shown.startswith("Before.\n\n:::") and shown.endswith("\n```\n:::\n\nAfter.")
    with pytest.raises(AttributeError, match="gone"):
        execute.written_out(text.replace("contains", "gone"))


@pytest.mark.slow
def test_a_chapter_is_executed() -> None:
    Path("notebooks/one.md").write_text(CHAPTER.replace("runs = 10", "runs = 20"))
    execute.execute("one", draft=False)
    assert execute.read_executed("one").cells[-1].outputs[0].data["text/plain"] == "84.0"
    assert execute.why_stale("one") == ""
