"""Theorem S: on finitely many arms the linearisation at ŵ₀ is exact, so Phase II is a linear bandit without remainder.

Let the rows g_x of G be the K gradients ∇f_x(ŵ₀), and let G have rank K. Then the parameter w̃ = ŵ₀ + G⁺(f − f(ŵ₀)) has
f_x(ŵ₀) + g_xᵀ(w̃ − ŵ₀) = f(x) for every arm x. In the space of arms Q = GGᵀ/λ is the prior covariance of f,
A = Q⁻¹ + diag(n) the precision after n pulls, V = A⁻¹ the covariance, and m the mean. With N clients, σ-sub-Gaussian
noise and p synchronisations so far,

    |m − f|_A ≤ √β_{t,i} = σ√(ln det QA + 2 ln(π²N(p + 1)²/(6δ))) + |f − f(ŵ₀)|_{Q⁻¹}

for all clients i and steps t with probability 1 − δ, conditional on Phase I. The code factorises A and not Σ: each row
of A has the size of its own pivot, so that λ may be as small as 1e-12. It refuses gradients whose rank is below K, for
instance if K > d_w.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import require
from fedgo.beyond.guard.intervals import Bounds, Interval, clipped
from fedgo.confidence import Tally, compress
from fedgo.phase_one import Start
from fedgo.problem import Problem
from fedgo.theory.confidence import information_bound, noise_radius
from fedgo.theory.phase_two import PhaseTwoRegret, regret_phase_two_clipped, synchronisations

_RANK = 1e-8  # of the largest singular value: gradients whose least is below it are not of full rank


def least_singular(gradients: Tensor) -> Tensor:
    """Return σ_min(G), (...), the least singular value of the ``gradients`` G (..., K, d_w).

    Raises:
        ValueError: If the rank of G is below K, up to rounding.
    """
    values: Tensor = torch.linalg.svdvals(gradients)
    least, most = values[..., -1], values[..., 0]
    full = (least > _RANK * most) & (gradients.shape[-2] <= gradients.shape[-1])
    remedy = "the linearisation is exact only for gradients of rank K: give fewer arms or a wider network"
    smallest = torch.where(full, least, 0.0).min().item()
    require(bool(full.all()), "the least singular value of the gradients", smallest, remedy)
    return least


def computable_lam(gradients: Tensor, offsets: Tensor, value: float, sigma: float) -> Tensor:
    """Return a λ for which √λ|w̃ − ŵ₀| ≤ σ, computed from what a client knows, (...).

    It is λ = (σ·σ_min(G)/√Σ_x(F + |f_x(ŵ₀)|)²)², where |f| ≤ F.

    Args:
        gradients: G, (..., K, d_w).
        offsets: f(ŵ₀) of each arm, (..., K).
        value: F > 0.
        sigma: σ > 0.

    Raises:
        ValueError: If G does not have rank K.
    """
    farthest: Tensor = (value + offsets.abs()).norm(dim=-1)
    return (sigma * least_singular(gradients) / farthest).square()


class Belief(NamedTuple):
    """The posterior of the arms' mean rewards after some pulls.

    ``mean`` (..., K) is m, ``width`` (..., K) is w_x = √V_xx, ``precision`` (..., K, K) is the lower Cholesky factor of
    A, and ``information`` (...) is ln det QA.
    """

    mean: Tensor
    width: Tensor
    precision: Tensor
    information: Tensor

    def distance(self, means: Tensor) -> Tensor:
        """Return the distance |m − f|_A, (...), from the posterior mean m to f = ``means`` (..., K)."""
        away: Tensor = (self.precision.mT @ (means - self.mean).unsqueeze(-1)).squeeze(-1).norm(dim=-1)
        return away


class Prior(NamedTuple):
    """The Gaussian prior of the arms' mean rewards, with mean f₀ and covariance Q = LLᵀ.

    ``factor`` (..., K, K) is the lower triangular L, and ``offsets`` (..., K) are f₀.
    """

    factor: Tensor
    offsets: Tensor

    @classmethod
    def of(cls, gradients: Tensor, offsets: Tensor, lam: Tensor | float) -> "Prior":
        """Return the prior with mean f₀ = ``offsets`` (..., K) and covariance Q = GGᵀ/λ, from a QR decomposition of
        G/√λ.

        Args:
            gradients: G, (..., K, d_w).
            offsets: f₀, (..., K).
            lam: λ, (...).

        Raises:
            ValueError: If λ is not positive, or G does not have rank K.
        """
        lam = torch.as_tensor(lam, dtype=torch.float64)
        require(bool((lam > 0).all()), "lam", lam.min().item(), "give a positive regularisation weight λ")
        least_singular(gradients)
        return cls(compress(gradients / lam.sqrt()[..., None, None]).features, offsets)

    @property
    def variance(self) -> Tensor:
        """The prior variance Q_xx of each arm, (..., K)."""
        return self.factor.square().sum(-1)

    def bias(self, means: Tensor) -> Tensor:
        """Return |f − f₀|_{Q⁻¹}, (...), the distance from f₀ to f = ``means`` (..., K), known to a simulation only."""
        away = (means - self.offsets).unsqueeze(-1)
        bias: Tensor = torch.linalg.solve_triangular(self.factor, away, upper=False).squeeze(-1).norm(dim=-1)
        return bias

    def after(self, tally: Tally) -> "Belief":
        """Return the posterior given the pulls and summed rewards of each arm, ``tally`` (..., K)."""
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
    """The rule of Theorem S, the intervals m ± √β w within [−F, F] around the one ŵ₀ of Phase I, for S runs.

    Args:
        clients: N.
        sigma: σ of the noise.
        value: F, a bound on |f(x)| for every arm x.
        delta: δ.
        prior: The prior when Phase II begins, of S runs with K arms. Only data of Phase II may update it, because ŵ₀
            depends on those of Phase I.
        bias: A bound on |f − f(ŵ₀)|_{Q⁻¹}, (S,).
    """

    prior: Prior = field(kw_only=True)
    bias: Tensor = field(kw_only=True)

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """Return the interval of every arm as `Intervals.after` does, from the data of Phase II in ``known`` alone.

        ``shared`` is not used.
        """
        chosen = slice(None) if run is None else run
        belief = Prior(*(part[chosen].unsqueeze(1) for part in self.prior)).after(known)
        information, members = belief.information, self.clients
        noise = noise_radius(information, syncs, members=members, sigma=self.sigma, delta=self.delta)
        width = (noise + self.bias[chosen].unsqueeze(1)).unsqueeze(-1) * belief.width
        return clipped(belief.mean, width, self.value, belief.width.square().log1p())


def exact_intervals(
    problem: Problem, start: Start, value: float, sigma: float | None = None, delta: float = 0.1
) -> ExactIntervals:
    """Return the intervals of Theorem S at the ŵ₀ of ``start``, with `computable_lam` as λ and σ as bound on the bias.

    Args:
        problem: S runs of a bandit problem.
        start: Phase I, with one ŵ₀ for all clients.
        value: F, a bound on |f|.
        sigma: σ of the noise; None means that of the problem.
        delta: δ; the intervals hold with probability at least 1 − δ.

    Raises:
        ValueError: If F, σ or δ is out of its range, if the gradients have a rank below K, or if the clients have
            several ŵ₀.
    """
    require(start.w0.shape[1] == 1, "the shape of w0", tuple(start.w0.shape), "give a shared_start")
    w0, sigma = start.w0[:, 0], problem.sigma if sigma is None else sigma
    Bounds(start.clients, sigma, value, delta)  # checks them
    gradients, offsets = start.network.gradients(w0, problem.arms), start.network.values(w0, problem.arms)
    made = Prior.of(gradients, offsets, computable_lam(gradients, offsets, value, sigma))
    bias = torch.full_like(offsets[:, 0], sigma)
    return ExactIntervals(start.clients, sigma, value, delta, prior=made, bias=bias)


def exact_regret(intervals: ExactIntervals, rounds: int, gamma: float) -> list[PhaseTwoRegret]:
    """Return, for each run, the bound on the regret of Phase II if every client plays the arm of the largest U.

    It is item 3 of the repaired theorem with κ = 0 and Λ = R = K ln(1 + NT max_x Q_xx/K).

    Args:
        intervals: The intervals by which the clients play.
        rounds: T.
        gamma: γ, the threshold of the event.
    """
    regrets, clients, arms = [], intervals.clients, intervals.prior.offsets.shape[-1]
    widths = intervals.prior.variance.amax(-1).sqrt().tolist()
    for widest, bias in zip(widths, intervals.bias.tolist(), strict=True):
        bound = information_bound(arms, clients * rounds, widest, 1.0)
        syncs = min(synchronisations(rounds, bound, gamma), clients * rounds)
        sizes = torch.tensor([bound, syncs], dtype=torch.float64)
        noise = noise_radius(*sizes, members=clients, sigma=intervals.sigma, delta=intervals.delta).item()
        beta, value = (noise + bias) ** 2, intervals.value
        regrets.append(regret_phase_two_clipped(beta, bound, clients, rounds, gamma, value, widest=widest))
    return regrets
