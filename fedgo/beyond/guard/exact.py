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
    """Return w̃ = ŵ₀ + G⁺(f − f(ŵ₀)), (..., d_w), the parameter at which the linearised model equals f on all arms.

    Only a simulation knows it.

    Args:
        gradients: The gradients G at ŵ₀, (..., K, d_w).
        w0: ŵ₀, (..., d_w).
        offsets: f(ŵ₀) of each arm, (..., K).
        means: f of each arm, (..., K).

    Raises:
        ValueError: G does not have rank K.
    """
    least_singular(gradients)
    factor, basis = compress(gradients)
    inner = torch.linalg.solve_triangular(factor, (means - offsets).unsqueeze(-1), upper=False)
    truth: Tensor = w0 + (basis @ inner).squeeze(-1)
    return truth


def least_singular(gradients: Tensor) -> Tensor:
    """Return σ_min(G), (...), of ``gradients`` G (..., K, d_w).

    Raises:
        ValueError: The rank of G is below K, up to rounding.
    """
    values: Tensor = torch.linalg.svdvals(gradients)
    least, most = values[..., -1], values[..., 0]
    full = (least > _RANK * most) & (gradients.shape[-2] <= gradients.shape[-1])
    remedy = "the linearisation is exact only for gradients of rank K: give fewer arms or a wider network"
    smallest = torch.where(full, least, 0.0).min().item()
    require(bool(full.all()), "the least singular value of the gradients", smallest, remedy)
    return least


def computable_lam(gradients: Tensor, offsets: Tensor, value: float, sigma: float) -> Tensor:
    """Return λ = (σ·σ_min(G)/√Σ(F + |f_x(ŵ₀)|)²)², (...), which a client can compute.

    With it √λ|w̃ − ŵ₀| ≤ σ if |f| ≤ F = ``value``. ``gradients`` (..., K, d_w) are G and ``offsets`` (..., K) are
    f(ŵ₀).
    """
    require(0 < sigma < math.inf, "sigma", sigma, "give σ > 0, a bound on the noise")
    require(0 < value < math.inf, "value", value, "give F > 0, a bound on |f|")
    require_finite("offsets", offsets)
    farthest: Tensor = (value + offsets.abs()).norm(dim=-1)
    return (sigma * least_singular(gradients) / farthest).square()


class Belief(NamedTuple):
    """What is believed about the arms after some pulls.

    ``mean`` (..., K) is m, ``width`` (..., K) is w_x = √V_xx, ``precision`` (..., K, K) the lower Cholesky factor of A,
    and ``information`` (...) is ln det QA.
    """

    mean: Tensor
    width: Tensor
    precision: Tensor
    information: Tensor

    def distance(self, means: Tensor) -> Tensor:
        """Return |m − f|_A, (...), of ``means`` f (..., K)."""
        away: Tensor = (self.precision.mT @ (means - self.mean).unsqueeze(-1)).squeeze(-1).norm(dim=-1)
        return away


class Prior(NamedTuple):
    """The Gaussian prior on the rewards of all arms: covariance Q = LLᵀ, centred at f₀.

    ``factor`` (..., K, K) is the lower factor L, and ``offsets`` (..., K) are f₀.
    """

    factor: Tensor
    offsets: Tensor

    @property
    def variance(self) -> Tensor:
        """Q_xx of each arm, (..., K)."""
        return self.factor.square().sum(-1)

    def bias(self, means: Tensor) -> Tensor:
        """Return |f − f₀|_{Q⁻¹}, (...), of ``means`` f (..., K), which only a simulation knows."""
        away = (means - self.offsets).unsqueeze(-1)
        bias: Tensor = torch.linalg.solve_triangular(self.factor, away, upper=False).squeeze(-1).norm(dim=-1)
        return bias

    def after(self, tally: Tally) -> "Belief":
        """Return the belief given the pulls and summed rewards ``tally`` (..., K)."""
        eye = torch.eye(self.factor.shape[-1], dtype=torch.float64).expand_as(self.factor)
        half = torch.linalg.solve_triangular(self.factor, eye, upper=False)
        factor: Tensor = torch.linalg.cholesky(half.mT @ half + torch.diag_embed(tally.counts))
        covariance = torch.cholesky_inverse(factor)
        surprise = tally.sums - tally.counts * self.offsets
        mean = self.offsets + (covariance @ surprise.unsqueeze(-1)).squeeze(-1)
        roots = self.factor.diagonal(dim1=-2, dim2=-1).abs().log() + factor.diagonal(dim1=-2, dim2=-1).log()
        return Belief(mean, covariance.diagonal(dim1=-2, dim2=-1).sqrt(), factor, 2 * roots.sum(-1))


