"""The inequalities of the analysis: against plain loops, and each one red where a quantity is spoilt."""

import math
from dataclasses import replace

import pytest
import torch

from fedgo import Langevin, Network, Problem, Settings, SingleUnit, realizable, shared_start
from fedgo.confidence import Tally, ball
from fedgo.experiments.inequalities import Violations, one_step, regret_bound, violations
from fedgo.experiments.plays import blind, linear_play, play, random_play
from fedgo.experiments.printed_event import bookkeeping
from fedgo.theory import (
    excess_first_order,
    excess_in_ball,
    excess_printed,
    regret_phase_two_clipped,
    single_unit,
)


@pytest.fixture(scope="module")
def plays():
    source = torch.Generator().manual_seed(5)
    return [random_play(3, 0, source, blind(source) if k % 2 else None) for k in range(10)]


@pytest.fixture(scope="module")
def weak_plays():
    """With λ from a tenth of C_g² down to 1e-8 of it."""
    source = torch.Generator().manual_seed(6)
    shares = [0.1 * 10**-k for k in range(8)]
    return [random_play(3, 0, source, blind(source) if share < 1e-3 else None, share) for share in shares]


def spoilt(one, **parts):
    """The play with some fields of its replay replaced."""
    copy = replace(one)
    copy.__dict__["replay"] = one.replay._replace(**parts)
    return copy


@pytest.mark.slow
def test_nothing_is_violated_and_every_inequality_has_instances(plays):
    found = [violations(one) for one in plays]
    for name in Violations._fields:
        parts = [getattr(each, name) for each in found]
        assert not any(part.any() for part in parts), name
        assert all(part.dtype == torch.bool for part in parts) and sum(part.numel() for part in parts) >= 30


@pytest.mark.slow
def test_with_small_regularisation_only_the_potential_and_the_widths_that_are_not_cut_off_fail(weak_plays):
    found = [violations(one) for one in weak_plays]
    for name in Violations._fields:
        assert any(getattr(each, name).any() for each in found) == (name in ("potential", "widths")), name


@pytest.mark.parametrize(
    ("name", "cap", "factor"), [("widths", math.inf, 2), ("cut_widths", 1, 1 / math.log(2))]
)
@pytest.mark.parametrize("share", [0.05, 0.3, 0.8])
def test_the_widths_of_a_client_are_those_of_a_loop(plays, weak_plays, share, name, cap, factor):
    for one in plays + weak_plays:
        n, steps, sums = one.start.clients, one.arm.shape[1], {}
        for row in range(3):
            for t in range(steps):
                key = row, int(one.replay.epoch[row, t]), t % n
                width = 0.0 if one.sync[row, t] else one.replay.local[row, t].sqrt().item()
                sums[key] = sums.get(key, 0.0) + min(cap, width)
        if not any(sums.values()):  # every step synchronises
            continue
        gamma = (share * max(sums.values())) ** 2 / factor
        other = replace(one, settings=replace(one.settings, gamma=gamma))
        other.__dict__["replay"] = one.replay
        found = getattr(violations(other), name)
        expected = sum(value > math.sqrt(factor * gamma) for value in sums.values())
        assert found.sum() == expected > 0


def log_det(one, row, counts):
    gradients = one.problem.arms[row]  # linear features
    sigma = (gradients.mT * counts) @ gradients + one.settings.lam * torch.eye(gradients.shape[1]).double()
    return 2 * torch.linalg.cholesky(sigma).diagonal().log().sum().item()


def test_the_ratios_of_norms_are_bounded_by_those_of_determinants(plays):
    """The number of steps whose margin, computed from dense matrices, is below a shift of the logarithm."""
    for one in plays[:8]:
        view, margins = one.replay, []
        pulled = torch.nn.functional.one_hot(one.arm, one.problem.arms.shape[1]).double()
        for row in range(3):
            for t in range(one.arm.shape[1]):
                agent, client = pulled[row, :t].sum(0), view.known.counts[row, t] - pulled[row, t]
                lag = log_det(one, row, agent) - log_det(one, row, client)
                margins.append(lag - math.log(view.local[row, t] / view.central[row, t]))
        assert min(margins) > -1e-9
        for shift in (0.001, 0.03, 0.4):
            found = violations(spoilt(one, information=view.information + shift)).ratio
            assert found.sum() == sum(margin < shift for margin in margins) > 0


