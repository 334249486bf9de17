"""The confidence set of Phase II (eqs. 4–6), linearised at ŵ₀, in parameter space and in arm space.

ŵ₀ (d_w) is the parameter that Phase I has fitted. The data are a `Tally`: for each of K arms x the number of pulls n_x
and the sum e_x of the residuals y − f_x(ŵ₀) of its rewards y. With the gradients g_x = ∇f_x(ŵ₀) as the rows of G (K,
d_w) and the regularisation weight λ, the statistics of the paper are

    Σ = λI + Gᵀdiag(n)G,   b = Gᵀ(n∘Gŵ₀ + e),   ŵ = Σ⁻¹(b + λŵ₀) = ŵ₀ + Σ⁻¹Gᵀe,

with ∘ for the product entry by entry. There are finitely many arms and ŵ₀ is fixed. Therefore the means f(ŵ₀) + G(ŵ −
ŵ₀) and the matrix V = GΣ⁻¹Gᵀ (K, K) of the arms determine the first-order index of each arm. One pull is a rank-one
update of both, and the index needs no d_w × d_w matrix.

Arrays are (S, M, K) for M learners in each of S runs, or (R, …) for R of these runs; leading axes (...) broadcast. In
place of the gradients there may be their r = min(K, d_w) coordinates (`compress`).
"""

import math
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from fedgo._checks import require

# The limit of the prior variance ‖g‖²/λ. From it on float64 holds no digit of the variance of an arm that was pulled.
_LARGEST_PRIOR = 1e13
# A variance at most this far below 0 is due to rounding. An arm that was pulled n times has a variance of about 1/n.
_ROUNDED = 1e-6


class Tally(NamedTuple):
    """The data of a client in summary: how often it pulled each of K arms, and the sum of what it observed there.

    Args:
        counts: The number of pulls n_x of each arm, (..., K) float64.
        sums: The sum e_x of the residuals, or of the rewards for a model without offsets f_x(ŵ₀), (..., K) float64.
    """

    counts: Tensor
    sums: Tensor

    def __add__(self, other: "Tally") -> "Tally":  # type: ignore[override]
        """Return the tally of the pulls of both tallies together."""
        return Tally(self.counts + other.counts, self.sums + other.sums)

    @classmethod
    def blank(cls, *shape: int) -> "Tally":
        """Return a tally without pulls, of the given ``shape`` (..., K)."""
        return cls(torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64))

    def summed(self) -> "Tally":
        """Return the tally (R, K) of all clients together, from theirs (R, N, K)."""
        return Tally(self.counts.sum(1), self.sums.sum(1))

    def of(self, index: Any) -> "Tally":
        """Return a tally with the entries at ``index``, for instance the positions of R runs."""
        return Tally(self.counts[index], self.sums[index])

    def for_all(self) -> "Tally":
        """Return this tally (S, K) as one that all learners of a run know, (S, 1, K)."""
        return Tally(self.counts.unsqueeze(1), self.sums.unsqueeze(1))

    def record(self, arm: Tensor, residual: Tensor, turn: Tensor) -> "Tally":
        """Return the tally after one more pull in each row.

        Args:
            arm: The arm that is pulled, (...) int64.
            residual: What is added to its sum, (...), finite also where ``turn`` is 0.
            turn: 1 where the pull is made and 0 where the tally stays as it is, (...) float64.
        """
        place = arm.unsqueeze(-1)
        counts = self.counts.scatter_add(-1, place, turn.unsqueeze(-1))
        return Tally(counts, self.sums.scatter_add(-1, place, (turn * residual).unsqueeze(-1)))


class Coordinates(NamedTuple):
    """Gradients in an orthonormal basis: G = ``features`` ``basis``ᵀ, (..., K, r) and (..., d_w, r)."""

    features: Tensor
    basis: Tensor


def compress(gradients: Tensor) -> Coordinates:
    """Return the gradients (..., K, d_w) in r coordinates, which leave ‖g_x‖_{Σ⁻¹} and ln(det Σ/det λI) as they are."""
    basis, features = torch.linalg.qr(gradients.mT)
    return Coordinates(features.mT, basis)


