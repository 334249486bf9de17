"""Surrogates that linearise a network: once at the parameters ŵ₀ of Phase I, or at parameters fitted anew each time."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, number, require, require_kind
from fedgo.beyond.method.surrogates import Fitted, Noise, Observed, as_number, observed
from fedgo.confidence import Tally
from fedgo.network import Network, Parametric
from fedgo.phase_one import Start

_STEPS, _SETTLE = 40, 4  # Gauss–Newton steps of a fit, and steps between two updates of the weight decay
# the step sizes that a Gauss–Newton step tries, as shares of the way to the mean of the linearised posterior
_SHARES = (0.0, 0.03, 0.1, 0.25, 0.5, 1.0)


class Linear(NamedTuple):
    """The posterior of the K arms' mean rewards by a linearised network, N(mean, FFᵀ + τ²I − CᵀC).

    ``mean``, ``features``, ``half`` and ``effect`` are in units of the rewards or of their squares. A `Relinearised`
    network works on standardised inputs and rewards, to which ``w`` and ``decay`` refer.

    Args:
        mean: The posterior mean of each arm, (K,).
        features: F, the gradient of the network's value at each arm in its d_w parameters, each entry times the prior
            standard deviation of its parameter, (K, d_w).
        half: C, (n, K), whose product CᵀC is what the mean rewards of n pulled arms explain of the prior covariance
            FFᵀ + τ²I of the K arms.
        effect: τ², the prior variance of each arm's own deviation from the network.
        w: The parameters at which the network was linearised, (d_w,).
        decay: The prior precision α of each parameter (its weight decay), (d_w,).
    """

    mean: Tensor
    features: Tensor
    half: Tensor
    effect: float
    w: Tensor
    decay: Tensor

    @classmethod
    def kept(cls, w: Tensor) -> "Linear":
        """Return a fit without arms that only holds the d_w parameters ``w`` (d_w,).

        If it is given to `Relinearised.fit` as ``before``, the next fit also begins at these parameters.
        """
        none = w.new_zeros(0)
        return cls(none, w.new_zeros(0, 0), w.new_zeros(0, 0), 0.0, w, none)

    @property
    def variance(self) -> Tensor:
        """The posterior variance of each arm's mean reward, (K,). Rounding may leave it slightly negative."""
        return self.features.square().sum(-1) + self.effect - self.half.square().sum(0)

    def covariance(self, among: Tensor) -> Tensor:
        """Return the posterior covariance between the mean rewards of C of the arms, (C, C).

        ``among`` (C,) int64 has the numbers of these arms.
        """
        return self.columns(among, among)

    def columns(self, arm: Tensor, among: Tensor) -> Tensor:
        """Return the posterior covariance of the mean reward of each of A arms with that of each of C arms, (A, C).

        Args:
            arm: The numbers of the A arms, (A,) int64.
            among: The numbers of the C arms, (C,) int64.
        """
        own = self.effect * (arm.unsqueeze(-1) == among)
        return self.features[arm] @ self.features[among].mT + own - self.half[:, arm].mT @ self.half[:, among]


