"""Many synchronisations over a socket on 127.0.0.1 leave nothing behind, in memory or among the processes."""

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = """
import json, sys
import limits
from fedgo.federation import Server
if {leak}:
    accept, kept = Server.accept, []
    Server.accept = lambda self, data: kept.append(bytearray(20_000)) or accept(self, data)
if __name__ == "__main__":
    print(json.dumps(limits.soak(300, clients=3, arms=30)))
"""


def soaked(folder, leak):
    """What a soak found, in a process of its own."""
    script = folder / "soak.py"
    script.write_text(SCRIPT.format(leak=leak), encoding="utf-8")
    places = {"PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script], capture_output=True, text=True, timeout=200, env=places
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def grown(found):
    """By how many MB the two processes have grown since a tenth of the soak was over."""
    return max(found[side][1] - found[side][0] for side in ("server", "site"))


@pytest.mark.slow
@pytest.mark.parametrize("leak", [False, True])
def test_a_soak_does_not_grow_and_would_be_seen_to(leak, tmp_path):
    found = soaked(tmp_path, leak)
    assert found["synchronisations"] == 300 and found["exit"] == 0 and found["address"] == "127.0.0.1"
    assert (grown(found) > 8) == leak  # 20 kB a letter would be 16 MB
    assert not [
        each for each in psutil.Process().children(recursive=True) if "soak.py" in " ".join(each.cmdline())
    ]
