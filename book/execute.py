"""Execute the chapters that are stale: `python book/execute.py [NAME ...] [--stale | --draft]`.

A chapter is a text in `notebooks/`, or in `notebooks/beyond/` if the paper does not discuss its subject. The executed
chapter is the notebook `book/_executed/NAME.ipynb`. It has the text as it is today and the outputs of the last run of
its code. Where the text has a block such as

```{source} fedgo.confidence.first_order
```

the executed chapter shows the code of this object as it is in the package today, without its docstring.

A chapter is stale if one of these has changed since its last run: its code, a module of the package that it uses,
directly or through other modules, the shipped data, `requirements.lock`, or the version of Python. A change of prose,
captions, comments, docstrings or layout makes no chapter stale. An executed chapter that was edited is stale too: it
holds a hash of its outputs.

`book/seconds.json` has the seconds that each chapter took in one run of all of them. A working copy that has not
executed a chapter yet uses this number to begin with the longest chapters and to estimate the time that is left. Once
it has executed the chapter, it uses the time of its own last run. No command writes the file. It need not be exact, and
a chapter that it lacks is expected to take 30 seconds.
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
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from textwrap import dedent, shorten
from typing import Any

import grimp
import joblib
import jupytext
import matplotlib.font_manager  # noqa: F401 (it lists the fonts once; in a kernel a message of this would be an output)
import nbformat
import papermill
import psutil

from fedgo.beyond._files import whole
from fedgo.experiments.traces import bare

TEXTS, EXECUTED, DRAFTS, TRACES = map(Path, ("notebooks", "book/_executed", "_build/draft", "book/_traces"))
SECONDS = Path("book/seconds.json")
# The environment of every kernel: one thread, which is faster at these sizes, and the same order of sets in every run.
ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
ENVIRONMENT["PYTHONHASHSEED"] = "0"
# joblib would warn where /dev/shm may not be written, which must not become an output.
if Path("/dev/shm").exists() and not os.access("/dev/shm", os.W_OK):
    ENVIRONMENT["JOBLIB_MULTIPROCESSING"] = "0"
# The newest torch warns everybody who imports BoTorch, as does torch on Python 3.14. It must not become an output.
ENVIRONMENT["PYTHONWARNINGS"] = "ignore:`torch.jit.script` is"
# the parameters of a draft, as far as a chapter has them: two runs, few of other samples, and another seed
DRAFT = {"runs": 2, "seed": 1, "many": 5, "worlds": 20, "trials": 200, "draws": 400, "cover": 200}
WORKERS = joblib.cpu_count()  # chapters that are executed at the same time


def text_of(name: str) -> Path:
    """Return the path of the text of the chapter ``name``, which is in `notebooks/` or in a folder below it."""
    return next(TEXTS.rglob(f"{name}.md"))


def code_cells(notebook: Any) -> list[Any]:
    """Return the list of the code cells of ``notebook``, in their order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def read_executed(name: str) -> Any:
    """Return the executed chapter ``name``, or an empty notebook if its file is missing, damaged or edited."""
    try:
        executed = nbformat.read(EXECUTED / f"{name}.ipynb", as_version=4)
        if executed.metadata.fedgo["seal"] == seal(executed):
            return executed
    except Exception:  # whatever is wrong with the file, the chapter is executed again
        pass
    return nbformat.v4.new_notebook(metadata={"fedgo": {}})


def seal(executed: Any) -> str:
    """Return a hash of the outputs in an executed chapter and of what is written about its last run."""
    about = {key: value for key, value in executed.metadata.fedgo.items() if key != "seal"}
    outputs = [(cell.outputs, cell.execution_count) for cell in code_cells(executed)]
    return str(joblib.hash(json.dumps([about, outputs, executed.metadata.language_info], sort_keys=True)))


@cache
def imports() -> grimp.ImportGraph:
    """Return the graph of the imports between the modules of the package."""
    return grimp.build_graph("fedgo", cache_dir=None)


def modules_of(source: str) -> set[str]:
    """Return the modules of the package from which the code ``source`` takes something.

    A name that the ``__init__.py`` of a folder imports is of the module that defines it. Therefore another import in
    that file makes no chapter stale.
    """
    names, modules = [], imports().modules
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            above = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names += [above + alias.name for alias in node.names]
    found = set()
    for name in names:
        holder = name if name in modules else name.rpartition(".")[0]
        if holder != name and holder in modules and imports().find_children(holder):
            definer = getattr(resolve_name(name), "__module__", "")
            holder = definer if definer in modules else holder
        found |= {holder} & modules
    return found


