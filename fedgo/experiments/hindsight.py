"""Executed runs of Phase II seen by one who knows w*: what the confidence lemma speaks about, at every step.

The distance of the centre from w* has three parts, ŵ − w* = Σ⁻¹(Σ_s g_s η_s + Σ_s g_s a_s − λ(w* − ŵ₀)), with the noise
η_s and the Taylor remainders a_s. Only a simulation knows them.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedgo.confidence import Ball, Tally, ball, compress
from fedgo.experiments.plays import Replayed
from fedgo.theory.confidence import radius


@dataclass(frozen=True)
class Hindsight(Replayed):
    """Runs of Fed-GO-UCB with w* = ``truth`` (S, d_w), which fits f.

    ``curvature`` (S,) is C_h on the segment from ŵ₀ to w*, the largest of any arm.
    """

    truth: Tensor
    curvature: Tensor

    @property
    def noise(self) -> Tensor:
        """η_t = y_t − f(x_t) of Phase II, (S, NT)."""
        return self.reward - self.problem.means.gather(1, self.arm)

    @property
    def centre(self) -> Tensor:
        """ŵ₀, (S, d_w)."""
        return self.start.w0[:, 0]

    @cached_property
    def features(self) -> Tensor:
        """The same in their own span, (S, K, min(K, d_w))."""
        return compress(self.gradients).features

    @property
    def slope(self) -> Tensor:
        """C_g = max ‖∇f_x(ŵ₀)‖, (S,)."""
        longest: Tensor = self.gradients.norm(dim=-1).amax(-1)
        return longest

    @property
    def away(self) -> Tensor:
        """w* − ŵ₀, (S, d_w)."""
        return self.truth - self.centre

    @property
    def rho(self) -> Tensor:
        """ρ₀ = ‖ŵ₀ − w*‖, (S,)."""
        distance: Tensor = self.away.norm(dim=-1)
        return distance

    @cached_property
    def remainder(self) -> Tensor:
        """a_x = f(x) − f_x(ŵ₀) − g_xᵀ(w* − ŵ₀) of all arms, (S, K)."""
        return self.problem.means - self.offsets - (self.gradients @ self.away.unsqueeze(-1)).squeeze(-1)

    @property
    def swing(self) -> Tensor:
        """The difference between the best arm and the worst, (S,)."""
        return self.problem.means.amax(1) - self.problem.means.amin(1)

    @property
    def sampled(self) -> Tensor:
        """About ten steps of Phase II at equal distances, (n,) int64."""
        steps = self.arm.shape[1]
        return torch.arange(0, steps, max(1, steps // 10))

    def known(self, at: Tensor) -> Tally:
        """D_{t,i} after the pulls of the steps ``at`` (n,), (S, n, K)."""
        return Tally(*(part[:, at] for part in self.replay.known))

    def ball(self, at: Tensor) -> Ball:
        """The client's centre ŵ (S, n, d_w) and Σ (S, n, d_w, d_w) after the steps ``at``, with β = 1."""
        around = self.gradients.unsqueeze(1), self.centre.unsqueeze(1)
        return ball(*around, self.settings.lam, 1.0, self.known(at))

    def distance(self, at: Tensor) -> Tensor:
        """‖ŵ − w*‖_Σ after the steps ``at``, (S, n)."""
        return self.ball(at).distance(self.truth.unsqueeze(1)).sqrt()

    def radius(self, delta: float, exact: bool = False) -> Tensor:
        """√β_{t,i} of the confidence lemma after every step, (S, NT); ``exact`` as if ŵ₀ = w*: its noise alone."""
        return radius(
            self.replay.information,
            self.replay.known.counts.sum(-1),
            self.replay.epoch,
            clients=self.start.clients,
            lam=self.settings.lam,
            sigma=self.problem.sigma,
            distance=0.0 if exact else self.rho.unsqueeze(1),
            curvature=0.0 if exact else self.curvature.unsqueeze(1),
            delta=delta,
        ).sqrt()
