"""Theorems G and G′: the guard against a plain transcription; intervals, certificate, bound and bill; the event."""

import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import BRIEF, INF, about, assert_same, double, random_world
from reference import go_ucb as reference

from fedgo import Exploration, Problem, Settings, shared_start
from fedgo.beyond.guarantees.guarantee import (
    Guarantee,
    Scripted,
    guard_regret,
    guarded,
    guarded_fed_go_ucb,
    malicious,
    tabular_information,
)
from fedgo.beyond.guarantees.optimist import optimistic_ucb1
from fedgo.phase_one import explore
from fedgo.simulation import order_of_ties
from fedgo.theory.regret import synchronisations
from fedgo.theory.replay import knowledge

seeds = st.integers(0, 10**6)


# The plain transcription


def plain_interval(n, total, union, delta, guarantee):
    """[L, U] of one arm, |S| ≤ σ√((1 + n)(ln(1 + n) + 2 ln(union/δ)))."""
    if n == 0:
        return -guarantee.value, guarantee.value
    c = guarantee.sigma * math.sqrt((n + 1) * (math.log(1 + n) + 2 * math.log(union / delta))) / n
    return max(total / n - c, -guarantee.value), min(total / n + c, guarantee.value)


def plain_ends(own, everybody, clients, arms, syncs, guarantee):
    """[L, U] of an arm with counts and sums of the client's ``own`` knowledge and of ``everybody`` at the last sync."""
    delta, union = guarantee.delta, math.pi**2 * clients * arms * (syncs + 1) ** 2 / 6
    if clients == 1:
        return plain_interval(*own, arms, delta, guarantee)
    if not guarantee.simultaneous:
        return plain_interval(*own, union, delta, guarantee)
    both = (
        plain_interval(*own, union, delta / 2, guarantee),
        plain_interval(*everybody, arms, delta / 2, guarantee),
    )
    return max(lower for lower, _ in both), min(upper for _, upper in both)


def plain_guard(means, noise, sigma, first, clients, rounds, guarantee, ties, propose):
    """One run, one client after the other. ``propose(i, t, n, total)`` sees what client i knows."""
    arms = len(means)
    blank = [0] * arms, [0.0] * arms
    server = [list(part) for part in blank]
    for arm, y in first:
        server[0][arm] += 1
        server[1][arm] += y
    fresh = [[list(part) for part in blank] for _ in range(clients)]
    gain, syncs = [0.0] * clients, 0
    band = [[(-INF, INF)] * arms for _ in range(clients)]
    names, rows = ("arm", "up", "down", "sync", "certificate", "proposed", "refuted"), []
    for t in range(clients * rounds):
        i = t % clients
        n, total = ([a + b for a, b in zip(server[k], fresh[i][k], strict=True)] for k in (0, 1))
        seen = zip(zip(n, total, strict=True), zip(*server, strict=True), strict=True)
        ends = [plain_ends(own, common, clients, arms, syncs, guarantee) for own, common in seen]
        for x, (lower, upper) in enumerate(ends):
            band[i][x] = max(band[i][x][0], lower), min(band[i][x][1], upper)
        best = max(upper for _, upper in ends)
        price = [max([0] + [ends[z][1] - ends[x][0] for z in range(arms) if z != x]) for x in range(arms)]
        wish = propose(i, t, n, total)
        lower, upper = ends[wish]
        follow = price[wish] <= guarantee.kappa * (upper - lower)
        leaders = [x for x in range(arms) if ends[x][1] == best]
        arm = wish if follow else max(leaders, key=lambda x: ties[i][x])
        refuted = any(lower > upper + 1e-9 * max(abs(lower), abs(upper)) for lower, upper in band[i])
        y = means[arm] + sigma * noise[t]
        gain[i] += math.log(1 + 1 / (1 + n[arm]))
        fresh[i][0][arm] += 1
        fresh[i][1][arm] += y
        fired = sum(fresh[i][0]) * gain[i] > guarantee.gamma
        up = down = 0
        if fired:
            pulls = [sum(own[0]) for own in fresh]
            up = sum(2 * min(k, arms) for k in pulls)
            down = clients * 2 * min(sum(pulls), arms)
            for own in fresh:
                for k in (0, 1):
                    server[k] = [a + b for a, b in zip(server[k], own[k], strict=True)]
            fresh = [[list(part) for part in blank] for _ in range(clients)]
            gain, syncs = [0.0] * clients, syncs + 1
        certificate = 2 * guarantee.value if refuted else price[arm]
        rows.append((arm, up, down, fired, certificate, follow, refuted))
    return SimpleNamespace(**{name: [*values] for name, *values in zip(names, *rows, strict=True)})


