"""Line 3 of Algorithm 1 as printed: the arm x with the largest max f_x(w) over w ∈ Ball, by projected ascent.

Ball is {w : ‖w − ŵ‖²_Σ ≤ β}, with the ridge estimate ŵ and the matrix Σ of the learner's data.
`fedgo.line_three.images` maps w to θ = A_x w, the 2H + 1 numbers on which f_x depends in a network with H hidden units.
A point of the ball's image is θ̂ + C_x u, with θ̂ = A_x ŵ, C_x = A_xΣ⁻¹A_xᵀ and a dual point u, uᵀC_x u ≤ β. A step

    u ← Π(u + η·√β h/‖h‖_{C_x}),   h = ∂f/∂θ,

is exactly the projected step w ← Π(w + η·√β Σ⁻¹∇f/‖∇f‖_{Σ⁻¹}) of parameter space; Π scales a point outside the ball
back to its sphere. The ascent of an arm ends when its step size η is small, near a local maximum, or after `MOST_STEPS`
steps. Therefore the value found is a lower bound on the arm's largest value.

There are S runs, M learners and K arms. Inside, a learner is one of M that share one of V parameters ŵ₀ (V views).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo.confidence import Estimates, Tally
from fedgo.line_three.images import Images, Rows, View, images, rows, slope, value

# The size η of the first step. A step that improves the value doubles η, and any other step divides it by eight.
FIRST_STEP = 1.0
LAST_STEP = 1e-3  # the ascent of an arm ends when its step is smaller than this
MOST_STEPS = 200  # the ascent of an arm ends after this number of steps at the latest
RELATIVE_GAIN = 1e-9  # a step with no larger relative improvement counts as a step without improvement
_STRIDE = 2  # after every such number of steps the arms whose ascent has ended are removed from the batch
_ARMS_AT_ONCE = 512  # few enough ascents in a batch that their matrices stay in the processor's cache


class Optimum(NamedTuple):
    """The largest f_x(w) found for each arm, ``value`` (..., K), and its dual point, ``u`` (..., K, 2H + 1)."""

    value: Tensor
    u: Tensor


class LineThree:
    """The index of line 3 of Algorithm 1, the ``optimism`` of a `fedgo.phase_two.EventTriggered`; for one play only.

    When a learner with new data asks for its index, the ascents of all its arms run to the end, each from the higher of
    two points: the solution of the linearised problem, and the arm's previous maximum for that learner, scaled to the
    sphere of the new ball. In wide balls f_x has many local maxima. Therefore a value depends on when the learner asked
    before: `fedgo.simulation.simulate` asks for all learners at the beginning of a round and after every
    synchronisation.

    Args:
        view: The images of ŵ₀ and of the arms' gradients (`fedgo.line_three.images.view`).
        lam: The regularisation weight λ > 0, which is not checked.
        beta: The squared radius β ≥ 0.
    """

    def __init__(self, view: View, lam: float, beta: float) -> None:
        self.view, self.lam, self.beta = view, lam, beta
        self.known: Tally | None = None
        self.optimum: Optimum | None = None

    def __call__(self, posterior: Estimates, known: Tally) -> Tensor:
        """Return the optimistic values of all arms, (S, M, K), for the same learners at every call.

        Args:
            posterior: Not used.
            known: The counts and the summed residuals of each learner's data, (S, M, K), which determine its ball.
        """
        balls = _images(self.view, self.lam, self.beta, known)
        if self.known is None or self.optimum is None:
            self.optimum = _ascended(balls, _unknown(balls))
        else:
            new = ((known.counts != self.known.counts) | (known.sums != self.known.sums)).any(-1)
            self.optimum = _ascended(balls, self.optimum, new.view(balls.pulled.shape[:2]))
        self.known = known
        return self.optimum.value.view_as(known.counts)


def line_three(view: View, lam: float, beta: float, tally: Tally) -> Optimum:
    """Maximise f_x(w) over each learner's ball for each arm, without an earlier maximum to begin from.

    Args:
        view: The images, with the leading axes of ``tally``; or the last of them is 1, if the learners share the view.
        lam: The regularisation weight λ > 0, which is not checked; if it is lost in the rounding of Σ, the values are
            useless.
        beta: The squared radius β ≥ 0.
        tally: The counts and the summed residuals of the learners' data, (..., K), with at least one leading axis.
    """
    balls = _images(view, lam, beta, tally)
    optimum, lead = _ascended(balls, _unknown(balls)), tally.counts.shape[:-1]
    return Optimum(*(values.reshape(*lead, *values.shape[2:]) for values in optimum))


def _images(view: View, lam: float, beta: float, tally: Tally) -> Images:
    """Return the learners' balls as images for each arm, with two leading axes (V, M) in place of (...)."""
    lead, arms = tally.counts.shape[:-1], tally.counts.shape[-1]
    shared = view.theta.ndim > 2 and view.theta.shape[-3] == 1
    owners = (*lead[:-1], 1) if shared else lead
    flat = View(*(image.expand(*owners, *image.shape[-2:]).flatten(0, len(owners) - 1) for image in view))
    shape = (len(flat.theta), -1, arms)
    return images(flat, lam, beta, Tally(tally.counts.reshape(shape), tally.sums.reshape(shape)))


