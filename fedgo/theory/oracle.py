"""The analysis of Phase I: the risk of the fit (Lemma 1), and its distance from the true parameter w* (Lemma 2).

A function whose name ends in ``_printed`` evaluates the paper's statement; the one without is proved in the book. T₀
(``exploration``) is the number of pulls of Phase I, ŵ₀ the parameter that the oracle fits to them, ϵ (``epsilon``) its
optimisation error, and δ the failure probability. The other letters are those of `fedgo.theory.assumptions` (``a``).
The free constant α of the proof is ½, so that C′ = 16 and C = 32.
"""

import math

from fedgo._checks import require
from fedgo.theory.assumptions import Assumptions, check_probability, check_sample

# The constants C″, C′ and C of Lemmas 1 and 2, with ½ for the free constant α of the proof. C″ = 8 is at least each of
# the factors in the proof, which are 3·2·ln 2, 4 (because ln(4/δ) ≤ 2 ln(2/δ)) and 2. C′ = 2C″ and C = 2C′.
C_NET, C_RISK, C_DISTANCE = 8.0, 16.0, 32.0


def finite_risk_printed(size: int, data: int, delta: float, value: float) -> float:
    """Return (6F² ln 2 · ln n + 4 ln(2/δ))/t, the printed bound on the risk over a finite class (lemma "Risk bounds").

    It is invalid: the noise level does not appear, and F² is missing before ln(2/δ). See `finite_risk` for the
    arguments.
    """
    check_sample(size, data, delta)
    return (6 * value**2 * math.log(size) * math.log(2) + 4 * math.log(2 / delta)) / data


def finite_risk(
    size: int, data: int, delta: float, value: float, noise: float, epsilon: float = 0.0
) -> float:
    """Return (16σ² + 32F²) ln(2n/δ)/t + 4ϵ, the repaired bound on the risk E(f̃ − f*)² over a finite class.

    With probability 1 − δ it holds for every f̃ whose mean squared error on the data is within ϵ of the least one.

    Args:
        size: The number n of functions in the class, the true function f* among them.
        data: The number t of data, at independent uniform inputs.
        delta: The failure probability δ.
        value: The bound F on the functions.
        noise: A number σ such that the noises of the rewards are independent and σ-sub-Gaussian.
        epsilon: The error ϵ.
    """
    check_sample(size, data, delta)
    return (16 * noise**2 + 32 * value**2) * math.log(2 * size / delta) / data + 4 * epsilon


def iota(a: Assumptions, exploration: int, delta: float) -> float:
    """Return ι = ln(T₀C_h²) + ln(2/δ), the logarithm of Lemma 1 at the end of its proof, which needs T₀C_h² > 1."""
    check_probability(delta)
    product = exploration * a.curvature**2
    remedy = "Lemma 1 needs ln(T₀C_h²) > 0; use regression_risk, which has C_g instead"
    require(product > 1, "T₀C_h²", product, remedy)
    return math.log(product) + math.log(2 / delta)


def regression_risk_printed(a: Assumptions, exploration: int, delta: float) -> float:
    """Return C′d_wF²ι/T₀, the printed bound on the risk E(f_x(ŵ₀) − f_x(w*))² over a uniform arm x (Lemma 1).

    The lemma needs ϵ ≤ 1/(C′T₀) (`optimisation_error`).
    """
    return C_RISK * a.dimension * a.value**2 * iota(a, exploration, delta) / exploration


def optimisation_error(exploration: int) -> float:
    """Return 1/(C′T₀), the largest optimisation error of the oracle that Lemmas 1 and 2 allow."""
    require(exploration >= 1, "exploration", exploration, "give T₀, at least one pull")
    return 1 / (C_RISK * exploration)


def covering(dimension: int, radius: float) -> float:
    """Return d ln⌈√d/(2ε)⌉, the log-size of a net of [0, 1]^d for the ℓ₂ distance ε = ``radius``, of cubes of side
    2ε/√d.

    The paper's d ln(1/ε) belongs to an ℓ_∞-net, while C_g is a Lipschitz constant in ℓ₂.
    """
    require(radius > 0, "radius", radius, "give the distance ε > 0 of the net")
    return dimension * math.log(math.ceil(math.sqrt(dimension) / (2 * radius)))


