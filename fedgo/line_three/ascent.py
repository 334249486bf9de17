"""Line 3 of Algorithm 1 as printed: the arm x with the largest max f_x(w) over w ∈ Ball, by projected ascent.

f_x(w) is the output of the network with the parameter w at the arm x. Ball is the confidence ball
{w : ‖w − ŵ‖²_Σ ≤ β} with the ridge estimate ŵ, the matrix Σ of the learner's data and the squared radius β.
`fedgo.line_three.images` maps w to θ = A_x w, which has 2H + 1 numbers for a network with H hidden units. A point of
the ball's image is θ̂ + C_x u, with θ̂ = A_x ŵ, C_x = A_xΣ⁻¹A_xᵀ and a dual point u. A step
u ← Π(u + η·√β h/‖h‖_{C_x}), with h = ∂f/∂θ and the step size η, is exactly the projected step
w ← Π(w + η·√β Σ⁻¹∇f/‖∇f‖_{Σ⁻¹}) of parameter space. Π scales a point outside the ball back to its sphere. The ascent of
an arm ends when its η is small, near a local maximum, or after `MOST_STEPS` steps. The value found is a lower bound on
the arm's largest value, because it is taken at a point of the ball.
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
    """The highest points that the ascent found, one for each of K arms, for a network with H hidden units.

    ``value`` (..., K) is the largest f_x(w) found for the arm x, where f_x(w) is the output of the network with the
    parameter w. ``u`` (..., K, 2H + 1) is the dual point of the parameter w = ŵ + Σ⁻¹A_xᵀu at which it was found. Here
    ŵ is the centre of the confidence ball, Σ the matrix of the learner's data, and A_x the matrix that maps w to the
    2H + 1 numbers on which f_x depends.
    """

    value: Tensor
    u: Tensor


class LineThree:
    """The index of line 3 of Algorithm 1: the largest f_x(w) over the confidence ball, found by projected ascent.

    f_x(w) is the output of the network with the parameter w at the arm x. An object of this class can be the
    ``optimism`` of `fedgo.phase_two.EventTriggered`. When a learner with new data asks for its index, the ascents of
    all its arms run to the end, each from the higher of two points: the solution of the linearised problem, and the
    arm's previous maximum for that learner, scaled to the sphere of the new ball. A learner without new data keeps its
    values. In wide balls f_x has many local maxima. Therefore a value depends on when the learner asked before:
    `fedgo.simulation.simulate` asks for all learners at the beginning of a round and after every synchronisation. The
    object keeps the last data and maxima, so that each play needs an object of its own.

    Args:
        view: The images of the parameter ŵ₀ of Phase I and of the arms' gradients (`fedgo.line_three.images.view`).
        lam: The regularisation weight λ > 0, which is not checked.
        beta: The squared radius β ≥ 0 of the ball, which is not checked here; a call with β < 0 raises a
            ``ValueError``.
    """

    def __init__(self, view: View, lam: float, beta: float) -> None:
        """Store the arguments, and begin without data and without an earlier maximum of any arm."""
        self.view, self.lam, self.beta = view, lam, beta
        self.known: Tally | None = None
        self.optimum: Optimum | None = None

    def __call__(self, posterior: Estimates, known: Tally) -> Tensor:
        """Return the optimistic values of K arms for each of M learners in each of S runs, (S, M, K).

        The value of an arm x is the largest network output f_x(w) that the ascent found over the learner's confidence
        ball. The learners must be the same at every call.

        Args:
            posterior: Not used.
            known: The counts and the summed residuals of each learner's data, (S, M, K), which determine its ball.

        Raises:
            ValueError: The squared radius β is negative.
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
    """Maximise the network's output f_x(w) over each learner's confidence ball for each arm x, by projected ascent.

    w is the parameter of the network. The ascent finds local maxima. Therefore a value may be below the largest one
    over the ball.

    Args:
        view: The images of the parameter ŵ₀ of Phase I and of the gradients of K arms. Its leading dimensions are those
            of ``tally``; or the last of them is 1, if the learners share the view.
        lam: The regularisation weight λ > 0, which is not checked. If it is so small that λ is lost in the rounding of
            the data's matrix Σ, the values are useless.
        beta: The squared radius β ≥ 0 of the ball.
        tally: The counts and the summed residuals of the learners' data, (..., K), with at least one leading dimension.

    Returns:
        The values (..., K) that the ascents reached and their dual points (..., K, 2H + 1), for a network with H hidden
        units.

    Raises:
        ValueError: β is negative.
        torch.linalg.LinAlgError: λ is 0.
    """
    balls = _images(view, lam, beta, tally)
    optimum, lead = _ascended(balls, _unknown(balls)), tally.counts.shape[:-1]
    return Optimum(*(values.reshape(*lead, *values.shape[2:]) for values in optimum))


