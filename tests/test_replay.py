"""Phase II replayed: against dense matrices in plain numpy, and the inequalities of the analysis on every step."""

import math
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from instances import GAMMAS, instance
from reference.go_ucb import value_and_gradient

from fedgo import (
    EventTriggered,
    Exploration,
    Langevin,
    Network,
    Problem,
    Settings,
    SingleUnit,
    Start,
    fed_go_ucb,
    realizable,
    shared_start,
    simulate,
)
from fedgo.algorithms.dis_lin_ucb import dis_lin_ucb
from fedgo.confidence import compress
from fedgo.theory import LARGEST_INCREMENT, information_bound, potential_bound, synchronisations
from fedgo.theory.replay import replay

BRIEF = Langevin(rounds=12, step=0.05)
ROWS = ("local", "central", "gain", "since", "information", "total", "epoch")


@cache
def recorded(seed):
    """Fed-GO-UCB on a random realizable problem of random sizes."""
    problem, network, clients, rounds, settings = instance(seed)
    start = shared_start(problem, network, clients, rounds, BRIEF)
    return problem, start, fed_go_ucb(problem, start, settings), settings.lam


def plain_replay(problem, start, trace, lam, row):
    """One client after the other, dense d_w × d_w matrices."""
    network, clients, w0 = start.network, start.clients, start.w0[row, 0].numpy()
    known = [value_and_gradient(w0, x, network.hidden) for x in problem.arms[row].numpy()]
    d_w, arms = len(w0), len(known)
    eye, zero, none = lam * np.eye(d_w), np.zeros((d_w, d_w)), np.zeros(arms)
    sigma, delta, pulls = [eye] * clients, [zero] * clients, [0] * clients
    mine, server, agent = [(none, none)] * clients, (none, none), eye
    epoch, out = 0, SimpleNamespace(**{name: [] for name in ROWS}, counts=[], sums=[])
    first = trace.phase_one
    for t in range(trace.arm.shape[1] - first):
        i, arm = t % clients, int(trace.arm[row, first + t])
        value, g = known[arm]
        hit = np.eye(arms)[arm]
        local, central = (g @ np.linalg.inv(matrix) @ g for matrix in (sigma[i], agent))
        sigma[i], delta[i] = sigma[i] + np.outer(g, g), delta[i] + np.outer(g, g)
        agent, pulls[i] = agent + np.outer(g, g), pulls[i] + 1
        mine[i] = mine[i][0] + hit, mine[i][1] + hit * (float(trace.reward[row, first + t]) - value)
        before = np.linalg.slogdet(sigma[i] - delta[i])[1]
        logs = [np.linalg.slogdet(matrix)[1] for matrix in (sigma[i], agent)]
        information, total = (log - d_w * np.log(lam) for log in logs)
        entry = (local, central, logs[0] - before, pulls[i], information, total, epoch)
        for name, number in zip(ROWS, entry, strict=True):
            getattr(out, name).append(number)
        out.counts.append(server[0] + mine[i][0])
        out.sums.append(server[1] + mine[i][1])
        if trace.sync[row, first + t]:
            server = tuple(old + sum(part) for old, part in zip(server, zip(*mine, strict=True), strict=True))
            for j in range(clients):
                sigma[j], delta[j], pulls[j], mine[j] = agent, zero, 0, (none, none)
            epoch += 1
    return out


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(36))
def test_the_replay_is_the_dense_one(seed):
    problem, start, trace, lam = recorded(seed)
    found = replay(start, problem.arms, trace, lam)
    assert found.epoch.dtype == torch.int64
    for row in range(3):
        expected = plain_replay(problem, start, trace, lam, row)
        for name in ROWS:
            values = getattr(found, name)[row].numpy()
            np.testing.assert_allclose(values, getattr(expected, name), rtol=1e-9, atol=1e-9, err_msg=name)
        assert found.known.counts[row].tolist() == np.stack(expected.counts).tolist()
        np.testing.assert_allclose(found.known.sums[row].numpy(), expected.sums, rtol=0, atol=1e-11)


@pytest.mark.parametrize("seed", range(36))
def test_synchronisations_are_where_the_event_says(seed):
    problem, start, trace, lam = recorded(seed)
    found = replay(start, problem.arms, trace, lam)
    sync = trace.sync[:, trace.phase_one :]
    assert torch.equal(found.since * found.gain > GAMMAS[seed % 6], sync)
    assert torch.equal(found.epoch[:, 1:], sync.cumsum(1)[:, :-1]) and not found.epoch[:, 0].any()


def test_the_event_is_strict():
    # one arm x = 1 and λ = 1: the first pull has 1·ln 2 = γ exactly; later 2·ln 3, or 2·ln(4/2) after a sync
    problem = Problem("one", torch.ones(1, 1, 1).double(), torch.zeros(1, 1).double(), (0,))
    for gamma, sync in ((math.log1p(1), [0, 0, 1, 0]), (math.nextafter(math.log1p(1), 0), [1, 0, 0, 1])):
        trace = dis_lin_ucb(problem, 2, 4, Settings(1.0, 1.0, gamma))
        assert trace.sync[0].tolist() == sync


def test_the_instances_synchronise_never_sometimes_and_always():
    shares = [trace.sync[:, trace.phase_one :].double().mean() for _, _, trace, _ in map(recorded, range(12))]
    assert shares[0] == shares[6] == 1 and shares[5] == shares[11] == 0
    assert sum(0.02 < share < 0.9 for share in shares) >= 4


