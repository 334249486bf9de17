"""Show the package in the book: links to its source by the role ``src``, and its docstrings.

{src}`fedgo.confidence.Ball.sigma` becomes a link into the page of source that Sphinx's viewcode makes. The name is that
of a module, or of a class, function, field or parameter in one; a field or parameter leads to the class or function to
which it belongs. A name that does not exist stops the build. Docstrings are written to be read in a terminal, and are
shown as they are written: characters that Sphinx's autodoc would take for markup are escaped.
"""

import enum
import re

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.roles import XRefRole
from sphinx.util.nodes import make_refnode

# A default such as <factory> in a signature.
_NO_PYTHON = re.compile(r"(?<== )<(?:[^<>]|<[^<>]*>)*>")
_LITERAL = re.compile(r"(``.*?``|`[^`]+`)", re.DOTALL)  # names in backquotes stay markup


def whole(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Double the colons in the first of the ``lines`` of the docstring of a property, in place.

    Otherwise napoleon would take the words before a colon for the type of the property.
    """
    if what == "property":
        lines[0] = lines[0].replace(": ", ":: ")


def plain(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape the ``lines`` of a docstring in place, so that |x|, w* and names_like_this are text.

    Names in backquotes stay markup. The colons that `whole` has doubled become single again.
    """
    parts = _LITERAL.split("\n".join(lines))
    parts[::2] = [re.sub(r"([|*_\\])", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [rf"\ {part}\ " for part in parts[1::2]]  # markup needs a blank; this one is not shown
    lines[:] = "".join(parts).replace(":: ", ": ").split("\n")


def interface(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str, returned: str | None
) -> tuple[str, str | None] | None:
    """Return the signature of ``obj`` that the book shows and its return type, or None for the usual ones.

    A protocol and an enumeration have no constructor of their own, so that no signature is shown. A default that is not
    Python, such as ``<factory>``, becomes "...", because Sphinx shows a signature that it cannot parse as raw text.
    """
    if getattr(obj, "_is_protocol", False) or isinstance(obj, enum.EnumMeta):
        return "", None
    return (_NO_PYTHON.sub("...", signature), returned) if signature and "<" in signature else None


def fields(app: Sphinx, what: str, name: str, obj: object, *_: object) -> bool | None:
    """Return True for a field of a named tuple, which is left out because the docstring of its class describes it.

    For all other objects the result is None, which leaves the decision to Sphinx.
    """
    return True if type(obj).__name__ == "_tuplegetter" else None


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.Element
) -> nodes.Element | None:
    """Return a link for the role ``src``, to the innermost class or function for which viewcode has an anchor.

    ``shown`` is the text of the link. The result is None for other roles and for a name that does not exist, about
    which Sphinx then warns.
    """
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
    """Register the role and the functions of this module with Sphinx, which calls this function."""
    app.setup_extension("sphinx.ext.autodoc")
    # Napoleon reads Args, Returns and Raises. It comes before `plain`, which escapes the rest.
    app.setup_extension("sphinx.ext.napoleon")
    app.setup_extension("sphinx.ext.viewcode")
    app.add_role("src", XRefRole())
    app.connect("missing-reference", resolve)
    app.connect("autodoc-process-docstring", whole, priority=400)
    app.connect("autodoc-process-docstring", plain)
    app.connect("autodoc-skip-member", fields)
    app.connect("autodoc-process-signature", interface)
