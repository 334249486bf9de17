"""Optimism on counts: every client plays the arm with the largest upper end U of the intervals from counts and sums.

Any `Intervals` rule can give the intervals [L, U]. With those of Theorem S this is Fed-GO-UCB with a radius and a λ for
which its regret is proved: the certificate of a step is q_t ≤ U(x_t) − L(x_t) ≤ min(2F, 2√β w_t). A client synchronises
when the number of its pulls since the last synchronisation, times the sum of their log-ratios, exceeds γ. Then all
clients send their counts and sums to the server, and the server sends all clients what is new in them.
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
from fedgo.phase_one import Start
from fedgo.phase_two import place
from fedgo.problem import Problem
from fedgo.simulation import simulate
from fedgo.star import Message, Star, When
from fedgo.trace import Trace


class Counted(NamedTuple):
    """The state of an `Optimist`: what its N clients know in S runs with K arms.

    Args:
        fresh: Counts and sums of each client's own pulls since the last synchronisation, (S, N, K) each.
        gain: The sum of the log-ratios of these pulls for each client, (S, N).
        server: Counts and sums of all data up to the last synchronisation, (S, K) each.
        syncs: The number p of synchronisations so far, (S,).
        interval: The interval of each arm from what each client knows now, (S, N, K).
        band: The intersection of all intervals that each client has seen, (S, N, K). All of them hold at once if the
            bounds on f and on the noise are true, so that an empty intersection refutes these bounds.
    """

    fresh: Tally
    gain: Tensor
    server: Tally
    syncs: Tensor
    interval: Interval
    band: Interval

    @property
    def shared(self) -> Tally:
        """The counts and sums of all data up to the last synchronisation, (S, 1, K) each."""
        return Tally(*(part.unsqueeze(1) for part in self.server))

    @property
    def known(self) -> Tally:
        """The counts and sums of all data that each client knows, (S, N, K) each."""
        return self.shared + self.fresh


@dataclass(frozen=True)
class Optimist:
    """A `Learner` whose N clients play the arm with the largest upper end U of their intervals.

    Args:
        learners: The number N of clients.
        intervals: The rule that computes the intervals from counts and sums.
        first: The counts and sums that all clients know when Phase II begins, (S, K) each.
        gamma: γ, the threshold of the event. A client synchronises when the number of its pulls since the last
            synchronisation, times the sum of their log-ratios, exceeds γ.

    Raises:
        ValueError: N is below 1, or γ is negative or NaN.
        TypeError: N is not a whole number, or γ is not a number.
    """

    learners: int
    intervals: Intervals
    first: Tally
    gamma: float = 1.0

    def __post_init__(self) -> None:
        count("learners", self.learners, "give N, at least one client")
        check_event(self.gamma)

    def begin(self) -> Counted:
        """Return the state in which every client knows the data ``first`` and nothing else."""
        return self.resume(self.first, torch.zeros(len(self.first.counts), dtype=torch.int64))

    def resume(self, server: Tally, syncs: Tensor, run: Tensor | None = None) -> Counted:
        """Return the state of R runs right after a synchronisation, when all clients know the data of the server.

        Args:
            server: Counts and sums of all data, (R, K) each.
            syncs: The number p of synchronisations so far, (R,).
            run: The positions of the R runs among all S runs, (R,) int64; None means all S runs.
        """
        (runs, arms), learners = server.counts.shape, self.learners
        shared = Tally(*(part.unsqueeze(1) for part in server))
        interval = self.intervals.after(shared, syncs.unsqueeze(-1), run, shared=shared)
        interval = Interval(*(part.expand(-1, learners, -1) for part in interval))
        gain = torch.zeros(runs, learners, dtype=torch.float64)
        return Counted(Tally.blank(runs, learners, arms), gain, server, syncs, interval, interval)

    def index(self, state: Counted) -> Tensor:
        """Return the upper end U of each arm's interval for each client, (S, N, K)."""
        return state.interval.upper

    def notes(self, state: Counted, index: Tensor, arm: Tensor) -> Mapping[str, Tensor]:
        """Return the notes on each client's pull of ``arm`` (S, N); the argument ``index`` is not used.

        The note ``certificate`` (S, N) is the bound q on the regret of the pull. The note ``refuted`` (S, N) bool says
        whether the intervals that the client has seen so far have an empty intersection for some arm.
        """
        return {"certificate": state.interval.certificate(arm), "refuted": state.band.refuted}

    def fires(self, state: Counted, arm: Tensor) -> Tensor:
        """Return whether each client's pull of ``arm`` (S, N) would make its event fire, (S, N) bool.

        The event fires if the number of its pulls since the last synchronisation, times the sum of their log-ratios,
        exceeds γ.
        """
        pulls = state.fresh.counts.sum(-1) + 1
        return pulls * (state.gain + of_arm(state.interval.gain, arm)) > self.gamma

    def learn(self, state: Counted, arm: Tensor, reward: Tensor, turn: Tensor) -> Counted:
        """Return the state after the clients with ``turn`` 1 pulled ``arm`` and received ``reward``, (S, N) each."""
        fresh = state.fresh.record(arm, reward, turn)
        gain = state.gain + turn * of_arm(state.interval.gain, arm)
        learnt = state._replace(fresh=fresh, gain=gain)
        interval = self.intervals.after(learnt.known, state.syncs.unsqueeze(-1), shared=state.shared)
        return learnt._replace(interval=interval, band=state.band.within(interval))

    def synchronise(self, state: Counted, star: Star, when: When) -> Counted:
        """Return the state after the runs in ``when`` exchanged counts and sums over ``star``.

        All clients of these runs send their counts and sums to the server and receive the totals of what is new.
        """
        run = when.run
        news = star.collect(counts_and_sums(state.fresh.of(run)), when).summed()
        server = state.server.of(run) + star.broadcast(counts_and_sums(news), when)
        news_known = self.resume(server, state.syncs[run] + 1, run)
        band = Interval(*(part[run] for part in state.band)).within(news_known.interval)
        return place(state, run, news_known._replace(band=band))


