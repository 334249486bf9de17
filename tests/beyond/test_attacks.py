"""Attacks on a federation that once succeeded: each row of the list of attacks by its identifier.

H-c, H-d and H-j, forged answers, lost files and arms that are nearly equal, are among the random attacks; S-c,
a library that is missing, is in `test_missing`.
"""

import importlib
import os
import pickle
import subprocess
import sys
import zipfile
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from federated import pull, small, started, with_surrogate
from torch import Tensor

from fedgo import Network
from fedgo.beyond import Client, Fitting, Kind, Plan, Refused, Server, converse, decode
from fedgo.beyond.federation import files
from fedgo.beyond.federation.wire import Exchange, unpack
from fedgo.beyond.method import planning
from fedgo.beyond.method.advised import METHODS
from fedgo.beyond.method.planning import plan
from fedgo.beyond.method.surrogates import Independent, IndependentArms
from fedgo.simulation import largest

KINDS = {"network": small, "planned": partial(with_surrogate, IndependentArms())}


def forged(clients: list[Client], plan: Plan, liar: int, **fields: Any) -> list[Any]:
    """Return the ``clients``, of which the ``liar`` answers with other ``fields`` in its letters."""

    def answer(received: bytes) -> bytes | None:
        reply = clients[liar].answer(received)
        return reply and decode(reply, plan.fingerprint)._replace(**fields).encode(plan.fingerprint)

    return [SimpleNamespace(answer=answer) if i == liar else client for i, client in enumerate(clients)]


def claims(count: float, total: float) -> dict[str, Tensor]:
    """Return the numbers of an answer that claims ``count`` pulls of the first of six arms, with the sum ``total``."""
    return {"numbers": torch.tensor([count, *[0.0] * 5, total, *[0.0] * 5], dtype=torch.float64)}


def is_refused(kind: str, reason: str, **fields: Any) -> None:
    """Check that a liar's answer with these ``fields`` is refused, and that three exchanges later all is known."""
    problem, plan, clients, server = started(KINDS[kind]())
    first = int(server.known.counts.sum())
    parties = forged(clients, plan, 0, **fields)
    for refused in (True, False, False):
        for client in clients:
            pull(problem, client, 2)
        words = converse(server, parties if refused else clients)
        assert list(words) == [0] * refused and (not refused or reason in words[0])
    assert server.known.counts.sum() == first + 18


def test_an_answer_claims_a_million_pulls() -> None:
    """H-a."""
    _, plan, clients, server = started(KINDS["planned"]())
    for count in (1e6, 1e9, 2.0**53, plan.due + 1):
        is_refused("planned", "too many pulls: client 0 claims", **claims(count, 0.5))
    left = plan.due - int(server.known.counts.sum())
    # the plan is what is left, or an arm for each client
    for liar, count, planned in ((0, left - 4, 4), (1, plan.due, 3)):
        converse(server, forged(clients, plan, liar, **claims(count, 0.5)))
        assert len(server.desk.planned.arms) == planned


def test_an_answer_has_an_impossible_sum() -> None:
    """H-b."""
    for numbers in ([1.0, 0, 0, 1e101, 0, 0], [2.0, 1, 0, 0, -3e100, 0], [1.0, 3e100]):
        with pytest.raises(Refused, match="beyond 2e"):
            unpack(torch.tensor(numbers, dtype=torch.float64), 3)
    for kind in KINDS:
        is_refused(kind, "a sum is beyond 2e+100", **claims(1.0, 1e101))
    _, plan, clients, server = started(KINDS["planned"]())
    assert converse(server, clients) == {}
    with pytest.warns(UserWarning, match="the fit failed"):  # the largest sum that is allowed: a plan is made
        converse(server, forged(clients, plan, 0, **claims(1.0, 2e100)))
        assert len(server.desk.planned.arms) > 0 and converse(server, clients).keys() <= {0}


def test_every_answer_is_lost_on_one_evening() -> None:
    """H-e: the server asks again, as on the page on twelve sites, and nothing is counted twice."""
    clients, server = started(KINDS["planned"](), 2)[2:]
    first = server.known.counts.sum()
    for lost in (True, False):
        server.begin()
        letters = server.letters()
        answers = [client.answer(letters[client.me]) for client in clients]
        for answer in [] if lost else answers:
            server.accept(answer)
    server.merge()
    assert server.known.counts.sum() == first + 2 * len(clients)


