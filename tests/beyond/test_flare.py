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

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ROOT / ".venv/federation/bin/python"

engine = pytest.mark.skipif(not ENGINE.exists(), reason="NVFlare is not there: `make federation` installs it")


def begun(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The driver with two clients, a short run, and ``folder`` for all that it writes."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    sizes = ("--clients", "2", "--rounds", "30")
    command = [ENGINE, "-W", "ignore", "examples/nvflare/run.py", *sizes, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env=environment, **pipes)


def running(folder: Path) -> list[str]:
    """The processes that write to ``folder``, by their commands."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("TMPDIR") == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
    return found


@pytest.mark.slow
@engine
def test_over_mutual_tls_it_is_the_run_of_the_simulator_and_strangers_and_the_dead_are_left_out(tmp_path):
    store = tmp_path / "run.json"
    names = ("packed", "advised", "together", "strangers", "killed")
    runs = [word for name in names for word in ("--only", name)]
    process = begun(tmp_path, *runs, "--store", str(store))
    output, _ = process.communicate(timeout=500)
    assert process.returncode == 0, output
    found = json.loads(store.read_text("utf-8"))
    for name in ("packed", "advised"):
        assert found[name]["verdict"] == "equal to the simulator" and not found[name]["refused"], output
    assert found["together"]["verdict"] == "equal to the run in one process", output
    assert found["strangers"] == {"foreign": "refused", "nobody": "refused (SSLError)"}
    assert found["killed"]["silent"] == [1] and 30 < found["killed"]["pulls"] < 60, output
    assert found["addresses"] == ["127.0.0.1"]
    assert running(tmp_path) == [] and not list(tmp_path.glob("fedgo-*"))


@pytest.mark.slow
@engine
def test_interrupted_while_server_and_clients_run_it_stops_what_it_started(tmp_path):
    process = begun(tmp_path, "--only", "packed")
    for _ in range(2400):  # on a busy machine they take their time
        # glob passes over a folder that goes while it looks; Path.rglob raises
        if process.poll() is not None or glob.glob("**/client0.txt", root_dir=tmp_path, recursive=True):
            break
        time.sleep(0.1)
    most = running(tmp_path)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=100)
    # the driver, a server and two sites, and a process of the job for each of the three
    assert len(most) >= 7, most
    assert process.returncode != 0 and "equal to the simulator" not in output
    assert running(tmp_path) == [] and not list(tmp_path.glob("fedgo-*"))
