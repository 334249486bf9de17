"""The book's notebooks: their text in `notebooks/`, what came of executing it in `book/_executed/`, and the two as one.

The text is what is read and edited. An executed notebook is today's text with the outputs of a run put into its cells,
so that prose, captions and the layout of code are always those of the text.
"""

import ast
import contextlib
import json
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import papermill
from definitions import code, tree
from nbformat.validator import iter_validate

ROOT = Path(__file__).resolve().parents[1]
EXECUTED = "book/_executed"


class BuildError(Exception):
    """A fault that stops the build; its text is all that the user sees."""


def names(root: Path) -> list[str]:
    """Names of the notebooks that `_toc.yml` lists, in its order."""
    toc = (root / "_toc.yml").read_text(encoding="utf-8")
    found = re.findall(rf"^\s*- file: {EXECUTED}/(\w+)", toc, re.MULTILINE)
    if missing := [name for name in found if not text_path(root, name).is_file()]:
        raise BuildError(f"_toc.yml names notebooks that do not exist: {', '.join(missing)}")
    return found


def text_path(root: Path, name: str) -> Path:
    """Where the text of a notebook is."""
    return root / "notebooks" / f"{name}.md"


def executed_path(root: Path, name: str) -> Path:
    """Where the executed notebook of the book is."""
    return root / EXECUTED / f"{name}.ipynb"


def read_text(root: Path, name: str) -> Any:
    """The notebook that the text says, with no outputs."""
    return jupytext.read(text_path(root, name))


def read_executed(path: Path) -> Any:
    """The executed notebook at ``path``, or None where there is nothing that can be used."""
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text)
    except (OSError, ValueError):
        return None
    faults = iter_validate(found, version=4, version_minor=5) if isinstance(found, dict) else [found]
    return None if [*faults] else nbformat.v4.reads(text)


def code_cells(notebook: Any) -> list[Any]:
    """The cells with code, in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def parameters(notebook: Any) -> dict[str, str]:
    """The parameters that a notebook declares, as it writes their values."""
    return {name: found["default"] for name, found in papermill.inspect_notebook(notebook).items()}


def meaning(cell: Any) -> str:
    """What a cell does, without comments and layout: equal for two cells that give the same outputs."""
    source = cell.source
    role = "parameters" if "parameters" in cell.metadata.get("tags", []) else ""
    silent = ";" if source.rstrip().endswith(";") else ""  # IPython then shows no value
    magic = [line for line in source.splitlines() if line.lstrip().startswith(("%", "!"))]
    return "\n".join([role, ast.dump(tree(source)), silent, *magic])


def seal(cell: Any) -> str:
    """A hash of what a cell does and of its outputs."""
    found: str = code.digest([meaning(cell), json.dumps(cell.get("outputs", []), sort_keys=True)])
    return found


def where(index: int, source: str) -> str:
    """A cell as messages name it: its index and its first line that is not empty."""
    return f"cell {index} ({next((line.strip() for line in source.splitlines() if line.strip()), 'empty')})"


def joined(text: Any, run: Sequence[Any], metadata: dict[str, Any]) -> Any:
    """The notebook ``text`` with the outputs of the executed cells ``run``, one for every cell with code."""
    for cell, executed in zip(code_cells(text), run, strict=True):
        cell.outputs, cell.execution_count = executed.outputs, executed.execution_count
    for index, cell in enumerate(text.cells):
        cell.id = f"cell-{index}"  # else a random one, and a new file every time
    text.metadata.update(metadata)
    return text


def write(path: Path, content: str) -> None:
    """Put ``content`` at ``path`` at once or not at all; a file that has it already is not touched."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if path.read_text(encoding="utf-8") == content:
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=".partial", dir=path.parent)
    try:
        with open(handle, "w", encoding="utf-8") as stream:
            stream.write(content)
        os.chmod(partial, 0o644)
        os.replace(partial, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)


def tidy(folder: Path, now: float, hours: float = 1) -> None:
    """Remove what a run that was killed while it wrote has left in ``folder``."""
    for partial in folder.glob(".*.partial*"):
        with contextlib.suppress(FileNotFoundError):
            if now - partial.stat().st_mtime > 3600 * hours:
                partial.unlink()
