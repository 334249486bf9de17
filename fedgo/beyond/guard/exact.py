"""Theorem S: on finitely many arms the linearisation at ŵ₀ is exact, so Phase II is a linear bandit without remainder.

With G the K gradients ∇f_x(ŵ₀) as rows, of rank K, and r = f − f(ŵ₀): w̃ = ŵ₀ + G⁺r gives f_x(ŵ₀) + g_xᵀ(w̃ − ŵ₀) = f(x).
In arm space Q = GGᵀ/λ is the prior covariance of f, A = Q⁻¹ + diag(n) the precision after n pulls, V = A⁻¹, and

    |m − f|_A ≤ √β,   √β_{t,i} = σ√(ln det QA + 2 ln(π²N(p + 1)²/(6δ))) + |f − f(ŵ₀)|_{Q⁻¹}

for all clients i and steps t with probability 1 − δ, conditional on Phase I. A is factorised and not Σ: each row of it
has the size of its own pivot, so that λ may be 1e-12. Gradients that lack rank, as with K > d_w, are refused.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import require, require_finite
from fedgo.beyond.guard.intervals import Bounds, Interval, clipped
from fedgo.confidence import Tally, compress
from fedgo.phase_one import Start
from fedgo.problem import Problem
from fedgo.theory.confidence import information_bound, noise_radius
from fedgo.theory.phase_two import PhaseTwoRegret, regret_phase_two_clipped, synchronisations

_RANK = 1e-8  # of the largest singular value: gradients whose least is below it are not of full rank


def exact_parameter(gradients: Tensor, w0: Tensor, offsets: Tensor, means: Tensor) -> Tensor:
    """w̃ = ŵ₀ + G⁺(f − f(ŵ₀)) (..., d_w) of G = ``gradients`` (..., K, d_w), ``offsets`` f(ŵ₀) and ``means`` f (..., K).

    Only a simulation knows it. A ``ValueError`` unless G has rank K.
    """
    least_singular(gradients)
    factor, basis = compress(gradients)
    inner = torch.linalg.solve_triangular(factor, (means - offsets).unsqueeze(-1), upper=False)
    found: Tensor = w0 + (basis @ inner).squeeze(-1)
    return found


def least_singular(gradients: Tensor) -> Tensor:
    """σ_min(G) of ``gradients`` (..., K, d_w), (...); a ``ValueError`` where the rank is below K, up to rounding."""
    values: Tensor = torch.linalg.svdvals(gradients)
    least, most = values[..., -1], values[..., 0]
    full = (least > _RANK * most) & (gradients.shape[-2] <= gradients.shape[-1])
    remedy = "the linearisation is exact only for gradients of rank K: give fewer arms or a wider network"
    found = torch.where(full, least, 0.0).min().item()
    require(bool(full.all()), "the least singular value of the gradients", found, remedy)
    return least


def computable_lam(gradients: Tensor, offsets: Tensor, value: float, sigma: float) -> Tensor:
    """λ = (σ·σ_min(G)/√Σ(F + |f_x(ŵ₀)|)²)², (...): a client can compute it, and √λ|w̃ − ŵ₀| ≤ σ if |f| ≤ F."""
    require(0 < sigma < math.inf, "sigma", sigma, "give σ > 0, a bound on the noise")
    require(0 < value < math.inf, "value", value, "give F > 0, a bound on |f|")
    require_finite("offsets", offsets)
    farthest: Tensor = (value + offsets.abs()).norm(dim=-1)
    return (sigma * least_singular(gradients) / farthest).square()


class Belief(NamedTuple):
    """After some pulls: ``mean`` m and ``width`` w_x = √V_xx (..., K), ``precision`` A's lower Cholesky factor
    (..., K, K), and ``information`` ln det QA (...)."""

    mean: Tensor
    width: Tensor
    precision: Tensor
    information: Tensor

    def distance(self, means: Tensor) -> Tensor:
        """|m − f|_A of ``means`` f (..., K), (...)."""
        away: Tensor = (self.precision.mT @ (means - self.mean).unsqueeze(-1)).squeeze(-1).norm(dim=-1)
        return away


class Prior(NamedTuple):
    """Q = LLᵀ by its lower ``factor`` L (..., K, K) and the ``offsets`` f₀ (..., K), around which it is centred."""

    factor: Tensor
    offsets: Tensor

    @property
    def variance(self) -> Tensor:
        """Q_xx, (..., K)."""
        return self.factor.square().sum(-1)

    def bias(self, means: Tensor) -> Tensor:
        """|f − f₀|_{Q⁻¹} of ``means`` f (..., K), (...); only a simulation knows it."""
        away = (means - self.offsets).unsqueeze(-1)
        bias: Tensor = torch.linalg.solve_triangular(self.factor, away, upper=False).squeeze(-1).norm(dim=-1)
        return bias

    def after(self, tally: Tally) -> "Belief":
        """The belief given the ``tally`` (..., K) of pulls and summed rewards."""
        eye = torch.eye(self.factor.shape[-1], dtype=torch.float64).expand_as(self.factor)
        half = torch.linalg.solve_triangular(self.factor, eye, upper=False)
        factor: Tensor = torch.linalg.cholesky(half.mT @ half + torch.diag_embed(tally.counts))
        covariance = torch.cholesky_inverse(factor)
        surprise = tally.sums - tally.counts * self.offsets
        mean = self.offsets + (covariance @ surprise.unsqueeze(-1)).squeeze(-1)
        roots = self.factor.diagonal(dim1=-2, dim2=-1).abs().log() + factor.diagonal(dim1=-2, dim2=-1).log()
        return Belief(mean, covariance.diagonal(dim1=-2, dim2=-1).sqrt(), factor, 2 * roots.sum(-1))


def prior(gradients: Tensor, offsets: Tensor, lam: Tensor | float) -> Prior:
    """Q = GGᵀ/λ of ``gradients`` (..., K, d_w), with λ = ``lam`` (...), from a QR of its root.

    A ``ValueError`` unless λ > 0 and G has rank K.
    """
    lam = torch.as_tensor(lam, dtype=torch.float64)
    require(bool((lam > 0).all()), "lam", lam.min().item(), "give a positive regularisation weight λ")
    least_singular(gradients)
    return Prior(compress(gradients / lam.sqrt()[..., None, None]).features, offsets)


@dataclass(frozen=True)
class ExactIntervals(Bounds):
    """The `Intervals` of Theorem S for S runs: m ± √β w within [−F, F], around the one ŵ₀ of Phase I.

    ``prior`` (S, K) is fixed when Phase II begins, ``bias`` (S,) a bound on |f − f(ŵ₀)|_{Q⁻¹}, F = ``value``, N =
    ``clients``. What is known must be data of Phase II, since ŵ₀ depends on those of Phase I.
    """

    prior: Prior = field(kw_only=True)
    bias: Tensor = field(kw_only=True)

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """As `Intervals` says, from data of Phase II; what is ``shared`` does not matter."""
        factor, offsets, bias = self.prior.factor, self.prior.offsets, self.bias
        if run is not None:
            factor, offsets, bias = factor[run], offsets[run], bias[run]
        belief = Prior(factor.unsqueeze(1), offsets.unsqueeze(1)).after(known)
        information, members = belief.information, self.clients
        noise = noise_radius(information, syncs, members=members, sigma=self.sigma, delta=self.delta)
        width = (noise + bias.unsqueeze(1)).unsqueeze(-1) * belief.width
        return clipped(belief.mean, width, self.value, belief.width.square().log1p())


def exact_intervals(
    problem: Problem, start: Start, value: float, sigma: float | None = None, delta: float = 0.1
) -> ExactIntervals:
    """The intervals of Theorem S at the ŵ₀ of ``start``, with the λ that a client can compute and, so, a bias of σ.

    F = ``value`` must bound |f|; σ is the problem's unless given. A ``ValueError`` for gradients of rank below K.
    """
    require(start.w0.shape[1] == 1, "the shape of w0", tuple(start.w0.shape), "give a shared_start")
    w0, sigma = start.w0[:, 0], problem.sigma if sigma is None else sigma
    gradients, offsets = start.network.gradients(w0, problem.arms), start.network.values(w0, problem.arms)
    made = prior(gradients, offsets, computable_lam(gradients, offsets, value, sigma))
    bias = torch.full_like(offsets[:, 0], sigma)
    return ExactIntervals(start.clients, sigma, value, delta, prior=made, bias=bias)


def exact_regret(intervals: ExactIntervals, rounds: int, gamma: float) -> list[PhaseTwoRegret]:
    """Item 3 with κ = 0 and Λ = R = K ln(1 + NT max_x Q_xx/K) for every run: the regret of Phase II of whoever plays
    the largest upper end."""
    found, clients, arms = [], intervals.clients, intervals.prior.offsets.shape[-1]
    largest = intervals.prior.variance.amax(-1).tolist()
    for most, bias in zip(largest, intervals.bias.tolist(), strict=True):
        bound = information_bound(arms, clients * rounds, math.sqrt(most), 1.0)
        syncs = min(synchronisations(rounds, bound, gamma), clients * rounds)
        sizes = torch.tensor([bound, syncs], dtype=torch.float64)
        noise = noise_radius(*sizes, members=clients, sigma=intervals.sigma, delta=intervals.delta).item()
        rules = clients, rounds, gamma, intervals.value
        found.append(regret_phase_two_clipped((noise + bias) ** 2, bound, *rules, widest=math.sqrt(most)))
    return found
