"""Theorem S: on finitely many arms the linearisation at ŵ₀ is exact, so Phase II is a linear bandit without remainder.

Let f be the vector of the K arms' mean rewards and f(ŵ₀) that of the network's values at the parameter ŵ₀ of Phase I.
Let the gradients g_x = ∇f_x(ŵ₀) be the rows of G (K, d_w), and let G have rank K. Then w̃ = ŵ₀ + G⁺(f − f(ŵ₀)) has
f_x(ŵ₀) + g_xᵀ(w̃ − ŵ₀) = f(x) for every arm x. In the space of arms Q = GGᵀ/λ is the prior covariance of f, with the
regularisation weight λ. If n has the number of pulls of each arm, A = Q⁻¹ + diag(n) is the precision, V = A⁻¹ the
covariance, and m the mean of the posterior, for noise of variance 1. With N clients, σ-sub-Gaussian noise and p
synchronisations so far,

    |m − f|_A ≤ √β_{t,i} = σ√(ln det QA + 2 ln(π²N(p + 1)²/(6δ))) + |f − f(ŵ₀)|_{Q⁻¹}

for all clients i and steps t with probability 1 − δ, conditional on Phase I. The code factorises A and not Σ = λI +
Gᵀdiag(n)G, because the factor of A is accurate in float64 also for λ as small as 1e-12. It refuses gradients whose rank
is below K, as it always is if K > d_w. F bounds |f|; leading axes (...) broadcast.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import require
from fedgo.beyond.guarantees.intervals import Bounds, Interval, clipped
from fedgo.confidence import Tally, compress
from fedgo.phase_one import Start
from fedgo.theory.ball import information_bound, noise_radius
from fedgo.theory.regret import PhaseTwoRegret, regret_phase_two_clipped, synchronisations

# gradients do not have full rank if the least singular value is at most this share of the largest
_RANK = 1e-8


def least_singular(gradients: Tensor) -> Tensor:
    """Return σ_min(G), (...), or refuse gradients (..., K, d_w) whose σ_min is at most 1e-8 times the largest."""
    values: Tensor = torch.linalg.svdvals(gradients)
    least, most = values[..., -1], values[..., 0]
    full = (least > _RANK * most) & (gradients.shape[-2] <= gradients.shape[-1])
    remedy = "the linearisation is exact only for gradients of rank K: give fewer arms or a wider network"
    smallest = torch.where(full, least, 0.0).min().item()
    require(bool(full.all()), "the least singular value of the gradients", smallest, remedy)
    return least


def computable_lam(gradients: Tensor, offsets: Tensor, value: float, sigma: float) -> Tensor:
    """Return λ = (σ·σ_min(G)/√Σ_x(F + |f_x(ŵ₀)|)²)², for which √λ‖w̃ − ŵ₀‖ ≤ σ, although no client knows w̃, (...).

    Args:
        gradients: The gradients G, (..., K, d_w).
        offsets: The network's values f_x(ŵ₀), (..., K).
        value: The bound F.
        sigma: The sub-Gaussian constant σ.
    """
    farthest: Tensor = (value + offsets.abs()).norm(dim=-1)
    return (sigma * least_singular(gradients) / farthest).square()


class Belief(NamedTuple):
    """The Gaussian posterior of the mean rewards after some pulls.

    Args:
        mean: The mean m, (..., K).
        width: The width w_x = √V_xx of each arm, (..., K).
        precision: The lower Cholesky factor of A, (..., K, K).
        information: ln det QA, (...); before the first pull it is 0 up to rounding.
    """

    mean: Tensor
    width: Tensor
    precision: Tensor
    information: Tensor

    def distance(self, means: Tensor) -> Tensor:
        """Return |m − f|_A for the mean rewards f = ``means`` (..., K), (...)."""
        away: Tensor = (self.precision.mT @ (means - self.mean).unsqueeze(-1)).squeeze(-1).norm(dim=-1)
        return away


class Prior(NamedTuple):
    """The Gaussian prior of the mean rewards.

    Args:
        factor: A lower triangular factor of Q, (..., K, K), whose diagonal may have negative entries.
        offsets: The mean f(ŵ₀), (..., K).
    """

    factor: Tensor
    offsets: Tensor

    @classmethod
    def of(cls, gradients: Tensor, offsets: Tensor, lam: Tensor | float) -> "Prior":
        """Return the prior with Q = GGᵀ/λ, from a QR decomposition of Gᵀ/√λ; ``lam`` > 0 is a number or (...)."""
        lam = torch.as_tensor(lam, dtype=torch.float64)
        require(bool((lam > 0).all()), "lam", lam.min().item(), "give a positive regularisation weight λ")
        least_singular(gradients)
        return cls(compress(gradients / lam.sqrt()[..., None, None]).features, offsets)

    @property
    def variance(self) -> Tensor:
        """The prior variance Q_xx of each arm, (..., K)."""
        return self.factor.square().sum(-1)

    def bias(self, means: Tensor) -> Tensor:
        """Return |f − f(ŵ₀)|_{Q⁻¹} for the mean rewards f (..., K), which only a simulation knows, (...)."""
        away = (means - self.offsets).unsqueeze(-1)
        bias: Tensor = torch.linalg.solve_triangular(self.factor, away, upper=False).squeeze(-1).norm(dim=-1)
        return bias

    def after(self, tally: Tally) -> "Belief":
        """Return the posterior given the counts and summed rewards in ``tally``, (..., K) each."""
        eye = torch.eye(self.factor.shape[-1], dtype=torch.float64).expand_as(self.factor)
        half = torch.linalg.solve_triangular(self.factor, eye, upper=False)
        factor: Tensor = torch.linalg.cholesky(half.mT @ half + torch.diag_embed(tally.counts))
        covariance = torch.cholesky_inverse(factor)
        surprise = tally.sums - tally.counts * self.offsets
        mean = self.offsets + (covariance @ surprise.unsqueeze(-1)).squeeze(-1)
        roots = self.factor.diagonal(dim1=-2, dim2=-1).abs().log() + factor.diagonal(dim1=-2, dim2=-1).log()
        return Belief(mean, covariance.diagonal(dim1=-2, dim2=-1).sqrt(), factor, 2 * roots.sum(-1))


@dataclass(frozen=True)
class ExactIntervals(Bounds):
    """The rule of Theorem S: the intervals m ± √β w, cut to [−F, F]. All clients of a run share ŵ₀.

    With the λ of `computable_lam` for the prior, σ bounds the bias.

    Args:
        clients: The number N of clients.
        sigma: The sub-Gaussian constant σ.
        value: The bound F.
        delta: The failure probability δ.
        prior: The prior of each of S runs when Phase II begins; only data of Phase I may update it.
    """

    prior: Prior = field(kw_only=True)

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """Return the intervals for pulls of Phase II in ``known``, with the ``gain`` ln(1 + w²)."""
        chosen = slice(None) if run is None else run
        belief = Prior(*(part[chosen].unsqueeze(1) for part in self.prior)).after(known)
        information, members = belief.information, self.clients
        noise = noise_radius(information, syncs, members=members, sigma=self.sigma, delta=self.delta)
        width = (noise + self.sigma).unsqueeze(-1) * belief.width
        return clipped(belief.mean, width, self.value, belief.width.square().log1p())


def exact_intervals(start: Start, value: float, delta: float = 0.1) -> ExactIntervals:
    """Return the rule around the ŵ₀ of ``start``, with the λ of `computable_lam`.

    Args:
        start: Phase I, with one ŵ₀ for all clients and gradients of rank K.
        value: The bound F.
        delta: The failure probability δ.
    """
    start.require(start.encoding, shared=True)
    problem = start.problem
    w0, sigma = start.w0[:, 0], problem.sigma
    Bounds(start.clients, sigma, value, delta)  # checks them
    gradients, offsets = start.network.gradients(w0, problem.arms), start.network.values(w0, problem.arms)
    made = Prior.of(gradients, offsets, computable_lam(gradients, offsets, value, sigma))
    return ExactIntervals(start.clients, sigma, value, delta, prior=made)


def exact_regret(intervals: ExactIntervals, rounds: int, gamma: float) -> list[PhaseTwoRegret]:
    """Return item 3 of the repaired theorem, without second-order part, for each run of optimism with ``intervals``.

    It is 2√(eφβNTΛ) + ⌊Λ⌋(2N√(φβγ) + 2F) with Λ = K ln(1 + NT max_x Q_xx/K), φ = c²/ln(1 + c²), c = min(F/√β, max_x
    √Q_xx) and √β = σ√(Λ + 2 ln(π²N(P + 1)²/(6δ))) + σ, where P = Λ/(2γ) + √(Λ²/(4γ²) + TΛ/γ), or NT if that is
    less.

    Args:
        intervals: The rule of the N clients, each of which plays the arm with the largest upper end.
        rounds: The number T of rounds.
        gamma: The threshold γ > 0 of the event, which should be finite.
    """
    regrets, clients, arms = [], intervals.clients, intervals.prior.offsets.shape[-1]
    for widest in intervals.prior.variance.amax(-1).sqrt().tolist():
        bound = information_bound(arms, clients * rounds, widest, 1.0)
        syncs = min(synchronisations(rounds, bound, gamma), clients * rounds)
        sizes = torch.tensor([bound, syncs], dtype=torch.float64)
        noise = noise_radius(*sizes, members=clients, sigma=intervals.sigma, delta=intervals.delta).item()
        beta, value = (noise + intervals.sigma) ** 2, intervals.value
        regrets.append(regret_phase_two_clipped(beta, bound, clients, rounds, gamma, value, widest=widest))
    return regrets
