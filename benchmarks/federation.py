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
from typing import Any

import numpy as np
import psutil
import torch
from at_site import hartmann
from nvflare.recipe import ProdEnv, SimEnv

from fedgo.federation.flare import Hub, recipe
from fedgo.federation.local import play
from fedgo.paper.experiments import tuned, world
from fedgo.phase_one import phase_one_length

ROOT = Path(__file__).resolve().parents[1]
CLIENTS, ROUNDS = 5, 100
ADMIN = "admin@fedgo.org"
PACKED, DENSE = ("counts", 2000), ("dense", 20)
RUNS = {"packed": (PACKED, False), "dense": (DENSE, False), "together": (PACKED, True)}


def described(folder: Path, encoding: str, oracle: int) -> dict[str, Any]:
    """What `at_site.hartmann` is told: the settings, and the file of the problem, which is written to ``folder``."""
    whole, file = world("hartmann6", 1, 0), folder / "hartmann6.npz"
    problem, length = whole.problem, phase_one_length(CLIENTS, ROUNDS)
    noise = problem.sigma * problem.tape(length + CLIENTS * ROUNDS)[0]
    np.savez(file, arms=problem.arms[0].numpy(), means=problem.means[0].numpy(), noise=noise.numpy())
    settings = {**tuned("hartmann6", "Fed-GO-UCB"), "encoding": encoding}
    return {"file": str(file), "settings": settings, "clients": CLIENTS, "length": length, "oracle": oracle}


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def provision(folder: Path, ports: list[int]) -> Path:
    """Certificates and start-up kits of a server, the clients and an administrator; the folder that holds the kits.

    NVFlare's server listens where its name says: on the loopback interface for "localhost", else on all of them.
    """
    people = [{"name": f"site-{i + 1}", "type": "client", "org": "fedgo"} for i in range(CLIENTS)]
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
    subprocess.run(tool, cwd=folder, check=True, capture_output=True, timeout=60)
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
    """End all that ``process`` has begun, and ``itself``."""
    family = process.children(recursive=True) + [process] * itself
    for each in family:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(family, 10)


