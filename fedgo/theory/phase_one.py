"""The analysis of Phase I: the oracle's risk (Lemma 1), the distance to w* (Lemma 2), and what they ask of T₀.

A function with ``_printed`` is the paper's statement, kept to be tested; the one without is proved in the book.
"""

import math

from fedgo._checks import require
from fedgo.theory.assumptions import Assumptions, check_probability, check_sample

# C″, C′ and C of Lemmas 1 and 2 for α = ½: 8 covers 3·2·ln 2, 4 (with ln(4/δ) ≤ 2 ln(2/δ)) and 2; C′ = 2C″, C = 2C′.
C_NET, C_RISK, C_DISTANCE = 8.0, 16.0, 32.0


def finite_risk_printed(size: int, data: int, delta: float, value: float) -> float:
    """Return the printed bound on E(f̃ − f*)² for a minimiser over a finite class (lemma "Risk bounds" with its α = ½).

    The bound is invalid: the noise level does not appear in it, and F² does not appear at ln(2/δ).

    Args:
        size: The number |F| of functions, f* among them.
        data: The number t of data.
        delta: The probability δ.
        value: The bound F on the functions.
    """
    check_sample(size, data, delta)
    return (6 * value**2 * math.log(size) * math.log(2) + 4 * math.log(2 / delta)) / data


def finite_risk(
    size: int, data: int, delta: float, value: float, noise: float, epsilon: float = 0.0
) -> float:
    """Return the repaired bound E(f̃ − f*)² ≤ (16σ² + 32F²) ln(2|F|/δ)/t + 4ε, with probability 1 − δ.

    The inputs x_s are independent and uniform. The arguments are those of `finite_risk_printed`, with σ = ``noise`` and
    the optimisation error ε = ``epsilon``.
    """
    check_sample(size, data, delta)
    return (16 * noise**2 + 32 * value**2) * math.log(2 * size / delta) / data + 4 * epsilon


def iota(a: Assumptions, exploration: int, delta: float) -> float:
    """Return ι = ln(T₀C_h²) + ln(2/δ), the logarithm of Lemma 1 as the appendix ends it.

    Raises:
        ValueError: ι is not positive.
    """
    check_probability(delta)
    product = exploration * a.curvature**2
    remedy = "the proof of Lemma 1 needs ln(T₀C_h²) > 0; the repaired bound has C_g instead"
    require(product > 1, "T₀C_h²", product, remedy)
    return math.log(product) + math.log(2 / delta)


def regression_risk_printed(a: Assumptions, exploration: int, delta: float) -> float:
    """Return the printed bound E(f_x(ŵ₀) − f_x(w*))² ≤ C′d_wF²ι/T₀ (Lemma 1).

    It needs an optimisation error of at most 1/(C′T₀), with T₀ = ``exploration``.
    """
    return C_RISK * a.dimension * a.value**2 * iota(a, exploration, delta) / exploration


def optimisation_error(exploration: int) -> float:
    """Return 1/(C′T₀), the largest optimisation error that Lemmas 1 and 2 allow the oracle."""
    require(exploration >= 1, "exploration", exploration, "give T₀, at least one pull")
    return 1 / (C_RISK * exploration)


def covering(dimension: int, radius: float) -> float:
    """Return d ln⌈√d/(2r)⌉, the logarithm of the size of an ℓ₂-net of [0, 1]^d, made of cubes of side 2r/√d.

    The paper's d ln(1/r) is the size of an ℓ_∞-net, while C_g is a Lipschitz constant in ℓ₂. ``dimension`` is d and
    ``radius`` is r.
    """
    require(radius > 0, "radius", radius, "give the net's radius r > 0")
    return dimension * math.log(math.ceil(math.sqrt(dimension) / (2 * radius)))


def regression_risk(
    a: Assumptions, exploration: int, delta: float, epsilon: float = 0.0, radius: float | None = None
) -> float:
    """Return the repaired bound on E(f_x(ŵ₀) − f_x(w*))², with probability 1 − δ/2 (Lemma 1).

    The bound is (25σ² + 40F²)A + 12.5C_g·rσ(1 + √(2u/T₀) + √(2A)) + 6.25ε + 17.5C_g²r², with u = ln(6/δ) and A = (u +
    d_w ln⌈√d_w/(2r)⌉)/T₀. It holds for all ŵ₀ in W = [0, 1]^d_w with L̂(ŵ₀) ≤ min L̂ + ε.

    Args:
        a: The constants of the assumptions.
        exploration: The number T₀ of pulls of Phase I.
        delta: The probability δ.
        epsilon: The optimisation error ε.
        radius: The radius r of the net; 1/(C_gT₀) if it is None.
    """
    check_probability(delta)
    require(exploration >= 1, "exploration", exploration, "give T₀, at least one pull")
    net = 1 / (a.slope * exploration) if radius is None else radius
    u = math.log(6 / delta)
    share = (u + covering(a.dimension, net)) / exploration
    spread = 1 + math.sqrt(2 * u / exploration) + math.sqrt(2 * share)
    return (
        (25 * a.noise**2 + 40 * a.value**2) * share
        + 12.5 * a.slope * net * a.noise * spread
        + 6.25 * epsilon
        + 17.5 * (a.slope * net) ** 2
    )


def growth_limit(a: Assumptions) -> float:
    """Return τ^{2/(2−χ)}μ^{−χ/(2−χ)}/2, the loss below which the growth condition is quadratic (from Lemma 2)."""
    power = 2 - a.exponent
    return math.pow(a.tail, 2 / power) * math.pow(a.growth, -a.exponent / power) / 2


def squared_distance(a: Assumptions, risk: float) -> float:
    """Return ρ₀² = ‖ŵ₀ − w*‖² ≤ 2L(ŵ₀)/μ where L(ŵ₀) ≤ ``risk`` (Lemma 2).

    w* is the projection of ŵ₀ on the zeros of L.

    Raises:
        ValueError: The risk is not below `growth_limit`, so that the quadratic branch of the growth does not hold.
    """
    limit = growth_limit(a)
    require(risk < limit, "risk", risk, f"Lemma 2 needs L(ŵ₀) < {limit:.3g}, the growth's quadratic range")
    return 2 * risk / a.growth


def squared_distance_printed(a: Assumptions, exploration: int, delta: float) -> float:
    """Return ρ₀² ≤ C d_wF²ι/(μT₀), with the paper's constant (Lemma 2)."""
    return C_DISTANCE * a.dimension * a.value**2 * iota(a, exploration, delta) / (a.growth * exploration)


def exploration_needed(a: Assumptions, iota_: float, zeta: float = 0.0, concordance: float = 1.0) -> float:
    """Return the least T₀ of Lemma 2, C d_wF²ι max{μ^{χ/(2−χ)}/τ^{2/(2−χ)}, ζ/(μc²)}.

    With ζ = ``zeta`` = 0 it is the part that is needed. ``iota_`` is ι and ``concordance`` is c.
    """
    growth = 1 / (2 * growth_limit(a))
    return C_DISTANCE * a.dimension * a.value**2 * iota_ * max(growth, zeta / (a.growth * concordance**2))


def phase_one_scalars(rounds: int, clients: int, dimension: int) -> int:
    """Return C_phaseI = (2n + 1)Nd_w, the scalars of Phase I: n gradients up, and w⁽⁰⁾, …, w⁽ⁿ⁾ = ŵ₀ down.

    If all clients know w⁽⁰⁾ it is 2nNd_w. ``rounds`` is n.
    """
    return (2 * rounds + 1) * clients * dimension
