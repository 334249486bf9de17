"""Optimism on counts: every client plays the arm with the largest upper end U of the intervals from counts and sums.

The intervals [L, U] come from any `Intervals` rule. With those of Theorem S this is Fed-GO-UCB with a radius and a λ
for which its regret is proved: the certificate of a step is q_t ≤ U(x_t) − L(x_t) ≤ min(2F, 2√β w_t). With those of
`Ucb1` it is UCB1: a round costs O(NK) operations for N clients and K arms, where covariances between the arms would
cost O(NK²). A client synchronises when the number of its pulls since the last synchronisation, times the sum of their
log-ratios, exceeds γ. Then all clients send counts and sums up, and the server sends down what is new in them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, number, on_cpu
from fedgo.beyond.guard.exact import exact_intervals
from fedgo.beyond.guard.intervals import Interval, Intervals
from fedgo.confidence import Tally
from fedgo.messages import scalars
from fedgo.phase_one import Exploration, Start
from fedgo.phase_two import place, require_run
from fedgo.problem import Problem
from fedgo.simulation import simulate
from fedgo.star import Message, Star, When
from fedgo.trace import Trace


class Counted(NamedTuple):
    """The state of an `Optimist`: what its N clients know in S runs with K arms.

    ``fresh`` has the counts and sums of each client's own pulls since the last synchronisation, (S, N, K), and ``gain``
    (S, N) the sum of their log-ratios. ``server`` has the counts and sums of all data up to that synchronisation, (S,
    K), and ``syncs`` (S,) is the number p of synchronisations so far. ``interval`` has the interval of every arm from
    what each client knows now, (S, N, K). ``band`` is the intersection of all intervals that the client has seen. They
    hold at once if the bounds on f and on the noise are true, so that an empty one refutes these bounds.
    """

    fresh: Tally
    gain: Tensor
    server: Tally
    syncs: Tensor
    interval: Interval
    band: Interval

    @property
    def known(self) -> Tally:
        """The counts and sums of all data that each client knows, (S, N, K)."""
        return self.server.for_all() + self.fresh


@dataclass(frozen=True)
class Optimist:
    """A `Learner` whose clients play the arm with the largest upper end U of their intervals.

    Args:
        learners: The number N of clients.
        intervals: The rule that makes the intervals.
        first: The counts and sums that all clients know when Phase II begins, (S, K).
        gamma: γ, the threshold of the event.

    Raises:
        ValueError: If N is below 1, or γ is negative or not a number.
    """

    learners: int
    intervals: Intervals
    first: Tally
    gamma: float = 1.0

    def __post_init__(self) -> None:
        count("learners", self.learners, "give N, at least one client")
        check_event(self.gamma)

    def begin(self) -> Counted:
        """Return the state in which every client knows the first data and nothing else."""
        return self.resume(self.first, torch.zeros(len(self.first.counts), dtype=torch.int64))

    def resume(self, server: Tally, syncs: Tensor, run: Tensor | None = None) -> Counted:
        """Return the state of R runs right after a synchronisation, when all clients know the data of the server.

        Args:
            server: Counts and sums of all data, (R, K).
            syncs: The number p of synchronisations so far, (R,).
            run: The numbers of the R runs among all S runs, (R,); None means all of them.
        """
        (runs, arms), learners = server.counts.shape, self.learners
        shared = server.for_all()
        interval = self.intervals.after(shared, syncs.unsqueeze(-1), run, shared=shared)
        interval = Interval(*(part.expand(-1, learners, -1) for part in interval))
        gain = torch.zeros(runs, learners, dtype=torch.float64)
        return Counted(Tally.blank(runs, learners, arms), gain, server, syncs, interval, interval)

    def index(self, state: Counted) -> Tensor:
        """Return the upper end U of each arm's interval, (S, N, K)."""
        return state.interval.upper

    def notes(self, state: Counted, index: Tensor, arm: Tensor) -> Mapping[str, Tensor]:
        """Return each client's ``certificate`` q of ``arm``, and ``refuted``: is its band empty for an arm? (S, N)"""
        return {"certificate": state.interval.certificate(arm), "refuted": state.band.refuted}

    def fires(self, state: Counted, arm: Tensor) -> Tensor:
        """Return whether the pull of ``arm`` (S, N) makes the event of each client fire, (S, N) bool."""
        pulls = state.fresh.counts.sum(-1) + 1
        return pulls * (state.gain + of_arm(state.interval.gain, arm)) > self.gamma

    def learn(self, state: Counted, arm: Tensor, reward: Tensor, turn: Tensor) -> Counted:
        """Return the state after the clients with ``turn`` 1 pulled ``arm`` and saw ``reward``, (S, N) each."""
        fresh = state.fresh.record(arm, reward, turn)
        gain = state.gain + turn * of_arm(state.interval.gain, arm)
        learnt = state._replace(fresh=fresh, gain=gain)
        shared = state.server.for_all()
        interval = self.intervals.after(learnt.known, state.syncs.unsqueeze(-1), shared=shared)
        return learnt._replace(interval=interval, band=state.band.within(interval))

    def synchronise(self, state: Counted, star: Star, when: When) -> Counted:
        """Return the state after all clients sent counts and sums up and received what is new in them."""
        run = when.run
        news = star.collect(counts_and_sums(state.fresh.of(run)), when).summed()
        server = state.server.of(run) + star.broadcast(counts_and_sums(news), when)
        news_known = self.resume(server, state.syncs[run] + 1, run)
        band = Interval(*(part[run] for part in state.band)).within(news_known.interval)
        return place(state, run, news_known._replace(band=band))


