"""The confidence set of Phase II (eqs. 4–6), linearised at ŵ₀, in parameter space and in arm space.

Data enter as a `Tally`: for each arm the number of pulls n and the sum e of the residuals y − f_x(ŵ₀). With the
gradients g_x = ∇f_x(ŵ₀) as the rows of G, Σ = λI + Gᵀdiag(n)G, b = Gᵀ(n∘Gŵ₀ + e) and ŵ = Σ⁻¹(b + λŵ₀) = ŵ₀ + Σ⁻¹Gᵀe.
There are finitely many arms and ŵ₀ is fixed. Therefore the means f(ŵ₀) + G(ŵ − ŵ₀) and the matrix V = GΣ⁻¹Gᵀ of the K
arms decide every pull. One pull is a rank-one update of both, and no d_w × d_w matrix is needed.
"""

import math
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from fedgo._checks import require

_LARGEST_PRIOR = 1e13  # of ‖g‖²/λ: beyond it float64 holds no digit of the variance of an arm that was pulled
_ROUNDED = 1e-6  # a variance this far below 0 is rounding; an arm pulled n times has one of about 1/n


class Tally(NamedTuple):
    """The sufficient statistics of a client: how often it pulled each arm, and the sum of what it saw there.

    ``counts`` (..., K) float64 holds the number of pulls n_x of each arm x. ``sums`` (..., K) holds the sum e_x of the
    residuals y − f_x(ŵ₀) of these pulls, or of the rewards for a model without an offset.
    """

    counts: Tensor
    sums: Tensor

    def __add__(self, other: "Tally") -> "Tally":  # type: ignore[override]
        """Return the tally of both sets of pulls together."""
        return Tally(self.counts + other.counts, self.sums + other.sums)

    @classmethod
    def blank(cls, *shape: int) -> "Tally":
        """Return a tally without pulls, whose two tensors have the shape ``shape`` (..., K)."""
        return cls(*(torch.zeros(shape, dtype=torch.float64) for _ in range(2)))

    def summed(self) -> "Tally":
        """Return the tally (R, K) of all N clients together, given their tallies (R, N, K)."""
        return Tally(self.counts.sum(1), self.sums.sum(1))

    def of(self, index: Any) -> "Tally":
        """Return the entries of both tensors at ``index``, for instance of the runs with the numbers (R,) int64."""
        return Tally(self.counts[index], self.sums[index])

    def for_all(self) -> "Tally":
        """Return the tally (S, 1, K) of data (S, K) that all learners of a run know."""
        return Tally(self.counts.unsqueeze(1), self.sums.unsqueeze(1))

    def record(self, arm: Tensor, residual: Tensor, turn: Tensor) -> "Tally":
        """Return the tally after one more pull of ``arm`` (...) with ``residual`` (...), where ``turn`` (...) is 1.

        Where ``turn`` is 0 the tally stays as it is.
        """
        place = arm.unsqueeze(-1)
        counts = self.counts.scatter_add(-1, place, turn.unsqueeze(-1))
        return Tally(counts, self.sums.scatter_add(-1, place, (turn * residual).unsqueeze(-1)))


class Coordinates(NamedTuple):
    """The gradients G in an orthonormal basis of their own span, G = ``features`` @ ``basis``ᵀ.

    ``features`` (..., K, r) has the coordinates of each arm's gradient and ``basis`` (..., d_w, r) the basis, with r =
    min(K, d_w).
    """

    features: Tensor
    basis: Tensor


def compress(gradients: Tensor) -> Coordinates:
    """Return the coordinates of the ``gradients`` (..., K, d_w) in their own span.

    All norms ‖g‖_{Σ⁻¹} and all log-determinants of Σ are the same in these coordinates.
    """
    basis, features = torch.linalg.qr(gradients.mT)
    return Coordinates(features.mT, basis)


class Estimates(Protocol):
    """A posterior as a learner uses it: a mean and a variance of each arm, (..., K) both, and the gain of a pull.

    The classes that have these methods are `Posterior`, which documents them, and
    `fedgo.line_three.parameter_space.Columns`.
    """

    @property
    def mean(self) -> Tensor: ...

    @property
    def variance(self) -> Tensor: ...

    def gain(self, arm: Tensor) -> Tensor: ...

    def of_each(self, learners: int) -> Self: ...


