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
    """An interval for the mean reward of each arm, and the log-ratio of its next pull, (..., K) each.

    ``lower`` is L and ``upper`` is U. L > U means that nothing is left of the interval, so that the bounds it was made
    with are refuted. ``gain`` is the log-ratio.
    """

    lower: Tensor
    upper: Tensor
    gain: Tensor

    @property
    def price(self) -> Tensor:
        """q = max{0, max_{y ≠ x} U_y − L_x} of pulling each arm x, (..., K); no arm competes with itself."""
        best, leader = self.upper.max(-1, keepdim=True)
        second = self.upper.scatter(-1, leader, -torch.inf).amax(-1, keepdim=True)
        return (best.expand_as(self.upper).scatter(-1, leader, second) - self.lower).clamp(min=0)

    def certificate(self, arm: Tensor) -> Tensor:
        """Return the `price` q of pulling ``arm`` (...), (...)."""
        return self.price.gather(-1, arm.unsqueeze(-1)).squeeze(-1)

    @property
    def refuted(self) -> Tensor:
        """Whether the interval of some arm is empty, beyond rounding, (...) bool."""
        rounding = _ROUNDING * torch.maximum(self.lower.abs(), self.upper.abs())
        return (self.lower - self.upper > rounding).any(-1)

    def within(self, other: "Interval") -> "Interval":
        """Return the intersection of both intervals of each arm, with the ``gain`` of this one."""
        lower, upper = torch.maximum(self.lower, other.lower), torch.minimum(self.upper, other.upper)
        return Interval(lower, upper, self.gain)


class Intervals(Protocol):
    """A rule that turns counts and sums into intervals that hold for all clients and steps with probability 1 − δ."""

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """Return the interval of each arm, (R, L, K), for L clients or steps of some runs.

        Args:
            known: The pulls and summed rewards that each of them knows, (R, L, K).
            syncs: The number of synchronisations so far, (R, L).
            run: The numbers of the runs, (R,); all if it is None.
            shared: What all clients knew after the last synchronisation.
        """
        ...


@dataclass(frozen=True)
class Bounds:
    """What intervals need to be given: N = ``clients``, σ = ``sigma``, F = ``value`` ≥ |f|, and the probability δ =
    ``delta``.
    """

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
    """Return the interval [m − c, m + c] ∩ [−F, F] with m = ``mean``, c = ``radius`` and F = ``value``, (..., K)."""
    return Interval((mean - radius).clamp(min=-value), (mean + radius).clamp(max=value), gain)


def outside(trace: Trace, means: Tensor, intervals: Intervals, phase_one: bool) -> Tensor:
    """Return whether f leaves the interval of some arm before some step of Phase II, (S,) bool.

    With probability 1 − δ it does not. Only a simulation knows f.

    Args:
        trace: The runs.
        means: f, (S, K).
        intervals: The rule, which is asked after what each client knew.
        phase_one: Whether the clients also know the data of Phase I.
    """
    left = torch.zeros(len(trace.arm), dtype=torch.bool)
    for known in knowledge(trace, means.shape[1], phase_one):
        interval, f = intervals.after(known.tally, known.syncs, shared=known.shared), means.unsqueeze(1)
        left |= ((interval.lower > f) | (interval.upper < f)).flatten(1).any(1)
    return left
