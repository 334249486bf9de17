"""The constants of Assumptions 2 and 3 for the two-layer network, in closed form: F, C_g, C_h, ζ and μ.

F, C_g and C_h bound |f_x|, ‖∇f_x‖ and ‖∇²f_x‖ over a set of parameters w and the K arms x, (..., K, d_x); ζ and μ are
the largest and the smallest eigenvalue of the Hessian of the loss at w*. The output is f_x(w) = Σⱼ W₂ⱼσ(zⱼ) + c₂, with
the logistic sigmoid σ and the input zⱼ = W₁ⱼ·x + c₁ⱼ of each of H hidden units j.

The suprema for C_g and C_h depend only on the interval of each zⱼ and on a bound B ≥ |W₂ⱼ|; that for F depends on the
intervals of W₂ⱼ and c₂, too. With s = σ(z) and r² = 1 + |x|², the share of a unit in ‖∇f_x‖² is s² + B²r²s²(1 − s)²,
which is stationary at s = (3 ± √(1 − 8/(B²r²)))/4 at most, and c₂ adds 1. With v = |1 − 2s| and q = Br², the unit's
block in ∇²f_x has the norm (1 − v²)/8·(qv + √(q²v² + 4r²)), whose single maximum on 0 ≤ v < 1 is where 3q²v⁴ + (2q² +
16r²)v² = q². Nothing is sampled.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import require_each
from fedgo.network import Network
from fedgo.theory.assumptions import Assumptions

Ends = tuple[Tensor, Tensor]  # the lower ends and the upper ends of intervals

_PIECES = 400  # the parts of a line
_PIECES_AT_ONCE = 40  # parts of a line whose bounds are computed at once, which bounds the memory


class Region(NamedTuple):
    """A set of parameters w, described by bounds at each arm.

    A parameter of a `box` attains each bound; in a `segment` none need attain it.

    Args:
        low: Lower bounds on the inputs zⱼ, (..., K, H).
        high: Upper bounds on the inputs zⱼ, (..., K, H).
        outer: Upper bounds on |W₂ⱼ|, (..., H).
        values: The lower and the upper end of an interval that contains f_x(w), (..., K, 2).
        reach: 1 + |x|² of each arm, (..., K).
    """

    low: Tensor
    high: Tensor
    outer: Tensor
    values: Tensor
    reach: Tensor


def box(network: Network, low: Tensor, high: Tensor, arms: Tensor) -> Region:
    """Return the region of the box of parameters ``low`` ≤ w ≤ ``high``, (..., d_w), for instance W = [0, 1]^d_w."""
    low, high = torch.broadcast_tensors(low, high)
    require_each(low <= high, "low", low, "a box needs low ≤ high; give its lower corner first")
    bottom, top = network.split(low), network.split(high)
    rise, fall = arms.clamp(min=0), arms.clamp(max=0)
    least = rise @ bottom.w1.mT + fall @ top.w1.mT + bottom.c1.unsqueeze(-2)
    most = rise @ top.w1.mT + fall @ bottom.w1.mT + top.c1.unsqueeze(-2)
    return _region((least, most), (bottom.w2, top.w2), (bottom.c2, top.c2), arms)


def segment(network: Network, start: Tensor, end: Tensor, arms: Tensor) -> Region:
    """Return a region that contains the line from the parameter ``start`` to ``end``, (..., d_w) each.

    It has all combinations of the values that each zⱼ, each W₂ⱼ and c₂ take on the line.
    """
    first, last = network.split(start), network.split(end)
    inputs = (arms @ layers.w1.mT + layers.c1.unsqueeze(-2) for layers in (first, last))
    return _region(_span(*inputs), _span(first.w2, last.w2), _span(first.c2, last.c2), arms)


def _span(first: Tensor, last: Tensor) -> Ends:
    """Return the smaller and the larger of the entries of two tensors."""
    return torch.minimum(first, last), torch.maximum(first, last)


def _region(inner: Ends, outer: Ends, level: Ends, arms: Tensor) -> Region:
    """Return the region of all parameters with zⱼ in ``inner``, W₂ⱼ in ``outer`` and c₂ in ``level``."""
    # W₂σ(z) lies between the least and the largest of the products of the intervals' ends
    products = torch.stack([weight.unsqueeze(-2) * z.sigmoid() for weight in outer for z in inner])
    ends = (products.amin(0), products.amax(0))
    values = [end.sum(-1) + c2.unsqueeze(-1) for end, c2 in zip(ends, level, strict=True)]
    largest = torch.maximum(*(weight.abs() for weight in outer))
    return Region(*inner, largest, torch.stack(values, -1), 1 + arms.square().sum(-1))


def value_bound(region: Region) -> Tensor:
    """Return F, the largest |f_x(w)| over the region, (...); an upper bound on it for a `segment`."""
    return region.values.abs().amax((-2, -1))


def gradient_bound(region: Region) -> Tensor:
    """Return C_g, the largest ‖∇f_x(w)‖ over the region, (...); an upper bound on it for a `segment`."""
    q = (region.outer.square().unsqueeze(-2) * region.reach.unsqueeze(-1)).clamp(min=1e-300)
    ends = (region.low.sigmoid(), region.high.sigmoid())
    root = (1 - 8 / q).clamp(min=0).sqrt()
    candidates = [*ends, *((3 + sign * root) / 4 for sign in (-1, 1))]
    # a stationary point outside the interval is moved to its end, which is a candidate anyway
    inside = torch.stack([torch.minimum(torch.maximum(s, ends[0]), ends[1]) for s in candidates])
    share = inside.square() * (1 + q * (1 - inside).square())
    return (1 + share.amax(0).sum(-1)).sqrt().amax(-1)


def curvature_bound(region: Region) -> Tensor:
    """Return C_h, the largest operator norm of ∇²f_x(w) over the region, (...); an upper bound for a `segment`."""
    reach = region.reach.unsqueeze(-1)
    q2 = (region.outer.unsqueeze(-2) * reach).square()
    half = 1 + 8 * reach / q2.clamp(min=1e-300)
    peak = (half + (half.square() + 3).sqrt()).rsqrt()
    ends = ((1 - 2 * region.low.sigmoid()).abs(), (1 - 2 * region.high.sigmoid()).abs())
    zero = (region.low <= 0) & (region.high >= 0)
    least, most = torch.where(zero, 0, torch.minimum(*ends)), torch.maximum(*ends)
    v = torch.minimum(torch.maximum(peak, least), most)
    return ((1 - v.square()) / 8 * (q2.sqrt() * v + (q2 * v.square() + 4 * reach).sqrt())).amax((-2, -1))


def suprema(network: Network, start: Tensor, end: Tensor, arms: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return upper bounds on F, C_g and C_h over the line between two parameters, (...) each.

    A `segment` lets all hidden units vary independently, although on the line they vary together. On each of 400 short
    parts this makes little difference, so that the bounds are little above the suprema.
    """
    share = torch.linspace(0, 1, _PIECES + 1, dtype=torch.float64).unsqueeze(-1)
    bounds: list[list[Tensor]] = []
    for ends in share.unfold(0, 2, 1).split(_PIECES_AT_ONCE):
        first, last = (torch.lerp(start.unsqueeze(-2), end.unsqueeze(-2), at) for at in ends.unbind(-1))
        region = segment(network, first, last, arms.unsqueeze(-3))
        bounds.append([bound(region).amax(-1) for bound in (value_bound, gradient_bound, curvature_bound)])
    value, slope, curvature = (torch.stack(pieces_of).amax(0) for pieces_of in zip(*bounds, strict=True))
    return value, slope, curvature


