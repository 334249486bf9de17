"""Client and server without a transport: equal to the simulator, refusals by name, nothing lost or counted twice."""

import random
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import torch
from instances import sample
from kept_run import STEPS, setting

from fedgo import (
    Langevin,
    Network,
    Settings,
    clustered,
    cosine8,
    dis_lin_ucb,
    fed_go_ucb,
    hartmann6,
    realizable,
    shared_start,
)
from fedgo.confidence import Tally, condition
from fedgo.federation import (
    Client,
    Kind,
    Letter,
    Plan,
    Refused,
    Server,
    at_random,
    converse,
    decode,
    deliver,
    play,
)
from fedgo.federation.wire import OVERHEAD
from fedgo.messages import scalars

BRIEF = Langevin(rounds=30)
PROBLEMS = {
    "hartmann6": lambda: hartmann6(1, seed=3),
    "cosine8": lambda: cosine8(1, seed=3),
    "magic": lambda: clustered("magic", 1, seed=3),
    "shuttle": lambda: clustered("shuttle", 1, seed=3),
}


# The same algorithm


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["dense", "counts"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_clients_and_server_do_what_the_simulator_does(name, encoding):
    problem, clients, rounds = PROBLEMS[name](), 5, 12
    network, settings = Network(problem.arms.shape[2]), Settings(0.01, 0.1, 1.0, encoding)
    start = shared_start(problem, network, clients, rounds, BRIEF, encoding=encoding)
    plan = Plan(problem.arms[0], settings, clients, network, start.exploration.arm.shape[1], BRIEF, seed=3)
    trace = play(problem, plan, clients * rounds)
    assert trace == fed_go_ucb(problem, start, settings) and 1 < trace.sync.sum() < 40


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["dense", "counts"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_without_a_network_they_are_dis_lin_ucb(name, encoding):
    problem, settings = PROBLEMS[name](), Settings(0.01, 0.1, 1.0, encoding)
    trace = play(problem, Plan(problem.arms[0], settings, 4, seed=3), 60)
    assert trace == dis_lin_ucb(problem, 4, 60, settings) and 1 < trace.sync.sum() < 60


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("encoding", ["dense", "counts"])
def test_equal_at_any_threshold_and_after_a_posterior_was_computed_afresh(encoding, seed):
    gamma, patience = ((0.0, 0), (0.3, 0), (3.0, 2), (30.0, 0), (float("inf"), 0), (0.0, 1))[seed]
    rounds = 107 if gamma > 1 else 20  # with more than a hundred pulls between two synchronisations
    network, settings = Network(2, 2), Settings(0.3, 0.5, gamma, encoding, patience)
    problem = realizable(network, 1, arms=4 + 3 * seed, seed=seed, sigma=0.3)
    start = shared_start(problem, network, 3, rounds, BRIEF, encoding=encoding)
    plan = Plan(problem.arms[0], settings, 3, network, start.exploration.arm.shape[1], BRIEF, seed=seed)
    assert play(problem, plan, 3 * rounds) == fed_go_ucb(problem, start, settings)


# Letters


def small(encoding="counts", gamma=1.0, clients=3, arms=6, length=7):
    """A problem of one run and its plan."""
    problem = realizable(Network(2, 2), 1, arms=arms, seed=4, sigma=0.3)
    settings = Settings(0.3, 0.5, gamma, encoding)
    return problem, Plan(problem.arms[0], settings, clients, Network(2, 2), length, Langevin(5, 0.05), seed=4)


def pull(problem, client, pulls=1):
    """Some pulls by one client; the rewards are the means and a little that depends on how many there were."""
    fires = False
    for _ in range(pulls):
        arm = client.ask()
        fires = client.tell(arm, float(problem.means[0, arm]) + 0.1 * (client.pulls % 7 - 3)) or fires
    return fires


def started(plan, problem):
    """The clients and the server after Phase I."""
    clients, server = [Client(plan, i) for i in range(plan.clients)], Server(plan)
    for client in clients:
        while not client.calling:
            pull(problem, client)
    converse(server, clients)
    return clients, server


@pytest.mark.parametrize("pulls", [0, 1, 5, 6, 7, 30])
@pytest.mark.parametrize("encoding", ["dense", "counts"])
def test_a_letter_carries_the_scalars_that_the_ledger_charges_and_they_come_back_bit_by_bit(encoding, pulls):
    _, plan = small(encoding)
    around = plan.around(sample(plan.dimension))
    arm = torch.randint(6, (pulls,), generator=torch.Generator().manual_seed(pulls))
    zero = torch.zeros(6, dtype=torch.float64)
    tally = Tally(zero.index_add(0, arm, torch.ones(pulls).double()), zero.index_add(0, arm, sample(pulls)))
    vector = plan.vector(around, tally)
    data = Letter(Kind.STATISTICS, 2, 9, 8, plan.pack(vector)).encode(plan.fingerprint)
    assert len(data) == OVERHEAD + 8 * scalars(encoding, plan.dimension, pulls, 6)
    read = decode(data, plan.fingerprint)
    assert read[:4] == (Kind.STATISTICS, 2, 9, 8) and torch.equal(plan.unpack(read.numbers), vector)


def test_an_arm_that_was_pulled_again_is_sent_again_and_its_sum_once():
    _, plan = small()
    vector = torch.tensor([0, 3, 0, 1, 0, 0, 0, 0.7, 0, -2.0, 0, 0], dtype=torch.float64)
    numbers = plan.pack(vector)
    assert numbers.tolist() == [1, 1, 1, 3, 0.7, 0, 0, -2.0] and torch.equal(plan.unpack(numbers), vector)


def test_the_layout_is_the_one_that_is_declared():
    data = Letter(Kind.NEWS, 2, 9, 8, torch.tensor([1.5, -0.25], dtype=torch.float64)).encode(77)
    assert data[:-4] == b"FDGO" + struct.pack("<HHIIIQQdd", 1, 8, 2, 9, 8, 77, 2, 1.5, -0.25)
    assert data[-4:] == struct.pack("<I", zlib.crc32(data[:-4])) and len(data) == OVERHEAD + 16


class Counting(Server):
    """A server that weighs what is handed over."""

    up = down = 0

    def letters(self):
        found = super().letters()
        self.down += sum(len(data) - OVERHEAD for data in found.values()) // 8
        return found

    def accept(self, received):
        self.up += (len(received) - OVERHEAD) // 8
        return super().accept(received)


@pytest.mark.parametrize("encoding", ["dense", "counts"])
def test_the_ledger_is_the_weight_of_the_letters(encoding, monkeypatch):
    monkeypatch.setattr("fedgo.federation.local.Server", Counting)
    servers, make = [], Counting.__init__

    def kept(self, plan):
        make(self, plan)
        servers.append(self)

    monkeypatch.setattr(Counting, "__init__", kept)
    problem, plan = small(encoding)
    trace = play(problem, plan, 60)
    assert (servers[0].up, servers[0].down) == (int(trace.up.sum()), int(trace.down.sum()))
    assert servers[0].up > 0


def test_a_plan_made_twice_is_the_same_and_another_is_not():
    _, plan = small()
    _, twin = small()
    others = [small("dense"), small(gamma=2.0), small(clients=4), small(arms=7), small(length=8)]
    assert twin.fingerprint == plan.fingerprint
    assert len({plan.fingerprint, *(other.fingerprint for _, other in others)}) == 6


def changed(data, at, format, value):
    """A letter with one field changed, and a checksum that fits."""
    body = bytearray(data[:-4])
    struct.pack_into(format, body, at, value)
    return bytes(body) + struct.pack("<I", zlib.crc32(body))


NAN = float("nan")
ANY = {  # what either side refuses, from a letter that it would take
    "damaged: the checksum": lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
    "damaged: 3 bytes": lambda data: data[:3],
    "damaged: the checksum is": lambda data: data[:-1],
    "it begins with b'FDGX'": lambda data: changed(data, 3, "<c", b"X"),
    "version 2: this is version 1": lambda data: changed(data, 4, "<H", 2),
    "kind 99": lambda data: changed(data, 6, "<H", 99),
    "another plan": lambda data: changed(data, 20, "<Q", 5),
    "wrong length": lambda data: changed(data, 28, "<Q", 1000),
    "out of order: exchange 0": lambda data: changed(data, 12, "<I", 0),
    "a letter is str: give bytes": lambda data: "letter",
}
TO_SERVER = ANY | {
    "unknown client 3: there are N = 3": lambda data: changed(data, 8, "<I", 3),
    "kind NEWS: a server sends it": lambda data: changed(data, 6, "<H", Kind.NEWS),
    "kind GRADIENT: exchange": lambda data: changed(data, 6, "<H", Kind.GRADIENT),
    "out of order: exchange 1000": lambda data: changed(data, 12, "<I", 1000),
    "builds on exchange 1000": lambda data: changed(data, 16, "<I", 1000),
    "not finite": lambda data: changed(data, 36, "<d", NAN),
    "numbers from a client without": lambda data: changed(data, 16, "<I", 0),
}
FROM_COUNTS = {
    "wrong shape: 3 numbers, not 2 min": lambda data, plan: resized(data, plan, 3),
    "wrong shape: 14 numbers, not 2 min": lambda data, plan: resized(data, plan, 14),
    "there are 6 arms": lambda data, plan: changed(data, 36, "<d", 6.0),
    "no statistics: there are": lambda data, plan: changed(data, 36, "<d", 0.5),
    "a count is not whole": lambda data, plan: resized(data, plan, 12, 0.5),
    "an arm without pulls has a sum": lambda data, plan: changed(
        resized(data, plan, 12, 0.0), 36 + 48, "<d", 1.0
    ),
}
FROM_DENSE = {
    "wrong shape: 3 numbers, not d² \\+ d = 90": lambda data, plan: resized(data, plan, 3),
    "negative diagonal": lambda data, plan: changed(data, 36, "<d", -1.0),
}


def resized(data, plan, size, value=1.0):
    """The letter with ``size`` numbers, each ``value``."""
    letter = decode(data, plan.fingerprint)
    return letter._replace(numbers=torch.full((size,), value, dtype=torch.float64)).encode(plan.fingerprint)


def indefinite(data, plan):
    """The letter with a ΔΣ that is large off its diagonal, and 0 on it."""
    letter = decode(data, plan.fingerprint)
    numbers = torch.full_like(letter.numbers, 1e9)
    numbers[: plan.dimension**2 : plan.dimension + 1] = 0.0
    return letter._replace(numbers=numbers).encode(plan.fingerprint)


def desk(server):
    """What a server holds, as plain values."""
    flat = [[part if part is None else part.tolist() for part in link[3:]] for link in server.desk.links]
    inbox = {i: (letter[:4], letter.numbers.tolist()) for i, letter in server.desk.inbox.items()}
    plain = (server.desk.number, server.desk.open, server.desk.rounds, server.desk.w.tolist(), inbox)
    return plain, flat, [link[:3] for link in server.desk.links], server.desk.total.tolist(), server.scalars


def memory(client):
    """What a client holds, as plain values."""
    held = [part.tolist() if isinstance(part, torch.Tensor) else part for part in client.memory]
    state = None if client.exploring else [part.tolist() for part in client._model.state.posterior]
    return held, state


def refuses(party, holds, take, data, reason):
    before = holds(party)
    with pytest.raises(Refused, match=reason):
        take(data)
    assert holds(party) == before


@pytest.mark.parametrize("encoding", ["dense", "counts"])
def test_the_server_refuses_by_name_and_is_as_before(encoding):
    problem, plan = small(encoding)
    clients, server = started(plan, problem)
    pull(problem, clients[1], 3)
    server.begin()
    data = clients[1].answer(server.letters()[1])
    own = {
        reason: lambda d, f=f: f(d, plan)
        for reason, f in (FROM_DENSE if plan.packed is False else FROM_COUNTS).items()
    }
    for reason, fault in (TO_SERVER | own).items():
        refuses(server, desk, server.accept, fault(data), reason)
    assert server.accept(data) is True
    before = desk(server)
    assert server.accept(data) is False and desk(server) == before
    server.merge()
    refuses(server, desk, server.accept, data, "is closed")


@pytest.mark.parametrize("encoding", ["dense", "counts"])
def test_a_client_refuses_by_name_and_is_as_before(encoding):
    problem, plan = small(encoding)
    clients, server = started(plan, problem)
    client = clients[1]
    for each in clients:
        pull(problem, each)
    server.begin()
    letters = server.letters()
    out = {"for client 2: this is client 1": lambda data: changed(data, 8, "<I", 2)}
    out["kind STATISTICS: a client sends it"] = lambda data: changed(data, 6, "<H", Kind.STATISTICS)
    for reason, fault in (ANY | out).items():
        if "checksum" not in reason:
            refuses(client, memory, client.answer, fault(letters[1]), reason)
    refuses(
        client, memory, client.answer, changed(letters[1], 6, "<H", Kind.WEIGHTS), "has no place|ŵ₀ is known"
    )
    for each, letter in zip(clients, letters.values(), strict=True):
        server.accept(each.answer(letter))
    server.merge()
    news = server.letters()[1]
    faults = ANY | out | {"not finite": lambda data: changed(data, 36, "<d", NAN)}
    faults |= {"out of order: news of exchange 1000": lambda data: changed(data, 12, "<I", 1000)}
    faults |= {"on 1000, and this client": lambda data: changed(data, 16, "<I", 1000)}
    faults |= {
        reason: lambda d, f=f: f(d, plan)
        for reason, f in (FROM_DENSE if not plan.packed else FROM_COUNTS).items()
    }
    faults["out of order: START"] = lambda data: changed(data, 6, "<H", Kind.START)
    del faults["out of order: exchange 0"]  # an old START or NEWS is one that came twice
    if not plan.packed:
        faults["no statistics: linalg.cholesky"] = lambda data: indefinite(data, plan)
    for reason, fault in faults.items():
        refuses(client, memory, client.answer, fault(news), reason)
    assert client.answer(news) is None
    before = memory(client)
    assert client.answer(news) is None and memory(client) == before
    refuses(client, memory, client.answer, changed(letters[1], 12, "<I", 0), "out of order: exchange 0")


def test_in_phase_one_too():
    for encoding in ("dense", "counts"):
        problem, plan = small(encoding)
        clients, server = [Client(plan, i) for i in range(3)], Server(plan)
        for client in clients[:2]:
            while not client.calling:
                pull(problem, client)
        server.begin()
        letters = server.letters()
        refuses(clients[2], memory, clients[2].answer, letters[2], "too early: Phase I goes on here")
        data = clients[0].answer(letters[0])
        assert clients[0].answer(letters[0]) == data
        refuses(server, desk, server.accept, resized(data, plan, 4), "wrong shape")
        refuses(
            server,
            desk,
            server.accept,
            changed(data, 6, "<H", Kind.STATISTICS),
            "kind STATISTICS: exchange 1",
        )
        with pytest.raises(RuntimeError, match="Phase I is done here and ŵ₀ has not come"):
            clients[0].ask()
        with pytest.raises(ValueError, match="no client answered"):
            server.merge()
        arm = clients[2].ask()
        with pytest.raises(ValueError, match="Phase I is uniform"):
            clients[2].tell((arm + 1) % 6, 0.0)


def test_rewards_and_arms_are_checked_before_anything_changes():
    problem, plan = small()
    clients, _ = started(plan, problem)
    before = memory(clients[0])
    for arm, reward, error in (
        (6, 0.0, ValueError),
        (-1, 0.0, ValueError),
        (1.0, 0.0, TypeError),
        (0, "1", TypeError),
    ):
        with pytest.raises(error):
            clients[0].tell(arm, reward)
    for reward in (NAN, float("inf")):
        with pytest.raises(ValueError, match="give a finite number"):
            clients[0].tell(0, reward)
    assert memory(clients[0]) == before


# Loss, silence, turns


class Twice(Client):
    """A client that gets every letter twice."""

    def answer(self, received):
        first = super().answer(received)
        assert super().answer(received) == first
        return first


@pytest.mark.parametrize("encoding", ["dense", "counts"])
def test_letters_that_come_twice_change_nothing(encoding, monkeypatch):
    problem, plan = small(encoding)
    once = play(problem, plan, 60)
    accept = Server.accept
    monkeypatch.setattr("fedgo.federation.local.Client", Twice)
    monkeypatch.setattr(Server, "accept", lambda self, data: (accept(self, data), accept(self, data))[0])
    assert play(problem, plan, 60) == once


def lossy(server, clients, draw, share):
    """One synchronisation over a network that loses letters, answers and news, and brings old ones again."""
    server.begin()
    for i, letter in server.letters().items():
        if draw.random() > share:
            data = clients[i].answer(letter)
            if draw.random() > share:
                server.accept(data)
    if not server.desk.inbox:
        return
    server.merge()
    for i, letter in server.letters().items():
        if draw.random() > share:
            clients[i].answer(letter)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.2, 0.7])