class Estimates(Protocol):
    """The interface of a posterior as a learner uses it: `Posterior`, or `fedgo.many_arms.Columns`.

    ``mean`` is the estimated mean reward of each arm and ``variance`` its squared width ‖g_x‖²_{Σ⁻¹}, (..., K) each.
    ``of_each(learners)`` gives each of M learners of a run means and variances of its own, (S, M, K).
    """

    @property
    def mean(self) -> Tensor: ...

    @property
    def variance(self) -> Tensor: ...

    def of_each(self, learners: int) -> Self: ...


def gain(posterior: Estimates, arm: Tensor) -> Tensor:
    """Return ln det(Σ + g_x g_xᵀ) − ln det Σ = ln(1 + ‖g_x‖²_{Σ⁻¹}) for the pull of ``arm`` (...) int64, (...)."""
    return of_arm(posterior.variance, arm).log1p()


def of_arm(values: Tensor, arm: Tensor) -> Tensor:
    """Return the entry of ``values`` (..., K) at ``arm`` (...) int64."""
    return values.gather(-1, arm.unsqueeze(-1)).squeeze(-1)


class Posterior(NamedTuple):
    """The confidence set in arm space: the mean and the covariance of the linearised rewards of all K arms.

    Args:
        covariance: V = GΣ⁻¹Gᵀ, (..., K, K).
        mean: The estimate f_x(ŵ₀) + g_xᵀ(ŵ − ŵ₀) of each arm's mean reward, (..., K).
    """

    covariance: Tensor
    mean: Tensor

    @property
    def variance(self) -> Tensor:
        """The squared width ‖g_x‖²_{Σ⁻¹} of each arm, a view of the diagonal of V, (..., K)."""
        return self.covariance.diagonal(dim1=-2, dim2=-1)

    def absorb(self, arm: Tensor, reward: Tensor, turn: Tensor) -> "Posterior":
        """Return the posterior after one more pull of each learner whose turn it is, in the memory of this one.

        V becomes V − v vᵀ/(1 + V_xx), where v is column x of V, and the mean μ becomes μ + v(y − μ_x)/(1 + V_xx). This
        posterior must be contiguous, as that of `of_each` is, and must not be used afterwards.

        Args:
            arm: The arm x that each learner pulls, (...) int64.
            reward: The reward y, or the residual if the mean is one of residuals, (...), finite also where ``turn`` is
                0.
            turn: 1 for the learners that make this pull, 0 for the others, (...) float64.
        """
        place = arm.unsqueeze(-1)
        arms = self.mean.shape[-1]
        row = self.covariance.gather(-2, place.unsqueeze(-1).expand(*place.shape, arms)).squeeze(-2)
        root = (1 + row.gather(-1, place)).sqrt()
        row = row * (turn.unsqueeze(-1) / root)  # V_x/√(1 + V_xx), so that V − row rowᵀ stays symmetric
        surprise = (reward.unsqueeze(-1) - self.mean.gather(-1, place)) / root
        flat = row.reshape(-1, arms)
        self.covariance.view(-1, arms, arms).baddbmm_(flat.unsqueeze(-1), flat.unsqueeze(-2), alpha=-1)
        return Posterior(self.covariance, self.mean.add_(row * surprise))

    def of_each(self, learners: int) -> "Posterior":
        """Return a posterior (S, M, K) with memory for each of M learners, from one that is (S, 1 or M, K)."""
        own = [values.expand(-1, learners, *values.shape[2:]) for values in self]
        return Posterior(*[values.clone(memory_format=torch.contiguous_format) for values in own])


def require_prior(largest: Tensor | float, lam: float) -> None:
    """Refuse features so large, or a λ so small, that rounding would decide which arm is pulled.

    ``largest`` is the largest ‖g_x‖², which must be below 1e13·λ.
    """
    ratio = float(largest) / lam
    remedy = f"scale the arms or features down, or raise λ = {lam}"
    limit = f"from {_LARGEST_PRIOR:.0e} on rounding decides"
    require(ratio < _LARGEST_PRIOR, "‖g‖²/λ", ratio, f"{limit}; {remedy}")


def width(variance: Tensor) -> Tensor:
    """Return the square roots of ``variance`` (...); a variance from −1e-6 to 0 is rounding and counts as 0."""
    least = variance.amin().item()
    remedy = "a variance is at least 0 up to rounding; scale the arms or features down, or raise λ"
    require(least >= -_ROUNDED, "the least variance", least, remedy)
    return (variance if least >= 0 else variance.clamp(min=0)).sqrt()