def linear(
    features: Tensor, prior: Tensor, seen: Observed, effect: float, w: Tensor, decay: Tensor
) -> Linear:
    """Return the posterior on K arms whose prior is N(``prior``, FFᵀ + τ²I), given the mean rewards of n arms.

    It is computed from one Cholesky factorisation of an n × n matrix.

    Args:
        features: F, the gradient of the network's value at each arm in its d_w parameters, each entry times the prior
            standard deviation of its parameter, (K, d_w).
        prior: The prior mean of each arm, (K,).
        seen: The n pulled arms, with their mean rewards and the variances of these mean rewards.
        effect: τ², the prior variance of each arm's own deviation from the network.
        w: The parameters at which the network was linearised, (d_w,), which the result holds.
        decay: The prior precision of each parameter, (d_w,), which the result holds.

    Raises:
        RuntimeError: The covariance of the n mean rewards is not positive definite.
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
    """The paper's model as a surrogate: a network f(x; w) that is linearised at ŵ₀, with the prior w ~ N(ŵ₀, (σ²/λ)I).

    Every fit linearises the network at the same ŵ₀. σ is the standard deviation of a reward's noise.

    Args:
        network: The network f(x; w) of an arm with the features x, with d_w parameters w.
        w0: The parameters ŵ₀ at which the network is linearised, for instance those fitted in Phase I, (d_w,) float64.
        lam: The regularisation weight λ > 0.

    Raises:
        ValueError: ``w0`` does not have the shape (d_w,), or λ is not positive and finite.
        TypeError: λ is not a number.
    """

    network: Parametric
    w0: Tensor
    lam: float = 1.0

    def __post_init__(self) -> None:
        require(self.w0.shape == (self.network.size,), "the shape of w0", tuple(self.w0.shape), "give (d_w,)")
        number("lam", self.lam, "give a positive regularisation weight λ", above=0)

    @classmethod
    def at(cls, start: Start, lam: float = 1.0) -> "tuple[LinearisedOnce, ...]":
        """Return one surrogate for each run of Phase I, linearised at the parameters ŵ₀ that all clients of it share.

        Args:
            start: The result of Phase I, with the network and the fitted ŵ₀ of each run.
            lam: The regularisation weight λ > 0.

        Raises:
            ValueError: Each of several clients has a ŵ₀ of its own, or λ is not positive and finite.
            TypeError: λ is not a number.
        """
        return tuple(cls(start.network, w0, lam) for w0 in start.w0.squeeze(1))

    def fit(self, arms: Tensor, data: Tally, sigma: Noise, before: Fitted | None = None) -> Linear:
        """Return the posterior of the K arms' mean rewards given ``data``.

        Args:
            arms: The d_x features of each arm, (K, d_x) float64.
            data: The number of pulls and the sum of rewards of each arm, (K,) each; all may be 0.
            sigma: The standard deviation σ of the noise of one reward.
            before: Not used.

        Returns:
            The posterior by the network linearised at ŵ₀; without pulls it is the prior.

        Raises:
            ValueError: A count is negative or not finite; a sum is not finite, or is not 0 for an arm without pulls; a
                mean reward is not between −10¹⁰⁰ and 10¹⁰⁰; σ is not positive and finite; or the arms have another
                number of features than the inputs of the network.
            TypeError: ``sigma`` is not a number.
            RuntimeError: The covariance of the mean rewards is not positive definite.
        """
        sigma = as_number(sigma, data)
        seen, scale = observed(data, sigma, least=0), sigma / self.lam**0.5
        features = self.network.gradients(self.w0, arms) * scale
        decay = torch.full_like(self.w0, self.lam / sigma**2)
        return linear(features, self.network.values(self.w0, arms), seen, 0.0, self.w0, decay)


@dataclass(frozen=True)
class Relinearised:
    """A surrogate that fits a network to all data and linearises it at the fitted parameters ŵ, again at every fit.

    The fit begins at the ŵ of the last fit, if this is a `Linear`, and at ``starts`` random parameters, and keeps the
    result with the largest evidence. It standardises the features of the arms, and the mean rewards of the pulled arms.
    The prior of the parameters is w ~ N(0, diag(α)⁻¹). In a `Network` the first weights, the first offsets, the second
    weights and the second offset have one weight decay α each; in a network of another class all parameters have the
    same α. With ``effect`` each arm also deviates from the network by an independent N(0, τ²), which absorbs misfit. A
    fit takes 40 Gauss–Newton steps. At nine of them it updates α, within [10⁻³, 10³], and τ² towards a stationary point
    of the evidence of the linearised model.

    Args:
        network: The network f(x; w) of an arm with the features x, for instance a `Network`.
        starts: The number of random starts, at least 1. Every fit begins at the same ones.
        effect: Whether each arm has a deviation of its own from the network.

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
        """Return the posterior of the K arms' mean rewards given ``data``.

        Args:
            arms: The d_x features of each arm, (K, d_x) float64.
            data: The number of pulls and the sum of rewards of each arm, (K,) each.
            sigma: The standard deviation σ of the noise of one reward.
            before: The last fit. If it is a `Linear`, the fit also begins at its parameters ŵ.

        Returns:
            The posterior by the network linearised at the fitted parameters, in units of the rewards. Its ``w`` and
            ``decay`` are those of the network on standardised inputs and rewards.

        Raises:
            ValueError: Fewer than two arms have been pulled; all their mean rewards are equal, or one is not between
                −10¹⁰⁰ and 10¹⁰⁰; a count is negative or not finite; a sum is not finite, or is not 0 for an arm without
                pulls; σ is not positive and finite; or the arms have another number of features than the inputs of the
                network.
            TypeError: ``sigma`` is not a number.
            RuntimeError: The covariance of the mean rewards is not positive definite, for instance because a feature is
                NaN; or ``before`` is a `Linear` with another number of parameters.
        """
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
        """Return the B parameters at which a fit begins, (B, d_w) for a network with d_w parameters and d_x inputs.

        They are the parameters ŵ of the fit ``before``, if this fit is a `Linear`, and ``starts`` vectors of standard
        normal numbers divided by √d_x, the same in every fit. So B is ``starts``, or one more.
        """
        source = torch.Generator().manual_seed(0)
        w = torch.randn(self.starts, self.network.size, generator=source, dtype=torch.float64)
        w = w / self.network.d_x**0.5
        return torch.cat([before.w.unsqueeze(0), w]) if isinstance(before, Linear) else w

    def _climb(self, x: Tensor, seen: Observed, w: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return ŵ (B, d_w), α (B, d_w), τ² (B,) and the log-evidence (B,) that Gauss–Newton steps reach from B starts.

        Here ŵ are the d_w parameters, α their prior precisions, and τ² is the prior variance of each arm's own
        deviation from the network. Each step stays where it is, goes to the mean of the linearised posterior, or to a
        point on the way to this mean, whichever has the least loss. The loss is the sum of the squared errors of the
        network, each divided by the variance of the mean reward plus τ², and of α·w² over all parameters w. After every
        fourth step but the last, α and τ² are updated; τ² stays 0 without ``effect``. The log-evidence is that of the
        linearised model, up to a constant, at the beginning of the last step.

        Args:
            x: The standardised inputs of the n arms in ``seen``, (n, d_x).
            seen: The n pulled arms, with their standardised mean rewards and the variances of these.
            w: The B starts, (B, d_w).
        """
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
    """Return the number of the layer of each of the d_w parameters of ``network``, (d_w,) int64.

    Here a `Network` has four layers: its first weights W₁ are layer 0, its first offsets c₁ layer 1, its second weights
    W₂ layer 2 and its second offset c₂ layer 3. Any other network has a single layer, with the number 0.
    """
    numbers = torch.arange(network.size)
    if not isinstance(network, Network):
        return torch.zeros_like(numbers)
    sizes = [part.numel() for part in network.split(numbers)]
    return torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
