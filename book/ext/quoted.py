"""Put what a chapter quotes into the text of any page: {n} for numbers and phrases, {again} for tables and pictures.

A chapter quotes a value by `quote` of `fedgo.pages.tables`, which also gives it its format. {n}`regret` becomes
what this chapter quotes as "regret", and {n}`results:regret` what the chapter "results" quotes. The directives

```{again} results:final-table
```
```{again} results:fig-results-trade-off
```

show a table that a chapter has quoted, and the picture of one of its figures by the label of the figure. Caption and
number stay with the figure.
"""

import json
import re
from functools import cache
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

EXECUTED = "book/_executed/"
_PLACE = re.compile(r"\{n\}`([^`]+)`|^```\{again\} (.+)\n```$", re.MULTILINE)
_PICTURE = """
```{image} /PATH
:alt: ALT
```
"""


@cache
def read(path: Path) -> dict[str, str]:
    """Return all values that the executed notebook at ``path`` quotes, and the pictures of its figures, by name.

    Each is text in Markdown. The pictures are written to `_build/again/` (`picture`). The result is cached.
    """
    found = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        drawn = cell["metadata"].get("mystnb", {})
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if quoted := output.get("metadata", {}).get("scrapbook"):
                (text,) = (data[kind] for kind in data if kind.startswith(quoted["mime_prefix"]))
                found[quoted["name"]] = "".join(text)
            elif "figure" in drawn and (svg := "".join(data.get("image/svg+xml", ""))):
                name = drawn["figure"]["name"]
                found[name] = picture(path, name, svg, drawn.get("image", {}).get("alt", ""))
    return found


def picture(chapter: Path, name: str, svg: str, alt: str) -> str:
    """Write the drawing ``svg`` to a file from which Sphinx and `dark` take it, and return the Markdown that shows it.

    Args:
        chapter: The path of the executed notebook.
        name: The label of the figure.
        svg: The drawing.
        alt: The alternative text.
    """
    path = f"_build/again/{name}.svg"
    file = chapter.parents[2] / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(svg, encoding="utf-8")
    return _PICTURE.replace("PATH", path).replace("ALT", json.dumps(alt))


def put_in(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the quoted values and pictures into the ``source`` of a page, in place.

    A value that is missing, NaN or infinite gives a warning, which stops the build of the book.
    """

    def shown(place: re.Match[str]) -> str:
        """Return the text for a ``place`` of the role {n} or the directive {again}; it is empty if there is none."""
        chapter, _, name = (place[1] or place[2]).rpartition(":")
        path = Path(app.srcdir, EXECUTED, f"{chapter or Path(page).name}.ipynb")
        app.env.note_dependency(str(path))
        text = read(path).get(name, "") if path.exists() else ""
        if not text or re.search(r"\b(nan|inf)\b", text):
            said = f"the chapter {path.stem} quotes no '{name}'" + f", but {text} as its value" * bool(text)
            logging.getLogger(__name__).warning(said, location=page)
        return text

    if not page.startswith(EXECUTED):
        source[0] = _PLACE.sub(shown, source[0])
        return
    notebook = json.loads(source[0])
    for cell in notebook["cells"]:
        cell["source"] = _PLACE.sub(shown, "".join(cell["source"]))
    source[0] = json.dumps(notebook)


def setup(app: Sphinx) -> None:
    """Register the function `put_in` with Sphinx, which calls this function."""
    app.connect("source-read", put_in)
