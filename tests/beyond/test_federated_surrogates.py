"""Surrogates at a client and a server without a transport: the server plans as the simulator does."""

import functools
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from federated import RIDGE, explored, pull, small, started, with_surrogate
from test_missing import Raising

from fedgo import Network, realizable
from fedgo.beyond import Client, Fitting, Plan, Server, converse, play
from fedgo.beyond.federation import wire
from fedgo.beyond.federation.model import course
from fedgo.beyond.federation.wire import Kind, Refused
from fedgo.beyond.method.advised import ADVISED, METHODS
from fedgo.beyond.method.epochs import Growing, each_arm, surrogate_ucb
from fedgo.beyond.method.gaussian_process import GaussianProcess, single_task_gp
from fedgo.beyond.method.networks import Relinearised
from fedgo.beyond.method.surrogates import IndependentArms


def bill(trace, until, arms):
    """Up counts and sums of every client, at first the sums alone, down its share of the plan, one arm at least, and
    when it calls."""
    first, clients, steps = trace.phase_one, trace.clients, trace.arm.shape[1]
    up, down = torch.zeros_like(trace.up), torch.zeros_like(trace.down)
    before = 0
    for end in (first, *(trace.sync[0].nonzero().squeeze(1) + 1).tolist()):
        since = range(end) if end == first else range(before - first, end - first)
        pulls = [sum(t % clients == i for t in since) for i in range(clients)]
        up[0, end - 1] = sum(2 * min(own, arms) for own in pulls)
        if end == first:
            up[0, end - 1] = sum(len({*trace.arm[0, i:first:clients].tolist()}) for i in range(clients))
            assert up[0, end - 1] == trace.up[0, end - 1]
        length, turn = min(until.length(end), steps - end or clients), (end - first) % clients
        shares = [len(range((i - turn) % clients, length, clients)) for i in range(clients)]
        down[0, end - 1] = sum(max(1, share) + 1 for share in shares)
        before = end
    return up, down


@pytest.mark.parametrize(
    "surrogate", [GaussianProcess(warp=True), IndependentArms(), RIDGE], ids=lambda one: type(one).__name__
)
@pytest.mark.parametrize(("clients", "arms", "rounds"), [(3, 9, 24), (4, 30, 6), (5, 40, 8), (3, 10, 15)])
def test_the_server_plans_as_the_simulator_does(surrogate, clients, arms, rounds):
    problem = realizable(Network(2, 2), 1, arms=arms, seed=rounds, sigma=0.3)
    fitting = Fitting(0.3, rounds, replace(ADVISED, surrogate=surrogate))
    plan = Plan(problem.arms[0], clients=clients, seed=rounds, fitting=fitting)
    exploration = each_arm(problem, ADVISED.first(clients, arms, rounds))
    simulated = surrogate_ucb(
        problem,
        surrogate,
        clients,
        rounds,
        until=ADVISED.until,
        optimism=ADVISED.optimism(clients * rounds),
        exploration=exploration,
        foretold=True,
    )
    up, down = bill(simulated, ADVISED.until, arms)
    assert play(problem, plan, clients * rounds) == replace(simulated, up=up, down=down)
    assert simulated.sync.sum() >= 2


def test_a_fit_that_fails_is_replaced_by_one_of_independent_arms():
    problem, plan = with_surrogate(Raising("no optimum"))
    clients, server = explored(problem, plan)
    with pytest.warns(UserWarning, match=r"the fit failed \(no optimum.*arms are independent"):
        assert converse(server, clients) == {}
    assert clients[0].memory.applied.number == 2
    clients, server = [Client(plan, i) for i in range(3)], Server(plan)
    for _ in range(2):
        converse(server, clients)  # nobody has pulled: Phase I goes on
    share, calls = plan.first_share(1)
    assert torch.equal(clients[1].memory.share, share) and clients[1].memory.calls == calls


def test_the_next_fit_begins_where_the_last_one_ended_also_from_a_file(tmp_path):
    problem, plan, clients, server = started(with_surrogate())
    first = server.desk.planned.weights
    for t in range(12):
        pull(problem, clients[t % 3])
    server.save(tmp_path / "server.npz")
    again = Server.load(tmp_path / "server.npz", plan)
    for one in (server, again):
        converse(one, [copy(client) for client in clients])
    warm, total = server.desk.planned.weights, server.desk.total
    assert torch.equal(again.desk.planned.weights, warm) and len(warm) == RIDGE.network.size
    # whoever is told can compare
    assert torch.equal(course(plan, first, total).arms, server.desk.planned.arms)
    assert not torch.equal(course(plan, warm[:0], total).weights, warm)


