"""Surrogates: models that turn the counts n and sums S of the rewards of every arm into a posterior of the arms' means.

    S_x/n_x = f(x) + ε_x,   ε_x ~ N(0, σ²/n_x),   f(x_1), …, f(x_K) | data ~ N(mean, covariance)

Here f(x) is the mean reward of the arm x, which is one of K, and σ the standard deviation of the noise of one reward.

`GaussianProcess` is BoTorch's usual Gaussian process, or the same process on warped rewards. `IndependentArms` learns
nothing from one arm about another. `Relinearised` fits the paper's network anew to all data and linearises it at the
fitted parameters, which is the linearised Laplace approximation, with a weight decay chosen by the evidence (MacKay,
Neural Computation 1992, https://doi.org/10.1162/neco.1992.4.3.448; Immer, Korzepa and Bauer, AISTATS 2021,
https://arxiv.org/abs/2008.08400). `LinearisedOnce` is the paper's model (eqs. 4–6): the network is linearised at the
parameters ŵ₀ that Phase I has fitted, in every fit at the same ones.

Because the arms are finitely many and public, a fit needs only counts and sums. Whoever has them can make the fit, and
nothing else has to be sent.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

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
    """The interface of a posterior of the mean rewards of the K arms of one run, from which pulls are planned.

    The posterior ``mean`` and ``variance`` of each arm's mean reward have the shape (K,). If an arm's mean reward
    differs between the sites of a run, the K entries belong to cells, the pairs of a site and an arm.
    """

    @property
    def mean(self) -> Tensor: ...

    @property
    def variance(self) -> Tensor: ...

    def covariance(self, among: Tensor) -> Tensor:
        """Return the posterior covariance between the mean rewards of C of the arms, (C, C).

        ``among`` (C,) int64 has the numbers of these arms.
        """
        ...


@runtime_checkable
class ByColumns(Protocol):
    """The interface of a posterior that can give single columns of its covariance.

    With it a plan on many arms does not have to compute the whole covariance.
    """

    def columns(self, arm: Tensor, among: Tensor) -> Tensor:
        """Return the posterior covariance of the mean reward of each of A arms with that of each of C arms, (A, C).

        Args:
            arm: The numbers of the A arms, (A,) int64.
            among: The numbers of the C arms, (C,) int64.
        """
        ...


class Surrogate(Protocol):
    """The interface of a model that is fitted to counts and sums of rewards.

    The same data have to give the same fit, because each client may make the fit for itself.
    """

    def fit(self, arms: Tensor, data: Tally, sigma: Noise, before: Fitted | None = None) -> Fitted:
        """Return the posterior of the K arms' mean rewards given ``data``.

        Args:
            arms: The d_x features of each arm, (K, d_x).
            data: The number of pulls and the sum of rewards of each arm, (K,) each. Single rewards can be given as arms
                with a count of one. A surrogate for N sites that differ receives those of each site, (N, K) each, and
                returns the posterior of the N·K cells (pairs of a site and an arm), those of the first site first.
            sigma: The standard deviation σ of the noise of one reward, or what replicates tell about it.
            before: The last fit, from which the new fit may begin; None if there is none.

        Returns:
            The posterior, with a mean and a variance for each arm or cell.
        """
        ...


def fitted(
    surrogate: Surrogate, arms: Tensor, data: Tally, sigma: Noise, before: Fitted | None = None
) -> Fitted:
    """Fit ``surrogate`` to ``data``, check the posterior's mean and variance, and return the posterior.

    Args:
        surrogate: The model to fit.
        arms: The d_x features of each arm, (K, d_x).
        data: The number of pulls and the sum of rewards of each arm, (K,) each, or of each arm at each of N sites,
            (N, K) each.
        sigma: The standard deviation σ of the noise of one reward.
        before: The last fit, from which the new fit may begin; None if there is none.

    Returns:
        The posterior on the K arms, or on the N·K pairs of a site and an arm, as ``surrogate.fit`` returns it.

    Raises:
        ValueError: The last axis of the counts is not K long; or the posterior's mean or variance has a wrong shape,
            NaN or an infinite number; or a variance is negative by more than 1e-6 of the largest one's absolute value,
            which allows for rounding.
        Exception: ``surrogate.fit`` fails; its error passes through.
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
    """Return the message of the ``error`` that a fit raised, unless a library or memory is missing.

    A caller that goes on without the fit shows this message. If a library or memory is missing, other data would not
    help, and an error is raised instead.

    Raises:
        ImportError: ``error`` is an ``ImportError``, which is raised again.
        MemoryError: ``error`` is a ``MemoryError``, which is raised again; or its text contains "can't allocate
            memory", as that of torch's ``RuntimeError`` does.
    """
    if isinstance(error, ImportError | MemoryError):
        raise error
    if "can't allocate memory" in str(error):
        raise MemoryError(str(error)) from error
    return str(error)


