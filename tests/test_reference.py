"""The package against the plain transcription: the same arms, scalars and synchronisation times."""

from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
from instances import BRIEF, INF, assert_same, instance
from reference import go_ucb as reference

from fedgo import fed_go_ucb, n_go_ucb, one_go_ucb, private_start, shared_start
from fedgo.langevin import langevin_noise


def reference_oracle(problem, network, clients, start, row, private):
    """Algorithm 2 on the Phase I data of ``row``: one ŵ₀ on everybody's data, or one per client on its own."""
    arm, reward = start.exploration.arm[row].tolist(), start.exploration.reward[row].tolist()
    pairs = [(problem.arms[row, a].numpy(), y) for a, y in zip(arm, reward, strict=True)]
    data = [pairs[i::clients] for i in range(clients)]
    systems = [[own] for own in data] if private else [data]
    source = problem.only(row).generators("private langevin" if private else "langevin")
    rounds = islice(langevin_noise(source, len(systems), network.size), BRIEF.rounds)
    noise = np.stack([z.double().numpy() for z in rounds], 1)  # (systems, rounds, d_w)
    cost, tau2 = SimpleNamespace(up=0, down=0), BRIEF.inverse_temperatures()
    found = [
        reference.distributed_gld(system, network.hidden, network.size, BRIEF.step, tau2, z, cost)
        for system, z in zip(systems, noise, strict=True)
    ]
    return np.stack(found), cost


def reference_trace(start, settings, row, index=reference.first_order):
    """Phase II of the run at ``row`` as the transcription plays it."""
    problem, clients, steps = start.problem, start.clients, start.clients * start.rounds
    length = start.exploration.arm.shape[1]
    noise, means = problem.tape(length + steps)[row, length:].numpy(), problem.means[row].numpy()

    def reward_of(arm, t):
        return means[arm] + problem.sigma * noise[t]

    arms, w0 = problem.arms[row].numpy(), start.w0[row].expand(clients, -1).numpy()
    scalars = settings.lam, settings.beta, settings.gamma
    return reference.phase_two(arms, reward_of, w0, start.network.hidden, clients, steps, *scalars, index)


@pytest.mark.parametrize("seed", range(60))
def test_fed_go_ucb_is_algorithm_1(seed):
    *world, settings = instance(seed)
    start = shared_start(*world, BRIEF)
    trace = fed_go_ucb(start, settings)
    for row in range(3):
        assert_same(trace, row, reference_trace(start, settings, row))


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [0.0, 0.01, 0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("seed", range(12))
def test_line_three_as_printed_is_the_plain_ascent_of_every_client(seed, ratio):
    """For β/λ from a point to wide balls, in which an ascent ends where its start leads it."""
    *world, settings = instance(seed)
    settings, row = replace(settings, beta=ratio * settings.lam), seed % 3
    start = shared_start(*world, BRIEF)
    trace = fed_go_ucb(start, settings, "ascent")
    assert_same(trace, row, reference_trace(start, settings, row, reference.LineThree()))


@pytest.mark.parametrize("seed", range(12))
def test_n_go_ucb_is_algorithm_1_that_never_fires_on_private_oracles(seed):
    *world, settings = instance(seed)
    start = private_start(*world, BRIEF)
    trace = n_go_ucb(start, settings)
    assert_same(trace, 1, reference_trace(start, replace(settings, gamma=INF), 1))
    assert trace.communication.max() == 0


@pytest.mark.parametrize("seed", range(12))
def test_one_go_ucb_pulls_the_arms_of_algorithm_1_with_threshold_zero(seed):
    *world, settings = instance(seed)
    start = shared_start(*world, BRIEF)
    trace = one_go_ucb(start, settings)
    expected = reference_trace(start, replace(settings, gamma=0.0), 2)
    first = trace.phase_one
    assert trace.arm[2, first:].tolist() == expected.arm
    assert trace.sync[2, first:].all() and all(expected.sync)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("private", [False, True])
def test_the_oracle_is_algorithm_2(seed, private):
    problem, network, clients, rounds, _ = instance(seed)
    start = (private_start if private else shared_start)(problem, network, clients, rounds, BRIEF)
    for row in range(3):
        w0, cost = reference_oracle(problem, network, clients, start, row, private)
        np.testing.assert_allclose(start.w0[row].numpy(), w0, rtol=0, atol=1e-12)
        up, down = (part[row].sum() for part in start.exploration.ledger)
        broadcast = clients * network.size  # of ŵ₀ after Algorithm 2
        assert (up, down) == ((0, 0) if private else (cost.up, cost.down + broadcast))
        assert private or cost.up == cost.down == BRIEF.rounds * clients * network.size
