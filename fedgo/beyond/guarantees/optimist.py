"""Optimism on counts: every client plays the arm with the largest upper end U of the intervals from counts and sums.

Any `Intervals` rule can give the intervals [L, U] of the mean rewards f. With those of Theorem S this is Fed-GO-UCB
with a radius √β and a regularisation λ for which its regret is proved. The certificate of step t is then
q_t ≤ U(x_t) − L(x_t) ≤ min(2F, 2√β w_t), where x_t is the pulled arm, w_t the width of its posterior, and F a bound on
|f|. With the intervals of `Ucb1` it is UCB1 with the event and the messages of a guard. A round then costs O(NK)
operations for N clients and K arms, where covariances between the arms would cost O(NK²).

A client synchronises when the number of its pulls since the last synchronisation, times the sum of their log-ratios
(`Interval.gain`), exceeds γ. Then all clients send their counts and sums to the server, and the server sends all
clients what is new in them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import number, on_cpu
from fedgo.beyond.guarantees.exact import exact_intervals
from fedgo.beyond.guarantees.intervals import Interval, Intervals
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

    Args:
        fresh: Counts and sums of each client's own pulls since the last synchronisation, (S, N, K) each.
        gain: The sum over these pulls, for each client, of what each pull adds to the log-determinant of the client's
            precision matrix (`Interval.gain`), (S, N).
        server: Counts and sums of all data up to the last synchronisation, (S, K) each.
        syncs: The number p of synchronisations so far, (S,) int64.
        interval: The interval of each arm from what each client knows now, (S, N, K).
        band: The intersection of all intervals that each client has seen, (S, N, K). If the bounds on the mean rewards
            and on the noise are true, all these intervals hold at once with high probability, so that an empty
            intersection refutes the bounds.
    """

    fresh: Tally
    gain: Tensor
    server: Tally
    syncs: Tensor
    interval: Interval
    band: Interval


@dataclass(frozen=True)
class Optimist:
    """A `Learner` whose N clients play the arm with the largest upper end U of their intervals.

    Args:
        learners: The number N of clients.
        intervals: The rule that computes the intervals from counts and sums.
        first: The counts and sums that all clients know when Phase II begins, (S, K) each for S runs and K arms.
        gamma: γ, the threshold for a synchronisation. A client synchronises when the number of its pulls since the last
            one, times the sum of the gains of these pulls, exceeds γ. The gain of a pull is what it adds to the
            log-determinant of the client's precision matrix (`Interval.gain`).

    Raises:
        ValueError: γ is negative or NaN.
        TypeError: γ is not a number.
    """

    learners: int
    intervals: Intervals
    first: Tally
    gamma: float = 1.0

    def __post_init__(self) -> None:
        check_event(self.gamma)

    def begin(self) -> Counted:
        """Return the state of all N clients in S runs at the beginning of Phase II.

        All clients then know the counts and sums in the field ``first``, and nothing else.
        """
        return self.resume(self.first, torch.zeros(len(self.first.counts), dtype=torch.int64))

    def resume(self, server: Tally, syncs: Tensor, run: Tensor | None = None) -> Counted:
        """Return the state of R runs right after a synchronisation, when all clients know the data of the server.

        The ``band`` of this state, the intersection of all intervals seen, is that of the present intervals alone.

        Args:
            server: Counts and sums of all data for each of K arms, (R, K) each.
            syncs: The number p of synchronisations so far, (R,) int64.
            run: The positions of the R runs among all S runs, (R,) int64; None means all S runs.
        """
        (runs, arms), learners = server.counts.shape, self.learners
        shared = server.for_all()
        interval = self.intervals.after(shared, syncs.unsqueeze(-1), run, shared=shared)
        interval = Interval(*(part.expand(-1, learners, -1) for part in interval))
        gain = torch.zeros(runs, learners, dtype=torch.float64)
        return Counted(Tally.blank(runs, learners, arms), gain, server, syncs, interval, interval)

    def index(self, state: Counted) -> Tensor:
        """Return the upper end U of the interval of each of K arms for each of N clients in S runs, (S, N, K)."""
        return state.interval.upper

    def notes(self, state: Counted, index: Tensor, arm: Tensor) -> Mapping[str, Tensor]:
        """Return the notes on each client's pull, by name, for N clients in S runs.

        Args:
            state: The state before the pull.
            index: Not used.
            arm: The arm that each client pulls, (S, N) int64.

        Returns:
            ``certificate`` (S, N), the bound q on the regret of the pull (`Interval.price`), and ``refuted`` (S, N)
            bool, whether the intervals that the client has seen so far have an empty intersection for some arm.
        """
        return {"certificate": of_arm(state.interval.price, arm), "refuted": state.band.refuted}

    def fires(self, state: Counted, arm: Tensor) -> Tensor:
        """Return whether each of N clients in S runs would ask for a synchronisation after its pull, (S, N) bool.

        A client does so if the number of its pulls since the last synchronisation, times the sum of the gains of these
        pulls, exceeds the threshold γ. Both include this pull. The gain of a pull is what it adds to the
        log-determinant of the client's precision matrix (`Interval.gain`).

        Args:
            state: The state before the pull.
            arm: The arm that each client pulls, (S, N) int64.
        """
        pulls = state.fresh.counts.sum(-1) + 1
        return pulls * (state.gain + of_arm(state.interval.gain, arm)) > self.gamma

    def learn(self, state: Counted, arm: Tensor, reward: Tensor, turn: Tensor) -> Counted:
        """Return the state after some of the N clients of S runs have made a pull.

        Args:
            state: The state before the pull.
            arm: The arm that each client pulls, (S, N) int64.
            reward: The reward that each client receives, (S, N).
            turn: 1 for the clients that make this pull, 0 for the others, (S, N) float64.
        """
        fresh = state.fresh.record(arm, reward, turn)
        gain = state.gain + turn * of_arm(state.interval.gain, arm)
        shared = state.server.for_all()
        interval = self.intervals.after(shared + fresh, state.syncs.unsqueeze(-1), shared=shared)
        band = state.band.within(interval)
        return state._replace(fresh=fresh, gain=gain, interval=interval, band=band)

    def synchronise(self, state: Counted, star: Star, when: When) -> Counted:
        """Return the state after a synchronisation of some runs, in which all their clients exchange counts and sums.

        Each client sends those of its pulls since the last synchronisation, and the server sends their totals to all.

        Args:
            state: The state before the synchronisation.
            star: The network over which clients and server send, which counts the scalars.
            when: The positions of the runs that synchronise, and the step of each at which the scalars are counted.
        """
        run = when.run
        news = star.collect(counts_and_sums(state.fresh.of(run)), when).summed()
        server = state.server.of(run) + star.broadcast(counts_and_sums(news), when)
        news_known = self.resume(server, state.syncs[run] + 1, run)
        band = Interval(*(part[run] for part in state.band)).within(news_known.interval)
        return place(state, run, news_known._replace(band=band))


