"""The notebooks' linter finds faults by cell, mends what can be mended, and leaves the text alone."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = """---
jupytext: {{text_representation: {{extension: .md, format_name: myst}}}}
kernelspec: {{display_name: Python 3, language: python, name: python3}}
---

# A chapter; x=1 in the text is nobody's code

```{{code-cell}} ipython3
:tags: [hide-input]

{first}
```

More text.

```{{code-cell}} ipython3
{second}
```
"""
GOOD = {"first": "import math\n\nx = math.pi", "second": "print(x)\nx;"}


def lint(tmp_path, *arguments, **cells):
    """The notebook with these cells, what the linter says of it, and the notebook afterwards."""
    file = tmp_path / "a.md"
    file.write_text(NOTEBOOK.format(**GOOD | cells))
    done = subprocess.run(
        [sys.executable, ROOT / "book/lint.py", *arguments, file], capture_output=True, text=True, check=False
    )
    assert not done.stderr
    assert done.returncode == bool(done.stdout)
    return done.stdout, file.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cells", "fault"),
    [
        ({}, None),
        ({"second": "print(y)"}, "a.md, code cell 2, line 1: F821"),
        ({"first": "import math\nimport sys\n\nx = math.pi"}, "a.md, code cell 1, line 2: F401"),
        ({"first": "import math\n\nx=math.pi"}, "a.md, code cell 1 is not formatted: import math"),
        (
            {"second": f'row = "| {"cell " * 40}|"\nprint(x, row)'},
            None,
        ),  # the row of a table is as long as it is
        ({"second": "print(x"}, "a.md"),
    ],
)
def test_a_fault_is_found_in_its_cell(tmp_path, cells, fault):
    printed, text = lint(tmp_path, **cells)
    assert (fault is None and not printed) or (fault and fault in printed), printed
    assert text == NOTEBOOK.format(**GOOD | cells)


def test_what_can_be_mended_is_and_nothing_else_changes(tmp_path):
    bad = {"first": "import sys,math\nx=math.pi", "second": "print( x )\ny=[ 1 ]"}
    printed, text = lint(tmp_path, "--fix", **bad)
    assert printed == ""
    assert text == NOTEBOOK.format(first="import math\n\nx = math.pi", second="print(x)\ny = [1]")


def test_what_cannot_be_mended_is_printed(tmp_path):
    printed, text = lint(tmp_path, "--fix", second="print( y )")
    assert "code cell 2, line 1: F821" in printed and "print(y)" in text
