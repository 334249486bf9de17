"""What other sites show of a page that is linked to: its title, its first sentences, and a picture of the book.

Open Graph's tags (https://ogp.me). An image needs an address, so a page names it only where the repository is known.
"""

import math
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from matplotlib.figure import Figure
from provenance import repository
from sphinx.application import Sphinx

CARD = "_static/card.png"
SIZE = (1200, 630)  # pixels, what every site cuts its own from
LONGEST = 200  # letters of a description
WORDS = (
    "Fed-GO-UCB",
    ("Communication-efficient federated", "non-linear bandits: the paper,", "explained, re-run, repaired"),
)


def description(doctree: nodes.document | None) -> str:
    """The first paragraph of a page that is a sentence without formulas, cut at a word."""
    paragraphs = doctree.findall(nodes.paragraph) if doctree is not None else ()
    texts = (re.sub(r"\s+", " ", paragraph.astext()).strip() for paragraph in paragraphs)
    text = next((text for text in texts if len(text) > 60 and "\\" not in text and text[0].isalpha()), "")
    return text if len(text) <= LONGEST else text[:LONGEST].rsplit(" ", 1)[0].rstrip(",;:–") + " …"


def address(repo: str) -> str:
    """Where the pages of the repository owner/name are on the web; nowhere if it is not known."""
    owner, _, name = repo.partition("/")
    return f"https://{owner.lower()}.github.io/{name}" if name else ""


def tags(title: str, about: str, book: str, site: str, page: str) -> str:
    """The tags of a page, as HTML."""
    properties = {"og:type": "article", "og:site_name": book, "og:title": title, "og:description": about}
    if site:
        properties |= {"og:url": f"{site}/{page}.html", "og:image": f"{site}/{CARD}"}
        properties |= {"og:image:width": str(SIZE[0]), "og:image:height": str(SIZE[1])}
        properties |= {"og:image:alt": f"{book}: a server and its clients, each joined to it by a line."}
    lines = [f'<meta property="{key}" content="{escape(text)}">' for key, text in properties.items() if text]
    lines += [f'<meta name="description" content="{escape(about)}">'] * bool(about)
    lines += ['<meta name="twitter:card" content="summary_large_image">'] * bool(site)
    return "\n".join(lines)


def add(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Put the tags into the head of a page."""
    title = re.sub(r"<[^>]*>", "", context.get("title", "")) or app.config.html_title
    site = address(repository(app.config.fedgo_repository))
    found = tags(title, description(doctree), app.config.html_title, site, page)
    context["metatags"] = context.get("metatags", "") + "\n" + found


def card(title: str, lines: Sequence[str]) -> Figure:
    """The picture: the book's name, and a star of clients around their server."""
    figure = Figure(figsize=(SIZE[0] / 100, SIZE[1] / 100), dpi=100, facecolor="#14181e")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, SIZE[0]), ylim=(0, SIZE[1]))
    axes.axis("off")
    middle, radius, clients = (960, 315), 190, 7
    for k in range(clients):
        turn = math.pi / 2 + 2 * math.pi * k / clients
        x, y = middle[0] + radius * math.cos(turn), middle[1] + radius * math.sin(turn)
        axes.plot([middle[0], x], [middle[1], y], color="#ced6dd", linewidth=5)
        axes.plot(x, y, "o", color="#05A0C8", markersize=38)
    axes.plot(*middle, "o", color="#D55E00", markersize=80)
    axes.text(70, 400, title, color="white", fontsize=54, fontweight="bold", va="center")
    for k, line in enumerate(lines):
        axes.text(70, 310 - 50 * k, line, color="#ced6dd", fontsize=25, va="center")
    return figure


def draw(app: Sphinx, failure: Exception | None) -> None:
    """Write the picture into the site."""
    if not failure and app.builder.format == "html":
        path = Path(app.outdir) / CARD
        path.parent.mkdir(parents=True, exist_ok=True)
        card(*WORDS).savefig(path)


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.connect("html-page-context", add)
    app.connect("build-finished", draw)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
