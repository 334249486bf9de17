"""The constants of Assumptions 1 to 3 of the paper, and checks of arguments that several bounds share.

f_x(w) is the model of the mean reward of the arm x with the d_w numbers w, and w* the true parameter. The loss L(w) is
the mean of (f_x(w) − f_x(w*))² over uniformly drawn arms. Assumption 3 lets it grow by min{μr²/2, τr^χ/2} ≤ L(w), where
r is the distance of w from the nearest zero of L. The paper writes γ for χ, which is also the threshold of the event in
Algorithm 1.
"""

import math
from dataclasses import dataclass

from fedgo._checks import require


@dataclass(frozen=True)
class Assumptions:
    """The constants of Assumptions 1 to 3, from which the bounds of the paper are computed.

    Args:
        dimension: The dimension d_w ≥ 1 of the parameter w.
        value: The bound F > 0 on |f_x(w)|.
        slope: The bound C_g > 0 on the norm of the gradient ∇f_x(w) in w.
        curvature: The bound C_h ≥ 0 on the operator norm of the second derivative ∇²f_x(w) in w.
        noise: The standard deviation σ ≥ 0 of a reward's noise.
        growth: The constant μ > 0 of the growth condition.
        tail: The constant τ > 0 of the growth condition; with ∞ the growth is quadratic everywhere.
        exponent: The exponent χ of the growth condition, strictly between 0 and 2.
    """

    dimension: int
    value: float
    slope: float
    curvature: float
    noise: float
    growth: float
    tail: float = math.inf
    exponent: float = 1.0

    def __post_init__(self) -> None:
        require(self.dimension >= 1, "dimension", self.dimension, "give d_w, at least 1")
        for name, symbol in (("value", "F"), ("slope", "C_g"), ("growth", "μ"), ("tail", "τ")):
            given = getattr(self, name)
            remedy = f"give {symbol} > 0 (Assumptions 2 and 3)"
            if name == "growth":
                remedy += "; with fewer arms than parameters it is 0, and no bound of the paper exists"
            require(given > 0, name, given, remedy)
        for name, symbol in (("curvature", "C_h"), ("noise", "σ")):
            require(getattr(self, name) >= 0, name, getattr(self, name), f"give {symbol} ≥ 0")
        require(0 < self.exponent < 2, "exponent", self.exponent, "give χ in (0, 2), the γ of Assumption 3")


def check_probability(delta: float) -> None:
    """Refuse a failure probability δ that does not lie strictly between 0 and 1."""
    require(0 < delta < 1, "delta", delta, "give a failure probability δ in (0, 1)")


def check_sample(size: int, data: int, delta: float) -> None:
    """Refuse an empty class of functions, an empty sample, and a δ that is no failure probability."""
    check_probability(delta)
    require(size >= 1, "size", size, "give |F|, at least one function")
    require(data >= 1, "data", data, "give t, at least one datum")


def check_threshold(gamma: float) -> None:
    """Refuse a threshold γ of the event that is not positive."""
    require(gamma > 0, "gamma", gamma, "give γ > 0; with γ = 0 every step synchronises, and P = NT")


def check_regularisation(lam: float) -> None:
    """Refuse a regularisation weight λ that is not positive."""
    require(lam > 0, "lam", lam, "give λ > 0; Σ must be positive definite")
