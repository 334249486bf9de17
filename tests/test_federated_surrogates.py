"""Surrogates at a client and a server without a transport: equal to the simulator, with and without the guard."""

import functools
import random
from dataclasses import replace

import pytest
import torch

from fedgo import Network, hartmann6, realizable
from fedgo.beyond.epochs import Event, Growing, surrogate_ucb
from fedgo.beyond.guard import Guarantee
from fedgo.beyond.surrogates import ByEvidence, GaussianProcess, LinearisedOnce, Relinearised, single_task_gp
from fedgo.confidence import Tally
from fedgo.federation import Client, Fitting, Plan, Refused, Server, Study, at_random, converse, play
from fedgo.federation import study as studies
from fedgo.messages import scalars
from fedgo.phase_one import phase_one_length

NETWORK = Relinearised(Network(2, 2), 1)
BOTH = ByEvidence((GaussianProcess(), NETWORK))
GUARD = Guarantee(4.0, 0.3)


def given(surrogate=NETWORK, planning="own", until=None, guarantee=None, rounds=20, clients=3, kappa=2.0):
    """A problem of one run, its plan, and what the simulator needs besides."""
    problem = realizable(Network(2, 2), 1, arms=6, seed=4, sigma=0.3)
    how = {"until": until or Growing(), "planning": planning, "kappa": kappa, "guarantee": guarantee}
    length = phase_one_length(clients, rounds)
    plan = Plan(
        problem.arms[0],
        clients=clients,
        length=length,
        seed=4,
        fitting=Fitting(surrogate, 0.3, rounds, **how),
    )
    return problem, plan, how


CASES = [
    (NETWORK, "own", Growing(), None),
    (GaussianProcess(), "own", Event(2.0), None),
    (BOTH, "own", Growing(1.5, 6), GUARD),
    (NETWORK, "joint", Growing(), GUARD),
    (NETWORK, "thompson", Event(1.0), GUARD),
    (GaussianProcess(), "joint", Event(2.0), replace(GUARD, gamma=0.0, patience=1)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("surrogate", "planning", "until", "guarantee"), CASES)
def test_clients_and_server_do_what_the_simulator_does(surrogate, planning, until, guarantee):
    problem, plan, how = given(surrogate, planning, until, guarantee)
    trace = play(problem, plan, 60)
    assert trace == surrogate_ucb(problem, surrogate, 3, 20, **how) and 2 <= trace.sync.sum() < 60
    assert bool(trace.notes) == (guarantee is not None)


@pytest.mark.slow
def test_on_a_problem_of_the_paper_too():
    problem, rounds = hartmann6(1, seed=3), 4
    surrogate = Relinearised(Network(6, 2), 1)
    guarantee = Guarantee(2 * problem.means.abs().max().item(), problem.sigma)
    plan = Plan(
        problem.arms[0], clients=3, length=phase_one_length(3, rounds), seed=3,
        fitting=Fitting(surrogate, problem.sigma, rounds, guarantee=guarantee),
    )  # fmt: skip
    trace = play(problem, plan, 3 * rounds)
    assert trace == surrogate_ucb(problem, surrogate, 3, rounds, planning="own", guarantee=guarantee)


@pytest.mark.parametrize("planning", ["joint", "thompson"])
def test_of_a_plan_that_all_know_the_counts_are_sent_and_charged_nevertheless(planning):
    problem, plan, how = given(planning=planning)
    trace, simulated = play(problem, plan, 60), surrogate_ucb(problem, NETWORK, 3, 20, **how)
    for part in ("arm", "reward", "regret", "sync"):
        assert torch.equal(getattr(trace, part), getattr(simulated, part)), part
    first, ends = plan.length, [plan.length - 1, *trace.sync[0].nonzero().flatten().tolist()]
    begin = 0
    for end in ends:
        shares = [range(first + i, end + 1, 3) if begin else range(i, end + 1, 3) for i in range(3)]
        pulls = [sum(t >= begin for t in share) for share in shares]
        assert int(trace.up[0, end]) == sum(int(scalars("counts", 2, k, 6)) for k in pulls)
        assert int(trace.down[0, end]) == 3 * int(scalars("counts", 2, sum(pulls), 6))
        begin = end + 1
    assert trace.up.sum() == sum(trace.up[0, end] for end in ends) > simulated.up.sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("surrogate", "planning", "guarantee"), [(NETWORK, "own", GUARD), (NETWORK, "joint", None)]
)
def test_saved_and_loaded_at_every_step_a_run_is_the_same(surrogate, planning, guarantee, kept_at_every_step):
    problem, plan, _ = given(surrogate, planning, guarantee=guarantee, rounds=8)
    once = play(problem, plan, 24)
    kept_at_every_step(plan)
    again = play(problem, plan, 24)
    for part in ("arm", "sync", "up", "down"):
        assert torch.equal(getattr(again, part), getattr(once, part)), part
    for note, said in once.notes.items():
        torch.testing.assert_close(again.notes[note], said, rtol=0, atol=1e-12)
    assert once.sync.sum() >= 2


