"""Phase I (Algorithm 1, lines 1–2) and its oracle, Distributed-GLD-Update (Algorithm 2).

One round over the star: w ← w − τ₁ ∇L̂(w) + √(2τ₁/τ₂) z with ∇L̂(w) = (1/T₀) Σ_i ∇L̂_i(w), L̂_i the squared
error on client i's own data (eq. 2).
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo.checks import require, require_finite
from fedgo.network import Parametric
from fedgo.problem import Problem
from fedgo.star import Handler, Summed

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
        require(self.rounds >= 1, "rounds", self.rounds, "run at least one round")
        require(0 < self.step < math.inf, "step", self.step, "give a positive step size τ₁")
        require(
            0 < self.hot <= self.cold < math.inf,
            "(hot, cold)",
            (self.hot, self.cold),
            "give inverse temperatures with 0 < hot ≤ cold",
        )

    def inverse_temperatures(self) -> list[float]:
        """τ₂ of every round."""
        ratio = self.cold / self.hot
        return [self.hot * ratio ** (k / max(self.rounds - 1, 1)) for k in range(self.rounds)]


class Shards(NamedTuple):
    """Every client's own data: ``x`` (R, N, m, d_x), ``y`` and the 0/1 ``mask`` of real entries (R, N, m)."""

    x: Tensor
    y: Tensor
    mask: Tensor

    def apart(self) -> "Shards":
        """Each client as a system of its own: (R·N, 1, m, …)."""
        return Shards(*(part.flatten(0, 1).unsqueeze(1) for part in self))


class Exploration(NamedTuple):
    """The uniform pulls of Phase I: ``arm`` and ``reward`` (S, T₀), and the same dealt to the clients."""

    arm: Tensor
    reward: Tensor
    shards: Shards


Ask = Callable[[Handler, Tensor], Summed]


def phase_one_length(clients: int, rounds: int) -> int:
    """T₀ = ⌈√(NT)⌉ (Theorem 1)."""
    require(clients >= 1, "clients", clients, "give N, at least one client")
    require(rounds >= 1, "rounds", rounds, "give T, at least one round")
    return math.isqrt(clients * rounds - 1) + 1


def explore(problem: Problem, clients: int, length: int) -> Exploration:
    """T₀ = ``length`` uniform pulls, step t by client t mod N."""
    arms = problem.arms.shape[1]
    arm = torch.stack(
        [torch.randint(arms, (length,), generator=source) for source in problem.generators("pulls")]
    )
    reward = problem.observe(arm, problem.tape(length))
    x = problem.arms.gather(1, arm.unsqueeze(-1).expand(-1, -1, problem.arms.shape[2]))
    return Exploration(arm, reward, deal(x, reward, clients))


def deal(x: Tensor, y: Tensor, clients: int) -> Shards:
    """Deal the data ``x`` (R, T₀, d_x), ``y`` (R, T₀) round robin to ``clients`` clients, padded to equal length."""
    require(clients >= 1, "clients", clients, "give N, at least one client")
    require_finite("rewards y", y)
    length = -(-y.shape[1] // clients)
    pad = length * clients - y.shape[1]
    mask = torch.nn.functional.pad(torch.ones_like(y), (0, pad))
    x = torch.nn.functional.pad(x, (0, 0, 0, pad))
    y = torch.nn.functional.pad(y, (0, pad))
    return Shards(
        *(part.unflatten(1, (length, clients)).transpose(1, 2).contiguous() for part in (x, y, mask))
    )


class Iterate(NamedTuple):
    """``w`` (R, d_w) before a round of Algorithm 2, and the training loss L̂(w) (R,) there (never sent)."""

    w: Tensor
    loss: Tensor


def langevin_rounds(
    model: Parametric,
    shards: Shards,
    langevin: Langevin,
    generators: Sequence[torch.Generator],
    ask: Ask,
) -> Iterator[Iterate]:
    """The n + 1 iterates of Algorithm 2 from w = 0, one exchange through ``ask`` per round.

    ``ask(handler, w)`` carries w (R, 1, d_w) to the clients and the sum of their gradients back: a star's ``ask``,
    or `answer` where the data are at hand. ``generators`` give z, each for an equal share of the R rows of w. A
    ``ValueError`` if the iterates diverge.
    """
    data = [part.flatten(1, 2) for part in shards]
    total = shards.mask.sum((1, 2)).clamp(min=1)
    w = torch.zeros(len(total), model.size, dtype=torch.float64)
    loss = torch.zeros_like(total)
    share = len(w) // len(generators)

    def local_gradients(w: Tensor) -> Summed:
        nonlocal loss
        losses, gradients = model.squared_loss(w.squeeze(1), *data)
        loss = losses / total
        return Summed(gradients, model.size)

    noise = torch.empty(0)
    for k, cold in enumerate(langevin.inverse_temperatures()):
        if k % _CHUNK == 0:
            shape = (_CHUNK, share, model.size)
            noise = torch.cat([torch.randn(shape, generator=source) for source in generators], 1)
        gradient = ask(local_gradients, w.unsqueeze(1)).total / total.unsqueeze(-1)
        yield Iterate(w, loss)
        w = torch.add(w, gradient, alpha=-langevin.step)
        w.add_(noise[k % _CHUNK], alpha=math.sqrt(2 * langevin.step / cold))
    local_gradients(w.unsqueeze(1))
    require(
        bool(w.isfinite().all()),
        "the step size τ₁",
        langevin.step,
        "the oracle's iterates diverge; give a smaller one, or arms of smaller norm",
    )
    yield Iterate(w, loss)


def last(iterates: Iterator[Iterate]) -> Iterate:
    """Run the rounds to their end: ŵ₀ and its training loss."""
    return deque(iterates, maxlen=1)[0]
