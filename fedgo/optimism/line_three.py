"""Line 3 of Algorithm 1 as printed: the arm x with the largest max f_x(w) over w ∈ Ball, by projected ascent.

In the coordinates θ = A_x w of `images`, a step u ← Π(u + η√β h/‖h‖_{C_x}) with h = ∂f/∂θ is the projected step
w ← Π(w + η√β Σ⁻¹∇f/‖∇f‖_{Σ⁻¹}) of parameter space, exactly. It ends in a local maximum: the value is a lower bound of
the arm's. Upper bounds, `cuts`, say which arms need not be ascended; a run goes on from the maxima of its last step.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo.confidence import Estimates, Tally
from fedgo.optimism.cuts import Cuts, bounds, prior_cuts, tighten
from fedgo.optimism.images import Images, Rows, View, images, rows, slope, value

FIRST_STEP = 1.0  # η of the first step; it doubles on success and falls to an eighth on failure
LAST_STEP = 1e-3  # … until it is smaller than this
MOST_STEPS = 200
RELATIVE_GAIN = 1e-9  # an improvement below this is not worth a step
_STRIDE = 2  # steps between two looks at which arms are done
_CHUNK = 512  # arms ascended at once: their matrices stay in a cache
_EVERY = 16  # calls from one tightening of the cuts to the next, which costs more than many ascents
_MARGIN = 2e-9  # an arm is ruled out if its bound is below another's value by this share of it, or this


class Optimum(NamedTuple):
    """The ``value`` found for every arm (..., K), an ``upper`` bound, which arms were ``ascended``, the point ``u``.

    The point is w = ŵ + Σ⁻¹A_xᵀu, ``u`` (..., K, 2H + 1). An arm that was not ascended is ruled out: its value is its
    upper bound, smaller than the largest, and its u is where its ascent may begin: an earlier call's, or 0. An arm that
    beats all other arms' bounds is ascended no further, the others until their steps are small.
    """

    value: Tensor
    upper: Tensor
    ascended: Tensor
    u: Tensor


class LineThree:
    """The `Index` of line 3 on the arms of a `View`.

    An arm is ascended from the higher of two points: the linear solution, and the earlier calls' u of that learner and
    arm, scaled to the sphere of its ball. A ball moves little between two pulls: the second is faster, and in wide
    balls, with their many local maxima, often higher. So a value depends on when it was asked for before: the simulator
    asks for all learners with new data, at the beginning of a round and after a synchronisation. The cuts of earlier
    calls make later ones faster, not different.
    """

    def __init__(self, view: View, lam: float, beta: float) -> None:
        self.view, self.lam, self.beta = view, lam, beta
        self.cuts: Cuts | None = None
        self.known: Tally | None = None
        self.value = self.u = torch.zeros((), dtype=torch.float64)
        self.calls = 0

    def __call__(self, posterior: Estimates, known: Tally) -> Tensor:
        """The optimistic values (S, M, K) for the data ``known`` (S, M, K)."""
        seen = _images(self.view, self.lam, self.beta, known)
        found, new = _blank(seen), torch.ones(known.counts.shape[:-1], dtype=torch.bool)
        if self.known is not None:  # learners without new data keep their values
            found = found._replace(u=self.u)
            new = ((known.counts != self.known.counts) | (known.sums != self.known.sums)).any(-1)
        sharper = self.calls % _EVERY == 0
        found, self.cuts = _search(seen, found, self.cuts, new.view_as(seen.spare), sharper)
        self.value = torch.where(new.unsqueeze(-1), found.value.view_as(known.counts), self.value)
        self.calls, self.u, self.known = self.calls + 1, found.u, known
        return self.value


def line_three(view: View, lam: float, beta: float, tally: Tally, u: Tensor | None = None) -> Optimum:
    """max_{w ∈ Ball} f_x(w) for the ball of ``tally`` (..., K), by ascent of every arm from its linear solution.

    Or from the points ``u`` (..., K, 2H + 1) of other tallies' optima, scaled to the sphere, where these are higher.
    The leading dimensions of ``tally`` are those of the view, or the view's last is 1 and shared.
    """
    seen = _images(view, lam, beta, tally)
    found = _blank(seen)
    if u is not None:
        found = found._replace(u=u.reshape(found.u.shape))
    found = _ascended(seen, found, torch.ones_like(found.ascended))
    lead = tally.counts.shape[:-1]
    return Optimum(*(part.reshape(*lead, *part.shape[2:]) for part in found))


def _images(view: View, lam: float, beta: float, tally: Tally) -> Images:
    """The images with the leading dimensions as one of views and one of the learners that share each."""
    lead, arms = tally.counts.shape[:-1], tally.counts.shape[-1]
    shared = view.theta.ndim > 2 and view.theta.shape[-3] == 1
    owners = (*lead[:-1], 1) if shared else lead
    flat = View(*(part.expand(*owners, *part.shape[-2:]).reshape(-1, *part.shape[-2:]) for part in view))
    return images(flat, lam, beta, Tally(*(part.reshape(len(flat.theta), -1, arms) for part in tally)))


def _blank(seen: Images) -> Optimum:
    """No arm ascended."""
    unknown = torch.full_like(seen.counts, math.inf)
    u = unknown.new_zeros(*unknown.shape, seen.view.theta.shape[-1])
    return Optimum(unknown, unknown, torch.zeros_like(unknown, dtype=torch.bool), u)


def _search(
    seen: Images, found: Optimum, cuts: Cuts | None, wanted: Tensor, sharper: bool
) -> tuple[Optimum, Cuts | None]:
    """The largest value of every learner ``wanted`` (V, M), and the cuts (none where the ball is a point).

    No arm of ``found`` is ascended yet; its u may be an earlier call's. The arm with the largest bound is ascended.
    With ``sharper`` the bounds that reach its value are tightened, and again the arm with the largest bound is
    ascended. Then all are whose bounds reach the best value.
    """
    if not seen.beta:
        return _ascended(seen, found, torch.ones_like(found.ascended)), None
    cuts = prior_cuts(seen.view, seen.lam, seen.beta) if cuts is None else cuts
    found = _bounded(found, cuts, seen)
    found = _ascended(seen, found, _first(found.upper, _open(found, wanted)))
    if sharper:
        cuts = tighten(cuts, seen, _best(found), _open(found, wanted))
        found = _bounded(found, cuts, seen)
        found = _ascended(seen, found, _first(found.upper, _open(found, wanted)))
    return _ascended(seen, found, _open(found, wanted)), cuts


def _bounded(found: Optimum, cuts: Cuts, seen: Images) -> Optimum:
    """``found`` with the bounds of ``cuts`` where they are below those that it has."""
    upper = torch.minimum(found.upper, bounds(cuts, seen).amin(-1))
    return found._replace(upper=upper, value=torch.where(found.ascended, found.value, upper))


def _best(found: Optimum) -> Tensor:
    """The largest value of an ascended arm, (V, M, 1)."""
    return found.value.masked_fill(~found.ascended, -math.inf).amax(-1, keepdim=True)


def _open(found: Optimum, wanted: Tensor) -> Tensor:
    """The arms (V, M, K) of the learners ``wanted`` (V, M) that were not ascended and may be the largest."""
    best = _best(found)
    return wanted.unsqueeze(-1) & ~found.ascended & (found.upper >= best - _margin(best))


def _margin(value: Tensor) -> Tensor:
    return _MARGIN * value.abs().clamp(min=1)


def _first(upper: Tensor, candidates: Tensor) -> Tensor:
    """The candidate with the largest bound, as a mask (V, M, K)."""
    place = upper.masked_fill(~candidates, -math.inf).argmax(-1, keepdim=True)
    return candidates & (torch.arange(upper.shape[-1]) == place)


def _largest_other(values: Tensor) -> Tensor:
    """The largest of the other arms' ``values`` (..., K), for every arm."""
    first, place = values.max(-1, keepdim=True)
    second = values.scatter(-1, place, -math.inf).amax(-1, keepdim=True)
    return torch.where(torch.arange(values.shape[-1]) == place, second, first)


