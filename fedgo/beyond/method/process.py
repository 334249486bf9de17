"""A Gaussian process with the squared exponential kernel, and a warp of rewards that are skewed.

    means_x = c + g(x) + ε_x,   g ~ GP(0, s²·k),   k(x, x′) = exp(−½ Σ_j (x_j − x′_j)²/ℓ_j²),   ε_x ~ N(0, σ²/n_x)

Here means_x is the mean of the n_x rewards of arm x, which has d_x features x_j. c is a constant, s the standard
deviation of the means of all pulled arms (their spread), σ the standard deviation of one reward's noise, and ℓ_j the
length scale of feature j. The prior is ln ℓ_j ~ N(√2 + ½ ln d_x, 3), with the variance 3 (Hvarfner, Hellsten and Nardi,
ICML 2024, https://arxiv.org/abs/2402.02229). The model, the prior and the mode are those of BoTorch's SingleTaskGP.
Unlike there, the gradient is in closed form, a fit takes a tenth of the time, and single columns of the posterior
covariance can be computed. The warp is the power of Yeo and Johnson (Biometrika 2000,
https://doi.org/10.1093/biomet/87.4.954).

If the rewards of several sites differ, each x is a cell, the pair of a site and an arm. Then the covariance of x at
site i with x′ at site i′ is

    k(x, x′)·[(1 − ρ) + ρ·1{i=i′}] + v·1{i=i′},   ρ = 1 − exp(−1/ℓ²),   ln ℓ ~ N(1, 1),   ln v ~ N(−3, 4),

in units of s², with the variances 1 and 4 of the two priors. ρ is the share of the variance that belongs to one site
alone, as if the site were a categorical input with the length scale ℓ. v is the variance of the level by which all
rewards of a site are higher or lower. 1{i=i′} is 1 if both cells are of the same site, and 0 if not. This kernel is
among those of CGP-UCB (Krause and Ong, NeurIPS 2011). The parameters of the model are ln ℓ_j of each feature j, and
with sites ln ℓ and ln v after them.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedgo._checks import extra
from fedgo.beyond.method.surrogates import Observed

# the mean (without ½ ln d_x) and the variance of the prior of ln ℓ_j, and the smallest ℓ_j that a fit may have
_PRIOR_MEAN, _PRIOR_VARIANCE, _SHORTEST = math.sqrt(2), 3.0, 0.025
# for ln ℓ and ln v of the sites: the mean and the variance of the prior, the start and the bounds of the search
_SITES = [(1.0, 1.0, 1.0, (-2.0, 6.0)), (-3.0, 4.0, -3.0, (-12.0, 5.0))]
# the powers among which the warp is chosen
_POWERS = torch.linspace(-2, 4, 49, dtype=torch.float64, device="cpu")


class PriorCovariance(NamedTuple):
    """The prior covariance of n points, which are arms or cells (pairs of a site and an arm), in units of s².

    The unit s is the spread of the mean rewards, by which they are standardised. The covariance of two arms x and x′
    with scaled features is k = exp(−½‖x − x′‖²). That of two cells is (1 − ρ)k if their sites differ, and k + v
    otherwise.

    Args:
        inputs: The points, each of the d_x features divided by its length scale, (n, d_x).
        site: The number of the site of each cell, (n,) int64; None if the points are arms.
        own: ρ, the share of the variance that belongs to one site alone, (); 0 if the points are arms.
        level: v, in units of s², the variance of the level by which all rewards of a site are higher or lower, (); 0 if
            the points are arms.
    """

    inputs: Tensor
    site: Tensor | None
    own: Tensor
    level: Tensor

    @classmethod
    def of(cls, points: Tensor, site: Tensor | None, parameters: Tensor) -> "PriorCovariance":
        """Return the prior covariance of n points, which are arms or cells, for given parameters.

        Args:
            points: The arms, or the arm of each cell (a pair of a site and an arm), in the unit cube of d_x features,
                (n, d_x).
            site: The number of the site of each cell, (n,) int64; None if the points are arms.
            parameters: The logarithms of the length scales ℓ_j of the features, (d_x,). With sites, ln ℓ of the sites'
                length scale and ln v of the variance of their levels follow, (d_x + 2,).
        """
        features, none = points.shape[1], parameters.new_zeros(())
        inputs = points / parameters[:features].exp()
        if site is None:
            return cls(inputs, site, none, none)
        category, level = parameters[features:]
        return cls(inputs, site, -torch.expm1(-torch.exp(-2 * category)), level.exp())

    def at(self, places: Tensor) -> "PriorCovariance":
        """Return the prior covariance of only those m of the points that have the numbers ``places`` (m,) int64."""
        site = None if self.site is None else self.site[places]
        return self._replace(inputs=self.inputs[places], site=site)

    def covariance(self, other: "PriorCovariance") -> Tensor:
        """Return the prior covariance of each of this object's n points with each of the m points of ``other``, (n, m).

        The points are arms, or cells (pairs of a site and an arm). Both objects have to rest on the same parameters.
        The unit is s², with the spread s of the mean rewards.
        """
        covariance = _kernel(self.inputs, other.inputs)
        if self.site is None or other.site is None:
            return covariance
        same = self.site.unsqueeze(-1) == other.site
        return torch.where(same, covariance + self.level, covariance * (1 - self.own))


class Warped(NamedTuple):
    """The posterior of K warped mean rewards, from which intervals of the mean rewards themselves are computed.

    The K mean rewards are those of arms, or of cells (pairs of a site and an arm). Warped means transformed by a power
    that makes skewed rewards more like a normal sample (`Warp`).

    Args:
        warp: The warp of the rewards.
        mean: The posterior mean of each warped mean reward, (K,).
        variance: The posterior variance of each warped mean reward, (K,).
    """

    warp: "Warp"
    mean: Tensor
    variance: Tensor

    def interval(self, kappa: Tensor) -> Tensor:
        """Return an estimate and an interval for each of K mean rewards, by the inverse of the warp of the rewards.

        Args:
            kappa: The half-width κ of the interval in posterior standard deviations of the warped mean reward, (K,) or
                a scalar ().

        Returns:
            The inverse of the warp at m, m − κ√v and m + κ√v, in this order, (3, K), in the unit of the rewards, with m
            and v the posterior mean and variance of the warped mean reward. An entry is infinite where no reward has
            that warp.
        """
        half = kappa * self.variance.clamp(min=0).sqrt()
        return self.warp.inverse(torch.stack([self.mean, self.mean - half, self.mean + half]))


class ProcessFit(NamedTuple):
    """The posterior of the mean rewards of K arms, or of K cells (pairs of a site and an arm), given n observed means.

    If the rewards were warped, the warp is replaced by its tangent at the leader, the pulled arm or cell with the
    largest posterior mean. If w is the warp of the leader's mean reward r, a posterior mean m of the warped rewards
    becomes r + (m − w)/``slope``, and its standard deviation is divided by ``slope``.

    Args:
        mean: The posterior means, (K,), in the unit of the rewards.
        variance: The posterior variances, (K,), in the unit of the rewards squared.
        prior: The prior covariance of the K arms or cells, in units of s².
        half: L⁻¹C, (n, K). C (n, K) is the prior covariance of the n observed points with all K, in units of s². L
            (n, n) is the Cholesky factor of the covariance of the n mean rewards, noise included, in the same units.
            With H for ``half``, d for ``slope`` and Q (K, K) for the prior covariance, the posterior covariance is
            s²(Q − HᵀH)/d².
        scale: The spread s by which the mean rewards were standardised, in their unit, or without a unit if they were
            warped.
        parameters: The parameters at the mode of their posterior: the logarithms of the length scales of d_x features,
            (d_x,). With sites, ln ℓ of the sites' length scale and ln v of the variance of their levels follow,
            (d_x + 2,).
        slope: The derivative of the warp at the leader's mean reward, per unit of reward; 1 without a warp.
        warped: The posterior of the warped mean rewards; None without a warp.
    """

    mean: Tensor
    variance: Tensor
    prior: PriorCovariance
    half: Tensor
    scale: float
    parameters: Tensor
    slope: float = 1.0
    warped: Warped | None = None

    def columns(self, arm: Tensor, among: Tensor) -> Tensor:
        """Return the posterior covariance of each of A arms or cells with each of C arms or cells, (A, C).

        A cell is the pair of a site and an arm. The unit is that of the rewards squared.

        Args:
            arm: The numbers of the A arms or cells, (A,) int64.
            among: The numbers of the C arms or cells, (C,) int64.
        """
        prior = self.prior.at(arm).covariance(self.prior.at(among))
        return self.scale**2 * (prior - self.half[:, arm].mT @ self.half[:, among]) / self.slope**2

    def covariance(self, among: Tensor) -> Tensor:
        """Return the posterior covariance between C of the arms or cells (pairs of a site and an arm), (C, C).

        ``among`` (C,) int64 has their numbers. The unit is that of the rewards squared.
        """
        return self.columns(among, among)


def in_cube(arms: Tensor) -> Tensor:
    """Return the K ``arms`` (K, d_x) with each of the d_x features scaled to [0, 1], in their shape.

    A feature that is the same for all arms becomes 0.
    """
    low, high = arms.amin(0), arms.amax(0)
    return (arms - low) / torch.where(high > low, high - low, 1.0)


def _kernel(inputs: Tensor, others: Tensor) -> Tensor:
    """Return the squared exponential kernel exp(−½‖x − x′‖²) for each x of n and each x′ of m points, (n, m).

    ``inputs`` (n, d_x) and ``others`` (m, d_x) are the points, each of the d_x features divided by its length scale.
    """
    square = inputs.square().sum(-1, keepdim=True) + others.square().sum(-1) - 2 * inputs @ others.mT
    return square.clamp(min=0).div(-2).exp()


def squared_exponential(
    arms: Tensor, seen: Observed, site: Tensor | None = None, units: tuple[Tensor, Tensor] | None = None
) -> ProcessFit:
    """Return the posterior of a Gaussian process with the squared exponential kernel, whose parameters are fitted.

    The parameters are the length scales of d_x features and, with sites, the length scale of the sites and the variance
    of their levels. They are at the mode of their posterior.

    Args:
        arms: The K arms in the unit cube, or the arm of each of K cells (pairs of a site and an arm), (K, d_x).
        seen: The n ≥ 1 arms or cells that were pulled, with their mean rewards and the variances of these mean rewards.
        site: The number of the site of each cell, (K,) int64; None if the points are arms.
        units: The centre c₀ and the spread s by which the mean rewards are standardised as (means − c₀)/s, () each.
            None means the mean and the standard deviation of the n mean rewards, of which two must then differ.

    Returns:
        The posterior on all K arms or cells, in the unit of the mean rewards in ``seen``.

    Raises:
        ImportError: SciPy is missing.
        RuntimeError: The covariance of the mean rewards is not positive definite, for instance because ``units`` is
            None and n is 1. Equal mean rewards are refused only if their standard deviation is exactly 0, which
            rounding can prevent; the caller has to exclude them (`Observed.alike`).
    """
    centre, scale = units or (seen.means.mean(), seen.means.std())
    values, noise = (seen.means - centre) / scale, seen.variances / scale**2
    parameters = _mode(arms[seen.at], values, noise, None if site is None else site[seen.at])
    prior = PriorCovariance.of(arms, site, parameters)
    pulled = prior.at(seen.at)
    factor = torch.linalg.cholesky(pulled.covariance(pulled) + noise.diag())
    half = torch.linalg.solve_triangular(factor, pulled.covariance(prior), upper=False)
    both = torch.stack([values, torch.ones_like(values)], -1)
    white = torch.linalg.solve_triangular(factor, both, upper=False)
    constant = (white[:, 0] @ white[:, 1]) / white[:, 1].square().sum()
    mean = constant + half.mT @ (white[:, 0] - constant * white[:, 1])
    variance = (1 + prior.level - half.square().sum(0)).clamp(min=0)
    return ProcessFit(centre + scale * mean, scale**2 * variance, prior, half, scale.item(), parameters)


def _mode(points: Tensor, values: Tensor, noise: Tensor, site: Tensor | None) -> Tensor:
    """Return the parameters of the Gaussian process at the mode of their posterior within bounds, found by L-BFGS-B.

    The mode is that of the density of the length scales ℓ_j of the features themselves, as in BoTorch. With sites it is
    also that of ln ℓ of their length scale and ln v of the variance of their levels. The bounds are 0.025 and e¹² for
    ℓ_j, −2 and 6 for ln ℓ, and −12 and 5 for ln v. The search begins at the mode of the prior density, or at the
    nearest point within the bounds.

    Args:
        points: The n pulled arms, or the arms of the n pulled cells (pairs of a site and an arm), in the unit cube,
            (n, d_x).
        values: Their standardised mean rewards, (n,).
        noise: The variances of the ``values``, (n,).
        site: The number of the site of each pulled cell, (n,) int64; None if the points are arms.

    Returns:
        The logarithms of the length scales of the features, (d_x,). With sites, ln ℓ of the sites' length scale and ln
        v of the variance of their levels follow, (d_x + 2,).

    Raises:
        ImportError: SciPy is missing.
        RuntimeError: At some point of the search the covariance of the ``values`` is not positive definite.
    """
    with extra("study"):
        from scipy.optimize import minimize

    features = points.shape[1]
    middle = _PRIOR_MEAN + math.log(features) / 2
    # the prior is a density of ℓ_j; the logarithm of its mode is the mean of ln ℓ_j less the variance
    begin = max(middle - _PRIOR_VARIANCE, math.log(_SHORTEST))
    each = [(middle, _PRIOR_VARIANCE, begin, (math.log(_SHORTEST), 12.0))] * features
    if site is not None:
        each += _SITES
    means, variances, start, bounds = zip(*each, strict=True)
    centres, spreads = points.new_tensor(means), points.new_tensor(variances)

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """Return −ln of the posterior density, up to a constant, and its gradient by the ``parameters`` in their shape.

        The density is that of the length scales ℓ_j of the features and, with sites, of ln ℓ of their length scale and
        ln v of the variance of their levels. The ``parameters`` are ln ℓ_j of each feature j, then ln ℓ and ln v.
        """
        at = torch.from_numpy(parameters)
        value, gradient = evidence(points, values, noise, site, at)
        away = (at - centres) / spreads
        value = value + at[:features].sum() + (away * (at - centres)).sum() / 2
        gradient[:features] += 1
        return value.item(), (gradient + away).numpy()

    return torch.from_numpy(minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x)


def evidence(
    points: Tensor, values: Tensor, noise: Tensor, site: Tensor | None, parameters: Tensor
) -> tuple[Tensor, Tensor]:
    """Return −ln of the density of the ``values``, up to a constant, and its gradient by the ``parameters``.

    The density is that of a Gaussian process with the covariance `PriorCovariance`, a squared exponential, plus the
    ``noise``. Its mean c is the number for which the density is largest.

    Args:
        points: The n pulled arms, or the arms of the n pulled cells (pairs of a site and an arm), in the unit cube,
            (n, d_x).
        values: Their standardised mean rewards, (n,).
        noise: The variances of the ``values``, (n,).
        site: The number of the site of each pulled cell, (n,) int64; None if the points are arms.
        parameters: The logarithms of the length scales ℓ_j of the features, (d_x,). With sites, ln ℓ of the sites'
            length scale and ln v of the variance of their levels follow, (d_x + 2,).

    Returns:
        The value, (), and its derivatives by the ``parameters``, in their shape.

    Raises:
        RuntimeError: The covariance of the ``values`` is not positive definite.
    """
    prior = PriorCovariance.of(points, site, parameters)
    covariance = prior.covariance(prior)
    factor = torch.linalg.cholesky(covariance + noise.diag())
    inverse = torch.cholesky_inverse(factor)
    ones = inverse.sum(-1)
    residual = values - (ones @ values) / ones.sum()
    weights = inverse @ residual
    # With the covariance C of the n points and A = C + noise, each derivative is Σ_ab W_ab ∂C_ab. Here W is
    # ½(A⁻¹ − αα′) with α = A⁻¹·residual, and for ln ℓ_j it is ∂C_ab = k_ab (x_aj − x_bj)²/ℓ_j².
    slope, inputs, by_site = inverse - weights.outer(weights), prior.inputs, points.new_zeros(0)
    if site is not None:
        same = site.unsqueeze(-1) == site
        covariance = covariance - prior.level * same
        by_category = torch.where(same, 0.0, slope * covariance).sum() * (-2 * parameters[-2]).exp()
        by_level = torch.where(same, slope, 0.0).sum() * prior.level / 2
        by_site = torch.stack([by_category, by_level])
    weight = slope * covariance / 2
    by_feature = 2 * (weight.sum(-1) @ inputs.square() - (inputs * (weight @ inputs)).sum(0))
    value = residual @ weights / 2 + factor.diagonal().log().sum()
    return value, torch.cat([by_feature, by_site])


class Warp(NamedTuple):
    """A transformation of rewards y, the power of Yeo and Johnson, that makes skewed rewards more like a normal sample.

    With z = (y − ``centre``)/``spread`` and p = ``power``, the warp of y is ((1 + z)^p − 1)/p if z ≥ 0, and
    −((1 − z)^(2 − p) − 1)/(2 − p) if z < 0. With p = 1 it is z. With p < 1 it brings large rewards nearer to the
    centre. Where an exponent is 0, the logarithms ln(1 + z) and −ln(1 − z) take the place of the powers.

    Args:
        centre: The reward whose warp is 0.
        spread: The unit in which z measures rewards.
        power: The power p. The warp and its inverse use it rounded to float32, the slope unrounded.
    """

    centre: float
    spread: float
    power: float

    @classmethod
    def likeliest(cls, means: Tensor, variances: Tensor) -> "Warp":
        """Return the warp under which the ``means`` are most likely a normal sample, with its power p shrunk towards 1.

        Of 49 equally spaced powers from −2 to 4, p̂ is the one with the largest product of two densities: that of the
        ``means`` if their warp is a normal sample with the likeliest mean and variance, and that of the power by the
        prior N(1, 1). The warp has p = 1 + (p̂ − 1)(1 − r), where r is the mean of ``variances`` divided by the
        variance of ``means``, at most 1.

        Args:
            means: The mean rewards of n arms, (n,), of which two at least differ.
            variances: The variance of the noise in each of these mean rewards, (n,).

        Returns:
            The warp with power p, and with the mean and the standard deviation (with the divisor n − 1) of ``means`` as
            ``centre`` and ``spread``.

        Raises:
            ZeroDivisionError: n is 2 or more, and all ``means`` are equal.
        """
        centre, spread = means.mean().item(), means.std().item()
        z = (means - centre) / spread
        slope = (_POWERS - 1) * (z.sign() * z.abs().log1p()).sum()
        density = slope - len(z) / 2 * _power(z, _POWERS.unsqueeze(-1)).var(-1, correction=0).log()
        power = _POWERS[(density - (_POWERS - 1).square() / 2).argmax()].item()
        noise = min(variances.mean().item() / spread**2, 1.0)
        return cls(centre, spread, 1 + (power - 1) * (1 - noise))

    def __call__(self, rewards: Tensor) -> Tensor:
        """Return the warp of each of the ``rewards`` in their shape, a power transformation whose value has no unit."""
        # all stored tables were made with a power that is rounded to float32
        return _power((rewards - self.centre) / self.spread, torch.tensor(self.power, dtype=torch.float32))

    def slope(self, rewards: Tensor) -> Tensor:
        """Return the derivative of the warp, a power transformation, at each of the ``rewards``, in their shape.

        Its unit is one divided by that of the rewards.
        """
        z = (rewards - self.centre) / self.spread
        return ((self.power - 1) * z.sign() * z.abs().log1p()).exp() / self.spread

    def inverse(self, warped: Tensor) -> Tensor:
        """Return the rewards whose warp, a power transformation, is ``warped``, in its shape.

        Where no reward has this warp, the result is ∞ or −∞.
        """
        powers = torch.tensor([2 - self.power, self.power], dtype=torch.float32)  # rounded as in the warp
        power = powers[(warped >= 0).long()]
        flat, size = power.abs() < 1e-9, warped.abs()
        logs = torch.where(flat, size, (power * size).clamp(min=-1).log1p() / torch.where(flat, 1.0, power))
        return self.centre + self.spread * warped.sign() * torch.expm1(logs)


def _power(z: Tensor, power: Tensor) -> Tensor:
    """Return the transformation of Yeo and Johnson of ``z`` with ``power``, in the shape to which both broadcast.

    It is that of a `Warp` with the centre 0, the spread 1 and the same power.
    """
    power = torch.where(z >= 0, power, 2 - power)
    size, flat = z.abs().log1p(), power.abs() < 1e-9
    return z.sign() * torch.where(flat, size, torch.expm1(power * size) / torch.where(flat, 1.0, power))


def warped_posterior(points: Tensor, seen: Observed, pooled: Observed, site: Tensor | None) -> ProcessFit:
    """Return the posterior of a Gaussian process that is fitted to warped mean rewards, in the unit of the rewards.

    The warp is a power transformation that makes skewed rewards more like a normal sample. The process has the squared
    exponential kernel, and with sites a share of the variance that belongs to one site alone and a level of each site.

    Args:
        points: The K arms in the unit cube, or the arm of each of K cells (pairs of a site and an arm), (K, d_x) for
            d_x features.
        seen: The arms or cells that were pulled, with their mean rewards and the variances of these.
        pooled: The arms that were pulled at any site, with their mean rewards over all sites together and the variances
            of these. The warp is the likeliest one for these mean rewards, of which two at least differ. Without sites
            this is ``seen``.
        site: If the K points are cells, the number of the site of each, (K,) int64; else None.

    Raises:
        ImportError: SciPy is missing.
        RuntimeError: The covariance of the warped mean rewards is not positive definite.
        ZeroDivisionError: All mean rewards in ``pooled`` are equal, and there are two or more.
    """
    warp = Warp.likeliest(pooled.means, pooled.variances)
    middle, values = warp(pooled.means), warp(seen.means)
    warped_means = Observed(seen.at, values, seen.variances * warp.slope(seen.means).square())
    fit = squared_exponential(points, warped_means, site, (middle.mean(), middle.std()))
    leader = fit.mean[seen.at].argmax()
    reward, slope = seen.means[leader].item(), warp.slope(seen.means[leader]).item()
    mean, variance = reward + (fit.mean - values[leader].item()) / slope, fit.variance / slope**2
    warped = Warped(warp, fit.mean, fit.variance)
    return fit._replace(mean=mean, variance=variance, slope=slope, warped=warped)
