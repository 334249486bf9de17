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

    g_s is the gradient of the pull s, and Σ_{s−1} is λI plus the sum of g gᵀ over the gradients g of the pulls before
    it. The bound holds for every regularisation weight λ > 0, and follows from u ≤ φ(c²) ln(1 + u) for 0 ≤ u ≤ c². If
    no width is above c, as with c = C_g/√λ for a bound C_g on the norms of the gradients, nothing is clipped.

    Args:
        information: The log-ratio Λ = ln(det Σ/det λI) of the matrix Σ of all pulls.
        widest: The value c at which each width ‖g_s‖_{Σ_{s−1}⁻¹} is clipped; with 0 the result is Λ.

    Raises:
        ValueError: ``widest`` is negative, infinite or NaN.
        OverflowError: c² exceeds float64.
    """
    require(0 <= widest < math.inf, "widest", widest, "give a finite width of at least 0")
    square = widest**2
    return information * (square / math.log1p(square) if square else 1.0)


def excess_printed(beta: float, curvature: float, lam: float) -> float:
    """Return 2βC_h/λ, the printed second-order part of the instantaneous regret (lemma "Instantaneous regret").

    It is the part that the second derivatives of the functions cause.

    Args:
        beta: The squared radius β of the confidence ball.
        curvature: The bound C_h on the second derivatives.
        lam: The regularisation weight λ.

    Raises:
        ValueError: λ is not positive.
    """
    check_regularisation(lam)
    return 2 * beta * curvature / lam


def excess_in_ball(beta: float, curvature: float, lam: float, distance: float) -> float:
    """Return 2C_h(β/λ + √(β/λ)ρ₀), the second-order part of the instantaneous regret for line 3 over Ball ∩ W.

    Line 3 pulls the arm x whose largest f_x(w) over the parameters w in the confidence ball and in W is the largest. W
    is the set of parameters of the assumptions, and f_x(w) the model of the mean reward. The gradients of the
    first-order part are those at the parameter ŵ₀ that Phase I has fitted. If ρ₀ ≤ ½√(β/λ), the second-order part is at
    most 3βC_h/λ.

    Args:
        beta: The squared radius β ≥ 0 of the confidence ball.
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

    With it, r_t ≤ 2√β‖g_t‖_{Σ⁻¹} + C_hρ₀² if the true parameter w* lies in the client's confidence ball. ``curvature``
    is the bound C_h on the second derivatives, and ``distance`` is the distance ρ₀ = ‖ŵ₀ − w*‖ of the fitted parameter
    ŵ₀ from w*. β is the squared radius of the ball, and ‖g_t‖_{Σ⁻¹} the width of the arm pulled at step t, with its
    gradient g_t and the matrix Σ of the client's data.
    """
    return curvature * distance**2


def synchronisations_printed(rounds: float, information: float, gamma: float) -> float:
    """Return 2√(TR/γ), the printed bound on the number P of synchronisations.

    It is false, because a term R/γ is missing.

    Args:
        rounds: The number T of rounds.
        information: The bound R on the log-ratio Λ = ln(det Σ/det λI) of the matrix Σ of all pulls.
        gamma: The threshold γ of the event that triggers a synchronisation.

    Raises:
        ValueError: γ is not positive, or R is negative.
    """
    check_threshold(gamma)
    return 2 * math.sqrt(rounds * information / gamma)


def synchronisations(rounds: float, information: float, gamma: float) -> float:
    """Return Λ/(2γ) + √(Λ²/(4γ²) + TΛ/γ), the repaired bound on the number P of synchronisations.

    It holds if the clients pull in turn, and is at most √(TΛ/γ) + Λ/γ.

    Args:
        rounds: The number T of rounds.
        information: The log-ratio Λ = ln(det Σ/det λI) ≥ 0 of the matrix Σ of all NT pulls of N clients, with the
            regularisation weight λ, or a bound on it.
        gamma: The threshold γ of the event that triggers a synchronisation.

    Raises:
        ValueError: γ is not positive.
    """
    check_threshold(gamma)
    half = information / (2 * gamma)
    return half + math.sqrt(half**2 + rounds * information / gamma)


def phase_two_scalars(syncs: float, clients: int, dimension: int) -> float:
    """Return C_phaseII = 2PN(d_w² + d_w), the number of scalars sent in Phase II in the dense form.

    At each of P = ``syncs`` synchronisations, each of N = ``clients`` clients sends a d_w × d_w matrix and a vector of
    d_w numbers, and receives as many. ``dimension`` is the number d_w of parameters.
    """
    return 2 * syncs * clients * dimension * (dimension + 1)


def regret_phase_one(exploration: int, value: float) -> float:
    """Return 2T₀F, the bound on the regret of Phase I.

    ``exploration`` is the number T₀ of its pulls, and ``value`` is the bound F on the absolute mean rewards.
    """
    return 2 * exploration * value


def good_regret_printed(beta: float, information: float, steps: int, curvature: float, lam: float) -> float:
    """Return √(NT)·√(16eβR + 8β²C_h²NT/λ²), the printed bound on the regret R_good of the good epochs.

    An epoch lasts from one synchronisation to the next. It is good if the ln det of the matrix Σ of all pulls grows by
    at most 1 in it.

    Args:
        beta: The squared radius β of the confidence ball.
        information: The bound R on the log-ratio Λ = ln(det Σ/det λI) after all pulls.
        steps: The number NT of steps of Phase II, for N clients and T rounds.
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

    An epoch lasts from one synchronisation to the next. It is bad if the ln det of the matrix Σ of all pulls grows by
    more than 1 in it. The proof of the bound fails if a client makes more than √(NT) pulls in an epoch, with N clients
    and T rounds.

    Args:
        beta: The squared radius β of the confidence ball.
        information: The bound R on the log-ratio Λ = ln(det Σ/det λI) after all pulls.
        clients: The number N of clients.
        gamma: The threshold γ of the event that triggers a synchronisation.
        curvature: The bound C_h on the second derivatives.
        lam_scale: The factor C_λ in λ = C_λ√(NT).

    Raises:
        ZeroDivisionError: C_λ is 0.
    """
    return information * clients * math.sqrt(16 * beta * gamma + 8 * (beta * curvature / lam_scale) ** 2)


class PhaseTwoRegret(NamedTuple):
    """The three parts of the repaired bound on the regret of Phase II.

    An epoch lasts from one synchronisation to the next. It is good if the ln det of the matrix of all pulls grows by at
    most 1 in it, and bad otherwise. ``good`` is the part of the good epochs, ``bad`` that of the bad epochs, and
    ``second_order`` the part that the second derivatives of the functions cause, summed over all steps.
    """

    good: float
    bad: float
    second_order: float

    @property
    def total(self) -> float:
        """The bound on the regret of Phase II: the sum of ``good``, ``bad`` and ``second_order``."""
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

    The bound is 2√(eφβNTΛ) + ⌊Λ⌋(2N√(φβγ) + 2F) + NT·``excess`` with φ = c²/ln(1 + c²) and c = min(F/√β, ``widest``);
    if β or c is 0, φ is 1. It follows from `potential_clipped` and from r_t ≤ ``excess`` + 2√β min(F/√β, ‖g_t‖) for the
    regret r_t of each step t, with the width ‖g_t‖ = √(g_tᵀΣ_{t−1,i}⁻¹g_t) of its pull. g_t is the gradient of the
    pulled arm, and Σ_{t−1,i} the matrix of the data that its client i had before.

    Args:
        beta: The squared radius β of the confidence ball.
        information: The log-ratio Λ = ln(det Σ/det λI) ≥ 0 of the matrix Σ of all pulls, or a finite bound on it.
        clients: The number N of clients.
        rounds: The number T of rounds.
        gamma: The threshold γ of the event that triggers a synchronisation. With ∞ the part of the bad epochs is ∞, or
            NaN if Λ < 1 or β = 0.
        value: The bound F ≥ 0 on the absolute mean rewards.
        excess: The second-order part of the regret of each step (κ in the book's proof).
        widest: A bound on all widths ‖g_t‖, for instance C_g/√λ for a bound C_g on the norms of the gradients; with ∞
            there is none.

    Returns:
        The parts of the bound: ``good`` of the epochs, from one synchronisation to the next, in which ln det Σ grows by
        at most 1, ``bad`` of the other epochs, and ``second_order``, which is NT·``excess``.

    Raises:
        ValueError: β, γ or Λ is negative; or β is positive, and F or ``widest`` is negative, or both are infinite.
        OverflowError: Λ is infinite, or c² exceeds float64.
    """
    root = math.sqrt(beta)
    clip = min(value / root, widest) if root else 0.0
    scale = 2 * root * math.sqrt(potential_clipped(1.0, clip))
    good = scale * math.sqrt(math.e * clients * rounds * information)
    bad = math.floor(information) * (clients * scale * math.sqrt(gamma) + 2 * value)
    return PhaseTwoRegret(good, bad, clients * rounds * excess)
