"""Surrogates: models that turn the counts n and sums S of the rewards of every arm into a posterior of the arms' means.

    S_x/n_x = f(x) + ε_x,   ε_x ~ N(0, σ²/n_x),   f(x_1), …, f(x_K) | data ~ N(mean, covariance)

Here f(x) is the mean reward of the arm x, which is one of K, and σ the standard deviation of the noise of one reward.

`GaussianProcess` is BoTorch's usual Gaussian process, or the same process on warped rewards. `IndependentArms` learns
nothing from one arm about another. `Relinearised` fits the paper's network anew to all data and linearises it at the
fitted parameters, which is the linearised Laplace approximation, with a weight decay chosen by the evidence (MacKay,
Neural Computation 1992, https://doi.org/10.1162/neco.1992.4.3.448; Immer, Korzepa and Bauer, AISTATS 2021,
https://arxiv.org/abs/2008.08400).

Because the arms are finitely many and public, a fit needs only counts and sums. Whoever has them can make the fit, and
nothing else has to be sent.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedgo._checks import number, require, require_each
from fedgo.confidence import Tally

_HUGE = 1e100  # mean rewards must be smaller than this, so that their squares are finite
_ROUNDED = 1e-6  # a variance that is negative by up to this share of the largest absolute one is rounding


class Replicates(NamedTuple):
    """What repeated pulls of single arms tell about a noise σ that is not known.

    Args:
        degrees: Σ (n_x − 1) over the pulled arms x with n_x rewards each, at least 0.
        squares: The sum of the squared distances of all rewards from the mean reward of their arm, at least 0.
    """

    degrees: int
    squares: float


Noise = float | Replicates  # σ, or what is known of it


def as_number(sigma: Noise, data: Tally) -> float:
    """Return σ, or where it is not known a value from the replicates and the spread of the arms' mean rewards."""
    if not isinstance(sigma, Replicates):
        return sigma
    means = (data.sums / data.counts)[data.counts > 0]
    prior = math.exp(-4) * means.var(correction=0).item()
    return math.sqrt((sigma.squares + prior) / (sigma.degrees + 1))


class Fitted(Protocol):
    """A posterior of the mean rewards of K arms or cells, from which pulls are planned.

    ``mean`` and ``variance`` have the shape (K,).
    """

    @property
    def mean(self) -> Tensor: ...

    @property
    def variance(self) -> Tensor: ...

    def columns(self, arm: Tensor, among: Tensor) -> Tensor:
        """Return the posterior covariance of A mean rewards with C mean rewards, (A, C).

        Args:
            arm: The numbers of the A, (A,) int64.
            among: The numbers of the C, (C,) int64.
        """
        ...


class Surrogate(Protocol):
    """A model that is fitted to counts and sums of rewards.

    The same data have to give the same fit, because each client may make the fit for itself.
    """

    def fit(self, arms: Tensor, data: Tally, sigma: Noise, before: Fitted | None = None) -> Fitted:
        """Return the posterior of the mean rewards given ``data``.

        Args:
            arms: The features of each arm, (K, d_x).
            data: The number of pulls and the sum of rewards of each arm, (K,) each. For N sites that differ they are
                those of each site, (N, K) each, and the posterior is on the N·K cells, those of the first site first.
            sigma: The standard deviation σ of one reward's noise, or what replicates tell about it.
            before: The last fit, from which the new fit may begin; None if there is none.
        """
        ...


def fitted(
    surrogate: Surrogate, arms: Tensor, data: Tally, sigma: Noise, before: Fitted | None = None
) -> Fitted:
    """Fit ``surrogate`` to ``data`` as `Surrogate.fit` says, check the shapes and signs of the posterior, and return
    it.
    """
    shape, name = tuple(data.counts.shape), type(surrogate).__name__
    remedy = f"give one for each of {len(arms)} arms"
    require(shape[-1:] == (len(arms),), "the shape of counts", shape, remedy)
    posterior, size = surrogate.fit(arms, data, sigma, before), data.counts.numel()
    for what in ("mean", "variance"):
        values = getattr(posterior, what)
        remedy = f"give (K,) = ({size},), one for each arm"
        require(values.shape == (size,), f"the shape of the {what} by {name}", tuple(values.shape), remedy)
        remedy = "the fit broke down: scale arms and rewards to order 1, or give another model"
        require_each(values.isfinite(), f"the {what} by {name}", values, remedy)
    variance = posterior.variance
    positive = variance >= -_ROUNDED * variance.abs().amax()
    remedy = "it is negative beyond rounding: give a model whose covariance is positive semi-definite"
    require_each(positive, f"the variance by {name}", variance, remedy)
    return posterior


