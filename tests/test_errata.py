"""The errata: every item has a number that it keeps, and its evidence."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[1] / "book/errata.md").read_text(encoding="utf-8")
# An item that was wrong stays, marked as withdrawn, so that a number never means another item.
PUBLISHED = 101
EVIDENCE = re.compile(r"by reading|\[[^\]]+\]\((?:sec-[\w-]+|notation\.md)\)|\{prf:ref\}`[^`<]+ <[\w-]+>`")


def faults(page: str, published: int = PUBLISHED) -> list[str]:
    """What is wrong with the tables of ``page``."""
    lines = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| place |")]
    found, numbers = [], []
    for line in (line for line in lines if not line.startswith("| --- ")):
        cells = line.strip("| ").split(" | ")
        number = re.match(r'<span id="E(\d+)">E(\d+)\.</span> \S', cells[0])
        if number is None or number[1] != number[2]:
            found.append(f"no number: {cells[0]}")
            continue
        numbers.append(int(number[1]))
        if not EVIDENCE.search(cells[-1]):
            found.append(f"E{number[1]} has no evidence")
        if not cells[1].startswith(("*printed:* ", "*withdrawn*")):
            found.append(f"E{number[1]} does not say what is printed")
    if sorted(numbers) != list(range(1, len(numbers) + 1)) or len(numbers) < published:
        found.append("a number is missing, or there twice")
    return found


def test_every_erratum_has_its_number_and_its_evidence():
    assert faults(PAGE) == []


ROW = '| <span id="E{0}">E{0}.</span> Section 3 | *printed:* $a$<br>*should be:* $b$ | none; by reading |\n'


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        (ROW.format(1) + ROW.format(3), "a number is missing"),
        (ROW.format(1) + ROW.format(1), "there twice"),
        (ROW.format(1), "a number is missing"),
        (ROW.format(1) + ROW.format(2).replace("; by reading", ""), "E2 has no evidence"),
        (ROW.format(1) + ROW.format(2).replace("E2.", "E7."), "no number"),
        (ROW.format(1) + ROW.format(2).replace("*printed:* ", ""), "E2 does not say"),
        (ROW.format(1) + "| Section 4 | *printed:* $a$ | by reading |\n", "no number: Section 4"),
    ],
)
def test_a_fault_of_the_list_is_found(page, fault):
    assert any(fault in each for each in faults(page, published=2))


def test_a_longer_list_keeps_the_numbers():
    assert faults(ROW.format(2) + ROW.format(1) + ROW.format(3), published=2) == []
