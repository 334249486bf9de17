"""Client and server without a transport: equal to the simulator, refusals by name, files of another plan or party."""

import struct
import zlib
from types import SimpleNamespace

import pytest
import torch
from federated import content, explored, pull, refuses, small, started
from instances import sample

import fedgo
from fedgo import Langevin, Network, Settings
from fedgo.beyond import Client, Kind, Letter, Plan, Server, at_random, converse, decode, play
from fedgo.beyond.federation.wire import OVERHEAD, Exchange, pack, unpack
from fedgo.messages import scalars

BRIEF = Langevin(rounds=30)


# The same algorithm


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_federation_is_the_simulator_at_any_threshold_and_after_a_posterior_was_computed_afresh(seed):
    gamma = (0.0, 0.3, 3.0, 30.0, float("inf"), 1.0)[seed]
    rounds = 107 if gamma > 1 else 20  # with more than a hundred pulls between two synchronisations
    network, settings = Network(2, 2), Settings(0.3, 0.5, gamma, "counts")
    problem = fedgo.realizable(network, 1, arms=4 + 3 * seed, seed=seed, sigma=0.3)
    start = fedgo.shared_start(problem, network, 3, rounds, BRIEF, encoding="counts")
    plan = Plan(problem.arms[0], settings, 3, network, start.exploration.arm.shape[1], BRIEF, seed=seed)
    assert play(problem, plan, 3 * rounds) == fedgo.fed_go_ucb(start, settings)


# Letters


@pytest.mark.parametrize("pulls", [0, 1, 5, 6, 7, 30])
def test_a_letter_carries_the_scalars_that_the_ledger_charges_and_they_come_back_bit_by_bit(pulls):
    _, plan = small()
    arm = torch.randint(6, (pulls,), generator=torch.Generator().manual_seed(pulls))
    each = torch.stack([torch.ones(pulls).double(), sample(pulls)])
    data = torch.zeros(2, 6).double().index_add(1, arm, each)
    letter = Letter(Kind.STATISTICS, 2, Exchange(9, 7), Exchange(8), pack(data), start=5)
    letter = letter.encode(plan.fingerprint)
    assert len(letter) == OVERHEAD + 8 * scalars("counts", 2, pulls, 6) and OVERHEAD == 64
    read = decode(letter, plan.fingerprint)
    assert (read.kind, read.client, read.start) == (Kind.STATISTICS, 2, 5)
    assert Kind.SUMS.__reduce_ex__(2) == (Kind, (10,))  # by getattr, Python 3.11.2 could not load a letter
    assert (read.exchange, read.since) == (Exchange(9, 7), Exchange(8))
    assert torch.equal(unpack(read.numbers, 6), data)


def test_an_arm_that_was_pulled_again_is_sent_again_and_its_sum_once():
    data = torch.tensor([[0, 3, 0, 1, 0, 0], [0, 0.7, 0, -2.0, 0, 0]], dtype=torch.float64)
    numbers = pack(data)
    assert numbers.tolist() == [1, 1, 1, 3, 0.7, 0, 0, -2.0] and torch.equal(unpack(numbers, 6), data)


def test_the_layout_is_the_one_that_is_declared():
    sent = torch.tensor([1.5, -0.25], dtype=torch.float64)
    letter = Letter(Kind.NEWS, 2, Exchange(9), Exchange(8, 5), sent, federation=6, used=4, start=3).encode(77)
    head = struct.pack("<HHIQQQIIIIII", 3, 8, 2, 77, 6, 3, 9, 0, 8, 5, 4, 2)
    assert letter[:-4] == b"FDGO" + head + struct.pack("<dd", 1.5, -0.25)
    assert letter[-4:] == struct.pack("<I", zlib.crc32(letter[:-4])) and len(letter) == OVERHEAD + 16


MIXED = torch.randint(3, (120,), generator=torch.Generator().manual_seed(1))
BUSY = torch.tensor([0] * 10 + [1, 2]).repeat(10)


@pytest.mark.parametrize("turns", [None, MIXED, BUSY])
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_the_ledger_is_the_weight_of_the_letters_in_any_order_of_turns(turns, share, monkeypatch):
    weights = {"up": 0, "down": 0}

    class Weighing(Server):
        def letters(self):
            letters = super().letters()
            weights["down"] += sum(len(letter) - OVERHEAD for letter in letters.values()) // 8
            return letters

        def accept(self, received, sender=None):
            weights["up"] += (len(received) - OVERHEAD) // 8
            return super().accept(received, sender)

    monkeypatch.setattr("fedgo.beyond.federation.local.Server", Weighing)
    problem, plan = small()
    trace = play(problem, plan, 120, turns, at_random(share))
    assert weights == {"up": int(trace.up.sum()), "down": int(trace.down.sum())} and weights["up"] > 0
    assert 1 < trace.sync.sum() < 100


