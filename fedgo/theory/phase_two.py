"""The analysis of Phase II: potential, second-order part, synchronisations, and the regret of good and bad epochs.

A function whose name ends in ``_printed`` evaluates the paper's statement; the one without is proved in the book. Σ is
λI plus the sum of g gᵀ over the gradients g of the pulls, Λ = ln(det Σ/det λI) its log-ratio after all NT pulls of N
clients in T rounds, and R an upper bound on Λ. An epoch lasts from one synchronisation to the next; it is good if ln
det Σ grows by at most 1 in it, and bad otherwise.
"""

import math
from typing import NamedTuple

from fedgo._checks import require
from fedgo.theory.assumptions import check_regularisation, check_threshold

# The largest u with u ≤ 2 ln(1 + u). The elliptical potential lemma needs C_g²/λ to be at most this number.
LARGEST_INCREMENT = 2.512862417252339


def potential_clipped(information: float, widest: float = 1.0) -> float:
    """Return Λφ(c²) with φ(u) = u/ln(1 + u), an upper bound on the sum Σ_s min(c, ‖g_s‖_{Σ_{s−1}⁻¹})² over all pulls s.

    g_s is the gradient of the pull s, and Σ_{s−1} the matrix of the pulls before it. The bound holds for every
    regularisation weight λ > 0, and follows from u ≤ φ(c²) ln(1 + u) for 0 ≤ u ≤ c². If no width is above c, as with
    c = C_g/√λ for a bound C_g on the gradients, nothing is clipped.

    Args:
        information: The log-ratio Λ = ln(det Σ/det λI) after all pulls.
        widest: The value c at which each width ‖g_s‖_{Σ_{s−1}⁻¹} is clipped; with 0 the result is Λ.

    Raises:
        ValueError: ``widest`` is negative or infinite.
    """
    require(0 <= widest < math.inf, "widest", widest, "give a finite width of at least 0")
    square = widest**2
    return information * (square / math.log1p(square) if square else 1.0)


def excess_printed(beta: float, curvature: float, lam: float) -> float:
    """Return 2βC_h/λ, the printed second-order part of the instantaneous regret (lemma "Instantaneous regret").

    Args:
        beta: The squared radius β.
        curvature: The bound C_h on the second derivatives.
        lam: The regularisation weight λ.

    Raises:
        ValueError: λ is not positive.
    """
    check_regularisation(lam)
    return 2 * beta * curvature / lam


def excess_in_ball(beta: float, curvature: float, lam: float, distance: float) -> float:
    """Return 2C_h(β/λ + √(β/λ)ρ₀), the second-order part of the instantaneous regret for line 3 over Ball ∩ W.

    W is the set of parameters of the assumptions. The gradients of the first-order part are those at ŵ₀. If ρ₀ ≤
    ½√(β/λ) the second-order part is at most 3βC_h/λ.

    Args:
        beta: The squared radius β.
        curvature: The bound C_h on the second derivatives.
        lam: The regularisation weight λ.
        distance: The distance ρ₀ = ‖ŵ₀ − w*‖ of the fitted parameter from the true one.

    Raises:
        ValueError: λ is not positive, or β is negative.
    """
    check_regularisation(lam)
    reach = math.sqrt(beta / lam)
    return 2 * curvature * (reach**2 + reach * distance)


def excess_first_order(curvature: float, distance: float) -> float:
    """Return C_hρ₀², the second-order part of the instantaneous regret r_t for the first-order index.

    With it, r_t ≤ 2√β‖g_t‖_{Σ⁻¹} + C_hρ₀². ``curvature`` is the bound C_h on the second derivatives, and ``distance``
    is the distance ρ₀ = ‖ŵ₀ − w*‖ of the fitted parameter from the true one. β is the squared radius of the confidence
    ball, and ‖g_t‖_{Σ⁻¹} the width of the pulled arm, with its gradient g_t and the matrix Σ of the client's data.
    """
    return curvature * distance**2


def synchronisations_printed(rounds: float, information: float, gamma: float) -> float:
    """Return 2√(TR/γ), the printed bound on the number P of synchronisations.

    It is false, because a term R/γ is missing.

    Args:
        rounds: The number T of rounds.
        information: The bound R on the log-ratio Λ.
        gamma: The threshold γ of the event.

    Raises:
        ValueError: γ is not positive, or R is negative.
    """
    check_threshold(gamma)
    return 2 * math.sqrt(rounds * information / gamma)