def regression_risk(
    a: Assumptions, exploration: int, delta: float, epsilon: float = 0.0, radius: float | None = None
) -> float:
    """Return the repaired bound on the risk E(f_x(ŵ₀) − f_x(w*))², with probability 1 − δ/2 (Lemma 1).

    It is (25σ² + 40F²)A + 12.5C_gεσ(1 + √(2u/T₀) + √(2A)) + 6.25ϵ + 17.5C_g²ε², with u = ln(6/δ) and A = (u + d_w
    ln⌈√d_w/(2ε)⌉)/T₀, and holds for all ŵ₀ in W = [0, 1]^d_w with a training loss within ϵ of the least one in W.
    ``radius`` is the distance ε of the proof's net (`covering`); 1/(C_gT₀) if it is None.
    """
    check_probability(delta)
    require(exploration >= 1, "exploration", exploration, "give T₀, at least one pull")
    net = 1 / (a.slope * exploration) if radius is None else radius
    u = math.log(6 / delta)
    share = (u + covering(a.dimension, net)) / exploration
    spread = 1 + math.sqrt(2 * u / exploration) + math.sqrt(2 * share)
    estimation = (25 * a.noise**2 + 40 * a.value**2) * share + 12.5 * a.slope * net * a.noise * spread
    return estimation + 6.25 * epsilon + 17.5 * (a.slope * net) ** 2


def growth_limit(a: Assumptions) -> float:
    """Return τ^{2/(2−χ)}μ^{−χ/(2−χ)}/2, the loss below which the loss grows quadratically (proof of Lemma 2)."""
    power = 2 - a.exponent
    return math.pow(a.tail, 2 / power) * math.pow(a.growth, -a.exponent / power) / 2


def squared_distance(a: Assumptions, risk: float) -> float:
    """Return 2·risk/μ, the repaired bound on ρ₀² = ‖ŵ₀ − w*‖² to the zero w* of L nearest to ŵ₀ (Lemma 2).

    ``risk`` bounds the loss L(ŵ₀); it must be finite and below `growth_limit`.
    """
    limit = growth_limit(a)
    remedy = f"Lemma 2 needs a risk below {limit:.3g}, where the growth is quadratic; explore longer"
    require(risk < limit, "risk", risk, remedy)
    return 2 * risk / a.growth


def squared_distance_printed(a: Assumptions, exploration: int, delta: float) -> float:
    """Return C d_wF²ι/(μT₀), the printed bound on the squared distance ρ₀² = ‖ŵ₀ − w*‖² (Lemma 2)."""
    return C_DISTANCE * a.dimension * a.value**2 * iota(a, exploration, delta) / (a.growth * exploration)


def exploration_needed(a: Assumptions, iota_: float, zeta: float = 0.0, concordance: float = 1.0) -> float:
    """Return C d_wF²ι max{μ^{χ/(2−χ)}/τ^{2/(2−χ)}, ζ/(μc²)}, the least T₀ for Lemma 2, not rounded to a whole number.

    The proof in the book does not need the part with ζ, which is left out by default.

    Args:
        a: The constants of the assumptions.
        iota_: The logarithm ι (`iota`).
        zeta: The largest eigenvalue ζ of the Hessian of the loss at w*.
        concordance: The constant c > 0 of the self-concordance condition in Assumption 3.
    """
    growth = 1 / (2 * growth_limit(a))
    return C_DISTANCE * a.dimension * a.value**2 * iota_ * max(growth, zeta / (a.growth * concordance**2))


def phase_one_scalars(rounds: int, clients: int, dimension: int) -> int:
    """Return C_phaseI = (2n + 1)Nd_w, the number of scalars that N clients send and receive in n rounds of Algorithm 2.

    Each client sends n gradients and receives the n + 1 iterates w⁽⁰⁾, …, w⁽ⁿ⁾ = ŵ₀.
    """
    return (2 * rounds + 1) * clients * dimension
