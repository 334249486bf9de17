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
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from fedgo._checks import count, extra, number, require, require_each, require_kind
from fedgo.beyond.process import InUnits, Warp, squared_exponential
from fedgo.confidence import Tally
from fedgo.network import Network, Parametric
from fedgo.phase_one import Start

_STEPS, _SETTLE = 40, 4  # Gauss–Newton steps of a fit, and those between two updates of the weight decay
_SHARES = (0.0, 0.03, 0.1, 0.25, 0.5, 1.0)  # of the way to the mean of the linearised posterior
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


def single_task_gp(points: Tensor, means: Tensor, variances: Tensor) -> Any:
    """BoTorch's SingleTaskGP with the means' own noise, hyperparameters by their posterior mode.

    Of ``points`` (n, d_x), ``means`` (n,) and ``variances`` (n,).
    """
    with extra("study"):
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from botorch.models.transforms import Standardize
        from gpytorch.mlls import ExactMarginalLogLikelihood

    columns = means.unsqueeze(-1), variances.unsqueeze(-1)
    model = SingleTaskGP(points, *columns, outcome_transform=Standardize(1))
    with torch.random.fork_rng():  # a fit that fails is begun again elsewhere, at random
        torch.manual_seed(0)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model.eval()


class FittedModel(NamedTuple):
    """What a fitted BoTorch ``model`` says of the ``arms`` (K, d_x) of its cube: ``mean`` and ``variance``, (K,)."""

    model: Any
    arms: Tensor
    mean: Tensor
    variance: Tensor

    @classmethod
    def of(cls, model: Any, arms: Tensor) -> "FittedModel":
        """Of the ``model`` at the ``arms``."""
        with torch.no_grad():
            found = model.posterior(arms)
            return cls(model, arms, found.mean.squeeze(-1), found.variance.squeeze(-1))

    def covariance(self, among: Tensor) -> Tensor:
        """As `Fitted` says."""
        with torch.no_grad():
            found: Tensor = self.model.posterior(self.arms[among]).distribution.covariance_matrix
        return found


@dataclass(frozen=True)
class GaussianProcess:
    """A Gaussian process on the cube that holds the arms, `single_task_gp`, refitted each time.

    With ``warp`` it sees rewards drawn in by the power under which they are likeliest normal (`Warp`), and is computed
    in closed form (`squared_exponential`), O(n³ + n²K) a fit, without BoTorch; while all arms that were pulled have one
    mean, as coins may, which has no scale, the arms are independent. Another model of BoTorch is a `Surrogate` whose
    ``fit`` returns `FittedModel.of` it.
    """

    warp: bool = False

    def __post_init__(self) -> None:
        require_kind(isinstance(self.warp, bool), "warp", self.warp, "give True (no BoTorch needed) or False")
        if not self.warp:
            with extra("study"):
                import botorch  # noqa: F401

    def fit(self, arms: Tensor, data: Tally, sigma: float, before: Fitted | None = None) -> Fitted:
        """As `Surrogate` says."""
        if self.warp and observed(data, sigma, least=1).alike:
            return IndependentArms().fit(arms, data, sigma)
        seen = observed(data, sigma)
        low, high = arms.amin(0), arms.amax(0)
        cube = (arms - low) / torch.where(high > low, high - low, 1.0)
        if not self.warp:
            return FittedModel.of(single_task_gp(cube[seen.at], seen.means, seen.variances), cube)
        warp = Warp.likeliest(seen.means, seen.variances)
        warped, variances = warp(seen.means), seen.variances * warp.slope(seen.means).square()
        fit = squared_exponential(cube, seen.at, warped, variances)
        leader = fit.mean[seen.at].argmax()
        reward = seen.means[leader]
        return InUnits(fit, warp, warped[leader].item(), reward.item(), warp.slope(reward).item())


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


