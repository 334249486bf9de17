"""The analysis of Phase II: potential, second-order part, synchronisations, and the regret of good and bad epochs.

A function whose name ends in ``_printed`` evaluates the paper's statement; the one without is proved in the book. N
clients pull in turn for T rounds, and an event with the threshold γ triggers the synchronisations, P in number. Σ is λI
plus the sum of g gᵀ over the gradients g of the pulls; Λ = ln(det Σ/det λI), ``information``, is its log-ratio after
all NT pulls, or a bound on it, which the paper calls R. β is the squared radius of the confidence ball, and ρ₀ the
distance of Phase I's parameter ŵ₀ from w*. F, C_g and C_h bound f_x, ∇f_x and ∇²f_x (`fedgo.theory.assumptions`). An
epoch lasts from one synchronisation to the next; it is good if ln det Σ grows by at most 1 in it, and bad otherwise.
"""

import math
from typing import NamedTuple

from fedgo._checks import require
from fedgo.theory.assumptions import check_regularisation, check_threshold

# The largest u with u ≤ 2 ln(1 + u). The elliptical potential lemma needs C_g²/λ to be at most this number.
LARGEST_INCREMENT = 2.512862417252339


def potential_clipped(information: float, widest: float = 1.0) -> float:
    """Return Λφ(c²) with φ(u) = u/ln(1 + u), an upper bound on Σ_s min(c, ‖g_s‖_{Σ_{s−1}⁻¹})² over all pulls s.

    It holds for every λ > 0, because u ≤ φ(c²) ln(1 + u) for 0 ≤ u ≤ c². With c = C_g/√λ nothing is clipped.

    Args:
        information: The log-ratio Λ.
        widest: The value c at which each width is clipped, finite and at least 0; with 0 the result is Λ.
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

    If ρ₀ ≤ ½√(β/λ), it is at most 3βC_h/λ. The gradients of the first-order part are those at ŵ₀.
    """
    check_regularisation(lam)
    reach = math.sqrt(beta / lam)
    return 2 * curvature * (reach**2 + reach * distance)


def excess_first_order(curvature: float, distance: float) -> float:
    """Return C_hρ₀², the second-order part of the instantaneous regret r_t for the first-order index.

    With it, r_t ≤ 2√β‖g_t‖_{Σ⁻¹} + C_hρ₀² if w* lies in the client's ball; ``distance`` is ρ₀.
    """
    return curvature * distance**2


def synchronisations_printed(rounds: float, information: float, gamma: float) -> float:
    """Return 2√(TR/γ), the printed bound on P, which is false because a term R/γ is missing."""
    check_threshold(gamma)
    return 2 * math.sqrt(rounds * information / gamma)


def synchronisations(rounds: float, information: float, gamma: float) -> float:
    """Return Λ/(2γ) + √(Λ²/(4γ²) + TΛ/γ), the repaired bound on P, which is at most √(TΛ/γ) + Λ/γ."""
    check_threshold(gamma)
    half = information / (2 * gamma)
    return half + math.sqrt(half**2 + rounds * information / gamma)


def phase_two_scalars(syncs: float, clients: int, dimension: int) -> float:
    """Return C_phaseII = 2PN(d_w² + d_w), the number of scalars sent in Phase II in the dense form."""
    return 2 * syncs * clients * dimension * (dimension + 1)


def regret_phase_one(exploration: int, value: float) -> float:
    """Return 2T₀F, the bound on the regret of the T₀ pulls of Phase I."""
    return 2 * exploration * value


def good_regret_printed(beta: float, information: float, steps: int, curvature: float, lam: float) -> float:
    """Return √(NT)·√(16eβR + 8β²C_h²NT/λ²), the printed bound on the regret R_good of good epochs; ``steps`` is NT."""
    second_order = 8 * (beta * curvature / lam) ** 2
    return math.sqrt(steps) * math.sqrt(16 * math.e * beta * information + second_order * steps)


def bad_regret_printed(
    beta: float, information: float, clients: int, gamma: float, curvature: float, lam_scale: float
) -> float:
    """Return RN√(16βγ + 8β²C_h²/C_λ²), the printed bound on the regret R_bad of the bad epochs, with λ = C_λ√(NT).

    Its proof fails if a client makes more than √(NT) pulls in an epoch.
    """
    return information * clients * math.sqrt(16 * beta * gamma + 8 * (beta * curvature / lam_scale) ** 2)


class PhaseTwoRegret(NamedTuple):
    """The three parts of the repaired bound on the regret of Phase II.

    ``good`` is the part of the good epochs, ``bad`` that of the bad epochs, and ``second_order`` the part that the
    second derivatives of the functions cause, summed over all steps.
    """

    good: float
    bad: float
    second_order: float

    @property
    def total(self) -> float:
        """The bound on the regret of Phase II: the sum of the three parts."""
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
    """Return the bound on the regret of Phase II for every λ > 0, which is item 3 of the repaired theorem.

    It is 2√(eφβNTΛ) + ⌊Λ⌋(2N√(φβγ) + 2F) + NT·``excess`` with φ = c²/ln(1 + c²) and c = min(F/√β, ``widest``); if β or
    c is 0, φ is 1. It follows from `potential_clipped` and r_t ≤ ``excess`` + 2√β min(F/√β, ‖g_t‖_{Σ_{t−1,i}⁻¹}) for
    the pulling client's matrix Σ_{t−1,i}.

    Args:
        beta: The squared radius β ≥ 0.
        information: The log-ratio Λ ≥ 0, or a finite bound on it.
        clients: The number N of clients.
        rounds: The number T of rounds.
        gamma: The threshold γ; with ∞ the part of the bad epochs is ∞, or NaN if Λ < 1 or β = 0.
        value: The bound F ≥ 0.
        excess: The second-order part of the regret of each step (κ in the book's proof).
        widest: A bound on all widths ‖g_t‖, for instance C_g/√λ.
    """
    root = math.sqrt(beta)
    clip = min(value / root, widest) if root else 0.0
    scale = 2 * root * math.sqrt(potential_clipped(1.0, clip))
    good = scale * math.sqrt(math.e * clients * rounds * information)
    bad = math.floor(information) * (clients * scale * math.sqrt(gamma) + 2 * value)
    return PhaseTwoRegret(good, bad, clients * rounds * excess)
