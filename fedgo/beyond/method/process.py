"""A Gaussian process with the squared exponential kernel and a misfit, and a warp of rewards that are skewed.

    means_x = f_x + ε_x,   f_x = c + g(x) + h_x,   g ~ GP(0, s²·a·k),   h_x ~ N(0, s²·a·w),   ε_x ~ N(0, σ²/n_x)
    k(x, x′) = exp(−½ Σ_j (x_j − x′_j)²/ℓ_j²)

means_x is the mean of the n_x rewards of arm x, c a constant, s the standard deviation of the pulled arms' means, and σ
that of one reward's noise. ℓ_j is the length scale of feature j; features of one group share theirs, as the columns of
0 and 1 of one category do. h_x is the misfit of arm x: the part of its mean reward that no smooth function of the
features explains, so that only pulls of x tell it. a is the output scale, which is 1 unless it is fitted: a search
pulls arms that are alike, whose spread s says little about the other arms. The priors are, with their variances,

    ln ℓ_j ~ N(√2 + ½ ln d_x, 3) for d_x features,   ln w ~ N(ln 0.05, 4),   ln a ~ N(0, 1),
    ln(σ²/s²) ~ N(−4, 1) if σ is not known.

The prior of ℓ (Hvarfner, Hellsten and Nardi, ICML 2024, https://arxiv.org/abs/2402.02229) and that of σ are those of
BoTorch's SingleTaskGP, and with w = 0 so is the model. Here the gradient is in closed form, a fit takes a tenth of the
time, and single columns of the posterior covariance can be computed. The warp is the power of Yeo and Johnson
(Biometrika 2000, https://doi.org/10.1093/biomet/87.4.954).

If the rewards of several sites differ, each x is a cell, the pair of a site and an arm, and the covariance of x at site
i with x′ at site i′ is

    (k(x, x′) + w·1{x=x′})·[(1 − ρ) + ρ·1{i=i′}] + v·1{i=i′},   ρ = 1 − exp(−1/ℓ²),   ln ℓ ~ N(1, 1),   ln v ~ N(−3, 4),

in units of s²·a. ρ is the share of the variance that belongs to one site alone, as if the site were a categorical input
with the length scale ℓ, and v the variance of the level of a site. This kernel is among those of CGP-UCB (Krause and
Ong, NeurIPS 2011).

The parameters θ are ln ℓ of each group, then with sites ln ℓ and ln v, then ln w, then ln a if it is fitted, and last
ln(σ²/s²) if σ is not known. There are K points, arms or cells, in d_x features, of which n were observed.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedgo._checks import extra
from fedgo._streams import generator
from fedgo.beyond.method.surrogates import Observed, Replicates

# the mean (without ½ ln d_x) and the variance of the prior of ln ℓ_j, and the smallest ℓ_j that a fit may have
_PRIOR_MEAN, _PRIOR_VARIANCE, _SHORTEST = math.sqrt(2), 3.0, 0.025
# for ln ℓ and ln v of the sites: the mean and the variance of the prior; start, least and largest value of the search
_SITES = [(1.0, 1.0, 1.0, -2.0, 6.0), (-3.0, 4.0, -3.0, -12.0, 5.0)]
# for ln w, for ln a and for ln(σ²/s²) likewise
_MISFIT = (math.log(0.05), 4.0, math.log(0.05), -12.0, 2.0)
_OUTPUTSCALE = (0.0, 1.0, 0.0, -3.0, 4.0)
_NOISE = (-4.0, 1.0, -5.0, -14.0, 2.0)
_NO_MISFIT = (-700.0, 1.0, -700.0, -700.0, -700.0)
# the draws of θ from Laplace's approximation, the step of a difference, and the smallest precision
_DRAWS, _STEP, _LEAST = 16, 0.05, 0.25
# the powers among which the warp is chosen
_POWERS = torch.linspace(-2, 4, 49, dtype=torch.float64, device="cpu")


class PriorCovariance(NamedTuple):
    """The prior covariance of n points in units of s².

    Args:
        inputs: The points, each feature divided by its length scale, (n, d_x).
        arm: The number of the arm of each point, (n,) int64, or −1 if its misfit is left out.
        misfit: w, ().
        site: The number of the site of each cell, (n,) int64; None if the points are arms.
        own: ρ, (); 0 if the points are arms.
        level: v, (); 0 if the points are arms.
        outputscale: a, ().
    """

    inputs: Tensor
    arm: Tensor
    misfit: Tensor
    site: Tensor | None
    own: Tensor
    level: Tensor
    outputscale: Tensor

    @classmethod
    def of(
        cls,
        points: Tensor,
        arm: Tensor,
        site: Tensor | None,
        groups: Tensor,
        parameters: Tensor,
        fits_outputscale: bool,
    ) -> "PriorCovariance":
        """Return the prior covariance of the ``points`` (n, d_x) under the parameters θ."""
        inputs, others = points / parameters[groups].exp(), parameters[int(groups.max()) + 1 :]
        own = level = parameters.new_zeros(())
        if site is not None:
            own, level, others = -torch.expm1(-torch.exp(-2 * others[0])), others[1].exp(), others[2:]
        outputscale = others[1].exp() if fits_outputscale else torch.ones_like(level)
        return cls(inputs, arm, others[0].exp(), site, own, level, outputscale)

    def at(self, places: Tensor) -> "PriorCovariance":
        """Return the prior covariance of only those m of the points that have the numbers ``places`` (m,) int64."""
        site = None if self.site is None else self.site[places]
        return self._replace(inputs=self.inputs[places], arm=self.arm[places], site=site)

    def covariance(self, other: "PriorCovariance") -> Tensor:
        """Return the prior covariance of each of the n points with each of the m points of ``other``, (n, m)."""
        own = self.arm.unsqueeze(-1)
        covariance = _kernel(self.inputs, other.inputs) + self.misfit * ((own == other.arm) & (own >= 0))
        if self.site is not None and other.site is not None:
            same = self.site.unsqueeze(-1) == other.site
            covariance = torch.where(same, covariance + self.level, covariance * (1 - self.own))
        return self.outputscale * covariance


class Warped(NamedTuple):
    """The posterior of K warped mean rewards, from which intervals of the mean rewards themselves are computed.

    Args:
        warp: The warp of the rewards.
        mean: The posterior mean of each warped mean reward, (K,).
        variance: The posterior variance of each warped mean reward, its misfit included, (K,).
    """

    warp: "Warp"
    mean: Tensor
    variance: Tensor

    def interval(self, kappa: Tensor) -> Tensor:
        """Return the estimate and the ends of the interval of each mean reward, (3, K), in the unit of the rewards.

        They are the inverse of the warp at m, m − κ√v and m + κ√v, infinite where no reward has that warp.

        Args:
            kappa: The half-width κ of the interval in standard deviations, (K,) or ().
        """
        half = kappa * self.variance.clamp(min=0).sqrt()
        return self.warp.inverse(torch.stack([self.mean, self.mean - half, self.mean + half]))


class ProcessFit(NamedTuple):
    """The posterior of the mean rewards of K arms or cells.

    Means, variances and columns leave out the misfit of an arm without a reward, because no other arm can tell it;
    ``misfit`` has its variance. If the rewards were warped, the warp is replaced by its tangent at the leader, the
    pulled point with the largest posterior mean: a posterior mean m of the warped rewards becomes r + (m − w)/``slope``
    with the leader's mean reward r and its warp w.

    Args:
        mean: The posterior means, (K,), in the unit of the rewards.
        variance: The posterior variances, (K,), in that unit squared.
        misfit: The variance of the misfit that ``variance`` leaves out, (K,), in that unit squared.
        prior: The prior covariance Q of the K points.
        half: H = L⁻¹C, (n, K), with the prior covariance C (n, K) of the observed points with all, and the Cholesky
            factor L of the covariance of the n mean rewards, noise included. The posterior covariance is
            s²(Q − HᵀH)/``slope``².
        scale: The spread s by which the (warped) mean rewards were standardised.
        parameters: The parameters θ at the mode of their posterior.
        sigma: The standard deviation σ of one reward's noise, as told or as estimated.
        slope: The derivative of the warp at the leader's mean reward; 1 without a warp.
        warped: The posterior of the warped mean rewards; None without a warp.
        redraw: Returns the posteriors under 16 values of θ `around` the mode, computed once; None with a warp.
    """

    mean: Tensor
    variance: Tensor
    misfit: Tensor
    prior: PriorCovariance
    half: Tensor
    scale: float
    parameters: Tensor
    sigma: float
    slope: float = 1.0
    warped: Warped | None = None
    redraw: Callable[[], tuple["ProcessFit", ...]] | None = None

    def columns(self, arm: Tensor, among: Tensor) -> Tensor:
        """Return the posterior covariance of each of A points with each of C points, (A, C)."""
        prior = self.prior.at(arm).covariance(self.prior.at(among))
        return self.scale**2 * (prior - self.half[:, arm].mT @ self.half[:, among]) / self.slope**2


def in_cube(arms: Tensor) -> Tensor:
    """Return the ``arms`` (K, d_x) with each feature scaled to [0, 1]; one that is the same for all arms becomes 0."""
    low, high = arms.amin(0), arms.amax(0)
    return (arms - low) / torch.where(high > low, high - low, 1.0)


def _kernel(inputs: Tensor, others: Tensor) -> Tensor:
    """Return exp(−½‖x − x′‖²) for each of n ``inputs`` and each of m ``others``, already divided by the length
    scales.
    """
    square = inputs.square().sum(-1, keepdim=True) + others.square().sum(-1) - 2 * inputs @ others.mT
    return square.clamp(min=0).div(-2).exp()


def squared_exponential(
    points: Tensor,
    seen: Observed,
    site: Tensor | None = None,
    units: tuple[Tensor, Tensor] | None = None,
    groups: tuple[int, ...] | None = None,
    misfit: bool = True,
    outputscale: bool = False,
) -> ProcessFit:
    """Return the posterior of a Gaussian process whose parameters θ are at the mode of their posterior.

    Args:
        points: The K points in the unit cube, (K, d_x); of cells, the features of the cell's arm.
        seen: The n points that were pulled, with their mean rewards, of which two differ unless ``units`` are given.
        site: The number of the site of each cell, (K,) int64, in ascending order; None if the points are arms.
        units: The centre c₀ and the spread s by which the mean rewards are standardised as (means − c₀)/s, () each.
            None means the mean and the standard deviation of the n mean rewards.
        groups: The number of the group of each feature, (d_x,), from 0; None means a group for each.
        misfit: Whether the model has a misfit; if not, w is 0.
        outputscale: Whether a is fitted; if not, it is 1.
    """
    centre, scale = units or (seen.means.mean(), seen.means.std())
    number = torch.arange(points.shape[1]) if groups is None else torch.tensor(groups)
    arms = len(points) if site is None else len(points) // (int(site[-1]) + 1)
    arm = torch.arange(len(points)) % arms
    values, square = (seen.means - centre) / scale, scale.item() ** 2
    place = None if site is None else site[seen.at]
    if isinstance(seen.sigma, Replicates):
        within = seen.sigma.degrees, seen.sigma.squares / square
        noise = seen.variances
    else:
        within, noise = None, seen.variances / square
    data = Data(points[seen.at], arm[seen.at], values, noise, place, number, within, outputscale)
    told = torch.isin(arm, arm[seen.at])

    def given(parameters: Tensor) -> ProcessFit:
        """Return the posterior under the ``parameters`` θ."""
        prior = PriorCovariance.of(points, arm.where(told, -1), site, number, parameters, outputscale)
        pulled = prior.at(seen.at)
        factor = torch.linalg.cholesky(pulled.covariance(pulled) + data.noise(parameters).diag())
        half = torch.linalg.solve_triangular(factor, pulled.covariance(prior), upper=False)
        both = torch.stack([values, torch.ones_like(values)], -1)
        white = torch.linalg.solve_triangular(factor, both, upper=False)
        constant = (white[:, 0] @ white[:, 1]) / white[:, 1].square().sum()
        mean = constant + half.mT @ (white[:, 0] - constant * white[:, 1])
        before = prior.outputscale * (1 + prior.misfit * told + prior.level)
        variance = (before - half.square().sum(0)).clamp(min=0)
        left_out = scale**2 * prior.misfit * ~told * prior.outputscale
        sigma = seen.sigma
        if isinstance(sigma, Replicates):
            sigma = (scale * (parameters[-1] / 2).exp()).item()
        return ProcessFit(
            centre + scale * mean, scale**2 * variance, left_out, prior, half, scale.item(), parameters, sigma
        )

    at_mode = mode(data, misfit)
    return given(at_mode)._replace(
        redraw=cache(lambda: tuple(given(parameters) for parameters in around(data, at_mode, misfit)))
    )


class Data(NamedTuple):
    """The n observed points, their arms, standardised means, noise variances (shares 1/n_x of σ² if σ is not known) and
    sites, the groups of the features, the degrees of freedom and sum of squares within the arms if σ is not known, and
    whether the output scale is fitted.
    """

    points: Tensor
    arm: Tensor
    values: Tensor
    shares: Tensor
    site: Tensor | None
    groups: Tensor
    within: tuple[int, float] | None
    outputscale: bool = False

    def noise(self, parameters: Tensor) -> Tensor:
        """Return the variance of the noise of each mean reward under the parameters θ, (n,)."""
        return self.shares if self.within is None else self.shares * parameters[-1].exp()


def _limits(data: Data, misfit: bool) -> Tensor:
    """Return the mean and the variance of the prior of each of the P parameters θ, and the start, the smallest and the
    largest value of the search for the mode, (5, P).
    """
    scales = int(data.groups.max()) + 1
    middle = _PRIOR_MEAN + math.log(len(data.groups)) / 2
    # the prior is a density of ℓ_j; the logarithm of its mode is the mean of ln ℓ_j less the variance
    begin = max(middle - _PRIOR_VARIANCE, math.log(_SHORTEST))
    each = [(middle, _PRIOR_VARIANCE, begin, math.log(_SHORTEST), 12.0)] * scales
    each += _SITES * (data.site is not None) + [_MISFIT if misfit else _NO_MISFIT]
    each += [_OUTPUTSCALE] * data.outputscale
    each += [_NOISE] * (data.within is not None)
    return torch.tensor(each, dtype=torch.float64).mT


def mode(data: Data, misfit: bool = True) -> Tensor:
    """Return the parameters θ at the mode of their posterior within bounds, found by L-BFGS-B.

    The mode is that of the density of the length scales ℓ_j themselves, as in BoTorch, and of the logarithms of the
    other parameters.
    """
    with extra("study"):
        from scipy.optimize import minimize

    scales = int(data.groups.max()) + 1
    centres, spreads, start, *bounds = _limits(data, misfit)

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """Return −ln of the posterior density, up to a constant, and its gradient."""
        at = torch.from_numpy(parameters)
        value, gradient = evidence(data, at)
        away = (at - centres) / spreads
        value = value + at[:scales].sum() + (away * (at - centres)).sum() / 2
        gradient[:scales] += 1
        return value.item(), (gradient + away).numpy()

    limits = list(zip(*(bound.tolist() for bound in bounds), strict=True))
    return torch.from_numpy(minimize(loss, start.numpy(), jac=True, method="L-BFGS-B", bounds=limits).x)


def around(data: Data, parameters: Tensor, misfit: bool = True) -> Tensor:
    """Return 16 values of θ drawn from Laplace's approximation around the mode ``parameters``, within bounds, (16, P).

    The precision is the curvature of −ln of the posterior density, from differences of its gradient, with the smallest
    of 0, ¼, ½, 1, … added to its diagonal that makes each of its eigenvalues at least ¼, the precision of the widest
    prior.
    """
    _, spreads, _, low, high = _limits(data, misfit)
    one = torch.eye(len(parameters), dtype=torch.float64)
    ends = [[evidence(data, parameters + step * axis)[1] for axis in one] for step in (_STEP, -_STEP)]
    curvature = (torch.stack(ends[0]) - torch.stack(ends[1])) / (2 * _STEP) + (1 / spreads).diag()
    curvature = (curvature + curvature.mT) / 2
    added = 0.0
    while torch.linalg.cholesky_ex(curvature + (added - _LEAST) * one).info:
        added = max(2 * added, _LEAST)
    factor = torch.linalg.cholesky(curvature + added * one)
    half = torch.randn(_DRAWS // 2, len(one), generator=generator(0, 0, "parameters"), dtype=torch.float64)
    drawn = torch.linalg.solve_triangular(factor.mT, torch.cat([half, -half]).mT, upper=True).mT
    values: Tensor = (parameters + drawn).clamp(low, high)
    return values


def evidence(data: Data, parameters: Tensor) -> tuple[Tensor, Tensor]:
    """Return −ln of the density of the values and replicates, up to a constant, and its gradient by the parameters θ.

    The mean c is the number for which the density is largest.
    """
    points, arm, values, _, site, groups, within, outputscale = data
    prior = PriorCovariance.of(points, arm, site, groups, parameters, outputscale)
    covariance, noise = prior.covariance(prior), data.noise(parameters)
    factor = torch.linalg.cholesky(covariance + noise.diag())
    inverse = torch.cholesky_inverse(factor)
    ones = inverse.sum(-1)
    residual = values - (ones @ values) / ones.sum()
    weights = inverse @ residual
    value = residual @ weights / 2 + factor.diagonal().log().sum()
    # With the covariance C of the n points and A = C + noise, each derivative is Σ_ab W_ab ∂C_ab. Here W is
    # ½(A⁻¹ − αα′) with α = A⁻¹·residual, and for ln ℓ_j it is ∂C_ab = k_ab (x_aj − x_bj)²/ℓ_j².
    by_covariance, inputs, others = inverse - weights.outer(weights), prior.inputs, []
    # from here on both are in units of s²·a
    slope, covariance = prior.outputscale * by_covariance, covariance / prior.outputscale
    by_outputscale = [(slope * covariance).sum() / 2] if outputscale else []
    shared: Tensor = (arm.unsqueeze(-1) == arm).double()
    if site is not None:
        same = site.unsqueeze(-1) == site
        covariance = covariance - prior.level * same
        category = parameters[int(groups.max()) + 1]
        by_category = torch.where(same, 0.0, slope * covariance).sum() * (-2 * category).exp()
        others += [by_category, torch.where(same, slope, 0.0).sum() * prior.level / 2]
        shared = shared * torch.where(same, 1.0, 1 - prior.own)
    others.append((slope * shared).sum() * prior.misfit / 2)
    others += by_outputscale
    if within is not None:
        degrees, squares = within
        rest = squares * (-parameters[-1]).exp()
        value = value + (degrees * parameters[-1] + rest) / 2
        others.append(((by_covariance.diagonal() * noise).sum() + degrees - rest) / 2)
    weight = slope * (covariance - prior.misfit * shared) / 2
    by_feature = 2 * (weight.sum(-1) @ inputs.square() - (inputs * (weight @ inputs)).sum(0))
    by_scale = values.new_zeros(int(groups.max()) + 1).index_add(0, groups, by_feature)
    return value, torch.cat([by_scale, torch.stack(others)])


class Warp(NamedTuple):
    """A power of Yeo and Johnson, which makes skewed rewards y more like a normal sample.

    With z = (y − ``centre``)/``spread`` and p = ``power``, the warp is ((1 + z)^p − 1)/p if z ≥ 0, and −((1 − z)^(2 −
    p) − 1)/(2 − p) if z < 0; a logarithm takes the place of a power with the exponent 0.

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
        """Return the warp under which ``means`` (n,), of which two differ, are most likely a normal sample.

        Of 49 powers from −2 to 4 it takes the one with the largest likelihood times N(1, 1), and draws it towards 1 by
        the share of the ``variances`` of these means in their spread.
        """
        centre, spread = means.mean().item(), means.std().item()
        z = (means - centre) / spread
        slope = (_POWERS - 1) * (z.sign() * z.abs().log1p()).sum()
        density = slope - len(z) / 2 * _power(z, _POWERS.unsqueeze(-1)).var(-1, correction=0).log()
        power = _POWERS[(density - (_POWERS - 1).square() / 2).argmax()].item()
        noise = min(variances.mean().item() / spread**2, 1.0)
        return cls(centre, spread, 1 + (power - 1) * (1 - noise))

    def __call__(self, rewards: Tensor) -> Tensor:
        """Return the warp of each reward."""
        # all stored tables were made with a power that is rounded to float32
        return _power((rewards - self.centre) / self.spread, torch.tensor(self.power, dtype=torch.float32))

    def slope(self, rewards: Tensor) -> Tensor:
        """Return the derivative of the warp at each reward."""
        z = (rewards - self.centre) / self.spread
        return ((self.power - 1) * z.sign() * z.abs().log1p()).exp() / self.spread

    def inverse(self, warped: Tensor) -> Tensor:
        """Return the rewards whose warp is ``warped``, ∞ or −∞ where none has it."""
        powers = torch.tensor([2 - self.power, self.power], dtype=torch.float32)  # rounded as in the warp
        power = powers[(warped >= 0).long()]
        flat, size = power.abs() < 1e-9, warped.abs()
        logs = torch.where(flat, size, (power * size).clamp(min=-1).log1p() / torch.where(flat, 1.0, power))
        return self.centre + self.spread * warped.sign() * torch.expm1(logs)