@pytest.mark.parametrize("encoding", ["dense", "counts"])
@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_lost_and_nothing_counted_twice(encoding, share, seed):
    problem, plan = small(encoding, gamma=0.5)
    clients, server = started(plan, problem)
    draw = random.Random(seed)
    everything = Tally.blank(6)
    offsets = clients[0]._model.around.learner.offsets
    one = torch.ones((), dtype=torch.float64)
    for _ in range(150):
        i = draw.choice((0, 1, 1, 1, 2))
        arm, reward = clients[i].ask(), draw.gauss(0, 1)
        everything = everything.record(torch.tensor(arm), reward - offsets[arm], one)
        if clients[i].tell(arm, reward):
            lossy(server, clients, draw, share)
        state = clients[i]._model.state
        exact = plan.posterior(clients[i]._model.around, clients[i].memory.base, state.fresh)
        torch.testing.assert_close(state.posterior.mean, exact.mean, rtol=0, atol=1e-9)
    for _ in range(2):
        converse(server, clients)
    vector = plan.vector(clients[0]._model.around, everything)
    learner = clients[0]._model.around.learner
    whole = condition(learner.features, learner.offsets, plan.settings.lam, everything)
    for client in clients:
        torch.testing.assert_close(client.memory.base, vector, rtol=0, atol=1e-9)
        torch.testing.assert_close(
            client._model.state.posterior.covariance, whole.covariance, rtol=0, atol=1e-8
        )
        assert client._model.state.fresh.counts.sum() == 0 and client._model.state.gain == 0
    torch.testing.assert_close(server.desk.total, vector, rtol=0, atol=1e-9)