def test_the_next_fit_begins_where_the_last_one_ended_also_from_a_file(tmp_path):
    problem, plan, _ = given(BOTH)
    clients, server = started(problem, plan)
    for t in range(12):
        pull(problem, clients[t % 3])
    converse(server, clients)
    client = clients[1]
    assert torch.equal(client._model.fit.rivals[1].w, clients[0]._model.fit.rivals[1].w)
    assert len(client.memory.warm) == NETWORK.network.size  # a process brings nothing
    client.save(tmp_path / "client.npz")
    again = Client.load(tmp_path / "client.npz", plan)
    assert torch.equal(again._model.fit.rivals[1].w, client._model.fit.rivals[1].w)
    cold = BOTH.fit(plan.arms, Tally(*client.memory.base.view(2, -1)), 0.3)
    assert not torch.equal(cold.rivals[1].w, client._model.fit.rivals[1].w)


# Loss, silence, turns, arms


def pull(problem, client):
    """One pull; the reward is the mean and a little that depends on how many there were."""
    arm = client.ask()
    return client.tell(arm, float(problem.means[0, arm]) + 0.1 * (client.pulls % 7 - 3))


def started(problem, plan):
    """The clients and the server after Phase I."""
    clients, server = [Client(plan, i) for i in range(plan.clients)], Server(plan)
    for client in clients:
        while not client.calling:
            pull(problem, client)
    converse(server, clients)
    return clients, server


@pytest.mark.slow
@pytest.mark.parametrize("planning", ["own", "joint"])
def test_silence_and_any_order_of_turns_lose_nothing_and_certificates_hold(planning):
    problem, plan, _ = given(planning=planning, guarantee=GUARD)
    draw = torch.Generator().manual_seed(3)
    turns = torch.multinomial(torch.tensor([10.0, 1, 1]), 60, True, generator=draw)
    trace = play(problem, plan, 60, turns=turns, silent=at_random(0.5, 1))
    assert (trace.regret <= trace.notes["certificate"] + 1e-12).all() and trace.sync.sum() >= 5
    clients, server = started(problem, plan)
    everything, one, chance = Tally.blank(6), torch.ones(()).double(), random.Random(1)
    everything = Tally(*server.desk.total.clone().view(2, 6))
    for _ in range(40):
        client = clients[chance.choice((0, 1, 1, 2))]
        arm, reward = client.ask(), chance.gauss(0, 0.3)
        everything = everything.record(torch.tensor(arm), torch.tensor(reward, dtype=torch.float64), one)
        if client.tell(arm, reward):
            converse(server, clients, lambda i, number: chance.random() < 0.4)
    for _ in range(2):
        converse(server, clients)
    for client in clients:
        torch.testing.assert_close(
            client.memory.base.view(2, 6), torch.stack(list(everything)), rtol=0, atol=1e-12
        )
        assert client.known.counts.sum() == plan.length + 40


def test_the_end_of_a_plan_is_met_by_whoever_is_busy():
    problem, plan, _ = given(planning="joint", until=Growing(2.0, 12))
    clients, _ = started(problem, plan)
    planned = clients[1]._model.now.plan[0].tolist()
    asked, fires = [], []
    for _ in range(7):
        asked.append(clients[1].ask())
        fires.append(pull(problem, clients[1]))
    mine = planned[int(clients[1]._model.began.place) :: 3]  # a plan of 12 pulls, of which 4 are its own
    assert len(planned) == 12 and asked[:4] == mine and fires[4:] == [True] * 3
    assert sum(fires[:4]) == (planned.index(mine[-1]) == 11 and int(clients[1]._model.began.place) == 2)


@pytest.mark.parametrize(
    ("planning", "guarantee"), [("own", None), ("joint", None), ("thompson", GUARD), ("own", GUARD)]
)
def test_a_retired_arm_is_replaced_by_the_most_promising_one(planning, guarantee):
    problem, plan, _ = given(planning=planning, guarantee=guarantee)
    clients, _ = started(problem, plan)
    client, gone = clients[0], []
    for _ in range(4):
        gone.append(client.ask())
        client.retire(gone[-1])
        found = client.estimate
        upper = found.upper if guarantee is None else client._model.now.counted.interval.upper[0, 0]
        rest = [arm for arm in range(6) if arm not in gone]
        assert client.ask() == max(rest, key=lambda arm: float(upper[arm]))
    assert len(set(gone)) == 4


@pytest.mark.parametrize(("planning", "guarantee"), [("own", None), ("joint", None), ("own", GUARD)])
def test_the_interval_is_the_fits_as_wide_as_kappa_says(planning, guarantee):
    problem, plan, _ = given(planning=planning, guarantee=guarantee, kappa=2.0)
    client = started(problem, plan)[0][0]
    found, fit = client.estimate, client._model.fit
    torch.testing.assert_close(found.mean, fit.mean)
    torch.testing.assert_close(found.upper, fit.mean + 2.0 * fit.variance.sqrt())
    if planning == "own" and guarantee is None:
        assert client.ask() == int(found.upper.argmax())