class Climb(NamedTuple):
    """Arms on their way up: value f (n,), dual point u and C_x u (n, 2H + 1), and step η (n,)."""

    value: Tensor
    u: Tensor
    moved: Tensor
    step: Tensor


def _ascended(seen: Images, found: Optimum, chosen: Tensor) -> Optimum:
    """``found`` after the ascent of the arms ``chosen`` (V, M, K)."""
    rival = _largest_other(found.value)
    heights, u, root = found.value.clone(), found.u.clone(), math.sqrt(seen.beta)
    for part in chosen.nonzero().split(_CHUNK):
        at = tuple(part.T)
        below = rows(seen, at)
        # where f linearised at A_xŵ₀ is largest: u = √β h/‖h‖_{C_x}, with h its gradient in θ
        climb = _on_sphere(below, slope(seen.view.theta[at[0], at[2]]), root)
        if bool(u[at].any()):
            other = _on_sphere(below, u[at], root)
            climb = _where(u[at].any(-1) & (other.value > climb.value), other, climb)
        heights[at], u[at] = _finish(below, climb, root, rival[at])
    return found._replace(value=heights, ascended=found.ascended | chosen, u=u)


def _on_sphere(below: Rows, u: Tensor, root: float) -> Climb:
    """Arms at their points ``u`` (n, 2H + 1), scaled to the spheres of their balls."""
    moved = below.times(u)
    scale = root / (u * moved).sum(-1, keepdim=True).clamp(min=1e-300).sqrt()
    found = value(below.centre + moved * scale)
    return Climb(found, u * scale, moved * scale, torch.full_like(found, FIRST_STEP))


