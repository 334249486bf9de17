"""Attack federations, letters, files and studies at random, and count what breaks a promise: `make attack`.

Every kind of attack gets the same share of the time, and its seeds are 0, 1, 2, … A fault is printed with its kind and
seed, by which it can be repeated. The command fails if there is one. With --store the figures become the table of the
page on reliability.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from federated import at_work, held, pull, refuses, setting, small, started, with_surrogate

from fedgo import Langevin, Network, Problem, Settings, fed_go_ucb, shared_start
from fedgo.beyond import Client, Plan, Refused, Server, Study, converse, decode, play
from fedgo.beyond.federation.client import CLIENT
from fedgo.beyond.method.surrogates import IndependentArms
from fedgo.confidence import Tally, condition

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "book/_assets/reliability.txt"


def begun(folder: Path, options: int = 4, **how: Any) -> Study:
    """Begin a study of some options in the folder, which has no other."""
    table = folder / "options.csv"
    table.write_text("name,x\n" + "".join(f"o{k},{k * 7 % 5 + k / 10}\n" for k in range(options)))
    return Study(folder / "study.json", table, trials=40, noise=0.1, method="ucb1", **how)


def damaged_letters(draw: random.Random, folder: Path) -> int:
    """Each bit of a letter flipped, and the letter cut or lengthened: it is refused, and nothing changes."""
    kind = draw.choice(["network", "planned"])
    problem, _, clients, server = started(setting(kind, IndependentArms()))
    for client in clients:
        pull(problem, client, draw.randint(1, 4))
    server.begin()
    request = server.letters()[0]
    answer = clients[0].answer(request)
    whole, party, take = draw.choice(
        [(answer, server, server.accept), (request, clients[1], clients[1].answer)]
    )
    bits = [
        whole[: k // 8] + bytes([whole[k // 8] ^ 1 << k % 8]) + whole[k // 8 + 1 :]
        for k in range(8 * len(whole))
    ]
    bits += [whole[:k] for k in range(len(whole))] + [whole + bytes(k) for k in range(1, 9)]
    before = held(party)
    for letter in bits:
        with suppress(Refused):
            take(letter)
            raise AssertionError(f"{letter!r} is taken for {whole!r}")
    assert held(party) == before, "a refused letter changes its receiver"
    return len(bits)


MOST = 45  # pulls, of which pull k earns 2ᵏ⁻⁴⁵ beyond ŵ₀: of sums one can read which pulls are in them


class Federation:
    """Three clients and a server, with every letter ever sent and every file ever saved."""

    def __init__(self, kind, folder):
        self.problem, self.plan = small(gamma=0.5)
        if kind == "planned":
            self.problem, self.plan = with_surrogate(IndependentArms(), rounds=20)
        self.parties = [*(Client(self.plan, i) for i in range(3)), Server(self.plan)]
        self.files = [[(copy(each), frozenset())] for each in self.parties]  # with the pulls it was told
        self.posted, self.replies, self.pulls, self.path = [], [], 0, folder / "file.npz"
        self.old, self.lost = False, False  # whether an older file was loaded, and whether one was lost
        for k in range(3):  # there is something to fit
            self.pull(k)
        self.files = [files[-1:] for files in self.files]

    def save(self, who, *told):
        self.files[who].append((copy(self.parties[who]), self.files[who][-1][1].union(told)))

    def pull(self, k):
        client = self.parties[k % 3]
        uniform = client.state == "exploring"
        if self.pulls < MOST and not (uniform and client.memory.pulls == len(client.memory.share)):
            arm, told = client.ask(), () if uniform else (self.pulls,)
            offset = 0.0 if client._model is None else float(client._model[0].offsets[0, 0, arm])
            client.tell(arm, 0.3 * arm if uniform else 2.0 ** (self.pulls - MOST) + offset)
            self.pulls += len(told)
            self.save(k % 3, *told)

    def begin(self, k):
        self.parties[3].begin()
        self.send()

    def merge(self, k):
        server = self.parties[3]
        if server.desk.open and (server.started or server.desk.inbox):
            server.merge()
            self.send()

    def send(self):
        self.save(3)
        self.posted += self.parties[3].letters().items()

    def carry(self, k):
        """Any letter that was ever sent to a client, the last ones more often."""
        if self.posted:
            i, letter = self.posted[-1 - k // 2 % min(len(self.posted), 4 if k % 2 else MOST)]
            client = self.parties[i]
            before, memory = client.state, client.memory
            with suppress(Refused):
                reply = client.answer(letter)
                self.save(i)
                self.replies += [reply] if reply else []
            if client.memory is not memory:  # what followed is what the table says
                assert client.state == CLIENT[before, decode(letter, self.plan.fingerprint).kind].leads_to

    def collect(self, k):
        if self.replies:
            with suppress(Refused):
                back = k // 2 % min(len(self.replies), 4 if k % 2 else MOST)
                self.parties[3].accept(self.replies[-1 - back])
                self.save(3)

    def forge(self, k):
        """An answer that claims too much, or is in another client's name, is refused and changes nothing."""
        if self.replies:
            letter = decode(self.replies[-1 - k % len(self.replies)], self.plan.fingerprint)
            claims = torch.zeros(12, dtype=torch.float64)
            claims[k % 6], claims[6 + k % 6] = (1e9, 0.0) if k & 1 else (1.0, -1e102)
            forged = letter._replace(numbers=claims).encode(self.plan.fingerprint)
            refuses(self.parties[3], self.parties[3].accept, forged, ".")
            sent = letter.encode(self.plan.fingerprint)
            refuses(self.parties[3], partial(self.parties[3].accept, sender=letter.client + 1), sent, ".")

    def lose(self, k):
        """A client's file is lost, and the client begins anew."""
        self.parties[k % 3], self.lost = Client(self.plan, k % 3), True
        self.files[k % 3].append((copy(self.parties[k % 3]), frozenset()))

    def exchange(self, k):
        """A whole one, in which some are silent."""
        early = self.plan.network is not None and not self.parties[3].started
        words = converse(self.parties[3], self.parties[:3], lambda i, number: bool(k >> i & 1))
        for who in range(4):
            self.save(who)
        assert self.old or early or not words, words

    def kill(self, k, back=0):
        """One of the four goes on from its last file, or from an older one."""
        who, back = k % 4, min(back, len(self.files[k % 4]) - 1)
        party, told = self.files[who][-1 - back]
        party.save(self.path)
        self.parties[who], self.old = type(party).load(self.path, self.plan), self.old or back > 0
        self.files[who].append((copy(self.parties[who]), told))

    def older(self, k):
        self.kill(k, 1 + k // 4 % 9)

    def check(self):
        """Nobody holds a pull twice."""
        held = [self.parties[3].desk.total]
        for client in self.parties[:3]:
            memory, model = client.memory, client._model
            if model is not None or self.plan.network is None:
                held.append(memory.base + memory.own)
            if model is not None:
                learner, state = model
                parts = learner.features[0, 0], learner.offsets[0, 0], self.plan.settings.lam
                mean = condition(*parts, Tally(*held[-1])).mean
                torch.testing.assert_close(state.posterior.mean[0, 0], mean, rtol=0, atol=1e-9)
                volumes = [volume(self.plan, memory.weights, data) for data in (held[-1], memory.base)]
                gain = volumes[0] - volumes[1]  # of what it has pulled since its base, for the event
                torch.testing.assert_close(state.gain[0, 0], gain, rtol=0, atol=1e-9)
        assert all(len(within(data)) == int(data[0].sum()) for data in held)

    def settle(self):
        """In the end every client agrees with the server, or is refused by name because of an older file."""
        for client in self.parties[:3]:
            while client.state == "exploring" and client.memory.pulls < len(client.memory.share):
                client.tell(client.ask(), 0.1)
        last = max([self.parties[3].number, *(client.memory.answered.number for client in self.parties[:3])])
        for _ in range(last + 3 - self.parties[3].number):
            words = converse(self.parties[3], self.parties[:3])
        counted = within(self.parties[3].desk.total)
        assert self.old or (not words and (self.lost or counted == set(range(self.pulls))))
        for i, client in enumerate(self.parties[:3]):
            if i in words:
                assert "out of order" in words[i] and "older file" in words[i], words
            else:
                assert self.files[i][-1][1] <= counted
                assert self.plan.fitting or within(client.memory.base) == counted


def volume(plan, weights, data):
    """Return ln det of the precision after the pulls in ``data`` (2, K)."""
    gradients = plan.network.gradients(weights, plan.arms)
    prior = plan.settings.lam * torch.eye(plan.network.size).double()
    return (prior + gradients.T * data[0] @ gradients).logdet()


def within(data):
    """The pulls of which ``data`` (2, K) are the counts and sums."""
    value = round(float(data[1].sum()) * 2.0**MOST)
    return {k for k in range(value.bit_length()) if value >> k & 1}


OFTEN = ("pull", "carry")
ACTIONS = (*OFTEN, *OFTEN, "begin", "merge", "collect", "exchange", "kill", "older", "lose", "forge")


def federations(draw: random.Random, folder: Path) -> int:
    """Letters late, lost and replayed, parties killed, on older files or without one: each pull counts once."""
    federation = Federation(draw.choice(["network", "planned"]), folder)
    for _ in range(60):
        getattr(federation, draw.choice(ACTIONS))(draw.randint(0, 2**10))
        federation.check()
    federation.settle()
    return 60


def simulators(draw: random.Random, folder: Path) -> int:
    """Clients and a server play what the simulator plays, with arms that are nearly equal."""
    arms, clients, rounds = (draw.randint(*ends) for ends in ((2, 8), (1, 4), (2, 9)))
    seed, network, how = draw.randrange(10**6), Network(2, 2), Langevin(30)
    features = torch.rand(1, arms, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    means = draw.choice([0.0, 0.5, 3.0]) + draw.choice([0.0, 1e-3, 1.0]) * features[..., 0]
    problem = Problem("random", features, means, (0,), seed, draw.choice([0.03, 0.1, 1.0]))
    settings = Settings(0.3, 0.5, draw.choice([0.1, 1.0]), "counts")
    start = shared_start(problem, network, clients, rounds, how, draw.randint(20, 100), "counts")
    plan = Plan(features[0], settings, clients, network, start.exploration.arm.shape[1], how, seed)
    assert play(problem, plan, clients * rounds) == fed_go_ucb(start, settings), "another run"
    return clients * rounds


def damaged_files(draw: random.Random, folder: Path) -> int:
    """A file cut, or with a byte changed: it is refused by name, or holds what it held."""
    _, plan, client, server = at_work(draw.choice(["network", "planned"]))
    study = begun(folder)
    study.tell("o1", draw.random())
    client.save(folder / "client")
    server.save(folder / "server")
    reads: dict[str, tuple[Callable[[Path], Any], Callable[[Any], Any]]] = {
        "client": (partial(Client.load, plan=plan), held),
        "server": (partial(Server.load, plan=plan), held),
        "study.json": (Study, lambda read: (read.told, read.open)),
    }
    for name, (read, said) in reads.items():
        path = folder / name
        whole, wanted = path.read_bytes(), said(read(path))
        for _ in range(40):
            k = draw.randrange(len(whole))
            rest = whole[k + 1 :] if draw.random() < 0.7 else b""
            path.write_bytes(whole[:k] + bytes([draw.randrange(256)]) * draw.randint(0, 1) + rest)
            try:
                assert said(read(path)) == wanted, f"{name}: byte {k} is taken with another content"
            except ValueError as error:
                assert name in str(error) and "weights_only" not in str(error), f"{name}: {error}"
        path.write_bytes(whole)
    return 40 * len(reads)


CHANGES: dict[str, Callable[[Study], Any]] = {
    "tell": lambda study: study.tell("o2", 2.5),
    "untell": lambda study: study.untell(),
    "ask": lambda study: study.ask(),
    "drop": lambda study: study.drop(study.open[0][0]),
    "retire": lambda study: study.retire("o3"),
}


def in_child(work: Callable[[], Any], line: int, size: int | None) -> bool:
    """Run ``work`` in a child that is killed at its ``line``-th line, or as a file gets larger; whether it was."""
    child = os.fork()
    if child == 0:
        left = iter(range(line, -1, -1))

        def trace(*_: Any) -> Any:
            if next(left, 1) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace

        if size is None:
            sys.settrace(trace)
        else:
            import resource  # POSIX has it

            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        with suppress(BaseException):
            work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) < 0


def kills(draw: random.Random, folder: Path) -> int:
    """A change killed at a line of any module, or in the middle of a write: the file is the old one or the new."""
    study = begun(folder)
    study.tell("o1", 1.0)
    study.ask()
    name, size = draw.choice(list(CHANGES)), study.path.stat().st_size
    shutil.copy(study.path, folder / "copy.json")
    new = Study(folder / "copy.json")
    CHANGES[name](new)
    states = [(each.told, each.open) for each in (study, new)]
    lines, attempts = 6_000, 0
    for _ in range(10):
        shutil.copy(study.path, folder / "old.json")
        limit = draw.randint(0, size + 40) if draw.random() < 0.3 else None
        line = draw.randrange(lines)
        killed = in_child(lambda: CHANGES[name](Study(study.path)), line, limit)
        lines = lines if killed or limit is not None else max(100, line)
        attempts += killed
        after = Study(study.path)
        assert (after.told, after.open) in states, f"{name} killed at line {line} or byte {limit}: torn"
        assert after.tell("o1", 9.0) == len(after.told), f"{name} killed at {line} or {limit}: stuck"
        shutil.copy(folder / "old.json", study.path)
    return attempts


def tell_ten(path: Path, who: int) -> list[int]:
    """Tell ten results of one process, and return the numbers that they get."""
    mine = Study(path)
    return [mine.tell(f"o{k % 4}", who + k / 64) for k in range(10)]


def tells(draw: random.Random, folder: Path) -> int:
    """Four processes tell at once, one by a link: each result is in the file once, with a number of its own."""
    study, link = begun(folder), folder / "elsewhere/link.json"
    link.parent.mkdir()
    link.symlink_to(study.path)
    paths = [link, *[study.path] * 3]
    with get_context("fork").Pool(4) as pool:
        numbers = pool.starmap(tell_ten, zip(paths, range(4), strict=True), chunksize=1)
    rewards = sorted(reward for *_, reward in study.told)
    assert sorted(number for own in numbers for number in own) == list(range(1, 41)), "a number twice"
    assert rewards == sorted(who + k / 64 for who in range(4) for k in range(10)), "a result lost or twice"
    return 40


def studies(draw: random.Random, folder: Path) -> int:
    """Random changes of a study: its results and open trials are those of a model of twenty lines."""
    size, sites = draw.randint(2, 6), draw.choice([[], ["a", "b"]])
    study = begun(folder, size, **({"sites": sites} if sites else {}))
    told: list[tuple[str, str, float]] = []
    opened: list[tuple[str, str]] = []
    retired: set[str] = set()
    for _ in range(25):
        site, option = draw.choice(sites or [""]), f"o{draw.randrange(size)}"
        at = site or None
        action = draw.choice(["ask", "ask", "tell", "tell", "tell", "untell", "drop", "retire"])
        if action == "ask":
            asked, mine = study.ask(at), [trial for trial in opened if trial[1] == site and sites]
            assert asked not in retired and (not mine or mine[0][0] == asked), "ask"
            opened += [] if mine else [(asked, site)]
        elif action == "tell":
            option = draw.choice([option, *(one for one, where in opened if where == site)])
            reward = draw.gauss(0, 1)
            assert study.tell(option, reward, at) == len(told) + 1, "the number of a result"
            told.append((option, site, reward))
            if (option, site) in opened:
                opened.remove((option, site))
        elif action == "untell" and told:
            assert study.untell() == (told[-1][0], told[-1][2]), "untell"
            told.pop()
        elif action == "drop" and opened:
            option, site = draw.choice(opened)
            study.drop(option, site or None)
            opened.remove((option, site))
        elif action == "retire" and len(retired | {option}) < size:
            study.retire(option)
            retired, opened = retired | {option}, [trial for trial in opened if trial[0] != option]
        study = Study(study.path)
        assert (study.told, study.open) == (told, opened), f"after {action}"
    return 25


KINDS: dict[str, tuple[Callable[[random.Random, Path], int], str]] = {
    "letters with a flipped bit, cut or lengthened": (damaged_letters, "letters"),
    "federations: letters late, lost, replayed, forged; parties killed": (federations, "actions"),
    "federations compared with the simulator, arms nearly equal": (simulators, "pulls"),
    "files cut, or with a changed byte": (damaged_files, "files"),
    "a study killed at a line or in a write": (kills, "kills"),
    "four processes tell one study at once": (tells, "results"),
    "random studies compared with a model": (studies, "changes"),
}


def main() -> None:
    """Attack for the given seconds, print the table, and fail if there is a fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600, help="how long, all kinds together")
    parser.add_argument(
        "--store", action="store_true", help=f"write the figures to {TABLE.relative_to(ROOT)}"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows, faults = ["| attack | runs | attempts | faults |", "| --- | ---: | ---: | ---: |"], 0
    for name, (attack, unit) in KINDS.items():
        seed, attempts, bad, begins = 0, 0, 0, time.monotonic()
        while time.monotonic() - begins < options.seconds / len(KINDS):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    attempts += attack(random.Random(seed), Path(folder))
                except Exception as error:
                    bad += 1
                    print(
                        f"FAULT {attack.__name__}, seed {seed}: {type(error).__name__}: {error}", flush=True
                    )
            seed += 1
        rows.append(f"| {name} | {seed:,} | {attempts:,} {unit} | {bad} |")
        print(rows[-1], flush=True)
        faults += bad
    describe = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    commit = subprocess.run(describe, capture_output=True, text=True, check=False).stdout.strip()
    made = f"Made on {time.strftime('%Y-%m-%d')} at commit `{commit}` by `make attack SECONDS={options.seconds:.0f}`."
    if options.store:
        TABLE.write_text("\n".join([*rows, "", made, ""]), encoding="utf-8")
    print(made)
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