@contextmanager
def cleanly() -> Iterator[Path]:
    """A folder that is deleted at the end, when whatever was begun is stopped, however the block ends."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit("stopped"))
    folder = Path(tempfile.mkdtemp(prefix="fedgo-federation-"))
    try:
        yield folder
    finally:
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


def hub(folder: Path, form: tuple[str, int], together: bool) -> Hub:
    place = Path(tempfile.mkdtemp(dir=folder))
    return Hub("at_site:hartmann", described(place, *form), str(place), CLIENTS * ROUNDS, together, limit=3.0)


def submitted(
    kits: Path, name: str, form: tuple[str, int], together: bool, needed: int | None = None
) -> Path:
    """The folder where a run, submitted here, leaves what happened."""
    run = hub(kits, form, together)
    environment = ProdEnv(str(kits / ADMIN), login_timeout=30.0, username=ADMIN)
    with quietly(kits / "submitted.out"):
        recipe(name, run, CLIENTS, needed).execute(environment)
    return Path(run.folder)


def until(file: Path, lines: int, seconds: float) -> str:
    """What ``file`` says as soon as it has so many ``lines``."""
    for _ in range(int(seconds * 20)):
        text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        if text.count("\n") >= lines or text.endswith("}"):
            return text
        time.sleep(0.05)
    raise TimeoutError(f"{file.name} is not there after {seconds:.0f} s")


def report(name: str, folder: Path) -> dict[str, Any]:
    """What is kept of a run, once it is over, compared with the same run in this process; printed too."""
    kept = json.loads(until(folder / "server.json", 10**9, 90))
    form, together = RUNS.get(name, RUNS["packed"])
    plan, _ = hartmann(**described(folder, *form))
    problem = world("hartmann6", 1, plan.seed).problem
    trace = play(problem, plan, CLIENTS * ROUNDS, together=together)
    pulls: dict[int, tuple[int, float]] = {}
    for diary in folder.glob("client*.txt"):
        rows = [line.split() for line in diary.read_text(encoding="utf-8").splitlines()]
        pulls |= {int(step): (int(arm), float(reward)) for step, arm, reward in rows}
    expected = dict(enumerate(zip(trace.arm[0].tolist(), trace.reward[0].tolist(), strict=True)))
    verdict = f"equal to the {'run in one process' if together else 'simulator'}"
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


def killed(kits: Path, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """A run of which the client at ``process`` is killed in the middle."""
    folder = submitted(kits, "fedgo-killed", *RUNS["packed"], needed=1)
    until(folder / "client2.txt", ROUNDS // 2, 60)
    stop(psutil.Process(process.pid))
    return report("killed", folder)


def strangers(kits: Path, folder: Path, ports: list[int]) -> dict[str, Any]:
    """Whether a client of another authority, and one without a certificate, are let in."""
    foreign = provision(folder / "stranger", ports) / "site-1"
    process = started(foreign)
    words = ""
    for _ in range(60):
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


def stamp() -> dict[str, Any]:
    """Where and with what a run was made; the code by a hash of fedgo/federation and of this folder's two files."""
    files = [
        *sorted((ROOT / "fedgo/federation").glob("*.py")),
        ROOT / "benchmarks/at_site.py",
        Path(__file__),
    ]
    code = sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    made = {
        "how": "make federation STORE=file",
        "code": code,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    made |= {"python": platform.python_version(), "processors": str(os.cpu_count())}
    return made | {name: version(name) for name in ("nvflare", "torch", "numpy")}


def main() -> None:
    names = [*RUNS, "killed", "strangers"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, help="where to keep what was found")
    parser.add_argument("--only", action="append", choices=[*names, "simulator"])
    parser.add_argument("--simulator", action="store_true", help="NVFlare's simulator too")
    arguments = parser.parse_args()
    wanted = arguments.only or [*names, *(["simulator"] if arguments.simulator else [])]
    os.environ |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'benchmarks'}", "OMP_NUM_THREADS": "1"}
    os.environ["MALLOC_ARENA_MAX"] = "2"
    found: dict[str, Any] = {
        "stamp": stamp(),
        "clients": CLIENTS,
        "rounds": ROUNDS,
        "oracle": DENSE[1],
    }
    addresses: set[str] = set()
    over, begun = Event(), time.perf_counter()
    with cleanly() as folder:
        Thread(target=watch, args=(addresses, over), daemon=True).start()
        ports = free_ports(2)
        kits = provision(folder / "provisioned", ports)
        print(f"provisioned in {time.perf_counter() - begun:.1f} s", flush=True)
        processes = {
            kit: started(kits / kit) for kit in ["localhost", *(f"site-{i + 1}" for i in range(CLIENTS))]
        }
        for name, (form, together) in RUNS.items():
            if name in wanted:
                found[name] = report(name, submitted(kits, f"fedgo-{name}", form, together))
        if "strangers" in wanted:
            found["strangers"] = strangers(kits, folder, ports)
        if "killed" in wanted:
            found["killed"] = killed(kits, processes["site-3"])
        stop(psutil.Process(), itself=False)
        if "simulator" in wanted:
            run = hub(folder, *RUNS["packed"])
            environment = SimEnv(num_clients=CLIENTS, workspace_root=str(folder / "simulator"))
            with quietly(folder / "simulator.out"):
                recipe("fedgo-simulator", run, CLIENTS).execute(environment)
            found["simulator"] = report("simulator", Path(run.folder))
        over.set()
        found |= {"addresses": sorted(addresses), "seconds": time.perf_counter() - begun}
        print(f"listened on {', '.join(found['addresses'])}; {found['seconds']:.0f} s in all")
        if arguments.store:
            arguments.store.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
