"""Long formulas in the text break as in print, all keep their punctuation; numbers have a minus sign and hold together.

MathJax breaks no formula in a line, so that a phone would cut it off. Without the second a line may begin with the
comma after a formula. And the columns of a table that hold sentences are marked, for the style sheet.
"""

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\S")
_OPEN = {"{", "(", "[", r"\{", r"\lfloor", r"\lceil", r"\lVert", r"\lvert", r"\langle"}
_CLOSE = {"}", ")", "]", r"\}", r"\rfloor", r"\rceil", r"\rVert", r"\rvert", r"\rangle"}
_RELATION = {"=", "<", ">"} | {
    rf"\{name}"
    for name in ("le", "ge", "ne", "in", "approx", "to", "sim", "propto", "preceq", "succeq", "leftarrow")
}
_SHORT = 16  # signs of a formula that is never broken
_HYPHEN = re.compile(r"(?<![\w.-])-(?=\d)")
_PLUS_MINUS = re.compile(r"(?<=\d) ± (?=\d)")
_WORDS = {18: "phrases", 80: "sentences"}  # more signs than this in a cell, and what its column then holds
_BEFORE, _AFTER = re.compile(r"[(\[“‘]+$"), re.compile(r"^[.,;:!?)\]”’]+")


def pieces(tex: str) -> list[str]:
    """The parts of ``tex`` between which a line may end: after a relation, +, − or ± outside of all brackets."""
    signs = [found for found in _TOKEN.finditer(tex) if found[0] not in "_^{}"]
    if len(signs) <= _SHORT or re.search(r"\\begin|\\left|style|&", tex):
        return [tex]
    cuts, depth, bars, before = [0], 0, False, ""
    for found in _TOKEN.finditer(tex):
        sign = found[0]
        depth += (sign in _OPEN) - (sign in _CLOSE)
        bars ^= sign in ("|", r"\|")
        joins = sign in ("+", "-", r"\pm") and before and before not in _RELATION
        if not depth and not bars and (sign in _RELATION or joins):
            cuts.append(found.end())
        before = sign
    ends = [*cuts[1:], len(tex)]
    found_parts = [tex[first:last].strip() for first, last in zip(cuts, ends, strict=True)]
    return [f"{part} {{}}" for part in found_parts[:-1]] + found_parts[-1:]


class Breaking(SphinxPostTransform):
    """Let a line end within a long inline formula, where it would in print."""

    default_priority = 890  # before the marks are bound to its ends

    def run(self, **options: object) -> None:
        """Put in the place of the formula its `pieces`, one beside the other."""
        for formula in list(self.document.findall(nodes.math)):
            parts = pieces(formula.astext())
            if len(parts) > 1:
                formula.replace_self([nodes.math(part, part, classes=formula["classes"]) for part in parts])


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
    """Give the numbers that were computed, in glued text and in tables, the sign that formulas have, and one line."""

    default_priority = 900

    def run(self, **options: object) -> None:
        """Replace the hyphen before a digit, where it joins no words, and the spaces round ±."""
        glued = [node for node in self.document.findall(nodes.inline) if "pasted-text" in node["classes"]]
        for place in (*glued, *self.document.findall(nodes.entry)):
            for text in list(place.findall(nodes.Text)):
                verbatim = isinstance(text.parent, nodes.literal | nodes.math | nodes.raw)
                shown = _PLUS_MINUS.sub("\u00a0±\u00a0", _HYPHEN.sub("−", text))
                if not verbatim and shown != text:
                    text.parent.replace(text, nodes.Text(shown))


class Wordy(SphinxPostTransform):
    """Mark the columns of a table that hold words: squeezed to a word a line, they make a row as high as a phone."""

    default_priority = 880  # before formulas are put in pieces

    def run(self, **options: object) -> None:
        """Give the cells of a column the class ``phrases`` or ``sentences``, by its longest text without formulas."""
        for table in self.document.findall(nodes.table):
            rows = [list(row.findall(nodes.entry)) for row in table.findall(nodes.row)]
            if len({len(row) for row in rows}) != 1:
                continue  # a cell is wider than its column
            for column in zip(*rows, strict=True):
                most = max(_signs(cell) for cell in column)
                for least, kind in _WORDS.items():
                    if most > least:
                        for cell in column:
                            cell["classes"].append(kind)


def _signs(cell: nodes.entry) -> int:
    """The length of the text in a ``cell``, but for formulas."""
    return sum(len(text) for text in cell.findall(nodes.Text) if not isinstance(text.parent, nodes.math))


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_post_transform(Breaking)
    app.add_post_transform(Unbroken)
    app.add_post_transform(Minus)
    app.add_post_transform(Wordy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