class Observed(NamedTuple):
    """The data of the n arms that have been pulled, or of n cells (pairs of a site and an arm), as a fit needs them.

    Args:
        at: The numbers of these arms or cells, in ascending order, (n,) int64.
        means: The mean reward S_x/n_x of each of them, (n,).
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
    """Return the mean rewards of the arms or cells that have been pulled, and the variances of these mean rewards.

    Args:
        data: The number of pulls and the sum of rewards of each arm, or of each cell, (K,) each.
        sigma: The standard deviation σ of one reward's noise, or what replicates tell about it.
        least: The smallest number of pulled arms or cells that is accepted.

    Raises:
        TypeError: ``sigma`` is not a number.
        ValueError: A count is negative or not finite; a sum is not finite, or is not 0 for an arm without pulls; σ is
            not positive and finite; a mean reward is not between −10¹⁰⁰ and 10¹⁰⁰; fewer than ``least`` arms or cells
            have been pulled; or ``least`` is 2 or more and all mean rewards are equal.
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
        mean: The posterior mean of each arm or cell (a pair of a site and an arm), (K,).
        variance: The posterior variance of each arm or cell, (K,).
        unknown: The number of the unknown that each arm or cell is, (K,) int64. Arms or cells with the same number are
            one unknown, so that they have one mean and one variance, which is also their covariance.
    """

    mean: Tensor
    variance: Tensor
    unknown: Tensor

    def covariance(self, among: Tensor) -> Tensor:
        """Return the posterior covariance between C of the arms or cells (pairs of a site and an arm), (C, C).

        ``among`` (C,) int64 has the numbers of these arms or cells.
        """
        return self.columns(among, among)

    def columns(self, arm: Tensor, among: Tensor) -> Tensor:
        """Return the posterior covariance of each of A arms or cells with each of C arms or cells, (A, C).

        A cell is the pair of a site and an arm. The covariance is 0 unless both are the same unknown.

        Args:
            arm: The numbers of the A arms or cells, (A,) int64.
            among: The numbers of the C arms or cells, (C,) int64.
        """
        same = self.unknown[arm].unsqueeze(-1) == self.unknown[among]
        return torch.where(same, self.variance[among], 0.0)


@dataclass(frozen=True)
class IndependentArms:
    """A surrogate under which the rewards of one arm tell nothing about another arm.

    The posterior mean of an arm with n pulls is the mean of its rewards, and its variance is σ²/n, with σ² the variance
    of one reward's noise. For an arm without pulls the posterior mean is the average of the pulled arms' mean rewards,
    and its variance is w²(r² + σ²), with w = ``wide`` and r the largest of these mean rewards less the smallest. In a
    joint plan with κ standard deviations of optimism this is UCB1 with the half-width κσ/√n.

    Args:
        wide: w, the posterior standard deviation of an arm without pulls divided by √(r² + σ²). It is not checked.
    """

    wide: float = 100.0

    def fit(self, arms: Tensor, data: Tally, sigma: Noise, before: Fitted | None = None) -> Independent:
        """Return the posterior of the K arms' mean rewards given ``data``.

        Args:
            arms: The d_x features of each arm, (K, d_x), of which only the number K is used.
            data: The number of pulls and the sum of rewards of each arm, (K,) each.
            sigma: The standard deviation σ of the noise of one reward.
            before: Not used.

        Returns:
            The posterior mean and variance of each arm, (K,) float64 each, under which all arms are independent.

        Raises:
            ValueError: No arm has been pulled; a count is negative or not finite; a sum is not finite, or is not 0 for
                an arm without pulls; a mean reward is not between −10¹⁰⁰ and 10¹⁰⁰; or σ is not positive and finite.
            TypeError: ``sigma`` is not a number.
        """
        sigma = as_number(sigma, data)
        seen = observed(data, sigma, least=1)
        prior = self.wide**2 * ((seen.means.amax() - seen.means.amin()).square() + sigma**2)
        none = torch.zeros(len(arms), dtype=torch.float64)
        mean = (none + seen.means.mean()).index_put((seen.at,), seen.means)
        variance = (none + prior).index_put((seen.at,), seen.variances)
        return Independent(mean, variance, torch.arange(len(arms)))
