"""What is folded: a line that opens the rest of a section, and every proof.

```{fold} The counter-example, executed
```

folds all that follows it, code and figures too, up to the next ``fold``, to ``{unfold}`` or to the section's end. Links
into what is folded open it (book/_assets/folds.js), and the PDF has it open.
"""

from collections.abc import Sequence
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


class unfold(nodes.Invisible, nodes.Element):  # type: ignore[misc]
    """Where a fold ends before its section does."""


class Fold(SphinxDirective):
    """The directive ``fold``; its argument is the line that is seen."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """The place from which the section is folded."""
        words, messages = self.parse_inline(self.arguments[0])
        here = fold("", summary("", "", *words))
        self.set_source_info(here)
        return [here, *messages]


class Unfold(SphinxDirective):
    """The directive ``unfold``: no argument, no content."""

    def run(self) -> list[nodes.Node]:
        """The place up to which the section is folded."""
        return [unfold()]


def proofs(doctree: nodes.document) -> None:
    """Fold every proof; its first word is the line that opens it."""
    for proof in list(doctree.findall(proof_node)):
        first = next(iter(proof.findall(nodes.Text)))
        first.parent.replace(first, nodes.Text(str(first).removeprefix(_WORD)))
        around = fold("", summary("", "Proof"))
        proof.replace_self(around)
        around += proof


def rests(doctree: nodes.document) -> None:
    """Put what follows a fold into it."""
    for here in list(doctree.findall(fold)):
        if len(here) > 1:
            continue  # a proof
        rest: Sequence[nodes.Node] = here.parent[here.parent.index(here) + 1 :]
        for node in rest:
            another = isinstance(node, fold) and len(node) == 1  # with more in it, it is a proof
            if another or isinstance(node, (unfold, nodes.section)):
                break
            here.parent.remove(node)
            here += node
        if len(here) == 1:
            logging.getLogger(__name__).warning("there is nothing to fold", location=here)
    for here in list(doctree.findall(unfold)):
        here.parent.remove(here)


def put_away(_: Sphinx, doctree: nodes.document) -> None:
    """Fold what a page of the book wants folded."""
    proofs(doctree)
    rests(doctree)


def open_fold(translator: Any, _: nodes.Element) -> None:
    """HTML's own element for it."""
    translator.body.append('<details class="fold">\n')


def close_fold(translator: Any, _: nodes.Element) -> None:
    """And its end."""
    translator.body.append("</details>\n")


def open_summary(translator: Any, _: nodes.Element) -> None:
    """The line that is seen."""
    translator.body.append("<summary>")


def close_summary(translator: Any, _: nodes.Element) -> None:
    """And its end."""
    translator.body.append("</summary>\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_directive("fold", Fold)
    app.add_directive("unfold", Unfold)
    app.add_node(fold, html=(open_fold, close_fold))
    app.add_node(summary, html=(open_summary, close_summary))
    app.connect("doctree-read", put_away, priority=400)  # before the contents and the numbers are collected
    return {"parallel_read_safe": True, "parallel_write_safe": True}
