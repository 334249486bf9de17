"""Line 3 of Algorithm 1 as printed: the arm x with the largest max f_x(w) over w ∈ Ball, by projected ascent.

In the coordinates θ = A_x w of `fedgo.line_three.images`, a step u ← Π(u + ``step``·√β h/‖h‖_{C_x}) with h = ∂f/∂θ is
exactly the projected step w ← Π(w + ``step``·√β Σ⁻¹∇f/‖∇f‖_{Σ⁻¹}) of parameter space. Π scales a point outside the ball
back to its sphere. The ascent of an arm ends when its ``step`` is small. It ends in a local maximum, so that the value
found is a lower bound on the arm's largest value.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo.confidence import Estimates, Tally
from fedgo.line_three.images import Images, Rows, View, images, rows, slope, value

# The size of the first step; a step that improves the value doubles it, and any other divides it by eight.
FIRST_STEP = 1.0
LAST_STEP = 1e-3  # the ascent of an arm ends when its step is smaller than this
MOST_STEPS = 200
RELATIVE_GAIN = 1e-9  # a smaller relative improvement counts as none
_STRIDE = 2  # steps from one removal of finished arms to the next
_ARMS_AT_ONCE = 512  # so many that the matrices of these arms stay in a cache


class Optimum(NamedTuple):
    """The local maxima that the ascent found, one for each arm.

    ``value`` (..., K) is f_x(w) there, and ``u`` (..., K, 2H + 1) the dual point, with w = ŵ + Σ⁻¹A_xᵀu.
    """

    value: Tensor
    u: Tensor


class LineThree:
    """The `Index` of line 3 of Algorithm 1: the largest f_x(w) over the confidence ball, found by projected ascent.

    When a learner with new data asks for its index, all its arms are ascended to the end, each from the higher of two
    points: the solution of the linearised problem, and the arm's previous maximum for that learner, scaled to the
    sphere of the new ball. A learner without new data keeps its values. In wide balls f_x has many local maxima.
    Therefore a value depends on when the learner asked before: `fedgo.simulation.simulate` asks for all learners at the
    beginning of a round and after every synchronisation.

    Args:
        view: The images of ŵ₀ and of the gradients (`fedgo.line_three.images.view`).
        lam: The regularisation weight λ.
        beta: The squared radius β of the ball.
    """

    def __init__(self, view: View, lam: float, beta: float) -> None:
        """Begin without data, when no arm has a maximum yet."""
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
    """Maximise f_x(w) over the ball of each learner for each arm, by projected ascent.

    Args:
        view: The images of ŵ₀ and of the gradients. Its leading dimensions are those of ``tally``, or the last of them
            is 1 and shared by all learners.
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
    """Return the balls of ``tally`` (..., K) with its leading dimensions as two, of V views and of the M learners of
    each.
    """
    lead, arms = tally.counts.shape[:-1], tally.counts.shape[-1]
    shared = view.theta.ndim > 2 and view.theta.shape[-3] == 1
    owners = (*lead[:-1], 1) if shared else lead
    flat = View(*(image.expand(*owners, *image.shape[-2:]).flatten(0, len(owners) - 1) for image in view))
    shape = (len(flat.theta), -1, arms)
    return images(flat, lam, beta, Tally(tally.counts.reshape(shape), tally.sums.reshape(shape)))


def _unknown(balls: Images) -> Optimum:
    """Return the optimum (V, M, K) before any ascent, with the values −∞ and with u = 0 for "no earlier maximum"."""
    views, learners, _ = balls.pulled.shape
    _, arms, width = balls.view.theta.shape
    u = balls.view.theta.new_zeros(views, learners, arms, width)
    return Optimum(u.new_full(u.shape[:-1], -math.inf), u)


def _ascended(balls: Images, before: Optimum, chosen: Tensor | None = None) -> Optimum:
    """Return the optimum ``before`` with all arms of the learners ``chosen`` (V, M) ascended again.

    If ``chosen`` is None, the arms of all learners are.
    """
    values, u, root = before.value.clone(), before.u.clone(), math.sqrt(balls.beta)
    wanted = torch.ones_like(values, dtype=torch.bool)
    if chosen is not None:
        wanted &= chosen.unsqueeze(-1)
    for chunk in wanted.nonzero().split(_ARMS_AT_ONCE):
        at = tuple(chunk.T)
        below = rows(balls, at)
        # f linearised at A_xŵ₀ is largest at u = √β h/‖h‖_{C_x}, with its gradient h in θ
        climb = _on_sphere(below, slope(balls.view.theta[at[0], at[2]]), root)
        earlier = u[at]
        if bool(earlier.any()):
            resumed = _on_sphere(below, earlier, root)
            climb = _where(earlier.any(-1) & (resumed.value > climb.value), resumed, climb)
        values[at], u[at] = _finish(below, climb, root)
    return Optimum(values, u)


class Climb(NamedTuple):
    """The state of n ascents.

    ``value`` (n,) is f_x, ``u`` (n, 2H + 1) the dual point, ``moved`` (n, 2H + 1) is C_x u, and ``step`` (n,) the size
    of the next step.
    """

    value: Tensor
    u: Tensor
    moved: Tensor
    step: Tensor


def _on_sphere(below: Rows, u: Tensor, root: float) -> Climb:
    """Return the ascents of n arms that begin at the dual points ``u`` (n, 2H + 1), scaled to the spheres of the balls
    with the radius √β = ``root``.
    """
    moved = below.times(u)
    scale = root / (u * moved).sum(-1, keepdim=True).clamp(min=1e-300).sqrt()
    height = value(below.centre + moved * scale)
    return Climb(height, u * scale, moved * scale, torch.full_like(height, FIRST_STEP))


def _where(better: Tensor, new: Climb, old: Climb) -> Climb:
    """Return the ascents ``new`` where they are ``better`` (n,) bool, and ``old`` elsewhere."""
    wide = better.unsqueeze(-1)
    value, step = torch.where(better, new.value, old.value), torch.where(better, new.step, old.step)
    return Climb(value, torch.where(wide, new.u, old.u), torch.where(wide, new.moved, old.moved), step)


def _finish(below: Rows, climb: Climb, root: float) -> tuple[Tensor, Tensor]:
    """Continue n ascents to their ends, and return the values (n,) and the dual points (n, 2H + 1) there."""
    values, u = climb.value.clone(), climb.u.clone()
    left = torch.arange(len(values))
    for _ in range(MOST_STEPS // _STRIDE):
        going = climb.step >= LAST_STEP
        if not going.all():
            values[left], u[left] = climb.value, climb.u
            left, below = left[going], Rows(*(rows[going] for rows in below))
            climb = Climb(*(rows[going] for rows in climb))
        if not len(left):
            return values, u
        for _ in range(_STRIDE):
            climb = _step(below, climb, root)
    values[left], u[left] = climb.value, climb.u
    return values, u


def _step(below: Rows, climb: Climb, root: float) -> Climb:
    """Return n ascents after one step each; an ascent that the step does not improve stays, with a smaller step."""
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
