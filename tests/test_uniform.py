"""Item 3 of the theorem and the bound on the number of synchronisations, over random protocols."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import about, double
from protocols import kernel_widths, play

from fedgo.theory import phase_two as theory
from fedgo.theory.confidence import information_bound, tabular_information

INF = math.inf
cases = settings(max_examples=120, deadline=None, derandomize=True)
seeds = st.integers(0, 10**6)


# Item 3 and the number of synchronisations


@given(st.floats(1e-6, 1e6), st.floats(1e-3, 1e3))
@cases
def test_one_clipped_width_is_within_its_share_of_the_information(square, clip):
    assert min(clip**2, square) <= theory.potential_clipped(math.log1p(square), clip) * (1 + 1e-12)
    assert theory.potential_clipped(math.log1p(clip**2), clip) == about(clip**2)  # attained


def test_the_clipped_regret_by_hand():
    # √β = 2, F = 0.4, clipped at 0.2, ⌊Λ⌋ = 1 bad epoch of 20 clients
    phi = 0.04 / math.log(1.04)
    for gamma in (1e-4, 50.0):
        found = theory.regret_phase_two_clipped(4.0, 1.0, 20, 5, gamma, 0.4)
        assert found.bad == about(20 * 4 * math.sqrt(phi * gamma) + 0.8)
    still = theory.regret_phase_two_clipped(0.0, 1.5, 20, 5, 0.5, 3.0)
    assert still.total == about(6)  # β = 0: the step that fires


def protocol(seed):
    """Random sizes, features of any rank with λ from 1e-6 to 1e3, and arms chosen blindly or for their widths."""
    dice = np.random.default_rng(seed)
    arms = int(dice.integers(1, 61)) if seed % 4 == 0 else int(dice.integers(1, 12))
    rank, clients, rounds = (int(dice.integers(1, top)) for top in (9, 9, 13))
    features = dice.normal(size=(arms, rank))
    kernel = features @ features.T / 10 ** dice.uniform(-6, 3)
    gamma = 0.0 if dice.random() < 0.15 else 10 ** dice.uniform(-3, 3)
    kind, target = dice.integers(4), 10 ** dice.uniform(-3, 2)

    def choose(t, i, known):
        width = kernel_widths(kernel, known)
        options = (dice.random(arms), width, -width, -np.abs(width - target))
        return int(np.argmax(options[kind]))

    return kernel, clients, rounds, gamma, play(kernel, clients, rounds, gamma, choose)


@given(seeds, st.floats(-4, 4), st.floats(-2, 2))
@cases
def test_item_3_holds_for_every_lam_and_every_choice(seed, log_beta, log_value):
    kernel, clients, rounds, gamma, played = protocol(seed)
    beta, value = 10**log_beta, 10**log_value
    step = 2 * np.minimum(value, np.sqrt(beta * np.array(played.local)))  # r_t at its largest
    sizes = (clients, rounds, gamma, value)
    for widest in (INF, math.sqrt(kernel.diagonal().max() * (1 + 1e-9))):
        bound = theory.regret_phase_two_clipped(
            beta, played.information * (1 + 1e-9) + 1e-12, *sizes, widest=widest
        )
        assert step.sum() <= bound.total * (1 + 1e-6)


@given(seeds)
@cases
def test_the_synchronisations_are_within_their_bound(seed):
    _, _, rounds, gamma, played = protocol(seed)
    if gamma:
        bound = theory.synchronisations(rounds, played.information, gamma)
        assert sum(played.sync) <= bound * (1 + 1e-9)
    else:
        assert all(played.sync)  # γ = 0 as printed: at every step


def test_the_synchronisations_by_hand():
    # 45 is the root of x² = 5x + 1800, with Λ/γ = 5 and TΛ/γ = 1800
    assert theory.synchronisations(360, 1, 0.2) == about(45)
    with pytest.raises(ValueError, match=r"gamma is -1\.0: with γ = 0 every step synchronises"):
        theory.synchronisations(1, 1, -1.0)


@pytest.mark.parametrize("clients", [25, 400])
def test_in_the_corner_nearly_every_step_synchronises(clients):
    # ±2e_j in four dimensions, T = 1, λ = √N, γ = 1/N: the theorem's own setting
    kernel = np.zeros((4, 4)) + 4 * np.eye(4) / math.sqrt(clients)
    count = sum(play(kernel, clients, 1, 1 / clients, lambda t, i, known: 0).sync)
    information = information_bound(4, clients, 2.0, math.sqrt(clients))
    assert count >= clients - math.sqrt(clients) / 4 - 1
    if clients == 400:
        assert count > theory.synchronisations_printed(1, information, 1 / clients) + 2


def test_the_information_of_counts_by_hand():
    counts = double([0.0, 3.0, 7.0])
    assert tabular_information(counts).item() == about(math.log(32))
    assert tabular_information(counts, double([0.0, 1.0, 0.0])).item() == about(math.log(16))
