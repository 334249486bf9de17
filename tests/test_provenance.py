"""Every executed page says what it was computed from, and can be opened elsewhere with all that it shows."""

import json
from types import SimpleNamespace

import nbformat
import pytest
from book_modules import shared
from bs4 import BeautifulSoup
from small_book import HEADER, PARAMETERS

provenance = shared("provenance")

STAMP = {
    "commit": "1a2b",
    "notebook": "a" * 64,
    "package": "b" * 16,
    "lock": "c" * 64,
    "python": "CPython 3.11.7",
    "parameters": {"runs": "10", "name": "'<b>'"},
    "seconds": 12.3,
    "date": "2026-01-02T03:04:05+00:00",
    "traces": [],
}
TRACE = {
    "problem": "Hartmann6",
    "algorithm": "Fed-GO-UCB",
    "runs": 30,
    "seed": 0,
    "made": "2026-01-01T00:00:00+00:00",
    "code": "0123456789abcdef",
}


def foot(**changes):
    return BeautifulSoup(provenance.foot(STAMP | changes, "page"), "html.parser")


def test_the_foot_says_what_the_stamp_says():
    facts = {term.get_text(): term.find_next("dd").get_text() for term in foot().select("dt")}
    assert facts == {
        "commit": "1a2b",
        "notebook": "a" * 12,
        "package": "b" * 12,
        "lock": "c" * 12,
        "Python": "CPython 3.11.7",
        "parameters": "runs = 10, name = '<b>'",
        "run time": "12 s",
        "executed": "2026-01-02T03:04:05+00:00",
    }
    assert foot().select("details") == []


def test_the_foot_lists_the_stored_traces():
    (shown,) = foot(traces=[TRACE, TRACE | {"algorithm": "<i>"}]).select("details")
    assert shown.select_one("summary").get_text() == "Stored traces that this page read: 2"
    first, second = (item.get_text() for item in shown.select("li"))
    made = "30 runs of seed 0: made 2026-01-01T00:00:00+00:00 by code 0123456789ab"
    assert first == f"Hartmann6, Fed-GO-UCB, {made}"
    assert second == f"Hartmann6, <i>, {made}"


@pytest.fixture
def app(tmp_path, monkeypatch):
    """What Sphinx passes on, for a book of one notebook that shows a definition of the package."""
    (tmp_path / "notebooks").mkdir()
    text = HEADER + "\n# A title\n\n```{source} fedgo.star.Ledger\n```\n\n" + PARAMETERS
    (tmp_path / "notebooks/01_a.md").write_text(text)
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    return SimpleNamespace(
        outdir=tmp_path,
        builder=SimpleNamespace(format="html"),
        env=SimpleNamespace(found_docs={"book/_executed/01_a", "book/index"}),
        config=SimpleNamespace(fedgo_repository="me/mine"),
    )


def test_a_notebook_to_open_shows_the_code_and_is_the_same_every_time(app):
    provenance.notebooks_to_open(app, None)
    path = app.outdir / "open/01_a.ipynb"
    first = path.read_text()
    nbformat.validate(json.loads(first))
    cells = nbformat.reads(first, as_version=4).cells
    assert "```python\n" in cells[0].source and "class Ledger" in cells[0].source
    assert "{source}" not in first
    assert "pip install" in cells[1].source
    provenance.notebooks_to_open(app, None)
    assert path.read_text() == first