def _power(z: Tensor, power: Tensor) -> Tensor:
    """Return the warp of ``z`` with centre 0, spread 1 and ``power``."""
    power = torch.where(z >= 0, power, 2 - power)
    size, flat = z.abs().log1p(), power.abs() < 1e-9
    return z.sign() * torch.where(flat, size, torch.expm1(power * size) / torch.where(flat, 1.0, power))


def warped_posterior(
    points: Tensor,
    seen: Observed,
    pooled: Observed,
    site: Tensor | None,
    groups: tuple[int, ...] | None = None,
    misfit: bool = True,
    outputscale: bool = False,
) -> ProcessFit:
    """Return the posterior of a Gaussian process that is fitted to warped mean rewards, in the unit of the rewards.

    Args:
        points: The K points in the unit cube, (K, d_x).
        seen: The points that were pulled, with their mean rewards and the variances of these.
        pooled: The same for the arms over all sites together, for whose mean rewards, of which two at least differ, the
            warp is the likeliest; without sites ``seen``.
        site: The number of the site of each cell, (K,) int64; None if the points are arms.
        groups: The number of the group of each feature, (d_x,); None means a group for each.
        misfit: Whether the model has a misfit; if not, w is 0.
        outputscale: Whether a is fitted; if not, it is 1.
    """
    told, unit, noise = seen.sigma, 1.0, pooled.variances
    if isinstance(told, Replicates):  # the fit finds σ in units of the warp's spread
        noise = noise * told.squares / max(told.degrees, 1)
    warp = Warp.likeliest(pooled.means, noise)
    if isinstance(told, Replicates):
        unit, told = warp.spread, told._replace(squares=told.squares / warp.spread**2)
    middle, values = warp(pooled.means), warp(seen.means)
    variances = seen.variances * (unit * warp.slope(seen.means)).square()
    data, units = Observed(seen.at, values, variances, told), (middle.mean(), middle.std())
    fit = squared_exponential(points, data, site, units, groups, misfit, outputscale)
    leader = fit.mean[seen.at].argmax()
    reward, slope = seen.means[leader].item(), warp.slope(seen.means[leader]).item()
    mean, square = reward + (fit.mean - values[leader].item()) / slope, slope**2
    warped = Warped(warp, fit.mean, fit.variance + fit.misfit)
    return fit._replace(
        mean=mean, variance=fit.variance / square, misfit=fit.misfit / square, sigma=fit.sigma * unit,
        slope=slope, warped=warped, redraw=None,
    )  # fmt: skip