def test_rewards_have_another_scale() -> None:
    """H-f."""
    plan, draw = small(length=60)[1], torch.Generator().manual_seed(1)
    clients, server = [Client(plan, i) for i in range(3)], Server(plan)
    for client in clients * 20:
        client.tell(client.ask(), 1e5 + 3e3 * float(torch.randn((), generator=draw)))
    words = r"begin anew with \(y − m\)/s .* m = (1000|99)\d\d.* and s = \d{3,4}"
    with pytest.raises(ValueError, match=words):
        converse(server, clients)


def test_too_many_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    """H-g, M-l: more arms, clients or first pulls than there is free memory for, of 10 GB on every machine."""
    monkeypatch.setattr("fedgo.beyond.federation.plan._free_memory", lambda: 10**10)
    for arms, clients, length in ((39_000, 2, 4), (2, 2**32 - 1, 2**32 - 1), (3, 10**9, 4), (3, 2, 10**10)):
        how = (
            {"network": Network(2, 2)} if length >= clients else {"fitting": Fitting(0.1, 9, METHODS["ucb1"])}
        )
        words = r"a client needs .* bytes, and .* are free: give fewer|at most 100,000,000"
        with pytest.raises(ValueError, match=words):
            Plan(torch.rand(arms, 2).double(), clients=clients, length=length, **how)


