"""Build the pages with Jupyter Book, and remember of which sources a good site was built."""

import gc
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import chapters
import yaml
from chapters import BuildError

SITE = "_build/html"
GOOD = "_build/good.json"
REDIRECT = '<meta http-equiv="Refresh" content="0; url={front}.html" />\n'
# A page is read from one of these; all the rest is the frame of every page.
PAGES = ("book/**/*.md", "book/_executed/*.ipynb", "notebooks/*.md")
FRAME = ("_toc.yml", "_config.yml", "requirements.lock", "book/**/*", "fedgo/**/*")


def files(root: Path, patterns: Iterable[str]) -> list[Path]:
    """The sources that match one of the patterns, without what is hidden, compiled or only stored."""
    passed_over = re.compile(r"(^|/)(\.|__pycache__/|_traces/)")
    found = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    return sorted(path for path in found if not passed_over.search(path.relative_to(root).as_posix()))


def fingerprint(root: Path, paths: Iterable[Path]) -> str:
    """A hash of the paths below ``root`` and of what the files hold."""
    digest = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def sources(root: Path) -> dict[str, str]:
    """What the site is made of: its pages, and what each of them may depend on, such as which pages there are."""
    pages = files(root, PAGES)
    frame = [path for path in files(root, FRAME) if path not in pages]
    names = [path.relative_to(root).as_posix() for path in pages]
    around = (
        fingerprint(root, frame),
        *names,
        platform.python_version(),
        os.environ.get("GITHUB_REPOSITORY"),
    )
    return {"pages": fingerprint(root, pages), "frame": hashlib.sha256(repr(around).encode()).hexdigest()}


def last_good(root: Path) -> dict[str, str]:
    """The sources of the last build if that was good, else nothing."""
    try:
        found = json.loads((root / GOOD).read_text(encoding="utf-8"))
        return {part: found[part] for part in ("pages", "frame")}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def why_not_good(root: Path) -> str:
    """Why the built site must not be taken for the book; empty if it may."""
    built = last_good(root)
    if not built:
        return "the last build of the book failed, or there was none; run `make book` first"
    if built != sources(root):
        return "the sources changed since the book was built; run `make book` first"
    return ""


def build(root: Path) -> Path:
    """Build the pages, warnings as errors; return the front page.

    After a good build with the same frame only the pages that changed are read again. All are written, for what is
    read in one (titles, numbers, glued values, places of labels) is shown in others. In every other case nothing is
    used again, and nothing stays of pages that are gone.
    """
    now = sources(root)
    afresh = last_good(root).get("frame") != now["frame"]
    (root / GOOD).unlink(missing_ok=True)
    if afresh:
        shutil.rmtree(root / SITE, ignore_errors=True)
    command = [sys.executable, str(Path(__file__).resolve()), str(root), *["--afresh"] * afresh]
    done = subprocess.run(
        command, cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        lines = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).splitlines()
        faults = [line for line in lines if "WARNING" in line or "ERROR" in line]
        raise BuildError("the HTML build failed:\n" + "\n".join(faults or lines[-20:]))
    chapters.write(root / GOOD, json.dumps(now) + "\n")
    return root / SITE / "index.html"


def main(root: Path, afresh: bool) -> None:
    """What `jupyter-book build . -W -n --keep-going -q` does, but all pages are written, and none read for nothing."""
    from jupyter_book.sphinx import build_sphinx  # by this program only: it takes a second to load

    gc.disable()  # or half of the time is spent looking for cycles among millions of nodes that are in use
    done = build_sphinx(
        root,
        root / SITE,
        noconfig=True,
        path_config=root / "_config.yml",
        confoverrides={
            "external_toc_path": str(root / "_toc.yml"),
            "latex_individualpages": False,
            "nitpicky": True,
        },
        builder="html",
        warningiserror=True,
        keep_going=True,
        quiet=True,
        freshenv=afresh,
        force_all=True,
    )
    front = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))["root"]
    (root / SITE / "index.html").write_text(REDIRECT.format(front=front), encoding="utf-8")
    sys.exit(bool(done))


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--afresh" in sys.argv)
