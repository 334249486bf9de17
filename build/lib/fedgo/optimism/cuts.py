"""Upper bounds of line 3's maxima, max_{w ∈ Ball} f_x(w): which arms need not be ascended.

With n and S the pulls and the summed residuals of the tally and ‖w − ŵ‖²_Σ = λ|w − ŵ₀|² + Σ_k (n_k v_k² − 2S_k v_k) +
‖ŵ − ŵ₀‖²_Σ for v = G(w − ŵ₀), weak duality and n_k v² − 2S_k v ≥ −2b_k v − (S_k − b_k)²/n_k give, for every ν > 0 and
all prices b of the pulled arms,

    max_{w ∈ Ball} f_x(w) ≤ E_x(ν, b) + (ν/2λ)(β − ‖ŵ − ŵ₀‖²_Σ + Σ_k (S_k − b_k)²/n_k),
    E_x(ν, b) = max_w f_x(w) − (ν/2λ)(λ|w − ŵ₀|² − 2bᵀG(w − ŵ₀)),

where the maximum of E_x is over every hidden unit on its own. E_x does not depend on the data: a cut (ν, b, E) is found
once and serves every client and every step.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo.optimism.images import Images, View, layers, scaled, seen_gradients, slope

_KEPT = 4  # cuts kept per arm
_ROUNDS = 8  # of tightening the cuts, at most
_DAMPING = 0.5  # of the step to better prices
_PROGRESS = 0.1  # a cut that closes less than this share of its gap is left as it is
_ROWS = 64  # arms whose units are maximised at once: their table stays in a cache
_SPACING, _EDGE = 0.125, 13.0  # of the table: its step near 0, and where it ends
_NEVER = 1e300  # 1/n of an arm that was never pulled: its price must be 0
_BEND = 1 / (6 * math.sqrt(3))  # sup |σ''|
_TURN = (15 - math.sqrt(33)) / 24  # σ at which (σ²/2)'' = σ²(1 − σ)(2 − 3σ) is largest


class Cuts(NamedTuple):
    """J cuts (ν, b, E) of every arm of V views: ``nu`` and ``top`` = E (V, K, J), the prices b ``prices`` (V, K, J, K).

    And what the derivatives of the bound are made of: G(w − ŵ₀) at the maximum of E ``shift`` (V, K, J, K), the squared
    distance of its θ from the centre A_x(ŵ₀ + Gᵀb/λ) of the penalty ``reach``, and |Gᵀb|²/λ² ``length`` (V, K, J).
    """

    nu: Tensor
    prices: Tensor
    top: Tensor
    shift: Tensor
    reach: Tensor
    length: Tensor


def bounds(cuts: Cuts, images: Images) -> Tensor:
    """The upper bound (V, M, K, J) that every cut gives of its arm's value, for every learner."""
    inverse = torch.where(images.counts > 0, 1 / images.counts, _NEVER)
    prices = cuts.prices.flatten(1, 2).mT
    gap = inverse @ prices.square() - 2 * (images.sums * inverse) @ prices  # Σ (S − b)²/n − Σ S²/n
    slack = (images.spare.unsqueeze(-1) + gap).unflatten(-1, cuts.nu.shape[1:])
    upper: Tensor = cuts.top.unsqueeze(1) + cuts.nu.unsqueeze(1) / (2 * images.lam) * slack
    return upper


def prior_cuts(view: View, lam: float, beta: float) -> Cuts:
    """One cut without prices for every arm, its ν that of the linearisation at ŵ₀ in the ball without data."""
    h = slope(view.theta)
    nu = (h * scaled(h, view.size)).sum(-1).mul(lam / beta).sqrt()
    owner, arm = (part.flatten() for part in torch.meshgrid(*map(torch.arange, nu.shape), indexing="ij"))
    only = _cuts(view, lam, owner, arm, nu.flatten(), torch.zeros_like(view.gram).flatten(0, 1))
    kept = Cuts(*(part.unflatten(0, nu.shape).unsqueeze(2).repeat_interleave(_KEPT, 2) for part in only))
    return kept._replace(top=kept.top.index_fill(-1, torch.arange(1, _KEPT), math.inf))


