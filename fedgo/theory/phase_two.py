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
    """Return Λ·a²/ln(1 + a²), an upper bound on Σ_s min(a, ‖g_s‖_{Σ_{s−1}⁻¹})² for every λ > 0.

    It follows from u ≤ ln(1 + u)·a²/ln(1 + a²) for 0 ≤ u ≤ a². If no width is above a, for instance with a = C_g/√λ,
    the sum is not clipped.

    Args:
        information: The log-ratio Λ.
        widest: The width a at which the summands are clipped.
    """
    require(0 <= widest < math.inf, "widest", widest, "give a finite a ≥ 0, at which the widths are clipped")
    square = widest**2
    return information * (square / math.log1p(square) if square else 1.0)


def excess_printed(beta: float, curvature: float, lam: float) -> float:
    """Return 2βC_h/λ, the second-order part of the instantaneous regret as printed (lemma "Instantaneous regret")."""
    check_regularisation(lam)
    return 2 * beta * curvature / lam


def excess_in_ball(beta: float, curvature: float, lam: float, distance: float) -> float:
    """Return κ = 2C_h(s² + sρ₀) with s² = β/λ, the second-order part for line 3 over Ball ∩ W with gradients at ŵ₀.

    It is at most 3βC_h/λ if ρ₀ ≤ s/2. ``distance`` is ρ₀.
    """
    check_regularisation(lam)
    reach = math.sqrt(beta / lam)
    return 2 * curvature * (reach**2 + reach * distance)


def excess_first_order(curvature: float, distance: float) -> float:
    """Return κ = C_hρ₀², the second-order part for the first-order index: r_t ≤ 2√β‖g_t‖ + κ."""
    return curvature * distance**2


def synchronisations_printed(rounds: float, information: float, gamma: float) -> float:
    """Return the printed bound 2√(TR/γ) on the number P of synchronisations, which is false: a term R/γ is missing."""
    check_threshold(gamma)
    return 2 * math.sqrt(rounds * information / gamma)


def synchronisations(rounds: float, information: float, gamma: float) -> float:
    """Return the bound P ≤ Λ/(2γ) + √(Λ²/(4γ²) + TΛ/γ) on the number of synchronisations, for round robin.

    It is at most √(TΛ/γ) + Λ/γ. ``information`` is Λ ≥ ln(det Σ_NT/det λI), and ``rounds`` is T.
    """
    check_threshold(gamma)
    half = information / (2 * gamma)
    return half + math.sqrt(half**2 + rounds * information / gamma)


def phase_two_scalars(syncs: float, clients: int, dimension: int) -> float:
    """Return C_phaseII = 2PN(d_w² + d_w), the scalars of P = ``syncs`` synchronisations."""
    return 2 * syncs * clients * dimension * (dimension + 1)


def regret_phase_one(exploration: int, value: float) -> float:
    """Return 2T₀F, the bound on the regret of Phase I."""
    return 2 * exploration * value


def good_regret_printed(beta: float, information: float, steps: int, curvature: float, lam: float) -> float:
    """Return the printed bound R_good ≤ √(NT)·√(16eβR + 8β²C_h²NT/λ²)."""
    second_order = 8 * (beta * curvature / lam) ** 2
    return math.sqrt(steps) * math.sqrt(16 * math.e * beta * information + second_order * steps)


def bad_regret_printed(
    beta: float, information: float, clients: int, gamma: float, curvature: float, lam_scale: float
) -> float:
    """Return the printed bound R_bad ≤ RN√(16βγ + 8β²C_h²/C_λ²).

    It is false where an epoch gives a client more than √(NT) pulls.
    """
    return information * clients * math.sqrt(16 * beta * gamma + 8 * (beta * curvature / lam_scale) ** 2)


class PhaseTwoRegret(NamedTuple):
    """The repaired bound on the regret of Phase II: R_good + R_bad + the second-order part.

    The second-order part is summed once over all steps.
    """

    good: float
    bad: float
    second_order: float

    @property
    def total(self) -> float:
        """The sum of the three parts."""
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
    """Return item 3 of the repaired theorem, the bound on the regret of Phase II for every λ > 0.

    The bound is 2√(eβφNTΛ) + ⌊Λ⌋(2N√(βφγ) + 2F) + NTκ with φ = a²/ln(1 + a²) and a = min(F/√β, W). It follows from r_t
    ≤ κ + 2 min(F, √β w_t) = κ + 2√β min(a, w_t) and `potential_clipped`. With a = max(1, F/√β) it becomes 2M√(eNTΛ/ln
    2) + … with M = max(√β, F).

    Args:
        beta: The squared radius β.
        information: The log-ratio Λ.
        clients: The number N of clients.
        rounds: The number T of rounds.
        gamma: The threshold γ of the event.
        value: The bound F on |f|.
        excess: The second-order part κ of each step.
        widest: A bound W on all widths, for instance C_g/√λ.
    """
    root = math.sqrt(beta)
    clip = min(value / root, widest) if root else 0.0
    scale = 2 * root * math.sqrt(potential_clipped(1.0, clip))
    good = scale * math.sqrt(math.e * clients * rounds * information)
    bad = math.floor(information) * (clients * scale * math.sqrt(gamma) + 2 * value)
    return PhaseTwoRegret(good, bad, clients * rounds * excess)