class Posterior(NamedTuple):
    """The confidence set in arm space: the covariance and the mean of the linearised rewards of all arms.

    ``covariance`` (..., K, K) is V = GΣ⁻¹Gᵀ, with the gradients g_x of the arms as rows of G. ``mean`` (..., K) is
    f_x(ŵ₀) + g_xᵀ(ŵ − ŵ₀).
    """

    covariance: Tensor
    mean: Tensor

    @property
    def variance(self) -> Tensor:
        """‖g_x‖²_{Σ⁻¹} of each arm, (..., K)."""
        return self.covariance.diagonal(dim1=-2, dim2=-1)

    def gain(self, arm: Tensor) -> Tensor:
        """Return ln det(Σ + g_x g_xᵀ) − ln det Σ = ln(1 + ‖g_x‖²_{Σ⁻¹}), (...), for one pull of each ``arm`` (...)."""
        return self.variance.gather(-1, arm.unsqueeze(-1)).squeeze(-1).log1p()

    def absorb(self, arm: Tensor, reward: Tensor, turn: Tensor, in_place: bool = False) -> "Posterior":
        """Return the posterior after one pull of ``arm`` (...) with ``reward`` (...), where ``turn`` (...) is 1.

        The pull is a rank-one update of covariance and mean.

        Args:
            arm: The arm that each learner pulls, (...) int64.
            reward: The residual that it sees, (...) float64.
            turn: 1 for the learners that make this pull, 0 for the others, (...) float64.
            in_place: Update the memory of this posterior, which must not be used afterwards.
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
        """Return an equal posterior in memory of its own."""
        return Posterior(*(tensor.clone(memory_format=torch.contiguous_format) for tensor in self))

    def of_each(self, learners: int) -> "Posterior":
        """Return a posterior with an entry for each of M = ``learners`` learners, (S, M, …), in memory of its own.

        This posterior either has one entry for all learners of a run, (S, 1, …), or one for each of them already.
        """
        arms = self.mean.shape[-1]
        covariance = self.covariance.expand(-1, learners, arms, arms)
        return Posterior(covariance, self.mean.expand(-1, learners, arms)).copy()


def require_prior(largest: Tensor | float, lam: float) -> None:
    """Refuse features so large, or a λ so small, that rounding would decide which arm is pulled.

    Args:
        largest: The largest ‖g_x‖² of any arm.
        lam: The regularisation weight λ.

    Raises:
        ValueError: The prior variance ‖g_x‖²/λ of some arm is 1e13 or more.
    """
    ratio = float(largest) / lam
    remedy = f"scale the arms or features down, or raise λ = {lam}"
    limit = f"from {_LARGEST_PRIOR:.0e} on rounding decides"
    require(ratio < _LARGEST_PRIOR, "‖g‖²/λ", ratio, f"{limit}; {remedy}")


def width(variance: Tensor) -> Tensor:
    """Return √``variance`` (...), with variances that rounding left slightly below 0 taken as 0.

    Raises:
        ValueError: A variance is negative beyond rounding.
    """
    least = variance.amin().item()
    remedy = "it is negative beyond rounding: scale the arms or features down, or raise λ"
    require(least >= -_ROUNDED, "the least variance", least, remedy)
    return (variance if least >= 0 else variance.clamp(min=0)).sqrt()


def condition(features: Tensor, offsets: Tensor, lam: float, tally: Tally) -> Posterior:
    """Return the posterior of all arms given all pulls of ``tally``, from one r × r Cholesky factorisation.

    Args:
        features: The arms' gradients g_x, or their r coordinates (`compress`), (..., K, r).
        offsets: f_x(ŵ₀) of each arm, (..., K).
        lam: The regularisation weight λ.
        tally: The pulls and their summed residuals, (..., K).
    """
    factor = precision_factor(features, lam, tally)
    half: Tensor = torch.linalg.solve_triangular(factor, features.mT, upper=False)
    covariance: Tensor = half.mT @ half
    return Posterior(covariance, offsets + (covariance @ tally.sums.unsqueeze(-1)).squeeze(-1))


def precision_factor(features: Tensor, lam: float, tally: Tally) -> Tensor:
    """Return the lower Cholesky factor (..., r, r) of Σ = λI + Σ_x n_x g_x g_xᵀ (eq. 6)."""
    gram = (features * tally.counts.unsqueeze(-1)).mT @ features
    gram.diagonal(dim1=-2, dim2=-1).add_(lam)
    factor: Tensor = torch.linalg.cholesky(gram)
    return factor


def first_order(posterior: Estimates, beta: float) -> Tensor:
    """Return the first-order index f_x(ŵ₀) + g_xᵀ(ŵ − ŵ₀) + √β‖g_x‖_{Σ⁻¹} of each arm, (..., K).

    Args:
        posterior: Mean and variance of each arm, (..., K).
        beta: The squared radius β ≥ 0 of the confidence ball.
    """
    require(beta >= 0, "beta", beta, "give a squared radius β of at least 0")
    return posterior.mean + math.sqrt(beta) * width(posterior.variance)


class Ball(NamedTuple):
    """The confidence ball {w : ‖w − ŵ‖²_Σ ≤ β} of a client in parameter space (eq. 4).

    ``centre`` is ŵ (..., d_w), ``sigma`` is Σ (..., d_w, d_w), and ``beta`` is the squared radius β.
    """

    centre: Tensor
    sigma: Tensor
    beta: Tensor | float

    def distance(self, w: Tensor) -> Tensor:
        """Return ‖w − ŵ‖²_Σ, (...), of the points ``w`` (..., d_w)."""
        away = (w - self.centre).unsqueeze(-1)
        return (away.mT @ self.sigma @ away).squeeze(-1).squeeze(-1)

    def contains(self, w: Tensor) -> Tensor:
        """Return whether each of the points ``w`` (..., d_w) lies in the ball, up to a relative rounding error
        of 1e-9.
        """
        return self.distance(w) <= torch.as_tensor(self.beta, dtype=torch.float64) * (1 + 1e-9)


def statistics(gradients: Tensor, w0: Tensor, lam: float, tally: Tally) -> tuple[Tensor, Tensor]:
    """Return Σ (..., d_w, d_w) and b (..., d_w) of the pulls in ``tally``, as Algorithm 1 keeps them (eq. 6).

    Args:
        gradients: ∇f_x(ŵ₀) of each arm, (..., K, d_w).
        w0: ŵ₀, (..., d_w).
        lam: The regularisation weight λ.
        tally: The pulls and their summed residuals, (..., K).
    """
    sigma = (gradients * tally.counts.unsqueeze(-1)).mT @ gradients
    sigma.diagonal(dim1=-2, dim2=-1).add_(lam)
    predicted = (gradients @ w0.unsqueeze(-1)).squeeze(-1)
    b = (gradients.mT @ (tally.counts * predicted + tally.sums).unsqueeze(-1)).squeeze(-1)
    return sigma, b


def ball(gradients: Tensor, w0: Tensor, lam: float, beta: Tensor | float, tally: Tally) -> Ball:
    """Return the confidence ball of the pulls in ``tally``, with the centre ŵ = Σ⁻¹b + λΣ⁻¹ŵ₀ (eq. 5).

    Args:
        gradients: ∇f_x(ŵ₀) of each arm, (..., K, d_w).
        w0: ŵ₀, (..., d_w).
        lam: The regularisation weight λ > 0.
        beta: The squared radius β.
        tally: The pulls and their summed residuals, (..., K).

    Raises:
        ValueError: If λ is not positive.
    """
    require(lam > 0, "lam", lam, "give a positive regularisation weight λ")
    sigma, b = statistics(gradients, w0, lam, tally)
    centre = torch.cholesky_solve((b + lam * w0).unsqueeze(-1), torch.linalg.cholesky(sigma)).squeeze(-1)
    return Ball(centre, sigma, beta)
