"""The analysis of Phase I: the risk of the fit (Lemma 1), and its distance from the true parameter w* (Lemma 2).

A function whose name ends in ``_printed`` evaluates the paper's statement; the one without is proved in the book. T₀ is
the number of pulls of Phase I, and ŵ₀ the parameter that the oracle fits to them. `exploration_needed` returns the T₀
that Lemma 2 asks for.
"""

import math

from fedgo._checks import require
from fedgo.theory.assumptions import Assumptions, check_probability, check_sample

# The constants C″, C′ and C of Lemmas 1 and 2, with ½ for the free constant α of the proof. C″ = 8 is at least each of
# the factors in the proof, which are 3·2·ln 2, 4 (because ln(4/δ) ≤ 2 ln(2/δ)) and 2. C′ = 2C″ and C = 2C′.
C_NET, C_RISK, C_DISTANCE = 8.0, 16.0, 32.0


def finite_risk_printed(size: int, data: int, delta: float, value: float) -> float:
    """Return the printed bound on the risk E(f̃ − f*)² of a minimiser f̃ over a finite class (lemma "Risk bounds").

    It is (6F² ln 2 · ln n + 4 ln(2/δ))/t for n functions and t data, with ½ for the free constant α of the lemma. It is
    invalid: the noise level does not appear in it, and F² is missing before ln(2/δ). f̃ minimises the mean squared error
    on the data, f* is the true function, and E is the mean over a new input.

    Args:
        size: The number n of functions in the class, the true function f* among them.
        data: The number t of data.
        delta: The failure probability δ.
        value: The bound F on the absolute values of the functions.

    Raises:
        ValueError: ``size`` or ``data`` is below 1, or δ does not lie strictly between 0 and 1.
    """
    check_sample(size, data, delta)
    return (6 * value**2 * math.log(size) * math.log(2) + 4 * math.log(2 / delta)) / data


def finite_risk(
    size: int, data: int, delta: float, value: float, noise: float, epsilon: float = 0.0
) -> float:
    """Return the repaired bound on the risk E(f̃ − f*)² of an approximate minimiser f̃ over a finite class.

    It is (16σ² + 32F²) ln(2n/δ)/t + 4ϵ for n functions and t data, and holds with probability 1 − δ for data with
    independent uniform inputs. The mean squared error of f̃ on the data is within ϵ of the least one, f* is the true
    function, and E is the mean over a new uniform input.

    Args:
        size: The number n of functions in the class, the true function f* among them.
        data: The number t of data.
        delta: The failure probability δ.
        value: The bound F on the absolute values of the functions.
        noise: A number σ such that the noises of the rewards are independent and σ-sub-Gaussian.
        epsilon: The optimisation error ϵ of f̃.

    Raises:
        ValueError: ``size`` or ``data`` is below 1, or δ does not lie strictly between 0 and 1.
    """
    check_sample(size, data, delta)
    return (16 * noise**2 + 32 * value**2) * math.log(2 * size / delta) / data + 4 * epsilon


def iota(a: Assumptions, exploration: int, delta: float) -> float:
    """Return ι = ln(T₀C_h²) + ln(2/δ), the logarithmic term of Lemma 1 at the end of its proof.

    Args:
        a: The constants of the assumptions, with the bound C_h on the second derivatives.
        exploration: The number T₀ of pulls of Phase I.
        delta: The failure probability δ.

    Raises:
        ValueError: T₀C_h² is at most 1, so that the proof does not hold, or δ does not lie strictly between 0 and 1.
    """
    check_probability(delta)
    product = exploration * a.curvature**2
    remedy = "Lemma 1 needs ln(T₀C_h²) > 0; use regression_risk, which has C_g instead"
    require(product > 1, "T₀C_h²", product, remedy)
    return math.log(product) + math.log(2 / delta)


