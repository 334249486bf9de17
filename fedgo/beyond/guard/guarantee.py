"""Theorems G and G′, the guard: any proposal is played where it is certified, and the most optimistic arm elsewhere.

The reward of step t is y_t = f(x_t) + η_t, in Phase I too. Every client knows, of each arm, the number n and the sum Y
of the rewards up to the last synchronisation (Phase I included) and of its own pulls since. With |f| ≤ F, noise η_t
that is σ-sub-Gaussian given the past, and p synchronisations so far

    U, L = Y/n ± c within [−F, F],   c = h√(n + 1)/n,   h² = σ²(ln(1 + n) + 2 ln(π²NK(p + 1)²/(6δ)))     (G)

contain f(x) for all arms, clients and steps with probability 1 − δ. Where all synchronise at the same step, so do the
intersections of these with those of all data up to the last synchronisation, each at δ′ = δ/2, and if N = 1 the latter
alone, at δ′ = δ:

    h² = σ²(ln(1 + n) + 2 ln(K/δ′)).                                                                    (G′)

With N > 1 the intersections of (G′) are used only if ``Guarantee.simultaneous`` is set, which it is not unless the
caller says so. Where answers are late or missing, the last step whose data have arrived differs from client to client.
If lateness is independent of the rewards, the intervals (G) and r_t ≤ q_t still hold, as it is known before the noise
of a step whether a client has its data after p synchronisations; `guard_regret` assumes that all answer at once.

A proposed arm a is played if q(a) ≤ κ(U − L)(a), otherwise the arm of the largest U. Client i synchronises when
n_i·Σ ln(1 + 1/(1 + n)) > γ over its own n_i pulls since the last time; then counts and sums go up, and their news
comes down. For every proposal that depends on the past alone, and on coins that know nothing of the noise,

    r_t ≤ q_t = max{0, max_{x ≠ x_t} U(x) − L(x_t)},   Σ r_t ≤ Σ q_t ≤ `guard_regret`   with the same probability.

If the intervals that a client has seen so far have an empty intersection for some arm, its bounds are refuted, and its
certificate is 2F from then on.

These are the limits. The arms are finite and public, and each has to be looked at, so that nothing is certified for
K ≫ NT. σ and F have to be bounds; the theorem allows F = max|f|, but an experiment should not use it, since it gives
the optimum away. Nobody may choose an arm, report a reward or be late by what he knows of a reward beyond f. And the
guard does not say whether the proposal is any good.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedgo import phase_two
from fedgo._checks import count, number, on_cpu, require, require_kind
from fedgo.algorithms.go_ucb import fed_go_learner
from fedgo.beyond.guard.intervals import Bounds, Interval, clipped
from fedgo.beyond.guard.optimist import Counted, Optimist, check_event, counts_and_sums, of_arm, with_trivial
from fedgo.confidence import Tally
from fedgo.messages import names_arms
from fedgo.phase_one import Exploration, Start
from fedgo.phase_two import EventTriggered, Settings
from fedgo.problem import Problem
from fedgo.simulation import Learner, largest, order_of_ties, simulate
from fedgo.star import Ledger, Star, When
from fedgo.theory.confidence import information_bound, noise_radius
from fedgo.theory.phase_two import PhaseTwoRegret, regret_phase_two_clipped, synchronisations
from fedgo.trace import Trace


@dataclass(frozen=True)
class Guarantee:
    """What a guard has to be told: bounds on f and on the noise, the failure probability, the price, the threshold.

    Args:
        value: F, a bound on |f(x)| for every arm x.
        sigma: σ, such that the noise is σ-sub-Gaussian.
        delta: δ; the certificates hold with probability at least 1 − δ.
        kappa: κ ≥ 1. A proposed arm is played if its certificate is at most κ times the length of its interval.
        gamma: γ, the threshold of the event. None means T/(NR) with R = K ln(1 + NT/K), for which the guard has to know
            the number T of rounds.
        simultaneous: Whether all clients take part in every synchronisation at one and the same step, as they do in the
            simulator. Then the intervals of Theorem G′ are used, which are shorter. If it is False, as it is unless
            said, several clients have those of Theorem G. A single client has those of G′ in either case.
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
        """Return γ for K = ``arms``, N = ``clients`` and T = ``rounds``."""
        if self.gamma is not None:
            return self.gamma
        return rounds / (clients * most_information(arms, clients * rounds))

    def intervals(self, clients: int) -> "TabularIntervals":
        """Return the intervals by which N = ``clients`` clients play."""
        return TabularIntervals(clients, self.sigma, self.value, self.delta, self.simultaneous)


