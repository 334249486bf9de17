"""The parametric class F: a two-layer sigmoid network f_x(w) = W₂·σ(W₁x + c₁) + c₂ with H hidden units (Section 6).

σ is the logistic sigmoid, and x an arm with d_x features. The parameter of the network is one flat vector w = (W₁ row
by row, c₁, W₂, c₂) of length d_w = H(d_x + 2) + 1.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedgo._checks import count, require


class Parametric(Protocol):
    """A parametric class F: the functions f_x(w) that Phase I fits, and whose gradients Phase II uses.

    ``d_x`` is the dimension of the inputs x and ``size`` the dimension d_w of the parameter w. For parameters ``w``
    (..., d_w) and K points ``x`` (..., K, d_x), ``values(w, x)`` returns f_x(w), (..., K), and ``gradients(w, x)`` the
    gradients of f_x(w) in w, (..., K, d_w). For m points ``x`` (..., m, d_x) with rewards ``y`` (..., m), and a
    ``mask`` (..., m) that is 1 for the points that count and 0 for the others, ``squared_loss(w, x, y, mask)`` returns
    the sum of (y − f_x(w))² over the points that count, (...), and its gradient in w, (..., d_w). The leading axes
    (...) of ``w`` and ``x`` broadcast. `Network` is an example.
    """

    @property
    def d_x(self) -> int: ...

    @property
    def size(self) -> int: ...

    def values(self, w: Tensor, x: Tensor) -> Tensor: ...

    def gradients(self, w: Tensor, x: Tensor) -> Tensor: ...

    def squared_loss(self, w: Tensor, x: Tensor, y: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]: ...


class Layers(NamedTuple):
    """The layers of a network with H hidden units and d_x inputs, as views of its flat parameter.

    ``w1`` is the first weight matrix W₁ (..., H, d_x), ``c1`` the hidden units' biases c₁ (..., H), ``w2`` the output
    weights W₂ (..., H), and ``c2`` the output's bias c₂ (...).
    """

    w1: Tensor
    c1: Tensor
    w2: Tensor
    c2: Tensor


@dataclass(frozen=True)
class Network:
    """A two-layer network class F with sigmoid hidden units, f_x(w) = W₂·σ(W₁x + c₁) + c₂.

    x is an input, and the logistic sigmoid σ(u) = 1/(1 + exp(−u)) is applied to each entry. The weights W₁ (H, d_x)
    and W₂ (H,), and the biases c₁ (H,) and c₂ (a number), form one flat vector w, the parameter: W₁ row by row, c₁, W₂,
    c₂, which are d_w = H(d_x + 2) + 1 numbers.

    Args:
        d_x: The dimension of the inputs x, at least 1.
        hidden: The number H of hidden units, at least 1.

    Raises:
        ValueError: A number is below 1 or above 2⁵³.
        TypeError: A number is not whole.
    """

    d_x: int
    hidden: int = 25

    def __post_init__(self) -> None:
        count("d_x", self.d_x, "give the arms' dimension, at least 1")
        count("hidden", self.hidden, "give at least one hidden unit")

    @property
    def size(self) -> int:
        """The number d_w = H(d_x + 2) + 1 of parameters, for H hidden units and inputs of dimension d_x."""
        return self.hidden * (self.d_x + 2) + 1

    def split(self, w: Tensor) -> Layers:
        """Return the layers of the network with the flat parameters ``w`` (..., d_w), as views of ``w``.

        For H hidden units and d_x inputs they are the weights W₁ (..., H, d_x) and the biases c₁ (..., H) of the hidden
        units, and the weights W₂ (..., H) and the bias c₂ (...) of the output. They are d_w = H(d_x + 2) + 1 numbers.

        Raises:
            ValueError: The last axis of ``w`` does not have the length d_w.
        """
        shape, remedy = tuple(w.shape), f"give (..., d_w) with d_w = {self.size}"
        require(shape[-1:] == (self.size,), "the shape of w", shape, remedy)
        edge = self.hidden * self.d_x
        w1 = w[..., :edge].unflatten(-1, (self.hidden, self.d_x))
        return Layers(w1, w[..., edge : edge + self.hidden], w[..., edge + self.hidden : -1], w[..., -1])

    def values(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the outputs f_x(w) of the network with the parameter w at the points x, (..., K).

        Args:
            w: Parameters of d_w numbers, (..., d_w).
            x: K points of dimension d_x, (..., K, d_x). Their leading axes broadcast with those of ``w``.

        Raises:
            ValueError: The last axis of ``w`` or ``x`` does not have the length d_w or d_x.
            RuntimeError: The leading axes do not broadcast, or ``w`` and ``x`` differ in dtype.
        """
        layers, unit = self._hidden(w, x)
        return (unit @ layers.w2.unsqueeze(-1)).squeeze(-1) + layers.c2.unsqueeze(-1)

    def gradients(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the gradients ∇f_x(w) of the network's outputs f_x(w) in the parameter ``w``, (..., K, d_w).

        Args:
            w: Parameters of d_w numbers, (..., d_w).
            x: K points of dimension d_x, (..., K, d_x). Their leading axes broadcast with those of ``w``.

        Raises:
            ValueError: The last axis of ``w`` or ``x`` does not have the length d_w or d_x.
            RuntimeError: The leading axes do not broadcast, or ``w`` and ``x`` differ in dtype.
        """
        layers, unit = self._hidden(w, x)
        slope = layers.w2.unsqueeze(-2) * unit * (1 - unit)
        x = x.expand(*slope.shape[:-1], self.d_x)
        first = (slope.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)
        return torch.cat([first, slope, unit, torch.ones_like(unit[..., :1])], -1)

    def squared_loss(self, w: Tensor, x: Tensor, y: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the squared error Σ (y − f_x(w))² and its gradient in w, computed by back-propagation.

        f_x(w) is the output of the network with the parameter w at the point x. The sum is over those of m points x
        with rewards y for which the mask is 1; without such points it is 0.

        Args:
            w: Parameters of d_w numbers, (..., d_w).
            x: Points of dimension d_x, (..., m, d_x). Their leading axes broadcast with those of ``w``.
            y: The rewards at the points, (..., m), which have to be finite where the mask is 0 too.
            mask: 1 for the points that count and 0 for the others, (..., m).

        Returns:
            The squared error (...) and its gradient (..., d_w).

        Raises:
            ValueError: The last axis of ``w`` or ``x`` does not have the length d_w or d_x.
            RuntimeError: The shapes do not broadcast, or ``w`` and ``x`` differ in dtype.
        """
        layers, unit = self._hidden(w, x)
        error = ((unit @ layers.w2.unsqueeze(-1)).squeeze(-1) + layers.c2.unsqueeze(-1) - y) * mask
        twice = 2 * error.unsqueeze(-1)
        back = twice * layers.w2.unsqueeze(-2) * unit * (1 - unit)
        first = torch.einsum("...mh,...md->...hd", back, x)  # this is six times as fast as matmul if m = 1
        gradient = torch.cat([first.flatten(-2), back.sum(-2), (twice * unit).sum(-2), twice.sum(-2)], -1)
        return error.square().sum(-1), gradient

    def _hidden(self, w: Tensor, x: Tensor) -> tuple[Layers, Tensor]:
        """Return the layers of ``w`` (..., d_w) and the outputs σ(W₁x + c₁) of the H hidden units at ``x``
        (..., K, d_x).

        There are K points x of dimension d_x, the parameters have d_w numbers, and the outputs have the shape (..., K,
        H). σ is the logistic sigmoid, and W₁ and c₁ are the weights and biases of the hidden units. A ``ValueError`` is
        raised if the last axis of ``x`` or ``w`` has another length than d_x or d_w.
        """
        shape, remedy = tuple(x.shape), f"give (..., d_x) with d_x = {self.d_x}"
        require(shape[-1:] == (self.d_x,), "the shape of x", shape, remedy)
        layers = self.split(w)
        return layers, torch.sigmoid(x @ layers.w1.mT + layers.c1.unsqueeze(-2))
