"""A surrogate that fits a network to all data and linearises it at the fitted parameters."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, require_kind
from fedgo.beyond.method.surrogates import Fitted, Noise, Observed, as_number, observed
from fedgo.confidence import Tally
from fedgo.network import Network, Parametric

_STEPS, _SETTLE = 40, 4  # Gauss–Newton steps of a fit, and steps between two updates of the weight decay
# the step sizes that a Gauss–Newton step tries, as shares of the way to the mean of the linearised posterior
_SHARES = (0.0, 0.03, 0.1, 0.25, 0.5, 1.0)


class Linear(NamedTuple):
    """The posterior N(mean, FFᵀ + τ²I − CᵀC) of the K arms' mean rewards by a linearised network.

    All but ``w`` and ``decay`` are in units of the rewards; those of a `Relinearised` are on standardised data.

    Args:
        mean: The posterior mean of each arm, (K,).
        features: F, the gradient at each arm, each entry times the prior standard deviation of its parameter, (K, d_w).
        half: C, (n, K): CᵀC is what the mean rewards of n pulled arms explain of the prior covariance.
        effect: τ², the prior variance of each arm's own deviation from the network.
        w: The parameters at which the network was linearised, (d_w,).
        decay: The prior precision α of each parameter, (d_w,).
    """

    mean: Tensor
    features: Tensor
    half: Tensor
    effect: float
    w: Tensor
    decay: Tensor

    @classmethod
    def kept(cls, w: Tensor) -> "Linear":
        """Return a fit without arms that only holds the parameters ``w``, where `Relinearised.fit` may begin."""
        none = w.new_zeros(0)
        return cls(none, w.new_zeros(0, 0), w.new_zeros(0, 0), 0.0, w, none)

    @property
    def variance(self) -> Tensor:
        """The posterior variance of each arm, (K,); rounding may leave it slightly negative."""
        return self.features.square().sum(-1) + self.effect - self.half.square().sum(0)

    def columns(self, arm: Tensor, among: Tensor) -> Tensor:
        own = self.effect * (arm.unsqueeze(-1) == among)
        return self.features[arm] @ self.features[among].mT + own - self.half[:, arm].mT @ self.half[:, among]


def linear(
    features: Tensor, prior: Tensor, seen: Observed, effect: float, w: Tensor, decay: Tensor
) -> Linear:
    """Return the posterior on K arms with the prior N(``prior``, FFᵀ + τ²I), by one Cholesky factor of an n × n matrix.

    The other arguments are those of `Linear`; ``prior`` (K,) is the prior mean.
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
class Relinearised:
    """A surrogate that fits a network to all data and linearises it at the fitted parameters ŵ, anew at every fit.

    The fit begins at the ŵ of the last fit, if this is a `Linear`, and at ``starts`` random parameters, and keeps the
    result with the largest evidence. Features and mean rewards are standardised. The prior is w ~ N(0, diag(α)⁻¹), with
    one α for each of the four parts of a `Network`, and one for all parameters of another class. With ``effect`` each
    arm also deviates from the network by N(0, τ²), which absorbs misfit. A fit takes 40 Gauss–Newton steps, and at nine
    of them it updates α, within [10⁻³, 10³], and τ² by the evidence.

    Args:
        network: The network f(x; w).
        starts: The number of random starts, at least 1, the same in every fit.
        effect: Whether each arm has a deviation of its own.

    Raises:
        TypeError: ``network`` has no ``gradients``, or ``starts`` is not a whole number.
        ValueError: ``starts`` is below 1.
    """

    network: Parametric
    starts: int = 2
    effect: bool = True

    def __post_init__(self) -> None:
        remedy = "give a Network, or a class like it"
        require_kind(hasattr(self.network, "gradients"), "network", self.network, remedy)
        count("starts", self.starts, "give the number of random starts, at least 1")

    def fit(self, arms: Tensor, data: Tally, sigma: Noise, before: Fitted | None = None) -> Linear:
        seen = observed(data, as_number(sigma, data))
        spread = arms.std(0, correction=0)
        inputs = (arms - arms.mean(0)) / torch.where(spread > 0, spread, 1.0)
        centre, scale = seen.means.mean(), seen.means.std()
        unit = Observed(seen.at, (seen.means - centre) / scale, seen.variances / scale**2, 1.0)
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
        """Return the B parameters at which a fit begins, (B, d_w)."""
        source = torch.Generator().manual_seed(0)
        w = torch.randn(self.starts, self.network.size, generator=source, dtype=torch.float64)
        w = w / self.network.d_x**0.5
        return torch.cat([before.w.unsqueeze(0), w]) if isinstance(before, Linear) else w

    def _climb(self, x: Tensor, seen: Observed, w: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return ŵ (B, d_w), α (B, d_w), τ² (B,) and the log-evidence (B,) that Gauss–Newton reaches from B starts."""
        layer = _layers(self.network).expand_as(w)
        decay, effect = torch.ones_like(w), w.new_full((len(w), 1), 0.01 if self.effect else 0.0)
        evidence = effect
        for step in range(1, _STEPS + 1):
            jacobian = self.network.gradients(w, x)
            target = seen.means - self.network.values(w, x) + (jacobian @ w.unsqueeze(-1)).squeeze(-1)
            root = jacobian / decay.sqrt().unsqueeze(-2)
            covariance = root @ root.mT + torch.diag_embed(seen.variances + effect)  # of the mean rewards
            factor = torch.linalg.cholesky(covariance)
            half = torch.linalg.solve_triangular(factor, root, upper=False)
            white = torch.linalg.solve_triangular(factor, target.unsqueeze(-1), upper=False)
            evidence = -white.square().sum((-2, -1)) / 2 - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            way = (half.mT @ white).squeeze(-1) / decay.sqrt() - w
            trials = w + torch.tensor(_SHARES, dtype=w.dtype).view(-1, 1, 1) * way
            misfit = (seen.means - self.network.values(trials, x)).square() / (seen.variances + effect)
            loss = misfit.sum(-1) + (decay * trials.square()).sum(-1)
            w = trials[loss.argmin(0), torch.arange(len(w))]
            if step % _SETTLE == 0 and step < _STEPS:
                # MacKay's update α ← (Σ_j 1 − α(Σ⁻¹)_jj)/Σ_j w_j² in each layer; the EM update τ² ← the mean of E e_x²
                parts = torch.stack([half.square().sum(-2), w.square()])
                explained, length = torch.zeros_like(parts).scatter_add(-1, layer.expand_as(parts), parts)
                decay = (explained / length.clamp(min=1e-12)).gather(-1, layer).clamp(1e-3, 1e3)
                inverse = torch.cholesky_inverse(factor)
                own = effect * (inverse @ target.unsqueeze(-1)).squeeze(-1)
                spread = effect - effect.square() * inverse.diagonal(dim1=-2, dim2=-1)
                effect = (own.square() + spread).mean(-1, keepdim=True)
        return w, decay, effect.squeeze(-1), evidence


def _layers(network: Parametric) -> Tensor:
    """Return the number of the layer of each parameter, (d_w,) int64: W₁, c₁, W₂, c₂, or 0 in another network."""
    numbers = torch.arange(network.size)
    if not isinstance(network, Network):
        return torch.zeros_like(numbers)
    sizes = [part.numel() for part in network.split(numbers)]
    return torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