@dataclass(frozen=True)
class TabularIntervals(Bounds):
    """The `Intervals` of Theorem G, of every arm by its own counts and sums, and of Theorem G′ if ``simultaneous``.

    ``simultaneous`` says that all clients take part in a synchronisation at one and the same step. What all know then
    is one sequence of rewards for each arm, which needs no union over clients and synchronisations. All that a single
    client knows is such a sequence too, so N = 1 has the intervals of Theorem G′ whatever ``simultaneous`` is.
    """

    simultaneous: bool = False

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """Return the intervals from what each client knows, as `Intervals.after` says; all runs have the same
        bounds.
        """
        if self.clients == 1:
            return self._around(known, None, self.delta)
        epoch = syncs.unsqueeze(-1)
        if not self.simultaneous:
            return self._around(known, epoch, self.delta)
        return self._around(known, epoch, self.delta / 2).within(self._around(shared, None, self.delta / 2))

    def _around(self, data: Tally, syncs: Tensor | None, delta: float) -> Interval:
        """Return the intervals around the mean rewards of ``data`` (..., K), at the probability ``delta``."""
        n = data.counts
        members = n.shape[-1] * (1 if syncs is None else self.clients)
        h = noise_radius(n.log1p(), syncs, members=members, sigma=self.sigma, delta=delta)
        width = h * (n + 1).sqrt() / n
        return clipped(data.sums / n.clamp(min=1), width, self.value, (1 / (1 + n)).log1p())


class GuardState(NamedTuple):
    """What the guard has counted, and the state of the learner that proposes."""

    counted: Counted
    proposer: Any