def test_a_client_that_has_lost_everything_begins_again_with_what_all_know():
    problem, plan, _ = given(guarantee=GUARD)
    clients, server = started(problem, plan)
    for t in range(20):
        if pull(problem, clients[t % 3]):
            converse(server, clients)
    converse(server, clients)
    clients[1] = Client(plan, 1)
    assert clients[1].exploring
    converse(server, clients)
    assert not clients[1].exploring and torch.equal(clients[1].memory.base, server.desk.total)
    assert server.desk.total[:6].sum() == plan.length + 20


def test_phase_one_ends_with_a_letter_of_counts_and_nobody_gets_a_w0():
    problem, plan, _ = given()
    client, server = Client(plan, 0), Server(plan)
    assert client.estimate is None and client.notes(0) == {} and not server.desk.started
    while not client.calling:
        pull(problem, client)
    assert client.known.counts.sum() == len(range(0, plan.length, 3))
    with pytest.raises(RuntimeError, match="the news of it have not come"):
        client.ask()
    server.begin()
    with pytest.raises(ValueError, match="no client answered"):
        server.merge()
    data = client.answer(server.letters()[0])
    assert server.accept(data)
    server.merge()
    assert server.desk.started and client.answer(server.letters()[0]) is None and not client.exploring
    wrong = bytearray(server.letters()[0])
    assert client.answer(bytes(wrong)) is None
    with pytest.raises(Refused, match="damaged"):
        client.answer(bytes(wrong[:-1]))


# What a plan says


def named(points, means, variances, before=None):
    return single_task_gp(points, means, variances, before)


def test_a_fingerprint_knows_every_part_of_a_surrogate_and_no_address():
    w0 = torch.linspace(0, 1, Network(2, 2).size, dtype=torch.float64)
    several = [
        NETWORK,
        Relinearised(Network(2, 2), 2),
        Relinearised(Network(2, 3), 1),
        GaussianProcess(),
        GaussianProcess(named),
        GaussianProcess(functools.partial(single_task_gp, kernel=named)),
        BOTH,
        LinearisedOnce(Network(2, 2), w0),
        LinearisedOnce(Network(2, 2), w0 + 1e-9),
    ]
    plans = [given(each)[1] for each in several]
    plans += [
        given(guarantee=GUARD)[1],
        given(planning="joint")[1],
        given(until=Event())[1],
        given(kappa=1.0)[1],
    ]
    plans += [Plan(plans[0].arms)]
    assert len({plan.fingerprint for plan in plans}) == len(plans)
    assert [given(each)[1].fingerprint for each in several] == [
        plan.fingerprint for plan in plans[: len(several)]
    ]


# A study of one's own


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "options.csv"
    rows = [f"{name},{k},{k * k % 7}" for k, name in enumerate("abcdefgh")]
    path.write_text("\n".join(["name,sugar,heat", *rows]) + "\n", encoding="utf-8")
    return path


def opened(csv, name="study.npz", **options):
    how = {"surrogate": Relinearised(Network(2, 3), 1), "noise": 1.0, "reach": 50.0}
    return Study(csv.parent / name, csv, **{"centre": 100.0, "spread": 10.0, "trials": 40} | how | options)


def worth(option, day=0):
    return 100.0 + 4 * (ord(option) - ord("a")) + (-1.0) ** day


def test_a_guarded_study_is_the_same_when_it_is_opened_anew_and_its_certificates_hold(csv):
    once, asked = opened(csv, "one.npz"), []
    for day in range(30):
        asked.append(once.ask())
        once.tell(asked[-1], worth(asked[-1], day))
    for day, option in enumerate(asked):
        again = opened(csv, "two.npz")
        assert again.ask() == option
        again.tell(option, worth(option, day))
    rows = {row.option: row for row in opened(csv, "two.npz").standings()}
    for row in once.standings():
        assert tuple(row)[1:] == pytest.approx(tuple(rows[row.option])[1:], nan_ok=True, rel=1e-9)
        assert worth("h", 0) - worth(row.option, 0) <= row.certificate < 200
    assert sum(row.pulls for row in rows.values()) == 30 and once.client.memory.applied > 4
    assert "at most below best" in studies.table(once.standings()).splitlines()[0]
    plain = opened(csv, "three.npz", reach=None)
    for day in range(10):
        plain.tell(plain.ask(), worth(plain.ask(), day))
    assert all(row.certificate != row.certificate for row in plain.standings())
    assert "below" not in studies.table(plain.standings())


def test_a_study_of_a_surrogate_has_to_know_the_noise(csv):
    with pytest.raises(TypeError, match=r"noise is None.*the noise of a reward"):
        opened(csv, noise=None)
    study = opened(csv)
    study.tell(study.ask(), 100.0)
    with pytest.raises(ValueError, match="of another plan"):
        opened(csv, reach=60.0)
