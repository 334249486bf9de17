"""Runs seen by one who knows w*: against the definitions written out, pull by pull."""

import math
from dataclasses import FrozenInstanceError, replace

import pytest
import torch

from fedgo import Langevin, Settings, SingleUnit, fed_go_ucb, shared_start, theory
from fedgo.experiments.hindsight import Hindsight

CLIENTS, ROUNDS, LAM, GAMMA = 3, 12, 0.7, 0.4


@pytest.fixture(scope="module")
def case():
    problem = theory.single_unit(4, 2, 5, seed=9, scale=3.0)
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


def test_the_distance_is_the_sum_of_its_three_parts(case):
    at = case.sampled
    assert len(at) >= 10 and at[0] == 0 and len(set(at.diff().tolist())) == 1
    ball, lam = case.ball(at), LAM
    for run in range(4):
        for place, step in enumerate(at.tolist()):
            mine, _ = data(case, run, step)
            g = case.gradients[run, case.arm[run, mine]]
            remainders = case.remainder[run, case.arm[run, mine]]
            total = g.T @ (case.noise[run, mine] + remainders) - lam * case.away[run]
            apart = ball.centre[run, place] - case.truth[run]
            assert torch.allclose(ball.sigma[run, place] @ apart, total, rtol=1e-8, atol=1e-9)


def test_what_is_known_of_every_run_is_what_its_docstring_says(case):
    unit, x = case.start.network, case.problem.arms
    assert torch.equal(case.centre, case.start.w0[:, 0]) and torch.equal(case.away, case.truth - case.centre)
    assert torch.allclose(case.rho, case.away.square().sum(1).sqrt())
    assert torch.allclose(case.slope, unit.gradients(case.centre, x).square().sum(-1).sqrt().amax(1))
    assert torch.allclose(case.residual - case.noise, (case.problem.means - case.offsets).gather(1, case.arm))
    drawn = case.problem.tape(case.trace.arm.shape[1])[:, case.trace.phase_one :]
    assert torch.allclose(case.noise, case.problem.sigma * drawn, atol=1e-12)
    # Taylor: |a_x| ≤ ½C_hρ₀²
    limit = case.curvature / 2 * case.rho**2
    assert (case.remainder.abs().amax(1) <= limit).all() and (case.remainder.abs().amax(1) > 0).all()
    assert torch.allclose(case.features @ case.features.mT, case.gradients @ case.gradients.mT)
    assert case.dimension == 2
    assert torch.equal(case.swing, case.problem.means.amax(1) - case.problem.means.amin(1))
    with pytest.raises(FrozenInstanceError):
        case.truth = case.centre


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
