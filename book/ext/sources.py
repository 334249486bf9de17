"""The package's code in the book: {src}`fedgo.confidence.Ball.sigma`, a link to its page of source.

The pages of source are those of Sphinx's viewcode. A name is a module's, or a class, function, field or parameter below
it; fields and parameters lead to what they belong to. A name that is gone stops the build.
"""

import re

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.roles import XRefRole
from sphinx.util.nodes import make_refnode


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
    app.setup_extension("sphinx.ext.viewcode")
    app.add_role("src", XRefRole())
    app.connect("missing-reference", resolve)
