"""What the pages show runs as printed: Python in a fresh interpreter, page by page; commands name what exists.

The chapters' own cells are executed by the build; what is fenced in their text is held to the same as other pages.
"""

import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from shell import missing_files, missing_targets

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    page
    for pattern in ("*.md", "fedgo/*.md", "book/**/*.md", "notebooks/*.md")
    for page in ROOT.glob(pattern)
    if "_executed" not in page.parts
)
COMMANDS, OUTPUT = ("", "sh"), "text"
DATA = ("bibtex", "json", "markdown", "toml", "yaml")


class Block(NamedTuple):
    """What stands between two fences; ``follows`` says that only empty lines part it from the block before."""

    kind: str
    body: str
    follows: bool


FENCE = re.compile(r"^(`{3,}|:{3,})([^\n`]*)\n(.*?)^\1 *$", re.DOTALL | re.MULTILINE)
DIRECTIVE = re.compile(r"\{([\w:-]+)\} *(.*)")


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, those inside of notes and the like too; cells are the build's affair."""
    found, end = [], None
    for fence in FENCE.finditer(text):
        _, info, body = fence.groups()
        follows = end is not None and not text[end : fence.start()].strip()
        end = fence.end()
        directive = DIRECTIVE.match(info.strip())
        if not directive:
            found.append(Block(info.strip(), body, follows))
        elif directive[1] in ("code", "code-block", "sourcecode"):
            found.append(Block(directive[2], re.sub(r"\A(:.*\n)+\n?", "", body), follows))
        elif directive[1] != "code-cell":
            found += blocks(body)
    return found


SLOW_END = "distributed.nanny - WARNING - Worker process still alive"
RUNNER = """
import contextlib, io, json, sys
printed, namespace = [], {"__name__": "__main__"}
for number, code in enumerate(json.load(sys.stdin), 1):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, f"block {number}", "exec"), namespace)
    printed.append(out.getvalue())
json.dump(printed, sys.stdout)
"""


def faults_when_run(found: list[Block], folder: Path) -> list[str]:
    """Run the Python among a page's blocks in ``folder``; text that follows it directly is what it printed."""
    codes = [block.body for block in found if block.kind == "python"]
    done = subprocess.run(
        [sys.executable, "-c", RUNNER], input=json.dumps(codes), capture_output=True, text=True, check=False,
        cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    # a cluster that a busy machine stops slowly is no fault of the page
    said = [line for line in done.stderr.splitlines() if SLOW_END not in line]
    if done.returncode or said:
        return ["\n".join(said)]
    printed = iter(json.loads(done.stdout))
    pairs = [(next(printed), after) for block, after in pairwise([*found, None]) if block.kind == "python"]
    return [
        f"printed is\n{out}and the page says\n{after.body}"
        for out, after in pairs
        if after and after.kind == OUTPUT and after.follows and after.body.strip() != out.strip()
    ]


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(block.kind == "python" for block in blocks(read(p)))], ids=named
)
def test_the_python_of_a_page_runs_as_printed(page, tmp_path):
    faults = faults_when_run(blocks(read(page)), tmp_path)
    assert not faults, "\n".join(faults)


def test_readers_are_shown_python_where_they_look_for_it():
    for page in (ROOT / "README.md", ROOT / "book/use.md"):
        assert any(block.kind == "python" for block in blocks(read(page))), page


def wrong_commands(text: str) -> list[str]:
    """Blocks of no known kind; targets and files that do not exist, in blocks and in `make …` in the text."""
    faults = []
    for block in blocks(text):
        if block.kind in COMMANDS:
            faults += missing_targets(block.body) + missing_files(block.body)
        elif block.kind not in ("python", OUTPUT, *DATA):
            faults.append(f"a block of kind '{block.kind}'")
    for command in re.findall(r"(?<!`)`(make [^`\n]+)`(?!`)", FENCE.sub("", text)):
        faults += missing_targets(command)
    return faults


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_name_what_exists(page):
    assert wrong_commands(read(page)) == []


def names_in_calls(text: str) -> set[str]:
    """What a sentence offers to be called: `fedgo.a.b(…)`."""
    return set(re.findall(r"(?<!`)`(fedgo(?:\.\w+)+)\(", FENCE.sub("", text)))


RESOLVE = """
import functools, json, sys
import fedgo
missing = []
for name in json.load(sys.stdin):
    try:
        functools.reduce(getattr, name.split(".")[1:], fedgo)
    except AttributeError:
        missing.append(name)
json.dump(missing, sys.stdout)
"""


def missing_names(names: set[str]) -> list[str]:
    """Those of the names that `import fedgo` alone does not bring."""
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE], input=json.dumps(sorted(names)), capture_output=True, text=True,
        check=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.slow
def test_what_a_sentence_calls_is_there_after_import_fedgo():
    names = {name for page in PAGES for name in names_in_calls(read(page))}
    planted = names_in_calls("`fedgo.gone.Settings(1.0)` ``fedgo.not_code(…)`` `fedgo.no_call`")
    assert names and missing_names(names | planted) == ["fedgo.gone.Settings"]


# The faults that are planted for the checks.

PAGE = """
# A page

```python
import math
a = 3
```

Then `make book`, and `fedgo.Settings(1.0)`.

````{note}
```python
print(a + 1)
```
```text
4
```
````

```{code-block} python
:caption: one

print("x")
open("made.txt", "w").close()
```

```
make PYTHON=python3 book && python book/build.py
```

Then words.

```text
not what was printed, as words stand between
```

```{code-cell} ipython3
this is no Python
```
"""


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("", "", None),
        ("a = 3", "a = 4", "printed is\n5\nand the page says\n4"),
        ("a = 3", "b = 3", "name 'a' is not defined"),
        ("import math", "import math\nmath.gone", "no attribute 'gone'"),
        ("a = 3", "a = 3\nimport warnings; warnings.warn('old')", "old"),
        ("Then words.", "", None),
    ],
)
def test_a_page_that_does_not_run_as_printed_is_found(tmp_path, old, new, fault):
    assert old in PAGE
    found = faults_when_run(blocks(PAGE.replace(old, new) if old else PAGE), tmp_path)
    assert (fault is None and not found) or (fault and fault in "".join(found)), found
    assert fault or (tmp_path / "made.txt").is_file()


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("", "", []),
        ("`make book`", "`make boko`", ["boko"]),
        ("python3 book", "python3 boko", ["boko"]),
        ("book/build.py", "book/built.py", ["book/built.py"]),
        ("```python\nimport", "```py\nimport", ["a block of kind 'py'"]),
    ],
)
def test_a_wrong_command_is_found(old, new, fault):
    assert old in PAGE
    assert wrong_commands(PAGE.replace(old, new) if old else PAGE) == fault