def condition(features: Tensor, offsets: Tensor, lam: float, tally: Tally) -> Posterior:
    """Return the posterior given all pulls of ``tally``, computed from an r × r Cholesky factorisation.

    Args:
        features: The gradients g_x, or their coordinates, (..., K, r).
        offsets: The value f_x(ŵ₀) of each arm, (..., K).
        lam: The regularisation weight λ > 0, which the factorisation refuses if it is lost in the rounding of Σ.
        tally: The counts and the sums of residuals, (..., K) each.
    """
    factor = precision_factor(features, lam, tally)
    half: Tensor = torch.linalg.solve_triangular(factor, features.mT, upper=False)
    covariance: Tensor = half.mT @ half
    return Posterior(covariance, offsets + (covariance @ tally.sums.unsqueeze(-1)).squeeze(-1))


def precision_factor(features: Tensor, lam: float, tally: Tally) -> Tensor:
    """Return the lower Cholesky factor (..., r, r) of Σ (eq. 6), of which only the counts of ``tally`` are used."""
    gram = (features * tally.counts.unsqueeze(-1)).mT @ features
    gram.diagonal(dim1=-2, dim2=-1).add_(lam)
    factor: Tensor = torch.linalg.cholesky(gram)
    return factor


def first_order(posterior: Estimates, beta: float) -> Tensor:
    """Return the index mean + √(β·variance) of each arm, (..., K).

    It is the maximum over the confidence ball (eq. 4) of the network linearised at ŵ₀.

    Args:
        posterior: The mean and the variance of each arm.
        beta: The squared radius β ≥ 0.
    """
    require(beta >= 0, "beta", beta, "give a squared radius β of at least 0")
    return posterior.mean + math.sqrt(beta) * width(posterior.variance)


class Ball(NamedTuple):
    """The confidence ball {w : (w − ŵ)ᵀΣ(w − ŵ) ≤ β} of a client (eq. 4).

    Args:
        centre: The ridge estimate ŵ, (..., d_w).
        sigma: The matrix Σ, (..., d_w, d_w).
        beta: The squared radius β, a number or (...).
    """

    centre: Tensor
    sigma: Tensor
    beta: Tensor | float

    def distance(self, w: Tensor) -> Tensor:
        """Return the squared distance ‖w − ŵ‖²_Σ of the points ``w`` (..., d_w), (...)."""
        away = (w - self.centre).unsqueeze(-1)
        return (away.mT @ self.sigma @ away).squeeze(-1).squeeze(-1)

    def contains(self, w: Tensor) -> Tensor:
        """Return whether each of the points ``w`` (..., d_w) lies in the ball, up to rounding, (...) bool."""
        return self.distance(w) <= torch.as_tensor(self.beta, dtype=torch.float64) * (1 + 1e-9)


def statistics(gradients: Tensor, w0: Tensor, lam: float, tally: Tally) -> tuple[Tensor, Tensor]:
    """Return Σ (..., d_w, d_w) and b (..., d_w) of a ``tally``, as the clients of Algorithm 1 keep them (eq. 6)."""
    sigma = (gradients * tally.counts.unsqueeze(-1)).mT @ gradients
    sigma.diagonal(dim1=-2, dim2=-1).add_(lam)
    predicted = (gradients @ w0.unsqueeze(-1)).squeeze(-1)
    b = (gradients.mT @ (tally.counts * predicted + tally.sums).unsqueeze(-1)).squeeze(-1)
    return sigma, b


def ball(gradients: Tensor, w0: Tensor, lam: float, beta: Tensor | float, tally: Tally) -> Ball:
    """Return the confidence ball of the pulls in ``tally``, with the centre ŵ = Σ⁻¹b + λΣ⁻¹ŵ₀ (eq. 5).

    Args:
        gradients: The gradients g_x, (..., K, d_w).
        w0: The parameter ŵ₀, (..., d_w).
        lam: The regularisation weight λ > 0.
        beta: The squared radius β, a number or (...).
        tally: The counts and the sums of residuals, (..., K) each.
    """
    require(lam > 0, "lam", lam, "give a positive regularisation weight λ")
    sigma, b = statistics(gradients, w0, lam, tally)
    centre = torch.cholesky_solve((b + lam * w0).unsqueeze(-1), torch.linalg.cholesky(sigma)).squeeze(-1)
    return Ball(centre, sigma, beta)