def _where(better: Tensor, one: Climb, other: Climb) -> Climb:
    """The arms of ``one`` where it is ``better`` (n,), else those of the ``other``."""
    wide = better.unsqueeze(-1)
    kinds = (better, wide, wide, better)
    return Climb(*(torch.where(*parts) for parts in zip(kinds, one, other, strict=True)))


def _finish(below: Rows, climb: Climb, root: float, rival: Tensor) -> tuple[Tensor, Tensor]:
    """Ascend every arm until its steps are small or it beats its ``rival`` (n,); the values and u."""
    heights, u = climb.value.clone(), climb.u.clone()
    left = torch.arange(len(heights))
    for _ in range(MOST_STEPS // _STRIDE):
        going = (climb.value - _margin(climb.value) <= rival[left]) & (climb.step >= LAST_STEP)
        if not going.all():
            heights[left], u[left] = climb.value, climb.u
            left, below = left[going], Rows(*(part[going] for part in below))
            climb = Climb(*(part[going] for part in climb))
        if not len(left):
            return heights, u
        climb = _ascend(below, climb, root)
    heights[left], u[left] = climb.value, climb.u
    return heights, u


def _ascend(below: Rows, climb: Climb, root: float) -> Climb:
    """Some steps of projected ascent of n arms; a step that does not improve is not taken."""
    for _ in range(_STRIDE):
        h = slope(below.centre + climb.moved)
        ch = below.times(h)
        rate = (climb.step * root / (h * ch).sum(-1).sqrt()).unsqueeze(-1)
        u, moved = climb.u + rate * h, climb.moved + rate * ch
        shrink = (root / (u * moved).sum(-1, keepdim=True).clamp(min=1e-300).sqrt()).clamp(max=1)
        u, moved = u * shrink, moved * shrink
        height = value(below.centre + moved)
        better = height > climb.value + RELATIVE_GAIN * climb.value.abs()
        stay = climb._replace(step=climb.step / 8)
        climb = _where(better, Climb(height, u, moved, 2 * climb.step), stay)
    return climb