# What is refused


def changed(letter, place, form, value):
    """The letter with one field changed, and a checksum that fits."""
    body = bytearray(letter[:-4])
    struct.pack_into(form, body, place, value)
    return bytes(body) + struct.pack("<I", zlib.crc32(body))


def field(place, form, value):
    return lambda letter, plan: changed(letter, place, form, value)


def numbers(*values):
    def fault(letter, plan):
        sent = torch.tensor(values, dtype=torch.float64)
        return decode(letter, plan.fingerprint)._replace(numbers=sent).encode(plan.fingerprint)

    return fault


BROKEN = {  # what either side refuses of any letter
    "damaged: the checksum is another": lambda letter, plan: letter[:-8] + b"other" + letter[-3:],
    "damaged: 30 bytes": lambda letter, plan: letter[:30],
    "it begins with b'FDGX'": field(3, "<c", b"X"),
    "version 2: this is version 3": field(4, "<H", 2),  # a letter of an earlier fedgo
    "another federation": field(20, "<Q", 5),
    "kind 99": field(6, "<H", 99),
    "kind 1: there are": field(6, "<H", 1),  # the dense letters of earlier versions
    "another plan": field(12, "<Q", 5),
    "wrong length": field(56, "<I", 1000),
    "a letter is str: give bytes": lambda letter, plan: "letter",
}
WRONG_NUMBERS = {  # of counts and sums of six arms
    "wrong shape: 3 numbers, not 2 min": numbers(*[1.0] * 3),
    "wrong shape: 14 numbers, not 2 min": numbers(*[1.0] * 14),
    "there are 6 arms": numbers(6.0, 1.0),
    "no statistics: there are": numbers(0.5, 1.0),
    "a count is not whole": numbers(*[0.5] * 12),
    "or of an arm without pulls": numbers(*[0.0] * 6, 1.0, *[0.0] * 5),
    "more pulls than can be counted": numbers(1e17, *[0.0] * 11),
    "not finite": numbers(1.0, float("nan")),
    "out of range": numbers(1.0, 1e300),
}
TO_SERVER = {
    "unknown client 3: there are N = 3": field(8, "<I", 3),
    "out of order: NEWS of exchange 3, and exchange 3 is open": field(6, "<H", Kind.NEWS),
    "STATISTICS of exchange 0, and exchange 3 is open": field(36, "<I", 0),
    "out of order: STATISTICS of exchange 1000": field(36, "<I", 1000),
    "out of order: STATISTICS of exchange 3, and exchange 3 is open": field(40, "<I", 1),
    "builds on exchange 1000": field(44, "<I", 1000),
    "client 1 builds on exchange 2; it or the server": field(48, "<I", 1),
    "pulls by client 1, which has no": field(44, "<Q", 0),
    "client 1 claims 200000000, and at most 99999998 are due": numbers(*[1e8] * 2, *[0.0] * 10),
}
FOR_ANOTHER = {"for client 2: this is client 1": field(8, "<I", 2)}
REQUEST = FOR_ANOTHER | {
    "kind STATISTICS: a client sends it": field(6, "<H", Kind.STATISTICS),
    "exchange 0, and client 1 is .* after exchange 2": field(36, "<I", 0),
    "used its answer to exchange 5, which this file": field(44, "<I", 5),
    "which this file may not know": field(28, "<Q", 5),  # another start, though its answers were used
}
NEWS = FOR_ANOTHER | {
    "kind SUMS: a client sends it": field(6, "<H", Kind.SUMS),
    "out of order: news of exchange 1000 on 2": field(36, "<I", 1000),
    "on 1000, and this client answered 3 on 2": field(44, "<I", 1000),
    "the server used another answer to exchange 3": field(52, "<I", 1),
    "used another answer": field(28, "<Q", 5),
    "kind PLAN: this plan has the other": field(6, "<H", Kind.PLAN),
    "START of exchange 3, and client 1 is answered": field(6, "<H", Kind.START),
}


def test_who_refuses_a_letter_says_why_and_is_as_before():
    problem, plan, clients, server = started(small())
    client = clients[1]
    for _ in range(2):
        for each in clients:
            pull(problem, each, 2)
        if server.number == 1:
            converse(server, clients)
    server.begin()
    request = server.letters()[1]
    for reason, fault in (BROKEN | REQUEST).items():
        refuses(client, client.answer, fault(request, plan), reason)
    reply = client.answer(request)
    for reason, fault in (BROKEN | TO_SERVER | WRONG_NUMBERS).items():
        refuses(server, server.accept, fault(reply, plan), reason)
    assert server.accept(reply) is True
    before = content(server)
    assert server.accept(reply) is False and content(server) == before
    for i in (0, 2):
        server.accept(clients[i].answer(server.letters()[i]))
    server.merge()
    refuses(server, server.accept, reply, "is closed")
    news = server.letters()[1]
    for reason, fault in (BROKEN | NEWS | WRONG_NUMBERS).items():
        refuses(client, client.answer, fault(news, plan), reason)
    assert client.answer(news) is None
    before = content(client)
    assert client.answer(news) is None and content(client) == before


