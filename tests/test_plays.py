"""Executed runs of Phase II: the same as the algorithms', or with arms chosen otherwise."""

import math
from dataclasses import replace

import pytest
import torch

from fedgo import Langevin, Network, Settings, SingleUnit, fed_go_ucb, realizable, shared_start
from fedgo.algorithms.dis_lin_ucb import dis_lin_ucb
from fedgo.confidence import Tally, ball, condition
from fedgo.experiments.plays import blind, linear_play, play, random_play, single_unit_line_three
from fedgo.theory import information_bound, single_unit
from fedgo.theory.replay import realised_information

BRIEF = Langevin(rounds=12, step=0.05)
SAME = ("arm", "reward", "regret", "up", "down", "sync")


@pytest.fixture(scope="module")
def network_play():
    network = Network(2, 3)
    problem = realizable(network, 3, arms=9, seed=4, scale=2.0)
    start = shared_start(problem, network, 4, 12, BRIEF)
    return play(problem, start, Settings(0.5, 0.2, 0.1))


@pytest.fixture(scope="module")
def unit():
    problem = single_unit(3, 3, 8, seed=2)
    return problem, shared_start(problem, SingleUnit(3), 3, 10)


def test_a_play_is_fed_go_ucbs(network_play):
    expected = fed_go_ucb(network_play.problem, network_play.start, network_play.settings)
    for name in SAME:
        assert torch.equal(getattr(network_play.trace, name), getattr(expected, name))
    gradients = network_play.start.network.gradients(network_play.start.w0[:, 0], network_play.problem.arms)
    assert network_play.slope == gradients.norm(dim=-1).max()
    assert play(network_play.problem, network_play.start, network_play.settings, slope=7.0).slope == 7


def test_what_a_play_shows_of_phase_two(network_play):
    trace, first = network_play.trace, network_play.trace.phase_one
    assert first == 7 and network_play.arm.shape == (3, 48)
    for name in ("arm", "regret", "sync"):
        assert torch.equal(getattr(network_play, name), getattr(trace, name)[:, first:])
    assert network_play.variety.tolist() == [len(set(row)) for row in network_play.arm.tolist()]
    assert network_play.information_bound == information_bound(9, 48, network_play.slope, 0.5)
    fewer = linear_play(network_play.problem, 2, 5, network_play.settings)
    assert fewer.information_bound == information_bound(2, 10, fewer.slope, 0.5)


@pytest.mark.parametrize(("factor", "enough"), [(1 / 2.5128, True), (1 / 2.5129, False)])
def test_the_condition_of_the_potential_lemma(network_play, factor, enough):
    settings = replace(network_play.settings, lam=network_play.slope**2 * factor)
    assert replace(network_play, settings=settings).regularised is enough


def test_the_first_runs_are_replayed_as_all_are(network_play):
    some = network_play.first(2)
    assert some.problem.runs == (0, 1) and some.start.exploration.arm.shape == (2, 7)
    assert some.start.loss.shape == (2, 1) and some.start.exploration.ledger.up.shape == (2, 7)
    assert torch.equal(some.arm, network_play.arm[:2])
    torch.testing.assert_close(some.replay.total, network_play.replay.total[:2], rtol=0, atol=1e-12)


def test_a_linear_play_is_dis_lin_ucbs():
    problem = realizable(Network(3, 2), 4, arms=10, seed=1)
    settings = Settings(0.7, 0.3, 0.2)
    found = linear_play(problem, 4, 9, settings)
    expected = dis_lin_ucb(problem, 4, 36, settings)
    for name in SAME:
        assert torch.equal(getattr(found.trace, name), getattr(expected, name))
    network, w0 = found.start.network, found.start.w0[:, 0]
    assert torch.equal(network.gradients(w0, problem.arms), problem.arms)
    assert not network.values(w0, problem.arms).any()
    assert found.slope == problem.arms.norm(dim=-1).max()


def test_blind_choices_are_uniform_and_seeded():
    problem = realizable(Network(2, 2), 1, arms=4, seed=1)
    arms = [
        linear_play(problem, 5, 400, Settings(1.0, 1.0, 5.0), blind(torch.Generator().manual_seed(seed))).arm
        for seed in (0, 0, 1)
    ]
    assert torch.equal(arms[0], arms[1]) and not torch.equal(arms[0], arms[2])
    assert (arms[0].flatten().bincount(minlength=4) - 500).abs().max() < 4 * math.sqrt(2000 * 3 / 16)


def test_line_three_of_the_unit_is_the_maximum_over_the_ball(unit):
    problem, start = unit
    counts = torch.randint(0, 4, (3, 3, 8), generator=torch.Generator().manual_seed(0)).double()
    known = Tally(counts, 0.3 * counts - 0.2)
    gradients, offsets = (
        f(start.w0, problem.arms.unsqueeze(1)) for f in (start.network.gradients, start.network.values)
    )
    posterior = condition(gradients, offsets, 0.4, known)
    found = single_unit_line_three(start, problem.arms, 0.09)(posterior, known)
    around = ball(gradients, start.w0, 0.4, 0.09, known)
    x = problem.arms.unsqueeze(1)
    widths = (x @ torch.cholesky_inverse(torch.linalg.cholesky(around.sigma)) * x).sum(-1).sqrt()
    centre = (x @ around.centre.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(found, centre + 0.3 * widths, rtol=0, atol=1e-12)


def test_another_index_is_played(unit):
    problem, start = unit
    settings = Settings(0.4, 0.3, 0.5)
    index = single_unit_line_three(start, problem.arms, settings.beta)
    other = play(problem, start, settings, index)
    assert other.trace.arm.shape == (3, 6 + 30)
    assert not torch.equal(other.arm, play(problem, start, settings).arm)


@pytest.mark.slow
def test_random_plays_are_drawn_from_their_source_and_satisfy_the_potential_lemma():
    source = torch.Generator().manual_seed(3)
    plays = [random_play(2, 0, source) for _ in range(20)]
    again = random_play(2, 0, torch.Generator().manual_seed(3))
    assert torch.equal(again.arm, plays[0].arm) and again.settings == plays[0].settings
    sizes = {(p.start.clients, p.start.rounds, *p.problem.arms.shape[1:]) for p in plays}
    assert len(sizes) == 20
    assert [min(part) >= 2 for part in zip(*sizes, strict=True)] == [True] * 4
    assert [max(part) for part in zip(*sizes, strict=True)] == pytest.approx([12, 40, 15, 6], abs=3)
    for p in plays:
        assert p.regularised and 0.4 <= p.settings.lam / p.slope**2 <= 3.4 and 0.01 <= p.settings.gamma <= 100
    weak = random_play(2, 0, torch.Generator().manual_seed(3), share=1e-6)
    assert weak.settings.lam == pytest.approx(1e-6 * again.settings.lam, rel=1e-12) and not weak.regularised
    assert torch.equal(weak.problem.arms, again.problem.arms) and weak.settings.gamma == again.settings.gamma
    blindly = random_play(2, 0, torch.Generator().manual_seed(3), blind(torch.Generator().manual_seed(1)))
    assert blindly.settings == again.settings and not torch.equal(blindly.arm, again.arm)


def test_the_realised_information_is_where_a_replay_ends(network_play):
    found = realised_information(
        network_play.start, network_play.problem.arms, network_play.trace, network_play.settings.lam
    )
    torch.testing.assert_close(found, network_play.replay.total[:, -1], rtol=1e-11, atol=0)
    assert found.unique().numel() == 3
