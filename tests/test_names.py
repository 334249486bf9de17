"""Every name of the package that a page, a README or a docstring mentions exists, and the README's commands work."""

import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAME = re.compile(r"(?<![\w./-])fedgo(?:\.[A-Za-z_]\w*)+(?![\w/])")
FILES = {"csv", "fitted", "json", "md", "py", "toml", "yml"}  # the last parts of names of files
BUILT = {"flare"}  # needs NVFlare, which has an environment of its own


def texts() -> list[Path]:
    """The pages, the chapters, the READMEs and the package."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("fedgo/**/*.md"), *ROOT.glob("fedgo/**/*.py")]
    return [*found, *ROOT.glob("book/**/*.md"), *ROOT.glob("notebooks/**/*.md")]


def exists(name: str) -> bool:
    """Whether ``name`` is a module, what one has, or a field, a parameter or an attribute of one of these."""
    try:
        resolve_name(name)
        return True
    except (ImportError, AttributeError):
        above, _, last = name.rpartition(".")
    try:
        owner = resolve_name(above)
    except (ImportError, AttributeError):
        return False
    if isinstance(owner, type):
        known = {field for each in inspect.getmro(owner) for field in vars(each).get("__annotations__", ())}
        return last in known | {*inspect.signature(owner).parameters}
    return callable(owner) and last in inspect.signature(owner).parameters


@pytest.mark.slow
def test_every_dotted_name_of_the_package_exists() -> None:
    named: dict[str, list[str]] = {}
    for path in texts():
        for name in NAME.findall(path.read_text("utf-8")):
            parts = name.split(".")
            if parts[-1] not in FILES and not BUILT & {*parts}:
                named.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert len(named) > 100
    assert {name: where for name, where in named.items() if not exists(name)} == {}


@pytest.mark.slow
def test_the_readmes_command_runs_a_chapter_with_other_parameters(tmp_path: Path) -> None:
    """The text of the chapter takes the place of the executed one, which a fresh clone does not have yet."""
    (line,) = re.findall(
        r"^\.venv/bin/papermill (.*)$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE
    )
    chapter, out, *parameters = shlex.split(line)
    text = tmp_path / "chapter.ipynb"
    run = [sys.executable, "-m"]
    source = ROOT / "notebooks" / f"{Path(chapter).stem}.md"
    subprocess.run([*run, "jupytext", "--quiet", "--to", "ipynb", source, "-o", text], check=True)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [*run, "papermill", str(text), str(tmp_path / out), *parameters[:-1], "3"]
    subprocess.run(command, check=True, env=environment, cwd=tmp_path, capture_output=True)
    assert '"runs = 3' in (tmp_path / out).read_text("utf-8")
