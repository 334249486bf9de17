"""Execute the notebooks that changed through papermill, check them, and build the HTML book.

An executed notebook is fresh while sha256(notebook), sha256(package), sha256(lock) and the Python version are
those of the stamp in its metadata (`metadata.fedgo`); only the others are executed again.
"""

import argparse
import datetime
import hashlib
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import papermill
import yaml
from nbclient.exceptions import DeadKernelError
from papermill.exceptions import PapermillExecutionError

ROOT = Path(__file__).resolve().parents[1]
EXECUTED = "book/_executed"
FINGERPRINT = ("notebook", "package", "lock", "python")


class BuildError(Exception):
    """A fault that stops the build; its text is all that the user sees."""


def kernel_environment(executed: Path) -> dict[str, str]:
    """Variables for the kernels: one thread (see book/choices) and nobody's own configuration."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return threads | {
        "PYTHONHASHSEED": "0",
        "JUPYTER_PREFER_ENV_PATH": "1",  # a kernel "python3" in the user's home must not win over .venv's
        "JUPYTER_PATH": "",
        "IPYTHONDIR": str(executed / ".ipython"),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",  # MPLBACKEND=agg would leave no images
    }


def notebook_names(root: Path) -> list[str]:
    """Names of the notebooks that `_toc.yml` lists, in its order."""
    toc = (root / "_toc.yml").read_text(encoding="utf-8")
    found = re.findall(rf"^\s*- file: {EXECUTED}/(\w+)", toc, re.MULTILINE)
    if missing := [name for name in found if not (root / "notebooks" / f"{name}.md").is_file()]:
        raise BuildError(f"_toc.yml names notebooks that do not exist: {', '.join(missing)}")
    return found


def sha256(root: Path, files: Iterable[Path]) -> str:
    """Hash of the files' paths below `root` and their contents."""
    digest = hashlib.sha256()
    for file in sorted(files):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def fingerprint(root: Path, name: str) -> dict[str, str]:
    """What the outputs of notebook `name` depend on."""
    package = [
        *(root / "fedgo").rglob("*.py"),
        *(p for p in (root / "fedgo/paper/data").glob("*") if p.is_file()),
    ]
    return {
        "notebook": sha256(root, [root / "notebooks" / f"{name}.md"]),
        "package": sha256(root, package),
        "lock": sha256(root, [root / "requirements.lock"]),
        "python": platform.python_version(),
    }


