"""Theorems G and G′: a guard plays a proposed arm if counts and sums certify it, and the arm with the largest U if not.

There are S runs of N clients, T rounds and K arms; arrays are (S, N, K). The reward of step t is y_t = f(x_t) + η_t,
with |f| ≤ F on all arms and noise η_t that is σ-sub-Gaussian given the past, in Phase I too. For each arm, every client
knows the number n and the sum Y of the rewards up to the last synchronisation (Phase I included) and of its own pulls
since. After p synchronisations the intervals

    U, L = Y/n ± c within [−F, F],   c = h√(n + 1)/n,   h² = σ²(ln(1 + n) + 2 ln(π²NK(p + 1)²/(6δ)))     (G)

contain f(x) for all arms, clients and steps with probability 1 − δ. If all clients synchronise at the same step, each
interval may be intersected with that of all data up to the last synchronisation, both at δ′ = δ/2. A single client uses
only the interval of all data, at δ′ = δ. The interval of all data has

    h² = σ²(ln(1 + n) + 2 ln(K/δ′)).                                                                    (G′)

If answers are late or missing, but lateness is independent of the rewards, (G) and r_t ≤ q_t still hold, since it is
known before the noise of a step whether a client has that step's data after p synchronisations. `guard_regret` assumes
that all clients answer at once.

The certificate of an arm a is q(a) = max{0, max_{x ≠ a} U(x) − L(a)}. The guard plays a proposed arm a if q(a) ≤ κ(U(a)
− L(a)), with the price κ ≥ 1, and otherwise the arm with the largest U. A client i synchronises when n_i·Σ ln(1 + 1/(1
+ n)) > γ over its own n_i pulls since the last synchronisation, where n counts the pulls of the arm that the client
knew before each. Then all clients send their counts and sums to the server, and the server sends all clients what is
new in them. If the proposal depends only on the past and on random numbers that are independent of the noise, then with
probability 1 − δ

    r_t ≤ q_t = q(x_t),   Σ r_t ≤ Σ q_t ≤ `guard_regret`,

where r_t = max f − f(x_t), and the sums are over the NT steps of Phase II. If the intervals that a client has seen so
far have an empty intersection for some arm, its bounds are refuted, and its certificate is 2F from then on.

The guard has limits. The arms are finite and public, and each has to be pulled, so that nothing is certified for K ≫
NT. σ and F have to be bounds; F = max|f| is allowed, but gives the optimum away. Nobody may choose an arm, report a
reward or be late because of something that they know about a reward beyond f. The guard does not say whether the
proposal is any good.
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
from fedgo.beyond.guarantees.optimist import Counted, Optimist, check_event, counts_and_sums, with_trivial
from fedgo.confidence import Tally, of_arm
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

    Args:
        value: F > 0, a bound on |f(x)| for the mean reward f(x) of every arm x.
        sigma: σ > 0, such that the noise of a reward is σ-sub-Gaussian.
        delta: The failure probability δ; the certificates of all pulls hold with probability at least 1 − δ.
        kappa: The price κ ≥ 1. A proposed arm is played if its certificate is at most κ times the length of its
            interval.
        gamma: The threshold γ ≥ 0 for a synchronisation. None means T/(NR) with R = K ln(1 + NT/K).
        simultaneous: Whether all clients take part in every synchronisation at one and the same step, as they do in the
            simulator. If True, several clients have the intersections of Theorems G and G′, and if False the intervals
            of Theorem G. A single client has those of Theorem G′.

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
        """Return the threshold γ for K = ``arms``, N = ``clients`` and T = ``rounds``."""
        if self.gamma is not None:
            return self.gamma
        return rounds / (clients * information_bound(arms, clients * rounds, 1.0, 1.0))

    def intervals(self, clients: int) -> "TabularIntervals":
        """Return the rule by which N = ``clients`` clients compute the intervals of the arms from counts and sums."""
        return TabularIntervals(clients, self.sigma, self.value, self.delta, self.simultaneous)


@dataclass(frozen=True)
class TabularIntervals(Bounds):
    """The rule of Theorems G and G′, which computes the interval of each arm from the count and sum of this arm alone.

    Args:
        clients: The number N of clients.
        sigma: The sub-Gaussian constant σ.
        value: The bound F.
        delta: The failure probability δ.
        simultaneous: As in `Guarantee`.
    """

    simultaneous: bool = False

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """Return the intervals, [−F, F] for an arm without pulls, with the ``gain`` ln(1 + 1/(1 + n)).

        ``shared`` is used only if there are several clients and ``simultaneous`` is True.
        """
        if self.clients == 1:
            return self._around(known, None, self.delta)
        epoch = syncs.unsqueeze(-1)
        if not self.simultaneous:
            return self._around(known, epoch, self.delta)
        return self._around(known, epoch, self.delta / 2).within(self._around(shared, None, self.delta / 2))

    def _around(self, data: Tally, syncs: Tensor | None, delta: float) -> Interval:
        """Return the intervals of the counts and sums ``data`` by (G), or by (G′) if ``syncs`` is None, (..., K)."""
        n = data.counts
        members = n.shape[-1] * (1 if syncs is None else self.clients)
        h = noise_radius(n.log1p(), syncs, members=members, sigma=self.sigma, delta=delta)
        width = h * (n + 1).sqrt() / n
        return clipped(data.sums / n.clamp(min=1), width, self.value, (1 / (1 + n)).log1p())


class GuardState(NamedTuple):
    """What the clients of a `Guard` know, and the state of the learner that proposes arms."""

    counted: Counted
    proposer: Any


@dataclass(frozen=True)
class Guard:
    """A `Learner` whose clients play the arms that another learner proposes, if their intervals allow it.

    Args:
        optimist: The learner that holds the clients' counts, sums and intervals, and decides when they synchronise.
        proposal: The learner that proposes an arm for each client. Its choices have to be a function of counts, sums
            and public random numbers. It is synchronised when the guard is, its own ``fires`` is not called, and its
            messages are not counted, because counts and sums determine what they contain.
        kappa: The price κ ≥ 1, not checked here. If a proposal is refused, or an index of it is NaN, the client plays
            the arm with the largest U.
        order: Of tied arms the client plays the one with the largest number here, (S, N, K), at least 0.
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
        """Return the state before the first step of Phase II."""
        begun = self.proposal.begin() if self.begun is None else self.begun
        return GuardState(self.optimist.begin(), begun)

    def choose(self, state: GuardState) -> tuple[Tensor, Tensor]:
        """Return the arm that each client plays, (S, N) int64, and whether it is an accepted proposal."""
        interval = state.counted.interval
        index = self.proposal.index(state.proposer)
        void = index.isnan()
        proposed = largest(index.masked_fill(void, -torch.inf), self.order)
        accepted = of_arm(interval.accepts(self.kappa), proposed) & ~void.any(-1)
        fallback = largest(interval.upper, self.order)
        return torch.where(accepted, proposed, fallback), accepted

    def index(self, state: GuardState) -> Tensor:
        """Return 2 for an accepted proposal, 1 for the arm played in place of a refused one, and 0 otherwise."""
        arm, proposed = self.choose(state)
        blank = torch.zeros_like(state.counted.interval.upper)
        return blank.scatter(-1, arm.unsqueeze(-1), 1.0 + proposed.double().unsqueeze(-1))

    def notes(self, state: GuardState, index: Tensor, arm: Tensor) -> Mapping[str, Tensor]:
        """Return those of the ``optimist``, and ``proposed``: whether the arm is an accepted proposal."""
        return {**self.optimist.notes(state.counted, index, arm), "proposed": of_arm(index, arm) == 2}

    def fires(self, state: GuardState, arm: Tensor) -> Tensor:
        """Return whether the event of the ``optimist`` occurs."""
        return self.optimist.fires(state.counted, arm)

    def learn(self, state: GuardState, arm: Tensor, reward: Tensor, turn: Tensor) -> GuardState:
        """Return the state after a pull, from which the proposal learns too, whether it has proposed the arm or not."""
        counted = self.optimist.learn(state.counted, arm, reward, turn)
        return GuardState(counted, self.proposal.learn(state.proposer, arm, reward, turn))

    def synchronise(self, state: GuardState, star: Star, when: When) -> GuardState:
        """Return the state after a synchronisation, in which the messages of the proposal are not counted."""
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

    Args:
        name: What the algorithm is called in the trace.
        problem: S runs of a bandit problem with K arms.
        proposal: The learner that proposes arms, with N learners, for the same S runs and K arms.
        exploration: Phase I of the same runs. At its end the clients exchange its counts and sums, which are charged to
            its last step.
        clients: The number N of clients.
        rounds: The number T of rounds.
        guarantee: The bounds F and σ, δ, the price κ and the threshold γ.
        told: Whether the server knows the counts and sums of Phase I already, so that only the server sends them.
        begun: The state of the proposal when Phase II begins; None means the one that its method ``begin`` returns.
        intervals: The rule for the intervals, for instance that of Theorem K; None means that of ``guarantee``.

    Returns:
        The trace of both phases, with three notes on each pull: ``certificate``, a bound on its regret; ``proposed``,
        whether the guard accepted the proposal; and ``refuted``, whether the client's intervals so far have an empty
        intersection. The certificate is 2F in Phase I and where ``refuted`` is True.

    Raises:
        ValueError: N or T is below 1, or the proposal does not have N learners.
        TypeError: ``problem`` is not a `Problem`, ``guarantee`` is not a `Guarantee`, or N or T is not a whole number.
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
def guarded_fed_go_ucb(start: Start, settings: Settings, guarantee: Guarantee) -> Trace:
    """Play Fed-GO-UCB as the proposal of a guard (`guarded`), with the data of Phase I in its model too.

    The guard has these data and refuses an arm that they show to be bad. A proposal without them would propose this arm
    for ever.

    Args:
        start: Phase I, with one ŵ₀ for all clients, the number N of clients and the number T of rounds.
        settings: λ and β of Fed-GO-UCB; γ is not used, because the guard decides when to synchronise.
        guarantee: The bounds F and σ, δ, the price κ and the threshold γ.

    Raises:
        ValueError: ``start`` gives each client a ŵ₀ of its own or does not fit the form of
            messages in ``settings``; or the gradients are so large, or λ so small, that rounding would decide which arm
            is proposed.
        TypeError: An argument is of another kind.
    """
    learner, problem = fed_go_learner(start, settings), start.problem
    known = phase_one_tally(start.exploration, 1, problem.arms.shape[1]).summed()
    begun = learner.resume(Tally(known.counts, known.sums - known.counts * learner.offsets.squeeze(1)))
    name, told = "Fed-GO-UCB, guarded", names_arms(start.encoding)
    clients, rounds = start.clients, start.rounds
    return guarded(name, problem, learner, start.exploration, clients, rounds, guarantee, told, begun)