def check_event(gamma: float) -> None:
    """Refuse a threshold ``gamma`` of an event that is not a number of at least 0; it may be infinite.

    Raises:
        ValueError: γ is negative or NaN.
        TypeError: γ is not a number.
    """
    number("gamma", gamma, "give a threshold γ of at least 0 (inf: never)", least=0, infinite=True)


def counts_and_sums(tally: Tally) -> Message[Tally]:
    """Return the message with the count and the sum of each arm in ``tally`` (R, ..., K), with its cost in scalars.

    For k pulls of K arms the cost is 2 min(k, K).
    """
    return Message(tally, scalars("counts", 1, tally.counts.sum(-1), tally.counts.shape[-1]))


def of_arm(values: Tensor, arm: Tensor) -> Tensor:
    """Return the entry of ``values`` (..., K) at each ``arm`` (...) int64, (...)."""
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
    """Play Fed-GO-UCB with the regularisation λ and the radius of Theorem S, which give a certificate for every step.

    Args:
        problem: S runs of a problem with K arms.
        start: Phase I, with one ŵ₀ for all clients. The K gradients at ŵ₀ have to be linearly independent.
        value: F, a bound on |f(x)| for every arm x.
        sigma: σ, such that the noise of a reward is σ-sub-Gaussian; None means the σ of the problem.
        delta: The failure probability δ; the certificates hold with probability at least 1 − δ.
        gamma: γ, the threshold of the event. A client synchronises when the number of its pulls since the last
            synchronisation, times the sum of their log-ratios, exceeds γ.

    Returns:
        The trace of both phases. Its note ``certificate`` is a bound q_t on the regret of each step, and 2F in Phase I.
        If the intervals that a client has seen so far have an empty intersection for some arm, the note ``refuted`` is
        true and the client's certificate is 2F from then on.

    Raises:
        ValueError: F, σ, δ or γ is out of its range, the gradients are linearly dependent, or each client has a ŵ₀ of
            its own.
        TypeError: F, σ, δ or γ is not a number.
    """
    intervals = exact_intervals(problem, start, value, sigma, delta)
    learner = Optimist(start.clients, intervals, Tally.blank(*problem.means.shape), gamma)
    steps = start.clients * start.rounds
    trace = simulate("Fed-GO-UCB, exact", problem, learner, start.exploration, start.clients, steps)
    return with_trivial(trace, value)


def with_trivial(trace: Trace, value: float) -> Trace:
    """Return ``trace`` with the certificate set to 2F in Phase I and wherever the client's bounds are refuted.

    The note ``certificate`` of ``trace`` is overwritten. F = ``value`` bounds |f(x)| for every arm x.
    """
    certificate, refuted = trace.notes["certificate"], trace.notes["refuted"]
    certificate[:, : trace.phase_one] = 2 * value
    certificate[refuted] = 2 * value
    return trace
