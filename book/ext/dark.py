"""Every drawing in two renderings: as it was drawn, and for the dark with the same colours on a dark ground.

Inverting a drawing in the browser would exchange colours: a sky blue becomes a dark blue, and one algorithm looks like
another. Here black, white, greys and tints change their lightness, and colours that are seen on both grounds stay.
"""

import re
from pathlib import Path

import numpy as np
from docutils import nodes
from matplotlib.colors import to_hex, to_rgb
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

FOLDER = "_build/dark"
TINT = 0.12  # what differs less between its channels is a grey or a tint
DIM = 0.12  # luminance below which a colour is not seen on the dark ground: contrast 3 needs 0.12
_PAINT = re.compile(r"((?:fill|stroke|stop-color)(?::\s*|=\"))(#[0-9a-fA-F]{3,6}|white|black)\b")
ONE_PANEL = 540  # points; what is wider a phone shows through a window that scrolls
GROUND = "#121212"  # of the theme's pages in the dark
WEIGHTS = np.array([0.2126, 0.7152, 0.0722])  # of red, green and blue in what is seen as light


def on_dark(colour: str) -> str:
    """The ``colour`` on a dark ground: itself if it is a colour that is seen there, else as light as it was dark."""
    parts = np.array(to_rgb(colour))
    if parts.min() == 1:
        return GROUND
    luminance = WEIGHTS @ parts**2.2  # WCAG's relative luminance but for its line near black
    if np.ptp(parts) >= TINT and luminance >= DIM:
        return colour
    light = WEIGHTS @ parts
    return to_hex(np.clip(0.93 - 0.86 * light + 0.86 * (parts - light), 0, 1))


def dark(drawing: str) -> str:
    """The SVG ``drawing`` for a dark ground; what has no paint of its own is black by default, here nearly white."""
    drawing = _PAINT.sub(lambda found: found[1] + on_dark(found[2]), drawing)
    return re.sub(r"<svg\b", f'<svg fill="{on_dark("black")}"', drawing, count=1)


class TwoRenderings(SphinxTransform):
    """Put beside every drawing the one for the dark; the style sheet shows one of the two."""

    default_priority = 400

    def apply(self, **options: object) -> None:
        """Write the drawings for the dark while pages are read, so that Sphinx takes them into the site."""
        for image in list(self.document.findall(nodes.image)):
            path = Path(self.env.relfn2path(image["uri"], self.env.docname)[1])
            if path.suffix != ".svg" or not path.is_file():
                continue
            drawing = path.read_text(encoding="utf-8")
            if "inline" in image["classes"]:  # its colours are the style sheet's, its boxes are links
                image.replace_self(nodes.raw("", drawing, format="html"))
                continue
            if (width := re.search(r'width="([\d.]+)pt"', drawing)) and float(width[1]) > ONE_PANEL:
                around = image.parent
                while not isinstance(around, nodes.figure | nodes.document):
                    around = around.parent
                around["classes"].append("wide")
            target = Path(self.env.srcdir) / FOLDER / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(dark(drawing), encoding="utf-8")
            other = image.deepcopy()
            other["uri"] = f"/{FOLDER}/{path.name}"
            image["classes"] += ["dark-light", "in-light"]  # dark-light: the theme leaves it as it is
            other["classes"] += ["dark-light", "in-dark"]
            image.parent.insert(image.parent.index(image) + 1, other)


def setup(app: Sphinx) -> None:
    """What Sphinx calls."""
    app.add_transform(TwoRenderings)