class LossCurvature(NamedTuple):
    """Eigenvalues of the Hessian ∇²L(w*) of the loss of Assumption 3, (...) each.

    ``mu`` is the smallest one μ, and ``zeta`` the largest one ζ. ``mu_plus`` is μ₊, the min(K, d_w)-th largest one; if
    the arms' gradients are linearly independent, it is the smallest on their span.
    """

    mu: Tensor
    mu_plus: Tensor
    zeta: Tensor


def loss_curvature(gradients: Tensor) -> LossCurvature:
    """Return μ, μ₊ and ζ from the ``gradients`` ∇f_x(w*) of the arms, (..., K, d_w).

    With them as the rows of J, the Hessian is (2/K)JᵀJ. If K < d_w, μ is exactly 0. An eigenvalue that rounding makes
    negative is returned as 0.
    """
    arms, dimension = gradients.shape[-2:]
    few = gradients if arms <= dimension else gradients.mT
    values = 2 / arms * torch.linalg.eigvalsh(few @ few.mT).clamp(min=0)
    least = values[..., 0]
    return LossCurvature(torch.zeros_like(least) if arms < dimension else least, least, values[..., -1])


def measured(
    network: Network, start: Tensor, end: Tensor, arms: Tensor, noise: float
) -> list[tuple[Assumptions, float]]:
    """Return the constants of Assumptions 2 and 3 between ŵ₀ and w*, and the ζ of Lemma 2, for each of S runs.

    F, C_g and C_h are those on the line from ŵ₀ to w* (`suprema`), which lies in every convex W that contains both. μ₊
    takes the place of μ, which is 0 with fewer arms than parameters. Assumption 1 needs W in the unit cube. Therefore
    lengths are in units of the side of the smallest cube around 0 that contains the run's ŵ₀ and w*: C_g is multiplied
    by the side, and C_h, μ₊ and ζ by its square.

    Args:
        network: The two-layer network.
        start: The fitted parameters ŵ₀, (S, d_w).
        end: The true parameters w*, (S, d_w).
        arms: The features of the arms, (S, K, d_x).
        noise: The standard deviation σ of a reward's noise.
    """
    side = 2 * torch.stack([start, end]).abs().amax((0, 2))
    value, slope, curvature = suprema(network, start, end, arms)
    loss = loss_curvature(network.gradients(end, arms))
    scaled = (value, side * slope, side**2 * curvature, side**2 * loss.mu_plus, side**2 * loss.zeta)
    return [
        (Assumptions(network.size, value, slope, curvature, noise, growth), zeta)
        for value, slope, curvature, growth, zeta in torch.stack(scaled, 1).tolist()
    ]
