"""Lint and format the code of the notebooks as that of the package: `python book/lint.py [--fix] [NOTEBOOK ...]`.

The notebooks are MyST text, which ruff does not read; their code cells are handed to it as those of a Jupyter
notebook, so that it knows where a cell ends. Prints every fault in a line of its own and exits with 1 if there is one;
``--fix`` first mends what ruff can mend, in the text itself.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import jupytext

ROOT = Path(__file__).resolve().parents[1]
RUFF = (sys.executable, "-m", "ruff")
PROSE = "E501"  # the formatter keeps code to its width; what is longer is a string: the row of a table


def cells(text: str) -> list[str]:
    """The source of every code cell of a notebook's text."""
    return [cell.source for cell in jupytext.reads(text, fmt="md:myst").cells if cell.cell_type == "code"]


def as_notebook(sources: Iterable[str]) -> str:
    """A Jupyter notebook of these code cells."""
    empty: dict[str, object] = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    made = [empty | {"id": f"cell-{number}", "source": source} for number, source in enumerate(sources)]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def ruff(path: Path, sources: list[str], *arguments: str) -> str:
    """What ruff prints when it is given these cells as the notebook at ``path``."""
    name = ("--config", str(ROOT / "pyproject.toml"), "--stdin-filename", str(path.with_suffix(".ipynb")))
    done = subprocess.run(
        [*RUFF, *arguments, *name, "-"], input=as_notebook(sources), capture_output=True, text=True, cwd=ROOT,
        check=False,
    )  # fmt: skip
    if done.returncode > 1 or (done.returncode and not done.stdout):
        raise ValueError(f"{path}: {done.stderr.strip()}")
    return done.stdout


def mended(path: Path, sources: list[str]) -> list[str]:
    """The cells after ruff's own repairs and its formatter."""
    for arguments in (("check", "--fix", "--exit-zero", "--quiet"), ("format", "--quiet")):
        notebook = json.loads(ruff(path, sources, *arguments))
        sources = ["".join(cell["source"]) for cell in notebook["cells"]]
    return sources


def replaced(text: str, old: Iterable[str], new: Iterable[str]) -> str:
    """The text with every cell of ``old``, in their order, as in ``new``."""
    done = ""
    for before, after in zip(old, new, strict=True):
        head, found, text = text.partition(f"\n{before}\n```") if before else ("", "", text)
        done += head + found.replace(before, after)
    return done + text


def faults(path: Path, sources: list[str]) -> list[str]:
    """What ruff finds, and the cells that it would format, by their number among the code cells."""
    printed = ruff(path, sources, "check", "--extend-ignore", PROSE, "--output-format", "json")
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    found = [
        f"{name}, code cell {fault['cell']}, line {fault['location']['row']}: {fault['code']} {fault['message']}"
        for fault in json.loads(printed)
    ]
    formatted = json.loads(ruff(path, sources, "format", "--quiet"))["cells"]
    return found + [
        f"{name}, code cell {number} is not formatted: {next(iter(source.splitlines()), '')}"
        for number, (source, cell) in enumerate(zip(sources, formatted, strict=True), 1)
        if source != "".join(cell["source"])
    ]


def main(arguments: list[str] | None = None) -> None:
    """Lint the notebooks that are named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, metavar="NOTEBOOK")
    parser.add_argument("--fix", action="store_true", help="mend in place what can be mended")
    options = parser.parse_args(arguments)
    found = []
    for path in options.notebooks or sorted(ROOT.glob("notebooks/*.md")):
        text = path.read_text(encoding="utf-8")
        sources = cells(text)
        try:
            if options.fix:
                better = mended(path, sources)
                path.write_text(replaced(text, sources, better), encoding="utf-8")
                sources = better
            found += faults(path, sources)
        except ValueError as error:
            found.append(str(error))
    print("\n".join(found), end="\n" * bool(found))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
