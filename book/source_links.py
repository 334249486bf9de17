"""Pages of source with an anchor at every line, and {src}`fedgo.confidence.Ball.sigma`, a link to the definition.

A name is a module's, or a class, function, field or parameter below it; a function's local variables are its own
affair. It is looked up in the syntax tree whenever the book is built: no line number is written down, and a name that
is gone stops the build.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

ROOT = Path(__file__).resolve().parents[1]


def definitions(scope: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt | ast.arg]]:
    """Every name that ``scope`` itself offers to others, in the order of the file, with its node."""
    for node in ast.iter_child_nodes(scope):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                if not isinstance(scope, ast.FunctionDef):
                    yield name, node
                continue
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name, node
        inside = isinstance(node, ast.arguments) or not isinstance(scope, ast.FunctionDef)
        if inside and not isinstance(node, ast.Lambda):
            yield from definitions(node)


def find(dotted: str, root: Path = ROOT) -> tuple[str, int]:
    """The file (relative to ``root``) and the line where ``dotted`` is defined; a ``LookupError`` if nowhere."""
    path, names = root, dotted.split(".")
    while names and (path / names[0]).is_dir():
        path /= names.pop(0)
    path /= f"{names.pop(0)}.py" if names and (path / f"{names[0]}.py").is_file() else "__init__.py"
    if not path.is_file():
        raise LookupError(f"there is no module for '{dotted}'")
    file, line = path.relative_to(root).as_posix(), 1
    scope: ast.AST = ast.parse(path.read_text(encoding="utf-8"))
    for name in names:
        found = dict(reversed([*definitions(scope)])).get(name)  # the first of several
        if found is None:
            raise LookupError(f"{file} does not define '{name}' of '{dotted}'")
        scope, line = found, found.lineno
    return file, line


def page_name(file: str) -> str:
    """The page of the book that shows ``file``."""
    return f"source/{file.removesuffix('.py').removesuffix('.md')}"


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The page of every module and of every notebook's text; line 7 has the anchor ``line-7``."""
    for path in sorted([*(ROOT / "fedgo").rglob("*.py"), *(ROOT / "notebooks").glob("*.md")]):
        file = path.relative_to(ROOT).as_posix()
        code = app.builder.highlighter.highlight_block(  # type: ignore[attr-defined]
            path.read_text(encoding="utf-8"),
            "python" if path.suffix == ".py" else "text",
            linenos="inline",
            linespans="line",
        )
        heading = file.replace("/", "/<wbr>")
        yield page_name(file), {"title": file, "body": f"<h1>{heading}</h1>{code}"}, "page.html"


class SourceLink(SphinxRole):
    """The role ``src``."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """The name as code, linked; a warning where it is defined nowhere, which stops the build."""
        code = nodes.literal()
        for part in self.text.split("."):
            if code.children:  # where a narrow column may break the line
                code += [nodes.raw("", "<wbr>", format="html"), nodes.Text(f".{part}")]
            else:
                code += nodes.Text(part)
        try:
            file, line = find(self.text)
        except LookupError as error:
            logging.getLogger(__name__).warning(str(error), location=self.get_location())
            return [code], []
        target = self.env.app.builder.get_relative_uri(self.env.docname, page_name(file))
        title = f"{file}, line {line}"
        return [
            nodes.reference("", "", code, refuri=f"{target}#line-{line}", reftitle=title, internal=True)
        ], []


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_role("src", SourceLink())
    app.connect("html-collect-pages", pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
