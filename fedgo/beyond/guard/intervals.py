"""Intervals that contain f(x) for every arm, client and step at once, and the certificate that follows from them.

A client computes the interval [L(x), U(x)] of each arm x from counts and sums of rewards. If L ≤ f ≤ U, then the regret
r_t = max f − f(x_t) of any pull x_t is at most its certificate

    q_t = max{0, max_{x ≠ x_t} U(x) − L(x_t)},

because r_t is 0 if x_t is the best arm.
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
    """The confidence interval [L, U] for the mean reward f(x) of each of K arms.

    ``lower`` is L, ``upper`` is U, and ``gain`` is the log-ratio of determinants that the next pull of the arm adds to
    the client's sum, which triggers a synchronisation, (..., K) each. If L > U, the interval is empty, and the bounds
    on f and on the noise from which it was computed are refuted.
    """

    lower: Tensor
    upper: Tensor
    gain: Tensor

    @property
    def price(self) -> Tensor:
        """The certificate q(x) = max{0, max_{y ≠ x} U(y) − L(x)} of pulling each arm x, (..., K)."""
        best, leader = self.upper.max(-1, keepdim=True)
        second = self.upper.scatter(-1, leader, -torch.inf).amax(-1, keepdim=True)
        return (best.expand_as(self.upper).scatter(-1, leader, second) - self.lower).clamp(min=0)

    def certificate(self, arm: Tensor) -> Tensor:
        """Return the certificate q of pulling ``arm`` (...), which is the `price` of that arm, (...)."""
        return self.price.gather(-1, arm.unsqueeze(-1)).squeeze(-1)

    @property
    def refuted(self) -> Tensor:
        """Whether the interval of some arm is empty by more than rounding explains, (...) bool."""
        rounding = _ROUNDING * torch.maximum(self.lower.abs(), self.upper.abs())
        return (self.lower - self.upper > rounding).any(-1)

    def within(self, other: "Interval") -> "Interval":
        """Return the intersection of this interval and ``other`` for each arm, with the ``gain`` of this one."""
        lower, upper = torch.maximum(self.lower, other.lower), torch.minimum(self.upper, other.upper)
        return Interval(lower, upper, self.gain)


class Intervals(Protocol):
    """A rule that turns counts and sums into intervals that hold for all clients and steps with probability 1 − δ."""

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """Return the interval of each arm, (R, L, K), for L clients (or L steps) of R runs.

        Args:
            known: The pulls and summed rewards of each arm that each client knows, (R, L, K).
            syncs: The number p of synchronisations so far, (R, L).
            run: The numbers of the R runs among all S runs, (R,); None means all of them.
            shared: The pulls and summed rewards that all clients knew after the last synchronisation, (R, L or 1, K).
        """
        ...


@dataclass(frozen=True)
class Bounds:
    """The numbers that every rule for intervals needs.

    Args:
        clients: N.
        sigma: σ, such that the noise is σ-sub-Gaussian.
        value: F, a bound on |f(x)| for every arm x.
        delta: δ; the intervals hold with probability at least 1 − δ.

    Raises:
        ValueError: If N is below 1, σ or F is not positive, or δ is not in (0, 1).
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
    """Return [m − c, m + c] within [−F, F] for each arm; m is ``mean``, c is ``radius``, (..., K), F is ``value``."""
    return Interval((mean - radius).clamp(min=-value), (mean + radius).clamp(max=value), gain)


def outside(trace: Trace, means: Tensor, intervals: Intervals, phase_one: bool) -> Tensor:
    """Return for each run whether f was outside of some interval at some step of Phase II, (S,) bool.

    If the rule is valid, this happens with probability at most δ. Only a simulation knows f.

    Args:
        trace: S runs.
        means: f, (S, K).
        intervals: The rule. It is applied before each step to what the client that pulls knew then.
        phase_one: Whether the clients also know the data of Phase I.
    """
    left = torch.zeros(len(trace.arm), dtype=torch.bool)
    for known in knowledge(trace, means.shape[1], phase_one):
        interval, f = intervals.after(known.tally, known.syncs, shared=known.shared), means.unsqueeze(1)
        left |= ((interval.lower > f) | (interval.upper < f)).flatten(1).any(1)
    return left
