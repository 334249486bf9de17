"""Confidence intervals that contain the mean reward f(x) of every arm x, for all clients and steps at once.

A client computes the interval [L(x), U(x)] of each arm x from the counts and sums of rewards that it knows. If
L ≤ f ≤ U for all arms, then the regret r_t = max f − f(x_t) of the pull of an arm x_t at step t is at most its
certificate

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
    """The confidence interval [L, U] for the mean reward f(x) of each of K arms x.

    If L > U for some arm, its interval is empty, which refutes the bounds on f and on the noise from which it was
    computed.

    Args:
        lower: The lower end L of each arm, (..., K).
        upper: The upper end U of each arm, (..., K).
        gain: The log-ratio of the next pull of each arm, (..., K). It is what this pull would add to the
            log-determinant of the client's precision matrix, for instance ln(1 + 1/(1 + n)) if that matrix is
            I + diag(n), with the n pulls of the arm that the client knows. A client sums these log-ratios over its own
            pulls, and the sum decides when it asks for a synchronisation.
    """

    lower: Tensor
    upper: Tensor
    gain: Tensor

    @property
    def price(self) -> Tensor:
        """The certificate q(x) = max{0, max_{y ≠ x} U(y) − L(x)} of each of K arms x, (..., K).

        [L(x), U(x)] is the interval of the arm x. If the intervals contain the mean rewards of all arms, q(x) bounds
        the regret of pulling x. A single arm (K = 1) with a finite L has the certificate 0.
        """
        best, leader = self.upper.max(-1, keepdim=True)
        second = self.upper.scatter(-1, leader, -torch.inf).amax(-1, keepdim=True)
        return (best.expand_as(self.upper).scatter(-1, leader, second) - self.lower).clamp(min=0)

    def accepts(self, kappa: float) -> Tensor:
        """Return for each of K arms whether a guard may play it when it is proposed, (..., K) bool.

        It may if the certificate of the arm, a bound on the regret of pulling it (`price`), is at most κ(U − L), with
        the factor κ = ``kappa`` and the interval [L, U] of the arm. An arm with an empty interval, L > U, may not.
        """
        return self.price <= kappa * (self.upper - self.lower)

    @property
    def refuted(self) -> Tensor:
        """Whether the interval [L, U] of some arm is empty, for intervals (..., K) of K arms, (...) bool.

        An empty interval refutes the bounds on the mean rewards and on the noise from which it was computed. It counts
        as empty if L − U is more than 1e-9·max(|L|, |U|), which allows for rounding.
        """
        rounding = _ROUNDING * torch.maximum(self.lower.abs(), self.upper.abs())
        return (self.lower - self.upper > rounding).any(-1)

    def within(self, other: "Interval") -> "Interval":
        """Return the intersection of the interval of each of K arms with that of the same arm in ``other``.

        The shapes (..., K) of the two broadcast. An intersection may be empty, with a lower end above its upper end.
        The field ``gain`` of the result is that of this object, unchanged.
        """
        lower, upper = torch.maximum(self.lower, other.lower), torch.minimum(self.upper, other.upper)
        return Interval(lower, upper, self.gain)


class Intervals(Protocol):
    """The interface of a rule that computes an interval for each arm from counts and sums of rewards.

    If the bounds that the rule is given are true (F on the mean rewards, σ on the noise), the intervals of a rule with
    the failure probability δ contain the mean rewards of all arms, for all clients and steps at once, with probability
    at least 1 − δ. `fedgo.beyond.guarantees.optimist.Ucb1`, a rule without a failure
    probability, makes no such promise.
    """

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """Return the interval of each arm, (R, L, K), for L clients (or L steps of one client) of R runs with K arms.

        The result also has the field ``gain`` (`Interval`), from which a client decides when it asks for a
        synchronisation.

        Args:
            known: The number of pulls and the sum of rewards of each arm that each client knows, (R, L, K) each.
            syncs: The number p of synchronisations so far, (R, L) int64, or (R, 1) if it is the same for all L.
            run: The positions of the R runs among all S runs, (R,) int64; None means all S runs.
            shared: The pulls and summed rewards that all clients knew after the last synchronisation,
                (R, L or 1, K) each.
        """
        ...


@dataclass(frozen=True)
class Bounds:
    """The numbers that every rule needs whose intervals contain the mean rewards with a given probability.

    Args:
        clients: The number N of clients.
        sigma: σ, such that the noise of a reward is σ-sub-Gaussian.
        value: F, a bound on |f(x)| for the mean reward f(x) of every arm x.
        delta: The failure probability δ; the intervals hold with probability at least 1 − δ.

    Raises:
        ValueError: N is below 1, σ or F is not positive and finite, or δ is not in (0, 1).
        TypeError: N is not a whole number, or σ, F or δ is not a number.
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
    """Return the intersection of the interval [m − c, m + c] with [−F, F] for each of K arms; it may be empty.

    Args:
        mean: The centre m of each interval, (..., K).
        radius: The half-width c ≥ 0 of each interval, (..., K); it may be infinite.
        value: F, a bound on |f(x)| for the mean reward f(x) of every arm x.
        gain: What the next pull of each arm would add to the log-determinant of the client's precision matrix
            (`Interval`), (..., K). The result holds it unchanged.
    """
    return Interval((mean - radius).clamp(min=-value), (mean + radius).clamp(max=value), gain)


def outside(trace: Trace, means: Tensor, intervals: Intervals, phase_one: bool) -> Tensor:
    """Return for each run whether some arm's mean reward was outside its interval at some step of Phase II, (S,) bool.

    If the rule has the failure probability δ, this happens with probability at most δ. Only a simulation can tell,
    because it knows the mean rewards. A mean reward at an end of its interval is not outside.

    Args:
        trace: The trace of S runs.
        means: The mean reward of each of K arms, (S, K).
        intervals: The rule that computes the intervals. It is applied before each step to what the client that pulls
            knew then.
        phase_one: Whether the clients also know the data of Phase I; if not, these data do not count.

    Raises:
        RuntimeError: An arm in the trace has a number of K or above.
    """
    left = torch.zeros(len(trace.arm), dtype=torch.bool)
    for known in knowledge(trace, means.shape[1], phase_one):
        interval, f = intervals.after(known.tally, known.syncs, shared=known.shared), means.unsqueeze(1)
        left |= ((interval.lower > f) | (interval.upper < f)).flatten(1).any(1)
    return left
