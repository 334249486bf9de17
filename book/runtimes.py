"""The directive ``runtimes``: a table of the notebooks, their parameters, and how long the book's own run took.

It reads the stamps that `build.py` leaves in the executed notebooks, so that nothing of this is typed.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docutils import nodes
from provenance import EXECUTED, notebook_names
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def duration(seconds: float) -> str:
    """Seconds up to two minutes, then minutes."""
    return f"{seconds:.0f}\u00a0s" if seconds < 120 else f"{seconds / 60:.0f}\u00a0min"


def table(stamps: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The rows, in Markdown, for the stamp of every notebook."""
    rows = [
        "| notebook | chapter | parameters, as the book has them | the run took |",
        "| --- | --- | --- | ---: |",
    ]
    for name, stamp in stamps.items():
        runs_first = sorted(stamp["parameters"].items(), key=lambda item: item[0] != "runs")
        parameters = " ".join(f"`{key} = {value}`" for key, value in runs_first)
        rows.append(
            f"| `{name}` | [](/{EXECUTED}{name}.ipynb) | {parameters} | {duration(stamp['seconds'])} |"
        )
    total = sum(stamp["seconds"] for stamp in stamps.values())
    return [*rows, f"| | all of them, one after the other | | {duration(total)} |"]


class Runtimes(SphinxDirective):
    """The directive: no argument, no option, no content."""

    def run(self) -> list[nodes.Node]:
        """The table, of the notebooks that are in the book."""
        stamps = {}
        for name in notebook_names(self.env):
            file = Path(self.env.doc2path(f"{EXECUTED}{name}"))
            self.env.note_dependency(str(file))
            stamps[name] = json.loads(file.read_text(encoding="utf-8"))["metadata"]["fedgo"]
        return self.parse_text_to_nodes("\n".join(table(stamps)))


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_directive("runtimes", Runtimes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
