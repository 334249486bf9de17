"""The package in the book: {src}`fedgo.confidence.Ball.sigma`, a link to its page of source, and its docstrings.

The pages of source are those of Sphinx's viewcode. A name is a module's, or a class, function, field or parameter below
it; fields and parameters lead to what they belong to. A name that is gone stops the build. Docstrings are shown as they
are written, to be read in a terminal: what Sphinx's autodoc would take for markup is escaped.
"""

import enum
import re

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.roles import XRefRole
from sphinx.util.nodes import make_refnode

_NO_PYTHON = re.compile(r"(?<== )<(?:[^<>]|<[^<>]*>)*>")
_LITERAL = re.compile(r"(``.*?``|`[^`]+`)", re.DOTALL)  # stays as it is


def whole(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Double the colons in the first line of a property: napoleon would take what precedes one for a type."""
    if what == "property":
        lines[0] = lines[0].replace(": ", ":: ")


def plain(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape ``lines``, a docstring, in place: |x|, w* and names_like_this are text; undo what `whole` did."""
    parts = _LITERAL.split("\n".join(lines))
    parts[::2] = [re.sub(r"([|*_\\])", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [rf"\ {part}\ " for part in parts[1::2]]  # markup needs an edge; this one leaves no trace
    lines[:] = "".join(parts).replace(":: ", ": ").split("\n")


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


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.Element
) -> nodes.Element | None:
    """Lead the role ``src`` to the innermost class or function that viewcode has an anchor for."""
    if node["reftype"] != "src":
        return None
    parts = node["reftarget"].split(".")
    modules = getattr(env, "_viewcode_modules", {})
    length = next((n for n in range(len(parts), 0, -1) if modules.get(".".join(parts[:n]))), 0)
    module, names = ".".join(parts[:length]), parts[length:]
    if not length:
        return None
    code, tags, anchored, _ = modules[module]
    below = [".".join(names[:n]) for n in range(len(names), 0, -1)]
    anchor = next((name for name in below if name in anchored), "")
    _, first, last = tags.get(next((name for name in below if name in tags), ""), ("", 1, None))
    inside = "\n".join(code.splitlines()[first - 1 : last])
    if names and not re.search(rf"\b{re.escape(names[-1])}\b *[:=,)(]", inside):
        return None
    return make_refnode(app.builder, node["refdoc"], f"_modules/{module.replace('.', '/')}", anchor, shown)


def setup(app: Sphinx) -> None:
    """What Sphinx calls."""
    app.setup_extension("sphinx.ext.autodoc")
    # Napoleon reads Args, Returns and Raises, before `plain` escapes the rest.
    app.setup_extension("sphinx.ext.napoleon")
    app.setup_extension("sphinx.ext.viewcode")
    app.add_role("src", XRefRole())
    app.connect("missing-reference", resolve)
    app.connect("autodoc-process-docstring", whole, priority=400)
    app.connect("autodoc-process-docstring", plain)
    app.connect("autodoc-skip-member", fields)
    app.connect("autodoc-process-signature", interface)
