"""`make federation`: Hartmann6 with five clients and a server, each a process, over TLS on this machine.

Provisions certificates, starts everything below a temporary folder and on the loopback interface, runs the packed and
the dense form one client after the other, then all clients of a round at once, then with one client killed, compares
each run with the one in this process, lets a client of another authority and one without a certificate knock, runs
NVFlare's simulator if asked to, and stops what it started, also when interrupted.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import numpy as np
import psutil
import torch
from at_site import hartmann
from nvflare.recipe import ProdEnv, SimEnv

from fedgo.experiments.comparison import tuned, world
from fedgo.federation.flare import Hub, recipe
from fedgo.federation.local import play
from fedgo.phase_one import phase_one_length

ROOT = Path(__file__).resolve().parents[1]
ADMIN = "admin@fedgo.org"


class Run(NamedTuple):
    """N = ``clients`` play T = ``rounds`` rounds, one after the other or ``together``, with letters in an ``encoding``
    and so many rounds of the ``oracle``; who does not answer within ``limit`` seconds is left out."""

    encoding: str
    oracle: int
    together: bool = False
    limit: float = 30.0  # nobody is left out because the machine is busy
    clients: int = 5
    rounds: int = 100

    @property
    def steps(self) -> int:
        """NT."""
        return self.clients * self.rounds


PACKED = Run("counts", 2000)
RUNS = {
    "packed": PACKED,
    "dense": Run("dense", 20),
    "together": PACKED._replace(together=True),
    "killed": PACKED._replace(limit=3.0),
    "simulator": PACKED,
}


def described(folder: Path, run: Run) -> dict[str, Any]:
    """What `at_site.hartmann` is told: the settings, and the file of the problem, which is written to ``folder``."""
    problem, file = world("hartmann6", 1, 0).problem, folder / "hartmann6.npz"
    length = phase_one_length(run.clients, run.rounds)
    noise = problem.sigma * problem.tape(length + run.steps)[0]
    np.savez(file, arms=problem.arms[0].numpy(), means=problem.means[0].numpy(), noise=noise.numpy())
    found: dict[str, Any] = {
        "file": str(file),
        "clients": run.clients,
        "length": length,
        "oracle": run.oracle,
    }
    return found | {"settings": {**tuned("hartmann6", "Fed-GO-UCB"), "encoding": run.encoding}}


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def provision(folder: Path, ports: list[int], clients: int) -> Path:
    """Certificates and start-up kits of a server, the clients and an administrator; the folder that holds the kits.

    NVFlare's server listens where its name says: on the loopback interface for "localhost", else on all of them.
    """
    people = [{"name": f"site-{i + 1}", "type": "client", "org": "fedgo"} for i in range(clients)]
    server = {"name": "localhost", "type": "server", "org": "fedgo"}
    server |= {"fed_learn_port": ports[0], "admin_port": ports[1]}
    admin = {"name": ADMIN, "type": "admin", "org": "fedgo", "role": "project_admin"}
    given = {
        "workspace.WorkspaceBuilder": {"template_file": "master_template.yml"},
        "static_file.StaticFileBuilder": {"config_folder": "config", "scheme": "tcp"},
        "cert.CertBuilder": {},
        "signature.SignatureBuilder": {},
    }
    builders = [{"path": f"nvflare.lighter.impl.{name}", "args": args} for name, args in given.items()]
    project = {"api_version": 3, "name": "fedgo", "description": "loopback"}
    project |= {"participants": [server, *people, admin], "builders": builders}
    folder.mkdir()
    (folder / "project.yml").write_text(json.dumps(project), encoding="utf-8")  # JSON is YAML
    tool = [str(Path(sys.executable).parent / "nvflare"), "provision", "-p", "project.yml", "-w", "kits"]
    subprocess.run(tool, cwd=folder, check=True, capture_output=True, timeout=180)
    kits = folder / "kits" / "fedgo" / "prod_00"
    for default in kits.glob("*/local/resources.json.default"):
        text = default.read_text(encoding="utf-8").replace(
            "/tmp/nvflare", str(default.parents[1] / "storage")
        )
        default.with_suffix("").write_text(text, encoding="utf-8")
    return kits


def started(kit: Path) -> subprocess.Popen[bytes]:
    """The process of a kit, in a session of its own."""
    side = "client" if kit.name.startswith("site") else "server"
    command = [sys.executable, "-u", "-m", f"nvflare.private.fed.app.{side}.{side}_train", "-m", str(kit)]
    command += ["-s", f"fed_{side}.json", "--set", "secure_train=true", "org=fedgo", "config_folder=config"]
    command += [f"uid={kit.name}"] if side == "client" else []
    (kit / "transfer").mkdir(exist_ok=True)
    with open(kit / "log.out", "wb") as log:
        out: dict[str, Any] = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL}
        return subprocess.Popen(command, cwd=kit, start_new_session=True, **out)


def stop(process: psutil.Process, itself: bool = True) -> None:
    """End all that ``process`` has begun, and ``itself``; each is halted first, so that none begins another."""
    family, found = [], [process] * itself or process.children()
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
    """A folder that is deleted at the end, when whatever was begun is stopped, however the block ends."""
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


@contextmanager
def quietly(file: Path) -> Iterator[None]:
    """What is printed goes to ``file``, that of other processes too."""
    sys.stdout.flush()
    kept = os.dup(1), os.dup(2)
    with open(file, "wb") as log:
        try:
            for stream in (1, 2):
                os.dup2(log.fileno(), stream)
            yield
        finally:
            sys.stdout.flush()
            for stream, old in zip((1, 2), kept, strict=True):
                os.dup2(old, stream)
                os.close(old)


def watch(seen: set[str], over: Event) -> None:
    """Note every address at which this process or one that it has begun listens."""
    while not over.wait(2):
        for each in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                seen |= {
                    at.laddr.ip for at in each.net_connections("inet") if at.status == psutil.CONN_LISTEN
                }


def submitted(folder: Path, name: str, run: Run, environment: Any, needed: int | None = None) -> Path:
    """Where ``run``, submitted to the ``environment``, leaves what happened, in ``folder``."""
    place = Path(tempfile.mkdtemp(dir=folder))
    hub = Hub("at_site:hartmann", described(place, run), str(place), run.steps, run.together, run.limit)
    with quietly(place / "submitted.out"):
        recipe(f"fedgo-{name}", hub, run.clients, needed).execute(environment)
    return place


def until(file: Path, lines: int, seconds: float) -> str:
    """What ``file`` says as soon as it has so many ``lines``."""
    for _ in range(int(seconds * 20)):
        text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        if text.count("\n") >= lines or text.endswith("}"):
            return text
        time.sleep(0.05)
    raise TimeoutError(f"{file.name} is not there after {seconds:.0f} s")


def report(name: str, run: Run, folder: Path) -> dict[str, Any]:
    """What is kept of a run, once it is over, compared with the same run in this process; printed too."""
    kept = json.loads(until(folder / "server.json", 10**9, 180))
    plan, _ = hartmann(**described(folder, run))
    problem = world("hartmann6", 1, plan.seed).problem
    trace = play(problem, plan, run.steps, together=run.together)
    pulls: dict[int, tuple[int, float]] = {}
    for diary in folder.glob("client*.txt"):
        rows = [line.split() for line in diary.read_text(encoding="utf-8").splitlines()]
        pulls |= {int(step): (int(arm), float(reward)) for step, arm, reward in rows}
    expected = dict(enumerate(zip(trace.arm[0].tolist(), trace.reward[0].tolist(), strict=True)))
    verdict = f"equal to the {'run in one process' if run.together else 'simulator'}"
    first = next((t for t in expected if pulls.get(t) != expected[t]), None)
    if first is not None:
        verdict = f"differs first at step {first}: {pulls.get(first)}, in the simulator {expected[first]}"
    elif [plan.length - 1, *trace.sync[0].nonzero().flatten().tolist()] != kept["sync"]:
        verdict = "differs in the synchronisations"
    elif [int(trace.up.sum()), int(trace.down.sum())] != kept["scalars"][-1]:
        verdict = "differs in the scalars"
    arms = torch.tensor([[arm for step, (arm, _) in sorted(pulls.items()) if step >= plan.length]])
    up, down = kept["scalars"][-1]
    found = {part: kept[part] for part in ("letters", "bytes", "loopback", "silent")}
    found |= {"verdict": verdict, "regret": float(problem.regret(arms).sum()), "pulls": arms.shape[1]}
    found |= {"up": up, "down": down, "synchronisations": len(kept["sync"]) - 1}
    found |= {part: statistics.median(kept[part]) for part in ("turn", "answer")}
    found |= {"synchronisation": statistics.median(kept["seconds"][1:])}
    found |= {"whole": kept["whole"], "phase_one": kept["seconds"][0]}
    print(f"{name}: {verdict}")
    print(
        f"  regret of Phase II {found['regret']:.1f} in {arms.shape[1]} pulls; {up:,} scalars up, {down:,} down"
    )
    print(
        f"  {kept['letters']:,} letters of {kept['bytes']:,} bytes; the interface carried {kept['loopback']:,}"
    )
    milli = ", ".join(
        f"{1e3 * found[part]:.0f} ms a {part}" for part in ("turn", "answer", "synchronisation")
    )
    print(f"  {kept['whole']:.1f} s: {milli}, Phase I {found['phase_one']:.1f} s", flush=True)
    return found


def killed(run: Run, folder: Path, client: int, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The run that leaves what happened in ``folder``, and whose ``client`` at ``process`` is killed in the middle."""
    until(folder / f"client{client}.txt", run.rounds // 2, 180)
    stop(psutil.Process(process.pid))
    return report("killed", run, folder)


def strangers(kits: Path, folder: Path, ports: list[int]) -> dict[str, Any]:
    """Whether a client of another authority, and one without a certificate, are let in."""
    foreign = provision(folder / "stranger", ports, 1) / "site-1"
    process = started(foreign)
    words = ""
    for _ in range(240):
        time.sleep(0.25)
        words = (foreign / "log.out").read_text(encoding="utf-8", errors="replace")
        if "certificate verify failed" in words or "Successfully registered" in words:
            break
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
    ours = "certificate verify failed" in words and "Successfully registered" not in words
    found = {"foreign": "refused" if ours else "let in", "nobody": nobody}
    print(
        f"a client of another authority: {found['foreign']}; one without a certificate: {nobody}", flush=True
    )
    return found


def stamp(how: str) -> dict[str, Any]:
    """``how``, where and with what a run was made; the code by a hash of fedgo/federation and of two files here."""
    files = [
        *sorted((ROOT / "fedgo/federation").glob("*.py")),
        ROOT / "examples/nvflare/at_site.py",
        Path(__file__),
    ]
    code = sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    made = {
        "how": how,
        "code": code,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    made |= {"python": platform.python_version(), "processors": str(os.cpu_count())}
    return made | {name: version(name) for name in ("nvflare", "torch", "numpy")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, help="where to keep what was found")
    parser.add_argument("--only", action="append", choices=[*RUNS, "strangers"])
    parser.add_argument("--simulator", action="store_true", help="NVFlare's simulator too")
    parser.add_argument("--clients", type=int, default=PACKED.clients, help="N")
    parser.add_argument("--rounds", type=int, default=PACKED.rounds, help="T")
    arguments = parser.parse_args()
    clients, rounds = arguments.clients, arguments.rounds
    runs = {name: run._replace(clients=clients, rounds=rounds) for name, run in RUNS.items()}
    wanted = arguments.only or [*RUNS, "strangers"]
    if not (arguments.only or arguments.simulator):
        wanted.remove("simulator")
    said = ["file" if each == str(arguments.store) else each for each in sys.argv[1:]]
    how = " ".join(["examples/nvflare/run.py", *said])
    if said == ["--simulator", "--store", "file"]:
        how = "make federation STORE=file"
    os.environ |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'benchmarks'}", "OMP_NUM_THREADS": "1"}
    os.environ["MALLOC_ARENA_MAX"] = "2"
    found: dict[str, Any] = {
        "stamp": stamp(how),
        "clients": clients,
        "rounds": rounds,
        "oracle": RUNS["dense"].oracle,
    }
    addresses: set[str] = set()
    over, begun = Event(), time.perf_counter()
    with cleanly() as folder:
        Thread(target=watch, args=(addresses, over), daemon=True).start()
        ports = free_ports(2)
        kits = provision(folder / "provisioned", ports, clients)
        print(f"provisioned in {time.perf_counter() - begun:.1f} s", flush=True)
        processes = {
            kit: started(kits / kit) for kit in ["localhost", *(f"site-{i + 1}" for i in range(clients))]
        }
        environment = ProdEnv(str(kits / ADMIN), login_timeout=60.0, username=ADMIN)
        for name in ("packed", "dense", "together"):
            if name in wanted:
                found[name] = report(name, runs[name], submitted(kits, name, runs[name], environment))
        if "strangers" in wanted:
            found["strangers"] = strangers(kits, folder, ports)
        if "killed" in wanted:
            run, victim = runs["killed"], clients // 2
            place = submitted(kits, "killed", run, environment, needed=1)
            found["killed"] = killed(run, place, victim, processes[f"site-{victim + 1}"])
        stop(psutil.Process(), itself=False)
        if "simulator" in wanted:
            simulated = SimEnv(num_clients=clients, workspace_root=str(folder / "simulator"))
            place = submitted(folder, "simulator", runs["simulator"], simulated)
            found["simulator"] = report("simulator", runs["simulator"], place)
        over.set()
        found |= {"addresses": sorted(addresses), "seconds": time.perf_counter() - begun}
        print(f"listened on {', '.join(found['addresses'])}; {found['seconds']:.0f} s in all")
        if arguments.store:
            arguments.store.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