def depends_on(name: str) -> dict[str, str]:
    """Return a dictionary of all that the outputs of the chapter ``name`` depend on, with a hash of each.

    The modules of the package from which the chapter itself takes something come before those that these use.
    """
    sources = [cell.source for cell in code_cells(jupytext.read(text_of(name)))]
    # A semicolon at the end of a cell hides the value of its last line, but the syntax tree does not have it.
    cells = [ast.dump(ast.parse(source, name)) + ";" * source.rstrip().endswith(";") for source in sources]
    own = modules_of("\n".join(sources))
    used = own.union(*map(imports().find_upstream_modules, own))
    files = {module: Path(*module.split(".")).with_suffix(".py") for module in used}
    files = {
        module: path if path.is_file() else path.with_suffix("") / "__init__.py"
        for module, path in files.items()
    }
    # Of the tables of fedgo.beyond, a chapter of the paper reads those that its code names.
    beyond = any(module.startswith("fedgo.beyond") for module in used)
    data = [
        path
        for path in sorted(Path("fedgo").rglob("data/**/*"))
        if path.is_file() and (beyond or "beyond" not in path.parts or f"'{path.stem}'" in "".join(cells))
    ]
    return {
        "its code": joblib.hash(cells),
        "the data": joblib.hash([(path.name, path.read_bytes()) for path in data]),
        "requirements.lock": joblib.hash(Path("requirements.lock").read_bytes()),
        "Python": platform.python_version(),
        **{
            module: joblib.hash(bare(files[module]))
            for module in sorted(used, key=lambda module: (module not in own, module))
        },
    }


def why_stale(name: str) -> str:
    """Return what has changed since the chapter ``name`` was executed, as text; it is empty if nothing has changed.

    Of the changed modules, those come first from which the chapter itself takes something. A long text is cut, and then
    ends with "…".
    """
    before, now = read_executed(name).metadata.fedgo.get("hash"), depends_on(name)
    if before is None:
        return "not executed yet, or edited since"
    changed = ", ".join(part for part in {**now, **before} if now.get(part) != before.get(part))
    return shorten(changed, 90, placeholder=" …")


def written_out(markdown: str) -> str:
    """Return ``markdown`` with the package's code of today in the place of each block ``{source}``, below a link to it.

    Raises:
        AttributeError: The package does not have an object of the given name.
        ModuleNotFoundError: It does not have a module of the given name.
    """

    def code(found: re.Match[str]) -> str:
        """Return the link and the code of the object that the block ``found`` names, as Markdown."""
        lines = dedent(inspect.getsource(resolve_name(found[1]))).rstrip().split("\n")
        (shown,) = ast.parse("\n".join(lines)).body
        if ast.get_docstring(shown):  # type: ignore[arg-type]  # it is a function or a class
            said = shown.body[0]  # type: ignore[attr-defined]
            del lines[said.lineno - 1 : said.end_lineno]
        code = "\n".join(lines)
        return f":::{{container}} source-shown\n{{src}}`{found[1]}`\n\n```python\n{code}\n```\n:::"

    return re.sub(r"^```\{source\} (.*)\n```$", code, markdown, flags=re.MULTILINE)


def write(name: str, text: Any, executed: Any) -> None:
    """Write the executed chapter ``name``: its ``text`` of today with the outputs of the notebook ``executed``.

    ``text`` is changed in place. The file is written only if its content changes, because Sphinx reads every page again
    whose file is newer.

    Raises:
        ValueError: The two notebooks have different numbers of code cells.
    """
    for cell, done in zip(code_cells(text), code_cells(executed), strict=True):
        cell.outputs, cell.execution_count = done.outputs, done.execution_count
    for number, cell in enumerate(text.cells):
        cell.id = f"cell-{number}"  # otherwise it is random, and the file differs every time
        cell.source = cell.source if cell.cell_type == "code" else written_out(cell.source)
    text.metadata.update(language_info=executed.metadata.language_info, fedgo=executed.metadata.fedgo)
    text.metadata.fedgo["seal"] = seal(nbformat.reads(nbformat.writes(text), as_version=4))
    path, content = EXECUTED / f"{name}.ipynb", nbformat.writes(text).encode() + b"\n"
    if not path.is_file() or path.read_bytes() != content:
        with whole(path, f"the chapter {name}") as file:
            file.write(content)


