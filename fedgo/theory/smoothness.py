"""The constants of Assumptions 2 and 3 for the two-layer network, in closed form: F, C_g, C_h, ζ and μ.

A supremum over a set of parameters needs of a unit only the interval of its input z = W₁ⱼx + c₁ⱼ and B ≥ |W₂ⱼ|. With
s = σ(z) and r² = 1 + |x|² its share of |∇f_x|² is s² + B²r²s²(1 − s)², and with v = 1 − 2s its block of ∇²f_x has the
norm (1 − v²)/8 · (Br²v + √(B²r⁴v² + 4r²)); both are maximised exactly, nothing is sampled.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, require_each
from fedgo.network import Network
from fedgo.theory.assumptions import Assumptions

Ends = tuple[Tensor, Tensor]  # of an interval

_TOGETHER = 40  # pieces of a line at a time


class Region(NamedTuple):
    """A set of parameters, described by what the units can be at each arm.

    ``low`` and ``high`` (..., K, H) bound zⱼ, ``outer`` (..., H) bounds |W₂ⱼ|, ``values`` (..., K, 2) is the interval
    of f_x, and ``reach`` (..., K) is r² = 1 + |x|². The parameters of a `box` attain these bounds; those of a `segment`
    may not.
    """

    low: Tensor
    high: Tensor
    outer: Tensor
    values: Tensor
    reach: Tensor


def box(network: Network, low: Tensor, high: Tensor, arms: Tensor) -> Region:
    """Return the region of the box ``low`` ≤ w ≤ ``high`` (..., d_w), for instance W = [0, 1]^d_w, at ``arms`` (..., K,
    d_x).
    """
    low, high = torch.broadcast_tensors(low, high)
    require_each(low <= high, "low", low, "a box needs low ≤ high; give its lower corner first")
    bottom, top = network.split(low), network.split(high)
    rise, fall = arms.clamp(min=0), arms.clamp(max=0)
    least = rise @ bottom.w1.mT + fall @ top.w1.mT + bottom.c1.unsqueeze(-2)
    most = rise @ top.w1.mT + fall @ bottom.w1.mT + top.c1.unsqueeze(-2)
    return _region((least, most), (bottom.w2, top.w2), (bottom.c2, top.c2), arms)


def segment(network: Network, start: Tensor, end: Tensor, arms: Tensor) -> Region:
    """Return the region of the line from ``start`` to ``end`` (..., d_w), where each zⱼ and W₂ⱼ is between its two end
    values.
    """
    one, two = network.split(start), network.split(end)
    inputs = (arms @ layers.w1.mT + layers.c1.unsqueeze(-2) for layers in (one, two))
    return _region(_span(*inputs), _span(one.w2, two.w2), _span(one.c2, two.c2), arms)


def _span(one: Tensor, two: Tensor) -> Ends:
    """Return the smaller and the larger of the values at both ends."""
    return torch.minimum(one, two), torch.maximum(one, two)


def _region(inner: Ends, outer: Ends, level: Ends, arms: Tensor) -> Region:
    """Return the region with z in ``inner``, W₂ in ``outer`` and c₂ in ``level``."""
    # a unit's output W₂σ(z) lies between the least and the largest of the products of the intervals' ends
    products = torch.stack([weight.unsqueeze(-2) * z.sigmoid() for weight in outer for z in inner])
    ends = (products.amin(0), products.amax(0))
    values = [end.sum(-1) + c2.unsqueeze(-1) for end, c2 in zip(ends, level, strict=True)]
    largest = torch.maximum(*(weight.abs() for weight in outer))
    return Region(*inner, largest, torch.stack(values, -1), 1 + arms.square().sum(-1))


def value_bound(region: Region) -> Tensor:
    """Return F = sup |f_x(w)| over the region and the arms, (...) (Assumption 2)."""
    return region.values.abs().amax((-2, -1))


def gradient_bound(region: Region) -> Tensor:
    """Return C_g = sup ‖∇f_x(w)‖₂ over the region and the arms, (...) (Assumption 2).

    s² + cs²(1 − s)² with c = B²r² is stationary at s = (3 ± √(1 − 8/c))/4, if it is stationary anywhere.
    """
    c = (region.outer.square().unsqueeze(-2) * region.reach.unsqueeze(-1)).clamp(min=1e-300)
    ends = (region.low.sigmoid(), region.high.sigmoid())
    root = (1 - 8 / c).clamp(min=0).sqrt()
    candidates = [*ends, *((3 + sign * root) / 4 for sign in (-1, 1))]
    # a stationary point outside the interval is moved to its end, which is a candidate anyway
    inside = torch.stack([torch.minimum(torch.maximum(s, ends[0]), ends[1]) for s in candidates])
    share = inside.square() * (1 + c * (1 - inside).square())
    return (1 + share.amax(0).sum(-1)).sqrt().amax(-1)


def curvature_bound(region: Region) -> Tensor:
    """Return C_h = sup ‖∇²f_x(w)‖_op over the region and the arms, (...) (Assumption 2).

    The Hessian has one block for each unit. In v = |1 − 2σ(z)| the norm of a block has a single maximum on [0, 1),
    where 3a²v⁴ + (2a² + 16r²)v² = a² with a = Br².
    """
    reach = region.reach.unsqueeze(-1)
    a2 = (region.outer.unsqueeze(-2) * reach).square()
    half = 1 + 8 * reach / a2.clamp(min=1e-300)
    peak = (half + (half.square() + 3).sqrt()).rsqrt()
    ends = ((1 - 2 * region.low.sigmoid()).abs(), (1 - 2 * region.high.sigmoid()).abs())
    zero = (region.low <= 0) & (region.high >= 0)
    least, most = torch.where(zero, 0, torch.minimum(*ends)), torch.maximum(*ends)
    v = torch.minimum(torch.maximum(peak, least), most)
    return ((1 - v.square()) / 8 * (a2.sqrt() * v + (a2 * v.square() + 4 * reach).sqrt())).amax((-2, -1))


def suprema(
    network: Network, start: Tensor, end: Tensor, arms: Tensor, pieces: int = 400
) -> tuple[Tensor, Tensor, Tensor]:
    """Return upper bounds on F, C_g and C_h, (...), over the line from ``start`` to ``end`` (..., d_w) at ``arms``.

    Over a whole `segment` the bounds let all units vary independently, which no single w allows. Over each of its
    ``pieces`` equal parts there is little room for that, and the largest bound of a part tends to the supremum from
    above.
    """
    count("pieces", pieces, "give the number of parts, at least one")
    share = torch.linspace(0, 1, pieces + 1, dtype=torch.float64).unsqueeze(-1)
    bounds: list[list[Tensor]] = []
    for part in share.unfold(0, 2, 1).split(_TOGETHER):  # as many pieces at once as keep the memory small
        first, last = (torch.lerp(start.unsqueeze(-2), end.unsqueeze(-2), at) for at in part.unbind(-1))
        region = segment(network, first, last, arms.unsqueeze(-3))
        bounds.append([bound(region).amax(-1) for bound in (value_bound, gradient_bound, curvature_bound)])
    value, slope, curvature = (torch.stack(each).amax(0) for each in zip(*bounds, strict=True))
    return value, slope, curvature


class LossCurvature(NamedTuple):
    """Eigenvalues of the Hessian of L(w) = E(f_x(w) − f_x(w*))² at w*, (...) each.

    ``mu`` and ``zeta`` are the smallest and the largest eigenvalue of ∇²L(w*) in R^d_w, and ``mu_plus`` is the smallest
    on the span of the gradients.
    """

    mu: Tensor
    mu_plus: Tensor
    zeta: Tensor


def loss_curvature(gradients: Tensor) -> LossCurvature:
    """Return μ, μ₊ and ζ from the ``gradients`` J (..., K, d_w) at w*, where ∇²L(w*) = (2/K)JᵀJ (Assumption 3).

    With K < d_w arms μ is exactly 0 at every w*, and μ₊ = (2/K)σ_min(J)² is positive if J has full row rank.
    """
    arms, dimension = gradients.shape[-2:]
    few = gradients if arms <= dimension else gradients.mT
    values = 2 / arms * torch.linalg.eigvalsh(few @ few.mT).clamp(min=0)
    least = values[..., 0]
    return LossCurvature(torch.zeros_like(least) if arms < dimension else least, least, values[..., -1])


def measured(
    network: Network, start: Tensor, end: Tensor, arms: Tensor, noise: float
) -> list[tuple[Assumptions, float]]:
    """Return, for each run, the constants of Assumptions 2 and 3 between ŵ₀ and w*, and the ζ that Lemma 2 asks for.

    μ₊ takes the place of μ, because the true μ is 0 with fewer arms than parameters. Assumption 1 wants W in the unit
    cube: the smallest centred cube that holds both points has a side s, and in units of it C_g becomes sC_g, and C_h, μ
    and ζ become s²C_h, s²μ and s²ζ. F, C_g and C_h are the `suprema` on the line, which each convex W with these points
    contains.

    Args:
        network: The class F.
        start: ŵ₀, (R, d_w).
        end: w*, (R, d_w).
        arms: The arms, (R, K, d_x).
        noise: The standard deviation σ of the noise.
    """
    side = 2 * torch.stack([start, end]).abs().amax((0, 2))
    (value, slope, curvature), loss = suprema(network, start, end, arms), network.gradients(end, arms)
    squared = (side**2 * part for part in (curvature, *loss_curvature(loss)[1:]))
    columns = zip(*(part.tolist() for part in (value, side * slope, *squared)), strict=True)
    return [
        (Assumptions(network.size, value, slope, curvature, noise, growth), zeta)
        for value, slope, curvature, growth, zeta in columns
    ]
