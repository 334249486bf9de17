"""Show every drawing in two renderings: as it was drawn, and for dark pages with the same colours on a dark ground.

A drawing that contains one for a phone (`fedgo.pages.figures.both_widths`) is taken apart, and shown in four.

If the browser inverted a drawing, it would exchange colours: a sky blue would become a dark blue, and one algorithm
would look like another. Here only black, white, greys, tints and dark colours change, in their lightness. All other
colours can be seen on both grounds. They stay as they are, or become a little lighter.
"""

import re
from pathlib import Path

import numpy as np
from docutils import nodes
from matplotlib.colors import to_hex, to_rgb
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from fedgo.pages.figures import FOR_PHONE

FOLDER = "_build/dark"
TINT = 0.12  # a colour whose channels differ by less than this is a grey or a tint
DIM = 0.12  # a colour of lower luminance cannot be seen on the dark ground; for a contrast of 3 it needs 0.12
FAINT, LIFT = 0.2, 0.3  # a colour below this luminance goes this part of the way to white
_PAINT = re.compile(r"((?:fill|stroke|stop-color)(?::\s*|=\"))(#[0-9a-fA-F]{3,6}|white|black)\b")
ONE_PANEL = 540  # points; a phone shows a wider drawing through a window that scrolls
GROUND = "#121212"  # the ground of the theme's dark pages
WEIGHTS = np.array([0.2126, 0.7152, 0.0722])  # the shares of red, green and blue in the luminance


def on_dark(colour: str) -> str:
    """Return the colour that replaces ``colour`` on a dark ground, as "#rrggbb" or as it was given.

    White becomes the ground. A colour that can be seen on the dark ground stays, or becomes a little lighter if it
    would be faint. Greys, tints and dark colours become as light as they were dark.
    """
    parts = np.array(to_rgb(colour))
    if parts.min() == 1:
        return GROUND
    luminance = WEIGHTS @ parts**2.2  # WCAG's relative luminance, without its straight piece near black
    if np.ptp(parts) >= TINT and luminance >= DIM:
        lighter = parts + LIFT * (luminance < FAINT) * (1 - parts)
    else:
        light = WEIGHTS @ parts
        lighter = 0.93 - 0.86 * light + 0.86 * (parts - light)
    return to_hex(np.clip(lighter, 0, 1))


def dark(drawing: str) -> str:
    """Return the SVG ``drawing`` with its colours for a dark ground.

    In SVG a shape without a colour of its own is black. Here it becomes nearly white, like black itself. Bands become
    denser.
    """
    drawing = re.sub(r"\bopacity: 0\.2\b", "opacity: 0.35", drawing)
    drawing = _PAINT.sub(lambda found: found[1] + on_dark(found[2]), drawing)
    return re.sub(r"<svg\b", f'<svg fill="{on_dark("black")}"', drawing, count=1)


class TwoRenderings(SphinxTransform):
    """A transform that puts the rendering for dark pages beside every drawing; the style sheet shows one of the two."""

    default_priority = 400

    def apply(self, **options: object) -> None:
        """Write the drawings for dark pages while Sphinx reads the pages, so that it copies them into the site.

        Only SVG files get a second rendering. A drawing of the class ``inline`` becomes part of the page instead, and
        the figure around a drawing that is wider than `ONE_PANEL` gets the class ``wide``.
        """
        for image in list(self.document.findall(nodes.image)):
            path = Path(self.env.relfn2path(image["uri"], self.env.docname)[1])
            if path.suffix != ".svg" or not path.is_file():
                continue
            drawing = path.read_text(encoding="utf-8")
            if "inline" in image["classes"]:  # the style sheet gives it its colours, and its boxes are links
                image.replace_self(nodes.raw("", drawing, format="html"))
                continue
            if (width := re.search(r'width="([\d.]+)pt"', drawing)) and float(width[1]) > ONE_PANEL:
                around = image.parent
                while not isinstance(around, nodes.figure | nodes.document):
                    around = around.parent
                around["classes"].append("wide")
            wide, _, rest = drawing.partition(FOR_PHONE)
            drawings = (
                {"wide": wide + "</svg>", "phone": rest.rpartition("</defs>")[0]}
                if rest
                else {"all": drawing}
            )
            for size, shown in drawings.items():
                for ground, painted in {"light": shown, "dark": dark(shown)}.items():
                    target = Path(self.env.srcdir, FOLDER, f"{size}-{ground}-{path.name}")
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_text(painted, encoding="utf-8")
                    other = image.deepcopy()
                    other["uri"] = f"/{FOLDER}/{target.name}"
                    # The theme leaves a dark-light image as it is.
                    other["classes"] += ["dark-light", f"in-{ground}", f"for-{size}"]
                    image.parent.insert(image.parent.index(image), other)
            image.parent.remove(image)


def setup(app: Sphinx) -> None:
    """Register the transform with Sphinx, which calls this function."""
    app.add_transform(TwoRenderings)