def test_good_and_bad_epochs_are_those_of_a_loop(plays):
    some_good, some_bad = 0, 0
    for one in plays:
        view = one.replay
        epochs = [(row, p) for row in range(3) for p in range(int(view.epoch[row].max()) + 1)]
        growth = {
            key: view.central[key[0]][view.epoch[key[0]] == key[1]].log1p().sum().item() for key in epochs
        }
        good = {key for key, value in growth.items() if value <= 1}
        steps = [
            (r, t) for r in range(3) for t in range(one.arm.shape[1]) if (r, int(view.epoch[r, t])) in good
        ]
        expected = sum(bool(2.5 * view.local[step] > math.e * view.central[step]) for step in steps)
        found = violations(spoilt(one, local=2.5 * view.local)).good_ratio
        assert found.numel() == len(steps) and found.sum() == expected
        bad = [sum(key[0] == row for key in growth.keys() - good) for row in range(3)]
        for off in (-0.5, 0.5):
            total = view.total.clone()
            total[:, -1] = (torch.tensor(bad).double() + off).abs()
            found = violations(spoilt(one, total=total)).bad_epochs
            assert found.tolist() == [off < 0 < count for count in bad]
        some_good, some_bad = some_good + expected, some_bad + sum(bad)
    assert some_good > 0 and some_bad > 0


@pytest.mark.parametrize(("off", "red"), [(-1e-6, True), (1e-6, False)])
def test_information_potential_and_synchronisations_at_their_bounds(plays, weak_plays, off, red):
    for one in plays + weak_plays:
        view, rounds, total = one.replay, one.start.rounds, one.replay.total.clone()
        total[:, -1] = one.information_bound * (1 - off)
        assert violations(spoilt(one, total=total)).information.tolist() == [red] * 3
        total[:, -1] = view.central.sum(1) / 2 * (1 + off)
        assert violations(spoilt(one, total=total)).potential.tolist() == [red] * 3
        total[:, -1] = view.central.clamp(max=1).sum(1) * math.log(2) * (1 + off)
        assert violations(spoilt(one, total=total)).cut_potential.tolist() == [red] * 3
        for row in range(3):
            count, information = int(one.sync[row].sum()), view.total[row, -1].item()
            if count:  # the γ at which the bound on P is just P
                gamma = information * (count + rounds) / count**2 * (1 - off)
                other = replace(one, settings=replace(one.settings, gamma=gamma))
                other.__dict__["replay"] = view
                assert bool(violations(other).syncs[row]) is red


def test_a_client_gains_at_most_what_the_agent_gained_since_the_epoch_began(plays):
    for one in plays:
        view, least = one.replay, math.inf
        for row in range(3):
            begin = 0.0
            for t in range(one.arm.shape[1]):
                least = min(least, view.total[row, t].item() - begin - view.gain[row, t].item())
                begin = view.total[row, t].item() if one.sync[row, t] else begin
        for more, red in ((least - 1e-6, False), (least + 1e-6, True)):
            assert bool(violations(spoilt(one, gain=view.gain + more)).gain.any()) is red


@pytest.fixture(scope="module")
def unit_play():
    problem = single_unit(2, 2, 6, seed=3)
    start = shared_start(problem, SingleUnit(2), 3, 7, Langevin(rounds=60, step=0.3))
    return play(problem, start, Settings(0.3, 0.02, 0.4))


@pytest.mark.parametrize("line_three", [False, True])
def test_the_bounds_of_one_step_are_those_of_a_loop(unit_play, line_three):
    one, bend = unit_play, torch.tensor([0.7, 1.9]).double()
    found = one_step(one, bend, line_three)
    problem, start, lam, beta = one.problem, one.start, one.settings.lam, one.settings.beta
    for row in range(2):
        w0, x, truth = start.w0[row, 0], problem.arms[row], problem.truth[row]
        gradients, offsets = start.network.gradients(w0, x), start.network.values(w0, x)
        rho = (w0 - truth).norm().item()
        excess = (
            excess_in_ball(beta, bend[row].item(), lam, rho)
            if line_three
            else excess_first_order(bend[row].item(), rho)
        )
        server, mine = [], [[], [], []]
        for t in range(21):
            counts, sums = torch.zeros(6).double(), torch.zeros(6).double()
            for arm, residual in server + mine[t % 3]:
                counts[arm] += 1
                sums[arm] += residual
            around = ball(gradients, w0, lam, beta, Tally(counts, sums))
            assert bool(found.covered[row, t]) == bool(around.contains(truth))
            arm = int(one.arm[row, t])
            half = torch.linalg.solve_triangular(
                torch.linalg.cholesky(around.sigma), gradients[arm].unsqueeze(1), upper=False
            )
            width = 2 * math.sqrt(beta) * half.norm().item()
            assert found.bound[row, t].item() == pytest.approx(width + excess, rel=1e-9)
            printed = excess_printed(beta, bend[row].item(), lam)
            assert found.printed[row, t].item() == pytest.approx(width + printed, rel=1e-9)
            reward = one.trace.reward[row, one.trace.phase_one + t].item()
            mine[t % 3].append((arm, reward - offsets[arm].item()))
            if one.sync[row, t]:
                server, mine = [*server, *(pull for part in mine for pull in part)], [[], [], []]
    assert torch.equal(found.regret, one.regret)
    assert 0 < found.covered.sum() < found.covered.numel() and one.sync.any()