def test_the_event_counts_what_was_pulled_between_the_answer_and_the_news():
    problem, plan = small(gamma=float("inf"))
    clients, server = started(plan, problem)
    pull(problem, clients[0], 5)
    server.begin()
    for i, letter in server.letters().items():
        server.accept(clients[i].answer(letter))
    pull(problem, clients[0], 3)  # it does not wait
    server.merge()
    deliver(server, clients)
    state, around = clients[0]._model.state, clients[0]._model.around
    assert state.fresh.counts.sum() == 3 and clients[0].memory.base[:6].sum() == 5
    sigma, fresh = (plan.settings.lam * torch.eye(plan.dimension).double() for _ in range(2))
    for counts, into in ((clients[0].memory.base[:6], (sigma, fresh)), (state.fresh.counts, (fresh,))):
        for matrix in into:
            matrix += around.gradients.T * counts @ around.gradients
    expected = (
        torch.linalg.cholesky(fresh).diagonal().log().sum()
        - torch.linalg.cholesky(sigma).diagonal().log().sum()
    )
    torch.testing.assert_close(state.gain, 2 * expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("encoding", ["dense", "counts"])
def test_a_client_that_has_lost_everything_begins_again(encoding):
    problem, plan = small(encoding, gamma=0.5)
    clients, server = started(plan, problem)
    for t in range(30):
        if pull(problem, clients[t % 3]):
            converse(server, clients)
    converse(server, clients)
    clients[1] = Client(plan, 1)
    converse(server, clients)  # it gets ŵ₀
    assert not clients[1].exploring and clients[1].memory.base.abs().sum() == 0
    pull(problem, clients[1])
    converse(server, clients)  # and then all that there is
    torch.testing.assert_close(clients[1].memory.base, server.desk.total, rtol=0, atol=1e-12)
    torch.testing.assert_close(clients[0].memory.base, server.desk.total, rtol=0, atol=1e-12)
    assert server.desk.total[:6].sum() == 31 or encoding == "dense"


def test_a_client_that_was_silent_at_the_end_of_phase_one_gets_its_w0_later():
    problem, plan = small()
    clients, server = [Client(plan, i) for i in range(3)], Server(plan)
    for client in clients:
        while not client.calling:
            pull(problem, client)
    server.begin()
    server.accept(clients[0].answer(server.letters()[0]))
    server.accept(clients[1].answer(server.letters()[1]))
    server.merge()
    for i in (0, 1):
        clients[i].answer(server.letters()[i])
        pull(problem, clients[i], 4)
    converse(server, clients)
    assert torch.equal(clients[2].memory.w0, clients[0].memory.w0) and clients[0].memory.base[:6].sum() == 8
    pull(problem, clients[2])
    converse(server, clients)
    assert [client.memory.base[:6].sum().item() for client in clients] == [9, 9, 9]


@pytest.mark.parametrize("encoding", ["dense", "counts"])
def test_any_order_of_turns(encoding):
    problem, plan = small(encoding)
    busy = torch.tensor([0] * 10 + [1, 2]).repeat(10)
    mixed = torch.randint(3, (120,), generator=torch.Generator().manual_seed(1))
    for turns in (busy, mixed):
        trace = play(problem, plan, 120, turns=turns)
        fresh, up, cost = [0] * 3, 0, lambda k: int(scalars(encoding, plan.dimension, k, 6))
        for t, i in enumerate(turns.tolist(), plan.length):
            fresh[i] += 1
            if trace.sync[0, t]:
                up += sum(cost(k) for k in fresh)
                fresh = [0] * 3
        assert int(trace.up[0, plan.length :].sum()) == up and 1 < trace.sync.sum() < 100


@pytest.mark.parametrize("encoding", ["dense", "counts"])
def test_together_all_clients_of_a_round_choose_before_any_of_them_learns(encoding):
    problem, plan = small(encoding)
    trace = play(problem, plan, 60, together=True)
    clients, server, noise = [Client(plan, i) for i in range(3)], Server(plan), problem.tape(plan.length + 60)

    def rewarded(arm, t):
        return float(problem.observe(torch.tensor([[arm]]), noise[:, t : t + 1]))

    for t in range(plan.length):
        arm = clients[t % 3].ask()
        clients[t % 3].tell(arm, rewarded(arm, t))
    converse(server, clients)
    arms, sync = [], []
    for t in range(plan.length, plan.length + 60, 3):
        asked = [client.ask() for client in clients]
        fires = [clients[i].tell(arm, rewarded(arm, t + i)) for i, arm in enumerate(asked)]
        arms += asked
        sync += [False, False, any(fires)]
        if any(fires):
            converse(server, clients)
    assert trace.arm[0, plan.length :].tolist() == arms and trace.sync[0, plan.length :].tolist() == sync
    assert trace.up.sum() == server.scalars[0] and 1 < sum(sync) < 20 and trace != play(problem, plan, 60)


def test_a_synchronisation_that_nobody_answers_changes_nothing_and_the_next_one_has_it_all():
    problem, plan = small()
    clients, server = started(plan, problem)
    pull(problem, clients[0], 4)
    before = memory(clients[0]), server.scalars
    converse(server, clients, lambda client, number: True)
    assert (memory(clients[0]), server.scalars) == before and not server.desk.open
    converse(server, clients, lambda client, number: client == 1)
    assert [client.memory.base[:6].sum().item() for client in clients] == [4, 0, 4]
    converse(server, clients)
    assert [client.memory.base[:6].sum().item() for client in clients] == [4, 4, 4]


def test_silence_at_random_has_its_share_and_its_seed():
    silent, twin, other = at_random(0.3), at_random(0.3), at_random(0.3, seed=1)
    said = [[each(i, n) for i in range(5) for n in range(200)] for each in (silent, twin, other)]
    assert said[0] == said[1] != said[2] and 0.25 < sum(said[0]) / 1000 < 0.35
    assert not any(at_random(0.0)(i, 1) for i in range(50)) and all(at_random(1.0)(i, 1) for i in range(50))


# Files


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["dense", "counts"])
def test_saved_and_loaded_at_every_step_a_run_is_the_same(encoding, tmp_path, kept_at_every_step):
    problem, plan = small(encoding)
    once = play(problem, plan, 40)
    kept_at_every_step(plan)
    again = play(problem, plan, 40)
    assert again == once and len(list(tmp_path.iterdir())) == 1


