"""The analysis of Phase II: potential, second-order part, synchronisations and the regret of good and bad epochs.

A function whose name ends in ``_printed`` evaluates the paper's statement; the one without is proved in the book.
"""

import math
from typing import NamedTuple

from fedgo._checks import require
from fedgo.theory.assumptions import check_regularisation, check_threshold

# The largest u with u ≤ 2 ln(1 + u): the elliptical potential lemma needs C_g²/λ ≤ 2.51….
LARGEST_INCREMENT = 2.512862417252339


def potential_clipped(information: float, widest: float = 1.0) -> float:
    """Return Λφ(c²) with φ(u) = u/ln(1 + u), an upper bound on Σ_s min(c, ‖g_s‖_{Σ_{s−1}⁻¹})² for every λ > 0.

    It follows from u ≤ φ(c²) ln(1 + u) for 0 ≤ u ≤ c². If no width is above c, as with c = C_g/√λ, nothing is clipped.

    Args:
        information: The log-ratio Λ.
        widest: The value c at which each width ‖g_s‖_{Σ_{s−1}⁻¹} is clipped.

    Raises:
        ValueError: ``widest`` is negative or infinite.
    """
    require(0 <= widest < math.inf, "widest", widest, "give a finite width of at least 0")
    square = widest**2
    return information * (square / math.log1p(square) if square else 1.0)


def excess_printed(beta: float, curvature: float, lam: float) -> float:
    """Return 2βC_h/λ, the printed second-order part of the instantaneous regret (lemma "Instantaneous regret")."""
    check_regularisation(lam)
    return 2 * beta * curvature / lam


def excess_in_ball(beta: float, curvature: float, lam: float, distance: float) -> float:
    """Return 2C_h(β/λ + √(β/λ)ρ₀), the second-order part of the instantaneous regret for line 3 over Ball ∩ W.

    ``distance`` is ρ₀ = ‖ŵ₀ − w*‖. The gradients are those at ŵ₀. If ρ₀ ≤ ½√(β/λ) the part is at most 3βC_h/λ.
    """
    check_regularisation(lam)
    reach = math.sqrt(beta / lam)
    return 2 * curvature * (reach**2 + reach * distance)


def excess_first_order(curvature: float, distance: float) -> float:
    """Return C_hρ₀², the second-order part of the instantaneous regret for the first-order index.

    With it, r_t ≤ 2√β‖g_t‖_{Σ⁻¹} + C_hρ₀². ``distance`` is ρ₀ = ‖ŵ₀ − w*‖.
    """
    return curvature * distance**2


def synchronisations_printed(rounds: float, information: float, gamma: float) -> float:
    """Return 2√(TR/γ), the printed bound on the number P of synchronisations; it is false, a term R/γ is missing."""
    check_threshold(gamma)
    return 2 * math.sqrt(rounds * information / gamma)


def synchronisations(rounds: float, information: float, gamma: float) -> float:
    """Return Λ/(2γ) + √(Λ²/(4γ²) + TΛ/γ), the repaired bound on the number P of synchronisations in round robin.

    It is at most √(TΛ/γ) + Λ/γ. ``information`` is ln(det Σ_NT/det λI) = Λ or a bound on it, ``rounds`` is T, and
    ``gamma`` is γ > 0.
    """
    check_threshold(gamma)
    half = information / (2 * gamma)
    return half + math.sqrt(half**2 + rounds * information / gamma)


def phase_two_scalars(syncs: float, clients: int, dimension: int) -> float:
    """Return C_phaseII = 2PN(d_w² + d_w), the scalars of P = ``syncs`` synchronisations of N = ``clients`` clients."""
    return 2 * syncs * clients * dimension * (dimension + 1)


def regret_phase_one(exploration: int, value: float) -> float:
    """Return 2T₀F, the bound on the regret of Phase I; T₀ is ``exploration`` and F is ``value``."""
    return 2 * exploration * value


def good_regret_printed(beta: float, information: float, steps: int, curvature: float, lam: float) -> float:
    """Return √(NT)·√(16eβR + 8β²C_h²NT/λ²), the printed bound on the regret R_good of the good epochs.

    ``information`` is R, and ``steps`` is NT.
    """
    second_order = 8 * (beta * curvature / lam) ** 2
    return math.sqrt(steps) * math.sqrt(16 * math.e * beta * information + second_order * steps)


def bad_regret_printed(
    beta: float, information: float, clients: int, gamma: float, curvature: float, lam_scale: float
) -> float:
    """Return RN√(16βγ + 8β²C_h²/C_λ²), the printed bound on the regret R_bad of the bad epochs.

    It is false if a client makes more than √(NT) pulls in an epoch. ``information`` is R and ``lam_scale`` is C_λ.
    """
    return information * clients * math.sqrt(16 * beta * gamma + 8 * (beta * curvature / lam_scale) ** 2)


class PhaseTwoRegret(NamedTuple):
    """The repaired bound on the regret of Phase II: ``good`` for R_good, ``bad`` for R_bad, and ``second_order``, the
    second-order part, summed once over all steps.
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

    The bound is 2√(eφβNTΛ) + ⌊Λ⌋(2N√(φβγ) + 2F) + NT·``excess`` with φ = c²/ln(1 + c²) and c = min(F/√β, ``widest``).
    It follows from `potential_clipped` and r_t ≤ ``excess`` + 2 min(F, √β‖g_t‖) = ``excess`` + 2√β min(F/√β, ‖g_t‖),
    with the width ‖g_t‖ in Σ_{t−1,i}⁻¹.

    Args:
        beta: The squared radius β.
        information: The log-ratio Λ.
        clients: The number N of clients.
        rounds: The number T of rounds.
        gamma: The threshold γ of the event.
        value: The bound F on |f|.
        excess: The second-order part of the regret of each step (κ in the book's proof).
        widest: A bound on all widths, for instance C_g/√λ.
    """
    root = math.sqrt(beta)
    clip = min(value / root, widest) if root else 0.0
    scale = 2 * root * math.sqrt(potential_clipped(1.0, clip))
    good = scale * math.sqrt(math.e * clients * rounds * information)
    bad = math.floor(information) * (clients * scale * math.sqrt(gamma) + 2 * value)
    return PhaseTwoRegret(good, bad, clients * rounds * excess)
