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

_HUGE = 1e100  # of a reward whose square is to be finite
_HIDDEN = 1e-6  # a variance so far below 0, against the largest, is rounding


class Fitted(Protocol):
    """A posterior on the K arms of one run, with the ``mean`` and the ``variance`` of f, (K,) each."""

    @property
    def mean(self) -> Tensor: ...

    @property
    def variance(self) -> Tensor: ...

    def covariance(self, among: Tensor) -> Tensor:
        """Return the covariance between the C arms ``among`` (C,) int64, (C, C)."""
        ...


@runtime_checkable
class ByColumns(Protocol):
    """A posterior that can give single columns of its covariance, for plans on many arms."""

    def columns(self, arm: Tensor, among: Tensor) -> Tensor:
        """Return the covariance of each ``arm`` (A,) with each of the arms ``among`` (C,), (A, C)."""
        ...


class Surrogate(Protocol):
    """A model that can be fitted to counts and sums, with the same result whoever fits it."""

    def fit(self, arms: Tensor, data: Tally, sigma: float, before: Fitted | None = None) -> Fitted:
        """Return the posterior given ``data``.

        Args:
            arms: The features of the arms, (K, d_x).
            data: The counts and sums of each arm, (K,). Single rewards are arms with a count of one.
            sigma: The standard deviation σ of the noise of one reward.
            before: The last fit, from which the new one may begin.
        """
        ...


def fitted(
    surrogate: Surrogate, arms: Tensor, data: Tally, sigma: float, before: Fitted | None = None
) -> Fitted:
    """Return the posterior that ``surrogate`` fits to ``data``, once `checked` has found it valid.

    Args:
        surrogate: The model to fit.
        arms: The features of the arms, (K, d_x).
        data: The counts and sums of each arm, (K,) each, or of each arm at each of N sites, (N, K) each.
        sigma: The standard deviation σ of the noise of one reward.
        before: The last fit, from which the new one may begin.

    Raises:
        ValueError: The last axis of ``data`` is not K long, or the posterior has a wrong shape, NaN, an infinite number
            or a negative variance. Whatever ``surrogate.fit`` raises passes through.
    """
    shape = tuple(data.counts.shape)
    remedy = f"give one for each of {len(arms)} arms"
    require(shape[-1:] == (len(arms),), "the shape of counts", shape, remedy)
    return checked(surrogate.fit(arms, data, sigma, before), data.counts.numel(), type(surrogate).__name__)


def why_it_failed(error: Exception) -> str:
    """Return the message of the ``error`` that a fit raised, or raise the error if other data could not avoid it.

    Raises:
        ImportError: ``error`` is one.
        MemoryError: ``error`` is one, or is the ``RuntimeError`` by which torch says that it cannot allocate memory.
    """
    if isinstance(error, ImportError | MemoryError):
        raise error
    if "can't allocate memory" in str(error):
        raise MemoryError(str(error)) from error
    return str(error)


def checked(fitted: Fitted, arms: int, name: str) -> Fitted:
    """Return ``fitted``, or refuse it if it cannot be a posterior on K = ``arms`` arms.

    Raises:
        ValueError: The mean or the variance by the surrogate ``name`` does not have the shape (K,) or is NaN or
            infinite somewhere, or a variance is below 0 by more than 10⁻⁶ of the largest.
    """
    for what in ("mean", "variance"):
        values = getattr(fitted, what)
        shape, instead = tuple(values.shape), f"give (K,) = ({arms},), one for each arm"
        require(shape == (arms,), f"the shape of the {what} by {name}", shape, instead)
        remedy = "the fit broke down: scale arms and rewards to order 1, or give another model"
        require_each(values.isfinite(), f"the {what} by {name}", values, remedy)
    variance, remedy = fitted.variance, "give a model whose covariance is positive semi-definite"
    positive = variance >= -_HIDDEN * variance.amax().clamp(min=1e-12)
    require_each(positive, f"the variance by {name}", variance, f"it is negative beyond rounding: {remedy}")
    return fitted


class Observed(NamedTuple):
    """The data of the n arms that were pulled, as a fit needs them, (n,) each.

    Args:
        at: The numbers of these arms, int64.
        means: The mean reward S_x/n_x of each.
        variances: The variance σ²/n_x of each mean reward, with n_x the number of pulls of the arm.
    """

    at: Tensor
    means: Tensor
    variances: Tensor

    @property
    def alike(self) -> bool:
        """Whether there are at least two arms and all have the same mean, so that the means have no scale."""
        return len(self.at) > 1 and bool((self.means == self.means[0]).all())


def observed(data: Tally, sigma: float, least: int = 2) -> Observed:
    """Return the mean rewards of the arms that were pulled, and the variances of these means.

    Args:
        data: The counts and sums of each arm, (K,) each.
        sigma: The standard deviation σ of the noise of one reward.
        least: The least number of pulled arms.

    Raises:
        TypeError: ``sigma`` is no number.
        ValueError: A count is negative or not finite; a sum is not finite, or is not 0 for an arm with no pulls; σ is
            not positive and finite; a mean reward is beyond ±10¹⁰⁰; fewer than ``least`` arms were pulled; or ``least``
            is 2 or more and all mean rewards are equal.
    """
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


class Independent(NamedTuple):
    """A posterior under which arms are independent of each other, but for arms that are one unknown.

    Args:
        mean: The mean of each of the K arms, or cells, (K,).
        variance: The variance of each, (K,).
        unknown: The number of the unknown that each of them is, (K,) int64. If two have the same number, their
            covariance is their variance; otherwise they are independent.
    """

    mean: Tensor
    variance: Tensor
    unknown: Tensor

    def covariance(self, among: Tensor) -> Tensor:
        """Return the covariance between the arms ``among`` (C,), (C, C)."""
        return self.columns(among, among)

    def columns(self, arm: Tensor, among: Tensor) -> Tensor:
        """Return the covariance of each ``arm`` (A,) with each of the arms ``among`` (C,), (A, C)."""
        same = self.unknown[arm].unsqueeze(-1) == self.unknown[among]
        return torch.where(same, self.variance[among], 0.0)


@dataclass(frozen=True)
class IndependentArms:
    """A surrogate under which the rewards of one arm say nothing about another arm.

    The posterior mean of an arm with n pulls is its mean reward, and its variance is σ²/n. An arm without pulls has the
    average of the pulled arms' mean rewards as its mean, and the variance w²(r² + σ²), with w = ``wide`` and r the
    range of these mean rewards. Under a joint plan this is UCB1 with the half-width κσ/√n.
    """

    wide: float = 100.0

    def fit(self, arms: Tensor, data: Tally, sigma: float, before: Fitted | None = None) -> Independent:
        """Return the posterior on the K arms given ``data``; see `Surrogate.fit` for the arguments.

        ``before`` is not used, and of ``arms`` only K.

        Raises:
            ValueError: ``data`` or ``sigma`` is out of range, or no arm was pulled (`observed`).
        """
        seen = observed(data, sigma, least=1)
        prior = self.wide**2 * ((seen.means.amax() - seen.means.amin()).square() + sigma**2)
        none = torch.zeros(len(arms), dtype=torch.float64)
        mean = (none + seen.means.mean()).index_put((seen.at,), seen.means)
        variance = (none + prior).index_put((seen.at,), seen.variances)
        return Independent(mean, variance, torch.arange(len(arms)))
