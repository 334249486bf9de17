"""Theorems G and G′: a guard plays a proposed arm if counts and sums certify it, and the arm with the largest U if not.

The reward of step t is y_t = f(x_t) + η_t, with the mean reward f(x_t) of the pulled arm x_t, in Phase I too. For each
arm, every client knows the number n and the sum Y of the rewards up to the last synchronisation (Phase I included) and
of its own pulls since. Let |f| ≤ F on all K arms, let the noise η_t be σ-sub-Gaussian given the past, and let there be
N clients and p synchronisations so far. Then the intervals

    U, L = Y/n ± c within [−F, F],   c = h√(n + 1)/n,   h² = σ²(ln(1 + n) + 2 ln(π²NK(p + 1)²/(6δ)))     (G)

contain f(x) for all arms, clients and steps with probability 1 − δ. If all clients synchronise at the same step, each
interval may be intersected with that of all data up to the last synchronisation, both at δ′ = δ/2. A single client uses
only the interval of all data, at δ′ = δ. The interval of all data has

    h² = σ²(ln(1 + n) + 2 ln(K/δ′)).                                                                    (G′)

With several clients the intersections of (G′) are used only if ``Guarantee.simultaneous`` is True. If answers are late
or missing, the last step whose data have arrived differs from client to client. If lateness is independent of the
rewards, the intervals (G) and r_t ≤ q_t still hold, since it is known before the noise of a step whether a client has
that step's data after p synchronisations. `guard_regret` assumes that all clients answer at once.

The certificate of an arm a is q(a) = max{0, max_{x ≠ a} U(x) − L(a)}. The guard plays a proposed arm a if q(a) ≤
κ(U(a) − L(a)), with the price κ ≥ 1, and otherwise the arm with the largest U. A client i synchronises when
n_i·Σ ln(1 + 1/(1 + n)) > γ over its own n_i pulls since the last synchronisation, where n counts the pulls of the arm
that the client knew before each of them. Then all clients send their counts and sums to the server, and the server
sends all clients what is new in them. If the proposal depends only on the past and on random numbers that are
independent of the noise, then with probability 1 − δ

    r_t ≤ q_t = q(x_t),   Σ r_t ≤ Σ q_t ≤ `guard_regret`,

where r_t = max f − f(x_t) is the regret of step t, and the sums are over the NT steps of Phase II, with T rounds. If
the intervals that a client has seen so far have an empty intersection for some arm, its bounds are refuted, and its
certificate is 2F from then on.

The guard has limits. The arms are finite and public, and each has to be pulled, so that nothing is certified for K ≫
NT unless a kernel is given (`fedgo.beyond.guarantees.kernel`). σ and F have to be bounds; the theorem allows F =
max|f|, but an experiment should not use it, since it gives the optimum away. Nobody may choose an arm, report a reward
or be late because of something that they know about a reward beyond f. The guard does not say whether the proposal is
any good.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, number, on_cpu, require, require_kind
from fedgo.algorithms.go_ucb import fed_go_learner
from fedgo.beyond.guarantees.intervals import Bounds, Interval, Intervals, clipped
from fedgo.beyond.guarantees.optimist import (
    Counted,
    Optimist,
    check_event,
    counts_and_sums,
    of_arm,
    with_trivial,
)
from fedgo.confidence import Tally
from fedgo.messages import names_arms
from fedgo.phase_one import Exploration, Start
from fedgo.phase_two import Settings
from fedgo.problem import Problem
from fedgo.simulation import Learner, largest, order_of_ties, simulate
from fedgo.star import Ledger, Message, Star, When
from fedgo.theory.ball import information_bound, noise_radius
from fedgo.theory.regret import PhaseTwoRegret, regret_phase_two_clipped, synchronisations
from fedgo.trace import Trace


@dataclass(frozen=True)
class Guarantee:
    """The numbers that a guard needs: bounds on the mean rewards and on the noise, δ, the price κ and the threshold γ.

    A guard computes a confidence interval [L(x), U(x)] for the mean reward of each arm x. The certificate of the arm x
    is max{0, max_{y ≠ x} U(y) − L(x)}, a bound on the regret of pulling x.

    Args:
        value: F, a bound on |f(x)| for the mean reward f(x) of every arm x.
        sigma: σ, such that the noise of a reward is σ-sub-Gaussian.
        delta: The failure probability δ; the certificates of all pulls hold with probability at least 1 − δ.
        kappa: The price κ ≥ 1. A proposed arm is played if its certificate is at most κ times the length of its
            interval.
        gamma: γ, the threshold for a synchronisation. A client synchronises when the number of its pulls since the last
            one, times the sum of ln(1 + 1/(1 + n)) over these pulls, exceeds γ, where n counts the earlier pulls of the
            arm that the client knew. None means T/(NR) with R = K ln(1 + NT/K), for N clients, K arms and T rounds.
        simultaneous: Whether all clients take part in every synchronisation at one and the same step, as they do in the
            simulator. If True, several clients have the intersections of the intervals of Theorem G with those of
            Theorem G′ for all data up to the last synchronisation. If False, they have the intervals of Theorem G. A
            single client has those of Theorem G′ in either case.

    Raises:
        ValueError: F or σ is not positive and finite, δ is not in (0, 1), κ is below 1 or not finite, or γ is negative
            or NaN.
        TypeError: F, σ, δ, κ or γ is not a number.
    """

    value: float
    sigma: float
    delta: float = 0.1
    kappa: float = 2.0
    gamma: float | None = None
    simultaneous: bool = False

    def __post_init__(self) -> None:
        Bounds(1, self.sigma, self.value, self.delta)  # checks them
        number("kappa", self.kappa, "give κ ≥ 1, the price of a proposal", least=1)
        check_event(0.0 if self.gamma is None else self.gamma)

    def threshold(self, arms: int, clients: int, rounds: int) -> float:
        """Return the threshold γ of the event that starts a synchronisation.

        It is the field ``gamma``, or T/(NR) with R = K ln(1 + NT/K) if this field is None.

        Args:
            arms: The number K of arms, at least 1.
            clients: The number N of clients, at least 1.
            rounds: The number T of rounds, at least 1.
        """
        if self.gamma is not None:
            return self.gamma
        return rounds / (clients * information_bound(arms, clients * rounds, 1.0, 1.0))

    def intervals(self, clients: int) -> "TabularIntervals":
        """Return the rule by which N = ``clients`` clients compute the intervals of the arms from counts and sums.

        The rule has the F, the σ, the δ and the field ``simultaneous`` of this object.

        Raises:
            ValueError: N is below 1.
            TypeError: N is not a whole number.
        """
        return TabularIntervals(clients, self.sigma, self.value, self.delta, self.simultaneous)


@dataclass(frozen=True)
class TabularIntervals(Bounds):
    """The rule of Theorems G and G′, which computes the interval of each arm from the count and sum of this arm alone.

    After n pulls with the sum Y of rewards, the interval is Y/n ± h√(n + 1)/n, cut to [−F, F]. Theorem G has
    h² = σ²(ln(1 + n) + 2 ln(π²NK(p + 1)²/(6δ))) for K arms and p synchronisations so far, and Theorem G′ has
    h² = σ²(ln(1 + n) + 2 ln(K/δ)).

    Args:
        clients: The number N of clients.
        sigma: σ, such that the noise of a reward is σ-sub-Gaussian.
        value: F, a bound on |f(x)| for the mean reward f(x) of every arm x.
        delta: The failure probability δ; the intervals hold with probability at least 1 − δ.
        simultaneous: Whether all clients take part in every synchronisation at one and the same step. If True, the
            rewards that all clients know form one sequence for each arm. The interval is then the intersection of that
            of Theorem G, for all data that the client knows, and that of Theorem G′, for the data that all clients
            know, with δ/2 in place of δ in both. If False, it is that of Theorem G. A single client (N = 1) has the
            interval of Theorem G′ with δ in either case.

    Raises:
        ValueError: N is below 1, σ or F is not positive and finite, or δ is not in (0, 1).
        TypeError: N is not a whole number, or σ, F or δ is not a number.
    """

    simultaneous: bool = False

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """Return the interval of each of K arms, (R, L, K), for L clients (or L steps of one client) of R runs.

        An arm without pulls has the interval [−F, F], with the bound F on the mean rewards. The ``gain`` of the result
        is ln(1 + 1/(1 + n)) for each arm, with the n pulls of the arm that the client knows. A client sums the gains of
        its own pulls to decide when it synchronises.

        Args:
            known: The number of pulls and the summed rewards of each arm that each client knows, (R, L, K) each.
            syncs: The number p of synchronisations so far, (R, L) or (R, 1) int64. It is not used if N = 1.
            run: Not used, because all runs have the same F, σ and δ.
            shared: The pulls and summed rewards of each arm that all clients knew after the last synchronisation,
                (R, L or 1, K) each. They are used only if there are several clients and ``simultaneous`` is True.
        """
        if self.clients == 1:
            return self._around(known, None, self.delta)
        epoch = syncs.unsqueeze(-1)
        if not self.simultaneous:
            return self._around(known, epoch, self.delta)
        return self._around(known, epoch, self.delta / 2).within(self._around(shared, None, self.delta / 2))

    def _around(self, data: Tally, syncs: Tensor | None, delta: float) -> Interval:
        """Return the intervals Y/n ± h√(n + 1)/n of K arms, cut to [−F, F], (..., K).

        They contain the mean rewards at all steps with probability at least 1 − δ, if F bounds the mean rewards and the
        noise is σ-sub-Gaussian. An arm without pulls has the interval [−F, F].

        Args:
            data: The counts n and sums Y of the rewards of each arm, (..., K) each.
            syncs: The number p of synchronisations, (..., 1), for h² = σ²(ln(1 + n) + 2 ln(π²NK(p + 1)²/(6δ))), with N
                clients (Theorem G); None means h² = σ²(ln(1 + n) + 2 ln(K/δ)) (Theorem G′).
            delta: The failure probability δ.
        """
        n = data.counts
        members = n.shape[-1] * (1 if syncs is None else self.clients)
        h = noise_radius(n.log1p(), syncs, members=members, sigma=self.sigma, delta=delta)
        width = h * (n + 1).sqrt() / n
        return clipped(data.sums / n.clamp(min=1), width, self.value, (1 / (1 + n)).log1p())


class GuardState(NamedTuple):
    """The state of a `Guard`: what its clients know, and the state of the learner that proposes arms.

    Args:
        counted: The clients' counts and sums, and the intervals from them.
        proposer: The state of the learner that proposes arms, of the kind that its `begin` returns.
    """

    counted: Counted
    proposer: Any


@dataclass(frozen=True)
class Guard:
    """A `Learner` whose N clients play the arms that another learner proposes, if their intervals allow it.

    Args:
        optimist: The learner that holds the clients' counts, sums and intervals, and decides when they synchronise.
        proposal: The learner that proposes an arm for each client. Its choices have to be a function of counts, sums
            and public random numbers. It is synchronised when the guard is, and its own method ``fires`` is not called.
            Its messages are not counted, because counts and sums determine what they contain.
        kappa: The price κ ≥ 1. A proposed arm is played if its certificate, a bound on its regret (`Interval.price`),
            is at most κ times the length of its interval. Otherwise, or if an index of the proposal is NaN, the client
            plays the arm with the largest upper end of its interval. κ is not checked here.
        order: The order in which each client breaks ties, numbers of at least 0, (S, N, K) for S runs with K arms. Of
            tied arms the client plays the one with the largest number in ``order``.
        begun: The state of the proposal when Phase II begins; None means the one that its `begin` returns.
    """

    optimist: Optimist
    proposal: Learner[Any]
    kappa: float
    order: Tensor
    begun: Any = None

    @property
    def learners(self) -> int:
        """The number N of clients."""
        return self.optimist.learners

    def begin(self) -> GuardState:
        """Return the state before the first step of Phase II, for S runs with N clients.

        Raises:
            Exception: The learner that proposes arms cannot begin; the error is that of its ``begin``.
        """
        begun = self.proposal.begin() if self.begun is None else self.begun
        return GuardState(self.optimist.begin(), begun)

    def choose(self, state: GuardState) -> tuple[Tensor, Tensor]:
        """Return the arm that each of N clients plays in each of S runs, and whether the guard accepts its proposal.

        The proposed arm a is that with the largest index by the proposal. The guard accepts it if q(a) ≤ κ(U(a) −
        L(a)), with the price κ, the interval [L(x), U(x)] of each arm x, and the certificate q(a) =
        max{0, max_{x ≠ a} U(x) − L(a)}. If that does not hold, or if the client's index by the proposal is NaN for any
        arm, the guard does not accept it, and the client plays the arm with the largest U. Of tied arms, the one with
        the largest number in ``order`` is taken.

        Returns:
            The arms, (S, N) int64, and whether the arm is played because the guard accepts it, (S, N) bool.

        Raises:
            ValueError: An upper end U is NaN.
        """
        interval = state.counted.interval
        index = self.proposal.index(state.proposer)
        void = index.isnan()
        proposed = largest(index.masked_fill(void, -torch.inf), self.order)
        accepted = of_arm(interval.accepts(self.kappa), proposed) & ~void.any(-1)
        fallback = largest(interval.upper, self.order)
        return torch.where(accepted, proposed, fallback), accepted

    def index(self, state: GuardState) -> Tensor:
        """Return the index of each of K arms for each of N clients in S runs, (S, N, K).

        It is 2 for the arm that the client plays if the guard accepts the proposal, 1 for the arm that the client plays
        if the guard does not accept it, and 0 for all other arms. `choose` decides which arm is played.
        """
        arm, proposed = self.choose(state)
        blank = torch.zeros_like(state.counted.interval.upper)
        return blank.scatter(-1, arm.unsqueeze(-1), 1.0 + proposed.double().unsqueeze(-1))

    def notes(self, state: GuardState, index: Tensor, arm: Tensor) -> Mapping[str, Tensor]:
        """Return the notes on each client's pull, by name, for N clients in S runs.

        Args:
            state: The state before the pull.
            index: The index of each arm by which the pulled arms were chosen, (S, N, K).
            arm: The arm that each client pulls, (S, N) int64.

        Returns:
            ``certificate`` (S, N), the bound on the regret of the pull (`Interval.price`); ``refuted`` (S, N) bool,
            whether the intervals that the client has seen so far have an empty intersection for some arm; and
            ``proposed`` (S, N) bool, whether the client plays the arm because the guard accepts the proposal, so that
            its index is 2.
        """
        return {**self.optimist.notes(state.counted, index, arm), "proposed": of_arm(index, arm) == 2}

    def fires(self, state: GuardState, arm: Tensor) -> Tensor:
        """Return whether each of N clients in S runs would synchronise because of its pull, (S, N) bool.

        A client synchronises if the number of its pulls since the last synchronisation, times the sum of the gains of
        these pulls, exceeds the threshold γ of the ``optimist``. Both include this pull. The gain of a pull is what it
        adds to the log-determinant of the client's precision matrix (`Interval.gain`).

        Args:
            state: The state before the pull.
            arm: The arm that each client pulls, (S, N) int64.
        """
        return self.optimist.fires(state.counted, arm)

    def learn(self, state: GuardState, arm: Tensor, reward: Tensor, turn: Tensor) -> GuardState:
        """Return the state after some of the N clients of S runs have made a pull.

        The learner that proposes arms learns from this pull too, whether it has proposed the arm or not.

        Args:
            state: The state before the pull.
            arm: The arm that each client pulls, (S, N) int64.
            reward: The reward that each client receives, (S, N) float64.
            turn: 1 for the clients that make this pull, 0 for the others, (S, N) float64.
        """
        counted = self.optimist.learn(state.counted, arm, reward, turn)
        return GuardState(counted, self.proposal.learn(state.proposer, arm, reward, turn))

    def synchronise(self, state: GuardState, star: Star, when: When) -> GuardState:
        """Return the state after a synchronisation of some runs, in which all their clients exchange counts and sums.

        The learner that proposes synchronises too, but the scalars of its own messages are not counted.

        Args:
            state: The state before the synchronisation.
            star: The network over which clients and server send, which counts the scalars.
            when: The positions of the runs that synchronise, and the step of each at which the scalars are counted.
        """
        counted = self.optimist.synchronise(state.counted, star, when)
        unpaid = star._replace(charged=False)
        return GuardState(counted, self.proposal.synchronise(state.proposer, unpaid, when))


@on_cpu
def guarded(
    name: str,
    problem: Problem,
    proposal: Learner[Any],
    exploration: Exploration,
    clients: int,
    rounds: int,
    guarantee: Guarantee,
    told: bool = False,
    begun: Any = None,
    intervals: Intervals | None = None,
) -> Trace:
    """Play T rounds after Phase I in which a guard decides whether each client plays the arm that a learner proposes.

    From its counts and sums a client computes an interval [L(x), U(x)] for the mean reward of each arm x. It plays the
    proposed arm a if the certificate max{0, max_{x ≠ a} U(x) − L(a)}, a bound on the regret of pulling a, is at most
    κ(U(a) − L(a)), and otherwise the arm with the largest U.

    Args:
        name: What the algorithm is called in the trace.
        problem: S runs of a bandit problem with K arms.
        proposal: The learner that proposes arms, for the same S runs and K arms. It has to have N learners.
        exploration: Phase I of the same runs. At its end the clients exchange its counts and sums, and the scalars of
            these messages are added to those of its last step.
        clients: The number N of clients.
        rounds: The number T of rounds.
        guarantee: A bound F on |f(x)| for the mean reward f(x) of every arm x, a number σ such that the noise is
            σ-sub-Gaussian, the failure probability δ, the price κ and the threshold γ of the guard.
        told: Whether the server knows the counts and sums of Phase I already, so that only the server sends them.
        begun: The state of the proposal when Phase II begins; None means the one that its method ``begin`` returns.
        intervals: The rule for the intervals, for instance that of Theorem K; None means that of ``guarantee``.

    Returns:
        The trace of both phases, with three notes on each pull: ``certificate``, a bound on its regret; ``proposed``,
        whether the arm was played because the guard accepted the proposal; and ``refuted``, whether the intervals that
        the client has seen so far have an empty intersection for some arm, which refutes the bounds F and σ. The
        certificate is 2F in Phase I and wherever ``refuted`` is True. In Phase I the other two notes are False.

    Raises:
        ValueError: N or T is below 1, the proposal does not have N learners or cannot begin (because its features are
            too large for its λ, for instance), or Phase I has another number of runs than ``problem``.
        TypeError: ``problem`` is not a `Problem`, ``guarantee`` is not a `Guarantee`, N or T is not a whole number, or
            ``name`` is not a text.
        RuntimeError: The proposal has another number of runs or of arms than ``problem``, or the number of an arm in
            Phase I is K or above.
    """
    require_kind(isinstance(problem, Problem), "problem", problem, "give a Problem")
    require_kind(isinstance(guarantee, Guarantee), "guarantee", guarantee, "give Guarantee(value, sigma)")
    count("clients", clients, "give N, at least one client")
    count("rounds", rounds, "give T, at least one round")
    remedy = f"give one for each of {clients} clients"
    require(proposal.learners == clients, "the proposal's learners", proposal.learners, remedy)
    exploration, first = exchange(exploration, clients, problem.arms.shape[1], told)
    gamma = guarantee.threshold(problem.arms.shape[1], clients, rounds)
    optimist = Optimist(clients, intervals or guarantee.intervals(clients), first, gamma)
    learner = Guard(optimist, proposal, guarantee.kappa, order_of_ties(problem, clients), begun)
    trace = simulate(name, problem, learner, exploration, clients, clients * rounds)
    return with_trivial(trace, guarantee.value)


@on_cpu
def guarded_fed_go_ucb(problem: Problem, start: Start, settings: Settings, guarantee: Guarantee) -> Trace:
    """Play Fed-GO-UCB as the proposal of a guard, with the data of Phase I in its model too.

    A guard computes an interval [L(x), U(x)] for the mean reward of each arm x from counts and sums. It plays the
    proposed arm a if the certificate max{0, max_{x ≠ a} U(x) − L(a)}, a bound on the regret of pulling a, is at most
    κ(U(a) − L(a)), and otherwise the arm with the largest U. The proposal needs the data of Phase I, because the guard
    has them. The guard refuses an arm that these data show to be bad, and a proposal without them would propose this
    arm for ever.

    Args:
        problem: S runs of a bandit problem.
        start: Phase I, with the fitted parameter ŵ₀, the number N of clients and the number T of rounds.
        settings: The regularisation weight λ and the squared radius β of Fed-GO-UCB. The threshold γ in it is not used,
            because the guard decides when to synchronise.
        guarantee: A bound F on |f(x)| for the mean reward f(x) of every arm x, a number σ such that the noise is
            σ-sub-Gaussian, the failure probability δ, the price κ and the threshold γ of the guard.

    Returns:
        The trace of both phases, with three notes on each pull: ``certificate``, a bound on its regret; ``proposed``,
        whether the arm was played because the guard accepted the proposal; and ``refuted``, whether the intervals that
        the client has seen so far have an empty intersection for some arm, which refutes the bounds F and σ. The
        certificate is 2F in Phase I and wherever ``refuted`` is True. In Phase I the other two notes are False.

    Raises:
        ValueError: ``start`` was made on another problem or gives each client a ŵ₀ of its own; only one of ``start``
            and ``settings`` has a form of messages that sends counts and sums ("counts" or "cheapest"); or the
            gradients are so large, or λ so small, that rounding would decide which arm is proposed.
        TypeError: ``problem``, ``start``, ``settings`` or ``guarantee`` is of another kind.
    """
    learner = fed_go_learner(problem, start, settings)
    known = phase_one_tally(start.exploration, 1, problem.arms.shape[1]).summed()
    begun = learner.resume(Tally(known.counts, known.sums - known.counts * learner.offsets.squeeze(1)))
    name, told = "Fed-GO-UCB, guarded", names_arms(start.encoding)
    clients, rounds = start.clients, start.rounds
    return guarded(name, problem, learner, start.exploration, clients, rounds, guarantee, told, begun)


def phase_one_tally(exploration: Exploration, clients: int, arms: int) -> Tally:
    """Return the counts and summed rewards of Phase I by client and arm, (S, N, K) each, in S runs.

    Args:
        exploration: The pulls and rewards of Phase I. Client t mod N makes pull t, counted from 0.
        clients: The number N of clients, at least 1.
        arms: The number K of arms.

    Raises:
        RuntimeError: N is 0, or an arm of Phase I has a number of K or above.
    """
    turn = torch.arange(exploration.arm.shape[1]).remainder(clients)
    client = torch.nn.functional.one_hot(turn, clients).double().T
    hit = torch.nn.functional.one_hot(exploration.arm, arms).double()
    return Tally(client @ hit, client @ (hit * exploration.reward.unsqueeze(-1)))


def exchange(
    exploration: Exploration,
    clients: int,
    arms: int,
    told: bool,
    message: Callable[[Tally], Message[Tally]] = counts_and_sums,
) -> tuple[Exploration, Tally]:
    """Exchange the counts and summed rewards of Phase I, and return Phase I with the scalars sent, and the totals.

    Each client sends its counts and sums of K arms to the server, and the server sends the totals to all clients. The
    scalars of these messages are added to those of the last step of Phase I, in a copy. If Phase I has no pulls, it is
    returned unchanged.

    Args:
        exploration: The pulls and rewards of Phase I. Client t mod N makes pull t, counted from 0.
        clients: The number N of clients, at least 1.
        arms: The number K of arms.
        told: Whether the server knows the counts and sums already, so that only the server sends them.
        message: A function that returns the message with given counts and sums, and its cost in scalars.

    Returns:
        Phase I of S runs with these scalars in its ledger, and the counts and sums of all clients together, (S, K)
        each.

    Raises:
        RuntimeError: N is 0, or an arm of Phase I has a number of K or above.
    """
    data = phase_one_tally(exploration, clients, arms)
    runs, length = exploration.arm.shape
    if length == 0:
        return exploration, data.summed()
    billed = exploration._replace(ledger=Ledger(*(part.clone() for part in exploration.ledger)))
    star, when = Star(clients, billed.ledger), When(torch.arange(runs), torch.full((runs,), length - 1))
    news = (data if told else star.collect(message(data), when)).summed()
    return billed, star.broadcast(message(news), when)


def guard_regret(
    guarantee: Guarantee,
    arms: int,
    clients: int,
    rounds: int,
    exploration: int = 0,
    information: float | None = None,
    syncs: float | None = None,
) -> PhaseTwoRegret:
    """Return item 3 of Theorem G, the bound 2√(eβφNTΛ) + ⌊Λ⌋(2N√(βφγ) + 2F) on the sum of certificates in Phase II.

    The certificate of a pull is the bound on its regret that the client computes before the pull. From n pulls of an
    arm with the sum Y of rewards a client computes the interval Y/n ± h√(n + 1)/n. √β is max(2κh̄, F), where h̄ bounds
    every radius h of the run. With m = NT + T₀ it is h̄² = σ²(ln(1 + m) + 2 ln(π²NK(P + 1)²/(6δ))) for several clients,
    and h̄² = σ²(ln(1 + m) + 2 ln(K/δ)) for a single one. φ is c²/ln(1 + c²) with c = min(F/√β, 1). The bound holds on
    every run in which no client's intervals have an empty intersection for some arm, if the proposal depends only on
    the past and on random numbers that are independent of the noise.

    Args:
        guarantee: A bound F on |f(x)| for the mean reward f(x) of every arm x, a number σ such that the noise is
            σ-sub-Gaussian, the failure probability δ, the price κ and the threshold γ, which should not be infinite. If
            it is ``simultaneous`` and there are several clients, h̄ is computed with δ/2.
        arms: The number K of arms.
        clients: The number N of clients.
        rounds: The number T of rounds, so that Phase II has NT steps.
        exploration: The number T₀ of pulls in Phase I.
        information: Λ = Σ_x ln((1 + n_x)/(1 + n⁰_x)) of the run, with n_x the pulls of arm x at the end and n⁰_x those
            at the end of Phase I (`tabular_information`). None means its bound R = K ln(1 + NT/K).
        syncs: The number P of synchronisations of the run. None means its bound Λ/(2γ) + √(Λ²/(4γ²) + TΛ/γ), or NT if
            that is less or γ is 0.

    Returns:
        The bound in its parts: of the good epochs, of the bad epochs, and a second-order part, which is 0. An epoch
        lasts from one synchronisation to the next. It is good if the log-determinant ln det(I + diag n) of the pulls n
        of each arm grows by at most 1 in it, and bad otherwise.

    Raises:
        ValueError: ``information`` is negative.
    """
    steps, gamma = clients * rounds, guarantee.threshold(arms, clients, rounds)
    information = information_bound(arms, steps, 1.0, 1.0) if information is None else information
    if syncs is None:
        syncs = min(synchronisations(rounds, information, gamma), steps) if gamma else steps
    log_ratio, epoch = torch.tensor([math.log1p(steps + exploration), syncs], dtype=torch.float64)
    delta = guarantee.delta / (2 if guarantee.simultaneous and clients > 1 else 1)
    union = None if clients == 1 else epoch
    h = noise_radius(log_ratio, union, members=clients * arms, sigma=guarantee.sigma, delta=delta).item()
    beta = max(2 * guarantee.kappa * h, guarantee.value) ** 2
    return regret_phase_two_clipped(beta, information, clients, rounds, gamma, guarantee.value, widest=1.0)


# Proposals for tests of a guard: arms fixed beforehand, and an adversary that knows f and the guard


@dataclass(frozen=True)
class Scripted:
    """A `Learner` that proposes arms fixed beforehand, for instance uniform arms or always the worst arm.

    Args:
        learners: The number N of clients.
        arm: The arm to propose at each step of Phase II in S runs, (S, NT) int64 for T rounds. If there are fewer than
            NT columns, the last one is proposed at all further steps.
        arms: The number K of arms.
    """

    learners: int
    arm: Tensor
    arms: int

    def begin(self) -> Tensor:
        """Return the state, the number of pulls of each of N clients in S runs so far, all 0, (S, N) int64."""
        return torch.zeros(len(self.arm), self.learners, dtype=torch.int64)

    def index(self, state: Tensor) -> Tensor:
        """Return the index of each of K arms for each of N clients in S runs, (S, N, K).

        It is 1 for the arm that is fixed for the client's next step, and 0 for all other arms. Client i, counted from
        0, makes its pull k at step kN + i of Phase II. ``state`` (S, N) int64 is the number of pulls of each client so
        far.

        Raises:
            RuntimeError: The number of a fixed arm is K or above, or no arm is fixed.
        """
        step = state * self.learners + torch.arange(self.learners)
        turn = self.arm.gather(1, step.clamp(max=self.arm.shape[1] - 1))
        return torch.nn.functional.one_hot(turn, self.arms).double()

    def fires(self, state: Tensor, arm: Tensor) -> Tensor:
        """Return False for each of N clients in S runs, (S, N) bool: no client ever asks for a synchronisation.

        Neither ``state`` nor the values of ``arm`` (S, N) are used.
        """
        return torch.zeros_like(arm, dtype=torch.bool)

    def learn(self, state: Tensor, arm: Tensor, reward: Tensor, turn: Tensor) -> Tensor:
        """Return the number of pulls of each of N clients in S runs after the present pull, (S, N) int64.

        ``turn`` (S, N) is 1 for the clients that make this pull and 0 for the others; ``arm`` and ``reward`` are not
        used.
        """
        return state + turn.long()

    def synchronise(self, state: Tensor, star: Star, when: When) -> Tensor:
        """Return the ``state`` (S, N), the number of pulls of each client, unchanged and send nothing."""
        return state


@dataclass(frozen=True)
class Malicious(Optimist):
    """A `Learner` that knows all mean rewards and proposes the worst of the arms that a guard accepts.

    The worst arm is the one with the smallest mean reward. The learner has the intervals and first data of the guard,
    so that it knows which arms the guard accepts.

    Args:
        learners: The number N of clients.
        intervals: The rule by which the guard computes its intervals.
        first: The counts and sums that all clients know when Phase II begins, (S, K) each for S runs and K arms.
        gamma: The threshold γ at which this learner would synchronise without a guard. A guard does not use it.
        kappa: The price κ ≥ 1 of the guard.
        means: The mean reward of each arm, (S, K).

    Raises:
        ValueError: γ is negative or NaN.
        TypeError: γ is not a number.
    """

    kappa: float = field(kw_only=True)
    means: Tensor = field(kw_only=True)

    def index(self, state: Counted) -> Tensor:
        """Return minus the mean reward of each arm that the guard accepts and −∞ for the others, (S, N, K).

        For each of N clients in S runs the guard accepts an arm if its certificate, a bound on its regret, is at most
        κ(U − L), with the interval [L, U] of the arm and the price κ (`Interval.accepts`). As long as no interval is
        empty, it accepts the arm with the largest U, so that at least one of the K arms is left.
        """
        return torch.where(state.interval.accepts(self.kappa), -self.means.unsqueeze(1), -torch.inf)


def malicious(problem: Problem, exploration: Exploration, clients: int, guarantee: Guarantee) -> Malicious:
    """Return the `Malicious` proposal for a guard, which tests whether the guarantee holds even against an adversary.

    It is a learner that knows all mean rewards and proposes, of the arms that the guard accepts, the one with the
    smallest mean reward.

    Args:
        problem: S runs of a bandit problem, whose mean rewards the proposal knows.
        exploration: Phase I, whose data the guard and the proposal know.
        clients: The number N of clients.
        guarantee: A bound F on |f(x)| for the mean reward f(x) of every arm x, a number σ such that the noise is
            σ-sub-Gaussian, the failure probability δ and the price κ of the guard.

    Raises:
        ValueError: N is negative, and Phase I has pulls.
        TypeError: N is not a whole number.
        RuntimeError: N is 0, N is negative and Phase I has no pulls, or Phase I has an arm that ``problem`` does not
            have.
    """
    first = phase_one_tally(exploration, clients, problem.means.shape[1]).summed()
    return Malicious(clients, guarantee.intervals(clients), first, kappa=guarantee.kappa, means=problem.means)
