"""The register of checks: rows of executed notebooks, each with the verdict that its kind gives, and a filter."""

import io
import json

from book_modules import load, shared
from bs4 import BeautifulSoup

TABLE = [
    "| statement | kind | what was checked | result |\n",
    "| --- | --- | --- | --- |\n",
    "| a + b | on every run | all groups | 0 violations |\n",
    r"| \|a\| \le 1 | counter-example to the step | one arm | 2 > 1 |" + "\n",
    "| the bound | probability 0.95, vacuous | four problems | 7 times |",
]


def notebook(source, output):
    cell = {"cell_type": "code", "source": source, "outputs": [{"data": {"text/markdown": output}}]}
    return {"cells": [{"cell_type": "markdown", "source": ["checks.table()"], "outputs": []}, cell]}


def test_rows_are_read_as_they_were_printed():
    register = load("register")
    found = [*register.rows(notebook(["checks.table()"], TABLE))]
    assert found[1] == [r"\|a\| \le 1", "counter-example to the step", "one arm", "2 > 1"]
    assert [register.verdict(kind) for _, kind, *_ in found] == ["holds", "refuted", "vacuous"]
    assert [*register.rows(notebook(["table(head, rows)"], TABLE))] == []
    assert [*register.rows(notebook(["checks.", "table()", "\n"], "".join(TABLE)))] == found


def test_every_row_has_its_verdict_for_a_class_and_the_filter_counts_them(tmp_path, monkeypatch):
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace

    place = tmp_path / shared("provenance").EXECUTED
    place.mkdir(parents=True)
    # MyST reads the executed notebook as a page; the register reads it as JSON
    (place / "11_one.ipynb").write_text(json.dumps(notebook(["checks.table()"], TABLE)))
    (tmp_path / "index.md").write_text("# Title\n\n```{register}\n```\n")
    load("register", "register")
    monkeypatch.setattr("register.notebook_names", lambda env: ["11_one"])
    monkeypatch.setattr(
        "sphinx.environment.BuildEnvironment.doc2path",
        lambda env, name, base=True: (
            str(place / "11_one.ipynb") if "11_one" in name else str(tmp_path / f"{name}.md")
        ),
    )
    settings = {
        "extensions": ["myst_parser", "register"],
        "html_theme": "basic",
        "exclude_patterns": ["book"],
    }
    warnings = io.StringIO()
    with docutils_namespace():
        folders = str(tmp_path), None, str(tmp_path / "html"), str(tmp_path / "trees"), "html"
        Sphinx(*folders, confoverrides=settings, status=None, warning=warnings).build()
    page = BeautifulSoup((tmp_path / "html/index.html").read_text(encoding="utf-8"), "html.parser")
    lines = page.select("div.register tbody tr")
    assert [row["class"][0] for row in lines] == ["chapter", "holds", "refuted", "vacuous"]
    cells = [cell.get_text() for cell in lines[2].select("td")]
    assert cells[1] == "refuted" and cells[2] == "counter-example to the step: one arm"
    said = [label.get_text().strip() for label in page.select("p.filter label")]
    assert said == ["all 3", "holds (1)", "refuted (1)", "says nothing (1)"]
    chosen = page.select("p.filter input[checked]")
    assert [each["value"] for each in chosen] == ["all"]