def test_a_file_of_another_plan_or_party_is_refused(tmp_path):
    problem, plan = small()
    clients, server = started(plan, problem)
    clients[0].save(tmp_path / "client.npz")
    server.save(tmp_path / "server.npz")
    for load, name in ((Client.load, "server.npz"), (Server.load, "client.npz")):
        with pytest.raises(ValueError, match=rf"{name}.*it lacks"):
            load(tmp_path / name, plan)
    for load, name in ((Client.load, "client.npz"), (Server.load, "server.npz")):
        with pytest.raises(ValueError, match=rf"{name}.*the file is of another plan"):
            load(tmp_path / name, small(gamma=2.0)[1])
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-200])
        with pytest.raises(ValueError, match=rf"{name}"):
            load(tmp_path / name, plan)


@pytest.mark.slow
@pytest.mark.parametrize(("encoding", "seed"), [("dense", 1), ("counts", 2), ("guarded", 3)])
def test_killed_at_random_points_the_run_is_the_one_that_was_not(encoding, seed, tmp_path):
    script = Path(__file__).with_name("kept_run.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script, tmp_path, encoding, str(seed)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parents[1],
        env={"PYTHONPATH": ".", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    problem, plan = setting(encoding)
    trace = play(problem, plan, STEPS - plan.length)
    diary = [tuple(map(int, line.split())) for line in (tmp_path / "arms.txt").read_text().splitlines()]
    assert sorted(set(diary)) == list(enumerate(trace.arm[0].tolist()))
    sent = (int(trace.up.sum()), int(trace.down.sum()))
    assert (tmp_path / "scalars.txt").read_text() == repr(sent) and int(done.stdout) >= 3


@pytest.mark.slow
def test_many_synchronisations_leave_nothing_behind(tmp_path):
    problem, plan = small(gamma=0.0)
    clients, server = started(plan, problem)

    def sizes():
        clients[0].save(tmp_path / "client.npz")
        held = sum(part.numel() for part in clients[0].memory if isinstance(part, torch.Tensor))
        kept = {id(part): part.numel() for link in server.desk.links for part in link[3:] if part is not None}
        return held, sum(kept.values()), len(server.desk.inbox)

    found = []
    for t in range(300):
        pull(problem, clients[t % 3])
        converse(server, clients)
        found.append(sizes())
    assert set(found[200:]) <= set(found[3:100]) and server.desk.number == 301
