"""Formulas in the text keep their punctuation, and negative numbers have a minus sign and no hyphen.

Without the first a line may begin with the comma after a formula.
"""

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

_HYPHEN = re.compile(r"(?<![\w.-])-(?=\d)")
_BEFORE, _AFTER = re.compile(r"[(\[“‘]+$"), re.compile(r"^[.,;:!?)\]”’]+")


class Unbroken(SphinxPostTransform):
    """Bind every inline formula to the brackets and marks that touch it."""

    default_priority = 900

    def run(self, **options: object) -> None:
        """Wrap them in an inline of the class ``unbroken``, which the style sheet keeps on one line."""
        for formula in list(self.document.findall(nodes.math)):
            place = formula.parent.index(formula)
            bound = nodes.inline("", "", formula.deepcopy(), classes=["unbroken"])
            before = self._cut(formula.parent, place - 1, _BEFORE) if place else ""
            after = self._cut(formula.parent, place + 1, _AFTER)
            if before or after:
                bound.insert(0, nodes.Text(before))
                bound.append(nodes.Text(after))
                formula.replace_self(bound)

    def _cut(self, parent: nodes.Element, place: int, marks: re.Pattern[str]) -> str:
        """Take the ``marks`` out of the text at ``place``, if it is text, and return them."""
        text = parent[place] if place < len(parent) else None
        found = marks.search(text) if isinstance(text, nodes.Text) else None
        if not isinstance(text, nodes.Text) or not found:
            return ""
        parent[place] = nodes.Text(text[: found.start()] + text[found.end() :])
        return found.group()


class Minus(SphinxPostTransform):
    """Give the numbers that were computed, in glued text and in tables, the sign that formulas have."""

    default_priority = 900

    def run(self, **options: object) -> None:
        """Replace the hyphen before a digit, where it joins no words."""
        glued = [node for node in self.document.findall(nodes.inline) if "pasted-text" in node["classes"]]
        for place in (*glued, *self.document.findall(nodes.entry)):
            for text in list(place.findall(nodes.Text)):
                verbatim = isinstance(text.parent, nodes.literal | nodes.math | nodes.raw)
                if not verbatim and _HYPHEN.search(text):
                    text.parent.replace(text, nodes.Text(_HYPHEN.sub("−", text)))


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_post_transform(Unbroken)
    app.add_post_transform(Minus)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
