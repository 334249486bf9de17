"""What a chapter quotes is shown on any page, and what it does not quote stops the build."""

import json
import re
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import quoted

from fedgo.pages import tables

FIGURE = {"mystnb": {"figure": {"name": "fig-a", "caption": "A caption."}, "image": {"alt": "A dot."}}}


@pytest.fixture
def shown(tmp_path, monkeypatch):
    """What a page becomes beside a chapter that quotes, and what the build complains of."""
    outputs, said = [], []

    def display(data, raw, metadata):
        outputs.append(nbformat.v4.new_output("display_data", data, metadata=metadata))

    monkeypatch.setattr(tables, "display", display)
    logger = SimpleNamespace(warning=lambda text, location: said.append(text))
    monkeypatch.setattr(quoted.logging, "getLogger", lambda name: logger)
    tables.quote(".1f", regret=-1234.56, phrase="one *of* two", lost=float("nan"))
    tables.quote(both=tables.table(("x", "$y$"), [("1", "2")]))
    drawn = [nbformat.v4.new_output("display_data", {"image/svg+xml": "<svg/>"})]
    cells = [nbformat.v4.new_code_cell(metadata=FIGURE, outputs=drawn)]
    cells += [nbformat.v4.new_code_cell(outputs=outputs), nbformat.v4.new_markdown_cell("Here {n}`regret`.")]
    path = tmp_path / "book/_executed/a.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    app = SimpleNamespace(srcdir=tmp_path, env=SimpleNamespace(note_dependency=str))

    def put_in(text, page="index"):
        source = [text or path.read_text("utf-8")]
        quoted.put_in(app, page, source)
        return source[0], said

    return put_in


def test_a_page_shows_the_numbers_phrases_tables_and_pictures_of_another(shown):
    page, said = shown(
        "It is {n}`a:regret`, {n}`a:phrase`.\n\n```{again} a:both\n```\n\n```{again} a:fig-a\n```\n"
    )
    assert not said and "It is −1234.6, one *of* two." in page
    assert "| x | $y$ |" in page and ':alt: "A dot."' in page and "A caption" not in page
    assert json.loads(shown("", "book/_executed/a")[0])["cells"][-1]["source"] == "Here −1234.6."


def test_what_is_not_quoted_or_no_number_or_no_figure_is_named(shown):
    _, said = shown("{n}`a:gone` {n}`b:regret` {n}`a:lost`\n\n```{again} a:fig-b\n```\n")
    assert [line.split("'")[1] for line in said] == ["gone", "regret", "lost", "fig-b"]
    assert said[1].startswith("the chapter b quotes no") and "but nan as its value" in said[2]


CHAPTERS = sorted((Path(__file__).resolve().parents[1] / "book/_executed").glob("*.ipynb"))


@pytest.mark.skipif(not CHAPTERS, reason="no chapter is executed: run `make book` first")
def test_a_name_of_several_words_has_one_value_in_all_chapters():
    """A name of one word, such as `runs`, belongs to its chapter; any other says what it is the value of."""
    values = defaultdict(dict)
    for path in CHAPTERS:
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                if quoted := output.get("metadata", {}).get("scrapbook"):
                    (text,) = (v for k, v in output["data"].items() if k.startswith(quoted["mime_prefix"]))
                    values[quoted["name"]][path.stem] = "".join(text)
    assert len(values) > 50
    own = re.compile(r"[^-]+(-error|-low|-high)?")  # the ends that `quote` adds are no words
    two = {name: by for name, by in values.items() if not own.fullmatch(name) and len({*by.values()}) > 1}
    assert two == {}
