"""The engine's part: `make federation` is the simulator's run, lets nobody else in, and leaves nothing behind."""

import glob
import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[1]
ENGINE = ROOT / ".venv/federation/bin/python"
STORED = json.loads((ROOT / "fedgo/experiments/data/federation.json").read_text("utf-8"))

engine = pytest.mark.skipif(not ENGINE.exists(), reason="NVFlare is not there: `make engine` installs it")


def begun(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The driver with two clients, a short run, and ``folder`` for all that it writes."""
    places = {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    small = ["--clients", "2", "--rounds", "30"]
    command = [ENGINE, "-W", "ignore", "examples/nvflare/run.py", *small, *arguments]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | places,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def running(folder: Path) -> list[str]:
    """The processes that write to ``folder``, by their commands."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("TMPDIR") == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
    return found


def left(folder: Path) -> list[str]:
    """What runs, and what is in ``folder``."""
    return running(folder) + [path.name for path in folder.glob("fedgo-*")]


@pytest.mark.slow
@engine
def test_over_mutual_tls_it_is_the_run_of_the_simulator_and_strangers_and_the_dead_are_left_out(tmp_path):
    store = tmp_path / "run.json"
    only = [word for name in ("packed", "strangers", "killed") for word in ("--only", name)]
    process = begun(tmp_path, *only, "--store", str(store))
    said, _ = process.communicate(timeout=500)
    assert process.returncode == 0, said
    found = json.loads(store.read_text("utf-8"))
    assert found["packed"]["verdict"] == "equal to the simulator", said
    assert found["strangers"] == {"foreign": "refused", "nobody": "refused (SSLError)"}
    assert found["killed"]["silent"] == [1] and 30 < found["killed"]["pulls"] < 60, said
    assert found["addresses"] == ["127.0.0.1"]
    assert left(tmp_path) == []


@pytest.mark.slow
@engine
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_while_server_and_clients_run_it_stops_what_it_started(number, tmp_path):
    process = begun(tmp_path, "--only", "packed")
    for _ in range(2400):  # on a busy machine they take their time
        # glob passes over a folder that goes while it looks; Path.rglob raises
        if process.poll() is not None or glob.glob("**/client0.txt", root_dir=tmp_path, recursive=True):
            break
        time.sleep(0.1)
    most = running(tmp_path)
    process.send_signal(number)
    said, _ = process.communicate(timeout=100)
    assert len(most) >= 7, (
        most
    )  # the driver, a server and two sites, and a process of the job for each of the three
    assert process.returncode != 0 and "equal to the simulator" not in said
    assert left(tmp_path) == []


def test_the_stored_run_is_of_all_that_the_chapter_tells():
    forms = {"packed", "dense", "together", "killed", "simulator"}
    assert forms | {"strangers", "addresses", "stamp", "seconds"} <= set(STORED)
    for name in ("packed", "dense", "simulator"):
        assert STORED[name]["verdict"] == "equal to the simulator"
    assert {"code", "date", "nvflare"} <= set(STORED["stamp"])
    assert STORED["stamp"]["how"] == "make federation STORE=file"  # which takes in NVFlare's simulator
    assert STORED["clients"] == 5 and STORED["rounds"] == 100
