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
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from federated import pull, setting, started
from test_federation import ACTIONS, Federation, held

from fedgo import Langevin, Network, Problem, Settings, fed_go_ucb, shared_start
from fedgo.beyond import Client, Plan, Refused, Server, Study, play
from fedgo.beyond.method.surrogates import IndependentArms

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "book/_assets/reliability.txt"


def table(folder: Path, options: int) -> Path:
    """Write a table of some options, and return its path."""
    path = folder / "options.csv"
    path.write_text("name,x\n" + "".join(f"o{k},{k * 7 % 5 + k / 10}\n" for k in range(options)))
    return path


def begun(folder: Path, options: int = 4, **how: Any) -> Study:
    """Begin a study of some options in the folder."""
    path = folder / "study.json"
    path.unlink(missing_ok=True)
    return Study(path, table(folder, options), trials=40, noise=0.1, method="ucb1", **how)


def damaged_letters(draw: random.Random, folder: Path) -> int:
    """Each bit of a letter flipped, and the letter cut or lengthened: it is refused, and nothing changes."""
    problem, plan = setting(draw.choice(["network", "planned"]), IndependentArms())
    clients, server = started(problem, plan)
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
    arms, clients, rounds, seed = (
        draw.randint(2, 8),
        draw.randint(1, 4),
        draw.randint(2, 9),
        draw.randrange(10**6),
    )
    features = torch.rand(1, arms, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    means = draw.choice([0.0, 0.5, 3.0]) + draw.choice([0.0, 1e-3, 1.0]) * features[..., 0]
    problem = Problem("random", features, means, (0,), seed, draw.choice([0.03, 0.1, 1.0]))
    network, how, settings = (
        Network(2, 2),
        Langevin(30),
        Settings(0.3, 0.5, draw.choice([0.1, 1.0]), "counts"),
    )
    start = shared_start(problem, network, clients, rounds, how, draw.randint(20, 100), "counts")
    plan = Plan(features[0], settings, clients, network, start.exploration.arm.shape[1], how, seed)
    assert play(problem, plan, clients * rounds) == fed_go_ucb(start, settings), "another run"
    return clients * rounds


def damaged_files(draw: random.Random, folder: Path) -> int:
    """A file cut, or with a byte changed: it is refused by name, or holds what it held."""
    problem, plan = setting(draw.choice(["network", "planned"]), IndependentArms())
    clients, server = started(problem, plan)
    study = begun(folder)
    study.tell("o1", draw.random())
    clients[0].save(folder / "client")
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
            with suppress(ValueError):
                assert said(read(path)) == wanted, f"{name}: byte {k} is taken with another content"
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
        assert after.tell("o1", 9.0) == len(after.told), (
            f"{name} killed at line {line} or byte {limit}: stuck"
        )
        shutil.copy(folder / "old.json", study.path)
    return attempts


def tells(draw: random.Random, folder: Path) -> int:
    """Four processes tell at once: each result is in the file once, and each got a number of its own."""
    study, children = begun(folder), []
    for who in range(4):
        child = os.fork()
        if child == 0:
            mine = Study(study.path)
            numbers = [mine.tell(f"o{k % 4}", who + k / 64) for k in range(10)]
            (folder / f"numbers{who}").write_text(" ".join(map(str, numbers)))
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    numbers = [int(n) for who in range(4) for n in (folder / f"numbers{who}").read_text().split()]
    rewards = sorted(reward for *_, reward in study.told)
    assert sorted(numbers) == list(range(1, 41)), "a number twice"
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
            option, reward = (
                draw.choice([option, *(one for one, where in opened if where == site)]),
                draw.gauss(0, 1),
            )
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
    describe = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    commit = subprocess.run(describe, capture_output=True, text=True, check=False).stdout.strip()
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
    made = f"Made on {time.strftime('%Y-%m-%d')} at commit `{commit}` by `make attack SECONDS={options.seconds:.0f}`."
    if options.store:
        TABLE.write_text("\n".join([*rows, "", made, ""]), encoding="utf-8")
    print(made)
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
