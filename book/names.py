"""Settings of Sphinx's autodoc for the pages of names: docstrings are plain text, and every name links to its source.

The docstrings are written to be read in a terminal, so what reStructuredText would take for markup is escaped.
"""

import enum
import re

from source_links import find, page_name
from sphinx.application import Sphinx
from sphinx.config import Config

# a literal stays as it is; elsewhere |x|, w* and names_like_this are text
_LITERAL = re.compile(r"(``.*?``|`[^`]+`)", re.DOTALL)


# x_{s−1}, d_w, η_t, ℓ_∞, R_phaseII, K_ZZ; x^{a/2} and r^χ
_LOW = re.compile(
    r"_\{((?:[^{}]|\{[^{}]*\})+)\}|(?<=(?<![a-zα-ω_])[A-Za-zΑ-Ωα-ωℓ])_([a-z]+I{0,2}|[A-Z]+|[λμ∞])"
    r"|(?:(?<=[)‖²ᵃ⁰\u0302\u0304])|(?<=max)|(?<=min))_([a-z]+|Σ)"
)
_NO_PYTHON = re.compile(r"(?<== )<(?:[^<>]|<[^<>]*>)*>")
_HIGH = re.compile(r"\^(?:\{([^{}]+)\}|([A-Za-zα-ω])(?![A-Za-z]))")


def _flat(text: str) -> str:
    """A subscript's own subscripts stand beside it."""
    return re.sub(r"_(?:\{([^{}]+)\}|(?=\w))", r"\1", text)


def _lowered(text: str) -> str:
    """Subscripts and superscripts as such, any other underscore as text."""
    text = _LOW.sub(lambda found: rf"\ :sub:`{_flat(found[found.lastindex or 0])}`\ ", text)
    text = _HIGH.sub(lambda found: rf"\ :sup:`{found[1] or found[2]}`\ ", text)
    return text.replace("_", r"\_")


def plain(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape ``lines``, a docstring, in place."""
    parts = _LITERAL.split("\n".join(lines))
    parts[::2] = [_lowered(re.sub(r"([|*\\])", r"\\\1", part)) for part in parts[::2]]
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


def fields(app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object) -> bool | None:
    """Leave out the fields of named tuples: the docstring of the class describes them."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def source_page(domain: str, info: dict[str, str]) -> str | None:
    """Where the site shows the line that defines a name; None for what a class inherits."""
    try:
        file, line = find(f"{info['module']}.{info['fullname']}")
    except LookupError:
        return None
    return f"../../{page_name(file)}.html#line-{line}"


def configure(app: Sphinx, config: Config) -> None:
    """What ``_config.yml`` cannot hold: a function."""
    config.linkcode_resolve = source_page


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.setup_extension("sphinx.ext.autodoc")
    app.setup_extension("sphinx.ext.linkcode")
    app.connect("autodoc-process-docstring", plain)
    app.connect("autodoc-skip-member", fields)
    app.connect("autodoc-process-signature", interface)
    app.connect("config-inited", configure)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
