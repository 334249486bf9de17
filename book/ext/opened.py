"""Where else an executed chapter is open: links below its title, and the notebooks to open, in the site's folder open/.

At its foot a line says of which run the page is. On every page {{ repository }} is a link to the repository, or says
that its address is not known.
"""

import json
import os
import re
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import nbformat
from sphinx.application import Sphinx

EXECUTED = "book/_executed/"
INSTALL = """# Where fedgo is not installed, as on Colab: install it, then restart the kernel if asked to.
try:
    import fedgo
except ImportError:
    %pip install --quiet "PACKAGE"
"""


def repository(app: Sphinx) -> str:
    """owner/name on GitHub: what the machine that builds says, else what `_config.yml` says; empty if nobody knows."""
    return os.environ.get("GITHUB_REPOSITORY") or app.config.fedgo_repository


def annotate(app: Sphinx, page: str, source: list[str]) -> None:
    """Name the repository on any page; add links below the title of an executed one, and the line at its foot.

    The links lead to hosts only where the repository is known.
    """
    repo = repository(app)
    named = f"[the repository](https://github.com/{repo})" if repo else "the repository (address not set yet)"
    source[0] = source[0].replace("{{ repository }}", named)
    if not page.startswith(EXECUTED):
        return
    name, notebook = page.removeprefix(EXECUTED), json.loads(source[0])
    links = {"download notebook": f"../../open/{name}.ipynb"}
    if repo:
        path = next(Path("notebooks").rglob(f"{name}.md")).as_posix()
        links |= {
            "open in Binder": f"https://mybinder.org/v2/gh/{repo}/main?urlpath=lab%2Ftree%2F{quote(path, '')}",
            "open in Colab": f"https://colab.research.google.com/github/{repo}/blob/gh-pages/open/{name}.ipynb",
            "edit source": f"https://github.com/{repo}/edit/main/{path}",
        }
    row = " ".join(f'<a href="{escape(target)}">{label}</a>' for label, target in links.items())
    title = notebook["cells"][0]
    head, heading, rest = re.split(r"^(# .*)", "".join(title["source"]), maxsplit=1, flags=re.MULTILINE)
    title["source"] = f'{head}{heading}\n\n<p class="open-in">{row}</p>\n{rest}'
    foot = {"cell_type": "markdown", "id": "origin", "metadata": {}, "source": origin(notebook["metadata"])}
    source[0] = json.dumps(notebook | {"cells": [*notebook["cells"], foot]})


def origin(metadata: dict[str, Any]) -> str:
    """When and from which commit a notebook was executed, with which parameters, and how to do it again: Markdown."""
    run = metadata["fedgo"]
    commit = f" from commit `{run['commit'][:12]}`" if run["commit"] else ""  # there is none without git
    values = ", ".join(f"`{name} = {value}`" for name, value in run["parameters"].items())
    made = f"Executed on {run['date'][:10]}{commit} in {run['seconds']:.0f} s."
    again = f"[Run this chapter again](/book/rerun.md) with these parameters or others: {values}."
    return f":::{{container}} origin\n{made} {again}\n:::"


def notebooks_to_open(app: Sphinx, failure: Exception | None) -> None:
    """Write every notebook, without outputs and with a cell that installs the package, into the site."""
    if failure or app.builder.format != "html":
        return
    folder = Path(app.outdir) / "open"
    folder.mkdir(exist_ok=True)
    package = f"fedgo[book] @ git+https://github.com/{repository(app)}" if repository(app) else ".[book]"
    for path in Path(app.srcdir, EXECUTED).glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        for cell in code:
            cell.outputs, cell.execution_count = [], None
        install = nbformat.v4.new_code_cell(INSTALL.replace("PACKAGE", package), id="install")
        notebook.cells.insert(notebook.cells.index(code[0]), install)
        nbformat.write(notebook, folder / path.name)


def without_thebe(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Drop the theme's scripts for live code: they are written twice, which is an error, and would ask another host."""
    files = context.get("script_files", [])
    context["script_files"] = [
        file for file in files if "thebe" not in f"{file} {getattr(file, 'attributes', '')}"
    ]


def setup(app: Sphinx) -> None:
    """What Sphinx calls."""
    app.add_config_value("fedgo_repository", "", "env")
    app.connect("source-read", annotate)
    app.connect("html-page-context", without_thebe, priority=900)
    app.connect("build-finished", notebooks_to_open)