def regression_risk_printed(a: Assumptions, exploration: int, delta: float) -> float:
    """Return C′d_wF²ι/T₀, the printed bound on the risk E(f_x(ŵ₀) − f_x(w*))² of the fitted parameter ŵ₀ (Lemma 1).

    f_x is the model of the mean reward of a uniformly drawn arm x, w* is the true parameter, C′ = 16 is a constant of
    the proof (`C_RISK`), and ι = ln(T₀C_h²) + ln(2/δ). The lemma needs an optimisation error of at most 1/(C′T₀).

    Args:
        a: The constants of the assumptions: the number d_w of parameters and the bounds F and C_h on the functions and
            their second derivatives.
        exploration: The number T₀ of pulls of Phase I.
        delta: The failure probability δ.

    Raises:
        ValueError: T₀C_h² is at most 1, or δ does not lie strictly between 0 and 1.
    """
    return C_RISK * a.dimension * a.value**2 * iota(a, exploration, delta) / exploration


def optimisation_error(exploration: int) -> float:
    """Return 1/(C′T₀), the largest optimisation error of the oracle that Lemmas 1 and 2 allow.

    ``exploration`` is the number T₀ of pulls of Phase I, and C′ = 16 a constant of the proof (`C_RISK`).

    Raises:
        ValueError: T₀ is below 1.
    """
    require(exploration >= 1, "exploration", exploration, "give T₀, at least one pull")
    return 1 / (C_RISK * exploration)


def covering(dimension: int, radius: float) -> float:
    """Return d ln⌈√d/(2ε)⌉, the logarithm of the size of an ℓ₂-net of [0, 1]^d, made of cubes of side 2ε/√d.

    The paper's d ln(1/ε) belongs to an ℓ_∞-net, while the bound C_g on the gradients is a Lipschitz constant in ℓ₂.

    Args:
        dimension: The dimension d ≥ 1.
        radius: The distance ε > 0 within which every point of [0, 1]^d has a point of the net.

    Raises:
        ValueError: ε is not positive, or infinite.
    """
    require(radius > 0, "radius", radius, "give the distance ε > 0 of the net")
    return dimension * math.log(math.ceil(math.sqrt(dimension) / (2 * radius)))


