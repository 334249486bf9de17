"""What a chapter quotes is put into the text of any page: {n} for numbers and phrases, {again} for what is shown.

{n}`regret` is what this chapter quotes as "regret", {n}`results:regret` what the chapter "results" does (`quote` in
`fedgo.experiments.tables`, which gives it its format). {again} shows a table that a chapter has quoted, or, by its
label, the picture of one of its figures, with the one for a phone if the cell before it, which has the tag `narrow`,
draws one (the style sheet shows one of the two); caption and number stay with the figure:

```{again} results:final-table
```
```{again} results:fig-results-trade-off
```
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
<div class="KIND">

```{image} /PATH
:alt: ALT
```

</div>
"""


@cache
def read(path: Path) -> dict[str, str]:
    """Everything that is quoted in the executed notebook at ``path``, and its figures' pictures, by name: Markdown."""
    found, narrow = {}, None
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        drawn = cell["metadata"].get("mystnb", {})
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if quoted := output.get("metadata", {}).get("scrapbook"):
                (text,) = (data[kind] for kind in data if kind.startswith(quoted["mime_prefix"]))
                found[quoted["name"]] = "".join(text)
            elif svg := "".join(data.get("image/svg+xml", "")):
                alt = drawn.get("image", {}).get("alt", "")
                if "figure" in drawn:
                    name = drawn["figure"]["name"]
                    before = picture(path, name, "tag_narrow", *narrow) if narrow else ""
                    found[name] = before + picture(path, name, "shown-again", svg, alt)
                narrow = (svg, alt) if "narrow" in cell["metadata"].get("tags", []) else None
    return found


def picture(chapter: Path, name: str, kind: str, svg: str, alt: str) -> str:
    """The drawing ``svg``, written where `dark` finds it, in a block of the class ``kind``: Markdown."""
    path = f"_build/again/{name}-{kind}.svg"
    file = chapter.parents[2] / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(svg, encoding="utf-8")
    return _PICTURE.replace("KIND", kind).replace("PATH", path).replace("ALT", json.dumps(alt))


def put_in(app: Sphinx, page: str, source: list[str]) -> None:
    """Put what is quoted in its places; a warning, and nothing, where it is missing or no number."""

    def shown(place: re.Match[str]) -> str:
        chapter, _, name = (place[1] or place[2]).rpartition(":")
        path = Path(app.srcdir, EXECUTED, f"{chapter or Path(page).name}.ipynb")
        app.env.note_dependency(str(path))
        text = read(path).get(name, "") if path.exists() else ""
        if not text or re.search(r"\b(nan|inf)\b", text):
            said = f"{path.stem} quotes no '{name}'" + f", but {text}" * bool(text)
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
    """What Sphinx calls."""
    app.connect("source-read", put_in)
