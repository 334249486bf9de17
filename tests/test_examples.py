"""The Python that the pages show runs as printed, page by page, and prints what stands below it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "fedgo/README.md", "book/use.md", "book/own_problem.md")
SHOWN = re.compile(r"^```python\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
END = "-- end of the block --"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs_as_printed(page: str, tmp_path: Path) -> None:
    blocks = SHOWN.findall((ROOT / page).read_text(encoding="utf-8"))
    script = tmp_path / "page.py"
    script.write_text("".join(f"{code}\nprint('{END}')\n" for code, _ in blocks), encoding="utf-8")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    printed = [part.strip() for part in done.stdout.split(END)]
    assert [out for out, (_, shown) in zip(printed, blocks, strict=False) if shown] == [
        shown.strip() for _, shown in blocks if shown
    ]
