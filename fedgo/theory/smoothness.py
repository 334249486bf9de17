"""The constants of Assumptions 2 and 3 for the two-layer network, in closed form: F, C_g, C_h, ζ and μ.

For a supremum over a set of parameters we need of each hidden unit j only the interval of its input z = W₁ⱼ·x + c₁ⱼ and
a bound B ≥ |W₂ⱼ|. With its output s = σ(z) and r² = 1 + |x|², its share of ‖∇f_x‖² is s² + B²r²s²(1 − s)². With
v = |1 − 2s|, its block of ∇²f_x has the norm (1 − v²)/8·(Br²v + √(B²r⁴v² + 4r²)). Both are maximised exactly; nothing
is sampled.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, require_each
from fedgo.network import Network
from fedgo.theory.assumptions import Assumptions

Ends = tuple[Tensor, Tensor]  # the lower and the upper ends of intervals

_PIECES_AT_ONCE = 40  # of a line, few enough to keep the memory small


class Region(NamedTuple):
    """A set of parameters, described by bounds on the inputs and weights of the hidden units at each arm.

    ``low`` and ``high`` (..., K, H) bound zⱼ, ``outer`` (..., H) bounds |W₂ⱼ|, ``values`` (..., K, 2) has the ends of
    an interval that contains f_x, and ``reach`` (..., K) is r² = 1 + |x|². The parameters of a `box` attain the bounds;
    those of a `segment` need not.
    """

    low: Tensor
    high: Tensor
    outer: Tensor
    values: Tensor
    reach: Tensor


def box(network: Network, low: Tensor, high: Tensor, arms: Tensor) -> Region:
    """Return the region of the box ``low`` ≤ w ≤ ``high`` (..., d_w) at ``arms`` (..., K, d_x).

    An example is W = [0, 1]^d_w.

    Raises:
        ValueError: An entry of ``low`` is above that of ``high``.
    """
    low, high = torch.broadcast_tensors(low, high)
    require_each(low <= high, "low", low, "a box needs low ≤ high; give its lower corner first")
    bottom, top = network.split(low), network.split(high)
    rise, fall = arms.clamp(min=0), arms.clamp(max=0)
    least = rise @ bottom.w1.mT + fall @ top.w1.mT + bottom.c1.unsqueeze(-2)
    most = rise @ top.w1.mT + fall @ bottom.w1.mT + top.c1.unsqueeze(-2)
    return _region((least, most), (bottom.w2, top.w2), (bottom.c2, top.c2), arms)


def segment(network: Network, start: Tensor, end: Tensor, arms: Tensor) -> Region:
    """Return the region of the line from ``start`` to ``end`` (..., d_w) at ``arms`` (..., K, d_x).

    On the line each zⱼ and W₂ⱼ lies between its values at both ends.
    """
    first, last = network.split(start), network.split(end)
    inputs = (arms @ layers.w1.mT + layers.c1.unsqueeze(-2) for layers in (first, last))
    return _region(_span(*inputs), _span(first.w2, last.w2), _span(first.c2, last.c2), arms)


def _span(first: Tensor, last: Tensor) -> Ends:
    """Return the smaller and the larger of the values at both ends of a line."""
    return torch.minimum(first, last), torch.maximum(first, last)


def _region(inner: Ends, outer: Ends, level: Ends, arms: Tensor) -> Region:
    """Return the region of all parameters with z in ``inner``, W₂ in ``outer`` and c₂ in ``level`` at ``arms``."""
    # W₂σ(z) lies between the least and the largest of the products of the intervals' ends
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

    The share s² + qs²(1 − s)² of a unit with q = B²r² is stationary at s = (3 ± √(1 − 8/q))/4, if anywhere.
    """
    q = (region.outer.square().unsqueeze(-2) * region.reach.unsqueeze(-1)).clamp(min=1e-300)
    ends = (region.low.sigmoid(), region.high.sigmoid())
    root = (1 - 8 / q).clamp(min=0).sqrt()
    candidates = [*ends, *((3 + sign * root) / 4 for sign in (-1, 1))]
    # a stationary point outside the interval is moved to its end, which is a candidate anyway
    inside = torch.stack([torch.minimum(torch.maximum(s, ends[0]), ends[1]) for s in candidates])
    share = inside.square() * (1 + q * (1 - inside).square())
    return (1 + share.amax(0).sum(-1)).sqrt().amax(-1)


