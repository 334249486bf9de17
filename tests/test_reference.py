"""The package against the plain transcription: the same arms, scalars and synchronisation times."""

from types import SimpleNamespace

import numpy as np
import pytest
import reference
import torch

from fedgo import (
    Langevin,
    Network,
    Settings,
    fed_go_ucb,
    n_go_ucb,
    one_go_ucb,
    private_start,
    realizable,
    shared_start,
)
from fedgo._streams import generator
from fedgo.langevin import _CHUNK

LANGEVIN = Langevin(rounds=12, step=0.05, hot=1e2, cold=1e4)
GAMMAS = (0.0, 0.003, 0.03, 0.3, 3.0, float("inf"))


def instance(seed):
    """A random problem of random sizes, its network, and random settings."""
    draw = np.random.default_rng(seed)
    network = Network(int(draw.integers(1, 4)), int(draw.integers(1, 5)))
    arms, clients, rounds = int(draw.integers(2, 12)), int(draw.integers(1, 6)), int(draw.integers(1, 9))
    problem = realizable(network, 3, arms=arms, seed=seed, sigma=0.3, scale=2.0)
    lam, beta = 10.0 ** draw.uniform(-2, 1), 10.0 ** draw.uniform(-2, 0.5)
    return problem, network, clients, rounds, Settings(lam, beta, GAMMAS[seed % len(GAMMAS)])


def langevin_noise(source, rounds, systems, size):
    """z of every system, (systems, rounds, size)."""
    chunks = [torch.randn(_CHUNK, systems, size, generator=source) for _ in range(1 + rounds // _CHUNK)]
    return torch.cat(chunks)[:rounds].double().transpose(0, 1).numpy()


def reference_oracle(problem, network, clients, start, row, private):
    """Algorithm 2 on the Phase I data of ``row``: one ŵ₀ on everybody's data, or one per client on its own."""
    arm, reward = start.exploration.arm[row].tolist(), start.exploration.reward[row].tolist()
    pairs = [(problem.arms[row, a].numpy(), y) for a, y in zip(arm, reward, strict=True)]
    data = [pairs[i::clients] for i in range(clients)]
    systems = [[own] for own in data] if private else [data]
    source = generator(problem.seed, problem.runs[row], "private langevin" if private else "langevin")
    noise = langevin_noise(source, LANGEVIN.rounds, len(systems), network.size)
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


def assert_same(trace, row, expected):
    first = trace.phase_one
    assert trace.arm[row, first:].tolist() == expected.arm
    assert trace.up[row, first:].tolist() == expected.up
    assert trace.down[row, first:].tolist() == expected.down
    assert trace.sync[row, first:].tolist() == expected.sync


@pytest.mark.parametrize("seed", range(60))
def test_fed_go_ucb_is_algorithm_1(seed):
    problem, network, clients, rounds, settings = instance(seed)
    start = shared_start(problem, network, clients, rounds, LANGEVIN)
    trace = fed_go_ucb(problem, start, settings)
    for row in range(3):
        assert_same(
            trace,
            row,
            reference_trace(problem, network, clients, rounds, settings, start, row, settings.gamma),
        )


@pytest.mark.parametrize("seed", range(12))
def test_line_three_as_printed_is_the_plain_ascent(seed):
    problem, network, clients, rounds, settings = instance(seed)
    start = shared_start(problem, network, clients, rounds, LANGEVIN)
    trace = fed_go_ucb(problem, start, settings, "ascent")
    expected = reference_trace(
        problem, network, clients, rounds, settings, start, 0, settings.gamma, reference.ascent
    )
    assert_same(trace, 0, expected)


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
    statistics = network.size**2 + network.size
    assert (trace.up[2, first:] == statistics).all()  # the client that pulled uploads …
    assert (trace.down[2, first:] == clients * statistics).all()  # … and all download


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
