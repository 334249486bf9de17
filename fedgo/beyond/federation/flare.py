"""A federation over NVFlare (https://nvflare.readthedocs.io, extra ``federation``): an adapter that has no algorithm.

A `SiteClient` is a client with its rewards in a process of its own, and a `Hub` is the server. Both make the same plan
from the same public description. NVFlare's Collab API carries the letters (the messages between them), with mutual TLS
if it is provisioned.

Whoever submits a job names a function and a folder. Each machine decides for itself what it allows, by two environment
variables. ``FEDGO_MAKES`` lists the functions as "module:function", separated by commas without spaces.
``FEDGO_FOLDER`` is the folder in which a job may write. A job that names another function is refused before anything of
it is imported. A job that names another folder is refused before anything is written.
"""

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from pkgutil import resolve_name
from threading import Lock
from typing import Any, cast

import psutil
from nvflare.collab import CollabCallError, CollabRecipe, collab

from fedgo._checks import count, number, require
from fedgo.beyond.federation.client import Client
from fedgo.beyond.federation.local import converse
from fedgo.beyond.federation.plan import Plan
from fedgo.beyond.federation.server import Server
from fedgo.beyond.federation.wire import Refused, must

Reward = Callable[[int, int], float]  # the reward of an arm at a step


def made(make: str, options: dict[str, Any]) -> tuple[Plan, Reward]:
    """Return the plan and the rewards that the function ``make`` makes, if this machine allows it."""
    allowed = os.environ.get("FEDGO_MAKES", "").replace(",", " ").split()
    remedy = f"this machine allows {allowed}: its owner can set FEDGO_MAKES"
    require(make in allowed, "make", make, remedy)
    pair: tuple[Plan, Reward] = resolve_name(make)(**options)
    return pair


def writable(folder: str) -> Path:
    """Return the absolute path of ``folder``, if this machine lets jobs write there; nothing is created."""
    allowed = os.environ.get("FEDGO_FOLDER", "")
    path = (Path(allowed) / folder).resolve()
    remedy = f"this machine allows what is below {allowed!r}: its owner can set FEDGO_FOLDER"
    require(allowed != "" and path.is_relative_to(Path(allowed).resolve()), "folder", folder, remedy)
    return path


def client_number(site: str) -> int:
    """Return the number of the client at a site: that at the end of its name, less 1; it is 2 at "site-3"."""
    return int(site.rpartition("-")[2]) - 1


def loopback() -> int:
    """Return how many bytes the loopback interface has received since this machine started, from any process."""
    interfaces = psutil.net_io_counters(pernic=True)
    return sum(each.bytes_recv for name, each in interfaces.items() if name.startswith("lo"))


class SiteClient:
    """A client in a process at its site, which writes each pull and its reward to a file on this site.

    The file of client ``me``, counted from 0, is ``client{me}.txt``. Each line has the step, the arm and the reward.

    Args:
        make: The name "module:function" of the function that returns the plan and the rewards.
        options: The keyword arguments of that function.
        folder: The folder of the file, which this machine has to allow and which has to exist.
    """

    def __init__(self, make: str, options: dict[str, Any], folder: str) -> None:
        self.make, self.options, self.folder = make, options, folder

    @collab.init  # type: ignore[untyped-decorator]
    def begin(self) -> None:
        """Make the client; NVFlare calls this method once, before all others."""
        me = client_number(collab.site_name)
        plan, self.reward = made(self.make, self.options)
        self.client, self.lock = Client(plan, me), Lock()
        self.diary = writable(self.folder) / f"client{me}.txt"

    @collab.publish  # type: ignore[untyped-decorator]
    def turn(self, step: int) -> bool:
        """Make one pull at ``step``, store its reward, and return whether the client asks for an exchange.

        The steps are those of all clients together, Phase I included. When a call exceeds its time limit, NVFlare lets
        it go on at the site. A lock therefore makes the next call wait.
        """
        with self.lock:
            arm = self.client.ask()
            reward = self.reward(arm, step)
            self.client.tell(arm, reward)
            with open(self.diary, "a", encoding="utf-8") as file:
                file.write(f"{step} {arm} {reward!r}\n")
            return self.client.memory.calling

    @collab.publish  # type: ignore[untyped-decorator]
    def answer(self, letter: bytes) -> bytes | str:
        """Return the client's answer to a ``letter``, as bytes, or a text that says why it is refused.

        The bytes are empty if the letter needs no answer.
        """
        with self.lock:
            try:
                return self.client.answer(letter) or b""
            except Refused as refusal:
                return str(refusal)