def prior(gradients: Tensor, offsets: Tensor, lam: Tensor | float) -> Prior:
    """Return the prior with Q = GGᵀ/λ of ``gradients`` G (..., K, d_w) and λ = ``lam`` (...), from a QR of its root.

    Raises:
        ValueError: λ is not positive, or G does not have rank K.
    """
    lam = torch.as_tensor(lam, dtype=torch.float64)
    require(bool((lam > 0).all()), "lam", lam.min().item(), "give a positive regularisation weight λ")
    least_singular(gradients)
    return Prior(compress(gradients / lam.sqrt()[..., None, None]).features, offsets)


@dataclass(frozen=True)
class ExactIntervals(Bounds):
    """The intervals m ± √β w within [−F, F] of Theorem S, for S runs, around the one ŵ₀ of Phase I.

    ``prior`` (S, K) is fixed when Phase II begins, and ``bias`` (S,) is a bound on |f − f(ŵ₀)|_{Q⁻¹}. The data have to
    be those of Phase II, because ŵ₀ depends on those of Phase I.
    """

    prior: Prior = field(kw_only=True)
    bias: Tensor = field(kw_only=True)

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """Return the intervals from data of Phase II, as `Intervals.after` says; ``shared`` does not matter."""
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
    """Return the intervals of Theorem S at the ŵ₀ of ``start``, with a λ that a client can compute and a bias of σ.

    Args:
        problem: S runs of a bandit problem.
        start: Phase I, with one ŵ₀ for all clients.
        value: F, a bound on |f|.
        sigma: σ; that of the problem if it is None.
        delta: The probability δ.

    Raises:
        ValueError: The gradients have a rank below K, or the clients have several ŵ₀.
    """
    require(start.w0.shape[1] == 1, "the shape of w0", tuple(start.w0.shape), "give a shared_start")
    w0, sigma = start.w0[:, 0], problem.sigma if sigma is None else sigma
    gradients, offsets = start.network.gradients(w0, problem.arms), start.network.values(w0, problem.arms)
    made = prior(gradients, offsets, computable_lam(gradients, offsets, value, sigma))
    bias = torch.full_like(offsets[:, 0], sigma)
    return ExactIntervals(start.clients, sigma, value, delta, prior=made, bias=bias)


def exact_regret(intervals: ExactIntervals, rounds: int, gamma: float) -> list[PhaseTwoRegret]:
    """Return item 3 of the theorem for each run, the bound on the regret of Phase II of playing the largest upper end.

    κ is 0, and Λ = R = K ln(1 + NT max_x Q_xx/K).
    """
    regrets, clients, arms = [], intervals.clients, intervals.prior.offsets.shape[-1]
    largest = intervals.prior.variance.amax(-1).tolist()
    for most, bias in zip(largest, intervals.bias.tolist(), strict=True):
        bound = information_bound(arms, clients * rounds, math.sqrt(most), 1.0)
        syncs = min(synchronisations(rounds, bound, gamma), clients * rounds)
        sizes = torch.tensor([bound, syncs], dtype=torch.float64)
        noise = noise_radius(*sizes, members=clients, sigma=intervals.sigma, delta=intervals.delta).item()
        beta, widest = (noise + bias) ** 2, math.sqrt(most)
        value = intervals.value
        regrets.append(regret_phase_two_clipped(beta, bound, clients, rounds, gamma, value, widest=widest))
    return regrets