def _unknown(balls: Images) -> Optimum:
    """Return the optimum before any ascent: values −∞ (V, M, K), and u = 0, which stands for no earlier maximum."""
    views, learners, _ = balls.pulled.shape
    _, arms, width = balls.view.theta.shape
    u = balls.view.theta.new_zeros(views, learners, arms, width)
    return Optimum(u.new_full(u.shape[:-1], -math.inf), u)


def _ascended(balls: Images, before: Optimum, chosen: Tensor | None = None) -> Optimum:
    """Return ``before`` with the ascents of all arms run again for the learners ``chosen`` (V, M), or for all."""
    values, u, root = before.value.clone(), before.u.clone(), math.sqrt(balls.beta)
    every = torch.ones_like(values, dtype=torch.bool)
    wanted = every if chosen is None else every & chosen.unsqueeze(-1)
    for chunk in wanted.nonzero().split(_ARMS_AT_ONCE):
        at = tuple(chunk.T)
        below = rows(balls, at)
        # on the ball, f linearised at A_xŵ₀ is largest at u = √β h/‖h‖_{C_x}, where h is its gradient in θ
        climb = _on_sphere(below, slope(balls.view.theta[at[0], at[2]]), root)
        earlier = u[at]
        if bool(earlier.any()):
            resumed = _on_sphere(below, earlier, root)
            climb = _where(earlier.any(-1) & (resumed.value > climb.value), resumed, climb)
        values[at], u[at] = _finish(below, climb, root)
    return Optimum(values, u)


class Climb(NamedTuple):
    """The state of n ascents, one arm and learner each: f, u, C_x u (``moved``) and the size of the next step."""

    value: Tensor
    u: Tensor
    moved: Tensor
    step: Tensor


def _on_sphere(below: Rows, u: Tensor, root: float) -> Climb:
    """Return n ascents that begin at ``u`` (n, 2H + 1), scaled to spheres of the radius √β = ``root``; u = 0 stays."""
    moved = below.times(u)
    scale = root / (u * moved).sum(-1, keepdim=True).clamp(min=1e-300).sqrt()
    height = value(below.centre + moved * scale)
    return Climb(height, u * scale, moved * scale, torch.full_like(height, FIRST_STEP))


def _where(better: Tensor, new: Climb, old: Climb) -> Climb:
    """Return the ascents of ``new`` where ``better`` (n,) is True, and those of ``old`` elsewhere."""
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
    """Return n ascents after one step each; one whose step is below `LAST_STEP` has ended and stays."""
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
