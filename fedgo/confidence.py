"""The confidence set of Phase II (eqs. 4–6), linearised at ŵ₀, in parameter space and in arm space.

ŵ₀ is the parameter, of dimension d_w, that Phase I has fitted. The data are a `Tally`: for each of K arms x the number
of pulls n_x and the sum e_x of the residuals y − f_x(ŵ₀) of its rewards y. With the gradients g_x = ∇f_x(ŵ₀) as the
rows of G (K, d_w) and the regularisation weight λ, the statistics of the paper are Σ = λI + Gᵀdiag(n)G, b = Gᵀ(n∘Gŵ₀ +
e) and ŵ = Σ⁻¹(b + λŵ₀) = ŵ₀ + Σ⁻¹Gᵀe, with ∘ for the product entry by entry. There are finitely many arms and ŵ₀ is
fixed. Therefore the means f(ŵ₀) + G(ŵ − ŵ₀) and the matrix V = GΣ⁻¹Gᵀ (K, K) of the arms determine the first-order
index of each arm. One pull is a rank-one update of both, and the index needs no d_w × d_w matrix.
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
        counts: The number of pulls n_x of each arm x, (..., K) float64.
        sums: The sum e_x, over these pulls, of the residuals y − f_x(ŵ₀) of the rewards y, with the parameter ŵ₀ that
            Phase I has fitted; or of the rewards themselves for a model without offsets f_x(ŵ₀), (..., K) float64.
    """

    counts: Tensor
    sums: Tensor

    def __add__(self, other: "Tally") -> "Tally":  # type: ignore[override]
        """Return the tally of the pulls of both tallies together.

        The counts and the sums of the K arms are added entry by entry; leading axes broadcast.
        """
        return Tally(self.counts + other.counts, self.sums + other.sums)

    @classmethod
    def blank(cls, *shape: int) -> "Tally":
        """Return a tally without pulls.

        Its counts and sums are float64 zeros of the given ``shape``, whose last number is the number K of arms.
        """
        return cls(torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64))

    def summed(self) -> "Tally":
        """Return the tally (R, K) of all clients together in each of R runs.

        The tally on which this method is called has the shape (R, N, K), for N clients and K arms.
        """
        return Tally(self.counts.sum(1), self.sums.sum(1))

    def of(self, index: Any) -> "Tally":
        """Return a tally with the entries of ``counts`` and ``sums`` at ``index``, an index that torch accepts.

        For instance, the positions of R runs on the first axis, (R,) int64, select these runs.
        """
        return Tally(self.counts[index], self.sums[index])

    def for_all(self) -> "Tally":
        """Return this tally (S, K), of S runs and K arms, with a new axis of length 1 for the learners, (S, 1, K).

        The result broadcasts over the learners, because all learners of a run know these data.
        """
        return Tally(self.counts.unsqueeze(1), self.sums.unsqueeze(1))

    def record(self, arm: Tensor, residual: Tensor, turn: Tensor) -> "Tally":
        """Return the tally (..., K) of K arms after one more pull for each entry of the leading axes (...).

        This tally itself does not change.

        Args:
            arm: The arm that is pulled, from 0 to K − 1, (...) int64.
            residual: The residual or reward that is added to the sum of this arm, (...). It has to be finite where
                ``turn`` is 0 too.
            turn: 1 where the pull is made and 0 where the tally stays as it is, (...) float64.

        Raises:
            RuntimeError: An arm is negative or not below K, or ``turn`` is not float64.
        """
        place = arm.unsqueeze(-1)
        counts = self.counts.scatter_add(-1, place, turn.unsqueeze(-1))
        return Tally(counts, self.sums.scatter_add(-1, place, (turn * residual).unsqueeze(-1)))


class Coordinates(NamedTuple):
    """The gradients of K arms as coordinates in an orthonormal basis of a space that contains them.

    The matrix G (..., K, d_w) with the arms' gradients as rows, one entry for each of d_w parameters, is the product
    ``features`` ``basis``ᵀ. ``features`` (..., K, r) has the coordinates of each arm's gradient as rows, and ``basis``
    (..., d_w, r) the basis vectors as columns, with r = min(K, d_w).
    """

    features: Tensor
    basis: Tensor


def compress(gradients: Tensor) -> Coordinates:
    """Return the ``gradients`` (..., K, d_w) of K arms in r = min(K, d_w) coordinates, by a QR factorisation.

    With these coordinates in place of the gradients, the norm ‖g_x‖_{Σ⁻¹} of each arm x with the gradient g_x and the
    value ln(det Σ/det λI) stay the same. Here Σ = λI + Σ_x n_x g_x g_xᵀ for any regularisation weight λ > 0 and any
    numbers n_x of pulls.

    Returns:
        The coordinates (..., K, r) as ``features`` and the basis (..., d_w, r) as ``basis``.
    """
    basis, features = torch.linalg.qr(gradients.mT)
    return Coordinates(features.mT, basis)


