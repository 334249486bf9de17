"""What a chapter quotes, on any page: the role {n} for numbers and phrases, the directive {again} for what is shown.

{n}`regret` is what this chapter quotes as "regret", {n}`results:regret` what the chapter "results" does (`quote` in
`fedgo.experiments.tables`, which gives it its format). {again} shows a table that a chapter has quoted, or, by its
label, the picture of one of its figures, with the one for a phone if the cell before it, which has the tag `narrow`,
draws one (the style sheet shows one of the two); caption and number stay with the figure:

```{again} results:final-table
```
```{again} results:fig-results-trade-off
```
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole


class Shown(NamedTuple):
    """What a chapter quotes, as ``text`` of some ``kind``; of a figure its drawing, with its alternative text."""

    kind: str = ""
    text: str = ""
    alt: str = ""
    narrow: Any = None  # the same for a phone


@cache
def read(path: Path, changed: int) -> dict[str, Shown]:
    """Everything that is quoted, and every figure, in the executed notebook at ``path``, by its name."""
    found, narrow = {}, None
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        drawn = cell["metadata"].get("mystnb", {})
        for output in cell.get("outputs", []):
            if quoted := output.get("metadata", {}).get("scrapbook"):
                ((kind, text),) = output["data"].items()
                found[quoted["name"]] = Shown(kind, "".join(text))
            elif svg := "".join(output.get("data", {}).get("image/svg+xml", "")):
                picture = Shown("svg", svg, drawn.get("image", {}).get("alt", ""), narrow)
                narrow = picture if "narrow" in cell["metadata"].get("tags", []) else None
                if "figure" in drawn:
                    found[drawn["figure"]["name"]] = picture
    return found


def look_up(env: BuildEnvironment, what: str, location: Any) -> Shown:
    """What "name" or "chapter:name" is; a warning, and nothing, where it is missing or no number."""
    chapter, _, name = what.rpartition(":")
    path = Path(env.srcdir, "book/_executed", f"{chapter or Path(env.docname).name}.ipynb")
    env.note_dependency(str(path))
    quoted = read(path, path.stat().st_mtime_ns) if path.exists() else {}
    found = quoted.get(name, Shown())
    text = "" if found.kind == "svg" else found.text
    if not found.text or re.search(r"\b(nan|inf)\b", text):
        said = f"{path.stem} quotes no '{name}'" + f", but {text}" * bool(text)
        logging.getLogger(__name__).warning(said, location=location)
    return found


class Quoted(SphinxRole):
    """The role ``n``."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """A number as it is, a phrase as Markdown."""
        kind, text, *_ = look_up(self.env, self.text, self.get_location())
        if kind.endswith("markdown"):
            parsed, said = self.inliner.parse(text, self.lineno, self.inliner, self.inliner.parent)
            return list(parsed), said
        return [nodes.inline(text, text, classes=["pasted-text"])], []


class Again(SphinxDirective):
    """The directive ``again``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The table, or the picture, and the one for a phone before it, written where `dark` finds them."""
        what = self.arguments[0]
        found = look_up(self.env, what, self.get_location())
        if found.kind != "svg":
            shown = nodes.container()
            self.state.nested_parse(StringList(found.text.splitlines(), what), 0, shown)
            return [shown]
        pictures = []
        for picture, kind in (found.narrow, "tag_narrow"), (found, "shown-again"):
            if picture:
                path = Path(self.env.srcdir, "_build/again", f"{what.rpartition(':')[2]}-{kind}.svg")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(picture.text, encoding="utf-8")
                image = nodes.image(uri=f"/_build/again/{path.name}", alt=picture.alt)
                pictures.append(nodes.container("", image, classes=[kind]))
        return pictures


def setup(app: Sphinx) -> None:
    """What Sphinx calls."""
    app.add_role("n", Quoted())
    app.add_directive("again", Again)
