"""The concordance has a row for every item of the paper; `test_site` follows its links.

The paper's source comes from the folder beside FEDGO_DATA, or from ../shared/paper.
"""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "book/concordance.md").read_text("utf-8")
PAPER = Path(os.environ.get("FEDGO_DATA") or ROOT.parent / "shared/data").parent / "paper/fed-go-ucb.tex"
needs_paper = pytest.mark.skipif(
    not PAPER.is_file(), reason=f"there is no paper/{PAPER.name} beside the data"
)

NUMBERED = ["theorem", "lemma", "remark", "assumption", "algorithm", "figure", "table", "equation", "align"]
# A row is an item of the paper with its label as its id, where it is in the book, and what was found.
ROW = re.compile(r'^\| <span id="([^"]+)">(.+?)</span> \| (.+?) \| (.+) \|$', re.MULTILINE)


def rows() -> set[str]:
    """Return the paper's label of every row, each of which has three cells."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line]
    found = ROW.findall(PAGE)
    assert len(found) == len(lines) - lines.count("| in the paper | in this book | what was found |")
    assert len({label for label, *_ in found}) == len(found), "a label has two rows"
    return {label for label, *_ in found}


def labels_of(source: str) -> set[str]:
    """Return all labels in ``source``, LaTeX."""
    return set(re.findall(r"\\label\{([^}]+)\}", source))


def numbered_without_label(source: str) -> int:
    """Return how many sections, statements, floats and equations of ``source`` have a number and no label."""
    items = re.findall(r"\\(?:sub)?section\{.*", source)
    for kind in NUMBERED:
        items += re.findall(rf"\\begin\{{{kind}\}}.*?\\end\{{{kind}\}}", source, re.DOTALL)
    return sum(r"\label" not in item for item in items)


@needs_paper
def test_every_label_and_every_numbered_item_of_the_paper_has_a_row() -> None:
    source = PAPER.read_text("utf-8")
    kept = {label for label in rows() if not label.startswith(("unlabelled:", "unnumbered:"))}
    assert len(labels_of(source)) > 40
    assert (labels_of(source) - kept, kept - labels_of(source)) == (set(), set())
    unlabelled, expected = rows() - kept, numbered_without_label(source)
    assert sum(label.startswith("unlabelled:") for label in unlabelled) == expected