def plain_fed_go(problem, start, chosen, row):
    """The proposal of Fed-GO-UCB, from dense matrices and all that a client knows."""
    w0 = start.w0[row, 0].numpy()
    seen = [reference.value_and_gradient(w0, x, start.network.hidden) for x in problem.arms[row].numpy()]

    def propose(i, t, n, total):
        sigma, b = chosen.lam * np.eye(len(w0)), np.zeros(len(w0))
        for x, (value, g) in enumerate(seen):
            sigma = sigma + n[x] * np.outer(g, g)
            b = b + g * (n[x] * (g @ w0) + total[x] - n[x] * value)
        w_hat = np.linalg.solve(sigma, b + chosen.lam * w0)
        widths = [math.sqrt(chosen.beta * (g @ np.linalg.solve(sigma, g))) for _, g in seen]
        means = [value + g @ (w_hat - w0) for value, g in seen]
        return int(np.argmax(np.add(means, widths)))

    return propose


def instance(seed):
    """A problem, a start and everything that the guard is given, of random sizes."""
    problem, *world, draw = random_world(seed, (2, 13), (1, 7), (2, 16))
    start = shared_start(problem, *world, BRIEF)
    chosen = Settings(10.0 ** draw.uniform(-2, 1), 10.0 ** draw.uniform(-2, 0.5))
    value = problem.means.abs().max().item() * float(draw.choice([1.01, 2, 10]))
    gamma = (0.0, 0.1, 0.5, 1.0, 5.0, INF)[seed % 6]
    kappa, delta = float(draw.choice([1, 1.5, 2, 8])), float(draw.choice([0.01, 0.1, 0.9]))
    simultaneous = bool(draw.integers(0, 2))
    return problem, start, chosen, Guarantee(value, 0.3, delta, kappa, gamma, simultaneous)


def assert_transcribed(trace, problem, guarantee, row, propose):
    """The run at ``row`` is the plain guard's around what ``propose`` says."""
    length, steps = trace.phase_one, trace.arm.shape[1]
    first = list(zip(trace.arm[row, :length].tolist(), trace.reward[row, :length].tolist(), strict=True))
    expected = plain_guard(
        problem.means[row].tolist(), problem.tape(steps)[row, length:].tolist(), problem.sigma, first,
        trace.clients, (steps - length) // trace.clients, guarantee,
        order_of_ties(problem, trace.clients)[row].tolist(), propose,
    )  # fmt: skip
    assert_same(trace, row, expected)
    if "certificate" in trace.notes:
        for note in ("proposed", "refuted"):
            assert trace.notes[note][row, length:].tolist() == getattr(expected, note), note
        np.testing.assert_allclose(trace.notes["certificate"][row, length:], expected.certificate, 1e-9, 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(36))
def test_the_guard_around_fed_go_ucb_is_its_transcription(seed):
    problem, start, chosen, guarantee = instance(seed)
    trace = guarded_fed_go_ucb(start, chosen, guarantee)
    for row in range(2):
        propose = plain_fed_go(problem, start, chosen, row)
        assert_transcribed(trace, problem, guarantee, row, propose)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_the_guard_around_a_script_is_its_transcription_with_and_without_phase_one(seed):
    problem, start, _, guarantee = instance(seed)
    clients, rounds, (runs, arms) = start.clients, start.rounds, problem.means.shape
    source = torch.Generator().manual_seed(seed)
    wishes = torch.randint(arms, (runs, clients * rounds), generator=source)
    if seed % 2:
        wishes = problem.means.argmin(1, keepdim=True).expand_as(wishes)
    script = Scripted(clients, wishes, arms)
    for exploration in (Exploration.nothing(runs), explore(problem, 7)):
        trace = guarded("s", problem, script, exploration, clients, rounds, guarantee)
        for row in range(runs):
            assert_transcribed(trace, problem, guarantee, row, lambda i, t, *_, row=row: int(wishes[row, t]))


@pytest.mark.parametrize("seed", range(6))
def test_ucb1_on_counts_is_a_guard_that_accepts_everything(seed):
    problem, *world, _ = random_world(seed, (2, 13), (1, 7), (2, 16))
    _, clients, rounds = world
    gamma = (0.0, 0.1, 0.5, 1.0, 5.0, INF)[seed]
    trace = optimistic_ucb1(problem, clients, clients * rounds, 0.2, gamma)
    ties = order_of_ties(problem, clients)

    def ucb1(i, t, n, total, row):
        width = [math.sqrt(0.4 * math.log(sum(n)) / k) if k else INF for k in n]
        index = [y / max(k, 1) + wide for k, y, wide in zip(n, total, width, strict=True)]
        best = [x for x, upper in enumerate(index) if upper == max(index)]
        return max(best, key=lambda x: ties[row, i, x])

    for row in range(3):
        all_accepted = Guarantee(1e6, 0.3, kappa=1e12, gamma=gamma)
        assert_transcribed(trace, problem, all_accepted, row, partial(ucb1, row=row))