class Estimates(Protocol):
    """The interface of a posterior as a learner uses it, for K arms.

    `Posterior` and `fedgo.many_arms.Columns` have this interface. ``mean`` is the estimated mean
    reward of each arm, and ``variance`` the squared width g_xᵀΣ⁻¹g_x of its confidence interval, (..., K) each. g_x is
    the gradient of the arm x, and Σ = λI + Σ_x n_x g_x g_xᵀ the matrix of a learner's data, with n_x pulls of each arm
    and the regularisation weight λ. ``gain(arm)`` returns ln(1 + variance) of the given ``arm`` (...) int64, by which
    one pull raises ln det Σ, (...). ``of_each(learners)`` takes a posterior with the axes (S, 1 or M, K) for S runs and
    returns one with an entry for each of M = ``learners`` learners of a run, (S, M, K), whose means and variances have
    memory of their own.
    """

    @property
    def mean(self) -> Tensor: ...

    @property
    def variance(self) -> Tensor: ...

    def gain(self, arm: Tensor) -> Tensor: ...

    def of_each(self, learners: int) -> Self: ...


class Posterior(NamedTuple):
    """The confidence set in arm space: the mean and the covariance of the linearised rewards of all K arms.

    Args:
        covariance: V = GΣ⁻¹Gᵀ, (..., K, K), where the rows of G are the gradients g_x = ∇f_x(ŵ₀) of the network's
            outputs f_x(w) at the parameter ŵ₀ of Phase I, one for each arm x, and Σ = λI + Σ_x n_x g_x g_xᵀ with the
            regularisation weight λ and n_x pulls of each arm.
        mean: The estimate f_x(ŵ₀) + g_xᵀ(ŵ − ŵ₀) of each arm's mean reward, (..., K). ŵ = ŵ₀ + Σ⁻¹Gᵀe is the ridge
            estimate of the parameter, where entry x of e is the sum of the residuals of the pulls of arm x, the rewards
            minus f_x(ŵ₀).
    """

    covariance: Tensor
    mean: Tensor

    @property
    def variance(self) -> Tensor:
        """The squared width ‖g_x‖²_{Σ⁻¹} = g_xᵀΣ⁻¹g_x of each of K arms x, (..., K): the diagonal of the covariance.

        g_x is the gradient of the arm, and Σ = λI + Σ_x n_x g_x g_xᵀ the matrix of the learner's data, with n_x pulls
        of each arm and the regularisation weight λ. The result is a view of ``covariance``.
        """
        return self.covariance.diagonal(dim1=-2, dim2=-1)

    def gain(self, arm: Tensor) -> Tensor:
        """Return by how much one pull of ``arm`` (...) int64 would raise ln det Σ, (...).

        This is ln det(Σ + g_x g_xᵀ) − ln det Σ = ln(1 + ‖g_x‖²_{Σ⁻¹}) for the arm x with the gradient g_x. Σ = λI +
        Σ_x n_x g_x g_xᵀ is the matrix of the learner's data, with n_x pulls of each arm and the regularisation weight
        λ.

        Raises:
            RuntimeError: An arm is negative, or not below the number of arms.
        """
        return self.variance.gather(-1, arm.unsqueeze(-1)).squeeze(-1).log1p()

    def absorb(self, arm: Tensor, reward: Tensor, turn: Tensor) -> "Posterior":
        """Return the posterior after one more pull of each learner whose turn it is, in the memory of this one.

        The pull of an arm x with the reward y is a rank-one update. The covariance V (..., K, K) of the K arms becomes
        V − v vᵀ/(1 + V_xx), where v is column x of V, and the mean μ (..., K) becomes μ + v(y − μ_x)/(1 + V_xx). This
        posterior must be contiguous, as that of `of_each` is, and must not be used afterwards.

        Args:
            arm: The arm x that each learner pulls, (...) int64.
            reward: The reward y that it observes, or the residual if the mean is one of residuals, (...) float64. It
                has to be finite where ``turn`` is 0 too.
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
        """Return a posterior with one entry for each of M = ``learners`` learners, in memory of its own.

        This posterior has, for S runs and K arms, a covariance (S, 1, K, K) that all learners of a run share, or
        (S, M, K, K), and a mean (S, 1, K) or (S, M, K). The result has a covariance (S, M, K, K) and a mean (S, M, K).
        """
        arms = self.mean.shape[-1]
        covariance = self.covariance.expand(-1, learners, arms, arms)
        mean = self.mean.expand(-1, learners, arms)
        own = torch.contiguous_format
        return Posterior(covariance.clone(memory_format=own), mean.clone(memory_format=own))


def require_prior(largest: Tensor | float, lam: float) -> None:
    """Refuse features so large, or a λ so small, that rounding would decide which arm is pulled.

    Args:
        largest: The largest squared norm ‖g_x‖² of the features g_x of any arm x, a number or a tensor with one entry.
        lam: The regularisation weight λ > 0.

    Raises:
        ValueError: The largest prior variance ‖g_x‖²/λ is 1e13 or more, or NaN.
    """
    ratio = float(largest) / lam
    remedy = f"scale the arms or features down, or raise λ = {lam}"
    limit = f"from {_LARGEST_PRIOR:.0e} on rounding decides"
    require(ratio < _LARGEST_PRIOR, "‖g‖²/λ", ratio, f"{limit}; {remedy}")


def width(variance: Tensor) -> Tensor:
    """Return the widths of the arms' confidence intervals, (...): the square roots of their ``variance`` (...).

    A variance from −1e-6 to 0 counts as 0, because rounding can leave a variance of 0 slightly negative.
    ``variance`` has at least one entry.

    Raises:
        ValueError: A variance is below −1e-6, or NaN.
    """
    least = variance.amin().item()
    remedy = "a variance is at least 0 up to rounding; scale the arms or features down, or raise λ"
    require(least >= -_ROUNDED, "the least variance", least, remedy)
    return (variance if least >= 0 else variance.clamp(min=0)).sqrt()


def condition(features: Tensor, offsets: Tensor, lam: float, tally: Tally) -> Posterior:
    """Return the posterior of K arms given all pulls of ``tally``, computed from an r × r Cholesky factorisation.

    With the gradient g_x of each arm x as row x of G, the regularisation weight λ, n_x pulls of the arm and the sum e_x
    of their residuals, Σ = λI + Σ_x n_x g_x g_xᵀ. The covariance is V = GΣ⁻¹Gᵀ, and the mean is f(ŵ₀) + Ve. The leading
    axes (...) of the arguments, all float64, broadcast.

    Args:
        features: The arms' gradients g_x = ∇f_x(ŵ₀), or their r coordinates (`compress`), (..., K, r).
        offsets: The value f_x(ŵ₀) of each arm x at the parameter ŵ₀ of Phase I, (..., K).
        lam: The regularisation weight λ.
        tally: The number n_x of pulls of each arm and the sum e_x of their residuals y − f_x(ŵ₀), with the rewards y,
            (..., K) each.

    Returns:
        The posterior with its covariance (..., K, K) and its mean (..., K). The offsets and the sums add leading axes
        to the mean only.

    Raises:
        torch.linalg.LinAlgError: A feature, a count or λ is NaN, or the matrix Σ is not positive definite in float64,
            because λ is too small for such large features or so many pulls.
    """
    factor = precision_factor(features, lam, tally)
    half: Tensor = torch.linalg.solve_triangular(factor, features.mT, upper=False)
    covariance: Tensor = half.mT @ half
    return Posterior(covariance, offsets + (covariance @ tally.sums.unsqueeze(-1)).squeeze(-1))


def precision_factor(features: Tensor, lam: float, tally: Tally) -> Tensor:
    """Return the lower Cholesky factor (..., r, r) of Σ = λI + Σ_x n_x g_x g_xᵀ (eq. 6).

    Args:
        features: The gradient g_x of each of K arms x, or its r coordinates, (..., K, r).
        lam: The regularisation weight λ.
        tally: The data, of which only the numbers n_x of pulls, ``counts`` (..., K), are used.

    Raises:
        torch.linalg.LinAlgError: A feature, a count or λ is NaN, or Σ is not positive definite in float64, because λ is
            too small for such large features or so many pulls.
    """
    gram = (features * tally.counts.unsqueeze(-1)).mT @ features
    gram.diagonal(dim1=-2, dim2=-1).add_(lam)
    factor: Tensor = torch.linalg.cholesky(gram)
    return factor


def first_order(posterior: Estimates, beta: float) -> Tensor:
    """Return the first-order index f_x(ŵ₀) + g_xᵀ(ŵ − ŵ₀) + √β‖g_x‖_{Σ⁻¹} of each of K arms x, (..., K).

    It is the posterior mean plus √β standard deviations. It is also the largest value, over the parameters w of the
    confidence ball ‖w − ŵ‖²_Σ ≤ β, of f_x(ŵ₀) + g_xᵀ(w − ŵ₀), the network's output f_x(w) linearised at the parameter
    ŵ₀ of Phase I. g_x is the gradient of f_x at ŵ₀, and ŵ the ridge estimate. Σ = λI + Σ_x n_x g_x g_xᵀ is the matrix
    of the data, with n_x pulls of each arm and the regularisation weight λ.

    Args:
        posterior: The mean f_x(ŵ₀) + g_xᵀ(ŵ − ŵ₀) and the variance ‖g_x‖²_{Σ⁻¹} of each arm, (..., K) each.
        beta: The squared radius β ≥ 0 of the confidence ball, which is finite.

    Raises:
        ValueError: β is negative or NaN, or a variance is below −1e-6, which is more than rounding, or NaN.
    """
    require(beta >= 0, "beta", beta, "give a squared radius β of at least 0")
    return posterior.mean + math.sqrt(beta) * width(posterior.variance)


class Ball(NamedTuple):
    """The confidence ball {w : (w − ŵ)ᵀΣ(w − ŵ) ≤ β} of a client, for parameters w of dimension d_w (eq. 4).

    ``centre`` (..., d_w) is the ridge estimate ŵ; ``sigma`` (..., d_w, d_w) is the matrix Σ = λI + Σ_x n_x g_x g_xᵀ of
    the client's data, with n_x pulls of the arms x with the gradients g_x and the regularisation weight λ; and
    ``beta``, a number or (...), is the squared radius β.
    """

    centre: Tensor
    sigma: Tensor
    beta: Tensor | float

    def distance(self, w: Tensor) -> Tensor:
        """Return the squared distance ‖w − ŵ‖²_Σ = (w − ŵ)ᵀΣ(w − ŵ) of points from the centre ŵ of the ball, (...).

        ``w`` (..., d_w) has the points, and Σ is the matrix ``sigma`` of the ball. The leading axes of the points and
        of the ball broadcast.
        """
        away = (w - self.centre).unsqueeze(-1)
        return (away.mT @ self.sigma @ away).squeeze(-1).squeeze(-1)

    def contains(self, w: Tensor) -> Tensor:
        """Return whether each of the points ``w`` (..., d_w) lies in the ball, (...) bool.

        A point lies in the ball if its squared distance from the centre is at most β(1 + 1e-9), with the squared radius
        β of the ball; the factor 1 + 1e-9 allows for rounding.
        """
        return self.distance(w) <= torch.as_tensor(self.beta, dtype=torch.float64) * (1 + 1e-9)


def statistics(gradients: Tensor, w0: Tensor, lam: float, tally: Tally) -> tuple[Tensor, Tensor]:
    """Return the statistics Σ and b of a ``tally``, as the clients of Algorithm 1 keep them (eq. 6).

    With the gradients g_x of K arms x, the pulls n_x and the sums e_x of the residuals y − f_x(ŵ₀) of the rewards y,
    Σ = λI + Σ_x n_x g_x g_xᵀ and b = Σ_x g_x(n_x g_xᵀŵ₀ + e_x). The leading axes (...) of the arguments broadcast.

    Args:
        gradients: The gradients g_x = ∇f_x(ŵ₀), (..., K, d_w).
        w0: The parameter ŵ₀ of Phase I, (..., d_w).
        lam: The regularisation weight λ.
        tally: The pulls n_x and the sums e_x, (..., K) each.

    Returns:
        Σ (..., d_w, d_w) and b (..., d_w).
    """
    sigma = (gradients * tally.counts.unsqueeze(-1)).mT @ gradients
    sigma.diagonal(dim1=-2, dim2=-1).add_(lam)
    predicted = (gradients @ w0.unsqueeze(-1)).squeeze(-1)
    b = (gradients.mT @ (tally.counts * predicted + tally.sums).unsqueeze(-1)).squeeze(-1)
    return sigma, b


def ball(gradients: Tensor, w0: Tensor, lam: float, beta: Tensor | float, tally: Tally) -> Ball:
    """Return the confidence ball of the pulls in ``tally``, with the centre ŵ = Σ⁻¹b + λΣ⁻¹ŵ₀ (eq. 5).

    With the gradients g_x of K arms x, the pulls n_x and the sums e_x of the residuals, Σ = λI + Σ_x n_x g_x g_xᵀ and
    b = Σ_x g_x(n_x g_xᵀŵ₀ + e_x).

    Args:
        gradients: The gradient g_x = ∇f_x(ŵ₀) of each of K arms x, (..., K, d_w).
        w0: The parameter ŵ₀ of Phase I, (..., d_w).
        lam: The regularisation weight λ > 0.
        beta: The squared radius β of the ball, a number or (...).
        tally: The pulls n_x of each arm and the sums e_x of their residuals y − f_x(ŵ₀), with the rewards y, (..., K)
            each.

    Raises:
        ValueError: λ is not positive.
        torch.linalg.LinAlgError: A gradient or a count is NaN, or Σ is not positive definite in float64, because λ is
            too small for such large gradients or so many pulls.
    """
    require(lam > 0, "lam", lam, "give a positive regularisation weight λ")
    sigma, b = statistics(gradients, w0, lam, tally)
    centre = torch.cholesky_solve((b + lam * w0).unsqueeze(-1), torch.linalg.cholesky(sigma)).squeeze(-1)
    return Ball(centre, sigma, beta)
