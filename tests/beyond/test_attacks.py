"""Attacks on a study and a federation that once succeeded, each with what happens instead."""

import threading
import time
from pathlib import Path

import pytest
import torch
from federated import small

from fedgo import _files
from fedgo.beyond import (
    ADVISED,
    Client,
    Fitting,
    Kind,
    Letter,
    Plan,
    Refused,
    Server,
    Study,
    converse,
    decode,
)
from fedgo.beyond.federation.wire import unpack
from fedgo.beyond.study import study as module

OPTIONS = "name,x\na,0\nb,1\nc,2\n"


def begun(folder: Path, names: str = OPTIONS) -> Study:
    """Return a study of three options."""
    (folder / "options.csv").write_text(names, encoding="utf-8")
    return Study(folder / "study.json", folder / "options.csv", trials=400, noise=0.1, method="ucb1")


def test_no_reward_is_lost_while_another_thread_looks(tmp_path: Path) -> None:
    study, stop = begun(tmp_path), threading.Event()

    def look() -> None:
        while not stop.is_set():
            study.verdict()

    looking = threading.Thread(target=look)
    looking.start()
    for k in range(60):
        study.tell("abc"[k % 3], float(k % 7))
    stop.set()
    looking.join()
    assert len(Study(tmp_path / "study.json").told) == 60


def test_a_study_and_a_link_to_it_share_one_lock(tmp_path: Path) -> None:
    begun(tmp_path).tell("a", 1.0)
    (tmp_path / "other").mkdir()
    link = tmp_path / "other" / "link.json"
    link.symlink_to(tmp_path / "study.json")
    Study(link).tell("b", 2.0)
    assert sorted(path.name for path in tmp_path.rglob(".*.lock")) == [".study.json.lock"]
    assert [option for option, *_ in Study(tmp_path / "study.json").told] == ["a", "b"]


def test_who_waits_too_long_for_the_lock_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from filelock import FileLock

    study = begun(tmp_path)
    monkeypatch.setattr(module, "_WAIT", 0.1)
    with (
        FileLock(tmp_path / ".study.json.lock"),
        pytest.raises(TimeoutError, match=r"another process has held it"),
    ):
        study.tell("a", 1.0)


def test_only_what_this_module_left_is_tidied(tmp_path: Path) -> None:
    others = [tmp_path / ".study.json.original", tmp_path / ".notes.0123abcd"]
    left = tmp_path / ".study.json.0123abcd"
    for path in (*others, left):
        path.write_text("x", encoding="utf-8")
        _age(path)
    for name in ("study.json", "*"):
        with _files.whole(tmp_path / name, "the study") as file:
            file.write(b"{}")
    assert all(path.exists() for path in others) and not left.exists()


def _age(path: Path) -> None:
    """Make ``path`` two hours old."""
    import os

    old = time.time() - 7200
    os.utime(path, (old, old))


def test_a_page_shows_the_name_of_an_option_as_text(tmp_path: Path) -> None:
    study = begun(tmp_path, "name,x\n<img src=x onerror=alert(1)>,0\nb,1\nc,2\n")
    for option, reward in (("<img src=x onerror=alert(1)>", 3.0), ("b", 1.0), ("c", 0.5)):
        study.tell(option, reward)
    assert "<img" not in study._repr_html_() and "&lt;img" in study._repr_html_()


def test_a_letter_in_the_name_of_another_client_is_refused() -> None:
    """Its own data are not lost: the client it names answers as before."""
    _, plan = small()
    server = Server(plan)
    clients = [Client(plan, me) for me in range(plan.clients)]
    for client in clients:
        while not client.calling:
            client.tell(client.ask(), 0.5)

    class Impostor:
        def answer(self, letter: bytes) -> bytes | None:
            reply = clients[0].answer(letter)
            forged = reply and decode(reply, plan.fingerprint, server.desk.federation)._replace(client=1)
            return forged and forged.encode(plan.fingerprint)

    words = converse(server, [Impostor(), *clients[1:]])
    assert "another sender" in words[0] and 1 not in words


@pytest.mark.parametrize(
    "numbers",
    [[1.0, 0, 0, 1e101, 0, 0], [2.0, 1, 0, 0, -3e100, 0], [1.0, 3e100]],
    ids=["dense", "negative", "one"],
)
def test_a_sum_that_its_counts_do_not_allow_is_refused(numbers: list[float]) -> None:
    with pytest.raises(Refused, match="beyond 2e"):
        unpack(torch.tensor(numbers, dtype=torch.float64), 3)


def test_a_claim_of_a_million_pulls_makes_no_plan_beyond_the_budget() -> None:
    arms = torch.rand(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plan = Plan(arms, clients=1, fitting=Fitting(0.1, 10, ADVISED), seed=1)
    server, client = Server(plan), Client(plan, 0)
    while not client.calling:
        client.tell(client.ask(), 0.5)
    server.begin()
    (letter,) = server.letters().values()
    asked = decode(letter, plan.fingerprint, server.desk.federation)
    counts = torch.tensor([1e6, 1, 1, 0, 0, 5e5, 1, 0, 0, 0], dtype=torch.float64)
    answer = Letter(Kind.STATISTICS, 0, asked.exchange, plan.known_exchange, counts, asked.federation)
    server.accept(answer.encode(plan.fingerprint), sender=0)
    server.merge()
    assert len(server.desk.planned.arms) <= 10
