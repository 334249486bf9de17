"""Say on every executed chapter where else it can be opened, and write the notebooks for that.

Below the title of an executed chapter are links to it as a notebook, and a line at its foot says from which run the
page is. The notebooks are in the folder ``open/`` of the site. On every page {{ repository }} becomes a link to the
repository, or says that its address is not set.
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
# What is installed stays as it is: Colab's kernel does not survive another IPython or NumPy.
INSTALL = """# If fedgo is not installed, as on Colab, this installs it, with BoTorch.
try:
    import fedgo
except ImportError:
    %pip install --quiet --no-deps "PACKAGE"
    %pip install --quiet botorch
"""


def repository(app: Sphinx) -> str:
    """Return the repository on GitHub as "owner/name", or an empty text if it is not known.

    It is the environment variable ``GITHUB_REPOSITORY``, which GitHub sets when it builds the book; if that is not set,
    it is the entry ``fedgo_repository`` of `_config.yml`.
    """
    return os.environ.get("GITHUB_REPOSITORY") or app.config.fedgo_repository


def annotate(app: Sphinx, page: str, source: list[str]) -> None:
    """Change the ``source`` of a page in place: name the repository, and add links and a line to an executed chapter.

    The links are below the title, and the line at the foot says from which run the page is (`origin`). If the
    repository is not known, the only link is the one to the notebook in the site.
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
    """Return a line in Markdown about the run of a chapter, from the ``metadata`` of its notebook.

    It says when the notebook was executed, from which commit, in how many seconds and with which parameters, if it has
    any, and links to the page on running it again.
    """
    run = metadata["fedgo"]
    commit = f" from commit `{run['commit'][:12]}`" if run["commit"] else ""  # without git no commit is known
    values = ", ".join(f"`{name} = {value}`" for name, value in run["parameters"].items())
    made = f"Executed on {run['date'][:10]}{commit} in {run['seconds']:.0f} s."
    with_these = f" with these parameters or others: {values}" if values else ""
    return f":::{{container}} origin\n{made} [Run this chapter again](/book/rerun.md){with_these}.\n:::"


def notebooks_to_open(app: Sphinx, failure: Exception | None) -> None:
    """Write every executed chapter into the site as a notebook without outputs, with a cell that installs the package.

    Nothing is written if the build has failed or does not make HTML.
    """
    if failure or app.builder.format != "html":
        return
    folder = Path(app.outdir) / "open"
    folder.mkdir(exist_ok=True)
    package = f"fedgo @ git+https://github.com/{repository(app)}" if repository(app) else "."
    for path in Path(app.srcdir, EXECUTED).glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        for cell in code:
            cell.outputs, cell.execution_count = [], None
        install = nbformat.v4.new_code_cell(INSTALL.replace("PACKAGE", package), id="install")
        notebook.cells.insert(notebook.cells.index(code[0]), install)
        nbformat.write(notebook, folder / path.name)


def without_thebe(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Remove the theme's scripts for live code from the ``context`` of a page.

    The theme adds them twice, which is an error in a page, and they would ask another host.
    """
    files = context.get("script_files", [])
    context["script_files"] = [
        file for file in files if "thebe" not in f"{file} {getattr(file, 'attributes', '')}"
    ]


def setup(app: Sphinx) -> None:
    """Register the setting and the functions of this module with Sphinx, which calls this function."""
    app.add_config_value("fedgo_repository", "", "env")
    app.connect("source-read", annotate)
    app.connect("html-page-context", without_thebe, priority=900)
    app.connect("build-finished", notebooks_to_open)
