"""The directive ``register``: all checks of the chapters that end with `checks.table()`, in one table with a filter.

It reads what the executed notebooks printed, so that nothing of this is typed. The verdict comes from a check's kind:
a counter-example refutes the statement, a vacuous bound says nothing, and everything else holds.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from provenance import EXECUTED, notebook_names
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

LAST = "checks.table()"
VERDICTS = {"holds": "holds", "refuted": "refuted", "vacuous": "says nothing"}
_BAR = re.compile(r"\s*(?<!\\)\|\s*")
_FILTER = '<label><input type="radio" name="verdict" value="{0}"{2}> {1}</label>'


def verdict(kind: str) -> str:
    """What a check of this ``kind`` decides."""
    return next(
        (name for name, sign in (("vacuous", "vacuous"), ("refuted", "counter-example")) if sign in kind),
        "holds",
    )


def rows(notebook: Any) -> Iterator[list[str]]:
    """Statement, kind, place and result of every check of an executed ``notebook``."""
    for cell in notebook["cells"]:
        if "".join(cell["source"]).strip() == LAST:
            for output in cell["outputs"]:
                for line in "".join(output["data"]["text/markdown"]).splitlines()[2:]:
                    yield _BAR.split(line.strip().removeprefix("| ").removesuffix(" |"))


class Register(SphinxDirective):
    """The directive: no argument, no option, no content."""

    def run(self) -> list[nodes.Node]:
        """The table, its rows with their verdicts for a class, below the filter."""
        lines = ["| statement | verdict | kind and place | result |", "| --- | --- | --- | --- |"]
        found: list[str | None] = []  # the verdict of every row; none where a chapter begins
        for name in notebook_names(self.env):
            file = Path(self.env.doc2path(f"{EXECUTED}{name}"))
            self.env.note_dependency(str(file))
            checks = [*rows(json.loads(file.read_text(encoding="utf-8")))]
            if checks:
                lines.append(f"| [](/{EXECUTED}{name}.ipynb) | | | |")
                found.append(None)
            for statement, kind, place, result in checks:
                said = verdict(kind)
                lines.append(f"| {statement} | {VERDICTS[said]} | {kind}: {place} | {result} |")
                found.append(said)
        content = self.parse_text_to_nodes("\n".join(lines))
        body = next(part for part in content[0].findall(nodes.tbody))
        for row, outcome in zip(body, found, strict=True):
            row["classes"] += [outcome or "chapter"]
        choices = {"all": f"all {len(found) - found.count(None)}"} | {
            key: f"{said} ({found.count(key)})" for key, said in VERDICTS.items()
        }
        buttons = [_FILTER.format(key, said, " checked" * (key == "all")) for key, said in choices.items()]
        filters = nodes.raw("", f'<p class="filter">{" ".join(buttons)}</p>', format="html")
        return [nodes.container("", filters, *content, classes=["register"])]


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_directive("register", Register)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
