"""What a chapter quotes is shown on any page, and what it does not quote stops the build."""

import json
import re
from collections import defaultdict
from io import StringIO
from pathlib import Path

import nbformat
import pytest
from sphinx.application import Sphinx

from fedgo.pages import tables

FIGURE = {"mystnb": {"figure": {"name": "fig-a", "caption": "A caption."}, "image": {"alt": "A dot."}}}
NARROW = {"tags": ["narrow"], "mystnb": {"image": {"alt": "A dot, narrow."}}}


@pytest.fixture
def shown(tmp_path, monkeypatch):
    """A page beside a chapter that quotes; the page as it is shown, and what the build complains of."""
    outputs = []

    def display(data, raw, metadata):
        outputs.append(nbformat.v4.new_output("display_data", data, metadata=metadata))

    monkeypatch.setattr(tables, "display", display)
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1] / "book/ext")

    def build(page):
        tables.quote(".1f", regret=-1234.56, phrase="one *of* two", lost=float("nan"))
        tables.quote(both=tables.table(("x", "$y$"), [("1", "2")]))
        cells = [
            nbformat.v4.new_code_cell(outputs=outputs),
            *(
                nbformat.v4.new_code_cell(
                    metadata=drawn,
                    outputs=[nbformat.v4.new_output("display_data", {"image/svg+xml": "<svg/>"})],
                )
                for drawn in (NARROW, FIGURE)
            ),
            nbformat.v4.new_markdown_cell("# A\n\nHere {n}`regret`."),
        ]
        (tmp_path / "index.md").write_text(f"# B\n\n{page}\n\n```{{toctree}}\nbook/_executed/a\n```\n")
        (tmp_path / "book/_executed").mkdir(parents=True)
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "book/_executed/a.ipynb")
        said = StringIO()
        config = {
            "extensions": ["myst_nb", "quoted"],
            "nb_execution_mode": "off",
            "myst_enable_extensions": ["dollarmath"],
        }
        app = Sphinx(tmp_path, None, tmp_path / "out", tmp_path / "trees", "html", config, None, said)
        app.build()
        read = {
            name: (tmp_path / "out" / f"{name}.html").read_text() for name in ("index", "book/_executed/a")
        }
        return read, said.getvalue()

    return build


def test_a_page_shows_the_numbers_phrases_tables_and_pictures_of_another(shown):
    page = "It is {n}`a:regret`, {n}`a:phrase`.\n\n```{again} a:both\n```\n\n```{again} a:fig-a\n```\n"
    read, said = shown(page)
    assert not said
    assert "It is −1234.6, one <em>of</em> two." in read["index"]
    assert "<table" in read["index"] and 'alt="A dot."' in read["index"] and "A caption" not in read["index"]
    narrow = read["index"].index('alt="A dot, narrow."')
    assert read["index"].rindex("tag_narrow", 0, narrow) < narrow < read["index"].index('alt="A dot."')
    assert "Here −1234.6." in read["book/_executed/a"]


def test_what_is_not_quoted_or_no_number_or_no_figure_is_named(shown):
    _, said = shown("{n}`a:gone` {n}`b:regret` {n}`a:lost`\n\n```{again} a:fig-b\n```\n")
    assert "a quotes no 'gone'" in said and "b quotes no 'regret'" in said
    assert "a quotes no 'lost', but nan" in said and "a quotes no 'fig-b'" in said


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
