"""The inequalities of the analysis: they hold, and each one is red where a quantity is spoilt."""

import math
from dataclasses import replace

import pytest
import torch

from fedgo import Langevin, Settings, SingleUnit, shared_start
from fedgo.theory.executed.inequalities import one_step, violations
from fedgo.theory.executed.printed_event import bookkeeping
from fedgo.theory.executed.runs import blind, play_phase_two, random_play
from fedgo.theory.regret import excess_first_order, excess_in_ball, excess_printed
from fedgo.theory.worlds import single_unit

NAMES = (
    "information", "potential", "cut_potential", "ratio", "good_ratio", "bad_epochs", "gain", "widths",
    "cut_widths", "syncs",
)  # fmt: skip


def random_plays():
    """Ten plays with λ ≥ C_g² and four with λ from a tenth of it down to 1e-4 of it."""
    source = torch.Generator().manual_seed(5)
    plays = [random_play(3, 0, source, blind(source) if k % 2 else None) for k in range(10)]
    weak = torch.Generator().manual_seed(6)  # with still less rounding decides where both sides are equal
    return plays + [random_play(3, 0, weak, blind(weak) if k > 2 else None, 0.1 * 10**-k) for k in range(4)]


def spoilt(one, **parts):
    """The play with some fields of its replay replaced."""
    copy = replace(one)
    copy.__dict__["replay"] = one.replay._replace(**parts)
    return copy


SPOILT = {
    "local": ((2.5, 0), (0.4, 0)),
    "central": ((0.3, 0), (4.0, 0)),
    "information": ((1, 0.03), (1, -0.03)),
    "total": ((0.1, 0), (0.5, 0), (3.0, 0)),
    "gain": ((1, 0.3), (4.0, 0)),
    "gamma": ((0.01, 0), (100.0, 0)),
}


@pytest.mark.slow
def test_every_inequality_holds_and_is_red_where_a_quantity_is_spoilt():
    red = set()
    for k, one in enumerate(random_plays()):
        assert k >= 10 or not any(values.any() for values in violations(one).values())
        for name, changes in SPOILT.items():
            for factor, more in changes:
                if name == "gamma":
                    other = replace(one, settings=replace(one.settings, gamma=factor * one.settings.gamma))
                    other.__dict__["replay"] = one.replay
                else:
                    other = spoilt(one, **{name: factor * getattr(one.replay, name) + more})
                red |= {key for key, values in violations(other).items() if values.any()}
    assert red == set(NAMES)


@pytest.fixture(scope="module")
def unit_play():
    problem = single_unit(2, 2, 6, seed=3)
    start = shared_start(problem, SingleUnit(2), 3, 7, Langevin(rounds=60, step=0.3))
    return play_phase_two(start, Settings(0.3, 0.02, 0.4))


@pytest.mark.parametrize("line_three", [False, True])
def test_the_bounds_of_one_step_are_those_of_the_data_before_it(unit_play, line_three):
    one, bend = unit_play, torch.tensor([0.7, 1.9]).double()
    found, lam, beta = one_step(one, bend, line_three), one.settings.lam, one.settings.beta
    for row in range(2):
        w0, truth, curve = one.start.w0[row, 0], one.problem.truth[row], bend[row].item()
        rho = (w0 - truth).norm().item()
        excess = excess_in_ball(beta, curve, lam, rho) if line_three else excess_first_order(curve, rho)
        for t in range(21):
            synced = [s for s in range(t) if one.sync[row, s]]
            last = synced[-1] if synced else -1
            before = [s for s in range(t) if s <= last or s % 3 == t % 3]
            rows, residuals = one.gradients[row, one.arm[row, before]], one.residual[row, before]
            sigma = lam * torch.eye(2).double() + rows.T @ rows
            centre = w0 + torch.linalg.solve(sigma, rows.T @ residuals)
            away, g = truth - centre, one.gradients[row, one.arm[row, t]]
            assert bool(found.covered[row, t]) == bool(away @ sigma @ away <= beta)
            width = 2 * math.sqrt(beta * (g @ torch.linalg.solve(sigma, g)).item())
            assert found.bound[row, t].item() == pytest.approx(width + excess, rel=1e-9)
            printed = width + excess_printed(beta, curve, lam)
            assert found.printed[row, t].item() == pytest.approx(printed, rel=1e-9)
    assert torch.equal(found.regret, one.regret)
    assert 0 < found.covered.sum() < found.covered.numel() and one.sync.any()


def test_the_printed_event_by_hand():
    one = torch.ones(1, 1, dtype=torch.float64)
    found = bookkeeping(one, torch.zeros(3, dtype=torch.int64), 1, 1.0, 0.1)
    # Σ is 2, then 3 after the server held 2, then 5 after it held 4; ΔΣ is 1, 2, 3
    assert found.ratio.tolist() == pytest.approx([math.log(2), math.log(3), math.log(5 / 2)])
    assert found.meant.tolist() == pytest.approx([math.log(2), math.log(3 / 2), math.log(5 / 4)])
    assert found.fires.all() and found.pulls.tolist() == [1, 1, 1]
    assert found.sigma.item() == 7
    assert bookkeeping(one, torch.zeros(3, dtype=torch.int64), 1, 1.0, 0.1, reset=True).sigma.item() == 4
