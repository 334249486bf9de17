"""The picture of a figure that another page has, shown again where the directive stands:

```{again} fig-results-trade-off
```

The picture keeps its alternative text; caption and number stay with the figure, to which the picture links.
"""

from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective


class again(nodes.General, nodes.Element):  # type: ignore[misc]  # docutils is published without types
    """Where a picture is to be shown; ``label`` is its figure's."""


class Again(SphinxDirective):
    """The directive ``again``."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {"class": directives.class_option}

    def run(self) -> list[nodes.Node]:
        """A place that is filled when all pages have been read."""
        place = again(
            label=nodes.fully_normalize_name(self.arguments[0]), classes=self.options.get("class", [])
        )
        self.set_source_info(place)
        return [place]


class Fill(SphinxPostTransform):
    """Put the pictures where they are asked for: before the formats of outputs are chosen, which has priority 4."""

    default_priority = 3

    def run(self, **options: object) -> None:
        """Copy what the figure shows without its caption; a warning where there is no such figure."""
        labels = self.env.domaindata["std"]["anonlabels"]
        for place in list(self.document.findall(again)):
            docname, target = labels.get(place["label"], ("", ""))
            found = [
                figure
                for figure in (self.env.get_doctree(docname).findall(nodes.figure) if docname else ())
                if target in figure["ids"]
            ]
            if not found:
                text = f"no page has a figure '{place['label']}'"
                logging.getLogger(__name__).warning(text, location=place)
                place.replace_self([])
                continue
            shown = [
                part.deepcopy() for part in found[0] if not isinstance(part, nodes.caption | nodes.legend)
            ]
            place.replace_self(nodes.container("", *shown, classes=["shown-again", *place["classes"]]))


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_node(again)
    app.add_directive("again", Again)
    app.add_post_transform(Fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