@dataclass(frozen=True)
class Guard:
    """Clients that play what a ``proposal`` says, as far as the intervals of an ``optimist`` allow.

    The proposal is any `Learner` with as many learners whose choices are a function of counts, sums and public random
    numbers. It is synchronised when the guard is, not on its own event, and its own messages are not sent, because
    counts and sums determine what they contain. ``kappa`` is κ, and ``order`` (S, N, K) is each client's order of ties.
    """

    optimist: Optimist
    proposal: Learner[Any]
    kappa: float
    order: Tensor

    @property
    def learners(self) -> int:
        """The number N of clients."""
        return self.optimist.learners

    def begin(self) -> GuardState:
        """Return the states with which the optimist and the proposal begin."""
        return GuardState(self.optimist.begin(), self.proposal.begin())

    def choose(self, state: GuardState) -> tuple[Tensor, Tensor]:
        """Return each client's arm, (S, N) int64, and whether it is the proposed one, (S, N) bool.

        The proposed arm a is played if q(a) ≤ κ(U(a) − L(a)), with [L, U] its interval and q the certificate
        (`Interval.price`). If that does not hold, or if the proposal's index is NaN for any arm, the arm of the largest
        U is played.
        """
        interval = state.counted.interval
        index = self.proposal.index(state.proposer)
        void = index.isnan()
        proposed = largest(index.masked_fill(void, -torch.inf), self.order)
        width = of_arm(interval.upper - interval.lower, proposed)
        accepted = interval.certificate(proposed) <= self.kappa * width
        accepted &= ~void.any(-1)
        fallback = largest(interval.upper, self.order)
        return torch.where(accepted, proposed, fallback), accepted

    def index(self, state: GuardState) -> Tensor:
        """Return 2 for the arm that is played if it was proposed, 1 for it if not, and 0 for all other arms, (S,
        N, K).
        """
        arm, proposed = self.choose(state)
        blank = torch.zeros_like(state.counted.interval.upper)
        return blank.scatter(-1, arm.unsqueeze(-1), 1.0 + proposed.double().unsqueeze(-1))

    def notes(self, state: GuardState, index: Tensor, arm: Tensor) -> Mapping[str, Tensor]:
        """Return the notes of the optimist, and whether the arm was ``proposed``, (S, N) bool."""
        return {**self.optimist.notes(state.counted, index, arm), "proposed": of_arm(index, arm) == 2}

    def fires(self, state: GuardState, arm: Tensor) -> Tensor:
        """Return whether the event of the optimist fires, (S, N) bool."""
        return self.optimist.fires(state.counted, arm)

    def learn(self, state: GuardState, arm: Tensor, reward: Tensor, turn: Tensor) -> GuardState:
        """Return the states of both after the pull."""
        counted = self.optimist.learn(state.counted, arm, reward, turn)
        return GuardState(counted, self.proposal.learn(state.proposer, arm, reward, turn))

    def synchronise(self, state: GuardState, star: Star, when: When) -> GuardState:
        """Return the states after counts and sums were sent; the proposal is synchronised without further messages."""
        counted = self.optimist.synchronise(state.counted, star, when)
        return GuardState(
            counted, self.proposal.synchronise(state.proposer, star._replace(charged=False), when)
        )


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
) -> Trace:
    """Play T rounds of the guard around ``proposal``, after ``exploration``, and return the trace.

    The notes of the trace are the ``certificate`` q_t of each step (2F in Phase I), whether its arm was ``proposed``,
    and whether the bounds are ``refuted``: the intervals that the client has seen have an empty intersection for some
    arm, and from then on it certifies 2F.

    Args:
        name: What the algorithm is called in the trace.
        problem: S runs of a bandit problem.
        proposal: The learner that proposes arms.
        exploration: Phase I. At its end its counts and sums are exchanged.
        clients: The number N of clients.
        rounds: The number T of rounds.
        guarantee: F, σ, δ, κ and γ.
        told: Whether the server knows the counts and sums of Phase I already, so that they only come down.
    """
    require_kind(isinstance(problem, Problem), "problem", problem, "give a Problem")
    require_kind(isinstance(guarantee, Guarantee), "guarantee", guarantee, "give Guarantee(value, sigma)")
    count("clients", clients, "give N, at least one client")
    count("rounds", rounds, "give T, at least one round")
    remedy = f"give one for each of {clients} clients"
    require(proposal.learners == clients, "the proposal's learners", proposal.learners, remedy)
    exploration, first = exchange(exploration, clients, problem.arms.shape[1], told)
    gamma = guarantee.threshold(problem.arms.shape[1], clients, rounds)
    optimist = Optimist(clients, guarantee.intervals(clients), first, gamma)
    learner = Guard(optimist, proposal, guarantee.kappa, order_of_ties(problem, clients))
    trace = simulate(name, problem, learner, exploration, clients, clients * rounds)
    return with_trivial(trace, guarantee.value)


@dataclass(frozen=True)
class InformedByPhaseOne(EventTriggered):
    """`EventTriggered` whose learners know some data from the start: ``first`` (S, K), counts and summed residuals.

    A proposal needs the data that the guard has. The guard refuses what Phase I has shown to be bad, and a proposal
    that had not seen it would propose the same arm for ever.
    """

    first: Tally = field(kw_only=True)

    def begin(self) -> phase_two.EventState:
        """Return the state in which each learner and the server know the first data."""
        return self.resume(self.first)


@on_cpu
def guarded_fed_go_ucb(problem: Problem, start: Start, settings: Settings, guarantee: Guarantee) -> Trace:
    """Play Fed-GO-UCB as the proposal of a guard, with the data of Phase I in its model, as the guard has them.

    The event of ``settings`` is not used.
    """
    learner = fed_go_learner(problem, start, settings)
    known = phase_one_tally(start.exploration, 1, problem.arms.shape[1]).summed()
    residuals = Tally(known.counts, known.sums - known.counts * learner.offsets.squeeze(1))
    proposal = InformedByPhaseOne(
        learners=learner.learners,
        features=learner.features,
        offsets=learner.offsets,
        dimension=learner.dimension,
        settings=settings,
        first=residuals,
    )
    told = names_arms(start.encoding)
    name, clients, rounds = "Fed-GO-UCB, guarded", start.clients, start.rounds
    return guarded(name, problem, proposal, start.exploration, clients, rounds, guarantee, told)


