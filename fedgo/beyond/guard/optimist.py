"""Optimism on counts: every client plays the arm of the largest upper end U that its counts and sums allow.

Any `Intervals` will do. With those of Theorem S this is Fed-GO-UCB with a radius and a λ for which its regret is
proved: each step's certificate is q_t ≤ (U − L)(x_t) ≤ min(2F, 2√b w_t). Client i synchronises when n_i times the
log-ratio of its own n_i pulls since the last time exceeds γ; then all send counts and sums up, and their news comes
down.
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
    """What the clients of an `Optimist` know, for S runs, N clients and K arms.

    ``fresh`` are the counts and sums of each client's own pulls since the last synchronisation, (S, N, K), and ``gain``
    (S, N) their log-ratio. ``server`` are the counts and sums of all data up to that synchronisation, (S, K), and
    ``syncs`` (S,) is the number p of synchronisations so far. ``interval`` is that of every arm by what each client
    knows now, (S, N, K). ``band`` is the intersection of all intervals that the client has seen: they hold at once, so
    that bounds that leave an empty one are refuted.
    """

    fresh: Tally
    gain: Tensor
    server: Tally
    syncs: Tensor
    interval: Interval
    band: Interval

    @property
    def shared(self) -> Tally:
        """All data up to the last synchronisation, (S, 1, K)."""
        return Tally(*(part.unsqueeze(1) for part in self.server))

    @property
    def known(self) -> Tally:
        """All data that each client knows, (S, N, K), with rewards as sums."""
        return self.shared + self.fresh


@dataclass(frozen=True)
class Optimist:
    """N = ``learners`` clients that play the arm with the largest upper end U of ``intervals``.

    ``first`` (S, K) is what all clients know when Phase II begins, and ``gamma`` is the threshold γ of the event.
    """

    learners: int
    intervals: Intervals
    first: Tally
    gamma: float = 1.0

    def __post_init__(self) -> None:
        count("learners", self.learners, "give N, at least one client")
        check_event(self.gamma)

    def begin(self) -> Counted:
        """Return the state in which the clients know what all know, and nothing else."""
        return self.resume(self.first, torch.zeros(len(self.first.counts), dtype=torch.int64))

    def resume(self, server: Tally, syncs: Tensor, run: Tensor | None = None) -> Counted:
        """Return the state right after a synchronisation that left all clients of some runs with the data ``server``
        (R, K).

        ``syncs`` (R,) is the number p of synchronisations, and ``run`` (R,) the numbers of the runs, all if it is None.
        """
        (runs, arms), learners = server.counts.shape, self.learners
        shared = Tally(*(part.unsqueeze(1) for part in server))
        interval = self.intervals.after(shared, syncs.unsqueeze(-1), run, shared=shared)
        interval = Interval(*(part.expand(-1, learners, -1) for part in interval))
        gain = torch.zeros(runs, learners, dtype=torch.float64)
        return Counted(Tally.blank(runs, learners, arms), gain, server, syncs, interval, interval)

    def index(self, state: Counted) -> Tensor:
        """Return the upper end U of each arm's interval, (S, N, K)."""
        return state.interval.upper

    def notes(self, state: Counted, index: Tensor, arm: Tensor) -> Mapping[str, Tensor]:
        """Return the ``certificate`` q_t ≥ r_t of pulling ``arm`` (S, N), and whether the client's bounds are
        ``refuted``.
        """
        return {"certificate": state.interval.certificate(arm), "refuted": state.band.refuted}

    def fires(self, state: Counted, arm: Tensor) -> Tensor:
        """Return whether n_i times the log-ratio exceeds γ with this pull, (S, N) bool."""
        pulls = state.fresh.counts.sum(-1) + 1
        return pulls * (state.gain + of_arm(state.interval.gain, arm)) > self.gamma

    def learn(self, state: Counted, arm: Tensor, reward: Tensor, turn: Tensor) -> Counted:
        """Return the state in which the pull is counted and its reward added up."""
        fresh = state.fresh.record(arm, reward, turn)
        gain = state.gain + turn * of_arm(state.interval.gain, arm)
        learnt = state._replace(fresh=fresh, gain=gain)
        interval = self.intervals.after(learnt.known, state.syncs.unsqueeze(-1), shared=state.shared)
        return learnt._replace(interval=interval, band=state.band.within(interval))

    def synchronise(self, state: Counted, star: Star, when: When) -> Counted:
        """Return the state after counts and sums went up and what is new in them came down to all."""
        run = when.run
        news = star.collect(counts_and_sums(state.fresh.of(run)), when).summed()
        server = state.server.of(run) + star.broadcast(counts_and_sums(news), when)
        news_known = self.resume(server, state.syncs[run] + 1, run)
        band = Interval(*(part[run] for part in state.band)).within(news_known.interval)
        return place(state, run, news_known._replace(band=band))


def check_event(gamma: float) -> None:
    """Refuse a threshold γ that is negative or not a number; it may be infinite."""
    number("gamma", gamma, "give a threshold γ of at least 0 (inf: never)", least=0, infinite=True)


def counts_and_sums(tally: Tally) -> Message[Tally]:
    """Return the message that carries the count and the sum of each arm of ``tally`` (R, ..., K)."""
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
    """Play Fed-GO-UCB with the λ and the radius of Theorem S, and note a certificate of every step.

    The rewards are y_t = f(x_t) + η_t with σ-sub-Gaussian noise η_t. The trace's ``certificate`` q_t is 2F in Phase I;
    in Phase II r_t ≤ q_t at all steps with probability at least 1 − δ, given that |f| ≤ F.

    Args:
        problem: S runs of a problem with K arms.
        start: Phase I, with ŵ₀ common to all clients. The gradients at ŵ₀ have to be linearly independent.
        value: F, a bound on |f(x)| for every arm x.
        sigma: σ, the problem's own unless given.
        delta: δ.
        gamma: γ, the threshold of the event.

    Returns:
        The trace of both phases. If the intervals that a client has seen so far have an empty intersection for some
        arm, ``refuted`` is true and its certificate is 2F from then on.
    """
    intervals = exact_intervals(problem, start, value, sigma, delta)
    learner = Optimist(start.clients, intervals, Tally.blank(*problem.means.shape), gamma)
    steps = start.clients * start.rounds
    trace = simulate("Fed-GO-UCB, exact", problem, learner, start.exploration, start.clients, steps)
    return with_trivial(trace, value)


def with_trivial(trace: Trace, value: float) -> Trace:
    """Return ``trace`` with the certificate 2F in Phase I, and from where a client finds its bounds refuted."""
    certificate, refuted = trace.notes["certificate"], trace.notes["refuted"]
    certificate[:, : trace.phase_one] = 2 * value
    certificate[refuted] = 2 * value
    return trace
