"""The constants of Assumptions 2 and 3 for the two-layer network, in closed form: F, C_g, C_h, ζ and μ.

F, C_g and C_h bound |f_x|, ‖∇f_x‖ and ‖∇²f_x‖; ζ and μ are the largest and the smallest eigenvalue of the Hessian of
the loss at w*. The suprema for C_g and C_h over a set of parameters depend only on the interval of the input z = W₁ⱼ·x
+ c₁ⱼ of each hidden unit j and on a bound B ≥ |W₂ⱼ| of its output weight; that for F depends on the intervals of W₂ⱼ
and of the bias c₂ of the output, too. With the output s = σ(z) of the unit and r² = 1 + |x|², the share of the unit in
‖∇f_x‖² is s² + B²r²s²(1 − s)². With v = |1 − 2s|, the block of the unit in ∇²f_x has the norm (1 − v²)/8·(Br²v +
√(B²r⁴v² + 4r²)). Both are maximised exactly; nothing is sampled.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, require_each
from fedgo.network import Network
from fedgo.theory.assumptions import Assumptions

Ends = tuple[Tensor, Tensor]  # the lower ends and the upper ends of intervals

_PIECES_AT_ONCE = 40  # parts of a line whose bounds are computed at once, which bounds the memory


class Region(NamedTuple):
    """A set of parameters w, described by bounds on the inputs and weights of H hidden units at each of K arms x.

    The network's output is f_x(w) = Σⱼ W₂ⱼσ(zⱼ) + c₂, with the logistic sigmoid σ and the input zⱼ = W₁ⱼ·x + c₁ⱼ of the
    hidden unit j. Some parameter of a `box` attains each bound; those of a `segment` need not.

    Args:
        low: Lower bounds on the inputs zⱼ, (..., K, H).
        high: Upper bounds on the inputs zⱼ, (..., K, H).
        outer: Upper bounds on the absolute output weights |W₂ⱼ|, (..., H).
        values: The lower and the upper end of an interval that contains f_x(w), (..., K, 2).
        reach: 1 + |x|² of each arm, (..., K).
    """

    low: Tensor
    high: Tensor
    outer: Tensor
    values: Tensor
    reach: Tensor


def box(network: Network, low: Tensor, high: Tensor, arms: Tensor) -> Region:
    """Return the region of the box of parameters w with ``low`` ≤ w ≤ ``high``, for instance W = [0, 1]^d_w.

    Args:
        network: The two-layer network, with d_w parameters.
        low: The lower corner of the box, (..., d_w).
        high: The upper corner of the box, (..., d_w).
        arms: The features of K arms, (..., K, d_x).

    Raises:
        ValueError: An entry of ``low`` is above that of ``high`` or NaN, or their last axis does not have the length
            d_w.
        RuntimeError: The shapes of ``low`` and ``high`` do not fit together, or the last axis of ``arms`` does not have
            the length d_x.
    """
    low, high = torch.broadcast_tensors(low, high)
    require_each(low <= high, "low", low, "a box needs low ≤ high; give its lower corner first")
    bottom, top = network.split(low), network.split(high)
    rise, fall = arms.clamp(min=0), arms.clamp(max=0)
    least = rise @ bottom.w1.mT + fall @ top.w1.mT + bottom.c1.unsqueeze(-2)
    most = rise @ top.w1.mT + fall @ bottom.w1.mT + top.c1.unsqueeze(-2)
    return _region((least, most), (bottom.w2, top.w2), (bottom.c2, top.c2), arms)


def segment(network: Network, start: Tensor, end: Tensor, arms: Tensor) -> Region:
    """Return a region that contains the line between two parameters.

    On the line the input zⱼ and the output weight W₂ⱼ of each hidden unit j, and the output's bias, lie between their
    values at the two ends. The region has all combinations of such values.

    Args:
        network: The two-layer network, with d_w parameters.
        start: The first end of the line, (..., d_w).
        end: The last end of the line, (..., d_w).
        arms: The features of K arms, (..., K, d_x).

    Raises:
        ValueError: The last axis of an end does not have the length d_w.
        RuntimeError: The last axis of ``arms`` does not have the length d_x.
    """
    first, last = network.split(start), network.split(end)
    inputs = (arms @ layers.w1.mT + layers.c1.unsqueeze(-2) for layers in (first, last))
    return _region(_span(*inputs), _span(first.w2, last.w2), _span(first.c2, last.c2), arms)


def _span(first: Tensor, last: Tensor) -> Ends:
    """Return the smaller and the larger of the entries of ``first`` and ``last``, two tensors of their shape."""
    return torch.minimum(first, last), torch.maximum(first, last)


def _region(inner: Ends, outer: Ends, level: Ends, arms: Tensor) -> Region:
    """Return the region of all parameters whose inputs z, output weights and bias lie in the given intervals.

    Args:
        inner: The lower and the upper ends of the inputs z of H hidden units at K arms, (..., K, H) each.
        outer: The lower and the upper ends of the output weights W₂, (..., H) each.
        level: The lower and the upper end of the output's bias c₂, (...) each.
        arms: The features of the arms, (..., K, d_x).
    """
    # W₂σ(z) lies between the least and the largest of the products of the intervals' ends
    products = torch.stack([weight.unsqueeze(-2) * z.sigmoid() for weight in outer for z in inner])
    ends = (products.amin(0), products.amax(0))
    values = [end.sum(-1) + c2.unsqueeze(-1) for end, c2 in zip(ends, level, strict=True)]
    largest = torch.maximum(*(weight.abs() for weight in outer))
    return Region(*inner, largest, torch.stack(values, -1), 1 + arms.square().sum(-1))


def value_bound(region: Region) -> Tensor:
    """Return F, the largest absolute output of the network over the region's parameters w and arms x, (...).

    It is the bound on |f_x(w)| in Assumption 2, and (...) are the leading axes of the region. For a `segment`, whose
    bounds no parameter need attain, the number is an upper bound.

    Raises:
        IndexError: The region has no arm.
    """
    return region.values.abs().amax((-2, -1))


def gradient_bound(region: Region) -> Tensor:
    """Return C_g, the largest Euclidean norm of the gradient ∇f_x(w) over the region's parameters w and arms x, (...).

    f_x(w) is the network's output, the gradient is the one in w, and C_g is the bound of Assumption 2. (...) are the
    leading axes of the region. For a `segment`, whose bounds no parameter need attain, the number is an upper bound.
    The output's bias contributes 1 to the squared norm, and a hidden unit with output s contributes s² + qs²(1 − s)²,
    with q = B²(1 + |x|²) and the bound B on its output weight. The latter is stationary at s = (3 ± √(1 − 8/q))/4, if
    anywhere in 0 < s < 1.

    Raises:
        IndexError: The region has no arm.
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
    """Return C_h, the largest operator norm of ∇²f_x(w) over the region's parameters w and arms x, (...).

    f_x(w) is the network's output, the Hessian is the one in w, and C_h is the bound of Assumption 2. (...) are the
    leading axes of the region. For a `segment`, whose bounds no parameter need attain, the number is an upper bound.
    The Hessian has one block for each hidden unit. With the unit's input z, the logistic sigmoid σ, the bound B on the
    unit's output weight and r² = 1 + |x|², the norm of a block is (1 − v²)/8·(qv + √(q²v² + 4r²)) with v = |1 − 2σ(z)|
    and q = Br². On 0 ≤ v < 1 it has a single maximum, where 3q²v⁴ + (2q² + 16r²)v² = q².

    Raises:
        IndexError: The region has no arm.
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
    """Return upper bounds on F, C_g and C_h over the line between two parameters, (...) each.

    F, C_g and C_h are the largest |f_x|, ‖∇f_x‖ and ‖∇²f_x‖ of the network's output f_x at any arm x. The bounds of a
    `segment` let all hidden units vary independently, although on the line they vary together. On each of many short
    parts of the line this makes little difference. With more parts, the largest bound of a part tends to the supremum
    from above.

    Args:
        network: The two-layer network, with d_w parameters.
        start: The first end of the line, (..., d_w).
        end: The last end of the line, (..., d_w).
        arms: The features of K arms, (..., K, d_x).
        pieces: The number of equal parts of the line.

    Returns:
        Bounds on |f_x|, on ‖∇f_x‖ and on ‖∇²f_x‖, in this order, each the largest of all arms x.

    Raises:
        ValueError: ``pieces`` is below 1, or the last axis of both ends does not have the length d_w.
        TypeError: ``pieces`` is not a whole number.
        RuntimeError: The shapes of the ends do not fit together, or the last axis of ``arms`` does not have the length
            d_x.
        IndexError: There is no arm.
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
    """Eigenvalues of the Hessian ∇²L(w*) of the loss L(w) = E(f_x(w) − f_x(w*))² over uniformly drawn arms x, (...)
    each.

    w* is the true parameter, and f_x(w) the model of the mean reward. ``mu`` is the smallest eigenvalue μ, and ``zeta``
    the largest one ζ. ``mu_plus`` is μ₊, the min(K, d_w)-th largest one for K arms and d_w parameters. If the arms'
    gradients are linearly independent, μ₊ is the smallest eigenvalue on their span.
    """

    mu: Tensor
    mu_plus: Tensor
    zeta: Tensor


