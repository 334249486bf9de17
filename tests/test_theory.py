"""The bounds with explicit constants: by hand, by brute force, and attained where they are tight."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import INF, about

from fedgo import Settings, theory
from fedgo.confidence import Tally, condition, first_order
from fedgo.theory.assumptions import Assumptions
from fedgo.theory.ball import radius
from fedgo.theory.theorem import Premises, TheoremSetting

PLAIN = Assumptions(dimension=5, value=2.0, slope=3.0, curvature=0.7, noise=0.4, growth=0.5)

cases = settings(max_examples=200, deadline=None, derandomize=True)
wide = st.floats(1e-3, 1e4)


def line(start, end, steps):
    return torch.linspace(start, end, steps, dtype=torch.float64)


# Phase I: finite classes


def test_what_no_later_test_writes_out_is_what_was_worked_out_by_hand():
    logs = math.log(980)  # ι at T₀ = 100: ln(100·0.7²) + ln 20
    for found, expected in (
        # α = ½: 3·4·ln 8·ln 2/(50·½) + 2 ln 20/(50·½)
        (
            theory.oracle.finite_risk_printed(8, 50, 0.1, 2.0),
            0.48 * math.log(8) * math.log(2) + 0.08 * math.log(20),
        ),
        (
            theory.oracle.finite_risk(8, 50, 0.1, 2.0, 3.0, 0.1),
            (16 * 9 + 32 * 4) * math.log(160) / 50 + 0.4,
        ),
        (theory.oracle.iota(PLAIN, 100, 0.1), logs),
        (theory.oracle.regression_risk_printed(PLAIN, 100, 0.1), 16 * 5 * 4 * logs / 100),
        (theory.oracle.optimisation_error(45), 1 / 720),
        (theory.oracle.covering(1, 0.125), math.log(4)),  # four intervals of length ¼ cover [0, 1]
        (theory.oracle.growth_limit(PLAIN), INF),  # without a tail the growth is quadratic everywhere
        (theory.oracle.squared_distance(PLAIN, 1e6), 4e6),
        (theory.oracle.exploration_needed(PLAIN, 3.0), 0),
    ):
        assert found == about(expected), expected
    assert (theory.oracle.C_NET, theory.oracle.C_RISK, theory.oracle.C_DISTANCE) == (8, 16, 32)


# Phase I: the net and the regression oracle


def test_the_risk_of_the_oracle_by_hand():
    # ρ = 0.1: ⌈√5/0.2⌉ = 12 cubes a side, u = ln 60, T₀ = 1000
    u = math.log(60)
    share = (u + 5 * math.log(12)) / 1000
    spread = 1 + math.sqrt(2 * u / 1000) + math.sqrt(2 * share)
    expected = (25 * 0.16 + 40 * 4) * share + 12.5 * 3 * 0.1 * 0.4 * spread + 6.25 * 0.3 + 17.5 * 0.09
    assert theory.oracle.regression_risk(PLAIN, 1000, 0.1, 0.3, 0.1) == about(expected)
    default = theory.oracle.regression_risk(PLAIN, 1000, 0.1)
    assert default == about(theory.oracle.regression_risk(PLAIN, 1000, 0.1, 0.0, 1 / 3000))
    silent = replace(PLAIN, noise=0.0)
    share = (u + 5 * math.log(math.ceil(1500 * math.sqrt(5)))) / 1000
    assert theory.oracle.regression_risk(silent, 1000, 0.1) == about(160 * share + 17.5e-6)


# Phase I: from the loss to the distance


@pytest.mark.parametrize("exponent", [0.2, 0.5, 1.0, 1.5, 1.9])
@pytest.mark.parametrize("tail", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("growth", [0.2, 1.0, 7.0])
def test_the_distance_is_the_largest_that_the_growth_allows(growth, tail, exponent):
    a = replace(PLAIN, growth=growth, tail=tail, exponent=exponent)
    limit = theory.oracle.growth_limit(a)
    far = line(0, 3 * math.sqrt(2 * limit / growth), 30_001)
    least = torch.minimum(growth / 2 * far**2, tail / 2 * far**exponent)
    for share in (1e-3, 0.2, 0.7, 0.99):
        largest = far[least <= share * limit].max().item()
        found = math.sqrt(theory.oracle.squared_distance(a, share * limit))
        assert largest <= found <= largest + 2 * far[1].item()
    beyond = far[least <= 1.2 * limit].max().item()
    assert beyond > math.sqrt(2.4 * limit / growth) * 1.001  # the other branch allows more


# Phase II


def test_the_largest_increment_is_the_root_of_x_and_twice_ln_1_plus_x():
    root = theory.regret.LARGEST_INCREMENT
    assert root == pytest.approx(2 * math.log1p(root), rel=0, abs=1e-15) and root > 2
    for share in (1e-6, 0.01, 0.5, 0.999999):
        assert share * root < 2 * math.log1p(share * root)
    above = 1.000001 * root  # one datum breaks the lemma with a λ below C_g²/ξ
    assert above > 2 * math.log1p(above)


@pytest.mark.parametrize("distance", [0.0, 0.3, 1.0])
def test_the_second_order_part_of_line_three_is_attained_by_a_parabola(distance):
    # f(w) = C_hw²/2 around ŵ₀ = 0, w* = ρ₀ at the lower end of a ball of half-width s without data, Σ = λ
    curvature, lam, beta = 0.7, 2.0, 1.3
    reach = math.sqrt(beta / lam)
    w = line(distance, distance + 2 * reach, 10_001)
    regret = (curvature / 2 * (w**2 - distance**2)).max().item()  # ∇f(ŵ₀) = 0: only the second order is left
    assert regret == pytest.approx(theory.regret.excess_in_ball(beta, curvature, lam, distance), rel=1e-9)
    assert (regret > theory.regret.excess_printed(beta, curvature, lam) * (1 + 1e-9)) == (distance > 0)


def test_the_second_order_part_of_the_first_order_index_is_attained_by_two_parabolas():
    # ∓C_hw²/2 look alike at ŵ₀ = 0, whatever the data, and the index takes the first
    curvature, distance, none = 0.7, 0.4, torch.zeros(2).double()
    posterior = condition(none.unsqueeze(1), none, 1.0, Tally(none + 5, none + 3))
    assert first_order(posterior, 9.0).argmax() == 0
    values = [sign * curvature / 2 * distance**2 for sign in (-1, 1)]
    assert values[1] - values[0] == about(theory.regret.excess_first_order(curvature, distance))


@given(wide, wide, wide)
@cases
def test_the_synchronisations_solve_their_quadratic(rounds, information, gamma):
    most = theory.regret.synchronisations(rounds, information, gamma)
    assert most**2 * gamma == pytest.approx((rounds + most) * information, rel=1e-9)
    product, ratio = math.sqrt(rounds * information / gamma), information / gamma
    assert max(product, ratio) <= most * (1 + 1e-12) and most <= (product + ratio) * (1 + 1e-12)
    printed = theory.regret.synchronisations_printed(rounds, information, gamma)
    # the missing term decides where Λ/γ is large against T
    assert (most > printed) == (ratio > 2.25 * rounds) or most == pytest.approx(printed)


# Theorem 1


def test_the_setting_of_the_repaired_theorem_by_hand():
    for arms, dimension in ((None, 5), (50, 5), (3, 3)):
        found = theory.theorem.theorem_setting(Premises(PLAIN, 20, 101, arms=arms))
        gamma = 101 / (20 * dimension * math.log(1 + 2020 / dimension))
        assert tuple(found) == (45, 9, about(gamma))
    endless = Premises(PLAIN, 10**50, 10**50)  # where nobody plays
    assert theory.theorem.theorem_setting(endless).exploration == 10**50


def test_the_printed_theorem_is_made_of_its_parts():
    steps, scale = 2000, 1.7
    found = theory.theorem.theorem_printed(Premises(PLAIN, 20, 100), 30, scale)
    gamma, lam = 5 * 16 * 100 / (0.25 * 20), 1.7 * math.sqrt(2000)
    rho2 = 32 * 5 * 4 * (math.log(45 * 0.49) + math.log(20)) / (0.5 * 45)
    information = 5 * math.log(1 + 2000 * 9 / (5 * lam))
    beta = 4 * 0.16 * (information + 2 * math.log(math.pi**2 * steps**2 / 0.3)) + 4 * lam * rho2
    beta += 0.49 * rho2**2 * steps * 2 * information
    good = math.sqrt(steps * (16 * math.e * beta * information + 8 * (beta * 0.7 / lam) ** 2 * steps))
    bad = information * 20 * math.sqrt(16 * beta * gamma + 8 * (beta * 0.7 / scale) ** 2)
    syncs = 2 * math.sqrt(100 * information / gamma)
    scalars = 2 * 30 * 20 * 5 + 2 * syncs * 20 * (25 + 5)
    assert tuple(found) == tuple(map(about, (2 * 45 * 2, good + bad, syncs, scalars)))
    assert found.regret == about(180 + good + bad)


def by_hand(premises, oracle_rounds, rho2, setting, information, line_three=False):
    """The repaired theorem written out, and its β̄."""
    a, clients, rounds, steps = premises.a, premises.clients, premises.rounds, premises.steps
    exploration, lam, gamma = setting
    half = information / (2 * gamma)
    syncs = min(half + math.sqrt(half**2 + rounds * information / gamma), steps)
    log = information + 2 * math.log(math.pi**2 * clients * (syncs + 1) ** 2 / (3 * premises.delta))
    rho = math.sqrt(rho2)
    beta = (a.noise * math.sqrt(log) + math.sqrt(lam) * rho + a.curvature / 2 * rho2 * math.sqrt(steps)) ** 2
    kappa = 2 * a.curvature * (beta / lam + math.sqrt(beta / lam) * rho) if line_three else a.curvature * rho2
    cut = min(a.value**2 / beta, a.slope**2 / lam)
    factor = cut / math.log1p(cut) * beta  # φβ
    good = 2 * math.sqrt(math.e * factor * steps * information)
    each = 2 * clients * math.sqrt(factor * gamma) + 2 * a.value
    scalars = (2 * oracle_rounds + 1) * clients * a.dimension
    scalars += 2 * syncs * clients * (a.dimension**2 + a.dimension)
    second = good + math.floor(information) * each + steps * kappa
    return beta, tuple(map(about, (2 * exploration * a.value, second, syncs, scalars)))


@pytest.mark.parametrize("line_three", [False, True])
@pytest.mark.parametrize(("clients", "rounds"), [(1, 1), (20, 100), (100, 3)])
def test_the_repaired_theorem_is_made_of_its_parts(clients, rounds, line_three):
    premises, steps = Premises(PLAIN, clients, rounds), clients * rounds
    information = 5 * math.log(1 + steps / 5)
    setting = TheoremSetting(math.ceil(math.sqrt(steps)), 9.0, rounds / (clients * information))
    rho2 = 2 * theory.oracle.regression_risk(PLAIN, setting.exploration, 0.1, 0.02) / 0.5
    found = theory.theorem.theorem(premises, 30, epsilon=0.02, line_three=line_three)
    _, expected = by_hand(premises, 30, rho2, setting, information, line_three)
    assert tuple(found) == expected and found.regret == found.phase_one + found.phase_two


@pytest.mark.parametrize("lam", [1e-9, 1e-4, 0.3, 4.0, 9.0, 1e4])
def test_what_is_given_to_the_repaired_theorem_is_used(lam):
    premises, setting = Premises(PLAIN, 20, 100), TheoremSetting(200, lam, 0.3)
    information = 5 * math.log1p(2000 * 9 / (5 * lam))
    found = theory.theorem.theorem(premises, 30, rho2=0.04, setting=setting)
    beta, expected = by_hand(premises, 30, 0.04, setting, information)
    assert tuple(found) == expected
    worst = theory.theorem.worst_case(premises, 0.2, setting)
    assert tuple(worst) == (about(information), found.syncs, lam, about(beta), 0.3)
    assert worst.settings == Settings(lam, worst.beta, 0.3)
    # its radius is that of the confidence set, with P, NT and Λ at their largest
    options = {"clients": 20, "lam": lam, "sigma": 0.4, "distance": 0.2, "curvature": 0.7, "delta": 0.1}
    most = [torch.tensor(bound, dtype=torch.float64) for bound in (information, 2000, found.syncs)]
    assert radius(*most, **options).item() == about(beta)


def test_with_few_arms_their_number_is_the_dimension_and_no_more_than_all_steps_synchronise():
    few = Premises(PLAIN, 20, 100, arms=3)
    setting, information = theory.theorem.theorem_setting(few), 3 * math.log(1 + 2000 / 3)
    found = theory.theorem.theorem(few, 30, rho2=0.04)
    assert tuple(found) == by_hand(few, 30, 0.04, setting, information)[1]
    often = TheoremSetting(10, 9.0, 1e-6)
    assert theory.theorem.theorem(Premises(PLAIN, 4, 25), 30, rho2=0.04, setting=often).syncs == 100