def commit(root: Path) -> str:
    """The commit the sources are at, with `+` where they differ from it; empty outside a git repository."""
    command = ["git", "-C", str(root), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def read_executed(root: Path, name: str) -> Any:
    """The executed notebook, or None where there is none that can be read."""
    try:
        return nbformat.read(root / EXECUTED / f"{name}.ipynb", as_version=4)
    except (OSError, ValueError):
        return None


def is_fresh(root: Path, name: str) -> bool:
    """Whether the executed notebook exists and carries the current fingerprint."""
    executed = read_executed(root, name)
    stamp = executed.metadata.get("fedgo", {}) if executed else {}
    return {key: stamp.get(key) for key in FINGERPRINT} == fingerprint(root, name)


def where(index: int, source: str) -> str:
    """A cell as messages name it: its index and its first line that is not empty."""
    return f"cell {index} ({next((line.strip() for line in source.splitlines() if line.strip()), 'empty')})"


# The gates: each returns the faults it finds, as sentences.


def unknown_parameters(source: Any, name: str, parameters: Mapping[str, Any]) -> list[str]:
    """Gate: papermill only logs a parameter that the notebook does not declare."""
    declared = papermill.inspect_notebook(source)
    return [
        f"notebook {name} has no parameter '{key}'; it has: {', '.join(declared) or 'none'}"
        for key in parameters
        if key not in declared
    ]


def error_outputs(executed: Any, name: str) -> list[str]:
    """Gate: a notebook with an error among its outputs renders without complaint."""
    return [
        f"notebook {name}, {where(index, cell.source)}: error output {output.ename}: {output.evalue}"
        for index, cell in enumerate(executed.cells)
        for output in cell.get("outputs", [])
        if output.output_type == "error"
    ]


def missing_figures(executed: Any, name: str) -> list[str]:
    """Gate: a figure whose formatter failed leaves no image; a figure needs a text that says what is seen."""
    faults = []
    for index, cell in enumerate(executed.cells):
        options = cell.metadata.get("mystnb", {})
        if "figure" not in options:
            continue
        cell_name = f"notebook {name}, {where(index, cell.source)}"
        shown = [" ".join(out["data"]) for out in cell.get("outputs", []) if out.get("data")]
        if not any("image/" in mimes for mimes in shown):
            faults.append(f"{cell_name}: declares a figure but has no image among its outputs")
        elif sum("papermill.record" not in mimes for mimes in shown) > 1:
            faults.append(f"{cell_name}: shows more than its figure; end the last line with ';'")
        if not options.get("image", {}).get("alt"):
            faults.append(f"{cell_name}: its figure has no mystnb.image.alt")
    return faults


def stale(root: Path, name: str) -> list[str]:
    """Gate: a page must come from the sources that are there now."""
    if is_fresh(root, name):
        return []
    known = (root / EXECUTED / f"{name}.ipynb").exists()
    state = "changed since it was executed" if known else "has not been executed"
    return [f"notebook {name} {state}; run `make book`"]


def prose(text: str) -> list[str]:
    """The lines of a page, those of its header and of fenced blocks empty; statements ({prf:…}) are prose too."""
    lines, fences = [], ["---"] if text.startswith("---") else []
    for number, line in enumerate(text.splitlines()):
        fence = re.match(r"(`{3,}|:{3,}|---)(.*)", line)
        closing = bool(fence and fences and fence[1] == fences[-1].lstrip("+") and not fence[2] and number)
        visible = not closing and all(kept.startswith("+") for kept in fences)
        if closing:
            fences.pop()
        elif fence and visible and fence[1] != "---":
            fences.append(("+" if fence[2].startswith("{prf") else "") + fence[1])
        lines.append(line if visible and not fence else "")
    return lines


def typed_measurements(text: str, name: str) -> list[str]:
    """Gate: a number in prose is glued, or stands in a formula ($…$) because it is a constant, not a measurement."""
    marked = r"\$\$.*?\$\$|\$[^$]+\$|\{[\w:-]+\}`[^`]*`|`[^`]*`|\]\([^)]*\)"
    number = r"±\s*\d|\b\d+\.\d+\b|\b\d[\d,]*\s*(?:%|percent|times|seconds|million)"
    # "95 %" is the level of every interval in the book and "Section 5.1" a place in the paper: no measurements
    kept = re.sub(
        marked,
        lambda found: "\n" * found.group().count("\n"),
        re.sub(r"95\s*%|Sections? \d\.\d", "", "\n".join(prose(text))),
        flags=re.DOTALL,
    )
    return [
        f"{name}, line {kept.count(chr(10), 0, found.start()) + 1}: the number '{found.group()}' is typed into prose; "
        "glue what was measured, and write a constant as a formula, $…$"
        for found in re.finditer(number, kept)
    ]


def execute(root: Path, name: str, parameters: Mapping[str, Any], output: Path) -> None:
    """Run notebook `name`; put it, stamped and checked, at `output`, which a fault leaves as it was."""
    stamp = fingerprint(root, name)  # before reading: an edit made from here on leaves the output stale
    source = jupytext.read(root / "notebooks" / f"{name}.md")
    if faults := unknown_parameters(source, name, parameters):
        raise BuildError("\n".join(faults))
    values = {key: declared["default"] for key, declared in papermill.inspect_notebook(source).items()}
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(f".{output.stem}.partial.ipynb")
    start = time.perf_counter()
    try:
        executed = papermill.execute_notebook(
            source,
            partial,
            parameters=dict(parameters),
            kernel_name="python3",
            cwd=root,
            extra_arguments=["--IPKernelApp.log_level=40"],  # no warning about local TCP in the progress bar
        )
        executed.metadata["fedgo"] = stamp | {
            "parameters": values | {key: repr(value) for key, value in parameters.items()},
            "commit": commit(root),
            "seconds": round(time.perf_counter() - start, 1),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        if faults := error_outputs(executed, name) + missing_figures(executed, name):
            raise BuildError("\n".join(faults))
        executed.metadata.pop("papermill", None)  # holds paths of this machine
        nbformat.write(executed, partial)
        partial.replace(output)
    except PapermillExecutionError as error:
        tail = "\n".join(f"    {line}" for line in f"{error.ename}: {error.evalue}".splitlines()[-5:])
        raise BuildError(
            f"notebook {name} failed at {where(error.cell_index, error.source)}:\n{tail}"
        ) from None
    except DeadKernelError as error:
        raise BuildError(f"notebook {name}: its kernel died (out of memory?): {error}") from None
    finally:
        partial.unlink(missing_ok=True)


def execute_changed(root: Path, names: Iterable[str]) -> list[str]:
    """Execute the notebooks that are not fresh, two at a time, the later (longer) ones first; return their names."""
    changed = [name for name in names if not is_fresh(root, name)]
    with ProcessPoolExecutor(2) as pool:
        running = {
            pool.submit(execute, root, name, {}, root / EXECUTED / f"{name}.ipynb"): name
            for name in reversed(changed)
        }
        try:
            for number, finished in enumerate(as_completed(running), 1):
                finished.result()
                print(f"[{number}/{len(changed)}] notebooks/{running[finished]}.md", flush=True)
        except BuildError:
            pool.shutdown(cancel_futures=True)
            raise
    return changed


def check(root: Path, names: Iterable[str]) -> None:
    """Put every executed notebook through the gates."""
    faults: list[str] = []
    for page in sorted([*(root / "notebooks").glob("*.md"), *(root / "book").glob("*.md")]):
        faults += typed_measurements(page.read_text(encoding="utf-8"), str(page.relative_to(root)))
    for name in names:
        if not (found := stale(root, name)):
            executed = read_executed(root, name)
            found = error_outputs(executed, name) + missing_figures(executed, name)
        faults += found
    if faults:
        raise BuildError("\n".join(faults))


def build_html(root: Path) -> Path:
    """Build every page (a partial build leaves old side bars), warnings as errors; return the front page."""
    program = str(Path(sys.executable).with_name("jupyter-book"))
    command = [program, "build", ".", "--all", "-W", "-n", "--keep-going", "-q"]
    done = subprocess.run(
        command, cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        lines = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).splitlines()
        faults = [line for line in lines if "WARNING" in line or "ERROR" in line]
        raise BuildError("the HTML build failed:\n" + "\n".join(faults or lines[-20:]))
    return root / "_build/html/index.html"


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and do what it asks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--only", metavar="NAME", help="execute this notebook and stop, for instance 01_problem"
    )
    parser.add_argument(
        "-p", nargs=2, metavar=("NAME", "VALUE"), action="append", default=[], dest="parameters",
        help="a parameter of that notebook; needs --only and --output",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, help="where to put that notebook instead of in the book")
    parser.add_argument(
        "--no-execute", action="store_true", help="build from what is executed, refuse what is stale"
    )
    options = parser.parse_args(arguments)
    if options.parameters and not (options.only and options.output):
        parser.error(
            "-p needs --only and --output: the book is built with the parameters its notebooks declare"
        )
    if options.output and not options.only:
        parser.error("--output needs --only")

    os.environ.update(kernel_environment(ROOT / EXECUTED))
    try:
        names = notebook_names(ROOT)
        if options.only:
            if options.only not in names:
                raise BuildError(f"no notebook '{options.only}' in _toc.yml; there are: {', '.join(names)}")
            parameters = {key: yaml.safe_load(value) for key, value in options.parameters}
            output = options.output.resolve() if options.output else ROOT / EXECUTED / f"{options.only}.ipynb"
            execute(ROOT, options.only, parameters, output)
            print(output)
            return
        if not options.no_execute:
            execute_changed(ROOT, names)
        check(ROOT, names)
        print("Building the pages ...", flush=True)
        print(f"Open {build_html(ROOT)}")
    except BuildError as error:
        sys.exit(f"\nThe book was not built: {error}")


if __name__ == "__main__":
    main()