class Linear(NamedTuple):
    """N(mean, FFᵀ + τ²I − CᵀC) on the arms: ``features`` F (K, r), ``effect`` τ², ``half`` C (n, K); the network was
    linearised at ``w`` with weight ``decay``, (d_w,)."""

    mean: Tensor
    features: Tensor
    half: Tensor
    effect: float
    w: Tensor
    decay: Tensor

    @classmethod
    def kept(cls, w: Tensor) -> "Linear":
        """Of no arms: all that the next fit needs of this one is ŵ = ``w`` (d_w,), where it begins."""
        none = w.new_zeros(0)
        return cls(none, w.new_zeros(0, 0), w.new_zeros(0, 0), 0.0, w, none)

    @property
    def variance(self) -> Tensor:
        """(K,)."""
        return self.features.square().sum(-1) + self.effect - self.half.square().sum(0)

    def covariance(self, among: Tensor) -> Tensor:
        """As `Fitted` says."""
        return self.columns(among, among)

    def columns(self, arm: Tensor, among: Tensor) -> Tensor:
        """As `ByColumns` says."""
        own = self.effect * (arm.unsqueeze(-1) == among)
        return self.features[arm] @ self.features[among].mT + own - self.half[:, arm].mT @ self.half[:, among]


def linear(
    features: Tensor, prior: Tensor, seen: Observed, effect: float, w: Tensor, decay: Tensor
) -> Linear:
    """N(``prior``, FFᵀ + τ²I) on the arms, given what was ``seen``, from one n × n Cholesky factorisation."""
    cross = features[seen.at] @ features.mT  # (n, K)
    cross[torch.arange(len(seen.at)), seen.at] += effect
    gram = cross[:, seen.at] + seen.variances.diag()
    factor = torch.linalg.cholesky(gram)
    half = torch.linalg.solve_triangular(factor, cross, upper=False)
    residual = (seen.means - prior[seen.at]).unsqueeze(-1)
    mean = prior + (half.mT @ torch.linalg.solve_triangular(factor, residual, upper=False)).squeeze(-1)
    return Linear(mean, features, half, effect, w, decay)


@dataclass(frozen=True)
class LinearisedOnce:
    """The paper's model: w ~ N(ŵ₀, (σ²/λ)I) with ŵ₀ = ``w0`` (d_w,), λ = ``lam``, and f linear in w there for good."""

    network: Parametric
    w0: Tensor
    lam: float = 1.0

    def __post_init__(self) -> None:
        require(self.w0.shape == (self.network.size,), "the shape of w0", tuple(self.w0.shape), "give (d_w,)")
        number("lam", self.lam, "give a positive regularisation weight λ", above=0)

    @classmethod
    def at(cls, start: Start, lam: float = 1.0) -> "tuple[LinearisedOnce, ...]":
        """Around the oracle's ŵ₀ of every run of ``start``."""
        return tuple(cls(start.network, w0, lam) for w0 in start.w0.squeeze(1))

    def fit(self, arms: Tensor, data: Tally, sigma: float, before: Fitted | None = None) -> Linear:
        """As `Surrogate` says."""
        seen, scale = observed(data, sigma, least=0), sigma / self.lam**0.5
        features = self.network.gradients(self.w0, arms) * scale
        decay = torch.full_like(self.w0, self.lam / sigma**2)
        return linear(features, self.network.values(self.w0, arms), seen, 0.0, self.w0, decay)


