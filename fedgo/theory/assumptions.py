"""Assumptions 1–3 of the paper as numbers, and the checks that every bound makes of its arguments."""

import math
from dataclasses import dataclass

from fedgo._checks import require


@dataclass(frozen=True)
class Assumptions:
    """The constants that Assumptions 1 to 3 provide.

    ``dimension`` is d_w. ``value`` is F ≥ |f_x|, ``slope`` is C_g ≥ ‖∇f_x‖, ``curvature`` is C_h ≥ ‖∇²f_x‖, and
    ``noise`` is σ. The growth condition is min{μr²/2, τr^χ/2} ≤ L(w) for the loss L and the distance r of w from its
    zeros, with μ = ``growth``, τ = ``tail`` and χ = ``exponent``, which the paper calls γ in Assumption 3.

    Raises:
        ValueError: A constant is out of range.
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
    """Raise a ``ValueError`` unless δ lies in (0, 1)."""
    require(0 < delta < 1, "delta", delta, "give a failure probability δ in (0, 1)")


def check_sample(size: int, data: int, delta: float) -> None:
    """Raise a ``ValueError`` unless there is at least one function and one datum, and δ lies in (0, 1)."""
    check_probability(delta)
    require(size >= 1, "size", size, "give |F|, at least one function")
    require(data >= 1, "data", data, "give t, at least one datum")


def check_threshold(gamma: float) -> None:
    """Raise a ``ValueError`` unless the threshold γ is positive."""
    require(gamma > 0, "gamma", gamma, "give γ > 0; with γ = 0 every step synchronises, and P = NT")


def check_regularisation(lam: float) -> None:
    """Raise a ``ValueError`` unless the regularisation weight λ is positive."""
    require(lam > 0, "lam", lam, "give λ > 0; Σ must be positive definite")