def check_event(gamma: float) -> None:
    """Refuse a threshold γ = ``gamma`` that is negative or not a number; it may be infinite."""
    number("gamma", gamma, "give a threshold γ of at least 0 (inf: never)", least=0, infinite=True)


def counts_and_sums(tally: Tally) -> Message[Tally]:
    """Return the message with the count and the sum of each arm of ``tally`` (R, ..., K), at its cost in scalars."""
    return Message(tally, scalars("counts", 1, tally.counts.sum(-1), tally.counts.shape[-1]))


def of_arm(values: Tensor, arm: Tensor) -> Tensor:
    """Return the entry of ``values`` (..., K) at ``arm`` (...)."""
    return values.gather(-1, arm.unsqueeze(-1)).squeeze(-1)


@on_cpu
def exact_go_ucb(
    problem: Problem,
    start: Start,
    value: float,
    *,
    sigma: float | None = None,
    delta: float = 0.1,
    gamma: float = 1.0,
) -> Trace:
    """Play Fed-GO-UCB with the λ and the radius of Theorem S, which certify every step.

    Args:
        problem: S runs of a problem with K arms.
        start: Phase I, with one ŵ₀ for all clients. The gradients at ŵ₀ have to be linearly independent.
        value: F, a bound on |f(x)| for every arm x.
        sigma: σ, such that the noise is σ-sub-Gaussian; None means the σ of the problem.
        delta: δ; the certificates hold with probability at least 1 − δ.
        gamma: γ, the threshold of the event.

    Returns:
        The trace of both phases. Its note ``certificate`` is a bound q_t on the regret of each step, and 2F in Phase I.
        If the intervals that a client has seen so far have an empty intersection for some arm, the note ``refuted`` is
        true and the client's certificate is 2F from then on.

    Raises:
        ValueError: If F, σ, δ or γ is out of its range, if the gradients are linearly dependent, or if the clients have
            several ŵ₀.
    """
    intervals = exact_intervals(problem, start, value, sigma, delta)
    learner = Optimist(start.clients, intervals, Tally.blank(*problem.means.shape), gamma)
    steps = start.clients * start.rounds
    trace = simulate("Fed-GO-UCB, exact", problem, learner, start.exploration, start.clients, steps)
    return with_trivial(trace, value)


def with_trivial(trace: Trace, value: float) -> Trace:
    """Return ``trace`` with the certificate 2F, F = ``value``, in Phase I and where a client's bounds are refuted."""
    certificate, refuted = trace.notes["certificate"], trace.notes["refuted"]
    certificate[:, : trace.phase_one] = 2 * value
    certificate[refuted] = 2 * value
    return trace


@dataclass(frozen=True)
class Ucb1:
    """The rule mean ± √(2β ln t/n) for the interval of each arm, as UCB1 uses it.

    The interval of an arm that was never pulled is the whole line. Source: Auer, Cesa-Bianchi and Fischer, Machine
    Learning 2002.

    Args:
        beta: β, the weight of the width.

    Raises:
        ValueError: If β is negative or not finite.
    """

    beta: float

    def __post_init__(self) -> None:
        number("beta", self.beta, "give a finite β, at least 0", least=0)

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """Return the intervals of every arm as `Intervals.after` does, from ``known`` alone."""
        n = known.counts
        pulls, t = n.clamp(min=1), n.sum(-1, keepdim=True).clamp(min=1)
        mean = known.sums / pulls
        width = torch.where(n > 0, (2 * self.beta * t.log() / pulls).sqrt(), torch.inf)
        return Interval(mean - width, mean + width, (1 / (1 + n)).log1p())


class Uncertified(Optimist):
    """An `Optimist` whose intervals are no bounds, so that its traces have no certificate."""

    def notes(self, state: object, index: Tensor, arm: Tensor) -> dict[str, Tensor]:
        """Return no notes."""
        return {}


@on_cpu
def optimistic_ucb1(problem: Problem, clients: int, steps: int, beta: float, gamma: float = 1.0) -> Trace:
    """Play UCB1 on counts that N clients exchange when an event fires.

    Client i synchronises when n_i·Σ ln(1 + 1/(1 + n)) > γ over its own n_i pulls since the last synchronisation. Counts
    and sums of the arms that it pulled go up, and what is new in them comes down to all.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        steps: The number NT of pulls, all clients together.
        beta: β, the weight of the width in the index mean + √(2β ln t/n).
        gamma: The threshold γ of the event. With infinity the clients never synchronise.

    Returns:
        The trace of all runs, without notes.
    """
    require_run(problem, clients, steps)
    learner = Uncertified(clients, Ucb1(beta), Tally.blank(*problem.means.shape), gamma)
    return simulate("UCB1, counted", problem, learner, Exploration.nothing(len(problem.runs)), clients, steps)
