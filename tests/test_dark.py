"""Drawings in the dark: greys turn, colours stay, nothing is lost; and the algorithms' colours survive."""

from types import SimpleNamespace

import pytest
from book_modules import load
from docutils import nodes
from docutils.utils import new_document

from fedgo.experiments.figures import BEYOND, STYLES

dark = load("dark")

DRAWING = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><style>text { fill: #333 }</style>
<rect fill="white" width="9" height="9"/><path d="M0 0" style="fill: none; stroke: #d55e00"/>
<use xlink:href="#m000000" clip-path="url(#pffffff)"/><text>#000000</text></svg>"""


@pytest.mark.parametrize(
    ("light", "expected"),
    [
        ("#ffffff", dark.GROUND),
        ("white", dark.GROUND),
        ("#000000", "#ededed"),
        ("#808080", "#808080"),
        ("#D55E00", "#D55E00"),
        ("#fdf1e7", "#251b12"),
        ("#005f96", "#66b7e7"),
    ],
)
def test_greys_tints_and_dim_colours_turn_and_the_others_stay(light, expected):
    assert all(
        abs(a - b) <= 2 / 255
        for a, b in zip(dark.channels(dark.on_dark(light)), dark.channels(expected), strict=True)
    )


def test_only_the_paint_of_a_drawing_changes():
    found = dark.dark(DRAWING)
    black = dark.on_dark("black")
    expected = DRAWING.replace("<svg", f'<svg fill="{black}"').replace("#333", dark.on_dark("#333"))
    assert found == expected.replace('"white"', f'"{dark.GROUND}"')


@pytest.mark.parametrize("name", [*STYLES, *BEYOND])
def test_an_algorithms_colour_is_seen_on_both_grounds(name):
    colour = {**STYLES, **BEYOND}[name][0]
    assert dark.contrast(colour, "#ffffff") >= 3
    assert dark.contrast(dark.on_dark(colour), dark.GROUND) >= 3
    grey = len(set(dark.channels(colour))) == 1
    assert grey or dark.on_dark(colour) == colour


def test_contrast_is_that_of_the_guidelines():
    assert dark.contrast("#fff", "#000") == pytest.approx(21)
    assert dark.contrast("#888888", "white") == pytest.approx(3.54, abs=0.01)


@pytest.fixture
def page(tmp_path):
    """A page with a drawing among an output's containers, a photograph, and an image of another host."""
    (tmp_path / "a.svg").write_text(DRAWING)
    (tmp_path / "b.png").write_bytes(b"")
    document = new_document("page")
    folder = SimpleNamespace(
        docname="page", srcdir=str(tmp_path), relfn2path=lambda uri, docname: (uri, str(tmp_path / uri))
    )
    document.settings.env = folder
    bundle = nodes.container()
    bundle += nodes.image(uri="a.svg", alt="a drawing")
    document += [bundle, nodes.image(uri="b.png"), nodes.image(uri="https://example.org/c.svg")]
    dark.TwoRenderings(document).apply()
    return document


def test_every_drawing_of_a_page_gets_its_other_rendering(page, tmp_path):
    first, second, photograph, other = page.findall(nodes.image)
    assert first.parent is second.parent and second["alt"] == "a drawing"
    assert (first["uri"], second["uri"]) == ("a.svg", "/_build/dark/a.svg")
    assert "in-light" in first["classes"] and "in-dark" in second["classes"]
    assert (tmp_path / "_build/dark/a.svg").read_text() == dark.dark(DRAWING)
    assert not photograph["classes"] and not other["classes"]