def curvature_bound(region: Region) -> Tensor:
    """Return C_h = sup ‖∇²f_x(w)‖_op over the region and the arms, (...) (Assumption 2).

    The Hessian has one block for each unit. In v = |1 − 2σ(z)| the norm of a block has a single maximum on [0, 1),
    where 3q²v⁴ + (2q² + 16r²)v² = q² with q = Br².
    """
    reach = region.reach.unsqueeze(-1)
    q2 = (region.outer.unsqueeze(-2) * reach).square()
    half = 1 + 8 * reach / q2.clamp(min=1e-300)
    peak = (half + (half.square() + 3).sqrt()).rsqrt()
    ends = ((1 - 2 * region.low.sigmoid()).abs(), (1 - 2 * region.high.sigmoid()).abs())
    zero = (region.low <= 0) & (region.high >= 0)
    least, most = torch.where(zero, 0, torch.minimum(*ends)), torch.maximum(*ends)
    v = torch.minimum(torch.maximum(peak, least), most)
    return ((1 - v.square()) / 8 * (q2.sqrt() * v + (q2 * v.square() + 4 * reach).sqrt())).amax((-2, -1))


def suprema(
    network: Network, start: Tensor, end: Tensor, arms: Tensor, pieces: int = 400
) -> tuple[Tensor, Tensor, Tensor]:
    """Return upper bounds on F, C_g and C_h over the line from ``start`` to ``end``, (...) each.

    The bounds of a `segment` let all units vary independently, which no single w does. On each of many short parts of
    the line this makes little difference, and the largest bound of a part tends to the supremum from above.

    Args:
        network: The class F.
        start: The first end of the line, (..., d_w).
        end: The last end of the line, (..., d_w).
        arms: The arms, (..., K, d_x).
        pieces: The number of equal parts.
    """
    count("pieces", pieces, "give the number of parts, at least one")
    share = torch.linspace(0, 1, pieces + 1, dtype=torch.float64).unsqueeze(-1)
    bounds: list[list[Tensor]] = []
    for ends in share.unfold(0, 2, 1).split(_PIECES_AT_ONCE):
        first, last = (torch.lerp(start.unsqueeze(-2), end.unsqueeze(-2), at) for at in ends.unbind(-1))
        region = segment(network, first, last, arms.unsqueeze(-3))
        bounds.append([bound(region).amax(-1) for bound in (value_bound, gradient_bound, curvature_bound)])
    value, slope, curvature = (torch.stack(pieces_of).amax(0) for pieces_of in zip(*bounds, strict=True))
    return value, slope, curvature


class LossCurvature(NamedTuple):
    """Eigenvalues of the Hessian ∇²L(w*) of the loss L(w) = E(f_x(w) − f_x(w*))², (...) each.

    ``mu`` is the smallest eigenvalue μ, ``zeta`` the largest one ζ, and ``mu_plus`` the smallest one μ₊ on the span of
    the gradients.
    """

    mu: Tensor
    mu_plus: Tensor
    zeta: Tensor


def loss_curvature(gradients: Tensor) -> LossCurvature:
    """Return μ, μ₊ and ζ of Assumption 3 from the ``gradients`` (..., K, d_w) at w*.

    With the gradients as the rows of J, ∇²L(w*) = (2/K)JᵀJ. If K < d_w, μ is exactly 0, and μ₊ is 2/K times the square
    of the least singular value of J, which is positive if J has full row rank.
    """
    arms, dimension = gradients.shape[-2:]
    few = gradients if arms <= dimension else gradients.mT
    values = 2 / arms * torch.linalg.eigvalsh(few @ few.mT).clamp(min=0)
    least = values[..., 0]
    return LossCurvature(torch.zeros_like(least) if arms < dimension else least, least, values[..., -1])


def measured(
    network: Network, start: Tensor, end: Tensor, arms: Tensor, noise: float
) -> list[tuple[Assumptions, float]]:
    """Return for each of S runs a pair: the constants of Assumptions 2 and 3 between ŵ₀ and w*, and the ζ of Lemma 2.

    μ₊ takes the place of μ, because the true μ is 0 with fewer arms than parameters. F, C_g and C_h are the `suprema`
    on the line from ŵ₀ to w*, which lies in every convex parameter set W that contains both. Assumption 1 needs W in
    the unit cube. Therefore lengths are in units of the side of the smallest centred cube that contains ŵ₀ and w*: C_g
    is multiplied by the side, and C_h, μ₊ and ζ by its square.

    Args:
        network: The class F.
        start: ŵ₀, (S, d_w).
        end: w*, (S, d_w).
        arms: The arms, (S, K, d_x).
        noise: The standard deviation σ of the noise.
    """
    side = 2 * torch.stack([start, end]).abs().amax((0, 2))
    value, slope, curvature = suprema(network, start, end, arms)
    loss = loss_curvature(network.gradients(end, arms))
    scaled = (value, side * slope, side**2 * curvature, side**2 * loss.mu_plus, side**2 * loss.zeta)
    return [
        (Assumptions(network.size, value, slope, curvature, noise, growth), zeta)
        for value, slope, curvature, growth, zeta in torch.stack(scaled, 1).tolist()
    ]
