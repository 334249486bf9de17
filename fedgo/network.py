"""The parametric class F: a two-layer sigmoid network f_x(w) = W₂·σ(W₁x + c₁) + c₂ with H hidden units (Section 6).

σ is the logistic sigmoid, and x an arm with d_x features. The parameter is one flat vector w = (W₁ row by row, c₁, W₂,
c₂) of length d_w = H(d_x + 2) + 1. Arrays are w (..., d_w) and x (..., K, d_x); their leading axes broadcast.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedgo._checks import count, require


class Parametric(Protocol):
    """A parametric class F: the functions f_x(w) that Phase I fits, and whose gradients Phase II uses.

    `Network` is an example, and its methods say what each of these has to return. ``d_x`` is the dimension of the
    inputs x, and ``size`` the dimension d_w of w.
    """

    @property
    def d_x(self) -> int: ...

    @property
    def size(self) -> int: ...

    def values(self, w: Tensor, x: Tensor) -> Tensor: ...

    def gradients(self, w: Tensor, x: Tensor) -> Tensor: ...

    def squared_loss(self, w: Tensor, x: Tensor, y: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]: ...


class Layers(NamedTuple):
    """The parameter in parts: W₁ (..., H, d_x), c₁ (..., H), W₂ (..., H) and c₂ (...)."""

    w1: Tensor
    c1: Tensor
    w2: Tensor
    c2: Tensor


@dataclass(frozen=True)
class Network:
    """A two-layer network class F with sigmoid hidden units, f_x(w) = W₂·σ(W₁x + c₁) + c₂.

    Args:
        d_x: The dimension of the inputs x, at least 1.
        hidden: The number H of hidden units, at least 1.

    Raises:
        ValueError: A number is below 1.
        TypeError: A number is not whole.
    """

    d_x: int
    hidden: int = 25

    def __post_init__(self) -> None:
        count("d_x", self.d_x, "give the arms' dimension, at least 1")
        count("hidden", self.hidden, "give at least one hidden unit")

    @property
    def size(self) -> int:
        """The number d_w = H(d_x + 2) + 1 of parameters."""
        return self.hidden * (self.d_x + 2) + 1

    def split(self, w: Tensor) -> Layers:
        """Return W₁ (..., H, d_x), c₁ (..., H), W₂ (..., H) and c₂ (...) as views of ``w`` (..., d_w).

        Raises:
            ValueError: The last axis of ``w`` does not have the length d_w.
        """
        shape, remedy = tuple(w.shape), f"give (..., d_w) with d_w = {self.size}"
        require(shape[-1:] == (self.size,), "the shape of w", shape, remedy)
        edge = self.hidden * self.d_x
        w1 = w[..., :edge].unflatten(-1, (self.hidden, self.d_x))
        return Layers(w1, w[..., edge : edge + self.hidden], w[..., edge + self.hidden : -1], w[..., -1])

    def values(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the outputs f_x(w), (..., K), for parameters ``w`` (..., d_w) at the points ``x`` (..., K, d_x).

        Raises:
            ValueError: The last axis of ``w`` or ``x`` does not have the length d_w or d_x.
        """
        layers, unit = self._hidden(w, x)
        return (unit @ layers.w2.unsqueeze(-1)).squeeze(-1) + layers.c2.unsqueeze(-1)

    def gradients(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the gradients ∇f_x(w) in ``w``, (..., K, d_w), for arguments and errors as those of `values`."""
        layers, unit = self._hidden(w, x)
        slope = layers.w2.unsqueeze(-2) * unit * (1 - unit)
        x = x.expand(*slope.shape[:-1], self.d_x)
        first = (slope.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)
        return torch.cat([first, slope, unit, torch.ones_like(unit[..., :1])], -1)

    def squared_loss(self, w: Tensor, x: Tensor, y: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the squared error Σ (y − f_x(w))² over the points with mask 1, (...), and its gradient (..., d_w).

        Args:
            w: Parameters, (..., d_w).
            x: Points, (..., m, d_x).
            y: The rewards at the points, (..., m), finite also where the mask is 0.
            mask: 1 for the points that count and 0 for the others, (..., m).

        Raises:
            ValueError: The last axis of ``w`` or ``x`` does not have the length d_w or d_x.
        """
        layers, unit = self._hidden(w, x)
        error = ((unit @ layers.w2.unsqueeze(-1)).squeeze(-1) + layers.c2.unsqueeze(-1) - y) * mask
        twice = 2 * error.unsqueeze(-1)
        back = twice * layers.w2.unsqueeze(-2) * unit * (1 - unit)
        first = torch.einsum("...mh,...md->...hd", back, x)  # this is six times as fast as matmul if m = 1
        gradient = torch.cat([first.flatten(-2), back.sum(-2), (twice * unit).sum(-2), twice.sum(-2)], -1)
        return error.square().sum(-1), gradient

    def _hidden(self, w: Tensor, x: Tensor) -> tuple[Layers, Tensor]:
        """Return the layers of ``w`` and the outputs σ(W₁x + c₁) of the hidden units at ``x``, (..., K, H)."""
        shape, remedy = tuple(x.shape), f"give (..., d_x) with d_x = {self.d_x}"
        require(shape[-1:] == (self.d_x,), "the shape of x", shape, remedy)
        layers = self.split(w)
        return layers, torch.sigmoid(x @ layers.w1.mT + layers.c1.unsqueeze(-2))
