"""The package's code in the book: {src}`fedgo.confidence.Ball.sigma`, a link to its page of source, and

```{source} fedgo.confidence.first_order
```

which shows it. The pages of source are those of Sphinx's viewcode. A name is a module's, or a class, function, field or
parameter below it; fields and parameters lead to what they belong to. A name that is gone stops the build.
"""

import inspect
import re
from pkgutil import resolve_name
from textwrap import dedent

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.roles import XRefRole
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode


def passage(dotted: str) -> str:
    """The text of the function or class ``dotted``; an ``AttributeError`` if there is none."""
    return dedent(inspect.getsource(resolve_name(dotted))).rstrip()


def written_out(markdown: str) -> str:
    """``markdown`` with the code itself where the directive ``source`` stands: for readers other than Sphinx."""

    def code(found: re.Match[str]) -> str:
        return "```python\n" + "\n\n".join(passage(name) for name in found[1].split()) + "\n```"

    return re.sub(r"^```\{source\} (.*)\n```$", code, markdown, flags=re.MULTILINE)


class Source(SphinxDirective):
    """The directive ``source``: one definition or several, as the files have them today."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Every definition as highlighted code, below a link to its place; a warning where it is gone."""
        shown: list[nodes.Node] = []
        for name in self.arguments[0].split():
            try:
                text = passage(name)
            except AttributeError:
                logging.getLogger(__name__).warning("nothing defines %s", name, location=self.get_location())
                continue
            link, _ = self.parse_inline(f"{{src}}`{name}`")
            code = nodes.literal_block(text, text, language="python")
            shown.append(nodes.container("", nodes.paragraph("", "", *link), code, classes=["source-shown"]))
        return shown


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
    app.add_directive("source", Source)
    app.connect("missing-reference", resolve)
