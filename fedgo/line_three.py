"""Line 3 of Algorithm 1 as printed: max f_x(w) over w ∈ Ball, by projected ascent in the Σ-geometry.

f_x(w) = Σ_j W₂ⱼσ(zⱼ) + c₂ sees w only through θ = A_x w = (z, W₂, c₂), 2H + 1 numbers with zⱼ = W₁ⱼ·x + c₁ⱼ,
and A_x maps the ball onto {θ̂ + C_x u : uᵀC_x u ≤ β}, C_x = A_xΣ⁻¹A_xᵀ. A step u ← Π(u + η√β h/‖h‖_{C_x}) with
h = ∂f/∂θ is the projected step w ← Π(w + η√β Σ⁻¹∇f/‖∇f‖_{Σ⁻¹}) of parameter space, exactly.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo.confidence import Coordinates, Tally, precision_factor
from fedgo.network import Network

FIRST_STEP = 1.0  # η of the first step; it doubles on success and falls to an eighth on failure
LAST_STEP = 1e-3  # … until it is smaller than this
MOST_STEPS = 200
RELATIVE_GAIN = 1e-9  # an improvement below this is not worth a step
_CHUNK = 512  # arms ascended at once: their matrices stay in a cache
_STRIDE = 2  # steps between two looks at which arms are done
_TOP_CURVATURE = 1 / (6 * math.sqrt(3))  # sup |σ''|
_TOP_SLOPE = 0.25  # sup σ'


class View(NamedTuple):
    """What the arms see of the parameter space: A_x ŵ₀, the diagonal of A_x A_xᵀ, A_x U and the coordinates.

    ``theta`` and ``scale`` (..., K, 2H + 1), ``map`` (..., K, 2H + 1, r), ``features`` (..., K, r).
    """

    theta: Tensor
    scale: Tensor
    map: Tensor
    features: Tensor


class Optimum(NamedTuple):
    """The ``value`` found for every arm (..., K), which arms were ``ascended``, and the dual point ``u``.

    The point is w = ŵ + Σ⁻¹A_xᵀu, ``u`` (..., K, 2H + 1). An arm that was not ascended has its linear solution.
    """

    value: Tensor
    ascended: Tensor
    u: Tensor


class Climb(NamedTuple):
    """Arms on their way up: value f (..., K), dual point u and C_x u (..., K, 2H + 1), and step η (..., K)."""

    value: Tensor
    u: Tensor
    moved: Tensor
    step: Tensor


def view(network: Network, w0: Tensor, arms: Tensor, coordinates: Coordinates) -> View:
    """The view of ``arms`` (..., K, d_x) from ŵ₀ = ``w0`` (..., d_w), computed once for all of Phase II."""
    layers = network.split(w0)
    z = arms @ layers.w1.mT + layers.c1.unsqueeze(-2)
    outer = torch.cat([layers.w2, layers.c2.unsqueeze(-1)], -1).unsqueeze(-2)
    theta = torch.cat([z, outer.expand(*z.shape[:-1], -1)], -1)
    size = 1 + arms.square().sum(-1, keepdim=True)
    scale = torch.cat([size.expand_as(z), torch.ones_like(theta[..., network.hidden :])], -1)
    columns = network.split(coordinates.basis.mT)  # the layers of every basis vector, (..., r, H, d_x)
    upper = torch.einsum("...rhd,...kd->...khr", columns.w1, arms) + columns.c1.mT.unsqueeze(-3)
    lower = torch.cat([columns.w2, columns.c2.unsqueeze(-1)], -1).mT.unsqueeze(-3)
    lower = lower.expand(*upper.shape[:-2], *lower.shape[-2:])
    return View(theta, scale, torch.cat([upper, lower], -2), coordinates.features)


class Images(NamedTuple):
    """The images of the ball that the arms see: {θ̂ + C_x u : uᵀC_x u ≤ β} with θ̂ = ``centre`` (..., K, 2H + 1).

    C_x = A_xA_xᵀ/λ + A_xU ``excess`` (A_xU)ᵀ, ``excess`` (..., r, r) = Σ⁻¹ − I/λ in the coordinates; ``root`` = √β.
    """

    view: View
    lam: float
    root: float
    centre: Tensor
    excess: Tensor

    def times(self, h: Tensor, seen: Tensor) -> Tensor:
        """C_x h for h (..., K, 2H + 1), given ``seen`` = (A_x U)ᵀh (..., K, r)."""
        far = torch.einsum("...kjr,...kr->...kj", self.view.map, seen @ self.excess)
        return self.view.scale * h / self.lam + far

    def matrices(self, at: tuple[Tensor, ...]) -> Tensor:
        """C_x (n, 2H + 1, 2H + 1) of the arms ``at`` (n indices along each axis)."""
        shape = (*self.centre.shape[:-1], -1)
        chart, scale = self.view.map.expand(*shape, -1)[at], self.view.scale.expand(shape)[at]
        c = chart @ self.excess[at[:-1]] @ chart.mT
        c.diagonal(dim1=-2, dim2=-1).add_(scale / self.lam)
        return c


def line_three(view: View, lam: float, beta: float, tally: Tally, rule_out: bool = True) -> Optimum:
    """max_{w ∈ Ball} f_x(w) for the ball of ``tally`` (..., K), from the linear solution of every arm.

    With ``rule_out`` an arm is ascended only where it can be the argmax: its second-order upper bound over the
    ball reaches the best linear solution, and it is not the only such arm. The choice is the same without.
    """
    images = _images(view, lam, beta, tally)
    climb = _linear_solution(images)
    ascended = torch.ones_like(climb.value, dtype=torch.bool)
    if rule_out:
        ascended = _upper_bound(images) >= climb.value.amax(-1, keepdim=True)
        ascended &= ascended.sum(-1, keepdim=True) > 1
    for part in ascended.nonzero().split(_CHUNK):
        at = tuple(part.T)
        below = Climb(*(field[at] for field in climb))
        finished = _finish(images.centre[at], below, images.matrices(at), images.root)
        for field, new in zip(climb, finished, strict=True):
            field[at] = new
    return Optimum(climb.value, ascended, climb.u)


def _images(view: View, lam: float, beta: float, tally: Tally) -> Images:
    inverse = torch.cholesky_inverse(precision_factor(view.features, lam, tally))
    shift = inverse @ (view.features.mT @ tally.sums.unsqueeze(-1))
    centre = view.theta + torch.einsum("...kjr,...r->...kj", view.map, shift.squeeze(-1))
    excess = inverse - torch.eye(inverse.shape[-1], dtype=inverse.dtype) / lam
    return Images(view, lam, math.sqrt(beta), centre, excess)


def _linear_solution(images: Images) -> Climb:
    """Where f linearised at ŵ₀ is largest: u = √β h/‖h‖_{C_x}, with h its gradient in θ."""
    h = _slope(images.view.theta)
    moved = images.times(h, images.view.features)
    norm = (h * moved).sum(-1, keepdim=True).sqrt()
    value = _value(images.centre + images.root * moved / norm)
    u = (images.root * h / norm).expand(*value.shape, -1).clone()
    return Climb(value, u, images.root * moved / norm, torch.full_like(value, FIRST_STEP))


def _upper_bound(images: Images) -> Tensor:
    """f_x(ŵ) + √β‖∇f_x(ŵ)‖_{Σ⁻¹} + β/(2λ)·sup ‖∇²f_x‖ ≥ max_{w ∈ Ball} f_x(w), (..., K)."""
    h = _slope(images.centre)
    seen = torch.einsum("...kj,...kjr->...kr", h, images.view.map)
    steepest = (h * images.times(h, seen)).sum(-1).clamp(min=0).sqrt()
    reach = images.root**2 / images.lam  # |w − ŵ|² at most
    bend = _curvature(images.view, images.centre, math.sqrt(reach))
    return _value(images.centre) + images.root * steepest + reach / 2 * bend


def _ascend(centre: Tensor, climb: Climb, c: Tensor, root: float) -> Climb:
    """Some steps of projected ascent of n arms; a step that does not improve is not taken."""
    for _ in range(_STRIDE):
        h = _slope(centre + climb.moved)
        ch = (c @ h.unsqueeze(-1)).squeeze(-1)
        rate = (climb.step * root / (h * ch).sum(-1).sqrt()).unsqueeze(-1)
        u, moved = climb.u + rate * h, climb.moved + rate * ch
        shrink = (root / (u * moved).sum(-1, keepdim=True).clamp(min=1e-300).sqrt()).clamp(max=1)
        u, moved = u * shrink, moved * shrink
        value = _value(centre + moved)
        better = value > climb.value + RELATIVE_GAIN * climb.value.abs()
        wide = better.unsqueeze(-1)
        climb = Climb(
            torch.where(better, value, climb.value),
            torch.where(wide, u, climb.u),
            torch.where(wide, moved, climb.moved),
            torch.where(better, 2 * climb.step, climb.step / 8),
        )
    return climb


def _finish(centre: Tensor, climb: Climb, c: Tensor, root: float) -> Climb:
    """Ascend n arms with their matrices ``c`` (n, 2H + 1, 2H + 1) until the steps of all are small."""
    done = Climb(*(part.clone() for part in climb))
    left = torch.arange(len(centre))
    for _ in range(MOST_STEPS // _STRIDE):
        climb = _ascend(centre, climb, c, root)
        active = climb.step >= LAST_STEP
        if active.sum() <= 0.7 * len(left):
            for field, new in zip(done, climb, strict=True):
                field[left] = new
            left, centre, c = left[active], centre[active], c[active]
            climb = Climb(*(part[active] for part in climb))
        if not len(left):
            break
    for field, new in zip(done, climb, strict=True):
        field[left] = new
    return done


def points(
    network: Network,
    arms: Tensor,
    w0: Tensor,
    coordinates: Coordinates,
    lam: float,
    tally: Tally,
    u: Tensor,
) -> Tensor:
    """The parameters w = ŵ + Σ⁻¹A_xᵀu (..., K, d_w) of the dual points ``u`` of an `Optimum`."""
    features, basis = coordinates
    inverse = torch.cholesky_inverse(precision_factor(features, lam, tally))
    shift = inverse @ (features.mT @ tally.sums.unsqueeze(-1))
    z = u[..., : network.hidden]
    lifted = torch.cat([(z.unsqueeze(-1) * arms.unsqueeze(-2)).flatten(-2), u], -1)
    seen = lifted @ basis
    centre = w0.unsqueeze(-2) + (basis @ shift).mT
    return centre + lifted / lam + (seen @ inverse - seen / lam) @ basis.mT


def _layers(theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    hidden = theta.shape[-1] // 2
    return theta[..., :hidden], theta[..., hidden:-1], theta[..., -1]


def _value(theta: Tensor) -> Tensor:
    z, w2, c2 = _layers(theta)
    return (w2 * torch.sigmoid(z)).sum(-1) + c2


def _slope(theta: Tensor) -> Tensor:
    """h = ∂f/∂θ = (W₂σ'(z), σ(z), 1)."""
    z, w2, c2 = _layers(theta)
    unit = torch.sigmoid(z)
    return torch.cat([w2 * unit * (1 - unit), unit, torch.ones_like(c2).unsqueeze(-1)], -1)


def _curvature(view: View, centre: Tensor, reach: float) -> Tensor:
    """A bound (..., K) on ‖∇²f_x‖_op within |w − ŵ| ≤ ``reach``: the Hessian is one 2 × 2 block per unit.

    The block of unit j is [[W₂ⱼσ''s², σ's], [σ's, 0]] with s = |(x, 1)|, its largest eigenvalue increasing in
    both |W₂ⱼσ''| and σ'.
    """
    outer = _layers(centre)[1].abs().amax(-1) + reach
    size = view.scale[..., 0]
    bend = outer * _TOP_CURVATURE * size
    return (bend + (bend.square() + 4 * _TOP_SLOPE**2 * size).sqrt()) / 2