# The intervals


def worst_case(seed, runs=3):
    """Arms whose order the noise can hide, and whatever the guard is given."""
    draw = np.random.default_rng(seed)
    arms = int(draw.integers(1, 61)) if seed % 3 == 0 else int(draw.integers(1, 10))
    clients, rounds = int(draw.integers(1, 9)), int(draw.integers(1, 21))
    means = double(draw.normal(size=(runs, arms)) * 10 ** draw.uniform(-1, 1))
    problem = Problem("worst", torch.zeros(runs, arms, 1).double(), means, tuple(range(runs)), seed, 0.2)
    gamma = 0.0 if draw.random() < 0.15 else 10 ** draw.uniform(-2, 2.5)
    value = means.abs().max().item() * (1 + 9 * draw.random())
    kappa, simultaneous = 1 + 7 * draw.random() * draw.integers(0, 2), bool(draw.integers(0, 2))
    return problem, clients, rounds, Guarantee(value, 0.2, 0.1, kappa, gamma, simultaneous)


def maliciously(problem, clients, rounds, guarantee):
    """The guard around the worst arm that it accepts."""
    nothing = Exploration.nothing(len(problem.means))
    evil = malicious(problem, nothing, clients, guarantee)
    return guarded("malice", problem, evil, nothing, clients, rounds, guarantee)


@pytest.mark.slow
@given(seeds)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_certificate_and_the_number_of_syncs_are_within_their_bounds_under_malice(seed):
    problem, clients, rounds, guarantee = worst_case(seed)
    arms = problem.means.shape[1]
    trace = maliciously(problem, clients, rounds, guarantee)
    paid = trace.notes["certificate"].sum(1)
    assert (trace.regret <= trace.notes["certificate"] + 1e-12).all()  # f is in [L, U] in these draws
    counts = torch.nn.functional.one_hot(trace.arm, arms).sum(1).double()
    realised = tabular_information(counts)
    assert (realised <= arms * math.log1p(clients * rounds / arms) * (1 + 1e-12)).all()
    for row in range(len(paid)):
        syncs = trace.sync[row].sum().item()
        information = realised[row].item() * (1 + 1e-9)
        tight = guard_regret(guarantee, arms, clients, rounds, information=information, syncs=syncs)
        loose = guard_regret(guarantee, arms, clients, rounds)
        assert paid[row] <= tight.total * (1 + 1e-9) and tight.total <= loose.total * (1 + 1e-9)
        if guarantee.gamma:
            assert syncs <= synchronisations(rounds, information, guarantee.gamma) * (1 + 1e-9)
        assert (trace.up + trace.down)[row].sum() <= 4 * arms * clients * syncs


def test_a_malicious_proposal_is_always_accepted_and_plays_the_worst_arm_that_is():
    for seed in range(8):
        problem, start, _, guarantee = instance(seed)
        clients, arms = start.clients, problem.means.shape[1]
        proposal = malicious(problem, start.exploration, clients, guarantee)
        trace = guarded("m", problem, proposal, start.exploration, clients, start.rounds, guarantee)
        assert trace.notes["proposed"][:, trace.phase_one :].all()
        intervals = guarantee.intervals(clients)
        for seen in knowledge(trace, arms, phase_one=True):
            found = intervals.after(seen.tally, seen.syncs, shared=seen.shared)
            fine = found.price <= guarantee.kappa * (found.upper - found.lower) * (1 + 1e-9)
            worst = torch.where(fine, problem.means.unsqueeze(1), INF).amin(-1)
            played = problem.means.gather(1, trace.arm[:, seen.step])
            torch.testing.assert_close(played, worst, rtol=1e-9, atol=1e-9)


def _ratio(clip):
    return clip**2 / math.log1p(clip**2)