def test_what_does_not_fit_phase_one_is_refused_with_the_reason():
    problem, plan = small()
    (first, *_), server = explored(problem, plan)
    late = Client(plan, 2)
    server.begin()
    letters = server.letters()
    refuses(late, late.answer, letters[2], "too early: Phase I goes on here")
    reply = first.answer(letters[0])
    assert first.answer(letters[0]) == reply
    refuses(server, server.accept, numbers(1.0, 1.0)(reply, plan), "wrong shape: 1 pulls of Phase I, not 3")
    with pytest.raises(RuntimeError, match="the pulls of Phase I are made: let this client answer"):
        first.ask()
    with pytest.raises(ValueError, match="no client answered"):
        server.merge()
    with pytest.raises(ValueError, match="in Phase I, tell of the arm"):
        late.tell((late.ask() + 1) % 6, 0.0)
    server.accept(reply)
    server.merge()
    w0 = numbers(1.0)(server.letters()[0], plan)
    refuses(first, first.answer, w0, "wrong shape: 1 numbers of START, not 9")


# Exchanges


def test_a_client_that_refuses_or_is_refused_is_silent_and_the_others_go_on():
    clients, server = started(small(), 2)[2:]
    damaged = SimpleNamespace(answer=lambda letter: clients[2].answer(letter)[:-1])
    words = converse(server, [clients[0], Client(small(gamma=2.0)[1], 1), damaged])
    assert words[1].startswith("another plan") and words[2].startswith("damaged") and len(words) == 2
    assert server.desk.total[0].sum() == 2 and clients[0].memory.base[0].sum() == 2
    assert converse(server, clients) == {} and server.desk.total[0].sum() == 6
    assert all(torch.equal(client.memory.base, server.desk.total) for client in clients)


def test_together_all_clients_of_a_round_choose_before_any_of_them_learns():
    problem, plan = small()
    trace = play(problem, plan, 60, together=True)
    clients, server, noise = [Client(plan, i) for i in range(3)], Server(plan), problem.tape(plan.length + 60)

    def tell(i, arm, t):
        return clients[i].tell(arm, float(problem.observe(torch.tensor([[arm]]), noise[:, t : t + 1])))

    for t in range(plan.length):
        tell(t % 3, clients[t % 3].ask(), t)
    converse(server, clients)
    arms, sync = [], []
    for t in range(plan.length, plan.length + 60, 3):
        asked = [client.ask() for client in clients]
        fires = [tell(i, arm, t + i) for i, arm in enumerate(asked)]
        arms += asked
        sync += [False, False, any(fires)]
        if any(fires):
            converse(server, clients)
    assert trace.arm[0, plan.length :].tolist() == arms and trace.sync[0, plan.length :].tolist() == sync
    assert trace.up.sum() == server.scalars[0] and 1 < sum(sync) < 20 and trace != play(problem, plan, 60)


def test_silence_at_random_has_its_share_and_its_seed():
    silences, both = (at_random(0.3), at_random(0.3), at_random(0.3, seed=1)), range(1000)
    patterns = [[silent(k % 5, k // 5) for k in both] for silent in silences]
    assert patterns[0] == patterns[1] != patterns[2] and 0.25 < sum(patterns[0]) / 1000 < 0.35
    assert not any(at_random(0.0)(i, 1) for i in range(50)) and all(at_random(1.0)(i, 1) for i in range(50))


# Files


def test_a_file_of_another_plan_or_party_is_refused(tmp_path):
    _, plan, clients, server = started(small())
    path, other = tmp_path / "a file", small(gamma=2.0)[1]
    for party, another in ((clients[0], Server), (server, Client)):
        party.save(path)
        with pytest.raises(ValueError, match=r"a file.*it holds "):
            another.load(path, plan)
        with pytest.raises(ValueError, match=r"a file.*the plan is .* it is another than"):
            type(party).load(path, other)


@pytest.mark.slow
def test_many_synchronisations_leave_nothing_behind():
    problem, _, clients, server = started(small(gamma=0.0))
    sizes = []
    for t in range(90):
        pull(problem, clients[t % 3])
        converse(server, clients)
        held = sum(value.numel() for value in clients[0].memory if isinstance(value, torch.Tensor))
        accounts = server.desk.accounts
        offers = {id(data) for account in accounts for data in (account.offer, account.later)}
        sizes.append((held, len(offers), len(server.desk.inbox)))
    assert set(sizes[60:]) <= set(sizes[3:60]) and server.number == 91