def loss_curvature(gradients: Tensor) -> LossCurvature:
    """Return three eigenvalues of the Hessian of the loss L at the true parameter w*, (...) each (Assumption 3).

    They are the smallest one μ, the min(K, d_w)-th largest one μ₊ and the largest one ζ. ``gradients`` (..., K, d_w)
    has the gradients ∇f_x(w*) of K arms x in d_w parameters. L(w) is the mean of (f_x(w) − f_x(w*))² over the arms.
    With the gradients as the rows of J, its Hessian at w* is (2/K)JᵀJ. If K < d_w, μ is exactly 0, and μ₊ is 2/K times
    the square of the K-th singular value of J, which is positive if the gradients are linearly independent, and
    otherwise 0 up to rounding. If K ≥ d_w, μ₊ is μ. An eigenvalue that rounding makes negative is returned as 0.

    Raises:
        ZeroDivisionError: There is no arm.
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

    F, C_g and C_h bound the network's output and its first and second derivatives (`suprema`) on the line from ŵ₀ to
    w*, which lies in every convex parameter set W that contains both. ζ is the largest eigenvalue of the Hessian at w*
    of the loss L(w), the mean of (f_x(w) − f_x(w*))² over the arms x. The smallest eigenvalue on the span of the
    gradients, μ₊, takes the place of the growth constant μ, because the smallest of all is 0 with fewer arms than
    parameters. Assumption 1 needs W in the unit cube. Therefore lengths are in units of the side of the smallest cube
    around 0 that contains the run's ŵ₀ and w*: C_g is multiplied by the side, and C_h, μ₊ and ζ by its square.

    Args:
        network: The two-layer network, with d_w parameters.
        start: The fitted parameters ŵ₀, (S, d_w).
        end: The true parameters w*, (S, d_w).
        arms: The features of K arms, (S, K, d_x).
        noise: The standard deviation σ of a reward's noise.

    Returns:
        A list of S pairs of the constants and ζ. The constant τ and the exponent χ of the growth condition min{μr²/2,
        τr^χ/2} ≤ L(w) at distance r from the zeros of L are ∞ and 1 in them, so that the growth is quadratic
        everywhere.

    Raises:
        ValueError: A constant is out of range; for instance μ₊ is 0, because gradients are linearly dependent and
            rounding leaves nothing. Or the last axis of both ``start`` and ``end`` does not have the length d_w.
        RuntimeError: ``start`` and ``end`` have different shapes, or the last axis of ``arms`` does not have the length
            d_x.
    """
    side = 2 * torch.stack([start, end]).abs().amax((0, 2))
    value, slope, curvature = suprema(network, start, end, arms)
    loss = loss_curvature(network.gradients(end, arms))
    scaled = (value, side * slope, side**2 * curvature, side**2 * loss.mu_plus, side**2 * loss.zeta)
    return [
        (Assumptions(network.size, value, slope, curvature, noise, growth), zeta)
        for value, slope, curvature, growth, zeta in torch.stack(scaled, 1).tolist()
    ]