@dataclass(frozen=True)
class Relinearised:
    """A network fitted to all data and linearised there, each time anew, from ŵ before and ``starts`` random ones.

    Inputs and rewards are standardised. w ~ N(0, diag(α)⁻¹) with one weight decay α for each layer, and every arm has
    an ``effect`` of its own, N(0, τ²), against misfit; α and τ² are where the evidence of the linearised model is
    stationary, and the start of the largest evidence wins.
    """

    network: Parametric
    starts: int = 2
    effect: bool = True

    def __post_init__(self) -> None:
        require_kind(
            hasattr(self.network, "gradients"), "network", self.network, "give a Network, or a class like it"
        )
        count("starts", self.starts, "give the number of random starts, at least 1")

    def fit(self, arms: Tensor, data: Tally, sigma: float, before: Fitted | None = None) -> Linear:
        """As `Surrogate` says."""
        seen = observed(data, sigma)
        spread = arms.std(0, correction=0)
        inputs = (arms - arms.mean(0)) / torch.where(spread > 0, spread, 1.0)
        centre, scale = seen.means.mean(), seen.means.std()
        unit = Observed(seen.at, (seen.means - centre) / scale, seen.variances / scale**2)
        start = self._starts(before)
        w, decay, effect, evidence = self._climb(inputs[seen.at], unit, start)
        best = int(evidence.argmax())
        w, decay, tau = w[best], decay[best], effect[best].item()
        gradients = self.network.gradients(w, inputs)
        prior = self.network.values(w, inputs) - gradients @ w
        found = linear(gradients / decay.sqrt(), prior, unit, tau, w, decay)
        return found._replace(
            mean=centre + scale * found.mean,
            features=found.features * scale,
            half=found.half * scale,
            effect=tau * scale.item() ** 2,
        )

    def _starts(self, before: Fitted | None) -> Tensor:
        """(B, d_w): the ŵ of the fit ``before`` and standard normals of the size of a usual initialisation."""
        source = torch.Generator().manual_seed(0)
        w = torch.randn(self.starts, self.network.size, generator=source, dtype=torch.float64)
        w = w / self.network.d_x**0.5
        return torch.cat([before.w.unsqueeze(0), w]) if isinstance(before, Linear) else w

    def _climb(self, x: Tensor, seen: Observed, w: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """ŵ, α (B, d_w), τ² and the log-evidence (B,) from the starts ``w`` (B, d_w), on the points ``x`` (n, d_x).

        Gauss–Newton: the mean of the linearised posterior is the next ŵ, or a point on the way to it.
        """
        layer = _layers(self.network).expand_as(w)
        decay, effect = torch.ones_like(w), w.new_full((len(w), 1), 0.01 if self.effect else 0.0)
        evidence = effect
        for step in range(1, _STEPS + 1):
            jacobian = self.network.gradients(w, x)
            target = seen.means - self.network.values(w, x) + (jacobian @ w.unsqueeze(-1)).squeeze(-1)
            root = jacobian / decay.sqrt().unsqueeze(-2)
            covariance = root @ root.mT + torch.diag_embed(seen.variances + effect)  # of the means
            factor = torch.linalg.cholesky(covariance)
            half, white = (
                torch.linalg.solve_triangular(factor, part, upper=False)
                for part in (root, target.unsqueeze(-1))
            )
            evidence = -white.square().sum((-2, -1)) / 2 - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            way = (half.mT @ white).squeeze(-1) / decay.sqrt() - w
            trials = w + torch.tensor(_SHARES, dtype=w.dtype).view(-1, 1, 1) * way
            misfit = (seen.means - self.network.values(trials, x)).square() / (seen.variances + effect)
            loss = misfit.sum(-1) + (decay * trials.square()).sum(-1)
            w = trials[loss.argmin(0), torch.arange(len(w))]
            if step % _SETTLE == 0 and step < _STEPS:
                # MacKay: α ← (Σ_j 1 − α(Σ⁻¹)_jj)/Σ_j w_j² in each layer; EM: τ² ← the mean of E e_x²
                parts = torch.stack([half.square().sum(-2), w.square()])
                explained, length = torch.zeros_like(parts).scatter_add(-1, layer.expand_as(parts), parts)
                decay = (explained / length.clamp(min=1e-12)).gather(-1, layer).clamp(1e-3, 1e3)
                inverse = torch.cholesky_inverse(factor)
                own = effect * (inverse @ target.unsqueeze(-1)).squeeze(-1)
                spread = effect - effect.square() * inverse.diagonal(dim1=-2, dim2=-1)
                effect = (own.square() + spread).mean(-1, keepdim=True)
        return w, decay, effect.squeeze(-1), evidence


def _layers(network: Parametric) -> Tensor:
    """The number of the layer of each of the d_w parameters: W₁, c₁, W₂, c₂ of a `Network`, else all one."""
    numbers = torch.arange(network.size)
    if not isinstance(network, Network):
        return torch.zeros_like(numbers)
    sizes = [part.numel() for part in network.split(numbers)]
    return torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
