"""What a chapter quotes, on any page: the role {n} for numbers and phrases, the directive {again} for what is shown.

{n}`regret` is what this chapter quotes as "regret", {n}`results:regret` what the chapter "results" does (`quote` in
`fedgo.experiments.tables`, which gives it its format). {again} shows a table that a chapter has quoted, or, by its
label, the picture of a figure; caption and number stay with the figure:

```{again} results:final-regret
```
```{again} fig-results-trade-off
```
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

logger = logging.getLogger(__name__)


@cache
def read(path: Path, changed: int) -> dict[str, tuple[str, str]]:
    """Kind and text of everything that is quoted in the executed notebook at ``path``, by its name."""
    found = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            if quoted := output.get("metadata", {}).get("scrapbook"):
                ((kind, text),) = output["data"].items()
                found[quoted["name"]] = kind, "".join(text)
    return found


def look_up(env: BuildEnvironment, what: str, location: Any) -> tuple[str, str]:
    """Kind and text of "name" or "chapter:name"; a warning, and nothing, where it is missing or no number."""
    chapter, _, name = what.rpartition(":")
    path = Path(env.srcdir, "book/_executed", f"{chapter or Path(env.docname).name}.ipynb")
    env.note_dependency(str(path))
    quoted = read(path, path.stat().st_mtime_ns) if path.exists() else {}
    kind, text = quoted.get(name, ("", ""))
    if not text or re.search(r"\b(nan|inf)\b", text):
        logger.warning(f"{path.stem} quotes no '{name}'" + f", but {text}" * bool(text), location=location)
    return kind, text


class Quoted(SphinxRole):
    """The role ``n``."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """A number as it is, a phrase as Markdown."""
        kind, text = look_up(self.env, self.text, self.get_location())
        if kind.endswith("markdown"):
            parsed, said = self.inliner.parse(text, self.lineno, self.inliner, self.inliner.parent)
            return list(parsed), said
        return [nodes.inline(text, text, classes=["pasted-text"])], []


class again(nodes.General, nodes.Element):  # type: ignore[misc]  # docutils is published without types
    """Where a picture is to be shown; ``label`` is its figure's."""


class Again(SphinxDirective):
    """The directive ``again``."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {"class": directives.class_option}

    def run(self) -> list[nodes.Node]:
        """The table, or a place that is filled when all pages have been read."""
        what, classes = self.arguments[0], self.options.get("class", [])
        if ":" in what:
            shown = nodes.container(classes=classes)
            text = look_up(self.env, what, self.get_location())[1]
            self.state.nested_parse(StringList(text.splitlines(), what), 0, shown)
            return [shown]
        place = again(label=nodes.fully_normalize_name(what), classes=["shown-again", *classes])
        self.set_source_info(place)
        return [place]


class Fill(SphinxPostTransform):
    """Put the pictures where they are asked for: before the formats of outputs are chosen, which has priority 4."""

    default_priority = 3

    def run(self, **options: object) -> None:
        """Copy what the figure shows without its caption; a warning where there is no such figure."""
        for place in list(self.document.findall(again)):
            docname, target = self.env.domaindata["std"]["anonlabels"].get(place["label"], ("", ""))
            tree = self.env.get_doctree(docname) if docname else nodes.Element()
            found = [part for part in tree.findall(nodes.figure) if target in part["ids"]]
            if not found:
                logger.warning(f"no page has a figure '{place['label']}'", location=place)
            shown = [
                part for part in (found or [[]])[0] if not isinstance(part, nodes.caption | nodes.legend)
            ]
            place.replace_self(
                nodes.container("", *(part.deepcopy() for part in shown), classes=place["classes"])
            )


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_role("n", Quoted())
    app.add_node(again)
    app.add_directive("again", Again)
    app.add_post_transform(Fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
