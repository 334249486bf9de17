"""Executed runs of Phase II: the algorithms' or with arms chosen otherwise, and seen by one who knows w*."""

import math
from dataclasses import replace

import pytest
import torch

from fedgo import Langevin, Network, Settings, SingleUnit, fed_go_ucb, realizable, shared_start
from fedgo.algorithms.dis_lin_ucb import dis_lin_ucb
from fedgo.confidence import Tally, ball, condition
from fedgo.experiments.plays import Hindsight, blind, linear_play, play, random_play, single_unit_line_three
from fedgo.theory.confidence import information_bound
from fedgo.theory.worlds import single_unit

BRIEF = Langevin(rounds=12, step=0.05)
CLIENTS, ROUNDS, LAM, GAMMA = 3, 12, 0.7, 0.4
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
    assert network_play.variety.tolist() == [len(set(row)) for row in network_play.arm.tolist()]
    assert network_play.information_bound == information_bound(9, 48, network_play.slope, 0.5)
    assert play(network_play.problem, network_play.start, network_play.settings, slope=7.0).slope == 7


def test_the_condition_of_the_potential_lemma_and_the_first_runs(network_play):
    for factor, enough in ((1 / 2.5128, True), (1 / 2.5129, False)):
        settings = replace(network_play.settings, lam=network_play.slope**2 * factor)
        assert replace(network_play, settings=settings).regularised is enough
    some = network_play.first(2)
    assert some.problem.runs == (0, 1) and torch.equal(some.arm, network_play.arm[:2])
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


def test_random_plays_are_drawn_from_their_source_and_satisfy_the_potential_lemma():
    one, weak = (random_play(2, 0, torch.Generator().manual_seed(3), share=share) for share in (1.0, 1e-6))
    assert one.regularised and 0.4 <= one.settings.lam / one.slope**2 <= 3.4
    assert weak.settings.lam == pytest.approx(1e-6 * one.settings.lam, rel=1e-12) and not weak.regularised
    assert torch.equal(weak.problem.arms, one.problem.arms) and weak.settings.gamma == one.settings.gamma
    blindly = random_play(2, 0, torch.Generator().manual_seed(3), blind(torch.Generator().manual_seed(1)))
    assert blindly.settings == one.settings and not torch.equal(blindly.arm, one.arm)


# Runs seen by one who knows w*


@pytest.fixture(scope="module")
def case():
    problem = single_unit(4, 2, 5, seed=9, scale=3.0)
    start = shared_start(problem, SingleUnit(2), CLIENTS, ROUNDS, Langevin(rounds=30))
    settings = Settings(LAM, 0.2, GAMMA)
    trace = fed_go_ucb(problem, start, settings)
    bend = 4 / (3 * math.sqrt(3)) * problem.arms.square().sum(-1).amax(-1)
    return Hindsight(problem, start, settings, trace, problem.truth, bend)


def data(case, run, step):
    """The steps of Phase II that are in the moving client's model after ``step``, and how often all synchronised."""
    before = case.trace.sync[run, case.trace.phase_one :][:step].nonzero().flatten().tolist()
    shared = before[-1] if before else -1
    return [s for s in range(step + 1) if s <= shared or s % CLIENTS == step % CLIENTS], len(before)


def test_centre_matrix_and_distance_are_those_of_the_clients_data(case):
    at = torch.arange(CLIENTS * ROUNDS)
    ball, distance, known = case.ball(at), case.distance(at), case.known(at)
    assert case.trace.sync.any() and not case.trace.sync.all()
    for run in range(4):
        w0, w = case.start.w0[run, 0], case.truth[run]
        for step in at.tolist():
            mine, _ = data(case, run, step)
            g = case.start.network.gradients(w0, case.problem.arms[run])[case.arm[run, mine]]
            sigma = LAM * torch.eye(2, dtype=torch.float64) + g.T @ g
            rest = case.trace.reward[run, case.trace.phase_one :][mine]
            rest = rest - case.start.network.values(w0, case.problem.arms[run])[case.arm[run, mine]]
            centre = w0 + torch.linalg.inv(sigma) @ (g.T @ rest)
            assert torch.allclose(ball.sigma[run, step], sigma, rtol=1e-10)
            assert torch.allclose(ball.centre[run, step], centre, rtol=1e-8, atol=1e-10)
            away = centre - w
            assert distance[run, step].item() == pytest.approx(math.sqrt(away @ sigma @ away), rel=1e-7)
            assert known.counts[run, step].sum() == len(mine)


def test_the_remainders_are_within_taylors_bound(case):
    limit = case.curvature / 2 * case.rho**2
    assert (case.remainder.abs().amax(1) <= limit).all() and (case.remainder.abs().amax(1) > 0).all()
    drawn = case.problem.tape(case.trace.arm.shape[1])[:, case.trace.phase_one :]
    assert torch.allclose(case.noise, case.problem.sigma * drawn, atol=1e-12)


def test_the_radius_is_that_of_the_confidence_lemma(case):
    delta, found, noise = 0.1, case.radius(0.1), case.radius(0.1, exact=True)
    for run in range(4):
        rho, bend = case.rho[run].item(), case.curvature[run].item()
        for step in range(0, CLIENTS * ROUNDS, 5):
            mine, syncs = data(case, run, step)
            g = case.gradients[run, case.arm[run, mine]]
            sigma = torch.eye(2, dtype=torch.float64) + g.T @ g / LAM
            log = torch.logdet(sigma).item() + 2 * math.log(
                math.pi**2 * CLIENTS * (syncs + 1) ** 2 / (3 * delta)
            )
            parts = (0.1 * math.sqrt(log), math.sqrt(LAM) * rho, bend / 2 * rho**2 * math.sqrt(len(mine)))
            assert found[run, step].item() == pytest.approx(sum(parts), rel=1e-11)
            assert noise[run, step].item() == pytest.approx(parts[0], rel=1e-11)
    nearer = replace(case, truth=case.centre)
    assert torch.allclose(nearer.radius(delta), noise)
