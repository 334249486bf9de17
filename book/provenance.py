"""What every executed page says of itself: links to run it, the line that drew each figure, and a foot with its origin.

Nothing of this is in the notebooks: it is added while Sphinx reads them, from the stamp that `build.py` left in their
metadata, and the notebooks to download and to open elsewhere are written beside the pages.
"""

import json
import os
import re
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jupytext
import nbformat
from source_links import page_name, written_out
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

ROOT = Path(__file__).resolve().parents[1]
EXECUTED = "book/_executed/"
ONE_PANEL = (
    540  # points; a phone shows what is wider through a window that scrolls, or its text would be too small
)
OPEN = "open"  # the folder of the site with notebooks to open elsewhere


def notebook_names(environment: BuildEnvironment) -> list[str]:
    """The notebooks that have a page in the book."""
    return sorted(name.removeprefix(EXECUTED) for name in environment.found_docs if name.startswith(EXECUTED))


def repository(configured: str) -> str:
    """owner/name on GitHub: what the machine that builds says, else what `_config.yml` says; empty if nobody knows."""
    return os.environ.get("GITHUB_REPOSITORY") or configured


def links(name: str, repo: str, branch: str) -> dict[str, str]:
    """Where each button of the page of notebook ``name`` leads: to hosts only if the repository is known."""
    lab = quote(f"lab/tree/notebooks/{name}.md", safe="")
    hosts = {
        "open in Binder": f"https://mybinder.org/v2/gh/{repo}/{branch}?urlpath={lab}",
        "open in Colab": f"https://colab.research.google.com/github/{repo}/blob/gh-pages/{OPEN}/{name}.ipynb",
        "edit source": f"https://github.com/{repo}/edit/{branch}/notebooks/{name}.md",
    }
    return {"download notebook": f"../../{OPEN}/{name}.ipynb"} | (hosts if repo else {})


def first_lines(text: str, cells: list[Any]) -> list[int]:
    """The line of ``text``, the notebook's own, at which each of its ``cells`` begins."""
    lines, position = [], 0
    for cell in cells:
        found = text.find("".join(cell["source"]).strip("\n"), position)
        position = found if found >= 0 else position
        lines.append(text.count("\n", 0, position) + 1)
    return lines


def width(cell: dict[str, Any]) -> float:
    """The width in points of the drawing among a cell's outputs."""
    drawings = ["".join(out.get("data", {}).get("image/svg+xml", "")) for out in cell["outputs"]]
    return max(
        [float(found[1]) for text in drawings if (found := re.search(r'width="([\d.]+)pt"', text))], default=0
    )


def annotate(app: Sphinx, docname: str, source: list[str]) -> None:
    """Add the links below the title, the source to every figure's caption, and the foot."""
    if not docname.startswith(EXECUTED):
        return
    name = docname.removeprefix(EXECUTED)
    notebook = json.loads(source[0])
    stamp = notebook["metadata"]["fedgo"]
    text = (ROOT / f"notebooks/{name}.md").read_text(encoding="utf-8")
    shown = f"../../{page_name(f'notebooks/{name}.md')}.html"
    for cell, line in zip(notebook["cells"], first_lines(text, notebook["cells"]), strict=True):
        figure = cell["metadata"].get("mystnb", {}).get("figure")
        if figure:
            drawn = f'<a class="drawn-by" href="{shown}#line-{line}">source</a>'
            figure["caption"] = f"{figure['caption'].rstrip()} {drawn}"
            if width(cell) > ONE_PANEL:
                figure["classes"] = "wide"
    title = notebook["cells"][0]
    head, _, rest = ("\n" + "".join(title["source"])).partition("\n# ")
    heading, _, rest = rest.partition("\n")
    buttons = links(name, repository(app.config.fedgo_repository), app.config.fedgo_branch)
    row = " ".join(f'<a href="{escape(target)}">{label}</a>' for label, target in buttons.items())
    title["source"] = f'{head}\n# {heading}\n\n<p class="open-in">{row}</p>\n{rest}'
    notebook["cells"].append(
        {"cell_type": "markdown", "id": "origin", "metadata": {}, "source": foot(stamp, shown)}
    )
    source[0] = json.dumps(notebook)


def foot(stamp: dict[str, Any], shown: str) -> str:
    """Commit, hashes, parameters, run time, date and stored traces of a page, as HTML."""
    parameters = ", ".join(f"{key} = {value}" for key, value in stamp["parameters"].items()) or "none"
    facts = {
        "commit": f"<code>{escape(stamp['commit'] or 'no repository')}</code>",
        "notebook": f'<a href="{shown}"><code>{stamp["notebook"][:12]}</code></a>',
        "package": f"<code>{stamp['package'][:12]}</code>",
        "lock": f"<code>{stamp['lock'][:12]}</code>",
        "Python": escape(stamp["python"]),
        "parameters": f"<code>{escape(parameters)}</code>",
        "run time": f"{stamp['seconds']:.0f} s",
        "executed": f"<time>{escape(stamp['date'])}</time>",
    }
    items = "".join(f"<div><dt>{key}</dt><dd>{value}</dd></div>" for key, value in facts.items())
    traces = stored(stamp["traces"])
    return f'<footer class="origin" aria-label="Where this page comes from"><dl>{items}</dl>{traces}</footer>'


def stored(traces: list[dict[str, Any]]) -> str:
    """The stored traces that a page read, and when they were made, as HTML; empty if there are none."""
    if not traces:
        return ""
    rows = "".join(
        f"<li>{escape(trace['problem'])}, {escape(trace['algorithm'])}, {trace['runs']} runs of seed "
        f"{trace['seed']}: made <time>{escape(trace['made'])}</time> by code <code>{trace['code'][:12]}</code></li>"
        for trace in traces
    )
    return f"<details><summary>Stored traces that this page read: {len(traces)}</summary><ul>{rows}</ul></details>"


def notebooks_to_open(app: Sphinx, failure: Exception | None) -> None:
    """Write every notebook, without outputs and with a cell that installs the package, into the site."""
    if failure or app.builder.format != "html":
        return
    folder = Path(app.outdir) / OPEN
    folder.mkdir(exist_ok=True)
    repo = repository(app.config.fedgo_repository)
    package = f"fedgo[book] @ git+https://github.com/{repo}"
    install = (
        "# Where fedgo is not installed, as on Colab: install it, then restart the kernel if asked to.\n"
        f'try:\n    import fedgo\nexcept ImportError:\n    %pip install --quiet "{package}"'
        if repo
        else "# Where fedgo is not installed: pip install '.[book]', in the folder of fedgo's sources.\nimport fedgo"
    )
    for name in notebook_names(app.env):
        notebook = jupytext.read(ROOT / f"notebooks/{name}.md")
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = written_out(cell.source)
        notebook.cells.insert(1, nbformat.v4.new_code_cell(install))
        for index, cell in enumerate(notebook.cells):
            cell.id = f"cell-{index}"  # else a random one
        nbformat.write(notebook, folder / f"{name}.ipynb")


def without_thebe(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Drop the theme's live-code scripts: they are written twice, which is an error, and would ask another host."""
    files = context.get("script_files", [])
    context["script_files"] = [
        f for f in files if "thebe" not in f"{f} {getattr(f, 'attributes', '')}".lower()
    ]


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_config_value("fedgo_repository", "", "env")
    app.add_config_value("fedgo_branch", "main", "env")
    app.connect("source-read", annotate)
    app.connect("html-page-context", without_thebe, priority=900)
    app.connect("build-finished", notebooks_to_open)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
