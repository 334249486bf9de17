"""Surrogates that are linear around a network: linearised once at ŵ₀, or fitted and linearised again at every call."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, number, require, require_kind
from fedgo.beyond.surrogates.models import Fitted, Observed, observed
from fedgo.confidence import Tally
from fedgo.network import Network, Parametric
from fedgo.phase_one import Start

_STEPS, _SETTLE = 40, 4  # Gauss–Newton steps of a fit, and those between two updates of the weight decay
_SHARES = (0.0, 0.03, 0.1, 0.25, 0.5, 1.0)  # of the way to the mean of the linearised posterior


class Linear(NamedTuple):
    """The posterior of a linearised network: N(mean, FFᵀ + τ²I − CᵀC) on the arms.

    ``mean`` is (K,), ``features`` (K, r) is F, ``effect`` is τ², and ``half`` (n, K), with a row for each of the n arms
    pulled, is C. The network was linearised at ``w`` (d_w,), with the weight decay ``decay`` of each parameter (d_w,).
    """

    mean: Tensor
    features: Tensor
    half: Tensor
    effect: float
    w: Tensor
    decay: Tensor

    @classmethod
    def kept(cls, w: Tensor) -> "Linear":
        """Return a fit of no arms that holds only ŵ = ``w`` (d_w,), from which the next fit begins."""
        none = w.new_zeros(0)
        return cls(none, w.new_zeros(0, 0), w.new_zeros(0, 0), 0.0, w, none)

    @property
    def variance(self) -> Tensor:
        """The variance of each arm, (K,)."""
        return self.features.square().sum(-1) + self.effect - self.half.square().sum(0)

    def covariance(self, among: Tensor) -> Tensor:
        """Return the covariance between the arms ``among`` (C,), (C, C)."""
        return self.columns(among, among)

    def columns(self, arm: Tensor, among: Tensor) -> Tensor:
        """Return the covariance of each ``arm`` (A,) with each of the arms ``among`` (C,), (A, C)."""
        own = self.effect * (arm.unsqueeze(-1) == among)
        return self.features[arm] @ self.features[among].mT + own - self.half[:, arm].mT @ self.half[:, among]


def linear(
    features: Tensor, prior: Tensor, seen: Observed, effect: float, w: Tensor, decay: Tensor
) -> Linear:
    """Return the posterior on K arms for the prior N(``prior``, FFᵀ + τ²I), from one n × n factorisation.

    Args:
        features: F, (K, r).
        prior: The prior mean of each arm, (K,).
        seen: The n pulled arms, with their mean rewards and the variances of these means.
        effect: τ².
        w: The parameters at which the network was linearised, (d_w,).
        decay: The weight decay of each parameter, (d_w,).
    """
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
    """The paper's model as a surrogate: parameters w ~ N(ŵ₀, (σ²/λ)I) of a network f that is linear in w around ŵ₀.

    Every fit uses the same linearisation.

    Args:
        network: The network f(x; w), with d_w parameters.
        w0: ŵ₀, (d_w,).
        lam: The regularisation weight λ > 0.

    Raises:
        ValueError: ``w0`` has another shape, or λ is not positive.
    """

    network: Parametric
    w0: Tensor
    lam: float = 1.0

    def __post_init__(self) -> None:
        require(self.w0.shape == (self.network.size,), "the shape of w0", tuple(self.w0.shape), "give (d_w,)")
        number("lam", self.lam, "give a positive regularisation weight λ", above=0)

    @classmethod
    def at(cls, start: Start, lam: float = 1.0) -> "tuple[LinearisedOnce, ...]":
        """Return one surrogate for each run of ``start``, linearised around the ŵ₀ of that run, with λ = ``lam``."""
        return tuple(cls(start.network, w0, lam) for w0 in start.w0.squeeze(1))

    def fit(self, arms: Tensor, data: Tally, sigma: float, before: Fitted | None = None) -> Linear:
        """Return the posterior on the K arms given ``data``.

        Args:
            arms: The features of the arms, (K, d_x).
            data: The counts and sums of each arm, (K,). All may be 0.
            sigma: The standard deviation σ of the noise of a reward.
            before: Not used.
        """
        seen, scale = observed(data, sigma, least=0), sigma / self.lam**0.5
        features = self.network.gradients(self.w0, arms) * scale
        decay = torch.full_like(self.w0, self.lam / sigma**2)
        return linear(features, self.network.values(self.w0, arms), seen, 0.0, self.w0, decay)


@dataclass(frozen=True)
class Relinearised:
    """A network surrogate that is fitted to all data and linearised at its fitted parameters ŵ, again at each fit.

    The fit begins at the ŵ of the fit before and at ``starts`` random parameters, and keeps the result with the largest
    evidence. It standardises inputs and rewards. The prior of the parameters is w ~ N(0, diag(α)⁻¹) with one weight
    decay α for each layer. With ``effect`` each arm has an independent deviation from the network, N(0, τ²), which
    absorbs misfit. α and τ² are iterated towards a stationary point of the evidence of the linearised model.

    Args:
        network: The network, for instance a `Network`.
        starts: The number of random starts, at least 1.
        effect: Whether each arm has a deviation of its own.

    Raises:
        TypeError: ``network`` has no ``gradients``.
        ValueError: ``starts`` is below 1.
    """

    network: Parametric
    starts: int = 2
    effect: bool = True

    def __post_init__(self) -> None:
        linear, remedy = hasattr(self.network, "gradients"), "give a Network, or a class like it"
        require_kind(linear, "network", self.network, remedy)
        count("starts", self.starts, "give the number of random starts, at least 1")

    def fit(self, arms: Tensor, data: Tally, sigma: float, before: Fitted | None = None) -> Linear:
        """Return the posterior on the K arms given ``data``.

        Args:
            arms: The features of the arms, (K, d_x).
            data: The counts and sums of each arm, (K,).
            sigma: The standard deviation σ of the noise of a reward.
            before: The last fit. If it is a `Linear`, the fit also begins at its ŵ.

        Raises:
            ValueError: Fewer than two arms have been pulled, or all their mean rewards are equal.
        """
        seen = observed(data, sigma)
        spread = arms.std(0, correction=0)
        inputs = (arms - arms.mean(0)) / torch.where(spread > 0, spread, 1.0)
        centre, scale = seen.means.mean(), seen.means.std()
        unit = Observed(seen.at, (seen.means - centre) / scale, seen.variances / scale**2)
        w, decay, effect, evidence = self._climb(inputs[seen.at], unit, self._starts(before))
        best = int(evidence.argmax())
        w, decay, tau = w[best], decay[best], effect[best].item()
        gradients = self.network.gradients(w, inputs)
        prior = self.network.values(w, inputs) - gradients @ w
        model = linear(gradients / decay.sqrt(), prior, unit, tau, w, decay)
        return model._replace(
            mean=centre + scale * model.mean,
            features=model.features * scale,
            half=model.half * scale,
            effect=tau * scale.item() ** 2,
        )

    def _starts(self, before: Fitted | None) -> Tensor:
        """Return the B parameters (B, d_w) at which the fit begins: ŵ of the fit ``before``, and standard normals
        scaled as usual.
        """
        source = torch.Generator().manual_seed(0)
        w = torch.randn(self.starts, self.network.size, generator=source, dtype=torch.float64)
        w = w / self.network.d_x**0.5
        return torch.cat([before.w.unsqueeze(0), w]) if isinstance(before, Linear) else w

    def _climb(self, x: Tensor, seen: Observed, w: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return ŵ (B, d_w), α (B, d_w), τ² (B,) and the log-evidence (B,) that are reached from the B starts ``w`` (B,
        d_w).

        ``x`` (n, d_x) are the standardised inputs of the n arms in ``seen``. Each step is a Gauss–Newton step: the next
        ŵ is the mean of the linearised posterior, or a point on the way to it.
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
    """Return the number of the layer of each of the d_w parameters: W₁, c₁, W₂, c₂ of a `Network`, one layer for
    others.
    """
    numbers = torch.arange(network.size)
    if not isinstance(network, Network):
        return torch.zeros_like(numbers)
    sizes = [part.numel() for part in network.split(numbers)]
    return torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
