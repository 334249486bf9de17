"""Execute the notebooks that changed, check them, and build the HTML book.

What "changed" means is in `freshness.py`; the gates are in `gates.py`.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import chapters
import definitions
import execution
import freshness
import gates
import website
import yaml
from chapters import BuildError
from filelock import FileLock, Timeout
from schedule import Job, Progress, longest_first, run, spoken

ROOT = Path(__file__).resolve().parents[1]
SECONDS = "book/seconds.json"  # how long every notebook takes, for a clone that has executed none
DRAFT = "_build/draft"


def stale(root: Path, names: list[str]) -> dict[str, str]:
    """The notebooks that have to be executed, each with the reason."""
    now = definitions.package(root)
    reasons = {name: freshness.why_stale(root, name, now) for name in names}
    return {name: reason for name, reason in reasons.items() if reason}


def last_seconds(root: Path, names: list[str], folder: str = chapters.EXECUTED) -> dict[str, float]:
    """How long the last run of every notebook took, as far as known."""
    found: dict[str, float] = {}
    if folder == chapters.EXECUTED:
        with contextlib.suppress(OSError, ValueError):
            found |= json.loads((root / SECONDS).read_text(encoding="utf-8"))
    for name in names:
        executed = chapters.read_executed(root / folder / f"{name}.ipynb")
        with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
            found[name] = float(executed.metadata["fedgo"]["seconds"])
    return found


def execute_all(root: Path, jobs: list[Job], folder: str, limit: float) -> None:
    """Execute the ``jobs``, whose outputs are for ``folder``."""
    seconds = last_seconds(root, [job.name for job in jobs], folder)
    jobs = longest_first(jobs, seconds)
    start = time.monotonic()
    execution.prepare(root)
    run(root, jobs, Progress(jobs, seconds), limit)
    if jobs:
        print(f"{len(jobs)} notebooks executed in {spoken(time.monotonic() - start)}.", flush=True)


def check(root: Path, names: list[str]) -> None:
    """Put every page through the gates, and today's text around the outputs of the executed ones."""
    faults: list[str] = []
    for page in sorted([*(root / "notebooks").glob("*.md"), *(root / "book").glob("*.md")]):
        text, name = page.read_text(encoding="utf-8"), str(page.relative_to(root))
        faults += gates.typed_measurements(text, name) + gates.typed_chapters(text, name)
    reasons = stale(root, names)
    for name in names:
        if name in reasons:
            faults.append(f"notebook {name}: {reasons[name]}; run `make book`")
        else:
            executed = freshness.refresh(root, name)
            faults += gates.faults(executed, name) + gates.glued_gaps(executed, name)
    if faults:
        raise BuildError("\n".join(faults))


@contextlib.contextmanager
def alone(root: Path) -> Iterator[None]:
    """Wait until no other build of this tree is running, and keep others waiting."""
    (root / "_build").mkdir(exist_ok=True)
    lock = FileLock(root / "_build/build.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print("Another build of this book is running; waiting for its end.", flush=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def make_book(root: Path, names: list[str], everything: bool, limit: float) -> None:
    """Execute what changed, or everything; then check and build the pages."""
    chosen = {name: "" for name in names} if everything else stale(root, names)
    jobs = [Job(name, {}, chapters.executed_path(root, name)) for name in chosen]
    execute_all(root, jobs, chapters.EXECUTED, limit)
    check(root, names)
    print("Building the pages ...", flush=True)
    print(f"Open {website.build(root)}")


def make_draft(root: Path, names: list[str], limit: float) -> None:
    """Execute every notebook with two runs into a folder of its own."""
    jobs = [Job(name, {"runs": 2}, root / DRAFT / f"{name}.ipynb") for name in names]
    execute_all(root, jobs, DRAFT, limit)
    print(f"The drafts are in {root / DRAFT}.")


def execute_one(root: Path, names: list[str], options: argparse.Namespace) -> None:
    """Execute one notebook, if asked for with other parameters and to another place."""
    if options.only not in names:
        raise BuildError(f"no notebook '{options.only}' in _toc.yml; there are: {', '.join(names)}")
    parameters = {key: yaml.safe_load(value) for key, value in options.parameters}
    book = (root / chapters.EXECUTED).resolve()
    output = options.output.resolve() if options.output else book / f"{options.only}.ipynb"
    if parameters and output.is_relative_to(book):
        raise BuildError(
            f"{output} is a place of the book, which has the declared parameters; name another --output"
        )
    execution.prepare(root)
    execution.execute(root, options.only, parameters, output, options.limit)
    print(output)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", metavar="NAME", help="execute this notebook and stop, for instance problem")
    parser.add_argument(
        "-p", nargs=2, metavar=("NAME", "VALUE"), action="append", default=[], dest="parameters",
        help="a parameter of that notebook; needs --only and --output",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, help="where to put that notebook instead of in the book")
    parser.add_argument(
        "--no-execute", action="store_true", help="build from what is executed, refuse what is stale"
    )
    parser.add_argument("--stale", action="store_true", help="say what would be executed, and why")
    parser.add_argument("--draft", action="store_true", help=f"every notebook with two runs, to {DRAFT}")
    parser.add_argument(
        "--fresh", action="store_true", help="execute every notebook, without the store of traces"
    )
    parser.add_argument(
        "--limit", type=float, default=execution.LIMIT, metavar="SECONDS",
        help=f"the time that one cell may take, {execution.LIMIT} if not said",
    )  # fmt: skip
    parser.add_argument(
        "--note-seconds", action="store_true", help=f"write the times of the last run to {SECONDS}"
    )
    options = parser.parse_args(arguments)
    if options.parameters and not (options.only and options.output):
        parser.error(
            "-p needs --only and --output: the book is built with the parameters its notebooks declare"
        )
    if options.output and not options.only:
        parser.error("--output needs --only")
    return options


def main(arguments: list[str] | None = None) -> None:
    """Do what the command line asks."""
    options = parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("\nThe book was not built: it was told to stop."))
    execution.set_environment(ROOT, store=not options.fresh)
    try:
        names = chapters.names(ROOT)
        if options.stale:
            for name, reason in stale(ROOT, names).items():
                print(f"{name}: {reason}")
        elif options.note_seconds:
            seconds = {name: round(value) for name, value in last_seconds(ROOT, names).items()}
            chapters.write(ROOT / SECONDS, json.dumps(seconds, indent=1) + "\n")
        elif options.only:
            execute_one(ROOT, names, options)
        elif options.draft:
            make_draft(ROOT, names, options.limit)
        else:
            with alone(ROOT):
                chapters.tidy(ROOT / chapters.EXECUTED, time.time())
                if options.no_execute:
                    check(ROOT, names)
                    print("Building the pages ...", flush=True)
                    print(f"Open {website.build(ROOT)}")
                else:
                    make_book(ROOT, names, options.fresh, options.limit)
    except BuildError as error:
        sys.exit(f"\nThe book was not built: {error}")
    except OSError as error:
        sys.exit(f"\nThe book was not built: {error.strerror}: {error.filename}")
    except KeyboardInterrupt:
        os._exit(130)


if __name__ == "__main__":
    main()
