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
    """The settings of Algorithm 2: the number n of rounds, the step size τ₁ and the inverse temperature τ₂.

    ``rounds`` is n and ``step`` is τ₁. τ₂ grows geometrically from ``hot`` in the first round to ``cold`` in the last;
    with ``hot == cold`` it is constant, as in the paper.
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
        """Return τ₂ of each round."""
        ratio = self.cold / self.hot
        return [self.hot * ratio ** (k / max(self.rounds - 1, 1)) for k in range(self.rounds)]


class Shards(NamedTuple):
    """The data of each client in Phase I, padded to equal length m.

    ``x`` (R, N, m, d_x) has the features, ``y`` (R, N, m) the rewards, and ``mask`` (R, N, m) is 1 for real entries and
    0 for padding.
    """

    x: Tensor
    y: Tensor
    mask: Tensor


class Iterate(NamedTuple):
    """The parameter ``w`` (R, d_w) before a round of Algorithm 2, and the training loss L̂(w) (R,) there."""

    w: Tensor
    loss: Tensor


def langevin_rounds(
    model: Parametric,
    shards: Shards,
    langevin: Langevin | None,
    generators: Sequence[torch.Generator],
    ask: Ask,
) -> Iterator[Iterate]:
    """Yield the n + 1 iterates of Algorithm 2 from w = 0, with one exchange for each round.

    Args:
        model: The class F.
        shards: The data of the clients.
        langevin: The settings of Algorithm 2, or None for the default ones.
        generators: The sources of the noise z. Each gives an equal share of the R rows of w: one row, or one row for
            each client of its run.
        ask: Carries w (R, 1, d_w) to the clients and the sum of their gradients back. `Star.at` gives one that books
            the scalars, and `answer` is one for data that are at hand.

    Raises:
        ValueError: The iterates diverge.
    """
    langevin = Langevin() if langevin is None else langevin
    remedy = "give a Langevin, or None for the default"
    require_kind(isinstance(langevin, Langevin), "langevin", langevin, remedy)
    data = [part.flatten(1, 2) for part in shards]
    total = shards.mask.sum((1, 2)).clamp(min=1)
    w = torch.zeros(len(total), model.size, dtype=torch.float64)
    noise = langevin_noise(generators, len(w) // len(generators), model.size)

    def answers(w: Tensor) -> Message[tuple[Tensor, Tensor]]:
        """Return the squared errors (R,) and their gradient (R, d_w), summed over all clients.

        The gradient is what is sent. The errors are for our figures only and cost nothing.
        """
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
    """Yield the noise z (R, d_w) of one round after the other, float32, without an end.

    ``share`` rows of z come from each generator. A plain transcription needs the layout to meet the same noise: 64
    rounds are drawn at once, and each generator draws in the order round, row, coordinate.
    """
    while True:
        shape = (_CHUNK, share, size)
        draws = [torch.randn(shape, generator=source, dtype=torch.float32) for source in generators]
        yield from torch.cat(draws, 1)


def last(iterates: Iterator[Iterate]) -> Iterate:
    """Run the rounds to their end and return the last iterate: ŵ₀ and its training loss."""
    return deque(iterates, maxlen=1)[0]
