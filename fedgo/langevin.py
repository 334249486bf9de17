"""The oracle of Phase I: Distributed-GLD-Update (Algorithm 2), gradient Langevin dynamics with a server and clients.

One round is w ← w − τ₁∇L̂(w) + √(2τ₁/τ₂)z with ∇L̂(w) = (1/T₀) Σ_i ∇L̂_i(w). Here w (d_w,) is the parameter of the
network, L̂_i is the sum of squared errors on the data of client i (eq. 2), T₀ the number of data of all clients, τ₁ the
step size, τ₂ the inverse temperature, and z (d_w,) standard normal noise.
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
    """The settings of gradient Langevin dynamics (Algorithm 2), which fits a network: rounds, step size and noise.

    A round is w ← w − τ₁∇L̂(w) + √(2τ₁/τ₂)z, with the network's parameter w, the mean squared error L̂ on the data and
    standard normal noise z. The inverse temperature τ₂ grows geometrically from ``hot`` in the first round to ``cold``
    in the last; a single round has ``hot``. With ``hot == cold`` it is constant, as in the paper.

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
        """Return the inverse temperature τ₂ of each of the n rounds, as a list of n numbers.

        The inverse temperatures grow geometrically from ``hot`` to ``cold``; a single round has ``hot``.
        """
        ratio = self.cold / self.hot
        return [self.hot * ratio ** (k / max(self.rounds - 1, 1)) for k in range(self.rounds)]


class Shards(NamedTuple):
    """The data of each of N clients in R systems, padded to m data for each client.

    A system is one fit of a parameter to the data of its N clients. If the clients of a run fit together, there is one
    system for each run. If every client fits alone, there is one system with N = 1 for each client of each run.

    Args:
        x: The features of the pulled arms, of dimension d_x, (R, N, m, d_x) float64.
        y: The rewards, (R, N, m) float64; the padding is finite too.
        mask: 1 for data and 0 for padding, (R, N, m) float64.
    """

    x: Tensor
    y: Tensor
    mask: Tensor


class Iterate(NamedTuple):
    """The state of Algorithm 2 before a round or after the last one: the parameter and the training loss of R fits.

    ``w`` (R, d_w) is the parameter of each fit, of d_w numbers, and ``loss`` (R,) the mean squared error of ``w`` on
    all data of the fit; it is 0 for a fit without data.
    """

    w: Tensor
    loss: Tensor


def langevin_rounds(
    model: Parametric,
    shards: Shards,
    langevin: Langevin | None,
    generators: Sequence[torch.Generator],
    ask: Ask,
) -> Iterator[Iterate]:
    """Yield the n + 1 iterates of Algorithm 2 from w = 0, with one exchange between server and clients in each of n
    rounds.

    A round is w ← w − τ₁∇L̂(w) + √(2τ₁/τ₂)z, with the mean squared error L̂ on the data, the step size τ₁, the inverse
    temperature τ₂ and standard normal noise z. R fits are made at once: one for each run, or one for each client of
    each run. Only the first n iterates cost an exchange, because the last one is not sent to the clients. The function
    is a generator: it computes a round, and makes its checks, when the next iterate is asked for.

    Args:
        model: The parametric class F, with a parameter w of dimension d_w.
        shards: The data of N clients in each of the R fits, m ≥ 1 for each client with the padding.
        langevin: The settings of Algorithm 2, with the number n of rounds, or None for the default ones.
        generators: The sources of the noise z, whose number divides R. Each draws for an equal share of the R fits, and
            fits that share a generator are neighbours.
        ask: A function that carries w (R, 1, d_w) to the clients and the sums of their squared errors and gradients
            back. `fedgo.star.Star.at` returns a function that counts the scalars sent; `fedgo.star.answer` is the
            function for a server that has the data itself.

    Yields:
        The parameter w (R, d_w) before each round, and after the last one, with its training loss (R,).

    Raises:
        ValueError: The last iterate is not finite, because the iterates diverge or a reward is not finite; or a
            `fedgo.network.Network` has another d_x than the data.
        TypeError: ``langevin`` is neither a `Langevin` nor None.
        RuntimeError: The number of generators does not divide R, or m is 0.
    """
    langevin = Langevin() if langevin is None else langevin
    require_kind(isinstance(langevin, Langevin), "langevin", langevin, "give a Langevin, or None")
    x, y, mask = (values.flatten(1, 2) for values in shards)
    total = shards.mask.sum((1, 2)).clamp(min=1)
    w = torch.zeros(len(total), model.size, dtype=torch.float64)
    noise = langevin_noise(generators, len(w) // len(generators), model.size)

    def answers(w: Tensor) -> Message[tuple[Tensor, Tensor]]:
        """Return a message with the squared errors (R,) and their gradients (R, d_w) at ``w`` (R, 1, d_w), summed over
        clients.

        There are R fits of d_w parameters. Only the d_w scalars of a client's gradient are counted as sent. The errors
        cost nothing, because Algorithm 2 does not need them; they only tell the caller how good the fit is.
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
    """Yield the standard normal noise z of one round of Algorithm 2 after the other, without an end.

    The noise of a round is a tensor (R, d_w) float32 for R fits. Each generator draws the noise of 64 rounds at once,
    as one array with the axes (round, fit, coordinate). Another implementation of Algorithm 2 that keeps this order
    draws the same noise.

    Args:
        generators: The sources of the noise, in the order of the fits; at least one.
        share: The number of fits for which each generator draws, R divided by the number of generators.
        size: The dimension d_w of the parameter.
    """
    while True:
        shape = (_ROUNDS_AT_ONCE, share, size)
        draws = [torch.randn(shape, generator=source, dtype=torch.float32) for source in generators]
        yield from torch.cat(draws, 1)


def last(iterates: Iterator[Iterate]) -> Iterate:
    """Run Algorithm 2 to its end and return its last iterate: the fitted parameter ŵ₀ and its training loss.

    ``iterates`` are those of `langevin_rounds`, whose rounds and checks are made only now.

    Raises:
        ValueError: The last iterate is not finite, because the iterates diverge or a reward is not finite; or the
            network's d_x is not that of the data.
        TypeError: The settings that `langevin_rounds` was given are neither a `Langevin` nor None.
    """
    return deque(iterates, maxlen=1)[0]