def synchronisations(rounds: float, information: float, gamma: float) -> float:
    """Return Λ/(2γ) + √(Λ²/(4γ²) + TΛ/γ), the repaired bound on the number P of synchronisations in round robin.

    It is at most √(TΛ/γ) + Λ/γ.

    Args:
        rounds: The number T of rounds.
        information: The log-ratio Λ = ln(det Σ/det λI) of the matrix Σ of all NT pulls to its beginning λI, or a bound
            on it.
        gamma: The threshold γ of the event.

    Raises:
        ValueError: γ is not positive.
    """
    check_threshold(gamma)
    half = information / (2 * gamma)
    return half + math.sqrt(half**2 + rounds * information / gamma)


def phase_two_scalars(syncs: float, clients: int, dimension: int) -> float:
    """Return C_phaseII = 2PN(d_w² + d_w), the scalars sent in Phase II in the dense form.

    ``syncs`` is the number P of synchronisations, ``clients`` the number N of clients, and ``dimension`` the number d_w
    of parameters.
    """
    return 2 * syncs * clients * dimension * (dimension + 1)


def regret_phase_one(exploration: int, value: float) -> float:
    """Return 2T₀F, the bound on the regret of Phase I.

    ``exploration`` is the number T₀ of its pulls, and ``value`` is the bound F on |f|.
    """
    return 2 * exploration * value


def good_regret_printed(beta: float, information: float, steps: int, curvature: float, lam: float) -> float:
    """Return √(NT)·√(16eβR + 8β²C_h²NT/λ²), the printed bound on the regret R_good of the good epochs.

    Args:
        beta: The squared radius β.
        information: The bound R on the log-ratio Λ.
        steps: The number NT of steps of Phase II.
        curvature: The bound C_h on the second derivatives.
        lam: The regularisation weight λ.

    Raises:
        ZeroDivisionError: λ is 0.
    """
    second_order = 8 * (beta * curvature / lam) ** 2
    return math.sqrt(steps) * math.sqrt(16 * math.e * beta * information + second_order * steps)


def bad_regret_printed(
    beta: float, information: float, clients: int, gamma: float, curvature: float, lam_scale: float
) -> float:
    """Return RN√(16βγ + 8β²C_h²/C_λ²), the printed bound on the regret R_bad of the bad epochs.

    It is false if a client makes more than √(NT) pulls in an epoch, with N clients and T rounds.

    Args:
        beta: The squared radius β.
        information: The bound R on the log-ratio Λ.
        clients: The number N of clients.
        gamma: The threshold γ of the event.
        curvature: The bound C_h on the second derivatives.
        lam_scale: The factor C_λ in λ = C_λ√(NT).

    Raises:
        ZeroDivisionError: C_λ is 0.
    """
    return information * clients * math.sqrt(16 * beta * gamma + 8 * (beta * curvature / lam_scale) ** 2)


class PhaseTwoRegret(NamedTuple):
    """The three parts of the repaired bound on the regret of Phase II.

    ``good`` is the part of the good epochs, ``bad`` that of the bad epochs, and ``second_order`` the second-order part
    of the regret, summed over all steps.
    """

    good: float
    bad: float
    second_order: float

    @property
    def total(self) -> float:
        """The sum of the three parts, the bound on the regret of Phase II."""
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
    """Return the bound on the regret of Phase II for every regularisation weight λ > 0, which is item 3 of the repaired
    theorem.

    The bound is 2√(eφβNTΛ) + ⌊Λ⌋(2N√(φβγ) + 2F) + NT·``excess`` with φ = c²/ln(1 + c²) and c = min(F/√β, ``widest``).
    It follows from `potential_clipped` and from r_t ≤ ``excess`` + 2√β min(F/√β, ‖g_t‖) for the regret r_t of each step
    t, with the width ‖g_t‖ of its pull in Σ_{t−1,i}⁻¹.

    Args:
        beta: The squared radius β.
        information: The log-ratio Λ = ln(det Σ/det λI) after all pulls, or a bound on it.
        clients: The number N of clients.
        rounds: The number T of rounds.
        gamma: The threshold γ of the event.
        value: The bound F ≥ 0 on |f|.
        excess: The second-order part of the regret of each step (κ in the book's proof).
        widest: A bound on all widths, for instance C_g/√λ; with ∞ there is none.

    Returns:
        The three parts of the bound: of the good epochs, of the bad epochs, and the second-order part.

    Raises:
        ValueError: β, γ or Λ is negative; or β is positive, and F or ``widest`` is negative, or both are infinite.
    """
    root = math.sqrt(beta)
    clip = min(value / root, widest) if root else 0.0
    scale = 2 * root * math.sqrt(potential_clipped(1.0, clip))
    good = scale * math.sqrt(math.e * clients * rounds * information)
    bad = math.floor(information) * (clients * scale * math.sqrt(gamma) + 2 * value)
    return PhaseTwoRegret(good, bad, clients * rounds * excess)
