"""Long formulas in the text break as in print, after a relation or a sign: MathJax 3 breaks none, a phone cuts them.

What touches a formula, a bracket before it or the comma after it, stays on its line.
"""

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\S")
_OPEN, _CLOSE = {"{", "(", "[", r"\{", r"\lVert"}, {"}", ")", "]", r"\}", r"\rVert"}
_RELATION = re.compile(r"=|<|>|\\(le|ge|ne|in|approx|to|sim|preceq|leftarrow)")
_SHORT = 16  # signs of a formula that is never broken
_BEFORE, _AFTER = re.compile(r"[(\[“‘]+$"), re.compile(r"^[.,;:!?)\]”’]+")


def pieces(tex: str) -> list[str]:
    """The parts of ``tex`` between which a line may end: after a relation, +, − or ± outside of all brackets."""
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
    """Put in the place of an inline formula its `pieces`, the first and the last with what touches them."""

    default_priority = 890

    def run(self, **options: object) -> None:
        """Wrap each piece in an inline of the class ``unbroken``, which the style sheet keeps on one line."""
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
        """Take the ``marks`` out of the text at ``place``, if it is text."""
        text = parent[place] if 0 <= place < len(parent) else None
        if not isinstance(text, nodes.Text) or not (found := marks.search(text)):
            return nodes.Text("")
        parent[place] = nodes.Text(text[: found.start()] + text[found.end() :])
        return nodes.Text(found.group())


def setup(app: Sphinx) -> None:
    """What Sphinx calls."""
    app.add_post_transform(Breaking)