def tighten(cuts: Cuts, images: Images, best: Tensor, candidates: Tensor) -> Cuts:
    """Better cuts for the ``candidates`` (V, M, K) that may beat ``best`` (V, M, 1).

    In each round one learner's ball is served per arm, by a damped step from its tightest cut: towards the prices
    b = S − nv at which the bound is stationary, in the metric of (N⁻¹ + GGᵀ/λ)⁻¹, and towards the ν at which the
    maximum of E lies as far from the centre of its penalty as the ball allows.
    """
    each, working = bounds(cuts, images), candidates.any(1)
    for _ in range(_ROUNDS):
        upper, tightest = each.min(-1)
        candidates = candidates & (upper >= best)
        owner, arm = (candidates.any(1) & working).nonzero(as_tuple=True)
        if not len(owner):
            break
        learner = candidates.byte().argmax(1)[owner, arm]
        bound, place = upper[owner, learner, arm], tightest[owner, learner, arm]
        now = Cuts(*(part[owner, arm, place] for part in cuts))
        new = _step(images, owner, learner, arm, now, bound)
        loosest = each[owner, learner, arm].argmax(-1)
        cuts = Cuts(
            *(old.index_put((owner, arm, loosest), part) for old, part in zip(cuts, new, strict=True))
        )
        each = bounds(cuts, images)
        closed = bound - each[owner, learner, arm, loosest]
        working = torch.zeros_like(working)
        working[owner, arm] = ~(closed <= _PROGRESS * (bound - best[owner, learner, 0]))
    return cuts


def _step(images: Images, owner: Tensor, learner: Tensor, arm: Tensor, now: Cuts, bound: Tensor) -> Cuts:
    """The cuts (n,) after a step from the cuts ``now`` (n,), which give the learners' arms ``bound`` (n,)."""
    counts, sums = images.counts[owner, learner], images.sums[owner, learner]
    index, weight = images.pulled[owner, learner], images.weight[owner, learner]
    away = torch.where(counts > 0, now.shift - (sums - now.prices) / counts, 0.0)
    move = images.lam**2 * (weight @ away.gather(-1, index).unsqueeze(-1)).squeeze(-1)
    prices = now.prices.scatter_add(-1, index, -_DAMPING * move)
    allowed = 2 * (bound - now.top) / now.nu + now.length
    # prices of arms that the learner never pulled leave it without a bound: they are dropped, and ν is kept
    foreign = ((counts == 0) & (now.prices != 0)).any(-1)
    ratio = torch.where(foreign, 1.0, now.reach / allowed.clamp(min=1e-300)).clamp(1e-4, 1e4)
    nu = now.nu * ratio.pow(_DAMPING / 2)
    return _cuts(images.view, images.lam, owner, arm, nu, torch.where(counts > 0, prices, 0.0))


def _cuts(view: View, lam: float, owner: Tensor, arm: Tensor, nu: Tensor, prices: Tensor) -> Cuts:
    """The cuts of the arms ``arm`` (n,) of the views ``owner`` (n,) for ``nu`` (n,) and ``prices`` (n, K)."""
    parts = []
    for v, k, nu_, b in zip(*(part.split(_ROWS) for part in (owner, arm, nu, prices)), strict=True):
        low = seen_gradients(view.slope[v], view.unit[v], view.inner[v, k])
        size = view.size[v, k]
        middle = view.theta[v, k] + (b.unsqueeze(-2) @ low).squeeze(-2) / lam
        predicted = (view.gram[v] @ b.unsqueeze(-1)).squeeze(-1) / lam
        length = (b * predicted).sum(-1) / lam
        maxima, theta = unit_maxima(middle, size, nu_)
        away = theta - middle
        dual = scaled(away, 1 / size)
        shift = predicted + (low @ dual.unsqueeze(-1)).squeeze(-1)
        top = nu_ / 2 * length + maxima
        parts.append(Cuts(nu_, b, top, shift, (away * dual).sum(-1), length))
    return Cuts(*(torch.cat(part) for part in zip(*parts, strict=True)))


