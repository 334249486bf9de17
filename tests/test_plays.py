"""Executed runs of Phase II: the algorithms' or with arms chosen otherwise, and seen by one who knows w*."""

import math
from dataclasses import replace

import pytest
import torch
from instances import BRIEF

from fedgo import Langevin, Network, Settings, SingleUnit, fed_go_ucb, realizable, shared_start
from fedgo.confidence import Tally, ball, condition
from fedgo.theory.ball import information_bound
from fedgo.theory.executed.runs import Hindsight, play_phase_two, single_unit_line_three
from fedgo.theory.worlds import single_unit

CLIENTS, ROUNDS, LAM, GAMMA = 3, 12, 0.7, 0.4


@pytest.fixture(scope="module")
def network_play():
    network = Network(2, 3)
    problem = realizable(network, 3, arms=9, seed=4, scale=2.0)
    start = shared_start(problem, network, 4, 12, BRIEF)
    return play_phase_two(start, Settings(0.5, 0.2, 0.1))


@pytest.fixture(scope="module")
def unit():
    problem = single_unit(3, 3, 8, seed=2)
    return problem, shared_start(problem, SingleUnit(3), 3, 10)


def test_a_play_is_fed_go_ucbs(network_play):
    given = network_play.start, network_play.settings
    assert network_play.trace == fed_go_ucb(*given)
    gradients = network_play.start.network.gradients(network_play.start.w0[:, 0], network_play.problem.arms)
    assert network_play.slope == gradients.norm(dim=-1).max()
    assert network_play.information_bound == information_bound(9, 48, network_play.slope, 0.5)
    assert play_phase_two(*given, slope=7.0).slope == 7


def test_line_three_of_the_unit_is_the_maximum_over_the_ball(unit):
    problem, start = unit
    counts = torch.randint(0, 4, (3, 3, 8), generator=torch.Generator().manual_seed(0)).double()
    known = Tally(counts, 0.3 * counts - 0.2)
    gradients, offsets = (
        f(start.w0, problem.arms.unsqueeze(1)) for f in (start.network.gradients, start.network.values)
    )
    posterior = condition(gradients, offsets, 0.4, known)
    found = single_unit_line_three(start, 0.09)(posterior, known)
    around = ball(gradients, start.w0, 0.4, 0.09, known)
    x = problem.arms.unsqueeze(1)
    widths = (x @ torch.cholesky_inverse(torch.linalg.cholesky(around.sigma)) * x).sum(-1).sqrt()
    centre = (x @ around.centre.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(found, centre + 0.3 * widths, rtol=0, atol=1e-12)


# Runs seen by one who knows w*


@pytest.fixture(scope="module")
def case():
    problem = single_unit(4, 2, 5, seed=9, scale=3.0)
    start = shared_start(problem, SingleUnit(2), CLIENTS, ROUNDS, Langevin(rounds=30))
    settings = Settings(LAM, 0.2, GAMMA)
    trace = fed_go_ucb(start, settings)
    bend = 4 / (3 * math.sqrt(3)) * problem.arms.square().sum(-1).amax(-1)
    return Hindsight(start, settings, trace, problem.truth, bend)


def data(case, run, step):
    """The steps of Phase II that are in the moving client's model after ``step``, and how often all synchronised."""
    before = case.trace.sync[run, case.trace.phase_one :][:step].nonzero().flatten().tolist()
    shared = before[-1] if before else -1
    return [s for s in range(step + 1) if s <= shared or s % CLIENTS == step % CLIENTS], len(before)


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
