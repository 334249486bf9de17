"""Break long formulas in the text after a relation or a sign, as in print.

MathJax 3 does not break formulas, so that a phone would cut them off. A bracket before a formula and a comma or a full
stop after it stay on the line of the piece that they touch.
"""

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\S")
_OPEN, _CLOSE = {"{", "(", "[", r"\{", r"\lVert"}, {"}", ")", "]", r"\}", r"\rVert"}
_RELATION = re.compile(r"=|<|>|\\(le|ge|ne|in|approx|to|sim|preceq|leftarrow)")
_SHORT = 16  # a formula with at most this number of signs is never broken
_BEFORE, _AFTER = re.compile(r"[(\[“‘]+$"), re.compile(r"^[.,;:!?)\]”’]+")


def pieces(tex: str) -> list[str]:
    """Return the parts of the formula ``tex`` between which a line may end.

    A line may end after a relation, and after a +, − or ± between two terms, if it is outside of all brackets. A short
    formula, and one with an environment, an alignment, a ``\\left`` or a style, is one part. All parts but the last end
    with an empty group, so that the relation or sign keeps the space behind it.
    """
    signs = [found for found in _TOKEN.finditer(tex) if found[0] not in "_^{}"]
    if len(signs) <= _SHORT or re.search(r"\\begin|\\left|style|&", tex):
        return [tex]
    cuts, depth, before = [0], 0, ""
    for found in _TOKEN.finditer(tex):
        sign = found[0]
        depth += (sign in _OPEN) - (sign in _CLOSE)
        joins = sign in ("+", "-", r"\pm") and before and not _RELATION.fullmatch(before)
        if not depth and (joins or _RELATION.fullmatch(sign)):
            cuts.append(found.end())
        before = sign
    parts = [tex[first:last].strip() for first, last in zip(cuts, [*cuts[1:], len(tex)], strict=True)]
    return [f"{part} {{}}" for part in parts[:-1]] + parts[-1:]


class Breaking(SphinxPostTransform):
    """A transform that replaces every inline formula by its `pieces`, between which a line may end."""

    default_priority = 890

    def run(self, **options: object) -> None:
        """Wrap each piece of each inline formula in a node of the class ``unbroken``, in which no line breaks.

        Opening brackets right before a formula go into its first piece, and punctuation right after it into its last.
        """
        for formula in list(self.document.findall(nodes.math)):
            parts = [
                nodes.inline("", "", nodes.math(tex, tex), classes=["unbroken"])
                for tex in pieces(formula.astext())
            ]
            place = formula.parent.index(formula)
            parts[0].insert(0, self._cut(formula.parent, place - 1, _BEFORE))
            parts[-1].append(self._cut(formula.parent, place + 1, _AFTER))
            formula.replace_self(parts)

    def _cut(self, parent: nodes.Element, place: int, marks: re.Pattern[str]) -> nodes.Text:
        """Remove the ``marks`` from the child of ``parent`` at ``place`` if it is text, and return them as text.

        The result is empty if the child is no text or does not have the marks.
        """
        text = parent[place] if 0 <= place < len(parent) else None
        if not isinstance(text, nodes.Text) or not (found := marks.search(text)):
            return nodes.Text("")
        parent[place] = nodes.Text(text[: found.start()] + text[found.end() :])
        return nodes.Text(found.group())


def setup(app: Sphinx) -> None:
    """Register the transform with Sphinx, which calls this function."""
    app.add_post_transform(Breaking)
