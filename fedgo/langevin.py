"""The oracle of Phase I: Distributed-GLD-Update (Algorithm 2), gradient Langevin dynamics with a server and clients.

One round is w ← w − τ₁∇L̂(w) + √(2τ₁/τ₂)z with ∇L̂(w) = (1/T₀) Σ_i ∇L̂_i(w). L̂_i is the sum of squared errors on the
data of client i (eq. 2), T₀ the number of data of all clients, τ₁ the step size, τ₂ the inverse temperature, and z
standard normal noise. R fits of d_w parameters are made at once, w (R, d_w): one for each run if its clients fit
together, one for each client of each run (then N = 1) if every client fits alone.
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

# The number of rounds whose Langevin noise is drawn at once. The noise is drawn in single precision, which is five
# times as fast; the parameter w is kept in double precision.
_ROUNDS_AT_ONCE = 64


@dataclass(frozen=True)
class Langevin:
    """The settings of Algorithm 2: rounds, step size and noise.

    The inverse temperature τ₂ grows geometrically from ``hot`` in the first round to ``cold`` in the last. With ``hot
    == cold`` it is constant, as in the paper.

    Args:
        rounds: The number n of rounds, at least 1.
        step: The step size τ₁ > 0.
        hot: The inverse temperature τ₂ > 0 in the first round.
        cold: The inverse temperature τ₂ in the last round, at least ``hot``.

    Raises:
        ValueError: A number is out of range, NaN or infinite.
        TypeError: An argument is not a number, or ``rounds`` is not whole.
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
        """Return the inverse temperature τ₂ of each of the n rounds."""
        ratio = self.cold / self.hot
        return [self.hot * ratio ** (k / max(self.rounds - 1, 1)) for k in range(self.rounds)]


class Shards(NamedTuple):
    """The data of N clients in each of R fits, padded to m data for each client.

    Args:
        x: The features of the pulled arms, (R, N, m, d_x) float64.
        y: The rewards, (R, N, m) float64; the padding is finite too.
        mask: 1 for data and 0 for padding, (R, N, m) float64.
    """

    x: Tensor
    y: Tensor
    mask: Tensor


class Iterate(NamedTuple):
    """The parameter ``w`` (R, d_w) before a round or at the end, and its training loss (R,), 0 without data."""

    w: Tensor
    loss: Tensor


def langevin_rounds(
    model: Parametric,
    shards: Shards,
    langevin: Langevin | None,
    generators: Sequence[torch.Generator],
    ask: Ask,
) -> Iterator[Iterate]:
    """Yield the n + 1 iterates of Algorithm 2 from w = 0, with one exchange between server and clients in each round.

    A round is computed when the next iterate is asked for. The last iterate, ŵ₀, costs no exchange here.

    Args:
        model: The parametric class F.
        shards: The data of the R fits, with m ≥ 1.
        langevin: The settings of Algorithm 2, or None for the default ones.
        generators: The sources of the noise z, whose number divides R. Each draws for an equal share of the R fits, and
            fits that share a generator are neighbours.
        ask: Carries w (R, 1, d_w) to the clients and the sums of their errors and gradients back: `fedgo.star.Star.at`
            to count the scalars, or `fedgo.star.answer` for a server that has the data itself.
    """
    langevin = Langevin() if langevin is None else langevin
    require_kind(isinstance(langevin, Langevin), "langevin", langevin, "give a Langevin, or None")
    x, y, mask = (values.flatten(1, 2) for values in shards)
    total = shards.mask.sum((1, 2)).clamp(min=1)
    w = torch.zeros(len(total), model.size, dtype=torch.float64)
    noise = langevin_noise(generators, len(w) // len(generators), model.size)

    def answers(w: Tensor) -> Message[tuple[Tensor, Tensor]]:
        """Return the squared errors, which Algorithm 2 does not send, and the gradients, summed over clients."""
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
    """Yield the standard normal noise (R, d_w) float32 of one round of Algorithm 2 after the other, without an end.

    Each generator draws the noise of 64 rounds at once, as one array with the axes (round, fit, coordinate). Another
    implementation of Algorithm 2 that keeps this order draws the same noise.

    Args:
        generators: The sources of the noise, in the order of the fits.
        share: The number of fits for which each generator draws, R divided by their number.
        size: The dimension d_w.
    """
    while True:
        shape = (_ROUNDS_AT_ONCE, share, size)
        draws = [torch.randn(shape, generator=source, dtype=torch.float32) for source in generators]
        yield from torch.cat(draws, 1)


def last(iterates: Iterator[Iterate]) -> Iterate:
    """Run Algorithm 2 to its end and return its last iterate: ŵ₀ and its training loss."""
    return deque(iterates, maxlen=1)[0]
