"""The confidence set of Phase II (eqs. 4–6), linearised at ŵ₀, in parameter space and in arm space.

Data enter as a `Tally`: per arm the number of pulls n and the sum S of the residuals y − f_x(ŵ₀). With G the
gradients ∇f_x(ŵ₀) as rows: Σ = λI + Gᵀdiag(n)G, b = Gᵀ(n∘Gŵ₀ + S), ŵ = Σ⁻¹(b + λŵ₀) = ŵ₀ + Σ⁻¹GᵀS.
The arms are finite and ŵ₀ is fixed, so V = GΣ⁻¹Gᵀ and f(ŵ₀) + G(ŵ − ŵ₀) carry every decision: one pull is a
rank-one update of both, and no d_w × d_w matrix is needed.
"""

import math
from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor

from fedgo._checks import require

_LARGEST_PRIOR = 1e13  # of ‖g‖²/λ: beyond it float64 holds no digit of the variance of an arm that was pulled
_HIDDEN = 1e-6  # a variance this far below 0 is rounding; an arm pulled n times has one of about 1/n


class Tally(NamedTuple):
    """Pulls ``counts`` and summed residuals ``sums`` per arm, both (..., K) float64."""

    counts: Tensor
    sums: Tensor

    def __add__(self, other: "Tally") -> "Tally":  # type: ignore[override]
        return Tally(self.counts + other.counts, self.sums + other.sums)

    @classmethod
    def blank(cls, *shape: int) -> "Tally":
        """No pulls, of ``shape`` (..., K)."""
        return cls(*(torch.zeros(shape, dtype=torch.float64) for _ in range(2)))

    def summed(self) -> "Tally":
        """The tallies of all clients (R, N, K) together, (R, K)."""
        return Tally(self.counts.sum(1), self.sums.sum(1))

    def of(self, run: Tensor) -> "Tally":
        """The tallies of the runs ``run`` (first axis)."""
        return Tally(self.counts[run], self.sums[run])

    def record(self, arm: Tensor, residual: Tensor, turn: Tensor) -> "Tally":
        """Add one pull of ``arm`` (...) with ``residual`` (...) where ``turn`` (...) is 1."""
        place = arm.unsqueeze(-1)
        counts = self.counts.scatter_add(-1, place, turn.unsqueeze(-1))
        return Tally(counts, self.sums.scatter_add(-1, place, (turn * residual).unsqueeze(-1)))


class Coordinates(NamedTuple):
    """G = ``features`` @ ``basis``ᵀ: arms (..., K, r) in an orthonormal ``basis`` (..., d_w, r), r = min(K, d_w)."""

    features: Tensor
    basis: Tensor


def compress(gradients: Tensor) -> Coordinates:
    """Coordinates of the gradients (..., K, d_w) in their own span: same Σ-norms, same log-determinants."""
    basis, features = torch.linalg.qr(gradients.mT)
    return Coordinates(features.mT, basis)


class Estimates(Protocol):
    """What a learner makes of its data: of every arm a mean and a variance, (..., K), as a `Posterior` has them."""

    @property
    def mean(self) -> Tensor: ...

    @property
    def variance(self) -> Tensor: ...

    def gain(self, arm: Tensor) -> Tensor: ...

    def of_each(self, learners: int) -> Self: ...


class Posterior(NamedTuple):
    """In arm space: ``covariance`` V = GΣ⁻¹Gᵀ (..., K, K) and ``mean`` f_x(ŵ₀) + g_xᵀ(ŵ − ŵ₀) (..., K)."""

    covariance: Tensor
    mean: Tensor

    @property
    def variance(self) -> Tensor:
        """‖g_x‖²_{Σ⁻¹} of every arm, (..., K)."""
        return self.covariance.diagonal(dim1=-2, dim2=-1)

    def gain(self, arm: Tensor) -> Tensor:
        """ln det(Σ + g_x g_xᵀ) − ln det Σ = ln(1 + ‖g_x‖²_{Σ⁻¹}) of pulling ``arm`` (...)."""
        return self.variance.gather(-1, arm.unsqueeze(-1)).squeeze(-1).log1p()

    def absorb(self, arm: Tensor, reward: Tensor, turn: Tensor, in_place: bool = False) -> "Posterior":
        """One pull of ``arm`` (...) with ``reward`` (...) where ``turn`` (...) is 1: a rank-one update.

        ``in_place`` it is made in the memory of this posterior, which is then used up.
        """
        place = arm.unsqueeze(-1)
        arms = self.mean.shape[-1]
        row = self.covariance.gather(-2, place.unsqueeze(-1).expand(*place.shape, arms)).squeeze(-2)
        root = (1 + row.gather(-1, place)).sqrt()
        row = row * (turn.unsqueeze(-1) / root)  # V_x/√(1 + V_xx), so that V − row rowᵀ stays symmetric
        surprise = (reward.unsqueeze(-1) - self.mean.gather(-1, place)) / root
        covariance, mean = self if in_place else self.copy()
        flat = row.reshape(-1, arms)
        covariance.view(-1, arms, arms).baddbmm_(flat.unsqueeze(-1), flat.unsqueeze(-2), alpha=-1)
        return Posterior(covariance, mean.add_(row * surprise))

    def copy(self) -> "Posterior":
        """The same in memory of its own."""
        return Posterior(*(part.clone(memory_format=torch.contiguous_format) for part in self))

    def of_each(self, learners: int) -> "Posterior":
        """What is held of all (S, 1, …) or of each (S, M, …), of each of M = ``learners`` in memory of its own."""
        arms = self.mean.shape[-1]
        covariance = self.covariance.expand(-1, learners, arms, arms)
        return Posterior(covariance, self.mean.expand(-1, learners, arms)).copy()


