"""Execute the chapters that are stale: `python book/execute.py [NAME ...] [--stale | --draft]`.

A chapter is text in `notebooks/`, or in `notebooks/beyond/` if the paper does not have its subject. Executed it is
`book/_executed/NAME.ipynb`: today's text with the outputs of its last run, and with the code of the package where the
text says

```{source} fedgo.confidence.first_order
```

It is stale when its code, a module of the package that it takes something from, the shipped data, the lock or
Python have changed since. A change of prose, captions, comments, docstrings or layout executes nothing.
"""

import argparse
import ast
import inspect
import json
import os
import platform
import re
import signal
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from pkgutil import resolve_name
from textwrap import dedent
from typing import Any

import jupytext
import matplotlib.font_manager  # noqa: F401 (lists the fonts, once; a kernel would say on stderr that it does)
import nbformat
import papermill
import psutil

from fedgo.experiments import code

TEXTS, EXECUTED, DRAFTS, TRACES = map(Path, ("notebooks", "book/_executed", "_build/draft", "book/_traces"))
SECONDS = Path("book/seconds.json")  # of every chapter, for a clone that has executed none
# Of a kernel: one thread, see book/choices.md, and the same order of sets every time.
ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
ENVIRONMENT["PYTHONHASHSEED"] = "0"
# What the newest torch tells everybody who imports BoTorch is no output of a chapter.
ENVIRONMENT["PYTHONWARNINGS"] = "ignore:`torch.jit.script` is deprecated:FutureWarning"


def text_of(name: str) -> Path:
    """Return the file of a chapter: the paper's are in `notebooks/`, the others in a folder below."""
    return next(TEXTS.rglob(f"{name}.md"))


