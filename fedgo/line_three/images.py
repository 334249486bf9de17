"""The image θ = A_x w of the parameter on which the value of one arm x depends, and the image of the ball (eq. 4).

f_x(w) = Σ_j W₂ⱼσ(zⱼ) + c₂ depends on w only through θ = A_x w = (z, W₂, c₂), 2H + 1 numbers with zⱼ = W₁ⱼ·x + c₁ⱼ. A_x
maps the ball onto {θ̂ + C_x u : uᵀC_x u ≤ β} with θ̂ = A_x ŵ and C_x = A_xΣ⁻¹A_xᵀ; we call u the dual point. The rank
of C_x − A_xA_xᵀ/λ is at most the number m of arms pulled so far, which is small. Only the images A_x g_k of the
gradients of these arms and their Gram matrix are needed.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fedgo.confidence import Tally
from fedgo.network import Network


class View(NamedTuple):
    """The images of ŵ₀ and of all gradients at ŵ₀ for each arm.

    ``theta`` (..., K, 2H + 1) is A_x ŵ₀. The image of the gradient of arm k is A_x g_k = (inner_xk·slope_k, unit_k, 1).
    Here ``slope`` (..., K, H) holds W₂ⱼσ'(zⱼ), ``unit`` (..., K, H) holds σ(zⱼ), and ``inner`` (..., K, K) holds the
    inner products 1 + x·x_k. ``gram`` (..., K, K) is GGᵀ.
    """

    theta: Tensor
    slope: Tensor
    unit: Tensor
    inner: Tensor
    gram: Tensor

    @property
    def size(self) -> Tensor:
        """1 + |x|² of each arm, (..., K)."""
        return self.inner.diagonal(dim1=-2, dim2=-1)


def view(network: Network, w0: Tensor, arms: Tensor) -> View:
    """Return the view of ``arms`` (..., K, d_x) at ŵ₀ = ``w0`` (..., d_w), which stays the same during Phase II."""
    layers = network.split(w0)
    z = arms @ layers.w1.mT + layers.c1.unsqueeze(-2)
    outer = torch.cat([layers.w2, layers.c2.unsqueeze(-1)], -1).unsqueeze(-2)
    unit = torch.sigmoid(z)
    slope = layers.w2.unsqueeze(-2) * unit * (1 - unit)
    inner = (1 + arms @ arms.mT).expand(*z.shape[:-1], -1)
    gram = inner * (slope @ slope.mT) + unit @ unit.mT + 1
    return View(torch.cat([z, outer.expand(*z.shape[:-1], -1)], -1), slope, unit, inner, gram)


class Images(NamedTuple):
    """The confidence balls of M learners with each of V views, in terms of the m arms that a learner has pulled.

    ``view`` holds what depends on ŵ₀ only, and A_x is the map of the module's equation. With the gradients of the arms
    ``pulled`` (V, M, m) as rows of G, the ball of a learner has the centre ŵ = ŵ₀ + Gᵀ·``centre``, with ``centre``
    (V, M, m). Its image for the arm x has the matrix C_x = A_xA_xᵀ/λ −
    A_xGᵀ·``weight``·GA_xᵀ, with ``weight`` (V, M, m, m). ``lam`` is λ and ``beta`` is β.
    """

    view: View
    lam: float
    beta: float
    pulled: Tensor
    weight: Tensor
    centre: Tensor


class Rows(NamedTuple):
    """The images of the balls for n pairs of a learner and an arm.

    ``centre`` (n, 2H + 1) is θ̂ and ``scale`` (n, 2H + 1) the diagonal of A_xA_xᵀ/λ. With ``low`` and ``heavy``, both
    (n, m, 2H + 1), the matrix of the image is C_x = diag(scale) − lowᵀheavy.
    """

    centre: Tensor
    scale: Tensor
    low: Tensor
    heavy: Tensor

    def times(self, h: Tensor) -> Tensor:
        """Return C_x h, (n, 2H + 1), for ``h`` (n, 2H + 1)."""
        return self.scale * h - (self.low.mT @ (self.heavy @ h.unsqueeze(-1))).squeeze(-1)


def images(view: View, lam: float, beta: float, tally: Tally) -> Images:
    """Return the confidence balls of the learners with the data ``tally`` (V, M, K).

    They take one m × m Cholesky factorisation of I + √n GGᵀ√n/λ for each learner, with the counts n of its arms.

    Args:
        view: The V views.
        lam: The regularisation weight λ.
        beta: The squared radius β.
        tally: The data.
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
    """Return the images of the balls for n pairs; ``at`` has the numbers of the views, the learners and the arms."""
    owner, learner, arm = at
    view, index = images.view, images.pulled[owner, learner]
    which = owner.unsqueeze(-1)
    unit = view.unit[which, index]
    inner = view.inner[owner, arm].gather(-1, index).unsqueeze(-1)
    low = torch.cat([inner * view.slope[which, index], unit, torch.ones_like(unit[..., :1])], -1)
    centre = view.theta[owner, arm] + (images.centre[owner, learner].unsqueeze(-2) @ low).squeeze(-2)
    z, outer = torch.ones_like(centre).tensor_split([centre.shape[-1] // 2], -1)
    scale = torch.cat([z * view.size[owner, arm].unsqueeze(-1), outer], -1) / images.lam
    return Rows(centre, scale, low, images.weight[owner, learner] @ low)


def layers(theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the parts z (..., H), W₂ (..., H) and c₂ (...) of θ = (z, W₂, c₂) = ``theta`` (..., 2H + 1)."""
    hidden = theta.shape[-1] // 2
    return theta[..., :hidden], theta[..., hidden:-1], theta[..., -1]


def value(theta: Tensor) -> Tensor:
    """Return f = Σ_j W₂ⱼσ(zⱼ) + c₂, (...), at ``theta`` (..., 2H + 1)."""
    z, w2, c2 = layers(theta)
    return (w2 * torch.sigmoid(z)).sum(-1) + c2


def slope(theta: Tensor) -> Tensor:
    """Return h = ∂f/∂θ = (W₂σ'(z), σ(z), 1), (..., 2H + 1), at ``theta`` (..., 2H + 1)."""
    z, w2, c2 = layers(theta)
    unit = torch.sigmoid(z)
    return torch.cat([w2 * unit * (1 - unit), unit, torch.ones_like(c2).unsqueeze(-1)], -1)