def check_event(gamma: float) -> None:
    """Check that γ = ``gamma``, the threshold for a synchronisation, is a number of at least 0; it may be infinite.

    Raises:
        ValueError: γ is negative or NaN.
        TypeError: γ is not a number.
    """
    number("gamma", gamma, "give a threshold γ of at least 0 (inf: never)", least=0, infinite=True)


def counts_and_sums(tally: Tally) -> Message[Tally]:
    """Return a message with the counts and sums of K arms in ``tally``, (R, ..., K) each for R runs, and its cost.

    The cost is 2 min(k, K) scalars if the counts add up to k pulls, (R, ...) int64: two for each pull or for each arm.
    """
    return Message(tally, scalars("counts", 1, tally.counts.sum(-1), tally.counts.shape[-1]))


def of_arm(values: Tensor, arm: Tensor) -> Tensor:
    """Return for each entry of ``arm`` the value of this arm, one of K, in the same row of ``values``, (...).

    Args:
        values: A value for each of the K arms in each row, (..., K).
        arm: The number of an arm for each row, (...) int64.
    """
    return values.gather(-1, arm.unsqueeze(-1)).squeeze(-1)


@on_cpu
def exact_go_ucb(
    problem: Problem, start: Start, value: float, *, delta: float = 0.1, gamma: float = 1.0
) -> Trace:
    """Play Fed-GO-UCB with the regularisation λ and the radius of Theorem S, which give a certificate for every step.

    Args:
        problem: S runs of a problem with K arms. Its noise has to be σ-sub-Gaussian for its ``sigma``.
        start: Phase I on the same problem, with one ŵ₀ for all clients. The K gradients at ŵ₀ have to be linearly
            independent.
        value: F, a bound on |f(x)| for the mean reward f(x) of every arm x.
        delta: The failure probability δ; the certificates hold with probability at least 1 − δ.
        gamma: γ, the threshold for a synchronisation. A client synchronises when the number of its pulls since the last
            one, times the sum of ln(1 + w²) over these pulls, exceeds γ, where w is the posterior width of the pulled
            arm before the pull.

    Returns:
        The trace of both phases. Its note ``certificate`` is a bound q_t on the regret of each step, and 2F in Phase I.
        If the intervals that a client has seen so far have an empty intersection for some arm, the note ``refuted`` is
        true and the client's certificate is 2F from then on.

    Raises:
        ValueError: F or the σ of the problem is not positive and finite, δ is not in (0, 1), γ is negative or NaN, the
            gradients are linearly dependent, each client has a ŵ₀ of its own, or ``start`` was made on another problem.
        TypeError: F, δ or γ is not a number.
    """
    intervals = exact_intervals(problem, start, value, delta)
    learner = Optimist(start.clients, intervals, Tally.blank(*problem.means.shape), gamma)
    steps = start.clients * start.rounds
    trace = simulate("Fed-GO-UCB, exact", problem, learner, start.exploration, start.clients, steps)
    return with_trivial(trace, value)