def has_parameters(name: str) -> bool:
    """Return whether the chapter ``name`` has parameters of a draft; without them a draft is the chapter again."""
    return bool(DRAFT.keys() & papermill.inspect_notebook(jupytext.read(text_of(name))).keys())


def execute(name: str, draft: bool) -> float:
    """Execute the chapter ``name``, write it to `book/_executed/`, and return the seconds that its execution took.

    As a ``draft`` it is executed with the parameters `DRAFT`, and is written to `_build/draft/` instead.

    Raises:
        papermill.PapermillExecutionError: A cell of the chapter raises an error.
    """
    text, hashes = jupytext.read(text_of(name)), depends_on(name)
    parameters = papermill.inspect_notebook(text)
    executed = papermill.execute_notebook(
        text,
        DRAFTS / f"{name}.ipynb" if draft else None,
        {key: value for key, value in DRAFT.items() if draft and key in parameters},
        progress_bar=False,
        shutdown_kernel="immediate",  # an interrupt first would leave a message in the terminal
        extra_arguments=["--IPKernelApp.log_level=40"],  # no warning that local sockets are not encrypted
    )
    seconds: float = executed.metadata.papermill.duration
    if draft:
        return seconds
    executed.metadata.fedgo = {
        "hash": hashes,
        "parameters": {key: found["default"] for key, found in parameters.items()},
        "seconds": round(seconds, 1),
        "date": executed.metadata.papermill.start_time[:19],
        "commit": commit(),
    }
    write(name, text, executed)
    return seconds


def commit() -> str:
    """Return the commit of the working copy, with a + if a file differs from it; it is empty without git."""
    command = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def execute_all(names: Sequence[str], draft: bool) -> None:
    """Execute the chapters ``names``, one on each core and the longest first, and print how far this has come.

    With ``draft`` they are executed as drafts. If a chapter fails, `stop` ends the process.
    """
    seconds = dict.fromkeys(names, 30.0) | json.loads(SECONDS.read_text(encoding="utf-8"))
    seconds |= {name: read_executed(name).metadata.fedgo.get("seconds", seconds[name]) for name in names}
    left = sorted(names, key=lambda name: -seconds[name])
    print(f"{len(names)} chapters to execute", flush=True)
    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        jobs = {pool.submit(execute, name, draft): name for name in left}
        for number, job in enumerate(as_completed(jobs), 1):
            if error := job.exception():
                stop(f"{jobs[job]}: {error}")
            left.remove(jobs[job])
            about = sum(seconds[name] for name in left) / WORKERS
            done = f"[{number}/{len(names)}] {jobs[job]} executed in {job.result():.0f} s"
            print(f"{done}, about {about:.0f} s left", flush=True)


def stop(why: str) -> None:
    """Print that the book was not executed and ``why``, and end this process with status 1.

    The kernels, and the processes that they have started, are killed first.
    """
    print(f"The book was not executed. {why}", flush=True)
    for process in psutil.Process().children(recursive=True):
        process.kill()
    os._exit(1)


def main() -> None:
    """Execute those chapters that are stale, of all or of those that the command line names.

    The text of today is put around the outputs of the others. With ``--stale`` the stale chapters are only listed. With
    ``--draft`` those that have parameters are executed as drafts, stale or not. The name of a chapter that does not
    exist ends the process with a message.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="the chapters; all if none is named")
    parser.add_argument("--stale", action="store_true", help="only list the stale chapters, with the reasons")
    parser.add_argument("--draft", action="store_true", help=f"execute with {DRAFT}, into {DRAFTS}")
    options = parser.parse_args()
    chapters = sorted(path.stem for path in TEXTS.rglob("*.md"))
    names = options.names or [name for name in chapters if not options.draft or has_parameters(name)]
    if unknown := set(names) - set(chapters):
        parser.error(f"there is no chapter {', '.join(unknown)}: choose from {', '.join(chapters)}")
    stale = {name: "asked for" if options.draft else why_stale(name) for name in names}
    if options.stale:
        print("\n".join(f"{name}: {why}" for name, why in stale.items() if why) or "No chapter is stale.")
        return
    os.environ |= ENVIRONMENT | {"PYTHONPATH": os.getcwd(), "FEDGO_TRACES": str(TRACES.resolve())}
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop("It was interrupted."))
    for folder in (EXECUTED, DRAFTS):
        folder.mkdir(parents=True, exist_ok=True)
    execute_all([name for name in names if stale[name]], options.draft)
    for name in [name for name in names if not stale[name]]:
        write(name, jupytext.read(text_of(name)), read_executed(name))


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parents[1])
    main()
