"""The contents in the side bar of pages that have no place in them, the pages of source code, once for each folder.

Sphinx makes the contents of the whole book anew for every page, for their links are relative and the page's own entry
is marked. A page without an entry has the same as its neighbours.
"""

from collections.abc import Callable
from posixpath import dirname
from typing import Any

from sphinx.application import Sphinx

Made = dict[tuple[str, str], str]


def shared(make: Callable[..., str], folder: str, made: Made) -> Callable[..., str]:
    """``make``, the template's function ``toctree``; what it has ``made`` for a page of ``folder`` is used again."""

    def toctree(**options: Any) -> str:
        key = folder, repr(sorted(options.items()))
        if key not in made:
            made[key] = make(**options)
        return made[key]

    return toctree


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    made: Made = {}

    def share(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
        if page not in app.env.found_docs:
            context["toctree"] = shared(context["toctree"], dirname(page), made)

    app.connect("html-page-context", share, priority=400)  # before the theme asks for it
    return {"parallel_read_safe": True, "parallel_write_safe": True}