def with_trivial(trace: Trace, value: float) -> Trace:
    """Return ``trace`` with the certificate set to 2F in Phase I and wherever the note ``refuted`` is true.

    A certificate is a bound on the regret of a pull. F = ``value`` bounds |f(x)| for the mean reward f(x) of every arm
    x, so that the regret is at most 2F. The note ``certificate`` of ``trace`` is overwritten in place.

    Raises:
        KeyError: The trace does not have the notes ``certificate`` and ``refuted``.
    """
    certificate, refuted = trace.notes["certificate"], trace.notes["refuted"]
    certificate[:, : trace.phase_one] = 2 * value
    certificate[refuted] = 2 * value
    return trace


@dataclass(frozen=True)
class Ucb1:
    """A rule that gives each arm the interval mean ± √(2β ln t/n), as UCB1 uses it.

    Here n counts the pulls of the arm that the client knows, and t those of all arms. The interval of an arm without
    such pulls is the whole line. These intervals come with no failure probability. Source: Auer, Cesa-Bianchi and
    Fischer, Machine Learning 2002.

    Args:
        beta: β ≥ 0, the weight of the width; UCB1 has β = 1 for rewards from 0 to 1.

    Raises:
        ValueError: β is negative or not finite.
        TypeError: β is not a number.
    """

    beta: float

    def __post_init__(self) -> None:
        number("beta", self.beta, "give a finite β, at least 0", least=0)

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """Return the interval of each of K arms, (R, L, K), for L clients (or L steps of one client) of R runs.

        It is mean ± √(2β ln t/n), with the mean of the arm's rewards, the n pulls of the arm and the t pulls of all
        arms that the client knows; for n = 0 it is the whole line. The ``gain`` of the result is ln(1 + 1/(1 + n)). A
        client sums the gains of its own pulls to decide when it synchronises.

        Args:
            known: The number of pulls and the summed rewards of each arm that each client knows, (R, L, K) each.
            syncs: Not used.
            run: Not used.
            shared: Not used.
        """
        n = known.counts
        pulls, t = n.clamp(min=1), n.sum(-1, keepdim=True).clamp(min=1)
        mean = known.sums / pulls
        width = torch.where(n > 0, (2 * self.beta * t.log() / pulls).sqrt(), torch.inf)
        return Interval(mean - width, mean + width, (1 / (1 + n)).log1p())


class Uncertified(Optimist):
    """An `Optimist` for intervals that need not contain the mean rewards, so that its traces have no certificate.

    Each of its N clients plays the arm with the largest upper end of its intervals. The fields are those of `Optimist`.
    """

    def notes(self, state: object, index: Tensor, arm: Tensor) -> dict[str, Tensor]:
        """Return an empty dictionary, because there is no certificate to note on a pull; no argument is used."""
        return {}


@on_cpu
def optimistic_ucb1(problem: Problem, clients: int, steps: int, beta: float, gamma: float = 1.0) -> Trace:
    """Play UCB1 with N clients that exchange counts and sums when an event fires.

    Client i asks for a synchronisation when n_i·Σ ln(1 + 1/(1 + n)) > γ over its own n_i pulls since the last
    synchronisation, where n counts the pulls of the arm that it knew before each of them. Then all clients send the
    counts and sums of the arms that they pulled to the server, and the server sends all clients what is new in them.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        steps: The number NT of pulls by all clients together.
        beta: β ≥ 0, the weight of the width in the index mean + √(2β ln t/n). n counts the pulls of the arm and t those
            of all arms that the client knows of.
        gamma: The threshold γ ≥ 0 for a synchronisation. With infinity the clients never synchronise.

    Returns:
        The trace of all runs, without notes.

    Raises:
        ValueError: N or ``steps`` is below 1, β is negative or not finite, or γ is negative or NaN.
        TypeError: ``problem`` is not a `Problem`, or a number is of another kind.
    """
    require_run(problem, clients, steps)
    learner = Uncertified(clients, Ucb1(beta), Tally.blank(*problem.means.shape), gamma)
    return simulate("UCB1, counted", problem, learner, Exploration.nothing(len(problem.runs)), clients, steps)