def regression_risk(
    a: Assumptions, exploration: int, delta: float, epsilon: float = 0.0, radius: float | None = None
) -> float:
    """Return the repaired bound on the risk E(f_x(ŵ₀) − f_x(w*))² of the fitted ŵ₀, with probability 1 − δ/2 (Lemma 1).

    The bound is (25σ² + 40F²)A + 12.5C_gεσ(1 + √(2u/T₀) + √(2A)) + 6.25ϵ + 17.5C_g²ε², with u = ln(6/δ) and A = (u +
    d_w ln⌈√d_w/(2ε)⌉)/T₀. It holds for all ŵ₀ in W = [0, 1]^d_w whose training loss, the mean squared error on the T₀
    pulls, is within ϵ of the least one in W. f_x is the model of the mean reward of a uniformly drawn arm x, and w* the
    true parameter.

    Args:
        a: The constants of the assumptions: the number d_w of parameters, the bounds F and C_g on the functions and
            their gradients, and the noise level σ.
        exploration: The number T₀ of pulls of Phase I.
        delta: The failure probability δ.
        epsilon: The optimisation error ϵ of the oracle.
        radius: The distance ε within which every point of W has a point of the finite net of the proof; 1/(C_gT₀) if it
            is None.

    Raises:
        ValueError: T₀ is below 1, ε is infinite or not positive, or δ does not lie strictly between 0 and 1.
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
    """Return τ^{2/(2−χ)}μ^{−χ/(2−χ)}/2, the loss below which the growth of the loss is quadratic (proof of Lemma 2).

    ``a`` has the constants μ, τ and χ of the growth condition min{μr²/2, τr^χ/2} ≤ L(w) (Assumption 3), with the loss L
    and the distance r of the parameter w from the nearest zero of L. If τ is ∞, the growth is quadratic everywhere, and
    the result is ∞.

    Raises:
        OverflowError: A power exceeds float64, because χ is close to 2.
    """
    power = 2 - a.exponent
    return math.pow(a.tail, 2 / power) * math.pow(a.growth, -a.exponent / power) / 2


def squared_distance(a: Assumptions, risk: float) -> float:
    """Return 2·risk/μ, the repaired bound on the squared distance ρ₀² = ‖ŵ₀ − w*‖² (Lemma 2).

    w* is the zero of the loss L that is nearest to the fitted parameter ŵ₀. L(w) is the mean of (f_x(w) − f_x(w*))²
    over uniformly drawn arms x, with the model f_x of the mean reward.

    Args:
        a: The constants of the assumptions, with the growth constants μ, τ and χ.
        risk: A bound on the loss L(ŵ₀).

    Raises:
        ValueError: The risk is not below τ^{2/(2−χ)}μ^{−χ/(2−χ)}/2 (`growth_limit`), so that the growth need not be
            quadratic. An infinite risk is always refused.
        OverflowError: A power in this limit exceeds float64, because χ is close to 2.
    """
    limit = growth_limit(a)
    remedy = f"Lemma 2 needs a risk below {limit:.3g}, where the growth is quadratic; explore longer"
    require(risk < limit, "risk", risk, remedy)
    return 2 * risk / a.growth


def squared_distance_printed(a: Assumptions, exploration: int, delta: float) -> float:
    """Return C d_wF²ι/(μT₀), the printed bound on the squared distance ρ₀² = ‖ŵ₀ − w*‖² (Lemma 2).

    ŵ₀ is the fitted parameter and w* the true one, C = 32 is a constant of the proof (`C_DISTANCE`), and ι = ln(T₀C_h²)
    + ln(2/δ).

    Args:
        a: The constants of the assumptions: the number d_w of parameters, the bounds F and C_h on the functions and
            their second derivatives, and the growth μ.
        exploration: The number T₀ of pulls of Phase I.
        delta: The failure probability δ.

    Raises:
        ValueError: T₀C_h² is at most 1, or δ does not lie strictly between 0 and 1.
    """
    return C_DISTANCE * a.dimension * a.value**2 * iota(a, exploration, delta) / (a.growth * exploration)


def exploration_needed(a: Assumptions, iota_: float, zeta: float = 0.0, concordance: float = 1.0) -> float:
    """Return C d_wF²ι max{μ^{χ/(2−χ)}/τ^{2/(2−χ)}, ζ/(μc²)}, the least number T₀ of pulls of Phase I for Lemma 2.

    C = 32 is a constant of the proof (`C_DISTANCE`). The proof in the book does not need the part with ζ; ζ = 0 leaves
    it out. If τ is ∞ and ζ is 0, the result is 0. It is not rounded to a whole number.

    Args:
        a: The constants of the assumptions: the number d_w of parameters, the bound F on the functions, and μ, τ and χ
            of the growth condition min{μr²/2, τr^χ/2} ≤ L(w), with the loss L and the distance r of the parameter w
            from the nearest zero of L.
        iota_: The logarithm ι = ln(T₀C_h²) + ln(2/δ) of Lemma 1 (`iota`).
        zeta: The largest eigenvalue ζ of the Hessian of the loss at the true parameter w*.
        concordance: The constant c > 0 of the self-concordance condition in Assumption 3.

    Raises:
        ZeroDivisionError: c is 0.
        OverflowError: A power exceeds float64, because χ is close to 2.
    """
    growth = 1 / (2 * growth_limit(a))
    return C_DISTANCE * a.dimension * a.value**2 * iota_ * max(growth, zeta / (a.growth * concordance**2))


def phase_one_scalars(rounds: int, clients: int, dimension: int) -> int:
    """Return C_phaseI = (2n + 1)Nd_w, the number of scalars that are sent in Phase I.

    Each of N clients sends n gradients of d_w numbers, and receives the n + 1 iterates w⁽⁰⁾, …, w⁽ⁿ⁾ = ŵ₀ of the
    oracle, of d_w numbers each. If all clients knew w⁽⁰⁾ already, the number would be 2nNd_w.

    Args:
        rounds: The number n of rounds of the oracle (Algorithm 2).
        clients: The number N of clients.
        dimension: The number d_w of parameters.
    """
    return (2 * rounds + 1) * clients * dimension
