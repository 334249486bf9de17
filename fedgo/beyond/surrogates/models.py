"""Surrogates: any model that makes of the counts n and sums S of the rewards of every arm a posterior on the arms.

    S_x/n_x = f(x) + ε_x,   ε_x ~ N(0, σ²/n_x),   f(x_1), …, f(x_K) | data ~ N(mean, covariance)

`GaussianProcess` is BoTorch's usual one, or the same on warped rewards. `IndependentArms` learns nothing from one
arm about another. `Relinearised` is the paper's network fitted anew to all data and linearised there, the linearised
Laplace approximation with its weight decay by the evidence (MacKay, Neural Computation 1992,
https://doi.org/10.1162/neco.1992.4.3.448; Immer, Korzepa and Bauer, AISTATS 2021, https://arxiv.org/abs/2008.08400).
`LinearisedOnce` is the paper's: the model of eqs. 4–6 around a ŵ₀ that stays. With finitely many public arms counts and
sums are all that a fit needs, so whoever has them can fit, and nothing else is sent.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from fedgo._checks import number, require, require_each
from fedgo.confidence import Tally

_STEPS, _SETTLE = 40, 4  # Gauss–Newton steps of a fit, and those between two updates of the weight decay
_HUGE = 1e100  # of a reward whose square is to be finite
_HIDDEN = 1e-6  # a variance so far below 0, against the largest, is rounding


class Fitted(Protocol):
    """A posterior on the K arms of one run: ``mean`` and ``variance`` of f, (K,)."""

    @property
    def mean(self) -> Tensor: ...

    @property
    def variance(self) -> Tensor: ...

    def covariance(self, among: Tensor) -> Tensor:
        """Between the C arms ``among`` (C,) int64, (C, C)."""
        ...


@runtime_checkable
class ByColumns(Protocol):
    """A posterior of which single columns can be had, for plans on many arms."""

    def columns(self, arm: Tensor, among: Tensor) -> Tensor:
        """Of the covariance, between each ``arm`` (A,) and the arms ``among`` (C,), (A, C)."""
        ...


class Surrogate(Protocol):
    """Whatever can be fitted, the same for the same data whoever fits it."""

    def fit(self, arms: Tensor, data: Tally, sigma: float, before: Fitted | None = None) -> Fitted:
        """To ``data``, counts and sums (K,) on ``arms`` (K, d_x) with noise σ = ``sigma``; ``before`` is the last fit.

        Points and rewards are arms with a count of one.
        """
        ...


def fitted(
    surrogate: Surrogate, arms: Tensor, data: Tally, sigma: float, before: Fitted | None = None
) -> Fitted:
    """``surrogate.fit``, `checked`."""
    shape = tuple(data.counts.shape)
    require(shape == (len(arms),), "the shape of counts", shape, f"give one for each of {len(arms)} arms")
    return checked(surrogate.fit(arms, data, sigma, before), len(arms), type(surrogate).__name__)


def why_it_failed(error: Exception) -> str:
    """Return the reason why a fit failed that raised ``error``, whatever a library raises where it finds no optimum.

    An ``ImportError`` and a ``MemoryError`` are raised instead: no other data would mend them. Where the memory of the
    CPU is used up torch raises a ``RuntimeError``; that becomes a ``MemoryError``.
    """
    if isinstance(error, ImportError | MemoryError):
        raise error
    if "can't allocate memory" in str(error):
        raise MemoryError(str(error)) from error
    return str(error)


def checked(found: Fitted, arms: int, name: str) -> Fitted:
    """``found`` on K = ``arms``, with a ``ValueError`` where ``name`` gave the wrong shape, NaN or a variance < 0."""
    for what in ("mean", "variance"):
        values = getattr(found, what)
        shape, instead = tuple(values.shape), f"give (K,) = ({arms},), one for each arm"
        require(shape == (arms,), f"the shape of the {what} by {name}", shape, instead)
        remedy = "the fit broke down: scale arms and rewards to order 1, or give another model"
        require_each(values.isfinite(), f"the {what} by {name}", values, remedy)
    variance = found.variance
    require_each(
        variance >= -_HIDDEN * variance.amax().clamp(min=1e-12),
        f"the variance by {name}",
        variance,
        "it is negative beyond rounding: give a model whose covariance is positive semi-definite",
    )
    return found


class Observed(NamedTuple):
    """The arms that were pulled, by their numbers ``at`` (n,), and their ``means``, with ``variances`` σ²/n, (n,)."""

    at: Tensor
    means: Tensor
    variances: Tensor

    @property
    def alike(self) -> bool:
        """Whether they are two arms at least, with one mean, which has no scale."""
        return len(self.at) > 1 and bool((self.means == self.means[0]).all())


def observed(data: Tally, sigma: float, least: int = 2) -> Observed:
    """The means of ``data``; a ``ValueError`` unless they are of ``least`` arms, which are not all alike if two."""
    require_each(data.counts.isfinite() & (data.counts >= 0), "counts", data.counts, "give counts from 0 on")
    rewarded = data.sums.isfinite() & ((data.counts > 0) | (data.sums == 0))
    require_each(rewarded, "sums", data.sums, "give finite rewards, and 0 where there are no counts")
    number("sigma", sigma, "give σ > 0, the noise of a reward", above=0)
    at = data.counts.nonzero().squeeze(-1)
    remedy = "a fit needs two arms at least: explore longer"
    require(len(at) >= least, "the number of distinct arms with a reward", len(at), remedy)
    means = data.sums[at] / data.counts[at]
    require_each(means.abs() < _HUGE, "the mean reward of an arm", means, "scale rewards to order 1")
    seen = Observed(at, means, sigma**2 / data.counts[at])
    if least > 1 and seen.alike:
        remedy = "rewards that are all the same have no scale to fit: explore longer"
        require(False, "the mean reward of every arm", means[0].item(), remedy)
    return seen


# A Gaussian process


# Arms that say nothing of each other


class Independent(NamedTuple):
    """``mean`` and ``variance`` (K,) of arms that are independent."""

    mean: Tensor
    variance: Tensor

    def covariance(self, among: Tensor) -> Tensor:
        """As `Fitted` says."""
        return self.variance[among].diag()

    def columns(self, arm: Tensor, among: Tensor) -> Tensor:
        """As `ByColumns` says."""
        return torch.where(arm.unsqueeze(-1) == among, self.variance[among], 0.0)


@dataclass(frozen=True)
class IndependentArms:
    """Each arm by itself: its mean reward with variance σ²/n, and where it was never pulled the mean of all with a
    variance of ``wide``² times their range and noise. Under a joint plan this is UCB1 with κσ/√n."""

    wide: float = 100.0

    def fit(self, arms: Tensor, data: Tally, sigma: float, before: Fitted | None = None) -> Independent:
        """As `Surrogate` says."""
        seen = observed(data, sigma, least=1)
        prior = self.wide**2 * ((seen.means.amax() - seen.means.amin()).square() + sigma**2)
        none = torch.zeros(len(arms), dtype=torch.float64)
        mean = (none + seen.means.mean()).index_put((seen.at,), seen.means)
        return Independent(mean, (none + prior).index_put((seen.at,), seen.variances))


# A network, linearised