def phase_one_tally(exploration: Exploration, clients: int, arms: int) -> Tally:
    """Return the counts and summed rewards of ``exploration`` by client and arm, (S, N, K)."""
    turn = torch.arange(exploration.arm.shape[1]).remainder(clients)
    client = torch.nn.functional.one_hot(turn, clients).double().T
    hit = torch.nn.functional.one_hot(exploration.arm, arms).double()
    return Tally(client @ hit, client @ (hit * exploration.reward.unsqueeze(-1)))


def exchange(exploration: Exploration, clients: int, arms: int, told: bool) -> tuple[Exploration, Tally]:
    """Return Phase I with the cost of its counts and sums at its last step, and these counts and sums (S, K).

    They go up, unless the server was ``told`` them before, and come down.
    """
    data = phase_one_tally(exploration, clients, arms)
    runs, length = exploration.arm.shape
    if length == 0:
        return exploration, data.summed()
    billed = exploration._replace(ledger=Ledger(*(part.clone() for part in exploration.ledger)))
    star, when = Star(clients, billed.ledger), When(torch.arange(runs), torch.full((runs,), length - 1))
    news = (data if told else star.collect(counts_and_sums(data), when)).summed()
    return billed, star.broadcast(counts_and_sums(news), when)


def guard_regret(
    guarantee: Guarantee,
    arms: int,
    clients: int,
    rounds: int,
    exploration: int = 0,
    information: float | None = None,
    syncs: float | None = None,
) -> PhaseTwoRegret:
    """Return 2√(eβφNTΛ) + ⌊Λ⌋(2N√(βφγ) + 2F) ≥ Σ q_t over Phase II, item 3 of Theorem G.

    √β = max(2κh̄, F) with h̄ the largest h of the run, and φ is that of `regret_phase_two_clipped`. Σ q_t ≤ this holds on
    every run in which no client finds its bounds refuted; Σ r_t ≤ Σ q_t holds with probability 1 − δ. Both hold for
    every proposal that the theorem admits.

    Args:
        guarantee: F, σ, δ, κ and γ; with ``simultaneous`` and several clients h̄ is that of δ/2.
        arms: K.
        clients: N.
        rounds: T, so that Phase II has NT steps.
        exploration: T₀, the pulls of Phase I.
        information: Λ of the run (`tabular_information`), or None for its bound K ln(1 + NT/K).
        syncs: P of the run, or None for its bound (`guard_synchronisations`).
    """
    steps = clients * rounds
    if syncs is None:
        syncs = guard_synchronisations(guarantee, arms, clients, rounds, information)
    h = noise_radius(
        torch.tensor(float(steps + exploration), dtype=torch.float64).log1p(),
        None if clients == 1 else torch.tensor(float(syncs), dtype=torch.float64),
        members=clients * arms,
        sigma=guarantee.sigma,
        delta=guarantee.delta / (2 if guarantee.simultaneous and clients > 1 else 1),
    ).item()
    return regret_phase_two_clipped(
        max(2 * guarantee.kappa * h, guarantee.value) ** 2,
        most_information(arms, steps) if information is None else information,
        clients,
        rounds,
        guarantee.threshold(arms, clients, rounds),
        guarantee.value,
        widest=1.0,
    )


def guard_synchronisations(
    guarantee: Guarantee, arms: int, clients: int, rounds: int, information: float | None = None
) -> float:
    """Return a bound on the number P of synchronisations of Phase II that holds on every run; NT where γ = 0."""
    steps, gamma = clients * rounds, guarantee.threshold(arms, clients, rounds)
    information = most_information(arms, steps) if information is None else information
    return min(synchronisations(rounds, information, gamma), steps) if gamma else steps


def most_information(arms: int, steps: int) -> float:
    """Return R = K ln(1 + NT/K) ≥ Σ_x ln((1 + n_x)/(1 + n⁰_x)), for any NT = ``steps`` pulls of K = ``arms`` arms."""
    return information_bound(arms, steps, 1.0, 1.0)
