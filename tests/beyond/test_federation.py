"""Client and server without a transport: equal to the simulator, refusals by name, nothing lost or counted twice."""

import os
import random
import struct
import subprocess
import sys
import zlib
from contextlib import suppress
from copy import copy
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from federated import content, explored, pull, setting, small, started, with_surrogate
from instances import sample
from kept_run import STEPS, interrupted_at

import fedgo
from fedgo import Langevin, Network, Settings
from fedgo.beyond import Client, Kind, Letter, Plan, Refused, Server, at_random, converse, decode, play
from fedgo.beyond.federation.client import CLIENT
from fedgo.beyond.federation.wire import OVERHEAD, Exchange, pack, unpack
from fedgo.beyond.method.surrogates import IndependentArms
from fedgo.confidence import Tally, condition
from fedgo.messages import scalars

BRIEF = Langevin(rounds=30)
PROBLEMS = {
    "hartmann6": lambda: fedgo.hartmann6(1, seed=3),
    "cosine8": lambda: fedgo.cosine8(1, seed=3),
    "magic": lambda: fedgo.clustered("magic", 1, seed=3),
    "shuttle": lambda: fedgo.clustered("shuttle", 1, seed=3),
}


# The same algorithm


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_clients_and_server_do_what_the_simulator_does(name):
    problem, clients, rounds = PROBLEMS[name](), 5, 12
    network, settings = Network(problem.arms.shape[2]), Settings(0.01, 0.1, 1.0, "counts")
    start = fedgo.shared_start(problem, network, clients, rounds, BRIEF, encoding="counts")
    plan = Plan(problem.arms[0], settings, clients, network, start.exploration.arm.shape[1], BRIEF, seed=3)
    trace = play(problem, plan, clients * rounds)
    assert trace == fedgo.fed_go_ucb(start, settings) and 1 < trace.sync.sum() < 40


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_equal_at_any_threshold_and_after_a_posterior_was_computed_afresh(seed):
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


def refuses(party, take, letter, reason):
    before = content(party)
    with pytest.raises(Refused, match=reason):
        take(letter)
    assert content(party) == before


def test_who_refuses_a_letter_says_why_and_is_as_before():
    problem, plan = small()
    clients, server = started(problem, plan)
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


def test_in_phase_one_too():
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


# Every pull once, whatever happens

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
actions = st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2**10))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:client . begins anew")
@pytest.mark.parametrize("kind", ["network", "planned"])
@hypothesis.settings(max_examples=60, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(steps=st.lists(actions, max_size=60))
def test_every_pull_is_counted_once_or_its_client_is_refused_by_name(kind, tmp_path, steps):
    federation = Federation(kind, tmp_path)
    for action, k in steps:
        getattr(federation, action)(k)
        federation.check()
    federation.settle()


def test_one_that_refuses_or_is_refused_is_silent_and_the_others_go_on():
    problem, plan = small()
    clients, server = started(problem, plan)
    for client in clients:
        pull(problem, client, 2)
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
    problem, plan = small()
    clients, server = started(problem, plan)
    path, other = tmp_path / "a file", small(gamma=2.0)[1]
    for party, another in ((clients[0], Server), (server, Client)):
        party.save(path)
        with pytest.raises(ValueError, match=r"a file.*it holds "):
            another.load(path, plan)
        with pytest.raises(ValueError, match=r"a file.*the plan is .* it is another than"):
            type(party).load(path, other)


def at_work(kind):
    """A client with a pull that is not sent, and a server with an answer in its inbox."""
    problem, plan = setting(kind)
    clients, server = started(problem, plan)
    pull(problem, clients[0], 2)
    server.begin()
    server.accept(clients[0].answer(server.letters()[0]))
    pull(problem, clients[0])
    return problem, plan, clients[0], server


def held(party):
    return repr(party.memory if isinstance(party, Client) else (party.desk, party.ledger))


@pytest.mark.parametrize("kind", ["network", "planned"])
def test_a_damaged_file_opens_as_it_was_or_is_refused_in_words(kind, tmp_path):
    *_, plan, client, server = at_work(kind)
    draw, kept, refused = random.Random(5), 0, 0
    for party, name in ((client, "client"), (server, "server")):
        party.save(tmp_path / name)
        whole = (tmp_path / name).read_bytes()
        for _ in range(150):
            place, length = draw.randrange(len(whole)), draw.choice((1, 1, 1, 20, 10**4))
            noise = draw.choice((b"", draw.randbytes(1), draw.randbytes(30)))
            (tmp_path / name).write_bytes(whole[:place] + noise + whole[place + length :])
            try:
                assert held(type(party).load(tmp_path / name, plan)) == held(party)
                kept += 1
            except ValueError as error:
                assert name in str(error) and "weights_only" not in str(error)
                refused += 1
    assert refused > 200 and kept + refused == 300


@pytest.mark.parametrize("how", ["killed", "disk full"])
@pytest.mark.parametrize("kind", ["network", "planned"])
def test_at_every_moment_of_a_write_the_file_is_the_old_one_or_the_new(kind, how, tmp_path):
    problem, plan, client, server = at_work(kind)
    after = copy(client), copy(server)
    pull(problem, after[0]), after[1].merge()
    for old, new in zip((client, server), after, strict=True):
        path, outcomes = tmp_path / "file", set()
        for moment in count():
            old.save(path)
            child = os.fork()
            if child == 0:
                interrupted_at(moment, how)
                with suppress(OSError):
                    new.save(path)
                    os._exit(3)  # the moment is beyond the end
                os._exit(0)
            status = os.waitpid(child, 0)[1]
            whole = held(type(old).load(path, plan))
            assert whole in (held(old), held(new))
            outcomes.add(whole)
            if os.waitstatus_to_exitcode(status) == 3:
                break
        assert moment >= 5 and outcomes == {held(old), held(new)}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), [("network", 2), ("planned", 3)])
def test_killed_at_random_points_the_run_is_the_one_that_was_not(kind, seed, tmp_path):
    script = Path(__file__).with_name("kept_run.py")
    command = [sys.executable, "-W", "ignore", script, tmp_path, kind, str(seed)]
    where = {"cwd": Path(__file__).parents[2], "env": {"PYTHONPATH": ".", "PATH": "/usr/bin:/bin"}}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **where)
    assert done.returncode == 0, done.stderr[-2000:]
    problem, plan = setting(kind)
    trace = play(problem, plan, STEPS - plan.length)
    diary = [tuple(map(int, line.split())) for line in (tmp_path / "arms.txt").read_text().splitlines()]
    assert sorted(set(diary)) == list(enumerate(trace.arm[0].tolist()))
    bill = (int(trace.up.sum()), int(trace.down.sum()))
    assert (tmp_path / "scalars.txt").read_text() == repr(bill) and int(done.stdout) >= 3


@pytest.mark.slow
def test_many_synchronisations_leave_nothing_behind():
    problem, plan = small(gamma=0.0)
    clients, server = started(problem, plan)
    sizes = []
    for t in range(300):
        pull(problem, clients[t % 3])
        converse(server, clients)
        held = sum(value.numel() for value in clients[0].memory if isinstance(value, torch.Tensor))
        accounts = server.desk.accounts
        offers = {id(data) for account in accounts for data in (account.offer, account.later)}
        sizes.append((held, len(offers), len(server.desk.inbox)))
    assert set(sizes[200:]) <= set(sizes[3:100]) and server.number == 301
