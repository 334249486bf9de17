"""`make limits`: seconds, bytes and memory of clients and servers by N and K, and ten thousand synchronisations.

Every size has a process of its own, so that memory is its own. In the soak the clients are in one process and the
server in another; letters go through a socket on 127.0.0.1, and every pull is synchronised.
"""

import argparse
import json
import multiprocessing
import os
import platform
import secrets
import statistics
import time
from hashlib import sha256
from importlib.metadata import version
from multiprocessing.connection import Client as Connected
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

import psutil
import torch

from fedgo import Langevin, Network, Settings
from fedgo.federation import Client, Plan, Server, converse
from fedgo.federation.local import deliver

ROOT = Path(__file__).resolve().parents[1]
SIZES = [(n, 500) for n in (1, 5, 20, 50)] + [(1, k) for k in (50, 2000, 5000)]
WARM = 0.1  # of a soak, before its memory is compared


def plan(clients: int, arms: int, encoding: Any = "counts") -> Plan:
    """Random arms in six dimensions and the paper's network; the oracle is brief, as it is not what is measured."""
    x = torch.rand(arms, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    settings = Settings(0.01, 0.1, 0.0, encoding)
    return Plan(x, settings, clients, Network(6), clients, Langevin(rounds=2))


def reward(arms: torch.Tensor, arm: int, step: int) -> float:
    return float(torch.sin(4 * arms[arm]).mean()) + 0.01 * (step % 7)


def resident() -> float:
    """Memory of this process, MB."""
    return psutil.Process().memory_info().rss / 1e6


def timed(seconds: list[float], call: Any, *arguments: Any) -> Any:
    before = time.perf_counter()
    found = call(*arguments)
    seconds.append(time.perf_counter() - before)
    return found


def size(clients: int, arms: int, encoding: str = "counts", rounds: int = 6) -> dict[str, Any]:
    """Medians over some rounds in which every client pulls once and all synchronise."""
    torch.set_num_threads(1)
    what, before = plan(clients, arms, encoding), resident()
    server, several = Server(what), [Client(what, i) for i in range(clients)]
    for step, client in enumerate(several):
        client.tell(client.ask(), reward(what.arms, client.ask(), step))
    converse(server, several)
    took: dict[str, list[float]] = {name: [] for name in ("ask", "tell", "answer", "merge", "news")}
    up = down = 0
    for step in range(rounds):
        for client in several:
            arm = timed(took["ask"], client.ask)
            timed(took["tell"], client.tell, arm, reward(what.arms, arm, step))
        server.begin()
        for i, letter in server.letters().items():
            reply = timed(took["answer"], several[i].answer, letter)
            up = max(up, len(reply))
            server.accept(reply)
        timed(took["merge"], server.merge)
        for i, letter in server.letters().items():
            down = max(down, len(letter))
            timed(took["news"], several[i].answer, letter)
    found: dict[str, Any] = {"clients": clients, "arms": arms, "encoding": encoding, "up": up, "down": down}
    found["most"] = 40 + 8 * len(what.blank())
    found["memory"] = (resident() - before) / clients
    return found | {name: statistics.median(seconds) for name, seconds in took.items()}


class Far:
    """The clients at the other end of a connection."""

    def __init__(self, connection: Connection, me: int) -> None:
        self.connection, self.me = connection, me

    def said(self, what: str, argument: Any = None) -> Any:
        self.connection.send_bytes(bytes([self.me]) + what.encode() + b" " + (argument or b""))
        return self.connection.recv_bytes()

    def answer(self, letter: bytes) -> bytes | None:
        return self.said("answer", letter) or None


def site(address: tuple[str, int], key: bytes, clients: int, arms: int) -> None:
    """The process with the clients: it does what it is told until the connection ends."""
    torch.set_num_threads(1)
    what = plan(clients, arms)
    several, step = [Client(what, i) for i in range(clients)], 0
    with Connected(address, authkey=key) as connection:
        while True:
            try:
                said = connection.recv_bytes()
            except EOFError:
                return
            client, (kind, _, letter) = several[said[0]], said[1:].partition(b" ")
            if kind == b"turn":
                arm, step = client.ask(), step + 1
                client.tell(arm, reward(what.arms, arm, step))
                connection.send_bytes(str(resident()).encode())
            else:
                connection.send_bytes(client.answer(letter) or b"")


def soak(synchronisations: int, clients: int = 5, arms: int = 100) -> dict[str, Any]:
    """Memory of both processes at the beginning and the end, and the bytes and seconds in between."""
    torch.set_num_threads(1)
    what, key = plan(clients, arms), secrets.token_bytes(16)
    server, begun = Server(what), time.perf_counter()
    here, there = [], []
    with Listener(("127.0.0.1", 0), authkey=key) as listener:
        arguments = (listener.address, key, clients, arms)
        process = multiprocessing.get_context("spawn").Process(target=site, args=arguments, daemon=True)
        process.start()
        with listener.accept() as connection:
            several = [Far(connection, i) for i in range(clients)]
            for far in several:
                far.said("turn")
            converse(server, several)
            for step in range(synchronisations):
                there.append(float(several[step % clients].said("turn")))
                server.begin()
                deliver(server, several)
                server.merge()
                deliver(server, several)
                here.append(resident())
    process.join(30)
    if server.desk.number != 1 + synchronisations or process.exitcode != 0:
        raise RuntimeError(f"{server.desk.number} exchanges, and the clients ended with {process.exitcode}")
    warm = int(WARM * synchronisations)
    found: dict[str, Any] = {"synchronisations": synchronisations, "clients": clients, "arms": arms}
    found |= {"server": [here[warm], here[-1]], "site": [there[warm], there[-1]]}
    found |= {"scalars": list(server.scalars), "seconds": time.perf_counter() - begun}
    return found | {"exit": process.exitcode, "address": "127.0.0.1"}


def stamp() -> dict[str, Any]:
    """Where and with what it was measured; the code by a hash of fedgo/federation and of this file."""
    files = [*sorted((ROOT / "fedgo/federation").glob("*.py")), Path(__file__)]
    code = sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    made = {"how": "make limits STORE=file", "code": code, "date": time.strftime("%Y-%m-%d", time.gmtime())}
    made |= {"python": platform.python_version(), "processors": str(os.cpu_count())}
    return made | {name: version(name) for name in ("torch", "numpy")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, help="where to keep what was found")
    parser.add_argument("--soak", type=int, default=10_000, help="synchronisations")
    parser.add_argument("--only", choices=["sizes", "soak"])
    arguments = parser.parse_args()
    found: dict[str, Any] = {"stamp": stamp()}
    if arguments.only != "soak":
        found["sizes"] = []
        for case in [*SIZES, (5, 500, "dense")]:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                found["sizes"].append(pool.apply(size, case))
            print(json.dumps(found["sizes"][-1]), flush=True)
    if arguments.only != "sizes":
        found["soak"] = soak(arguments.soak)
        print(json.dumps(found["soak"]))
    if arguments.store:
        arguments.store.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
