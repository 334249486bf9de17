"""Small plans for the tests of the federation, and what their clients do."""

import pickle

import pytest

from fedgo import Langevin, Network, Problem, Settings, realizable
from fedgo.beyond import Client, Fitting, Plan, Refused, Server, converse
from fedgo.beyond.method.advised import Advised
from fedgo.beyond.method.epochs import Growing
from fedgo.beyond.method.networks import Relinearised
from fedgo.phase_one import phase_one_length

RIDGE = Relinearised(Network(2, 2), 1)


def small(gamma=1.0, clients=3, arms=6, length=7) -> tuple[Problem, Plan]:
    """A problem of one run and a plan with the paper's network."""
    problem = realizable(Network(2, 2), 1, arms=arms, seed=4, sigma=0.3)
    settings = Settings(0.3, 0.5, gamma, "counts")
    return problem, Plan(problem.arms[0], settings, clients, Network(2, 2), length, Langevin(5, 0.05), seed=4)


def with_surrogate(surrogate=RIDGE, rounds=20, **how) -> tuple[Problem, Plan]:
    """The same problem, and a plan with a surrogate for three clients."""
    problem, how = small()[0], {"until": Growing(), "kappa": 2.0, "untried": 2.0} | how
    fitting = Fitting(0.3, rounds, Advised(surrogate, **how))
    plan = Plan(problem.arms[0], clients=3, length=phase_one_length(3, rounds), seed=4, fitting=fitting)
    return problem, plan


def setting(kind: str, surrogate=RIDGE) -> tuple[Problem, Plan]:
    """The problem and a plan: with the paper's "network", or with a surrogate that is "planned"."""
    return small(gamma=0.5) if kind == "network" else with_surrogate(surrogate, rounds=8)


def pull(problem: Problem, client: Client, pulls: int = 1) -> bool:
    """Some pulls by one client; the rewards are the means and a little that depends on how many there were."""
    fires = False
    for _ in range(pulls):
        arm = client.ask()
        fires = client.tell(arm, float(problem.means[0, arm]) + 0.1 * (client.memory.pulls % 7 - 3)) or fires
    return fires


def explored(problem: Problem, plan: Plan) -> tuple[list[Client], Server]:
    """The clients and the server, when all pulls of Phase I are made and nothing is sent."""
    clients = [Client(plan, i) for i in range(plan.clients)]
    for client in clients:
        pull(problem, client, len(plan.first_share(client.me)[0]))
    return clients, Server(plan)


def started(made: tuple[Problem, Plan], pulls: int = 0) -> tuple[Problem, Plan, list[Client], Server]:
    """The problem and the plan, their clients and server after Phase I, and some pulls by each client."""
    clients, server = explored(*made)
    converse(server, clients)
    for client in clients:
        pull(made[0], client, pulls)
    return *made, clients, server


def content(held: object) -> bytes:
    """All that a client, a server or a part of them holds, to the last digit."""
    return pickle.dumps(held)


def refuses(party, take, letter, reason):
    before = content(party)
    with pytest.raises(Refused, match=reason):
        take(letter)
    assert content(party) == before


def at_work(kind):
    """A client with a pull that is not sent, and a server with an answer in its inbox."""
    problem, plan, clients, server = started(setting(kind))
    pull(problem, clients[0], 2)
    server.begin()
    server.accept(clients[0].answer(server.letters()[0]))
    pull(problem, clients[0])
    return problem, plan, clients[0], server


def held(party):
    return repr(party.memory if isinstance(party, Client) else (party.desk, party.ledger))
