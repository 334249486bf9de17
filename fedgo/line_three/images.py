"""The image θ = A_x w of the parameter on which the value of one arm x depends, and the image of the ball (eq. 4).

f_x(w) = Σ_j W₂ⱼσ(zⱼ) + c₂ with zⱼ = W₁ⱼ·x + c₁ⱼ and the sigmoid σ depends on the parameter w = (W₁, c₁, W₂, c₂) of a
network with H hidden units only through θ = A_x w = (z, W₂, c₂), which has 2H + 1 numbers. A_x maps the confidence ball
{w : ‖w − ŵ‖²_Σ ≤ β} onto {θ̂ + C_x u : uᵀC_x u ≤ β} with θ̂ = A_x ŵ and C_x = A_xΣ⁻¹A_xᵀ; u is the dual point.

If G (m, d_w) has the gradients at ŵ₀ of the m arms that a learner has pulled as rows, n are their pulls and λ the
regularisation weight, then Σ = λI + Gᵀdiag(n)G, ŵ = ŵ₀ + Gᵀ·``centre`` and C_x = A_xA_xᵀ/λ − A_xGᵀ·``weight``·GA_xᵀ.
Therefore only the images A_x g_k of the gradients of these arms and their Gram matrix are needed. There are V
parameters ŵ₀ (views), each shared by M learners, and K arms.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fedgo.confidence import Tally
from fedgo.network import Network


class View(NamedTuple):
    """The images of ŵ₀ and of the arms' gradients g_k at ŵ₀, A_x g_k = (inner_xk·slope_k, unit_k, 1), for each arm x.

    Args:
        theta: The image A_x ŵ₀ for each arm x, (..., K, 2H + 1).
        slope: The number W₂ⱼσ'(zⱼ) for each arm and hidden unit j, (..., K, H).
        unit: The output σ(zⱼ) of each hidden unit for each arm, (..., K, H).
        inner: The number 1 + x·x_k for each pair of arms, (..., K, K).
        gram: The inner product g_x·g_k of the gradients of each pair of arms, (..., K, K).
    """

    theta: Tensor
    slope: Tensor
    unit: Tensor
    inner: Tensor
    gram: Tensor


def view(network: Network, w0: Tensor, arms: Tensor) -> View:
    """Return the images of ŵ₀ (..., d_w) and of the gradients of ``arms`` (..., K, d_x), fixed during Phase II."""
    layers = network.split(w0)
    z = arms @ layers.w1.mT + layers.c1.unsqueeze(-2)
    outer = torch.cat([layers.w2, layers.c2.unsqueeze(-1)], -1).unsqueeze(-2)
    unit = torch.sigmoid(z)
    slope = layers.w2.unsqueeze(-2) * unit * (1 - unit)
    inner = (1 + arms @ arms.mT).expand(*z.shape[:-1], -1)
    gram = inner * (slope @ slope.mT) + unit @ unit.mT + 1
    return View(torch.cat([z, outer.expand(*z.shape[:-1], -1)], -1), slope, unit, inner, gram)


class Images(NamedTuple):
    """The confidence balls of all learners, in terms of the m arms that a learner has pulled.

    Args:
        view: The images for each of the V parameters ŵ₀.
        lam: The regularisation weight λ.
        beta: The squared radius β.
        pulled: The numbers of the pulled arms, (V, M, m) int64. A learner with fewer than m of them has further arms
            here, whose entries of ``weight`` and ``centre`` are 0.
        weight: The matrix in the equation for C_x, (V, M, m, m).
        centre: The vector in the equation for ŵ, (V, M, m).
    """

    view: View
    lam: float
    beta: float
    pulled: Tensor
    weight: Tensor
    centre: Tensor


class Rows(NamedTuple):
    """The images of the balls for n pairs of a learner and an arm, with C_x = diag(``scale``) − ``low``ᵀ``heavy``.

    ``centre`` (n, 2H + 1) is A_x ŵ, ``scale`` (n, 2H + 1) the diagonal of A_xA_xᵀ/λ, ``low`` (n, m, 2H + 1) has the
    images of the pulled arms' gradients, and ``heavy`` is ``weight``·``low``.
    """

    centre: Tensor
    scale: Tensor
    low: Tensor
    heavy: Tensor

    def times(self, h: Tensor) -> Tensor:
        """Return C_x h for each of the n images, (n, 2H + 1)."""
        return self.scale * h - (self.low.mT @ (self.heavy @ h.unsqueeze(-1))).squeeze(-1)


def images(view: View, lam: float, beta: float, tally: Tally) -> Images:
    """Return the balls of the data ``tally`` (V, M, K), by a Cholesky factorisation of I + diag(√n)GGᵀdiag(√n)/λ.

    m is the largest number of arms that any learner has pulled, at least 1. λ > 0 is not checked.
    """
    pulled = tally.counts > 0
    most = max(1, int(pulled.sum(-1).max()))
    index = pulled.byte().sort(dim=-1, descending=True, stable=True).indices[..., :most]
    counts, sums = tally.counts.gather(-1, index), tally.sums.gather(-1, index)
    which = torch.arange(len(index)).view(-1, 1, 1, 1)
    gram = view.gram[which, index.unsqueeze(-1), index.unsqueeze(-2)]
    root = counts.sqrt()
    kernel = root.unsqueeze(-1) * gram * root.unsqueeze(-2) / lam
    kernel.diagonal(dim1=-2, dim2=-1).add_(1)
    factor = torch.linalg.cholesky(kernel)
    half = torch.linalg.solve_triangular(factor, torch.diag_embed(root), upper=False)
    mean = torch.where(counts > 0, sums / counts, 0.0)
    centre = root * torch.cholesky_solve((root * mean).unsqueeze(-1), factor).squeeze(-1) / lam
    return Images(view, lam, beta, index, half.mT @ half / lam**2, centre)


def rows(images: Images, at: tuple[Tensor, Tensor, Tensor]) -> Rows:
    """Return the images for n pairs; ``at`` has the positions (n,) int64 of their views, learners and arms."""
    owner, learner, arm = at
    view, index = images.view, images.pulled[owner, learner]
    which = owner.unsqueeze(-1)
    unit = view.unit[which, index]
    inner = view.inner[owner, arm].gather(-1, index).unsqueeze(-1)
    low = torch.cat([inner * view.slope[which, index], unit, torch.ones_like(unit[..., :1])], -1)
    centre = view.theta[owner, arm] + (images.centre[owner, learner].unsqueeze(-2) @ low).squeeze(-2)
    z, outer = torch.ones_like(centre).tensor_split([centre.shape[-1] // 2], -1)
    scale = torch.cat([z * view.inner[owner, arm, arm].unsqueeze(-1), outer], -1) / images.lam
    return Rows(centre, scale, low, images.weight[owner, learner] @ low)


def layers(theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return z (..., H), W₂ (..., H) and c₂ (...) of θ (..., 2H + 1)."""
    hidden = theta.shape[-1] // 2
    return theta[..., :hidden], theta[..., hidden:-1], theta[..., -1]


def value(theta: Tensor) -> Tensor:
    """Return the network's output f = Σ_j W₂ⱼσ(zⱼ) + c₂ at θ (..., 2H + 1)."""
    z, w2, c2 = layers(theta)
    return (w2 * torch.sigmoid(z)).sum(-1) + c2


def slope(theta: Tensor) -> Tensor:
    """Return the gradient h = ∂f/∂θ = (W₂σ'(z), σ(z), 1) at θ, (..., 2H + 1)."""
    z, w2, c2 = layers(theta)
    unit = torch.sigmoid(z)
    return torch.cat([w2 * unit * (1 - unit), unit, torch.ones_like(c2).unsqueeze(-1)], -1)