def code_cells(notebook: Any) -> list[Any]:
    """The cells with code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def read_executed(name: str) -> Any:
    """The executed chapter; an empty notebook where there is none that can be read."""
    try:
        return nbformat.read(EXECUTED / f"{name}.ipynb", as_version=4)
    except (OSError, ValueError):
        return nbformat.v4.new_notebook(metadata={"fedgo": {}})


def depends_on(name: str) -> dict[str, str]:
    """What the outputs of a chapter depend on, each with its hash."""
    sources = [cell.source for cell in code_cells(jupytext.read(text_of(name)))]
    # A semicolon at the end of a cell is in no syntax tree, but shows no value.
    cells = [ast.dump(ast.parse(source, name)) + ";" * source.rstrip().endswith(";") for source in sources]
    package = Path("fedgo").resolve()
    modules = code.hashes(code.imported(ast.parse("\n".join(sources)), ""), package)
    # A chapter of the paper reads no table of fedgo.beyond.
    beyond = any(module.startswith("fedgo.beyond") for module in modules)
    data = sorted(path for path in package.rglob("data/*") if beyond or "beyond" not in path.parts)
    return {
        "its code": code.hash_of(cells),
        "the data": code.hash_of(part for path in data for part in (path.name, path.read_bytes())),
        "requirements.lock": code.hash_of([Path("requirements.lock").read_bytes()]),
        "Python": platform.python_version(),
        **modules,
    }


def why_stale(name: str) -> str:
    """What has changed since a chapter was executed; empty if nothing."""
    before, now = read_executed(name).metadata.fedgo.get("hash"), depends_on(name)
    if before is None:
        return "not executed yet"
    return ", ".join(part for part in {**now, **before} if now.get(part) != before.get(part))


def written_out(markdown: str) -> str:
    """``markdown`` with code as the package has it today, below a link to its place; an error where it is gone."""

    def code(found: re.Match[str]) -> str:
        lines = dedent(inspect.getsource(resolve_name(found[1]))).rstrip()
        return f":::{{container}} source-shown\n{{src}}`{found[1]}`\n\n```python\n{lines}\n```\n:::"

    return re.sub(r"^```\{source\} (.*)\n```$", code, markdown, flags=re.MULTILINE)


def write(name: str, text: Any, executed: Any) -> None:
    """Write the ``text`` of a chapter with the outputs of its ``executed`` code."""
    for cell, done in zip(code_cells(text), code_cells(executed), strict=True):
        cell.outputs, cell.execution_count = done.outputs, done.execution_count
    for number, cell in enumerate(text.cells):
        cell.id = f"cell-{number}"  # else a random one, and another file every time
        cell.source = cell.source if cell.cell_type == "code" else written_out(cell.source)
    text.metadata.update(language_info=executed.metadata.language_info, fedgo=executed.metadata.fedgo)
    path, content = EXECUTED / f"{name}.ipynb", nbformat.writes(text) + "\n"
    if not path.is_file() or path.read_text(encoding="utf-8") != content:  # Sphinx reads again what is newer
        path.write_text(content, encoding="utf-8")


def execute(name: str, draft: bool) -> float:
    """Execute a chapter, a draft with two runs; return the seconds that it took."""
    text, hashes = jupytext.read(text_of(name)), depends_on(name)
    executed = papermill.execute_notebook(
        text,
        DRAFTS / f"{name}.ipynb" if draft else None,
        {"runs": 2} if draft else {},
        kernel_name="python3",
        progress_bar=False,
        shutdown_kernel="immediate",  # an interrupt first would leave a message in the terminal
        extra_arguments=["--IPKernelApp.log_level=40"],  # no warning of sockets on this machine
    )
    seconds: float = executed.metadata.papermill.duration
    if draft:
        return seconds
    commit = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    executed.metadata.fedgo = {
        "hash": hashes,
        "parameters": {key: found["default"] for key, found in papermill.inspect_notebook(text).items()},
        "seconds": round(seconds, 1),
        "date": executed.metadata.papermill.start_time[:19],
        "commit": subprocess.run(commit, capture_output=True, text=True, check=False).stdout.strip(),
    }
    write(name, text, executed)
    return seconds


def execute_all(names: Sequence[str], draft: bool) -> None:
    """Execute chapters, two at a time and the longest first; the first that fails ends it."""
    seconds = dict.fromkeys(names, 30.0) | json.loads(SECONDS.read_text(encoding="utf-8"))
    seconds |= {name: read_executed(name).metadata.fedgo.get("seconds", seconds[name]) for name in names}
    left = sorted(names, key=lambda name: -seconds[name])
    print(f"{len(names)} chapters to execute", flush=True)
    with ThreadPoolExecutor(max_workers=2) as pool:
        jobs = {pool.submit(execute, name, draft): name for name in left}
        for number, job in enumerate(as_completed(jobs), 1):
            if error := job.exception():
                stop(f"{jobs[job]}: {error}")
            left.remove(jobs[job])
            about = sum(seconds[name] for name in left) / 2
            done = f"[{number}/{len(names)}] {jobs[job]} executed in {job.result():.0f} s"
            print(f"{done}, about {about:.0f} s left", flush=True)


def stop(why: str) -> None:
    """End this process, the kernels and what they have started."""
    print(f"The book was not executed. {why}", flush=True)
    for process in psutil.Process().children(recursive=True):
        process.kill()
    os._exit(1)


def main() -> None:
    """Do what the command line asks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these chapters")
    parser.add_argument("--stale", action="store_true", help="say what would be executed, and what changed")
    parser.add_argument("--draft", action="store_true", help=f"every chapter with two runs, into {DRAFTS}")
    options = parser.parse_args()
    chapters = sorted(path.stem for path in TEXTS.rglob("*.md"))
    names = options.names or chapters
    if unknown := set(names) - set(chapters):
        parser.error(f"there is no {unknown}: choose from {chapters}")
    stale = {name: "asked for" if options.draft else why_stale(name) for name in names}
    if options.stale:
        print("\n".join(f"{name}: {why}" for name, why in stale.items() if why) or "No chapter is stale.")
        return
    os.environ |= ENVIRONMENT | {"PYTHONPATH": os.getcwd(), "FEDGO_TRACES": str(TRACES.resolve())}
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop("It was told to stop."))
    for folder in (EXECUTED, DRAFTS):
        folder.mkdir(parents=True, exist_ok=True)
    if any(stale.values()):
        execute_all([name for name in names if stale[name]], options.draft)
    for name in [name for name in names if not stale[name]]:
        write(name, jupytext.read(text_of(name)), read_executed(name))


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parents[1])
    main()