@pytest.mark.parametrize("seed", [0, 2, 3, 5])
def test_sums_by_epoch_are_those_of_a_loop(seed):
    problem, start, trace, lam = recorded(seed)
    found = replay(start, problem.arms, trace, lam)
    sums = found.by_epoch(found.local)
    most = int(found.epoch.max())
    assert sums.shape == (3, most + 1)
    expected = torch.zeros(3, most + 1).double()
    for row in range(3):
        for value, epoch in zip(found.local[row], found.epoch[row], strict=True):
            expected[row, epoch] += value
    torch.testing.assert_close(sums, expected, rtol=0, atol=1e-12)
    assert (
        found.by_epoch(torch.ones_like(found.epoch)).sum(1).tolist()
        == [trace.arm.shape[1] - trace.phase_one] * 3
    )


# The inequalities of the analysis, which no choice of arms may break


@cache
def protocol(seed):
    """A random protocol: arms pulled at random, or the same one for a while, with the paper's event.

    λ is the least that the elliptical potential lemma allows, or larger.
    """
    draw = np.random.default_rng(1000 + seed)
    d_x, clients, rounds = int(draw.integers(1, 4)), int(draw.integers(1, 8)), int(draw.integers(5, 25))
    network = SingleUnit(d_x) if seed % 2 else Network(d_x, int(draw.integers(1, 4)))
    problem = realizable(network, 2, arms=int(draw.integers(1, 12)), seed=seed)
    w0 = torch.from_numpy(draw.normal(size=(2, 1, network.size)))
    start = Start(problem, network, clients, rounds, Exploration.nothing(2), w0, torch.zeros(2, 1))
    arms = problem.arms.unsqueeze(1)
    gradients = network.gradients(w0, arms)
    slope = gradients.norm(dim=-1).max().item()
    lam = slope**2 / LARGEST_INCREMENT * (1 + 1e-9) * float(draw.choice([1, 1, 10, 1000]))
    increment = math.log1p(slope**2 / lam)
    gamma = increment * 10.0 ** draw.uniform(-2, 2.5)
    source, lazy = torch.Generator().manual_seed(seed), draw.random() < 0.5

    def whim(posterior, known):
        if lazy:
            return -posterior.variance + 0.0 * known.sums  # the arm that is known best, again and again
        return torch.rand(known.sums.shape, generator=source, dtype=torch.float64)

    learner = EventTriggered(
        clients,
        compress(gradients).features,
        network.values(w0, arms),
        network.size,
        Settings(lam, 1.0, gamma),
        whim,
    )
    trace = simulate("random", problem, learner, start.exploration, clients, clients * rounds)
    return SimpleNamespace(
        found=replay(start, problem.arms, trace, lam),
        sync=trace.sync,
        clients=clients,
        rounds=rounds,
        lam=lam,
        gamma=gamma,
        slope=slope,
        dimension=min(problem.arms.shape[1], network.size),
    )


@pytest.fixture(scope="module", params=range(40))
def played(request):
    return protocol(request.param)


def below(small, large):
    """Whether ``small`` ≤ ``large`` up to rounding."""
    return bool((small <= large * (1 + 1e-9) + 1e-9).all())


@pytest.mark.slow
def test_every_log_determinant_is_within_its_bound(played):
    found = played.found
    for log, pulls in ((found.information, found.known.counts.sum(-1)), (found.total, None)):
        steps = torch.arange(1, log.shape[1] + 1).expand_as(log) if pulls is None else pulls
        bounds = [
            [information_bound(played.dimension, n, played.slope, played.lam) for n in row]
            for row in steps.tolist()
        ]
        assert below(log, torch.tensor(bounds, dtype=torch.float64))
    assert below(found.information, found.total)


def test_the_potential_of_all_pulls_is_at_most_twice_their_information(played):
    most = potential_bound(1.0, played.lam, played.slope) * played.found.total
    assert below(played.found.central.cumsum(1), most)


def test_a_clients_ratio_is_at_most_the_global_one(played):
    found, epoch = played.found, played.found.epoch
    central = found.central.log1p()
    start = found.total - central
    # ln det Σ at the end of the epoch before
    before = torch.zeros_like(found.by_epoch(central)).scatter_reduce(
        1, epoch, start, "amin", include_self=False
    )
    assert below(found.gain, found.total - before.gather(1, epoch))
    assert below(found.central, found.local)
    lag = found.total - central - (found.information - found.local.log1p())
    assert below(found.local, found.central * lag.exp())
    good = (found.by_epoch(central) <= 1).gather(1, epoch)
    assert below(found.local[good], math.e * found.central[good])


def test_there_are_fewer_bad_epochs_than_the_information(played):
    ratios = played.found.by_epoch(played.found.central.log1p())
    assert ((ratios > 1).sum(1) < played.found.total[:, -1]).all()
    torch.testing.assert_close(ratios.sum(1), played.found.total[:, -1])


def test_a_client_that_does_not_fire_has_a_small_sum_of_widths(played):
    found, widths = played.found, {}
    for row in range(2):
        for t, fired in enumerate(played.sync[row].tolist()):
            key = row, int(found.epoch[row, t]), t % played.clients
            widths[key] = widths.get(key, 0.0) + (0.0 if fired else found.local[row, t].sqrt().item())
    assert max(widths.values()) <= math.sqrt(2 * played.gamma) * (1 + 1e-9)


def test_the_synchronisations_are_within_their_bound(played):
    for sync, total in zip(played.sync, played.found.total[:, -1].tolist(), strict=True):
        assert sync.sum() <= synchronisations(played.rounds, total, played.gamma) * (1 + 1e-9)


def test_the_random_protocols_have_bad_epochs_and_many_and_no_synchronisations():
    every = [protocol(seed) for seed in range(40)]
    counts = [played.sync.sum().item() for played in every]
    bad = [(played.found.by_epoch(played.found.central.log1p()) > 1).any().item() for played in every]
    assert counts.count(0) >= 3 and sum(count > 30 for count in counts) >= 5 and sum(bad) >= 20
