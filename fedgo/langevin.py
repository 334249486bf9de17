"""The oracle of Phase I: Distributed-GLD-Update (Algorithm 2), distributed Langevin dynamics.

One round over the star: w ← w − τ₁ ∇L̂(w) + √(2τ₁/τ₂) z with ∇L̂(w) = (1/T₀) Σ_i ∇L̂_i(w), L̂_i the squared
error on client i's own data (eq. 2).
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, number, require, require_kind
from fedgo.network import Parametric
from fedgo.star import Ask, Message

# Rounds of Langevin noise drawn at once, in single precision (five times as fast); w stays double.
_CHUNK = 64


@dataclass(frozen=True)
class Langevin:
    """Algorithm 2's settings: n = ``rounds``, step size τ₁ = ``step``, inverse temperature τ₂ from ``hot`` to ``cold``.

    τ₂ grows geometrically over the rounds; ``hot == cold`` is the constant temperature of the paper.
    """

    rounds: int = 2000
    step: float = 0.3
    hot: float = 1e2
    cold: float = 1e5

    def __post_init__(self) -> None:
        count("rounds", self.rounds, "run at least one round")
        number("step", self.step, "give a positive step size τ₁", above=0)
        hot = number("hot", self.hot, "give a positive inverse temperature", above=0)
        number("cold", self.cold, f"give an inverse temperature of at least hot = {hot}", least=hot)

    def inverse_temperatures(self) -> list[float]:
        """τ₂ of every round."""
        ratio = self.cold / self.hot
        return [self.hot * ratio ** (k / max(self.rounds - 1, 1)) for k in range(self.rounds)]


class Shards(NamedTuple):
    """Every client's own data: ``x`` (R, N, m, d_x), ``y`` and the 0/1 ``mask`` of real entries (R, N, m)."""

    x: Tensor
    y: Tensor
    mask: Tensor


class Iterate(NamedTuple):
    """``w`` (R, d_w) before a round of Algorithm 2, and the training loss L̂(w) (R,) there."""

    w: Tensor
    loss: Tensor


def langevin_rounds(
    model: Parametric,
    shards: Shards,
    langevin: Langevin | None,
    generators: Sequence[torch.Generator],
    ask: Ask,
) -> Iterator[Iterate]:
    """The n + 1 iterates of Algorithm 2 from w = 0, one exchange through ``ask`` per round.

    ``ask`` carries w (R, 1, d_w) to the clients and the sum of their gradients back: that of a star (`Star.at`), or
    `answer` where the data are at hand. ``generators`` give z, each for an equal share of the R rows of w: one row for
    each generator, or one for each of its run's clients. A ``ValueError`` if the iterates diverge.
    """
    langevin = Langevin() if langevin is None else langevin
    remedy = "give a Langevin, or None for the default"
    require_kind(isinstance(langevin, Langevin), "langevin", langevin, remedy)
    data = [part.flatten(1, 2) for part in shards]
    total = shards.mask.sum((1, 2)).clamp(min=1)
    w = torch.zeros(len(total), model.size, dtype=torch.float64)
    noise = langevin_noise(generators, len(w) // len(generators), model.size)

    def answers(w: Tensor) -> Message[tuple[Tensor, Tensor]]:
        """The squared errors (R,) and their gradient (R, d_w), of all clients: the gradient is what is sent, and
        beside it, for our figures only, are the errors."""
        return Message(model.squared_loss(w.squeeze(1), *data), model.size)

    for cold, z in zip(langevin.inverse_temperatures(), noise, strict=False):
        error, gradient = ask(answers, Message(w.unsqueeze(1), model.size))
        yield Iterate(w, error / total)
        w = torch.add(w, gradient / total.unsqueeze(-1), alpha=-langevin.step)
        w.add_(z, alpha=math.sqrt(2 * langevin.step / cold))
    largest = f"rewards of order 1 (the largest here is {shards.y.abs().max().item():.3g})"
    remedy = f"the oracle's iterates diverge; give a smaller one, arms of smaller norm, or {largest}"
    require(bool(w.isfinite().all()), "the step size τ₁", langevin.step, remedy)
    yield Iterate(w, model.squared_loss(w, *data)[0] / total)


def langevin_noise(generators: Sequence[torch.Generator], share: int, size: int) -> Iterator[Tensor]:
    """z (R, d_w) of one round after the other, ``share`` rows of it from each generator, float32, without an end.

    Its layout, which a plain transcription needs to meet the same noise: 64 rounds are drawn at once, each
    generator's in the order round, row, coordinate.
    """
    while True:
        shape = (_CHUNK, share, size)
        draws = [torch.randn(shape, generator=source, dtype=torch.float32) for source in generators]
        yield from torch.cat(draws, 1)


def last(iterates: Iterator[Iterate]) -> Iterate:
    """Run the rounds to their end: ŵ₀ and its training loss."""
    return deque(iterates, maxlen=1)[0]
