"""Line 3 of Algorithm 1 as printed: the arm x with the largest max f_x(w) over w ∈ Ball, by projected ascent.

In the coordinates θ = A_x w of `images`, a step u ← Π(u + η√β h/‖h‖_{C_x}) with h = ∂f/∂θ is exactly the projected
step w ← Π(w + η√β Σ⁻¹∇f/‖∇f‖_{Σ⁻¹}) of parameter space, where Π scales a point outside of the ball back to its sphere.
Every arm is ascended until its steps are small. The ascent ends in a local maximum, so that the value found is a lower
bound of the arm's largest value.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo.confidence import Estimates, Tally
from fedgo.line_three.images import Images, Rows, View, images, rows, slope, value

FIRST_STEP = 1.0  # η of the first step; it doubles on success and falls to an eighth on failure
LAST_STEP = 1e-3  # an arm whose η is smaller than this is finished
MOST_STEPS = 200
RELATIVE_GAIN = 1e-9  # an improvement below this is not worth a step
_STRIDE = 2  # steps from one removal of finished arms to the next
_CHUNK = 512  # arms ascended at once: their matrices stay in a cache


class Optimum(NamedTuple):
    """The local maxima that the ascent found, one for each arm.

    ``value`` (..., K) is f_x(w) there, and ``u`` (..., K, 2H + 1) the dual point, with w = ŵ + Σ⁻¹A_xᵀu.
    """

    value: Tensor
    u: Tensor


class LineThree:
    """The `Index` of line 3 of Algorithm 1: the largest f_x(w) over the confidence ball, found by projected ascent.

    When a learner is asked with new data, all its arms are ascended to the end, each from the higher of two points: the
    linear solution, and the arm's previous maximum for that learner, scaled to the sphere of the new ball. A learner
    that is asked without new data keeps its values. In wide balls f_x has many local maxima, so that the value depends
    on when the learner was asked before: `fedgo.simulation.simulate` asks all learners at the beginning of a round and
    after every synchronisation.

    Args:
        view: The arms as seen from ŵ₀.
        lam: The regularisation weight λ.
        beta: The squared radius β of the ball.
    """

    def __init__(self, view: View, lam: float, beta: float) -> None:
        """Begin without data: no arm has a maximum yet."""
        self.view, self.lam, self.beta = view, lam, beta
        self.known: Tally | None = None
        self.optimum: Optimum | None = None

    def __call__(self, posterior: Estimates, known: Tally) -> Tensor:
        """Return the optimistic values (S, M, K) of the learners that have the data ``known`` (S, M, K)."""
        balls = _images(self.view, self.lam, self.beta, known)
        if self.known is None or self.optimum is None:
            self.optimum = _ascended(balls, _unknown(balls))
        else:
            new = ((known.counts != self.known.counts) | (known.sums != self.known.sums)).any(-1)
            self.optimum = _ascended(balls, self.optimum, new.view(balls.pulled.shape[:2]))
        self.known = known
        return self.optimum.value.view_as(known.counts)


def line_three(view: View, lam: float, beta: float, tally: Tally) -> Optimum:
    """Maximise f_x(w) over the ball of each learner by projected ascent of each arm.

    Args:
        view: The arms as seen from ŵ₀; its leading dimensions are those of ``tally``, or its last one is 1 and shared
            by all learners.
        lam: The regularisation weight λ.
        beta: The squared radius β of the ball.
        tally: The data of the learners, (..., K).

    Returns:
        The local maxima, `Optimum` with the leading dimensions of ``tally``.
    """
    balls = _images(view, lam, beta, tally)
    optimum, lead = _ascended(balls, _unknown(balls)), tally.counts.shape[:-1]
    return Optimum(*(values.reshape(*lead, *values.shape[2:]) for values in optimum))


def _images(view: View, lam: float, beta: float, tally: Tally) -> Images:
    """Return the images with the leading dimensions as two: one of views, and one of the learners that share
    each view.
    """
    lead, arms = tally.counts.shape[:-1], tally.counts.shape[-1]
    shared = view.theta.ndim > 2 and view.theta.shape[-3] == 1
    owners = (*lead[:-1], 1) if shared else lead
    flat = View(*(part.expand(*owners, *part.shape[-2:]).reshape(-1, *part.shape[-2:]) for part in view))
    return images(flat, lam, beta, Tally(*(part.reshape(len(flat.theta), -1, arms) for part in tally)))


def _unknown(balls: Images) -> Optimum:
    """Return the optimum (V, M, K) before any ascent: no value, and u = 0, which stands for no earlier maximum."""
    views, learners, _ = balls.pulled.shape
    _, arms, width = balls.view.theta.shape
    u = balls.view.theta.new_zeros(views, learners, arms, width)
    return Optimum(u.new_full(u.shape[:-1], -math.inf), u)


def _ascended(balls: Images, before: Optimum, chosen: Tensor | None = None) -> Optimum:
    """Return ``before`` with all arms of the learners ``chosen`` (V, M) ascended anew, or of all learners without
    ``chosen``.
    """
    values, u, root = before.value.clone(), before.u.clone(), math.sqrt(balls.beta)
    wanted = torch.ones_like(values, dtype=torch.bool)
    if chosen is not None:
        wanted &= chosen.unsqueeze(-1)
    for chunk in wanted.nonzero().split(_CHUNK):
        at = tuple(chunk.T)
        below = rows(balls, at)
        # where f linearised at A_xŵ₀ is largest: u = √β h/‖h‖_{C_x}, with h its gradient in θ
        climb = _on_sphere(below, slope(balls.view.theta[at[0], at[2]]), root)
        earlier = u[at]
        if bool(earlier.any()):
            other = _on_sphere(below, earlier, root)
            climb = _where(earlier.any(-1) & (other.value > climb.value), other, climb)
        values[at], u[at] = _finish(below, climb, root)
    return Optimum(values, u)


class Climb(NamedTuple):
    """The state of n arms on their way up.

    ``value`` (n,) is f, ``u`` (n, 2H + 1) the dual point, ``moved`` (n, 2H + 1) is C_x u, and ``step`` (n,) is η.
    """

    value: Tensor
    u: Tensor
    moved: Tensor
    step: Tensor


def _on_sphere(below: Rows, u: Tensor, root: float) -> Climb:
    """Return the arms at their points ``u`` (n, 2H + 1), scaled to the spheres of their balls."""
    moved = below.times(u)
    scale = root / (u * moved).sum(-1, keepdim=True).clamp(min=1e-300).sqrt()
    height = value(below.centre + moved * scale)
    return Climb(height, u * scale, moved * scale, torch.full_like(height, FIRST_STEP))


def _where(better: Tensor, one: Climb, other: Climb) -> Climb:
    """Return the arms of ``one`` where it is ``better`` (n,), and those of ``other`` elsewhere."""
    wide = better.unsqueeze(-1)
    kinds = (better, wide, wide, better)
    return Climb(*(torch.where(*parts) for parts in zip(kinds, one, other, strict=True)))


def _finish(below: Rows, climb: Climb, root: float) -> tuple[Tensor, Tensor]:
    """Ascend n arms until their steps are smaller than `LAST_STEP`, and return their values (n,) and dual points u."""
    values, u = climb.value.clone(), climb.u.clone()
    left = torch.arange(len(values))
    for _ in range(MOST_STEPS // _STRIDE):
        going = climb.step >= LAST_STEP
        if not going.all():
            values[left], u[left] = climb.value, climb.u
            left, below = left[going], Rows(*(part[going] for part in below))
            climb = Climb(*(part[going] for part in climb))
        if not len(left):
            return values, u
        for _ in range(_STRIDE):
            climb = _step(below, climb, root)
    values[left], u[left] = climb.value, climb.u
    return values, u


def _step(below: Rows, climb: Climb, root: float) -> Climb:
    """Make one step of projected ascent of n arms; an arm stays where it is if the step does not improve it."""
    h = slope(below.centre + climb.moved)
    ch = below.times(h)
    rate = (climb.step * root / (h * ch).sum(-1).sqrt()).unsqueeze(-1)
    u, moved = climb.u + rate * h, climb.moved + rate * ch
    shrink = (root / (u * moved).sum(-1, keepdim=True).clamp(min=1e-300).sqrt()).clamp(max=1)
    u, moved = u * shrink, moved * shrink
    height = value(below.centre + moved)
    better = height > climb.value + RELATIVE_GAIN * climb.value.abs()
    stay = climb._replace(step=climb.step / 8)
    return _where(better & (climb.step >= LAST_STEP), Climb(height, u, moved, 2 * climb.step), stay)
