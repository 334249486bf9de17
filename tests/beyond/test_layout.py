"""The page on the layout of the code draws the imports that the code has."""

import re
from pathlib import Path

import grimp
import pytest

DRAWING = Path(__file__).resolve().parents[2] / "book/_assets/layout.svg"
FACES = ("fedgo.beyond", "fedgo.beyond.__main__")  # they have names for others to import


@pytest.mark.slow
def test_the_layout_is_drawn_with_the_imports_of_the_code() -> None:
    """Each arrow is an import, and each import is an arrow or follows from arrows; "fedgo" is the core."""
    drawing = DRAWING.read_text(encoding="utf-8")
    boxes = sorted(re.findall(r'data-group="([\w.]+)"', drawing), key=len, reverse=True)
    arrows = set(re.findall(r'data-imports="([\w.]+) ([\w.]+)"', drawing))
    imports = set()
    graph = grimp.build_graph("fedgo", cache_dir=None)
    for found in graph.find_matching_direct_imports("fedgo.** -> fedgo.**"):
        pair = [next(box for box in boxes if name.startswith(box)) for name in found.values()]
        imports |= {tuple(pair)} if pair[0] != pair[1] and found["importer"] not in FACES else set()
    reached = set(arrows)
    for _ in arrows:
        reached |= {(one, last) for one, middle in reached for other, last in arrows if middle == other}
    assert arrows <= imports <= reached