def _images(view: View, lam: float, beta: float, tally: Tally) -> Images:
    """Return the confidence balls {w : ‖w − ŵ‖²_Σ ≤ β} of learners with the data ``tally``, as images for each arm.

    ŵ is the ridge estimate of a learner, and Σ the matrix of its data with the regularisation weight λ = ``lam``. The
    counts and sums of ``tally`` are (..., K) for K arms, and ``beta`` is β. The leading dimensions become two: V views,
    each with one parameter ŵ₀, and the M learners that share each view. If the last leading dimension of ``view`` is 1,
    its learners share it; otherwise each learner has a view of its own, and M = 1.
    """
    lead, arms = tally.counts.shape[:-1], tally.counts.shape[-1]
    shared = view.theta.ndim > 2 and view.theta.shape[-3] == 1
    owners = (*lead[:-1], 1) if shared else lead
    flat = View(*(image.expand(*owners, *image.shape[-2:]).flatten(0, len(owners) - 1) for image in view))
    shape = (len(flat.theta), -1, arms)
    return images(flat, lam, beta, Tally(tally.counts.reshape(shape), tally.sums.reshape(shape)))


def _unknown(balls: Images) -> Optimum:
    """Return the optimum before any ascent, for the M learners of each of V views in ``balls`` and for K arms.

    Its values (V, M, K) are −∞, and its dual points u (V, M, K, 2H + 1) are 0, which means that there is no earlier
    maximum. The network has H hidden units.
    """
    views, learners, _ = balls.pulled.shape
    _, arms, width = balls.view.theta.shape
    u = balls.view.theta.new_zeros(views, learners, arms, width)
    return Optimum(u.new_full(u.shape[:-1], -math.inf), u)


def _ascended(balls: Images, before: Optimum, chosen: Tensor | None = None) -> Optimum:
    """Return an optimum like ``before`` in which the ascents of all arms of some learners have been run again.

    ``balls`` has the confidence balls of all learners as images. ``chosen`` (V, M) bool is True for those of the M
    learners of each of V views whose ascents are run; if it is None, all are. Each ascent begins at the higher of two
    points: the solution of the linearised problem, and the arm's maximum in ``before``, if its dual point there is not
    0, scaled to the sphere of the ball. ``before`` is not changed.
    """
    values, u, root = before.value.clone(), before.u.clone(), math.sqrt(balls.beta)
    wanted = torch.ones_like(values, dtype=torch.bool)
    if chosen is not None:
        wanted &= chosen.unsqueeze(-1)
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
    """The state of n ascents, each for one arm x of one learner, for a network with H hidden units.

    ``value`` (n,) is the network's output that the ascent has reached, ``u`` (n, 2H + 1) the dual point there,
    ``moved`` (n, 2H + 1) the product C_x u, and ``step`` (n,) the size of the next step. C_x is the matrix for which
    {θ̂ + C_x u : uᵀC_x u ≤ β} is the image of the confidence ball with the squared radius β, and θ̂ that of its centre.
    """

    value: Tensor
    u: Tensor
    moved: Tensor
    step: Tensor


def _on_sphere(below: Rows, u: Tensor, root: float) -> Climb:
    """Return n ascents that begin at the dual points ``u`` (n, 2H + 1), scaled to the spheres of the balls.

    A dual point 0 stays at the centre of its ball. ``below`` has the n images of the balls, ``root`` is their radius
    √β, and H is the number of hidden units.
    """
    moved = below.times(u)
    scale = root / (u * moved).sum(-1, keepdim=True).clamp(min=1e-300).sqrt()
    height = value(below.centre + moved * scale)
    return Climb(height, u * scale, moved * scale, torch.full_like(height, FIRST_STEP))


def _where(better: Tensor, new: Climb, old: Climb) -> Climb:
    """Return n ascents that are those of ``new`` where ``better`` (n,) bool is True, and those of ``old`` elsewhere."""
    wide = better.unsqueeze(-1)
    value, step = torch.where(better, new.value, old.value), torch.where(better, new.step, old.step)
    return Climb(value, torch.where(wide, new.u, old.u), torch.where(wide, new.moved, old.moved), step)


def _finish(below: Rows, climb: Climb, root: float) -> tuple[Tensor, Tensor]:
    """Continue n ascents to their ends, and return the values (n,) and the dual points (n, 2H + 1) there.

    ``below`` has the n images of the balls, ``climb`` the n ascents so far, ``root`` is the radius √β, and H is the
    number of hidden units. An ascent ends when its step is below `LAST_STEP`, or after `MOST_STEPS` steps.
    """
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
    """Return n ascents after one step each, in balls with the images ``below`` and the radius √β = ``root``.

    If a step raises the value by more than `RELATIVE_GAIN` times its absolute value, the ascent takes this step, and
    its next step is twice as large. Otherwise the ascent stays where it is, and its next step is eight times smaller.
    An ascent whose step is below `LAST_STEP` has ended and stays, too.
    """
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
