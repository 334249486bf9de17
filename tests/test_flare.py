"""The engine's part: `make federation` is the simulator's run, lets nobody else in, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ENGINE = ROOT / ".venv/federation/bin/python"
STORED = json.loads((ROOT / "fedgo/paper/data/federation.json").read_text("utf-8"))

engine = pytest.mark.skipif(not ENGINE.exists(), reason="NVFlare is not there: `make engine` installs it")


def begun(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The driver, with ``folder`` for all that it writes."""
    places = {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    command = [ENGINE, "-W", "ignore", "benchmarks/federation.py", *arguments]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | places,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def left(folder: Path) -> list[str]:
    """Processes that name ``folder``, and what is in it."""
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in running.splitlines() if str(folder) in line] + [
        path.name for path in folder.glob("fedgo-*")
    ]


@pytest.mark.slow
@engine
def test_over_mutual_tls_it_is_the_run_of_the_simulator_and_strangers_are_refused(tmp_path):
    store = tmp_path / "run.json"
    process = begun(tmp_path, "--only", "packed", "--only", "strangers", "--store", str(store))
    said, _ = process.communicate(timeout=200)
    assert process.returncode == 0, said
    found = json.loads(store.read_text("utf-8"))
    assert found["packed"]["verdict"] == "equal to the simulator"
    assert found["strangers"] == {"foreign": "refused", "nobody": "refused (SSLError)"}
    assert found["addresses"] == ["127.0.0.1"]
    assert left(tmp_path) == []


@pytest.mark.slow
@engine
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_stops_what_it_started(number, tmp_path):
    process = begun(tmp_path, "--only", "packed")
    assert process.stdout is not None and "provisioned" in process.stdout.readline()
    most = 0
    for _ in range(60):  # on a busy machine they take their time
        most = max(most, len(left(tmp_path)))
        if most > 6:  # a server, five sites, a folder
            break
        time.sleep(0.5)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert most > 6 and process.returncode != 0
    assert left(tmp_path) == []


def test_the_stored_run_is_of_all_that_the_chapter_tells():
    forms = {"packed", "dense", "together", "killed", "simulator"}
    assert forms | {"strangers", "addresses", "stamp", "seconds"} <= set(STORED)
    for name in ("packed", "dense", "simulator"):
        assert STORED[name]["verdict"] == "equal to the simulator"
    assert {"code", "date", "how", "nvflare"} <= set(STORED["stamp"])
