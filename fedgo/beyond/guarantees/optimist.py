"""Optimism on counts: every client plays the arm with the largest upper end U of the intervals from counts and sums.

Any `Intervals` rule can give the intervals [L, U] of the mean rewards f, |f| ≤ F. With those of Theorem S this is
Fed-GO-UCB with a radius √β and a regularisation λ for which its regret is proved: the certificate of step t is q_t ≤
U(x_t) − L(x_t) ≤ min(2F, 2√β w_t), where w_t is the width of the pulled arm's posterior. With the intervals of `Ucb1`
it is UCB1 with the event and the messages of a guard, at O(NK) operations a round instead of O(NK²).

There are S runs, N clients and K arms, arrays (S, N, K). A client synchronises when the number of its pulls since the
last synchronisation, times the sum of their gains (`Interval.gain`), exceeds γ. Then all clients send their counts and
sums to the server, and the server sends all clients what is new in them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import number, on_cpu
from fedgo.beyond.guarantees.exact import exact_intervals
from fedgo.beyond.guarantees.intervals import Interval, Intervals
from fedgo.confidence import Tally, of_arm
from fedgo.messages import scalars
from fedgo.phase_one import Exploration, Start
from fedgo.phase_two import place, require_run
from fedgo.problem import Problem
from fedgo.simulation import simulate
from fedgo.star import Message, Star, When
from fedgo.trace import Trace


class Counted(NamedTuple):
    """What the clients of an `Optimist` know.

    Args:
        fresh: Counts and sums of each client's own pulls since the last synchronisation, (S, N, K) each.
        gain: The sum of the gains of these pulls, (S, N).
        server: Counts and sums of all data up to the last synchronisation, (S, K) each.
        syncs: The number p of synchronisations so far, (S,) int64.
        interval: The interval of each arm from what each client knows now, (S, N, K).
        band: The intersection of all intervals that each client has seen, (S, N, K); an empty one refutes the bounds.
    """

    fresh: Tally
    gain: Tensor
    server: Tally
    syncs: Tensor
    interval: Interval
    band: Interval


@dataclass(frozen=True)
class Optimist:
    """A `Learner` whose clients play the arm with the largest upper end U.

    Args:
        learners: The number N of clients.
        intervals: The rule that computes the intervals.
        first: The counts and sums that all clients know when Phase II begins, (S, K) each.
        gamma: The threshold γ ≥ 0.
    """

    learners: int
    intervals: Intervals
    first: Tally
    gamma: float = 1.0

    def __post_init__(self) -> None:
        check_event(self.gamma)

    def begin(self) -> Counted:
        """Return the state in which all clients know ``first``, and nothing else."""
        return self.resume(self.first, torch.zeros(len(self.first.counts), dtype=torch.int64))

    def resume(self, server: Tally, syncs: Tensor, run: Tensor | None = None) -> Counted:
        """Return the state of R runs (None: all) right after a synchronisation with the data ``server`` (R, K)."""
        (runs, arms), learners = server.counts.shape, self.learners
        shared = server.for_all()
        interval = self.intervals.after(shared, syncs.unsqueeze(-1), run, shared=shared)
        interval = Interval(*(part.expand(-1, learners, -1) for part in interval))
        gain = torch.zeros(runs, learners, dtype=torch.float64)
        return Counted(Tally.blank(runs, learners, arms), gain, server, syncs, interval, interval)

    def index(self, state: Counted) -> Tensor:
        """Return U, (S, N, K)."""
        return state.interval.upper

    def notes(self, state: Counted, index: Tensor, arm: Tensor) -> Mapping[str, Tensor]:
        """Return ``certificate`` (S, N), which bounds the pull's regret, and ``refuted``: an empty band."""
        return {"certificate": of_arm(state.interval.price, arm), "refuted": state.band.refuted}

    def fires(self, state: Counted, arm: Tensor) -> Tensor:
        """Return whether the event of each client would occur with the pull of ``arm``, (S, N) bool."""
        pulls = state.fresh.counts.sum(-1) + 1
        return pulls * (state.gain + of_arm(state.interval.gain, arm)) > self.gamma

    def learn(self, state: Counted, arm: Tensor, reward: Tensor, turn: Tensor) -> Counted:
        """Return the state after the pulls of the clients with ``turn`` 1."""
        fresh = state.fresh.record(arm, reward, turn)
        gain = state.gain + turn * of_arm(state.interval.gain, arm)
        shared = state.server.for_all()
        interval = self.intervals.after(shared + fresh, state.syncs.unsqueeze(-1), shared=shared)
        band = state.band.within(interval)
        return state._replace(fresh=fresh, gain=gain, interval=interval, band=band)

    def synchronise(self, state: Counted, star: Star, when: When) -> Counted:
        """Return the state after the runs of ``when`` have exchanged their counts and sums over ``star``."""
        run = when.run
        news = star.collect(counts_and_sums(state.fresh.of(run)), when).summed()
        server = state.server.of(run) + star.broadcast(counts_and_sums(news), when)
        news_known = self.resume(server, state.syncs[run] + 1, run)
        band = Interval(*(part[run] for part in state.band)).within(news_known.interval)
        return place(state, run, news_known._replace(band=band))


