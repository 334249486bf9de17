"""The oracle of Phase I: Distributed-GLD-Update (Algorithm 2), gradient Langevin dynamics over the star.

One round is w ← w − τ₁∇L̂(w) + √(2τ₁/τ₂)z with ∇L̂(w) = (1/T₀) Σ_i ∇L̂_i(w). L̂_i is the squared error on the data of
client i (eq. 2), T₀ the number of all data, τ₁ the step size, τ₂ the inverse temperature, and z standard normal noise.
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

# Rounds of Langevin noise that are drawn at once, in single precision (five times as fast); w stays double.
_ROUNDS_AT_ONCE = 64


@dataclass(frozen=True)
class Langevin:
    """The settings of Algorithm 2: the number n of rounds, the step size τ₁ and the inverse temperature τ₂.

    ``rounds`` is n and ``step`` is τ₁. τ₂ grows geometrically from ``hot`` in the first round to ``cold`` in the last.
    With ``hot == cold`` it is constant, as in the paper.

    Raises:
        ValueError: A number is out of range.
        TypeError: An argument is not a number.
    """

    rounds: int = 2000
    step: float = 0.3
    hot: float = 1e2
    cold: float = 1e5

    def __post_init__(self) -> None:
        count("rounds", self.rounds, "give at least one round")
        number("step", self.step, "give a positive step size τ₁", above=0)
        hot = number("hot", self.hot, "give a positive inverse temperature", above=0)
        number("cold", self.cold, f"give an inverse temperature of at least hot = {hot}", least=hot)

    def inverse_temperatures(self) -> list[float]:
        """Return τ₂ of each of the n rounds."""
        ratio = self.cold / self.hot
        return [self.hot * ratio ** (k / max(self.rounds - 1, 1)) for k in range(self.rounds)]


class Shards(NamedTuple):
    """The data of each of N clients in R systems, padded to m data for each client.

    A system is fitted by itself: one for each run, or one for each client of each run. ``x`` (R, N, m, d_x) has the
    features, ``y`` (R, N, m) the rewards, and ``mask`` (R, N, m) is 1 for data and 0 for padding.
    """

    x: Tensor
    y: Tensor
    mask: Tensor


class Iterate(NamedTuple):
    """The parameter ``w`` (R, d_w) before a round of Algorithm 2, and its training ``loss`` L̂(w) (R,)."""

    w: Tensor
    loss: Tensor


def langevin_rounds(
    model: Parametric,
    shards: Shards,
    langevin: Langevin | None,
    generators: Sequence[torch.Generator],
    ask: Ask,
) -> Iterator[Iterate]:
    """Yield the n + 1 iterates of Algorithm 2 from w = 0, with one exchange over the star for each round.

    Args:
        model: The class F.
        shards: The data of the clients in R systems.
        langevin: The settings of Algorithm 2, or None for the default ones.
        generators: The sources of the noise z. Each draws for an equal share of the R systems, which follow each other.
        ask: Carries w (R, 1, d_w) to the clients and the sum of their gradients back. `fedgo.star.Star.at` returns one
            that books the scalars, and `fedgo.star.answer` is the one of a server that has the data itself.

    Raises:
        ValueError: The iterates diverge.
        TypeError: ``langevin`` is something else.
    """
    langevin = Langevin() if langevin is None else langevin
    require_kind(isinstance(langevin, Langevin), "langevin", langevin, "give a Langevin, or None")
    x, y, mask = (values.flatten(1, 2) for values in shards)
    total = shards.mask.sum((1, 2)).clamp(min=1)
    w = torch.zeros(len(total), model.size, dtype=torch.float64)
    noise = langevin_noise(generators, len(w) // len(generators), model.size)

    def answers(w: Tensor) -> Message[tuple[Tensor, Tensor]]:
        """Return the squared errors (R,) and their gradient (R, d_w), summed over all clients.

        The gradient is what is sent. The errors are for the book's figures only, and cost nothing.
        """
        return Message(model.squared_loss(w.squeeze(1), x, y, mask), model.size)

    for cold, z in zip(langevin.inverse_temperatures(), noise, strict=False):
        error, gradient = ask(answers, Message(w.unsqueeze(1), model.size))
        yield Iterate(w, error / total)
        w = torch.add(w, gradient / total.unsqueeze(-1), alpha=-langevin.step)
        w.add_(z, alpha=math.sqrt(2 * langevin.step / cold))
    largest = f"rewards of order 1 (the largest here is {shards.y.abs().max().item():.3g})"
    remedy = f"the oracle's iterates diverge; give a smaller one, arms of smaller norm, or {largest}"
    require(bool(w.isfinite().all()), "the step size τ₁", langevin.step, remedy)
    yield Iterate(w, model.squared_loss(w, x, y, mask)[0] / total)


def langevin_noise(generators: Sequence[torch.Generator], share: int, size: int) -> Iterator[Tensor]:
    """Yield the noise z (R, d_w) float32 of one round after the other, without an end.

    The order of the draws is public, so that a plain transcription of Algorithm 2 meets the same noise: 64 rounds are
    drawn at once, and each generator draws in the order round, system, coordinate.

    Args:
        generators: The sources of the noise.
        share: The number of systems for which each generator draws, R over the number of generators.
        size: The dimension d_w.
    """
    while True:
        shape = (_ROUNDS_AT_ONCE, share, size)
        draws = [torch.randn(shape, generator=source, dtype=torch.float32) for source in generators]
        yield from torch.cat(draws, 1)


def last(iterates: Iterator[Iterate]) -> Iterate:
    """Run the rounds to their end and return the last iterate: ŵ₀ and its training loss."""
    return deque(iterates, maxlen=1)[0]
