"""Fold parts of a page away: the rest of a section below a line that opens it, and every proof.

The directive

```{fold} The counter-example, executed
```

shows its line, and folds all that follows, code and figures too, up to the next ``fold``, to an ``{unfold}`` or to the
end of the section. A link into a folded part opens it (book/_assets/folds.js).
"""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx_proof.nodes import proof_node

_WORD = "Proof. "  # sphinx-proof begins every proof with this word


class fold(nodes.General, nodes.Element):  # type: ignore[misc]  # docutils is published without types
    """A node for a folded part of a page: its first child is the line that opens it, and the others are folded."""


class summary(nodes.General, nodes.TextElement):  # type: ignore[misc]
    """A node for the line that opens a fold; without words it marks the place of an ``unfold``."""


class Fold(SphinxDirective):
    """The directive ``fold``, whose argument is the line that is shown, and ``unfold``, which has no argument."""

    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Return an empty fold that marks this place, and the messages about its line; `put_away` fills the fold."""
        words, messages = self.parse_inline("".join(self.arguments))
        here = fold("", summary("", "", *words))
        self.set_source_info(here)
        return [here, *messages]


def put_away(_: Sphinx, doctree: nodes.document) -> None:
    """Move into each fold the nodes that follow it, and put every proof into a fold with the line "Proof".

    A fold ends before the next fold, before an ``unfold``, or at the end of the section. A fold with nothing to fold
    gives a warning, which stops the build of the book.
    """
    for here in list(doctree.findall(fold)):
        for node in here.parent[here.parent.index(here) + 1 :]:
            if isinstance(node, (fold, nodes.section)):
                break
            if here[0].children:
                here.parent.remove(node)
                here += node
        if here[0].children and len(here) == 1:
            logging.getLogger(__name__).warning("there is nothing to fold", location=here)
    for end in [here for here in doctree.findall(fold) if not here[0].children]:
        end.parent.remove(end)
    for proof in list(doctree.findall(proof_node)):
        first = next(iter(proof.findall(nodes.Text)))
        first.parent.replace(first, nodes.Text(str(first).removeprefix(_WORD)))
        around = fold("", summary("", "Proof"))
        proof.replace_self(around)
        around += proof


def tags(start: str, end: str) -> tuple[Any, Any]:
    """Return the two functions by which Sphinx writes ``start`` where a node begins, and ``end`` where it ends."""
    return (lambda page, node: page.body.append(start), lambda page, node: page.body.append(end))


def setup(app: Sphinx) -> None:
    """Register the directives and the nodes with Sphinx, which calls this function."""
    app.add_directive("fold", Fold)
    app.add_directive("unfold", Fold)
    app.add_node(fold, html=tags('<details class="fold">\n', "</details>\n"))
    app.add_node(summary, html=tags("<summary>", "</summary>\n"))
    app.connect("doctree-read", put_away, priority=400)  # before Sphinx collects the contents and the numbers
