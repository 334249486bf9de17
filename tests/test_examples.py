"""The Python and the commands that the pages show run as printed, page by page, and print what stands below them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["fedgo/README.md", "book/use.md"]
if (ROOT / "fedgo/beyond").is_dir():  # these pages show what lies beyond the paper
    PAGES += ["README.md", "book/own_problem.md"]
SHOWN = re.compile(r"^```(python|console)\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
END = "-- end of the block --"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs_as_printed(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for offered in re.findall(r"\{download\}`[^<]*<([^>]+)>`", text):
        shutil.copy((ROOT / page).parent / offered, tmp_path)
    blocks = SHOWN.findall(text)
    script = tmp_path / "page.py"
    parts = [code if kind == "python" else commands(code) for kind, code, _ in blocks]
    script.write_text("".join(f"{part}\nprint('{END}', flush=True)\n" for part in parts), encoding="utf-8")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    printed = [part.strip() for part in done.stdout.split(END)]
    expected = [code if kind == "console" else shown for kind, code, shown in blocks]
    assert [out for out, text in zip(printed, expected, strict=False) if text] == [
        shown.strip() for shown in expected if shown
    ]


def commands(dialogue: str) -> str:
    """Python that prints each command of the ``dialogue`` and runs it."""
    lines = [line for line in dialogue.splitlines() if line.startswith("$ fedgo ")]
    run = f"'\"{sys.executable}\" -m fedgo.beyond.study.cli ' + "
    calls = [
        f"print({line!r}, flush=True); subprocess.run({run}{line[8:]!r}, shell=True, stderr=subprocess.STDOUT)"
        for line in lines
    ]
    return "\n".join(["import subprocess", *calls])