def require_prior(largest: Tensor | float, lam: float) -> None:
    """A ``ValueError`` where the prior variance ‖g‖²/λ of some arm, ``largest`` = ‖g‖², leaves others no digit."""
    ratio = float(largest) / lam
    remedy = f"rounding decides: scale the arms or features down, or raise λ = {lam}"
    require(ratio < _LARGEST_PRIOR, "‖g‖²/λ", ratio, f"beyond {_LARGEST_PRIOR:.0e} {remedy}")


def width(variance: Tensor) -> Tensor:
    """√variance (...), where rounding may have left a little less than 0; a ``ValueError`` where more is missing."""
    least = variance.amin().item()
    remedy = "it is negative beyond rounding: scale the arms or features down, or raise λ"
    require(least >= -_HIDDEN, "the least variance", least, remedy)
    return (variance if least >= 0 else variance.clamp(min=0)).sqrt()


def condition(features: Tensor, offsets: Tensor, lam: float, tally: Tally) -> Posterior:
    """The posterior given all data of ``tally`` (..., K), from one r × r Cholesky factorisation.

    ``features`` (..., K, r) are the arms' gradients (or their coordinates), ``offsets`` (..., K) = f_x(ŵ₀).
    """
    factor = precision_factor(features, lam, tally)
    half: Tensor = torch.linalg.solve_triangular(factor, features.mT, upper=False)
    covariance: Tensor = half.mT @ half
    return Posterior(covariance, offsets + (covariance @ tally.sums.unsqueeze(-1)).squeeze(-1))


def precision_factor(features: Tensor, lam: float, tally: Tally) -> Tensor:
    """Lower Cholesky factor (..., r, r) of Σ = λI + Σ_x n_x g_x g_xᵀ (eq. 6)."""
    gram = (features * tally.counts.unsqueeze(-1)).mT @ features
    gram.diagonal(dim1=-2, dim2=-1).add_(lam)
    factor: Tensor = torch.linalg.cholesky(gram)
    return factor


def first_order(posterior: Estimates, beta: float) -> Tensor:
    """The first-order index f_x(ŵ₀) + g_xᵀ(ŵ − ŵ₀) + √β‖g_x‖_{Σ⁻¹} of every arm, (..., K)."""
    require(beta >= 0, "beta", beta, "give a squared radius β of at least 0")
    return posterior.mean + math.sqrt(beta) * width(posterior.variance)


class Ball(NamedTuple):
    """{w : ‖w − ŵ‖²_Σ ≤ β} (eq. 4): ``centre`` ŵ (..., d_w), ``sigma`` Σ (..., d_w, d_w), ``beta``."""

    centre: Tensor
    sigma: Tensor
    beta: Tensor | float

    def distance(self, w: Tensor) -> Tensor:
        """‖w − ŵ‖²_Σ of points ``w`` (..., d_w)."""
        away = (w - self.centre).unsqueeze(-1)
        return (away.mT @ self.sigma @ away).squeeze(-1).squeeze(-1)

    def contains(self, w: Tensor) -> Tensor:
        """Whether ``w`` lies in the ball, up to a relative rounding error of 1e-9."""
        return self.distance(w) <= torch.as_tensor(self.beta, dtype=torch.float64) * (1 + 1e-9)


def statistics(gradients: Tensor, w0: Tensor, lam: float, tally: Tally) -> tuple[Tensor, Tensor]:
    """Σ (..., d_w, d_w) (eq. 6) and b (..., d_w) of ``tally``, as the clients of Algorithm 1 hold them."""
    sigma = (gradients * tally.counts.unsqueeze(-1)).mT @ gradients
    sigma.diagonal(dim1=-2, dim2=-1).add_(lam)
    predicted = (gradients @ w0.unsqueeze(-1)).squeeze(-1)
    b = (gradients.mT @ (tally.counts * predicted + tally.sums).unsqueeze(-1)).squeeze(-1)
    return sigma, b


def ball(gradients: Tensor, w0: Tensor, lam: float, beta: Tensor | float, tally: Tally) -> Ball:
    """The confidence ball of ``tally``, its centre ŵ = Σ⁻¹b + λΣ⁻¹ŵ₀ (eq. 5)."""
    require(lam > 0, "lam", lam, "give a positive regularisation weight λ")
    sigma, b = statistics(gradients, w0, lam, tally)
    centre = torch.cholesky_solve((b + lam * w0).unsqueeze(-1), torch.linalg.cholesky(sigma)).squeeze(-1)
    return Ball(centre, sigma, beta)