def test_an_epoch_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """H-n: blocks of pulls: a fraction of the steps, in the sites' turns, with nearly as many pulls of every arm."""
    mean, steps = torch.tensor([0.5, 0.49, 0.5, 0.48, 0.5, 0.47]).double(), []
    fit = Independent(mean, torch.full((6,), 0.1).double(), torch.arange(6))
    monkeypatch.setattr(planning, "largest", lambda *index: steps.append(1) or largest(*index))
    for sites in (1, 3):
        shares = []
        for single in (100, 10**9):
            monkeypatch.setattr(planning, "_SINGLE", single)
            monkeypatch.setattr(planning, "_SHARE", 25)
            weights = torch.full((1, 6), 2.0).double()
            arms = plan([fit], weights, torch.rand(1, 6).double(), 0.3, 900, sites=sites)
            assert sites == 1 or torch.equal(arms[0] // 2, torch.arange(900) % 3)
            shares.append(torch.bincount(arms[0], minlength=6) / 900)
            assert (len(steps) < 100 + 25 * 5) == (single == 100)
            steps.clear()
        torch.testing.assert_close(*shares, rtol=0, atol=1 / 25)


def test_the_path_leads_to_a_device(tmp_path: Path) -> None:
    """H-l."""
    os.mkfifo(tmp_path / "pipe")
    for path, role in product((tmp_path / "pipe", Path("/dev/zero")), (Client, Server)):
        with pytest.raises(ValueError, match=r"file is .*: it is a device or a pipe; give a saved"):
            role.load(path, small()[1])


def test_a_letter_is_in_another_name() -> None:
    """P-a."""
    _, plan, clients, server = started(small())
    words = converse(server, forged(clients, plan, 0, client=1))
    assert "another sender" in words[0] and 1 not in words and converse(server, clients) == {}


def test_a_stranger_shuts_a_client_out() -> None:
    """S11: a forged request of a late exchange, or a forged empty answer where the transport names no sender."""
    for kind, request in product(KINDS, (True, False)):
        problem, plan, clients, server = started(KINDS[kind]())
        pull(problem, clients[1])
        if request:
            late = decode(server.letters()[1], plan.fingerprint)._replace(since=clients[1].memory.confirmed)
            late = late._replace(kind=Kind.SYNCHRONISE, exchange=Exchange(2**32 - 1))
            clients[1].answer(late.encode(plan.fingerprint))
        else:
            server.begin()
            reply = decode(clients[1].answer(server.letters()[1]), plan.fingerprint)
            server.accept(reply._replace(numbers=reply.numbers[:0]).encode(plan.fingerprint))
        assert "or begin anew without a file" in converse(server, clients)[1]


def test_a_job_names_a_system_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-c."""
    engine = SimpleNamespace(init=lambda f: f, publish=lambda f: f, main=lambda f: f, site_name="site-1")
    stub = SimpleNamespace(CollabCallError=RuntimeError, CollabRecipe=dict, collab=engine)
    monkeypatch.setitem(sys.modules, "nvflare", SimpleNamespace(collab=stub))
    monkeypatch.setitem(sys.modules, "nvflare.collab", stub)
    monkeypatch.delitem(sys.modules, "fedgo.beyond.federation.flare", raising=False)
    flare = importlib.import_module("fedgo.beyond.federation.flare")
    monkeypatch.delitem(sys.modules, "fedgo.beyond.federation.flare")
    monkeypatch.setenv("FEDGO_FOLDER", str(tmp_path / "site"))
    for allowed in ("", "federated:small, federated:setting"):
        monkeypatch.setenv("FEDGO_MAKES", allowed)
        with pytest.raises(ValueError, match=r"make is 'os:system': this machine allows"):
            flare.SiteClient("os:system", {"command": f"touch {tmp_path / 'ran'}"}, "run").begin()
    monkeypatch.setattr("federated.small", lambda **options: (small(**options)[1], lambda arm, step: 0.5))
    options = {"clients": 1, "arms": 6}
    for elsewhere in (str(tmp_path), "../run", "/"):
        with pytest.raises(ValueError, match=r"folder is .*: this machine allows what is below"):
            flare.SiteClient("federated:small", options, elsewhere).begin()
    (tmp_path / "site" / "run").mkdir(parents=True)
    site = flare.SiteClient("federated:small", options, "run")
    site.begin()
    assert site.turn(0) is False and (tmp_path / "site" / "run" / "client0.txt").read_text().endswith("0.5\n")
    assert not (tmp_path / "ran").exists()


def test_a_file_has_a_large_array_that_nobody_needs(tmp_path: Path) -> None:
    """P-d."""
    Client(small()[1], 0).save(tmp_path / "client")
    with zipfile.ZipFile(tmp_path / "client", "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data/99", bytes(10**8))
    with pytest.raises(ValueError, match=r"client.*the size is 1000\d*: it is at most \d+ bytes"):
        Client.load(tmp_path / "client", small()[1])


def test_a_file_holds_a_foreign_pickle(tmp_path: Path) -> None:
    """M-a."""
    for content in (Client, subprocess.run, pickle.loads):
        files.keep(tmp_path / "client", "the client", small()[1].fingerprint, content)
        with pytest.raises(ValueError, match=r"it holds pickled objects") as caught:
            Client.load(tmp_path / "client", small()[1])
        assert "weights_only" not in str(caught.value)
    (tmp_path / "client").write_bytes(pickle.dumps(print))
    with pytest.raises(ValueError, match=r"client'.*File is not a zip file.*give a saved file"):
        Client.load(tmp_path / "client", small()[1])


def test_a_file_was_sealed_by_hand(tmp_path: Path) -> None:
    """M-m."""
    nothing = torch.zeros(2, 6)
    wrong = [{"share": torch.zeros(0).long()}, {"share": torch.tensor([6])}, {"share": None}, {"pulls": "x"}]
    wrong += [{"base": nothing}, {"base": nothing.double() * torch.nan}, {"unsent": nothing.double()[:, :5]}]
    wrong += [{"weights": nothing.double()}, {"retired": nothing[0]}, {"reply": 5}, {"applied": None}]
    for kind, fields in product(KINDS, wrong):
        _, plan, (client, *_), _ = started(KINDS[kind]())
        client.memory = client.memory._replace(**fields)
        client.save(tmp_path / "client")
        with pytest.raises(ValueError, match=r"(?s)the client file is .*; give the file that"):
            Client.load(tmp_path / "client", plan)


def test_the_file_of_the_server_is_lost() -> None:
    """F10: nobody goes on with a server that knows nothing; test_examples.py begins anew as the page says."""
    for kind in KINDS:
        problem, plan, clients, _ = started(KINDS[kind](), 2)
        server, others = Server(plan), [Client(plan), *clients[1:]]  # one client has no file either
        pull(problem, others[0], len(others[0].memory.share))
        for parties in (clients, others, others):
            with pytest.raises(Refused, match=r"client [01] refuses the letters of a new server, whose file"):
                converse(server, parties)
        assert server.known.counts.sum() == 0