def phase_one_tally(exploration: Exploration, clients: int, arms: int) -> Tally:
    """Return the counts and summed rewards of Phase I, (S, N, K) each, where client t mod N makes pull t."""
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
    """Exchange the counts and sums of Phase I; return it with their scalars at its last step, and the totals.

    Args:
        exploration: Phase I; without pulls it is returned unchanged.
        clients: The number N of clients.
        arms: The number K of arms.
        told: Whether the server knows the counts and sums already, so that only the server sends them.
        message: Returns the message with given counts and sums, and its cost.
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

    √β is max(2κh̄, F), where h̄ is h of (G), or of (G′) for a single client, at n = NT + T₀ and p = P, and φ is c²/ln(1
    + c²) with c = min(F/√β, 1). The bound holds on every run in which nothing is refuted.

    Args:
        guarantee: The bounds F and σ, δ, κ and γ, which should be finite.
        arms: The number K of arms.
        clients: The number N of clients.
        rounds: The number T of rounds.
        exploration: The number T₀ of pulls in Phase I.
        information: Λ = Σ_x ln((1 + n_x)/(1 + n⁰_x)) of the run (`tabular_information`). None means
            its bound R = K ln(1 + NT/K).
        syncs: The number P of synchronisations of the run. None means its bound Λ/(2γ) + √(Λ²/(4γ²) + TΛ/γ), or NT if
            that is less or γ is 0.
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
        arm: The arm to propose at each step of Phase II, (S, NT) int64; the last column holds for all further steps.
        arms: The number K of arms.
    """

    learners: int
    arm: Tensor
    arms: int

    def begin(self) -> Tensor:
        """Return the number of pulls of each client so far, all 0, (S, N) int64."""
        return torch.zeros(len(self.arm), self.learners, dtype=torch.int64)

    def index(self, state: Tensor) -> Tensor:
        """Return 1 for the arm fixed for the client's next step (kN + i for pull k of client i), 0 for the others."""
        step = state * self.learners + torch.arange(self.learners)
        turn = self.arm.gather(1, step.clamp(max=self.arm.shape[1] - 1))
        return torch.nn.functional.one_hot(turn, self.arms).double()

    def fires(self, state: Tensor, arm: Tensor) -> Tensor:
        """Return False: no client ever asks for a synchronisation."""
        return torch.zeros_like(arm, dtype=torch.bool)

    def learn(self, state: Tensor, arm: Tensor, reward: Tensor, turn: Tensor) -> Tensor:
        """Return the number of pulls after the present one."""
        return state + turn.long()

    def synchronise(self, state: Tensor, star: Star, when: When) -> Tensor:
        """Return the ``state`` unchanged and send nothing."""
        return state


