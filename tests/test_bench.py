"""The benchmark runs: it is no test's, and a change of what it calls would show only where somebody waits for it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = """
import bench
bench.imports()
bench.algorithms(1, 2)
bench.many_arms({60: 1.0})
bench.figures({1: 1.0}, ["hartmann6"])
"""


@pytest.mark.slow
def test_every_part_of_the_benchmark_but_the_growth_runs_in_small():
    places = {"PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=400, env=os.environ | places
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line for line in done.stdout.splitlines() if "aim" in line]
    assert len(rows) == 11 and all(re.search(r" \d+\.\d\d ", row) for row in rows), done.stdout
