"""The image θ = A_x w of the parameter on which the value of one arm x depends, and the image of the ball (eq. 4).

f_x(w) = Σ_j W₂ⱼσ(zⱼ) + c₂ with zⱼ = W₁ⱼ·x + c₁ⱼ and the sigmoid σ depends on the parameter w = (W₁, c₁, W₂, c₂) of a
network with H hidden units only through θ = A_x w = (z, W₂, c₂), which has 2H + 1 numbers. The confidence ball
{w : ‖w − ŵ‖²_Σ ≤ β} has the ridge estimate ŵ as its centre, the matrix Σ of the learner's data and the squared radius
β. The matrix A_x maps it onto {θ̂ + C_x u : uᵀC_x u ≤ β} with θ̂ = A_x ŵ and C_x = A_xΣ⁻¹A_xᵀ. We call u the dual
point. With the regularisation weight λ, the rank of C_x − A_xA_xᵀ/λ is at most the number m of arms pulled so far,
which is small. Only the images A_x g_k of the gradients g_k of these arms and their Gram matrix are needed.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fedgo.confidence import Tally
from fedgo.network import Network


class View(NamedTuple):
    """The images of the parameter ŵ₀ of Phase I and of the arms' gradients at ŵ₀, for each of K arms.

    The network has H hidden units with inputs zⱼ, the sigmoid σ and output weights W₂ⱼ. The matrix A_x maps a parameter
    to the 2H + 1 numbers on which the output at the arm x depends: the inputs zⱼ, the weights W₂ⱼ and the output's
    bias. The image of the gradient g_k of the arm k for the arm x is A_x g_k = (inner_xk·slope_k, unit_k, 1).

    Args:
        theta: The image A_x ŵ₀ of ŵ₀ for each arm x, (..., K, 2H + 1).
        slope: The number W₂ⱼσ'(zⱼ) for each arm and hidden unit j, (..., K, H).
        unit: The output σ(zⱼ) of each hidden unit j for each arm, (..., K, H).
        inner: The number 1 + x·x_k for each pair of arms with the features x and x_k, (..., K, K).
        gram: The inner product g_x·g_k of the gradients of each pair of arms, (..., K, K).
    """

    theta: Tensor
    slope: Tensor
    unit: Tensor
    inner: Tensor
    gram: Tensor

    @property
    def size(self) -> Tensor:
        """The number 1 + |x|² of each of K arms, (..., K), where x are the arm's features."""
        return self.inner.diagonal(dim1=-2, dim2=-1)


def view(network: Network, w0: Tensor, arms: Tensor) -> View:
    """Return the images of the parameter ŵ₀ and of the arms' gradients at ŵ₀, which stay the same during Phase II.

    The image of a parameter or a gradient for an arm is the 2H + 1 numbers on which the output of a network with H
    hidden units at this arm depends: the inputs of the hidden units, the output weights and the output's bias.

    Args:
        network: The two-layer network, with d_w parameters and inputs of dimension d_x.
        w0: The parameter ŵ₀ of Phase I, (..., d_w).
        arms: The features of K arms, (..., K, d_x); the leading axes of ``w0`` and ``arms`` broadcast.

    Raises:
        ValueError: The last axis of ``w0`` does not have the length d_w.
        RuntimeError: The last axis of ``arms`` does not have the length d_x.
    """
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

    With the gradients of these arms, in d_w parameters, as the rows of G (m, d_w), the ball of a learner has the centre
    ŵ = ŵ₀ + Gᵀ·``centre``, where ŵ₀ is the parameter of Phase I. The matrix A_x maps a parameter w to the numbers on
    which the network's output at the arm x depends. The image of the ball under A_x is {A_x ŵ + C_x u : uᵀC_x u ≤ β}
    with the matrix C_x = A_xA_xᵀ/λ − A_xGᵀ·``weight``·GA_xᵀ.

    Args:
        view: The images of ŵ₀ and of the arms' gradients at ŵ₀, one for each of the V parameters ŵ₀.
        lam: The regularisation weight λ.
        beta: The squared radius β of the balls.
        pulled: The numbers of the pulled arms, (V, M, m) int64. A learner that has pulled fewer than m arms has arms
            without pulls here too, whose entries of ``weight`` and ``centre`` are 0.
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
    """The images of the balls for n pairs of a learner and an arm, for a network with H hidden units.

    The image for the arm x is {``centre`` + C_x u : uᵀC_x u ≤ β} for the squared radius β, with the matrix C_x =
    diag(``scale``) − ``low``ᵀ``heavy``. ``centre`` (n, 2H + 1) is the image A_x ŵ of the ball's centre ŵ, where A_x
    maps a parameter to the 2H + 1 numbers on which the network's output at the arm depends. ``scale`` (n, 2H + 1) is
    the diagonal of A_xA_xᵀ/λ, with the regularisation weight λ. ``low`` (n, m, 2H + 1) has the images of the gradients
    of the m arms that a learner has pulled, and ``heavy`` (n, m, 2H + 1) is the matrix ``weight`` of `Images` times
    ``low``.
    """

    centre: Tensor
    scale: Tensor
    low: Tensor
    heavy: Tensor

    def times(self, h: Tensor) -> Tensor:
        """Return the product C_x h of the matrix C_x of each of the n images with its vector h, (n, 2H + 1).

        C_x is diag(``scale``) − ``low``ᵀ``heavy``. ``h`` (n, 2H + 1) has one vector for each image, and H is the number
        of the network's hidden units.
        """
        return self.scale * h - (self.low.mT @ (self.heavy @ h.unsqueeze(-1))).squeeze(-1)


