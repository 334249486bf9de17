"""Pages of source with an anchor at every line, {src}`fedgo.confidence.Ball.sigma`, a link to the definition, and

```{source} fedgo.confidence.first_order
```

which shows it. A name is a module's, or a class, function, field or parameter below it; a function's local variables
are its own affair. It is looked up in the syntax tree whenever the book is built: no line number is written down, and
a name that is gone stops the build.
"""

import ast
import hashlib
import json
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from textwrap import dedent
from typing import Any, ClassVar, NamedTuple

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

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


def _file_of(dotted: str, root: Path) -> tuple[Path, list[str]]:
    """The file of the module that ``dotted`` begins with, and the names below it; a ``LookupError`` if nowhere."""
    path, names = root, dotted.split(".")
    while names and (path / names[0]).is_dir():
        path /= names.pop(0)
    path /= f"{names.pop(0)}.py" if names and (path / f"{names[0]}.py").is_file() else "__init__.py"
    if not path.is_file():
        raise LookupError(f"there is no module for '{dotted}'")
    return path, names


def find(dotted: str, root: Path = ROOT) -> tuple[str, int]:
    """The file (relative to ``root``) and the line where ``dotted`` is defined; a ``LookupError`` if nowhere."""
    path, names = _file_of(dotted, root)
    file, line = path.relative_to(root).as_posix(), 1
    scope: ast.AST = ast.parse(path.read_text(encoding="utf-8"))
    for name in names:
        found = dict(reversed([*definitions(scope)])).get(name)  # the first of several
        if found is None:
            raise LookupError(f"{file} does not define '{name}' of '{dotted}'")
        scope, line = found, found.lineno
    return file, line


class Passage(NamedTuple):
    """Some lines of a file: the file (relative to the root), the number of the first line, and the text."""

    file: str
    line: int
    text: str


def passage(dotted: str, start_at: str = "", root: Path = ROOT) -> Passage:
    """The statement that defines ``dotted``, decorators included, from the line with ``start_at`` in it on.

    A ``LookupError`` where there is no such definition, or no such line in it.
    """
    file, line = find(dotted, root)
    if not _file_of(dotted, root)[1]:
        raise LookupError(f"'{dotted}' is a module; name a definition in it")
    text = (root / file).read_text(encoding="utf-8")
    around = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    innermost = max(around, key=lambda node: node.lineno)
    first = min([innermost.lineno, *(part.lineno for part in getattr(innermost, "decorator_list", []))])
    lines = text.splitlines()[first - 1 : innermost.end_lineno]
    skipped = next((number for number, one in enumerate(lines) if start_at in one), None)
    if skipped is None:
        raise LookupError(f"no line of '{dotted}' contains '{start_at}'")
    return Passage(file, first + skipped, dedent("\n".join(lines[skipped:])))


def written_out(markdown: str, root: Path = ROOT) -> str:
    """``markdown`` with the code itself where the directive ``source`` stands: for readers other than Sphinx."""

    def code(found: re.Match[str]) -> str:
        start_at = re.search(r"^:start-at: (.*)$", found["options"], re.MULTILINE)
        shown = [passage(name, start_at[1] if start_at else "", root).text for name in found["names"].split()]
        return "```python\n" + "\n\n".join(shown) + "\n```"

    fence = r"^```\{source\} (?P<names>.*)\n(?P<options>(?:.*\n)*?)```$"
    return re.sub(fence, code, markdown, flags=re.MULTILINE)


def page_name(file: str) -> str:
    """The page of the book that shows ``file``."""
    return f"source/{file.removesuffix('.py').removesuffix('.md')}"


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The page of every module and of every notebook's text; line 7 has the anchor ``line-7``.

    Highlighting takes the longer part of it, so that of texts that have not changed is kept.
    """
    store = Path(app.doctreedir) / "highlighted.json"
    kept, used = _kept(store), dict[str, str]()
    for path in sorted([*(ROOT / "fedgo").rglob("*.py"), *(ROOT / "notebooks").glob("*.md")]):
        file, content = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        language = "python" if path.suffix == ".py" else "text"
        key = hashlib.sha256(f"{version('Pygments')} {language}\0{content}".encode()).hexdigest()
        if key not in kept:
            kept[key] = app.builder.highlighter.highlight_block(  # type: ignore[attr-defined]
                content, language, linenos="inline", linespans="line"
            )
        used[key] = kept[key]
        heading = file.replace("/", "/<wbr>")
        yield page_name(file), {"title": file, "body": f"<h1>{heading}</h1>{kept[key]}"}, "page.html"
    store.write_text(json.dumps(used), encoding="utf-8")


def _kept(store: Path) -> dict[str, str]:
    """What ``store`` holds; nothing where it is not there, or was not written to its end."""
    try:
        return dict(json.loads(store.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


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
            file, line = find(self.text, ROOT)
            self.env.note_dependency(str(ROOT / file))
        except LookupError as error:
            logging.getLogger(__name__).warning(str(error), location=self.get_location())
            return [code], []
        target = self.env.app.builder.get_relative_uri(self.env.docname, page_name(file))
        title = f"{file}, line {line}"
        return [
            nodes.reference("", "", code, refuri=f"{target}#line-{line}", reftitle=title, internal=True)
        ], []


class Source(SphinxDirective):
    """The directive ``source``: one definition or several, as the files have them today."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[dict[str, Any]] = {"start-at": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        """Every definition as highlighted code, below a link to its line; a warning where it is gone."""
        shown: list[nodes.Node] = []
        for name in self.arguments[0].split():
            try:
                file, line, text = passage(name, self.options.get("start-at", ""), ROOT)
            except LookupError as error:
                logging.getLogger(__name__).warning(str(error), location=self.get_location())
                continue
            self.env.note_dependency(str(ROOT / file))
            place = f"{file}, line {line}"
            target = self.env.app.builder.get_relative_uri(self.env.docname, page_name(file))
            link = nodes.reference("", place, refuri=f"{target}#line-{line}", internal=True)
            code = nodes.literal_block(text, text, language="python")
            shown.append(nodes.container("", nodes.paragraph("", "", link), code, classes=["source-shown"]))
        return shown


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_role("src", SourceLink())
    app.add_directive("source", Source)
    app.connect("html-collect-pages", pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
