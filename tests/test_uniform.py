"""Lemma U, and item 3 of the theorem with the event's patience, over random protocols."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import about, double
from protocols import kernel_widths, play

from fedgo.confidence import Tally
from fedgo.theory import phase_two as theory
from fedgo.theory.confidence import information_bound, noise_radius
from fedgo.theory.exact import Prior
from fedgo.theory.uniform import tabular_information, uniform_radius

INF = math.inf
cases = settings(max_examples=120, deadline=None, derandomize=True)
seeds = st.integers(0, 10**6)


# Item 3 and the number of synchronisations


@given(st.floats(1e-6, 1e6), st.floats(1e-3, 1e3))
@cases
def test_one_clipped_width_is_within_its_share_of_the_information(square, clip):
    assert min(clip**2, square) <= theory.potential_clipped(math.log1p(square), clip) * (1 + 1e-12)
    assert theory.potential_clipped(math.log1p(clip**2), clip) == about(clip**2)  # attained


def test_the_clipped_regret_with_patience_by_hand():
    # √β = 2, F = 0.4, clipped at 0.2; a first pull that does not count costs 2F, or makes √2 of the rest
    phi = 0.04 / math.log(1.04)
    for gamma in (1e-4, 50.0):
        rest = 4 * math.sqrt(phi * gamma)
        client = 0.8 if gamma < 1 else rest + 0.8
        found = theory.regret_phase_two_clipped(4.0, 1.0, 20, 5, gamma, 0.4, patience=1)
        assert found.bad == about(20 * client + 0.8)
    three = theory.regret_phase_two_clipped(4.0, 1.0, 20, 5, 0.09, 0.4, patience=3)
    assert three.bad == about(20 * max(2 * 4 * math.sqrt(phi * 0.09), 2.4) + 0.8)
    assert theory.regret_phase_two_clipped(0.0, 1.5, 20, 5, 0.5, 3.0).total == about(
        6
    )  # β = 0: the step that fires


def protocol(seed):
    """Random sizes, features of any rank with λ from 1e-6 to 1e3, and arms chosen blindly or for their widths."""
    dice = np.random.default_rng(seed)
    arms = int(dice.integers(1, 61)) if seed % 4 == 0 else int(dice.integers(1, 12))
    rank, clients, rounds = (int(dice.integers(1, top)) for top in (9, 9, 13))
    features = dice.normal(size=(arms, rank))
    kernel = features @ features.T / 10 ** dice.uniform(-6, 3)
    gamma = 0.0 if dice.random() < 0.15 else 10 ** dice.uniform(-3, 3)
    patience = int(dice.integers(0, 4)) if dice.random() < 0.5 else 0
    kind, target = dice.integers(4), 10 ** dice.uniform(-3, 2)

    def choose(t, i, known):
        width = kernel_widths(kernel, known)
        options = (dice.random(arms), width, -width, -np.abs(width - target))
        return int(np.argmax(options[kind]))

    played = play(kernel, clients, rounds, gamma, patience, choose)
    return kernel, clients, rounds, gamma, patience, played


@given(seeds, st.floats(-4, 4), st.floats(-2, 2))
@cases
def test_item_3_holds_for_every_lam_and_every_choice(seed, log_beta, log_value):
    kernel, clients, rounds, gamma, patience, played = protocol(seed)
    beta, value = 10**log_beta, 10**log_value
    step = 2 * np.minimum(value, np.sqrt(beta * np.array(played.local)))  # r_t at its largest
    sizes = (clients, rounds, gamma, value)
    for widest in (INF, math.sqrt(kernel.diagonal().max() * (1 + 1e-9))):
        bound = theory.regret_phase_two_clipped(
            beta, played.information * (1 + 1e-9) + 1e-12, *sizes, widest=widest, patience=patience
        )
        assert step.sum() <= bound.total * (1 + 1e-6)


@given(seeds)
@cases
def test_the_synchronisations_are_within_their_bound_whatever_the_patience(seed):
    _, _, rounds, gamma, patience, played = protocol(seed)
    if gamma or patience:
        bound = theory.synchronisations(rounds, played.information, gamma, patience)
        assert sum(played.sync) <= bound * (1 + 1e-9)
    else:
        assert all(played.sync)  # γ = 0 as printed: at every step


def test_the_synchronisations_with_patience_by_hand():
    assert theory.synchronisations(100, 4, 0.25, 1) == about(40)
    assert theory.synchronisations(100, 4, 0.0, 1) == 100
    assert theory.synchronisations(100, 1e9, 1e-9, 3) == about(100 / 3)
    # γ = T/(NR): P ≤ R√N, without a condition on T
    assert theory.synchronisations(2, 7, 2 / (50 * 7), 1) == 2
    assert theory.synchronisations(1000, 7, 1000 / (16 * 7), 1) == about(28)
    with pytest.raises(ValueError, match=r"gamma is -1\.0: give a threshold"):
        theory.synchronisations(1, 1, -1.0, 1)


@pytest.mark.parametrize("clients", [25, 400])
def test_the_corner_where_every_step_synchronises_is_quiet_with_patience(clients):
    # ±2e_j in four dimensions, T = 1, λ = √N, γ = 1/N: the theorem's own setting
    kernel = np.zeros((4, 4)) + 4 * np.eye(4) / math.sqrt(clients)
    counts = {}
    for patience in (0, 1):
        played = play(kernel, clients, 1, 1 / clients, patience, lambda t, i, known: 0)
        counts[patience] = sum(played.sync)
    information = information_bound(4, clients, 2.0, math.sqrt(clients))
    assert counts[0] >= clients - math.sqrt(clients) / 4 - 1 and counts[1] == 0
    if clients == 400:
        assert counts[0] > theory.synchronisations_printed(1, information, 1 / clients) + 2


# Lemma U


def prior_after_the_fact(noise, means, along, across):
    """Q = s·ξξᵀ/|ξ|² + ν²I: a kernel chosen after the noise was seen, which knows f and doubts it only along ξ."""
    unit = noise / noise.norm(dim=-1, keepdim=True)
    kernel = along * unit.unsqueeze(-1) * unit.unsqueeze(-2) + across * torch.eye(noise.shape[-1]).double()
    return Prior(torch.linalg.cholesky(kernel), means)


def kernel_of(seed, arms):
    """A positive definite Q of any shape: wide, narrow, nearly of rank one."""
    dice = np.random.default_rng(seed)
    root = dice.normal(size=(arms, int(dice.integers(1, arms + 1))))
    return double(root @ root.T * 10 ** dice.uniform(-3, 5) + 10 ** dice.uniform(-4, 2) * np.eye(arms))


@given(seeds, st.integers(1, 60))
@cases
def test_the_lemma_holds_for_any_kernel_and_centre_chosen_after_the_noise(seed, arms):
    dice = np.random.default_rng(seed)
    counts = double(np.floor(10 ** dice.uniform(0, 3, arms)) * (dice.random(arms) < 0.7))
    means, noise = double(dice.normal(size=arms)), counts.sqrt() * double(dice.normal(size=arms))
    if seed % 2:
        made = Prior(torch.linalg.cholesky(kernel_of(seed, arms)), double(dice.normal(size=arms)))
    else:
        made = prior_after_the_fact(
            noise + 1e-12, means + 0.1 * noise, 10 ** dice.uniform(-2, 4), 10 ** dice.uniform(-4, 1)
        )
    belief = made.after(Tally(counts, counts * means + noise))
    some = counts > 0
    spread = (noise[some].square() / counts[some]).sum().sqrt()
    assert belief.distance(means) <= (spread + made.bias(means)) * (1 + 1e-6) + 1e-9
    assert (belief.width[some].square() <= (1 + 1e-6) / counts[some]).all()
    assert (belief.width.square() <= (1 + 1e-6) * made.variance).all()


def test_the_information_and_the_radius_by_hand():
    counts = double([0.0, 3.0, 7.0])
    assert tabular_information(counts).item() == about(math.log(32))
    assert tabular_information(counts, double([0.0, 1.0, 0.0])).item() == about(math.log(16))
    union = 2 * math.log(math.pi**2 * 4 * 9 / 0.6)
    root = uniform_radius(counts, 2, clients=4, sigma=0.5, delta=0.1, bias=0.2)
    assert root.item() == about(0.5 * math.sqrt(math.log(32) + union) * math.sqrt(4 / 3) + 0.2)


def test_a_kernel_chosen_after_the_fact_breaks_the_fixed_radius_and_not_the_uniform_one():
    # 50 arms pulled once each: |ξ|² is about 50σ², and Q = ξξᵀ/|ξ|² has an information of ln 101
    source = torch.Generator().manual_seed(0)
    noise = 0.1 * torch.randn(400, 50, generator=source, dtype=torch.float64)
    means, counts = torch.zeros(400, 50).double(), torch.ones(400, 50).double()
    made = prior_after_the_fact(noise, means, 100.0, 1e-3)
    belief = made.after(Tally(counts, means + noise))
    bias = made.bias(means)
    fixed = noise_radius(belief.information, 0, members=1, sigma=0.1, delta=0.1) + bias
    uniform = uniform_radius(counts, 0, clients=1, sigma=0.1, delta=0.1, bias=bias)
    outside = belief.distance(means)
    assert (outside > fixed).all() and (outside > uniform).double().mean() < 0.02
    # the same kernel before the fact is innocent
    again = 0.1 * torch.randn(400, 50, generator=source, dtype=torch.float64)
    innocent = made.after(Tally(counts, means + again)).distance(means)
    assert (innocent > fixed).double().mean() < 0.02
