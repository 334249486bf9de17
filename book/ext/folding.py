"""What is folded: a line that opens the rest of a section, and every proof.

```{fold} The counter-example, executed
```

folds all that follows it, code and figures too, up to the next ``fold``, to ``{unfold}`` or to the section's end. Links
into what is folded open it (book/_assets/folds.js).
"""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx_proof.nodes import proof_node

_WORD = "Proof. "  # with which sphinx-proof begins every proof


class fold(nodes.General, nodes.Element):  # type: ignore[misc]  # docutils is published without types
    """Its first child is the line that opens it, the others are what it folds."""


class summary(nodes.General, nodes.TextElement):  # type: ignore[misc]
    """The line that opens a fold."""


class Fold(SphinxDirective):
    """The directive ``fold``, whose argument is the line that is seen; ``unfold`` is the same without a line."""

    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """The place from which the section is folded, or is not any more."""
        words, messages = self.parse_inline("".join(self.arguments))
        here = fold("", summary("", "", *words))
        self.set_source_info(here)
        return [here, *messages]


def put_away(_: Sphinx, doctree: nodes.document) -> None:
    """Put what follows a fold into it, and every proof into a fold whose line is the proof's first word."""
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
    """What a builder of HTML does where a node begins, and where it ends."""
    return (lambda page, node: page.body.append(start), lambda page, node: page.body.append(end))


def setup(app: Sphinx) -> None:
    """What Sphinx calls."""
    app.add_directive("fold", Fold)
    app.add_directive("unfold", Fold)
    app.add_node(fold, html=tags('<details class="fold">\n', "</details>\n"))
    app.add_node(summary, html=tags("<summary>", "</summary>\n"))
    app.connect("doctree-read", put_away, priority=400)  # before the contents and the numbers are collected
