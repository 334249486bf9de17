"""Intervals that contain f(x) for every arm, client and step at once, and the certificate q_t ≥ r_t they give.

They come from what a client knows, counts and sums of rewards. If L ≤ f ≤ U, whatever is played,
r_t ≤ max{0, max_{x ≠ x_t} U(x) − L(x_t)} = q_t, as r_t is 0 where x_t is the best arm.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedgo._checks import count, number
from fedgo.confidence import Tally
from fedgo.theory.assumptions import check_probability
from fedgo.theory.replay import knowledge
from fedgo.trace import Trace

_ROUNDING = 1e-9


class Interval(NamedTuple):
    """L = ``lower`` and U = ``upper`` of every arm, and the log-ratio ``gain`` of its next pull, all (..., K).

    L > U says that nothing is left of an interval, so that the bounds it was made with are refuted.
    """

    lower: Tensor
    upper: Tensor
    gain: Tensor

    @property
    def price(self) -> Tensor:
        """q = max{0, max_{y ≠ x} U_y − L_x} of pulling the arm x, (..., K): no arm competes with itself."""
        best, leader = self.upper.max(-1, keepdim=True)
        second = self.upper.scatter(-1, leader, -torch.inf).amax(-1, keepdim=True)
        return (best.expand_as(self.upper).scatter(-1, leader, second) - self.lower).clamp(min=0)

    def certificate(self, arm: Tensor) -> Tensor:
        """The `price` of pulling ``arm`` (...), (...)."""
        return self.price.gather(-1, arm.unsqueeze(-1)).squeeze(-1)

    @property
    def refuted(self) -> Tensor:
        """Whether the interval of some arm is empty, but for rounding, (...) bool."""
        rounding = _ROUNDING * torch.maximum(self.lower.abs(), self.upper.abs())
        return (self.lower - self.upper > rounding).any(-1)

    def within(self, other: "Interval") -> "Interval":
        """What both say of every arm; the ``gain`` is this one's."""
        lower, upper = torch.maximum(self.lower, other.lower), torch.minimum(self.upper, other.upper)
        return Interval(lower, upper, self.gain)


class Intervals(Protocol):
    """Whoever turns counts and sums into intervals that hold for all clients and steps with probability 1 − δ."""

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """For the runs ``run`` (all unless said), from ``known`` (R, L, K), pulls and summed rewards of L clients or
        steps, after ``syncs`` (R, L) synchronisations, of which the last one left everybody with ``shared``."""
        ...


@dataclass(frozen=True)
class Bounds:
    """What intervals for N = ``clients`` are given: ``sigma`` σ of the noise, F = ``value`` ≥ |f|, and ``delta`` δ."""

    clients: int
    sigma: float
    value: float
    delta: float = 0.1

    def __post_init__(self) -> None:
        count("clients", self.clients, "give N, at least one client")
        number("sigma", self.sigma, "give σ > 0, a bound on the noise", above=0)
        number("value", self.value, "give F > 0, a bound on |f|", above=0)
        check_probability(number("delta", self.delta, "give a failure probability δ in (0, 1)"))


def clipped(mean: Tensor, radius: Tensor, value: float, gain: Tensor) -> Interval:
    """[m − c, m + c] ∩ [−F, F] of ``mean`` and ``radius`` (..., K), F = ``value``, with the ``gain`` (..., K)."""
    return Interval((mean - radius).clamp(min=-value), (mean + radius).clamp(max=value), gain)


def outside(trace: Trace, means: Tensor, intervals: Intervals, phase_one: bool) -> Tensor:
    """Whether f = ``means`` (S, K) leaves [L, U] for some arm before some step of Phase II of ``trace``, (S,) bool.

    With probability 1 − δ it does not. ``intervals`` are asked after what each client knew, with ``phase_one`` the data
    of Phase I too. Only a simulation knows f.
    """
    left = torch.zeros(len(trace.arm), dtype=torch.bool)
    for known in knowledge(trace, means.shape[1], phase_one):
        found, f = intervals.after(known.tally, known.syncs, shared=known.shared), means.unsqueeze(1)
        left |= ((found.lower > f) | (found.upper < f)).flatten(1).any(1)
    return left