def images(view: View, lam: float, beta: float, tally: Tally) -> Images:
    """Return the confidence balls of M learners with each of V views, in terms of the arms that a learner has pulled.

    Each learner takes one Cholesky factorisation of I + diag(√n)GGᵀdiag(√n)/λ, with the counts n (m,) and the gradients
    G (m, d_w), in d_w parameters, of its pulled arms. m is the largest number of arms that any learner has pulled, or 1
    if no learner has pulled an arm. A learner that has pulled fewer arms is given further arms, with the count 0.

    Args:
        view: The images of V parameters ŵ₀ and of the gradients there, for K arms.
        lam: The regularisation weight λ > 0, which is not checked.
        beta: The squared radius β of the balls.
        tally: The counts and the summed residuals of the learners' data, (V, M, K).

    Raises:
        torch.linalg.LinAlgError: The gradient of a pulled arm is NaN, or λ is 0 or so small for the gradients and the
            counts that the factorisation fails in float64.
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
    """Return the image of a learner's confidence ball for an arm, for each of n pairs of a learner and an arm.

    Args:
        images: The balls of M learners with each of V views.
        at: Three tensors (n,) int64 in this order: the positions of the views, from 0 to V − 1, of the learners, from 0
            to M − 1, and of the arms.

    Raises:
        IndexError: A position is too large. A negative position is not refused; it counts from the end.
    """
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
    """Return the three parts of θ = (z, W₂, c₂) = ``theta`` (..., 2H + 1), for a network with H hidden units.

    Returns:
        The inputs z (..., H) of the hidden units, the output weights W₂ (..., H), and the output's bias c₂ (...).
    """
    hidden = theta.shape[-1] // 2
    return theta[..., :hidden], theta[..., hidden:-1], theta[..., -1]


def value(theta: Tensor) -> Tensor:
    """Return the network's output f = Σ_j W₂ⱼσ(zⱼ) + c₂, (...), at θ = (z, W₂, c₂) = ``theta`` (..., 2H + 1).

    z (..., H) are the inputs of the H hidden units, σ is the sigmoid, W₂ (..., H) are the output weights, and c₂ (...)
    is the output's bias.
    """
    z, w2, c2 = layers(theta)
    return (w2 * torch.sigmoid(z)).sum(-1) + c2


def slope(theta: Tensor) -> Tensor:
    """Return the gradient h = ∂f/∂θ, (..., 2H + 1), of the output f of a network at ``theta``, (..., 2H + 1).

    θ = (z, W₂, c₂) = ``theta`` has the inputs z of the H hidden units, the output weights W₂ and the output's bias c₂.
    The output is f = Σ_j W₂ⱼσ(zⱼ) + c₂ with the sigmoid σ, and the gradient (W₂σ'(z), σ(z), 1).
    """
    z, w2, c2 = layers(theta)
    unit = torch.sigmoid(z)
    return torch.cat([w2 * unit * (1 - unit), unit, torch.ones_like(c2).unsqueeze(-1)], -1)
