"""Drawings in the page itself, whose boxes link to sections and statements of the book.

```{drawing} theory_map.svg
:name: fig-oracle-map

The caption.
```

puts the SVG of that name, in book/_assets, into the page as a figure. A link ``<a href="#lem-confidence-ball">``
in it leads to
the section or the statement with this label, on whichever page it is; a label that nothing has stops the build.
"""

import re
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

ASSETS = Path(__file__).resolve().parent / "_assets"
_LINK = re.compile(r'<a href="#([\w-]+)"(.*?)</a>', re.DOTALL)


class Drawing(SphinxDirective):
    """The directive ``drawing``: a file below book/_assets, with its caption; ``later`` are labels yet to come."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"name": directives.unchanged, "later": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        """A figure of the drawing, its links as they are, and the caption."""
        path = ASSETS / self.arguments[0]
        self.env.note_dependency(str(path))
        svg, later = path.read_text(encoding="utf-8").strip(), self.options.get("later", "").split()
        said = self.parse_content_to_nodes()
        if len(said) != 1 or not isinstance(said[0], nodes.paragraph):
            raise self.error("a drawing needs a caption: one paragraph")
        drawn = nodes.raw("", svg, format="html", classes=["drawing"], later=later)
        figure = nodes.figure("", drawn, nodes.caption("", "", *said[0].children), classes=["wide", "drawn"])
        self.set_source_info(figure)
        self.add_name(figure)
        return [figure]


def place(app: Sphinx, label: str, page: str) -> str | None:
    """Where ``page`` finds the section or statement with this ``label``; nothing if there is none."""
    target, anchor = app.env.get_domain("std").data["anonlabels"].get(label, (None, ""))
    statement = getattr(app.env, "proof_list", {}).get(label)
    if statement is not None:
        target, anchor = statement["docname"], statement["ids"][0]
    return None if target is None else f"{app.builder.get_relative_uri(page, target)}#{anchor}"


def resolve(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Lead the links of the drawings of ``page`` to where they lead; without a place, a box is no link."""
    for node in list(doctree.findall(nodes.raw)):
        if "drawing" not in node["classes"]:
            continue
        svg = node.astext()
        for label, rest in _LINK.findall(svg):
            uri = place(app, label, page)
            if uri is None and label not in node["later"]:
                warning = f"the drawing links to '{label}', which nothing has for a label"
                logging.getLogger(__name__).warning(warning, location=node.parent)
            link = f"<g{rest}</g>" if uri is None else f'<a href="{uri}"{rest}</a>'
            svg = svg.replace(f'<a href="#{label}"{rest}</a>', link)
        node.replace_self(nodes.raw("", svg, format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_directive("drawing", Drawing)
    app.connect("doctree-resolved", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