class _Table(NamedTuple):
    """Nodes t (G,), the 5 rows that `unit_maxima` combines (5, G), and 1 − σ beyond its end."""

    t: Tensor
    rows: Tensor
    beyond: float


@cache
def _table() -> _Table:
    """Between two nodes, Δ apart, a function lies below the chord by no more than Δ²/8 times its largest −φ''.

    −φ'' ≤ |W||σ''| − (σ²/2)''/ν + ν/s², whose parts are monotone from node to node, as their turning points are nodes.
    """
    nodes = [0.0]
    while nodes[-1] < _EDGE:
        nodes.append(nodes[-1] + _SPACING * max(1.0, nodes[-1] / 4))
    turns = [math.log(p / (1 - p)) for p in ((3 + math.sqrt(3)) / 6, _TURN, 1.25 - _TURN, 2 / 3)]
    both = {*nodes, *turns, *(-node for node in (*nodes, *turns))}
    t = torch.tensor(sorted(both), dtype=torch.float64)
    unit = torch.sigmoid(t)
    bend = unit * (1 - unit) * (1 - 2 * unit).abs()
    dent = (unit.square() * (1 - unit) * (3 * unit - 2)).clamp(min=0)
    width = t.diff().square() / 8

    def around(node: Tensor | None) -> Tensor:  # Δ²/8 times the larger end, of the worse cell beside a node
        cell = width if node is None else width * torch.maximum(node[1:], node[:-1])
        return torch.maximum(torch.cat([cell[:1], cell]), torch.cat([cell, cell[-1:]]))

    rows = [unit, around(bend), t, unit.square() / 2 + around(dent), around(None) - t.square() / 2]
    return _Table(t, torch.stack(rows), float(1 - unit[-1]))


def unit_maxima(middle: Tensor, size: Tensor, nu: Tensor) -> tuple[Tensor, Tensor]:
    """max_θ f(θ) − (ν/2)|θ − ``middle``|²_{S⁻¹} (n,), bounded from above, and where it is about (n, 2H + 1).

    S = A_xA_xᵀ with s² = ``size`` (n,). With the output layer maximised, unit j has φ(t) = Wσ(t) + σ(t)²/2ν −
    (ν/2s²)(t − z)² for (z, W) of ``middle``. Where ν/s² exceeds sup (Wσ + σ²/2ν)'', φ is concave, and a Newton step
    bounds it; elsewhere the table does.
    """
    table = _table()
    z, outer, c2 = layers(middle)
    penalty, inverse = (nu / size).unsqueeze(-1).expand_as(z), (1 / nu).unsqueeze(-1).expand_as(z)
    features = torch.stack([outer, outer.abs(), penalty * z, inverse, penalty], -1)
    top, node = (features.flatten(0, 1) @ table.rows).unflatten(0, z.shape).max(-1)
    unit = torch.sigmoid(z)  # beyond the table φ is at most what it is at its end, or at z, up to its tail
    own = outer * unit + unit.square() * inverse / 2
    top = torch.maximum(top - penalty / 2 * z.square(), own)
    loose = top + table.beyond * (outer.abs() + inverse)
    t = torch.where(top > own, table.t[node], z)
    steepest = outer.abs() * _BEND + inverse * (_TURN**2 * (1 - _TURN) * (2 - 3 * _TURN))
    for newton in (True, True, False):
        unit = torch.sigmoid(t)
        rate, height = unit * (1 - unit), outer + unit * inverse
        rise = rate * height - penalty * (t - z)
        bend = rate * (1 - 2 * unit) * height + rate.square() * inverse - penalty
        if newton:
            t = torch.where(bend < 0, t - (rise / bend).clamp(-1, 1), t)
    concave = penalty - steepest
    reached = outer * unit + unit.square() * inverse / 2 - penalty / 2 * (t - z).square()
    tight = reached + rise.square() / (2 * concave)
    maxima = torch.where(concave > 0, torch.minimum(tight, loose), loose).sum(-1) + c2 + 1 / (2 * nu)
    return maxima, torch.cat([t, height, (c2 + 1 / nu).unsqueeze(-1)], -1)