# Loss, silence, turns, arms


def test_whoever_is_busy_goes_on_calling_when_its_epoch_is_over():
    problem, _, (_, client, _), _ = started(with_surrogate(until=Growing(2.0, 12)))
    memory, asked, calls = client.memory, [], []
    for _ in range(7):
        asked.append(client.ask())
        calls.append(pull(problem, client))
    seat, share = memory.calls, memory.share.tolist()
    assert asked == (share * 2)[:7] and calls == [k + 1 >= seat for k in range(7)] and len(share) == 4


def test_a_retired_arm_of_a_share_is_passed_over():
    client = started(with_surrogate())[2][0]
    share = client.memory.share.tolist()
    for gone in range(5):
        arms = [arm for arm in (*share, *range(6)) if arm >= gone]
        assert client.ask() == arms[0]
        client.retire(gone)
    assert client.ask() == 5


# What a plan says


def test_phase_one_is_as_long_as_the_setting_says():
    arms = torch.rand(50, 2, dtype=torch.float64)
    assert Plan(arms, clients=2, fitting=Fitting(0.3, 2, METHODS["every arm once"])).length == 50
    assert Plan(arms, clients=2, fitting=Fitting(0.3, 2)).length == 2


@dataclass(frozen=True)
class Modelled:
    """A surrogate of a user's own, with a function or a tensor as a part."""

    model: Callable | torch.Tensor

    def fit(self, arms, data, sigma, before=None):
        raise NotImplementedError


def test_a_fingerprint_knows_every_part_of_a_surrogate_and_no_address():
    w0 = torch.linspace(0, 1, Network(2, 2).size, dtype=torch.float64)
    several = [
        RIDGE,
        Relinearised(Network(2, 2), 2),
        GaussianProcess(),
        GaussianProcess(warp=True),
        Modelled(single_task_gp),
        Modelled(functools.partial(single_task_gp, kernel=bill)),
        Modelled(w0),
        Modelled(w0 + 1e-9),
    ]
    changes = [{"share": 0.4}, {"until": Growing(1.5)}, {"kappa": 1.0}]
    prints = [with_surrogate(surrogate)[1].fingerprint for surrogate in several]
    assert prints == [with_surrogate(surrogate)[1].fingerprint for surrogate in several]
    prints += [with_surrogate(**change)[1].fingerprint for change in changes]
    prints.append(small()[1].fingerprint)
    assert len(set(prints)) == len(prints)
    ones = [with_surrogate(kappa=one)[1].fingerprint for one in (1, 1.0, np.float64(1), np.int64(1))]
    assert set(ones) == {prints[-2]}


@pytest.mark.parametrize(
    "model", [lambda *data: None, object().__eq__, functools.partial(lambda *data: None)]
)
def test_a_plan_whose_parts_have_no_name_is_refused(model):
    with pytest.raises(ValueError, match=r"a part of the plan is .*give a dataclass, or a function"):
        with_surrogate(Modelled(model))


def test_a_first_answer_says_its_counts_only_if_they_are_not_those_of_the_seed():
    problem, plan = with_surrogate(rounds=8)
    usual, other = Client(plan, 0), Client(plan, 1)
    for client in (usual, other):
        pull(problem, client, len(plan.first_share(client.me)[0]))
    other.tell(0, 0.25)
    server = Server(plan)
    server.begin()
    sent = {}
    for client in (usual, other):
        sent[client.me] = client.answer(server.letters()[client.me])
        assert server.accept(sent[client.me], sender=client.me)
    touched = len(set(plan.first_share(0)[0].tolist()))
    letters = [wire.decode(letter, plan.fingerprint) for letter in sent.values()]
    assert [letter.kind for letter in letters] == [Kind.SUMS, Kind.STATISTICS]
    assert [len(letter.numbers) for letter in letters] == [
        touched,
        2 * min(6, int(other.memory.sent[0].sum())),
    ]
    assert server.scalars[0] == sum(len(letter.numbers) for letter in letters)
    server.merge()
    assert torch.equal(server.desk.total, usual.memory.sent + other.memory.sent)
    usual.answer(server.letters()[0])
    assert usual.memory.applied.number == 2
    wrong = letters[0]._replace(numbers=letters[0].numbers[:-1])
    with pytest.raises(Refused, match="sums of"):
        wire.with_counts(wrong, plan.foretold(wrong))
    later = letters[0]._replace(since=letters[0].exchange)
    with pytest.raises(Refused, match="sums of 0 arms"):
        wire.with_counts(later, plan.foretold(later))