def test_the_bound_and_the_threshold_by_hand():
    # K = 3, N = 2, T = 10, κ = 2, F = 0.5, σ = 0.1: √β = 4h > F
    given_ = Guarantee(0.5, 0.1, 0.1, 2.0, 0.7)
    h = 0.1 * math.sqrt(math.log(1 + 20 + 5) + 2 * math.log(math.pi**2 * 6 * 25 / 0.6))
    clip = 0.5 / (4 * h)
    scale = 8 * h * math.sqrt(_ratio(clip))
    found = guard_regret(given_, 3, 2, 10, 5, 2.2, 4)
    assert clip < 1 and found.good == about(scale * math.sqrt(math.e * 20 * 2.2))
    assert found.bad == about(2 * (2 * scale * math.sqrt(0.7) + 1))
    # Theorem G′ has δ/2 for δ, and one client alone no union but that over the arms
    both = guard_regret(replace(given_, simultaneous=True), 3, 2, 10, 5, 2.2, 4)
    assert both == guard_regret(replace(given_, delta=0.05), 3, 2, 10, 5, 2.2, 4)
    alone, h = guard_regret(given_, 3, 1, 10, information=2.2), 0.1 * math.sqrt(math.log(11 * 30**2))
    assert alone.good == about(8 * h * math.sqrt(math.e * 10 * 2.2 * _ratio(0.5 / (4 * h))))
    # who is alone needs no share of δ for what others know
    assert alone == guard_regret(replace(given_, simultaneous=True), 3, 1, 10, information=2.2)
    # without P its bound, and at most NT
    syncs = 2.2 / 1.4 + math.sqrt((2.2 / 1.4) ** 2 + 10 * 2.2 / 0.7)
    assert guard_regret(given_, 3, 2, 10, information=2.2) == guard_regret(given_, 3, 2, 10, 0, 2.2, syncs)
    always = replace(given_, gamma=0.0)
    assert guard_regret(always, 3, 2, 10, information=2.2) == guard_regret(always, 3, 2, 10, 0, 2.2, 20)
    # γ = T/(NR), unless it is given
    assert replace(given_, gamma=None).threshold(50, 20, 100) == about(100 / (20 * 50 * math.log1p(40)))
    assert given_.threshold(50, 20, 100) == 0.7


# Bounds that are refuted, and proposals that are none


@pytest.mark.parametrize("wrong", [{"sigma": 0.03}, {"value": 0.2}])
def test_bounds_that_are_refuted_are_said_and_survived(wrong):
    means = double(np.random.default_rng(0).uniform(-1, 1, size=(200, 6)))
    problem = Problem("wrong", torch.zeros(200, 6, 1).double(), means, tuple(range(200)), 5, 0.3)
    told = {"value": 1.5, "sigma": 0.3, "kappa": 4.0, "gamma": 0.5, "simultaneous": True} | wrong
    trace = maliciously(problem, 3, 25, Guarantee(**told))
    refuted = trace.notes["refuted"]
    assert refuted.any(1).double().mean() > 0.5
    own = refuted.unflatten(1, (-1, trace.clients)).long()  # by round and client
    assert (own.diff(dim=1) >= 0).all()  # for good
    assert (trace.notes["certificate"][refuted] == 2 * wrong.get("value", 1.5)).all()


def test_a_proposal_that_is_not_a_number_is_refused():
    problem, start, _, guarantee = instance(5)
    clients, (runs, arms) = start.clients, problem.means.shape

    class Broken(Scripted):
        def index(self, state):
            return super().index(state) * torch.nan

    broken = Broken(clients, torch.zeros(runs, 1, dtype=torch.int64), arms)
    trace = guarded("s", problem, broken, start.exploration, clients, start.rounds, guarantee)
    assert not trace.notes["proposed"].any()
    eager = replace(guarantee, kappa=1.0)  # the largest U is played, whatever the price
    other = guarded("s", problem, broken, start.exploration, clients, start.rounds, eager)
    assert torch.equal(trace.arm, other.arm)


# The event, the messages, and what the proposal knows


def test_the_bill_has_phase_one_and_every_synchronisation():
    problem, start, chosen, guarantee = instance(3)
    clients, arms, length = start.clients, problem.means.shape[1], start.exploration.arm.shape[1]
    before = start.exploration.ledger
    trace = guarded_fed_go_ucb(start, chosen, guarantee)
    shares = [2 * min(len(range(i, length, clients)), arms) for i in range(clients)]
    assert ((trace.up[:, :length] - before.up).sum(1) == sum(shares)).all()
    assert ((trace.down[:, :length] - before.down).sum(1) == clients * 2 * min(length, arms)).all()
    # whose clients have sent their counts and sums
    told = shared_start(problem, start.network, clients, start.rounds, BRIEF, encoding="counts")
    again = guarded_fed_go_ucb(told, replace(chosen, encoding="counts"), guarantee)
    assert torch.equal(again.up[:, :length], told.exploration.ledger.up)
    assert (again.up[:, length - 1] == sum(shares)).all() and torch.equal(again.arm, trace.arm)
    assert not (trace.up[:, : length - 1] - before.up[:, : length - 1]).any()  # at the last step of Phase I


def test_the_information_of_counts_by_hand():
    counts, known = torch.tensor([[0.0, 3.0, 7.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
    assert tabular_information(counts).item() == pytest.approx(math.log(32))
    assert tabular_information(counts, known).item() == pytest.approx(math.log(16))
