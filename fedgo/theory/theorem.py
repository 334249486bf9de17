"""Theorem 1 as printed and repaired: R_total ≤ R_phaseI + R_good + R_bad and C_total = C_phaseI + C_phaseII.

"ln" is natural throughout; distances are to the w* named (any zero of L; the nearest to ŵ₀ is best).
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo.phase_one import phase_one_length
from fedgo.phase_two import Settings
from fedgo.theory.assumptions import Assumptions
from fedgo.theory.confidence import information_bound, radius, radius_printed
from fedgo.theory.phase_one import (
    C_DISTANCE,
    exploration_needed,
    optimisation_error,
    phase_one_scalars,
    regression_risk,
    squared_distance,
)
from fedgo.theory.phase_two import (
    bad_regret_printed,
    excess_first_order,
    excess_in_ball,
    good_regret_printed,
    phase_two_scalars,
    regret_phase_one,
    regret_phase_two_clipped,
    synchronisations,
    synchronisations_printed,
)


class TheoremSetting(NamedTuple):
    """T₀, λ and γ of a theorem."""

    exploration: int
    lam: float
    gamma: float


def theorem_setting_printed(
    a: Assumptions, clients: int, rounds: int, lam_scale: float = 1.0
) -> TheoremSetting:
    """T₀ = ⌈√(NT)⌉, λ = C_λ√(NT), γ = d_wF⁴T/(μ²N) (Theorem 1); C_λ = ``lam_scale``."""
    exploration = phase_one_length(clients, rounds, math.inf)
    gamma = a.dimension * a.value**4 * rounds / (a.growth**2 * clients)
    return TheoremSetting(exploration, lam_scale * math.sqrt(clients * rounds), gamma)


def theorem_setting(
    a: Assumptions, clients: int, rounds: int, arms: int | None = None, lam: float | None = None
) -> TheoremSetting:
    """T₀ = ⌈√(NT)⌉, λ = C_g² unless given and γ = T/(NR), which a learner can compute (the repaired theorem)."""
    lam = a.slope**2 if lam is None else lam
    information = information_bound(_dimension(a, arms), clients * rounds, a.slope, lam)
    return TheoremSetting(phase_one_length(clients, rounds, math.inf), lam, rounds / (clients * information))


def _dimension(a: Assumptions, arms: int | None) -> int:
    """min(K, d_w), or d_w with a continuum of arms."""
    return a.dimension if arms is None else min(arms, a.dimension)


class WorstCase(NamedTuple):
    """Λ ≤ R = ``information``, P ≤ ``syncs`` and β_{t,i} ≤ β̄ = ``beta`` in every run of Phase II with these λ and γ."""

    information: float
    syncs: float
    lam: float
    beta: float
    gamma: float

    @property
    def settings(self) -> Settings:
        """λ, β̄ and γ, to play with."""
        return Settings(self.lam, self.beta, self.gamma)


def worst_case(
    a: Assumptions,
    clients: int,
    rounds: int,
    delta: float,
    distance: Tensor | float,
    *,
    curvature: Tensor | float | None = None,
    lam: float | None = None,
    gamma: float | None = None,
    information: float | None = None,
    arms: int | None = None,
) -> WorstCase:
    """λ, γ and the largest `radius` β̄ of the confidence lemma, after NT pulls, P synchronisations and Λ = R.

    λ = C_g² and γ = T/(NR) unless given (the repaired theorem's), ``information`` a bound on Λ that is better than R,
    ``arms`` the number K of arms if finite. ρ₀ = ``distance`` and C_h = ``curvature`` (that of ``a`` unless given) may
    be tensors with one entry for each run; β̄ is the largest.
    """
    setting = theorem_setting(a, clients, rounds, arms, lam)
    lam, gamma = setting.lam, setting.gamma if gamma is None else gamma
    steps = clients * rounds
    if information is None:
        information = information_bound(_dimension(a, arms), steps, a.slope, lam)
    syncs = min(synchronisations(rounds, information, gamma), steps)
    beta = radius(
        *torch.tensor([information, steps, syncs], dtype=torch.float64),
        clients=clients,
        lam=lam,
        sigma=a.noise,
        distance=distance,
        curvature=a.curvature if curvature is None else curvature,
        delta=delta,
    )
    return WorstCase(information, syncs, lam, beta.max().item(), gamma)


def horizon_needed(
    a: Assumptions,
    clients: int,
    iota_: float,
    zeta: float = 0.0,
    concordance: float = 1.0,
    printed: bool = False,
) -> float:
    """T ≥ C²d_w²F⁴ι²/N · max{…}², which makes √(NT) ≥ `exploration_needed`; ``printed`` has C for C²."""
    needed = exploration_needed(a, iota_, zeta, concordance) ** 2 / clients
    return needed / C_DISTANCE if printed else needed


def theorem_error_printed(steps: int) -> float:
    """ε ≤ 8/(C√(NT)) (Theorem 1); it is 1/(C′T₀) of the lemmas only if C = 8C′."""
    return 8 / (C_DISTANCE * math.sqrt(steps))


class Totals(NamedTuple):
    """Bounds on the regret of both phases, on P and on the scalars sent."""

    phase_one: float
    phase_two: float
    syncs: float
    scalars: float

    @property
    def regret(self) -> float:
        """R_phaseI + R_phaseII."""
        return self.phase_one + self.phase_two


def theorem_printed(
    a: Assumptions, clients: int, rounds: int, delta: float, oracle_rounds: int, lam_scale: float = 1.0
) -> Totals:
    """Theorem 1 with the constants of its own proof: radius, R_good, R_bad and P as printed, at its T₀, λ and γ."""
    steps = clients * rounds
    setting = theorem_setting_printed(a, clients, rounds, lam_scale)
    beta = radius_printed(a, setting.lam, steps, steps, setting.exploration, delta).total
    information = information_bound(a.dimension, steps, a.slope, setting.lam)
    good = good_regret_printed(beta, information, steps, a.curvature, setting.lam)
    bad = bad_regret_printed(beta, information, clients, setting.gamma, a.curvature, lam_scale)
    syncs = synchronisations_printed(rounds, information, setting.gamma)
    first = phase_one_scalars(oracle_rounds, clients, a.dimension) - clients * a.dimension
    return Totals(
        regret_phase_one(setting.exploration, a.value),
        good + bad,
        syncs,
        first + phase_two_scalars(syncs, clients, a.dimension),
    )


def theorem(
    a: Assumptions,
    clients: int,
    rounds: int,
    delta: float,
    oracle_rounds: int,
    *,
    rho2: float | None = None,
    setting: TheoremSetting | None = None,
    information: float | None = None,
    epsilon: float = 0.0,
    arms: int | None = None,
    line_three: bool = False,
) -> Totals:
    """The repaired theorem: with probability 1 − δ regret and scalars are at most these.

    ``rho2`` is a bound on ρ₀² (from `regression_risk` unless given), ``setting`` that of `theorem_setting` unless
    given, ``information`` Λ (its bound R unless given), ``arms`` the number K of arms if finite. The index is the
    first-order one, or line 3 over Ball ∩ W with ``line_three``. λ is any positive number: the regret of Phase II is
    item 3′, in which no width counts for more than F/√β̄ and none is above C_g/√λ.
    """
    setting = theorem_setting(a, clients, rounds, arms) if setting is None else setting
    if rho2 is None:
        rho2 = squared_distance(a, regression_risk(a, setting.exploration, delta, epsilon))
    rho = math.sqrt(rho2)
    worst = worst_case(
        a,
        clients,
        rounds,
        delta,
        rho,
        lam=setting.lam,
        gamma=setting.gamma,
        information=information,
        arms=arms,
    )
    excess = (
        excess_in_ball(worst.beta, a.curvature, setting.lam, rho)
        if line_three
        else excess_first_order(a.curvature, rho)
    )
    second = regret_phase_two_clipped(
        worst.beta,
        worst.information,
        clients,
        rounds,
        setting.gamma,
        a.value,
        excess,
        widest=a.slope / math.sqrt(setting.lam),
    )
    first = phase_one_scalars(oracle_rounds, clients, a.dimension)
    scalars = first + phase_two_scalars(worst.syncs, clients, a.dimension)
    return Totals(regret_phase_one(setting.exploration, a.value), second.total, worst.syncs, scalars)


class Both(NamedTuple):
    """Theorem 1 as printed and repaired, for the same N, T and constants."""

    printed: Totals
    repaired: Totals


def both_theorems(
    a: Assumptions,
    clients: int,
    rounds: int,
    delta: float,
    oracle_rounds: int,
    scales: Iterable[float],
    arms: int | None = None,
) -> list[Both]:
    """Both theorems for every C in ``scales``: C_λ = C as printed, and λ = C·C_g² with γ = T/(NR), repaired.

    The oracle is as accurate as Lemmas 1 and 2 ask, 1/(C′T₀). The least over C is what a free λ can do for a bound.
    """
    epsilon = optimisation_error(phase_one_length(clients, rounds, math.inf))
    return [
        Both(
            theorem_printed(a, clients, rounds, delta, oracle_rounds, scale),
            theorem(
                a,
                clients,
                rounds,
                delta,
                oracle_rounds,
                setting=theorem_setting(a, clients, rounds, arms, scale * a.slope**2),
                epsilon=epsilon,
                arms=arms,
            ),
        )
        for scale in scales
    ]