def why_it_failed(error: Exception) -> str:
    """Return the message of a fit's ``error``, or raise it if a library or memory is missing: other data would not
    help.
    """
    if isinstance(error, ImportError | MemoryError):
        raise error
    if "can't allocate memory" in str(error):
        raise MemoryError(str(error)) from error
    return str(error)


class Observed(NamedTuple):
    """The n arms or cells that have been pulled.

    Args:
        at: Their numbers in ascending order, (n,) int64.
        means: The mean reward S_x/n_x of each, (n,).
        variances: The variance σ²/n_x of each mean reward, (n,), or 1/n_x if σ is not known.
        sigma: σ, or what replicates tell about it.
    """

    at: Tensor
    means: Tensor
    variances: Tensor
    sigma: Noise

    @property
    def alike(self) -> bool:
        """Whether two arms (or cells) or more have been pulled and all have the same mean reward."""
        return len(self.at) > 1 and bool((self.means == self.means[0]).all())


def observed(data: Tally, sigma: Noise, least: int = 2) -> Observed:
    """Return the data of the arms or cells that have been pulled, after a check.

    Args:
        data: The number of pulls and the sum of rewards of each arm or cell, (K,) each.
        sigma: The standard deviation σ of one reward's noise, or what replicates tell about it.
        least: The smallest number of pulled arms or cells that is accepted.
    """
    require_each(data.counts.isfinite() & (data.counts >= 0), "counts", data.counts, "give counts from 0 on")
    rewarded = data.sums.isfinite() & ((data.counts > 0) | (data.sums == 0))
    require_each(rewarded, "sums", data.sums, "give finite rewards, and 0 where there are no counts")
    if not isinstance(sigma, Replicates):
        number("sigma", sigma, "give σ > 0, the noise of a reward", above=0)
    at = data.counts.nonzero().squeeze(-1)
    remedy = "a fit needs two arms at least: explore longer"
    require(len(at) >= least, "the number of distinct arms with a reward", len(at), remedy)
    means = data.sums[at] / data.counts[at]
    require_each(means.abs() < _HUGE, "the mean reward of an arm", means, "scale rewards to order 1")
    square = 1.0 if isinstance(sigma, Replicates) else sigma**2
    seen = Observed(at, means, square / data.counts[at], sigma)
    if least > 1 and seen.alike:
        remedy = "rewards that are all the same have no scale to fit: explore longer"
        require(False, "the mean reward of every arm", means[0].item(), remedy)
    return seen


class Independent(NamedTuple):
    """A posterior of K mean rewards, each two of which are either independent or one and the same unknown.

    Args:
        mean: The posterior means, (K,).
        variance: The posterior variances, (K,).
        unknown: The number of the unknown that each arm or cell is, (K,) int64.
    """

    mean: Tensor
    variance: Tensor
    unknown: Tensor

    def columns(self, arm: Tensor, among: Tensor) -> Tensor:
        same = self.unknown[arm].unsqueeze(-1) == self.unknown[among]
        return torch.where(same, self.variance[among], 0.0)


@dataclass(frozen=True)
class IndependentArms:
    """A surrogate under which the rewards of one arm tell nothing about another arm.

    An arm with n pulls has the mean of its rewards and the variance σ²/n. An arm without pulls has the average of the
    others' means and the variance w²(r² + σ²), with w = ``wide`` and the range r of these means. With κ standard
    deviations of optimism this is UCB1 with the half-width κσ/√n.

    Args:
        wide: w, the standard deviation of an arm without pulls in units of √(r² + σ²).
    """

    wide: float = 100.0

    def fit(self, arms: Tensor, data: Tally, sigma: Noise, before: Fitted | None = None) -> Independent:
        sigma = as_number(sigma, data)
        seen = observed(data, sigma, least=1)
        prior = self.wide**2 * ((seen.means.amax() - seen.means.amin()).square() + sigma**2)
        none = torch.zeros(len(arms), dtype=torch.float64)
        mean = (none + seen.means.mean()).index_put((seen.at,), seen.means)
        variance = (none + prior).index_put((seen.at,), seen.variances)
        return Independent(mean, variance, torch.arange(len(arms)))
