"""Item 3 of the theorem and the bound on the number of synchronisations, over random protocols."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import INF, about
from protocols import kernel_widths, play

from fedgo.theory import regret as theory

cases = settings(max_examples=120, deadline=None, derandomize=True)
seeds = st.integers(0, 10**6)


# Item 3 and the number of synchronisations


@given(st.floats(1e-6, 1e6), st.floats(1e-3, 1e3))
@cases
def test_one_clipped_width_is_within_its_share_of_the_information(square, clip):
    assert min(clip**2, square) <= theory.potential_clipped(math.log1p(square), clip) * (1 + 1e-12)
    assert theory.potential_clipped(math.log1p(clip**2), clip) == about(clip**2)  # attained


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
def test_item_3_and_the_bound_on_synchronisations_hold_always(seed, log_beta, log_value):
    kernel, clients, rounds, gamma, played = protocol(seed)
    beta, value = 10**log_beta, 10**log_value
    step = 2 * np.minimum(value, np.sqrt(beta * np.array(played.local)))  # r_t at its largest
    sizes = (clients, rounds, gamma, value)
    for widest in (INF, math.sqrt(kernel.diagonal().max() * (1 + 1e-9))):
        bound = theory.regret_phase_two_clipped(
            beta, played.information * (1 + 1e-9) + 1e-12, *sizes, widest=widest
        )
        assert step.sum() <= bound.total * (1 + 1e-6)
    if gamma:
        most = theory.synchronisations(rounds, played.information, gamma)
        assert sum(played.sync) <= most * (1 + 1e-9)
    else:
        assert all(played.sync)  # γ = 0 as printed: at every step


def test_without_a_radius_only_the_step_that_fires_costs_anything():
    assert theory.regret_phase_two_clipped(0.0, 1.5, 20, 5, 0.5, 3.0).total == about(6)
