"""Docstrings as they are written, to be read in a terminal: what Sphinx's autodoc would take for markup is escaped."""

import enum
import re

from sphinx.application import Sphinx

_NO_PYTHON = re.compile(r"(?<== )<(?:[^<>]|<[^<>]*>)*>")
_LITERAL = re.compile(r"(``.*?``|`[^`]+`)", re.DOTALL)  # stays as it is


def plain(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape ``lines``, a docstring, in place: |x|, w* and names_like_this are text."""
    parts = _LITERAL.split("\n".join(lines))
    parts[::2] = [re.sub(r"([|*_\\])", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [rf"\ {part}\ " for part in parts[1::2]]  # markup needs an edge; this one leaves no trace
    lines[:] = "".join(parts).split("\n")


def interface(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str, returned: str | None
) -> tuple[str, str | None] | None:
    """A protocol and an enumeration have no constructor of their own; the one that Python makes up is not shown.

    A default that is no Python, ``<factory>``, is dots: with it Sphinx shows a signature as it stands, tildes and all.
    """
    if getattr(obj, "_is_protocol", False) or isinstance(obj, enum.EnumMeta):
        return "", None
    return (_NO_PYTHON.sub("...", signature), returned) if signature and "<" in signature else None


def fields(app: Sphinx, what: str, name: str, obj: object, *_: object) -> bool | None:
    """Leave out the fields of named tuples: the docstring of the class describes them."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def setup(app: Sphinx) -> None:
    """What Sphinx calls."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", plain)
    app.connect("autodoc-skip-member", fields)
    app.connect("autodoc-process-signature", interface)
