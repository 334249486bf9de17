"""The analysis of Phase II: potential, second-order part, synchronisations and the regret of good and bad epochs.

A function with ``_printed`` is the paper's statement, kept to be tested; the one without is proved in the book.
"""

import math
from typing import NamedTuple

from fedgo._checks import require
from fedgo.theory.assumptions import check_regularisation, check_threshold

# The largest x with x ≤ 2 ln(1 + x): the elliptical potential lemma needs C_g²/λ ≤ 2.51….
LARGEST_INCREMENT = 2.512862417252339


def potential_clipped(information: float, widest: float = 1.0) -> float:
    """Σ_s min(a, ‖g_s‖_{Σ_{s−1}⁻¹})² ≤ Λ·a²/ln(1 + a²) for every λ > 0, with a = ``widest`` (item 3 of the theorem).

    Because u ≤ ln(1 + u)·a²/ln(1 + a²) for 0 ≤ u ≤ a². Unclipped if no width is above a, as with a = C_g/√λ.
    """
    require(0 <= widest < math.inf, "widest", widest, "give a finite a ≥ 0, at which the widths are clipped")
    square = widest**2
    return information * (square / math.log1p(square) if square else 1.0)


def excess_printed(beta: float, curvature: float, lam: float) -> float:
    """2βC_h/λ, the second-order part of the instantaneous regret as printed (lemma "Instantaneous regret")."""
    check_regularisation(lam)
    return 2 * beta * curvature / lam


def excess_in_ball(beta: float, curvature: float, lam: float, distance: float) -> float:
    """κ = 2C_h(s² + sρ₀), s² = β/λ: line 3 over Ball ∩ W with gradients at ŵ₀ (3βC_h/λ where ρ₀ ≤ s/2)."""
    check_regularisation(lam)
    reach = math.sqrt(beta / lam)
    return 2 * curvature * (reach**2 + reach * distance)


def excess_first_order(curvature: float, distance: float) -> float:
    """κ = C_hρ₀² for the first-order index: r_t ≤ 2√β‖g_t‖ + κ, with no β in it."""
    return curvature * distance**2


def synchronisations_printed(rounds: float, information: float, gamma: float) -> float:
    """P ≤ 2√(TR/γ) (false: a term R/γ is missing)."""
    check_threshold(gamma)
    return 2 * math.sqrt(rounds * information / gamma)


def synchronisations(rounds: float, information: float, gamma: float) -> float:
    """P ≤ Λ/(2γ) + √(Λ²/(4γ²) + TΛ/γ) for Λ ≥ ln det Σ_NT/det λI and round robin (at most √(TΛ/γ) + Λ/γ)."""
    check_threshold(gamma)
    half = information / (2 * gamma)
    return half + math.sqrt(half**2 + rounds * information / gamma)


def phase_two_scalars(syncs: float, clients: int, dimension: int) -> float:
    """C_phaseII = 2PN(d_w² + d_w)."""
    return 2 * syncs * clients * dimension * (dimension + 1)


def regret_phase_one(exploration: int, value: float) -> float:
    """R_phaseI ≤ 2T₀F."""
    return 2 * exploration * value


def good_regret_printed(beta: float, information: float, steps: int, curvature: float, lam: float) -> float:
    """R_good ≤ √(NT)·√(16eβR + 8β²C_h²NT/λ²) as printed."""
    second_order = 8 * (beta * curvature / lam) ** 2
    return math.sqrt(steps) * math.sqrt(16 * math.e * beta * information + second_order * steps)


def bad_regret_printed(
    beta: float, information: float, clients: int, gamma: float, curvature: float, lam_scale: float
) -> float:
    """R_bad ≤ RN√(16βγ + 8β²C_h²/C_λ²) as printed (false where an epoch gives a client more than √(NT) pulls)."""
    return information * clients * math.sqrt(16 * beta * gamma + 8 * (beta * curvature / lam_scale) ** 2)


class PhaseTwoRegret(NamedTuple):
    """The repaired R_phaseII ≤ R_good + R_bad + the second-order part, which is summed once over all steps."""

    good: float
    bad: float
    second_order: float

    @property
    def total(self) -> float:
        """Their sum."""
        return sum(self)


def regret_phase_two_clipped(
    beta: float,
    information: float,
    clients: int,
    rounds: int,
    gamma: float,
    value: float,
    excess: float = 0.0,
    *,
    widest: float = math.inf,
) -> PhaseTwoRegret:
    """Item 3 of the theorem, for every λ > 0: 2√(eβφNTΛ) + ⌊Λ⌋(2N√(βφγ) + 2F) + NTκ with φ = a²/ln(1 + a²),
    a = min(F/√β, W), where no width is above W = ``widest`` (C_g/√λ for instance).

    Because r_t ≤ κ + 2 min(F, √β w_t) = κ + 2√β min(a, w_t) and `potential_clipped`. With a = max(1, F/√β) it is
    2M√(eNTΛ/ln 2) + …, M = max(√β, F).
    """
    root = math.sqrt(beta)
    clip = min(value / root, widest) if root else 0.0
    scale = 2 * root * math.sqrt(potential_clipped(1.0, clip))
    good = scale * math.sqrt(math.e * clients * rounds * information)
    bad = math.floor(information) * (clients * scale * math.sqrt(gamma) + 2 * value)
    return PhaseTwoRegret(good, bad, clients * rounds * excess)