@dataclass(frozen=True)
class Malicious(Optimist):
    """A `Learner` that knows all mean rewards and proposes the worst of the arms that a guard accepts.

    The first four fields are those of the guard's `Optimist`; a guard does not use their γ.

    Args:
        kappa: The price κ ≥ 1 of the guard.
        means: The mean reward of each arm, (S, K).
    """

    kappa: float = field(kw_only=True)
    means: Tensor = field(kw_only=True)

    def index(self, state: Counted) -> Tensor:
        """Return −f for each arm that the guard accepts, as it does that with the largest U, and −∞ for the others."""
        return torch.where(state.interval.accepts(self.kappa), -self.means.unsqueeze(1), -torch.inf)


def malicious(problem: Problem, exploration: Exploration, clients: int, guarantee: Guarantee) -> Malicious:
    """Return the `Malicious` proposal for a guard with this Phase I and ``guarantee``."""
    first = phase_one_tally(exploration, clients, problem.means.shape[1]).summed()
    return Malicious(clients, guarantee.intervals(clients), first, kappa=guarantee.kappa, means=problem.means)


def tabular_information(counts: Tensor, known: Tensor | float = 0.0) -> Tensor:
    """Return Λ = Σ_x ln((1 + n_x)/(1 + n⁰_x)), (...), the log-ratio with one parameter for each arm and λ = 1.

    After the NT pulls of Phase II it is at most K ln(1 + NT/K).

    Args:
        counts: The number of pulls n_x of each of K arms, those before Phase II included, (..., K).
        known: The number of pulls n⁰_x before Phase II, (..., K), or one number for all arms.
    """
    before = torch.as_tensor(known, dtype=torch.float64)
    return ((1 + counts) / (1 + before)).log().sum(-1)