def check_event(gamma: float) -> None:
    """Refuse a threshold γ that is not a number of at least 0; it may be infinite."""
    number("gamma", gamma, "give a threshold γ of at least 0 (inf: never)", least=0, infinite=True)


def counts_and_sums(tally: Tally) -> Message[Tally]:
    """Return a message with the counts and sums of K arms, at 2 min(k, K) scalars for k pulls."""
    return Message(tally, scalars("counts", 1, tally.counts.sum(-1), tally.counts.shape[-1]))


@on_cpu
def exact_go_ucb(start: Start, value: float, *, delta: float = 0.1, gamma: float = 1.0) -> Trace:
    """Play Fed-GO-UCB with the regularisation λ and the radius of Theorem S, which give a certificate for every step.

    Args:
        start: Phase I, with one ŵ₀ for all clients and linearly independent gradients there.
        value: F, a bound on |f(x)| for every arm x.
        delta: The failure probability δ; the certificates hold with probability at least 1 − δ.
        gamma: The threshold γ ≥ 0 of the event.

    Returns:
        The trace of both phases. Its note ``certificate`` bounds the regret of each step; it is 2F in Phase I, and from
        the step on at which a client's intervals so far have an empty intersection, where ``refuted`` is True.

    Raises:
        ValueError: A number is out of range, the gradients are linearly dependent, each client has a ŵ₀ of its own, or
            ``start`` was made on another problem.
        TypeError: F, δ or γ is not a number.
    """
    intervals = exact_intervals(start, value, delta)
    problem, steps = start.problem, start.clients * start.rounds
    learner = Optimist(start.clients, intervals, Tally.blank(*problem.means.shape), gamma)
    trace = simulate("Fed-GO-UCB, exact", problem, learner, start.exploration, start.clients, steps)
    return with_trivial(trace, value)


def with_trivial(trace: Trace, value: float) -> Trace:
    """Return ``trace`` with the certificate set to 2F, in place, in Phase I and wherever ``refuted`` is True."""
    certificate, refuted = trace.notes["certificate"], trace.notes["refuted"]
    certificate[:, : trace.phase_one] = 2 * value
    certificate[refuted] = 2 * value
    return trace


@dataclass(frozen=True)
class Ucb1:
    """The rule of UCB1, mean ± √(2β ln t/n) after n pulls of the arm and t of all; the whole line for n = 0.

    It has no failure probability. Source: Auer, Cesa-Bianchi and Fischer, Machine Learning 2002.

    Args:
        beta: β ≥ 0, the weight of the width; UCB1 has β = 1 for rewards from 0 to 1.
    """

    beta: float

    def __post_init__(self) -> None:
        number("beta", self.beta, "give a finite β, at least 0", least=0)

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """Return the intervals from the data ``known`` alone, with the ``gain`` ln(1 + 1/(1 + n))."""
        n = known.counts
        pulls, t = n.clamp(min=1), n.sum(-1, keepdim=True).clamp(min=1)
        mean = known.sums / pulls
        width = torch.where(n > 0, (2 * self.beta * t.log() / pulls).sqrt(), torch.inf)
        return Interval(mean - width, mean + width, (1 / (1 + n)).log1p())


class Uncertified(Optimist):
    """An `Optimist` for intervals that need not contain the mean rewards, so that its traces have no certificate."""

    def notes(self, state: object, index: Tensor, arm: Tensor) -> dict[str, Tensor]:
        """Return no note."""
        return {}


@on_cpu
def optimistic_ucb1(problem: Problem, clients: int, steps: int, beta: float, gamma: float = 1.0) -> Trace:
    """Play UCB1 with N clients that exchange counts and sums when an event fires.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        steps: The number NT of pulls by all clients together.
        beta: β ≥ 0, the weight of the width in the index mean + √(2β ln t/n) (`Ucb1`).
        gamma: The threshold γ ≥ 0 of n_i·Σ ln(1 + 1/(1 + n)) over a client's n_i pulls since the last synchronisation,
            where n counts the pulls of the arm that it knew before each; ∞ for no synchronisation.

    Raises:
        ValueError: N or ``steps`` is below 1, β is negative or not finite, or γ is negative or NaN.
        TypeError: ``problem`` is not a `Problem`, or a number is of another kind.
    """
    require_run(problem, clients, steps)
    learner = Uncertified(clients, Ucb1(beta), Tally.blank(*problem.means.shape), gamma)
    return simulate("UCB1, counted", problem, learner, Exploration.nothing(len(problem.runs)), clients, steps)
