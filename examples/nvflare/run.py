"""`make federation`: Hartmann6 with five clients and a server, each a process, over TLS on this machine.

All files are below a temporary folder, and all letters pass over the loopback interface. All processes are stopped at
the end, also when this one is interrupted. There are five runs: with one client after the other by the paper's
algorithm and by the recommended method, with all clients of a round at once, with one client killed, and in NVFlare's
own simulator. Each is compared with the same run in this process. In addition, a client of another authority and a
client without a certificate try to connect.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any

import numpy as np
import psutil
from at_site import hartmann
from nvflare.recipe import ProdEnv, SimEnv

from fedgo.beyond.federation.flare import Hub, recipe
from fedgo.beyond.federation.local import play
from fedgo.beyond.method.advised import ADVISED
from fedgo.experiments.results import tuned
from fedgo.experiments.world import world
from fedgo.phase_one import phase_one_length

ROOT = Path(__file__).resolve().parents[2]
ADMIN = "admin@fedgo.org"
RUNS = ("packed", "advised", "together", "strangers", "killed", "simulator")


def provision(folder: Path, ports: list[int], clients: int) -> Path:
    """Make certificates and start-up kits of a server, the clients and an administrator, and return their folder.

    NVFlare's server listens where its name says: on the loopback interface for "localhost", else on all of them.

    Args:
        folder: A folder that does not exist yet, in which the kits are made.
        ports: The port for clients and the port for the administrator.
        clients: The number of clients.
    """
    server = {"name": "localhost", "type": "server", "org": "fedgo"}
    server |= {"fed_learn_port": ports[0], "admin_port": ports[1]}
    sites = [{"name": f"site-{i + 1}", "type": "client", "org": "fedgo"} for i in range(clients)]
    admin = {"name": ADMIN, "type": "admin", "org": "fedgo", "role": "project_admin"}
    kinds = ("workspace.Workspace", "static_file.StaticFile", "cert.Cert", "signature.Signature")
    builders = [{"path": f"nvflare.lighter.impl.{kind}Builder", "args": {}} for kind in kinds]
    builders[1]["args"] = {"config_folder": "config", "scheme": "tcp"}
    project = {
        "api_version": 3,
        "name": "fedgo",
        "description": "loopback",
        "participants": [server, *sites, admin],
        "builders": builders,
    }
    folder.mkdir()
    (folder / "project.yml").write_text(json.dumps(project), encoding="utf-8")  # JSON is YAML
    tool = [str(Path(sys.executable).parent / "nvflare"), "provision", "-p", "project.yml", "-w", "kits"]
    subprocess.run(tool, cwd=folder, check=True, capture_output=True, timeout=180)
    kits = folder / "kits" / "fedgo" / "prod_00"
    for default in kits.glob("*/local/resources.json.default"):
        storage = str(default.parents[1] / "storage")
        text = default.read_text(encoding="utf-8").replace("/tmp/nvflare", storage)
        default.with_suffix("").write_text(text, encoding="utf-8")
    return kits


def started(kit: Path) -> subprocess.Popen[bytes]:
    """Start the server or the client to which ``kit`` belongs, in a session of its own, and return its process."""
    side = "client" if kit.name.startswith("site") else "server"
    command = [sys.executable, "-u", "-m", f"nvflare.private.fed.app.{side}.{side}_train", "-m", str(kit)]
    command += ["-s", f"fed_{side}.json", "--set", "secure_train=true", "org=fedgo", "config_folder=config"]
    command += [f"uid={kit.name}"] if side == "client" else []
    (kit / "transfer").mkdir(exist_ok=True)
    with open(kit / "log.out", "wb") as log:
        return subprocess.Popen(
            command, cwd=kit, start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )


def stop(process: psutil.Process, itself: bool = True) -> None:
    """End all processes that ``process`` has begun, and ``process`` too if ``itself`` is True.

    Each process is suspended first, so that none begins another meanwhile.
    """
    family, found = [], [process] if itself else process.children()
    while found:
        family += found
        for each in found:
            with suppress(psutil.NoSuchProcess):
                each.suspend()
        found = [child for child in process.children(recursive=True) if child not in family]
    for each in family:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(family, 10)


@contextmanager
def cleanly() -> Iterator[Path]:
    """Yield a temporary folder; at the end, however the block ends, stop all child processes and delete the folder.

    The signals SIGINT, SIGTERM and SIGHUP end the block by ``SystemExit``.
    """
    signals = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    for number in signals:
        signal.signal(number, lambda *_: sys.exit("stopped"))
    folder = Path(tempfile.mkdtemp(prefix="fedgo-federation-"))
    try:
        yield folder
    finally:
        for number in signals:  # a second one does not stop the stopping
            signal.signal(number, signal.SIG_IGN)
        stop(psutil.Process(), itself=False)
        shutil.rmtree(folder, ignore_errors=True)


def watch(seen: set[str], over: Event) -> None:
    """Add to ``seen`` every address at which a process that this one has begun listens.

    The processes are looked at every two seconds until the event ``over`` is set.
    """
    while not over.wait(2):
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                connections = process.net_connections("inet")
                seen |= {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}


def text_of(file: Path, enough: Callable[[str], bool]) -> str:
    """Return the text of ``file`` as soon as ``enough`` returns True for it; a missing file counts as an empty one.

    Raises:
        TimeoutError: Three minutes have passed before.
    """
    for _ in range(3600):
        text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        if enough(text):
            return text
        time.sleep(0.05)
    raise TimeoutError(f"{file} does not say enough: {text[-200:]}")


def submitted(folder: Path, name: str, sizes: argparse.Namespace, environment: Any) -> Path:
    """Submit the run ``name`` to the ``environment``, and return the new folder in which the run writes its files.

    Args:
        folder: The folder in which the new one is made.
        name: The name of the run, one of `RUNS` except "strangers".
        sizes: The numbers of clients and of rounds, ``sizes.clients`` and ``sizes.rounds``.
        environment: NVFlare's ``ProdEnv`` or ``SimEnv``.
    """
    place, killed = Path(tempfile.mkdtemp(dir=folder)), name == "killed"
    problem = world("hartmann6", 1, 0).problem
    length = phase_one_length(sizes.clients, sizes.rounds)
    played: dict[str, Any] = {"settings": {**tuned("hartmann6", "Fed-GO-UCB"), "encoding": "counts"}}
    if name == "advised":
        length, played = ADVISED.first(sizes.clients, problem.arms.shape[1], sizes.rounds), {}
    steps = sizes.clients * sizes.rounds
    file, noise = place / "hartmann6.npz", problem.sigma * problem.tape(length + steps)[0]
    np.savez(file, arms=problem.arms[0], means=problem.means[0], noise=noise, sigma=problem.sigma)
    options = {"file": str(file), "clients": sizes.clients, "length": length, "rounds": sizes.rounds} | played
    (place / "options.json").write_text(json.dumps(options), encoding="utf-8")
    # nobody is left out because the machine is busy; the dead one soon
    hub = Hub("at_site:hartmann", options, str(place), steps, name == "together", 3.0 if killed else 30.0)
    with open(place / "submitted.out", "w") as log, redirect_stdout(log), redirect_stderr(log):
        recipe(f"fedgo-{name}", hub, sizes.clients, 1 if killed else None).execute(environment)
    return place


def report(name: str, folder: Path, sizes: argparse.Namespace) -> dict[str, Any]:
    """Wait for the end of a run, compare it with the same run in this process, and return what is stored of it.

    A summary is printed.

    Args:
        name: The name of the run.
        folder: The folder in which the run writes its files.
        sizes: The numbers of clients and of rounds, ``sizes.clients`` and ``sizes.rounds``.

    Raises:
        TimeoutError: The run is not over after three minutes.
    """
    kept = json.loads(text_of(folder / "server.json", lambda text: text.endswith("}")))
    plan, _ = hartmann(**json.loads((folder / "options.json").read_text("utf-8")))
    problem, together = world("hartmann6", 1, plan.seed).problem, name == "together"
    trace = play(problem, plan, sizes.clients * sizes.rounds, together=together)
    pulls: dict[int, tuple[int, float]] = {}
    for diary in folder.glob("client*.txt"):
        for line in diary.read_text(encoding="utf-8").splitlines():
            step, arm, reward = line.split()
            pulls[int(step)] = int(arm), float(reward)
    expected = dict(enumerate(zip(trace.arm[0].tolist(), trace.reward[0].tolist(), strict=True)))
    first = next((t for t in expected if pulls.get(t) != expected[t]), None)
    up, down = kept["scalars"]
    seconds, letters, answers = zip(*kept["log"], strict=True)
    verdict = f"equal to the {'run in one process' if together else 'simulator'}"
    if first is not None:
        verdict = f"differs first at step {first}: {pulls.get(first)}, in the simulator {expected[first]}"
    elif [plan.length - 1, *trace.sync[0].nonzero().flatten().tolist()] != kept["sync"]:
        verdict = "differs in the synchronisations"
    elif [int(trace.up.sum()), int(trace.down.sum())] != [up, down]:
        verdict = "differs in the scalars"
    found = {what: kept[what] for what in ("loopback", "silent", "refused", "whole")}
    found |= {"letters": len(letters) + sum(size > 0 for size in answers), "bytes": sum(letters + answers)}
    found |= {"verdict": verdict, "pulls": len(pulls) - plan.length, "up": up, "down": down}
    found |= {"synchronisations": len(kept["sync"]) - 1, "synchronisation": median(kept["seconds"][1:])}
    found["answer"] = median(seconds)
    print(f"{name}: {verdict}; {found['bytes']:,} bytes of letters, {found['whole']:.1f} s", flush=True)
    return found


def strangers(kits: Path, folder: Path, ports: list[int]) -> dict[str, str]:
    """Return whether a client of another authority ("foreign") and one without a certificate ("nobody") are let in.

    Args:
        kits: The folder of the kits of the federation that runs.
        folder: The folder in which the other authority's kits are made.
        ports: The port for clients and the port for the administrator of the federation that runs.

    Raises:
        TimeoutError: The client of another authority is neither refused nor let in after three minutes.
    """
    kit = provision(folder / "stranger", ports, 1) / "site-1"
    process, refused, registered = started(kit), "certificate verify failed", "Successfully registered"
    log = text_of(kit / "log.out", lambda text: refused in text or registered in text)
    foreign = "let in" if registered in log else "refused"
    stop(psutil.Process(process.pid))
    context = ssl.create_default_context(cafile=str(kits / "site-1" / "startup" / "rootCA.pem"))
    context.check_hostname = False
    nobody = "let in"
    with socket.create_connection(("127.0.0.1", ports[0]), 5) as plain:
        try:
            with context.wrap_socket(plain) as secured:
                secured.recv(1)
        except (ssl.SSLError, ConnectionError) as error:
            nobody = f"refused ({type(error).__name__})"
    print(f"a client of another authority: {foreign}; one without a certificate: {nobody}", flush=True)
    return {"foreign": foreign, "nobody": nobody}


def stamp() -> dict[str, str]:
    """Return the stamp of the runs: a hash of the code, the date, the number of processors, and versions of libraries.

    The hash is that of the Python files in fedgo/beyond/federation and in this folder.
    """
    files = [
        *sorted((ROOT / "fedgo/beyond/federation").glob("*.py")),
        *sorted(Path(__file__).parent.glob("*.py")),
    ]
    code = sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    made = {"code": code, "date": time.strftime("%Y-%m-%d", time.gmtime()), "processors": str(os.cpu_count())}
    return made | {name: version(name) for name in ("nvflare", "torch", "numpy")}


def main() -> None:
    """Make the runs that the command line names, print a summary of each, and store the results if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, help="where to keep what was found")
    parser.add_argument("--only", action="append", choices=RUNS)
    parser.add_argument("--clients", type=int, default=5, help="N")
    parser.add_argument("--rounds", type=int, default=100, help="T")
    sizes = parser.parse_args()
    os.environ |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}", "OMP_NUM_THREADS": "1"}
    os.environ["MALLOC_ARENA_MAX"] = "2"
    found: dict[str, Any] = {"stamp": stamp(), "clients": sizes.clients, "rounds": sizes.rounds}
    addresses: set[str] = set()
    over, begun = Event(), time.perf_counter()
    with cleanly() as folder:
        Thread(target=watch, args=(addresses, over), daemon=True).start()
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        ports = [each.getsockname()[1] for each in sockets]
        for each in sockets:
            each.close()
        kits = provision(folder / "provisioned", ports, sizes.clients)
        os.environ |= {
            "FEDGO_MAKES": "at_site:hartmann",
            "FEDGO_FOLDER": str(kits),
        }  # what every machine allows
        sites = [f"site-{i + 1}" for i in range(sizes.clients)]
        processes = {name: started(kits / name) for name in ("localhost", *sites)}
        real = ProdEnv(str(kits / ADMIN), login_timeout=60.0, username=ADMIN)
        simulated = SimEnv(num_clients=sizes.clients, workspace_root=str(folder / "simulator"))
        for name in sorted(sizes.only or RUNS, key=RUNS.index):
            if name == "strangers":
                found[name] = strangers(kits, folder, ports)
                continue
            place = submitted(kits, name, sizes, simulated if name == "simulator" else real)
            if name == "killed":
                victim = sizes.clients // 2
                text_of(place / f"client{victim}.txt", lambda text: text.count("\n") >= sizes.rounds // 2)
                stop(psutil.Process(processes[f"site-{victim + 1}"].pid))
            found[name] = report(name, place, sizes)
        over.set()
    found |= {"addresses": sorted(addresses), "seconds": time.perf_counter() - begun}
    print(f"listened on {', '.join(found['addresses'])}; {found['seconds']:.0f} s in all")
    if sizes.store:
        sizes.store.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
