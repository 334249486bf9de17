"""Confidence intervals that contain the mean reward f(x) of every arm x, for all clients and steps at once.

A client computes the interval [L(x), U(x)] of each of K arms from the counts and sums of rewards that it knows. If L ≤
f ≤ U for all arms, then the regret r_t = max f − f(x_t) of the pull of an arm x_t at step t is at most its certificate

    q_t = max{0, max_{x ≠ x_t} U(x) − L(x_t)},

because r_t is 0 if x_t is the best arm. A rule computes intervals (R, L, K): R of S runs, and L clients, or L steps of
one client. F bounds |f|, the noise is σ-sub-Gaussian, N is the number of clients and p that of synchronisations so far.
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
    """The confidence interval [L, U] of each arm. An empty one, L > U, refutes the bounds from which it was computed.

    Args:
        lower: The lower end L of each arm, (..., K).
        upper: The upper end U of each arm, (..., K).
        gain: What the next pull of each arm would add to the log-determinant of the client's precision matrix, (...,
            K), for instance ln(1 + 1/(1 + n)) after n pulls. The sum over a client's own pulls decides when it asks for
            a synchronisation.
    """

    lower: Tensor
    upper: Tensor
    gain: Tensor

    @property
    def price(self) -> Tensor:
        """The certificate q(x) = max{0, max_{y ≠ x} U(y) − L(x)} of each arm, (..., K); that of a single arm is 0."""
        best, leader = self.upper.max(-1, keepdim=True)
        second = self.upper.scatter(-1, leader, -torch.inf).amax(-1, keepdim=True)
        return (best.expand_as(self.upper).scatter(-1, leader, second) - self.lower).clamp(min=0)

    def accepts(self, kappa: float) -> Tensor:
        """Return whether a guard may play each arm: q ≤ κ(U − L), which no empty interval fulfils, (..., K) bool."""
        return self.price <= kappa * (self.upper - self.lower)

    @property
    def refuted(self) -> Tensor:
        """Whether the interval of some arm is empty by more than rounding, (...) bool."""
        rounding = _ROUNDING * torch.maximum(self.lower.abs(), self.upper.abs())
        return (self.lower - self.upper > rounding).any(-1)

    def within(self, other: "Interval") -> "Interval":
        """Return the intersections with the intervals of ``other``, which may be empty; ``gain`` is unchanged."""
        lower, upper = torch.maximum(self.lower, other.lower), torch.minimum(self.upper, other.upper)
        return Interval(lower, upper, self.gain)


class Intervals(Protocol):
    """A rule that computes an interval for each arm from counts and sums of rewards.

    If F and σ are true, the intervals of a rule with the failure probability δ contain the mean rewards of all arms,
    for all clients and steps at once, with probability at least 1 − δ.
    """

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """Return the interval of each arm and its ``gain``, (R, L, K).

        Args:
            known: The number of pulls and the sum of rewards of each arm that each client knows, (R, L, K) each.
            syncs: The number p of synchronisations so far, (R, L) int64, or (R, 1) if it is the same for all L.
            run: The positions of the R runs among all S runs, (R,) int64; None means all S runs.
            shared: What all clients knew after the last synchronisation, (R, L or 1, K) each.
        """
        ...


@dataclass(frozen=True)
class Bounds:
    """The numbers that every rule with a failure probability needs.

    Args:
        clients: The number N of clients.
        sigma: σ > 0, such that the noise of a reward is σ-sub-Gaussian.
        value: F > 0, a bound on |f|.
        delta: The failure probability δ.
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
    """Return [m − c, m + c] within [−F, F] for each arm, with m = ``mean`` and c = ``radius``, (..., K)."""
    return Interval((mean - radius).clamp(min=-value), (mean + radius).clamp(max=value), gain)


def outside(trace: Trace, means: Tensor, intervals: Intervals, phase_one: bool) -> Tensor:
    """Return for each run whether some mean reward left its interval at some step of Phase II, (S,) bool.

    Args:
        trace: The trace of S runs.
        means: The mean rewards, (S, K), which only a simulation knows.
        intervals: The rule, applied before each step to what the client that pulls knew then.
        phase_one: Whether the clients also know the data of Phase I.
    """
    left = torch.zeros(len(trace.arm), dtype=torch.bool)
    for known in knowledge(trace, means.shape[1], phase_one):
        interval, f = intervals.after(known.tally, known.syncs, shared=known.shared), means.unsqueeze(1)
        left |= ((interval.lower > f) | (interval.upper < f)).flatten(1).any(1)
    return left