def test_violations_of_a_step_are_counted_where_the_truth_is_in_the_ball(unit_play):
    found = one_step(unit_play, torch.ones(2).double())
    inside = int(found.covered.sum())
    large = found._replace(regret=found.bound + 1, printed=found.bound + 2)
    assert (large.violations, large.violations_printed) == (inside, 0)
    assert large._replace(printed=found.bound).violations_printed == inside


def test_a_step_needs_a_known_truth_and_one_curvature_for_each_run(unit_play):
    with pytest.raises(ValueError, match="truth is None: give a realizable problem"):
        one_step(replace(unit_play, problem=replace(unit_play.problem, truth=None)), torch.ones(2).double())
    with pytest.raises(ValueError, match=r"the shape of curvature is \(1,\): give \(S,\)"):
        one_step(unit_play, torch.ones(1).double())


def test_the_bound_of_a_run_is_the_lemmas(unit_play):
    about = (3, 7, 0.4, 0.9)
    realised = unit_play.replay.total[:, -1].tolist()
    found = regret_bound(unit_play, 0.9, torch.tensor([0.1, 0.2], dtype=torch.float64))
    widest = unit_play.slope / math.sqrt(0.3)
    expected = [
        regret_phase_two_clipped(0.02, x, *about, k, widest=widest).total
        for x, k in zip(realised, (0.1, 0.2), strict=True)
    ]
    assert found.tolist() == expected
    assert found.dtype == torch.float64
    alone = regret_phase_two_clipped(0.02, 5.3, *about, 0.1, widest=widest).total
    assert regret_bound(unit_play, 0.9, 0.1, 5.3).tolist() == [alone] * 2
    assert alone < regret_phase_two_clipped(0.02, 5.3, *about, 0.1).total  # no width is above C_g/√λ


@pytest.mark.slow
@pytest.mark.parametrize("lam", [1e-8, 1e-4, 0.01, 1.0])
def test_the_bound_holds_on_runs_that_are_optimistic_whatever_the_regularisation(lam):
    """Item 3′ where its premises are made true: linear features, w* in every ball by a β that is large enough."""
    source, clients, rounds = torch.Generator().manual_seed(8), 3, 40
    points = torch.randn(4, 9, 3, generator=source, dtype=torch.float64)
    truth = torch.randn(4, 3, 1, generator=source, dtype=torch.float64)
    means = (points @ truth).squeeze(-1)
    beta = lam * truth.square().sum((1, 2)).max().item()  # without noise the distance is at most √λ|w*|
    problem = Problem("noiseless", points, means, (0, 1, 2, 3), 0, 0.0)
    for gamma in (0.01, 1.0, 100.0):
        one = linear_play(problem, clients, rounds, Settings(lam, beta, gamma))
        value = means.abs().max().item()
        below = 2 * (beta * one.replay.local).sqrt().clamp(max=value)
        assert (one.regret <= below * (1 + 1e-6) + 1e-9).all()
        assert (one.regret.sum(1) <= regret_bound(one, value)).all()


def test_the_printed_event_by_hand():
    one = torch.ones(1, 1, dtype=torch.float64)
    found = bookkeeping(one, torch.zeros(3, dtype=torch.int64), 1, 1.0, 0.1)
    # Σ is 2, then 3 after the server held 2, then 5 after it held 4; ΔΣ is 1, 2, 3
    assert found.ratio.tolist() == pytest.approx([math.log(2), math.log(3), math.log(5 / 2)])
    assert found.meant.tolist() == pytest.approx([math.log(2), math.log(3 / 2), math.log(5 / 4)])
    assert found.fires.all() and found.pulls.tolist() == [1, 1, 1]
    assert found.sigma.item() == 7
    assert bookkeeping(one, torch.zeros(3, dtype=torch.int64), 1, 1.0, 0.1, reset=True).sigma.item() == 4


def test_with_a_reset_the_printed_event_is_the_repaired_one():
    problem = realizable(Network(3, 2), 2, arms=7, seed=3)
    one = linear_play(problem, 4, 30, Settings(0.4, 0.3, 0.05))
    for row in range(2):
        found = bookkeeping(problem.arms[row], one.arm[row], 4, 0.4, 0.05, reset=True)
        assert torch.equal(found.fires, one.sync[row]) and found.fires.sum() > 4
        torch.testing.assert_close(found.ratio, one.replay.gain[row], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(found.meant, found.ratio, rtol=1e-9, atol=1e-9)
        assert torch.equal(found.pulls, one.replay.since[row])
        printed = bookkeeping(problem.arms[row], one.arm[row], 4, 0.4, 0.05)
        assert (printed.ratio >= printed.meant - 1e-12).all() and printed.fires.sum() > found.fires.sum()
