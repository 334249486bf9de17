"""Build the pages with Jupyter Book, and remember of which sources a good site was built."""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from chapters import BuildError, write

GOOD = "_build/good.json"
SOURCES = ("_toc.yml", "_config.yml", "book/**/*", "notebooks/*.md", "fedgo/**/*.py")


def sources(root: Path) -> Iterator[Path]:
    """Every file that the pages are made of."""
    for pattern in SOURCES:
        for path in sorted(root.glob(pattern)):
            parts = path.relative_to(root).parts
            visible = not any(part.startswith(".") or part in ("__pycache__", "_traces") for part in parts)
            if path.is_file() and visible:
                yield path


def fingerprint(root: Path) -> str:
    """A hash of the sources."""
    digest = hashlib.sha256()
    for path in sources(root):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def why_not_good(root: Path) -> str:
    """Why the built site must not be taken for the book; empty if it may."""
    try:
        built = json.loads((root / GOOD).read_text(encoding="utf-8"))["sources"]
    except (OSError, ValueError, KeyError, TypeError):
        return "the last build of the book failed, or there was none; run `make book` first"
    if built != fingerprint(root):
        return "the sources changed since the book was built; run `make book` first"
    return ""


def build(root: Path) -> Path:
    """Build the pages, warnings as errors; return the front page."""
    (root / GOOD).unlink(missing_ok=True)
    before = fingerprint(root)
    program = str(Path(sys.executable).with_name("jupyter-book"))
    command = [program, "build", ".", "--all", "-W", "-n", "--keep-going", "-q"]
    done = subprocess.run(
        command, cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        lines = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).splitlines()
        faults = [line for line in lines if "WARNING" in line or "ERROR" in line]
        raise BuildError("the HTML build failed:\n" + "\n".join(faults or lines[-20:]))
    write(root / GOOD, json.dumps({"sources": before}) + "\n")
    return root / "_build/html/index.html"