class Remote:
    """A proxy by which the server calls a site, with a time limit for each call.

    If a call fails or exceeds the limit, the site is not called for ten times the limit after that. The ``log`` has,
    for each letter that was answered or needed no call, its seconds, its bytes, and those of its answer or 0.

    Args:
        proxy: NVFlare's proxy of the site.
        limit: The time limit of a call in seconds.
    """

    def __init__(self, proxy: Any, limit: float) -> None:
        self.proxy, self.limit, self.again = proxy, limit, 0.0
        self.log: list[tuple[float, int, int]] = []

    def call(self, name: str, argument: Any) -> Any:
        """Return what the site's method ``name`` returns, or a text that says why the call failed.

        It is None if the site is not called, because a call has failed less than ten time limits ago.
        """
        if time.monotonic() < self.again:
            return None
        try:
            return getattr(self.proxy(timeout=self.limit), name)(argument)
        except CollabCallError as error:
            self.again = time.monotonic() + 10 * self.limit
            return f"no answer: {error}"

    def answer(self, letter: bytes) -> bytes | None:
        """Return the site's answer to ``letter``, or None if it needs none or the site is not called.

        Raises:
            Refused: The site refused the letter, or the call failed; the message says why.
        """
        begun = time.monotonic()
        reply = self.call("answer", letter) or b""
        must(isinstance(reply, bytes), str(reply))
        self.log.append((time.monotonic() - begun, len(letter), len(reply)))
        return cast(bytes, reply) or None


class Hub:
    """The server's process, which runs Phase I and then the pulls of Phase II.

    A synchronisation goes on without a site that refuses, or does not answer in time. At the end the file
    ``server.json`` has

    - ``sync``: the steps after which an exchange was made, counted from 0, that at the end of Phase I included;
    - ``seconds``: how long each of these exchanges took;
    - ``refused``: the reason of the last refusal by or of each client, by the client's number as text;
    - ``whole``: the seconds of the whole run;
    - ``loopback``: the bytes that the loopback interface has received meanwhile, from any process;
    - ``scalars``: the numbers of scalars that the server has received and sent;
    - ``log``: the entries of the logs of all sites (`Remote`);
    - ``silent``: the numbers of the clients whose site has failed to answer a call.

    Args:
        make: The name "module:function" of the function that returns the plan and the rewards.
        options: The keyword arguments of that function.
        folder: The folder of the file, which every machine has to allow and which has to exist.
        steps: The number of pulls of Phase II by all clients together, raised to a multiple of N if all pull at once.
        together: Whether all N clients pull at once in each round of Phase II; otherwise they pull in turn.
        limit: The seconds within which a site has to answer a call.
    """

    def __init__(
        self, make: str, options: dict[str, Any], folder: str, steps: int, together: bool, limit: float
    ) -> None:
        self.make, self.options, self.folder = make, options, folder
        self.steps, self.together = count("steps", steps, "give at least one"), together
        self.limit = number("limit", limit, "give seconds", above=0)

    @collab.main  # type: ignore[untyped-decorator]
    def run(self) -> None:
        """Run both phases and write the file ``server.json``; NVFlare calls this method when all sites are there."""
        plan, _ = made(self.make, self.options)
        file = writable(self.folder) / "server.json"
        sites = sorted(collab.clients, key=lambda proxy: client_number(proxy.name))
        require(len(sites) == plan.clients, "the number of sites", len(sites), f"give {plan.clients}")
        server, remotes = Server(plan), [Remote(proxy, self.limit) for proxy in sites]
        kept: dict[str, Any] = {"sync": [], "seconds": [], "refused": {}}
        begun, carried, t = time.monotonic(), loopback(), 0
        with ThreadPoolExecutor(plan.clients) as pool:
            while t < plan.length + self.steps:
                exploring = t < plan.length
                step = t if exploring else t - plan.length  # the step within its phase
                together = 1 if exploring or not self.together else plan.clients
                turns = [(step + k) % plan.clients for k in range(together)]
                calls = list(pool.map(lambda i, s: remotes[i].call("turn", s), turns, range(t, t + together)))
                t += together
                if t == plan.length or (not exploring and True in calls):
                    before = time.monotonic()
                    kept["refused"] |= converse(server, remotes)
                    kept["seconds"].append(time.monotonic() - before)
                    kept["sync"].append(t - 1)
        kept |= {"whole": time.monotonic() - begun, "loopback": loopback() - carried}
        kept |= {"scalars": server.scalars, "log": [entry for remote in remotes for entry in remote.log]}
        kept["silent"] = [i for i, remote in enumerate(remotes) if remote.again > 0]
        file.write_text(json.dumps(kept), encoding="utf-8")


def recipe(name: str, hub: Hub, clients: int, needed: int | None = None) -> CollabRecipe:
    """Return a job for NVFlare, with ``hub`` as its server and a `SiteClient` for each of N = ``clients`` sites.

    ``needed`` is the smallest number of sites with which NVFlare starts the job and lets it go on, by default all.
    `Hub.run` needs all at its beginning, so that a smaller number is only of use if sites may be lost later.
    """
    site = SiteClient(hub.make, hub.options, hub.folder)
    return CollabRecipe(name, server=hub, client=site, min_clients=clients if needed is None else needed)
