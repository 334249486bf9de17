"""The concordance has a row for every item of the paper, and every link in it leads to a label or a page of the book.

The paper's source comes from the folder beside FEDGO_DATA, or from ../shared/paper.
"""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXTS = {
    path: path.read_text("utf-8")
    for folder in ("book", "notebooks", "notebooks/beyond")
    for path in (ROOT / folder).glob("*.md")
}
PAGE = TEXTS[ROOT / "book/concordance.md"]
PAPER = Path(os.environ.get("FEDGO_DATA") or ROOT.parent / "shared/data").parent / "paper/fed-go-ucb.tex"
needs_paper = pytest.mark.skipif(
    not PAPER.is_file(), reason=f"there is no paper/{PAPER.name} beside the data"
)

NUMBERED = ["theorem", "lemma", "remark", "assumption", "algorithm", "figure", "table", "equation", "align"]
# A row is an item of the paper with its label as its id, where it is in the book, and what was found.
ROW = re.compile(r'^\| <span id="([^"]+)">(.+?)</span> \| (.+?) \| (.+) \|$', re.MULTILINE)
LINK = re.compile(r'\]\(([^)]+)\)|\{[\w:]+\}`(?:[^`<]* <)?([^`<>]+)>?`|href="([^"]+)"')
LABEL = re.compile(r'^\(([\w-]+)\)=$|^\s*:?(?:label|name): (\S+)$|<span id="(E\d+)">', re.MULTILINE)


def rows() -> dict[str, tuple[str, str, str]]:
    """Return the three cells of every row, by the paper's label."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line]
    found = ROW.findall(PAGE)
    assert len(found) == len(lines) - lines.count("| in the paper | in this book | what was found |")
    assert len({label for label, *_ in found}) == len(found), "a label has two rows"
    return {label: (item, place, finding) for label, item, place, finding in found}


def labels_of(source: str) -> set[str]:
    """Return all labels in ``source``, LaTeX."""
    return set(re.findall(r"\\label\{([^}]+)\}", source))


def numbered_without_label(source: str) -> int:
    """Return how many sections, statements, floats and equations of ``source`` have a number and no label."""
    items = re.findall(r"\\(?:sub)?section\{.*", source)
    for kind in NUMBERED:
        items += re.findall(rf"\\begin\{{{kind}\}}.*?\\end\{{{kind}\}}", source, re.DOTALL)
    return sum(r"\label" not in item for item in items)


def dead_links() -> list[str]:
    """Return each link of the page that leads nowhere, with the label of its row, and each row without a link."""
    labels = {name for text in TEXTS.values() for found in LABEL.findall(text) for name in found if name}
    dead = []
    for label, (_, place, finding) in rows().items():
        links = ["".join(found) for found in LINK.findall(f"{place} {finding}")]
        for link in links:
            path, _, fragment = link.partition("#")
            name = Path(path).stem
            kinds = ("notebooks", "notebooks/beyond") if path.startswith("_executed/") else ("book",)
            there = any(ROOT / kind / f"{name}.md" in TEXTS for kind in kinds)
            if (path not in labels and not there) or (fragment and fragment not in labels):
                dead.append(f"{label}: {link}")
        dead += [f"{label}: no link"] * (not LINK.search(place))
    return dead


def test_every_link_of_the_concordance_leads_somewhere() -> None:
    assert len(rows()) > 50
    assert dead_links() == []


@needs_paper
def test_every_label_and_every_numbered_item_of_the_paper_has_a_row() -> None:
    source = PAPER.read_text("utf-8")
    kept = {label for label in rows() if not label.startswith(("unlabelled:", "unnumbered:"))}
    assert len(labels_of(source)) > 40
    assert (labels_of(source) - kept, kept - labels_of(source)) == (set(), set())
    unlabelled, expected = rows().keys() - kept, numbered_without_label(source)
    assert sum(label.startswith("unlabelled:") for label in unlabelled) == expected
