"""A drawing in the page: its boxes lead where their labels are, and a label that nothing has is a warning."""

import io
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from book_modules import load

ROOT = Path(__file__).resolve().parents[1]
BOX = '<a href="#{}" class="new"><rect width="9" height="9"/><text>box</text></a>'
SECOND = """
.. _sec-there:

There
-----

.. prf:lemma:: A lemma
   :label: lem-there

   One is one.
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Builds a page with a drawing of such boxes, beside a page with a section and a lemma."""
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace

    drawings = load("drawings", "drawings")
    monkeypatch.setattr(drawings, "ASSETS", tmp_path)

    def build(labels, options="", caption="What is seen."):
        boxes = "".join(map(BOX.format, labels))
        (tmp_path / "boxes.svg").write_text(f"<svg xmlns='http://www.w3.org/2000/svg'>{boxes}</svg>\n")
        (tmp_path / "pages/part").mkdir(parents=True)
        page = f"Title\n=====\n\n.. drawing:: boxes.svg\n   :name: fig-boxes\n{options}\n\n   {caption}\n"
        (tmp_path / "pages/index.rst").write_text(
            page + "\n.. toctree::\n\n   part/second\n\n:ref:`fig-boxes`\n"
        )
        (tmp_path / "pages/part/second.rst").write_text("Second\n======\n" + SECOND)
        warnings, settings = (
            io.StringIO(),
            {"extensions": ["drawings", "sphinx_proof"], "html_theme": "basic"},
        )
        with docutils_namespace():
            places = (str(tmp_path / part) for part in ("html", "trees"))
            Sphinx(
                str(tmp_path / "pages"),
                None,
                *places,
                "html",
                confoverrides=settings,
                status=None,
                warning=warnings,
            ).build()
        return (tmp_path / "html/index.html").read_text(), (tmp_path / "html").resolve(), warnings.getvalue()

    return build


def test_boxes_lead_to_sections_and_statements_of_other_pages(site):
    page, html, warnings = site(["sec-there", "lem-there"])
    links = re.findall(r'<a href="([^"]*)" class="new"><rect', page)
    assert len(links) == 2 and warnings == ""
    for link in links:
        file, anchor = link.split("#")
        assert f'id="{anchor}"' in (html / file).read_text()
    figure = re.search(r'<figure class="[^"]*wide drawn[^"]*" id="fig-boxes">.*?</figure>', page, re.DOTALL)[
        0
    ]
    assert "<svg" in figure and "What is seen." in figure


def test_a_label_that_nothing_has_is_a_warning_unless_it_may_come_later(site):
    page, _, warnings = site(["sec-gone", "thm-later", "lem-there"], "   :later: thm-later\n")
    assert "the drawing links to 'sec-gone', which nothing has for a label" in warnings
    assert "thm-later" not in warnings + page
    assert page.count('<g class="new"><rect') == 2 and page.count('class="new"><rect') == 3


def test_a_drawing_needs_a_caption(site):
    assert "a drawing needs a caption: one paragraph" in site(["sec-there"], caption="")[2]


def test_the_picture_of_the_theory_says_what_each_box_is():
    svg = (ROOT / "book/_assets/theory_map.svg").read_text(encoding="utf-8")
    boxes = ElementTree.fromstring(svg).findall("{*}a")
    pages = [*(ROOT / "notebooks").glob("*.md"), ROOT / "book/repaired_theorem.md"]
    known = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    says = {
        "printed": "as printed",
        "repaired": "repaired",
        "false": "false",
        "new": "new",
        "unused": "not needed",
    }
    for box in boxes:
        title, status = (text.text for text in box.findall("{*}text"))
        assert status.startswith(says[box.get("class")]), title
        label = box.get("href").removeprefix("#")
        assert re.search(rf"^(?:\({label}\)=|:label: {label})$", known, re.MULTILINE), title
    assert len(boxes) == 23 and {box.get("class") for box in boxes} == set(says)
