"""The package against the plain transcription: the same arms, scalars and synchronisation times."""

from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from instances import assert_same, instance
from reference import go_ucb as reference

from fedgo import (
    Langevin,
    fed_go_ucb,
    n_go_ucb,
    one_go_ucb,
    private_start,
    shared_start,
)
from fedgo.langevin import langevin_noise

LANGEVIN = Langevin(rounds=12, step=0.05, hot=1e2, cold=1e4)


def reference_oracle(problem, network, clients, start, row, private):
    """Algorithm 2 on the Phase I data of ``row``: one ŵ₀ on everybody's data, or one per client on its own."""
    arm, reward = start.exploration.arm[row].tolist(), start.exploration.reward[row].tolist()
    pairs = [(problem.arms[row, a].numpy(), y) for a, y in zip(arm, reward, strict=True)]
    data = [pairs[i::clients] for i in range(clients)]
    systems = [[own] for own in data] if private else [data]
    source = problem.only(row).generators("private langevin" if private else "langevin")
    rounds = islice(langevin_noise(source, len(systems), network.size), LANGEVIN.rounds)
    noise = np.stack([z.double().numpy() for z in rounds], 1)  # (systems, rounds, d_w)
    cost, tau2 = SimpleNamespace(up=0, down=0), LANGEVIN.inverse_temperatures()
    found = [
        reference.distributed_gld(system, network.hidden, network.size, LANGEVIN.step, tau2, z, cost)
        for system, z in zip(systems, noise, strict=True)
    ]
    return np.stack(found), cost


def reference_trace(
    problem, network, clients, rounds, settings, start, row, gamma, index=reference.first_order
):
    length = start.exploration.arm.shape[1]
    noise = problem.tape(length + clients * rounds)[row, length:].numpy()
    means = problem.means[row].numpy()
    w0 = start.w0[row].expand(clients, -1).numpy()
    return reference.phase_two(
        problem.arms[row].numpy(),
        lambda arm, t: means[arm] + problem.sigma * noise[t],
        w0,
        network.hidden,
        clients,
        clients * rounds,
        settings.lam,
        settings.beta,
        gamma,
        index,
    )


@pytest.mark.parametrize("seed", range(60))
def test_fed_go_ucb_is_algorithm_1(seed):
    problem, network, clients, rounds, settings = instance(seed)
    start = shared_start(problem, network, clients, rounds, LANGEVIN)
    trace = fed_go_ucb(problem, start, settings)
    for row in range(3):
        assert_same(
            trace,
            row,
            reference_trace(
                problem,
                network,
                clients,
                rounds,
                settings,
                start,
                row,
                settings.gamma,
            ),
        )


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [0.01, 0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("seed", range(12))
def test_line_three_as_printed_is_the_plain_ascent_of_every_client(seed, ratio):
    """For β/λ from narrow to wide balls, in which an ascent ends where its start leads it."""
    problem, network, clients, rounds, settings = instance(seed)
    settings = replace(settings, beta=ratio * settings.lam)
    start = shared_start(problem, network, clients, rounds, LANGEVIN)
    trace = fed_go_ucb(problem, start, settings, "ascent")
    index, row = reference.LineThree(), seed % 3
    expected = reference_trace(problem, network, clients, rounds, settings, start, row, settings.gamma, index)
    assert_same(trace, row, expected)


@pytest.mark.parametrize("seed", range(12))
def test_n_go_ucb_is_algorithm_1_that_never_fires_on_private_oracles(seed):
    problem, network, clients, rounds, settings = instance(seed)
    start = private_start(problem, network, clients, rounds, LANGEVIN)
    trace = n_go_ucb(problem, start, settings)
    expected = reference_trace(problem, network, clients, rounds, settings, start, 1, float("inf"))
    assert_same(trace, 1, expected)
    assert trace.communication.max() == 0


@pytest.mark.parametrize("seed", range(12))
def test_one_go_ucb_pulls_the_arms_of_algorithm_1_with_threshold_zero(seed):
    problem, network, clients, rounds, settings = instance(seed)
    start = shared_start(problem, network, clients, rounds, LANGEVIN)
    trace = one_go_ucb(problem, start, settings)
    expected = reference_trace(problem, network, clients, rounds, settings, start, 2, 0.0)
    first = trace.phase_one
    assert trace.arm[2, first:].tolist() == expected.arm
    assert trace.sync[2, first:].all() and all(expected.sync)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("private", [False, True])
def test_the_oracle_is_algorithm_2(seed, private):
    problem, network, clients, rounds, _ = instance(seed)
    start = (private_start if private else shared_start)(problem, network, clients, rounds, LANGEVIN)
    for row in range(3):
        w0, cost = reference_oracle(problem, network, clients, start, row, private)
        np.testing.assert_allclose(start.w0[row].numpy(), w0, rtol=0, atol=1e-12)
        up, down = (part[row].sum() for part in start.exploration.ledger)
        broadcast = clients * network.size  # of ŵ₀ after Algorithm 2
        assert (up, down) == ((0, 0) if private else (cost.up, cost.down + broadcast))
        assert private or cost.up == cost.down == LANGEVIN.rounds * clients * network.size


def test_the_noise_of_the_oracle_has_the_layout_that_it_states():
    """64 rounds at once from each generator, in the order round, row, coordinate."""
    sources = [torch.Generator().manual_seed(seed) for seed in (1, 2)]
    twins = [torch.Generator().manual_seed(seed) for seed in (1, 2)]
    chunks = [[torch.randn(64, 3, 5, generator=twin) for _ in range(2)] for twin in twins]
    expected = torch.cat([torch.cat(own) for own in chunks], 1)
    assert torch.equal(torch.stack(list(islice(langevin_noise(sources, 3, 5), 128))), expected)
