"""Play any surrogate in epochs: all clients fit it to the shared counts and sums, pull arms, and share them again.

Every client makes the same fit to the same data, so no model is sent. An epoch ends when the pulls of all have grown by
a factor (`Growing`), or on the paper's event, n_i·Σ ln(1 + variance/σ²) > γ over a client's own pulls (`Event`). Its
pulls are planned

- "joint", as GP-BUCB does: argmax of mean + κ√variance, the mean as fitted, the variance as if the pulls planned
  before were observed (Desautels, Krause and Burdick, JMLR 2014, https://arxiv.org/abs/1206.6402), or
- "own", by each client for itself, whose mean and variance are conditioned on what it pulls.

A joint plan is common knowledge, and so is who pulls which arm: only sums are sent, one scalar for every arm that a
client touched, and down for every arm that anybody did. The fits have to agree to the last digit for this, as they do
on machines that are alike.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from fedgo._checks import count, extra, number, on_cpu, require, require_kind
from fedgo.beyond.guard.guarantee import Guarantee, exchange, guarded, phase_one_tally
from fedgo.beyond.guard.optimist import check_event, counts_and_sums
from fedgo.beyond.planning import plan
from fedgo.beyond.surrogates.gaussian_process import GaussianProcess
from fedgo.beyond.surrogates.models import Fitted, Surrogate, fitted, why_it_failed
from fedgo.confidence import Posterior, Tally, width
from fedgo.messages import names_arms
from fedgo.phase_one import Exploration, Start, explore, phase_one_length
from fedgo.phase_two import place
from fedgo.problem import Problem
from fedgo.simulation import order_of_ties, simulate
from fedgo.star import Ledger, Message, Star, When
from fedgo.trace import Trace

Planning = Literal["joint", "own"]


@dataclass(frozen=True)
class Growing:
    """An end of epochs by growth: an epoch that follows n pulls has max(⌈n(factor − 1)⌉, least) pulls.

    Args:
        factor: The factor above 1 by which the pulls of all clients grow in an epoch.
        least: The smallest number of pulls of an epoch, at least 1.

    Raises:
        ValueError: ``factor`` is not above 1, or ``least`` is below 1.
    """

    factor: float = 1.3
    least: int = 4

    def __post_init__(self) -> None:
        remedy = "give a factor above 1 by which the pulls grow"
        number("factor", self.factor, remedy, above=1)
        count("least", self.least, "give the least pulls of an epoch, at least 1")

    def length(self, pulls: int) -> int:
        """Return the number of pulls of the epoch that follows ``pulls`` pulls of all clients together."""
        return max(self.least, math.ceil(pulls * (self.factor - 1)))


@dataclass(frozen=True)
class Event:
    """An end of epochs by the paper's event: n_i·Σ ln(1 + variance/σ²) > γ for some client i.

    n_i is the number of client i's pulls since the last synchronisation, and the sum runs over these pulls, with the
    posterior variance of each pulled arm before the pull.

    Args:
        gamma: The threshold γ.

    Raises:
        ValueError: γ is refused by `check_event`.
    """

    gamma: float = 1.0

    def __post_init__(self) -> None:
        check_event(self.gamma)


@dataclass(frozen=True)
class Optimism:
    """The weight κ of the exploration in the index mean + κ·(posterior standard deviation) of an arm.

    Args:
        kappa: κ of an arm that has been pulled, and of every arm if each client plans for itself.
        untried: κ of an arm that nobody has pulled, in a joint plan. None means ``kappa``.
        sigma: The standard deviation σ of a reward that the surrogate is given. None means the σ of the problem.

    Raises:
        ValueError: κ is negative or not finite, or σ is not positive.
    """

    kappa: float = 3.0
    untried: float | None = None
    sigma: float | None = None

    def __post_init__(self) -> None:
        remedy = "give a finite number of standard deviations κ, at least 0"
        number("kappa", self.kappa, remedy, least=0)
        if self.untried is not None:
            number("untried", self.untried, f"{remedy}, for arms that nobody has pulled", least=0)
        if self.sigma is not None:
            number("sigma", self.sigma, "give σ > 0, the noise of a reward", above=0)

    def of_arms(self, counts: Tensor) -> Tensor:
        """Return κ of every arm in a joint plan, (…, K): ``kappa`` if the arm has been pulled, otherwise ``untried``.

        Args:
            counts: How often each arm has been pulled, (…, K).
        """
        return torch.where(counts > 0, self.kappa, self.kappa if self.untried is None else self.untried)


@dataclass(frozen=True)
class Beginning:
    """The pulls before the first fit: the Phase I of a ``start``, or those of an ``exploration``, for instance
    `each_arm`.

    If neither is given, Phase I has ⌈√(NT)⌉ uniform pulls.

    Args:
        start: The Phase I of the paper, with the fitted parameters ŵ₀ of its network.
        exploration: Other pulls.
        informed: Whether the surrogate sees the data of Phase I.
        foretold: Whether all clients and the server know from a common seed which arms the ``exploration`` pulls. Then
            only the sums of its rewards are sent, without counts.

    Raises:
        ValueError: Both ``start`` and ``exploration`` are given.
    """

    start: Start | None = None
    exploration: Exploration | None = None
    informed: bool = True
    foretold: bool = False

    def __post_init__(self) -> None:
        both = self.start is not None and self.exploration is not None
        require(not both, "exploration", "given", "a start has its own; give one of the two")


class Own(NamedTuple):
    """The model of each client if every client plans for itself.

    Args:
        posterior: The posterior of each client on the arms, with mean (S, N, K) and covariance (S, N, K, K) in units of
            σ².
        gain: Σ ln(1 + variance/σ²) over the client's pulls since the last synchronisation, (S, N).
    """

    posterior: Posterior
    gain: Tensor


class EpochState(NamedTuple):
    """The state of S runs of `Epochs` with N clients.

    Args:
        fresh: The counts and sums of each client since the last synchronisation, (S, N, K).
        server: The counts and sums of all clients up to the last synchronisation, (S, K).
        place: The number of pulls of the epoch that come before each client's next pull, (S, N).
        length: The number of pulls of the epoch, (S,).
        fits: The fit of every run.
        kept: Whether a run uses the fit of an earlier epoch because a newer one failed, (S,) bool.
        plan: In a joint plan the arms of the epoch, (S, NT) int64, of which the first are planned and the rest are 0.
            If each client plans for itself, the models `Own`.
    """

    fresh: Tally
    server: Tally
    place: Tensor
    length: Tensor
    fits: tuple[Fitted, ...]
    kept: Tensor
    plan: Tensor | Own


@dataclass(frozen=True)
class Epochs:
    """A learner of N clients that fits a surrogate at every synchronisation and plans the pulls up to the next one.

    Args:
        learners: The number N of clients.
        arms: The features of the arms, (S, K, d_x).
        runs: The number of each of the S runs.
        surrogates: The surrogate of each run.
        first: The counts and sums that everybody knows before the first fit, (S, K).
        order: The order in which ties of a joint plan are broken, (S, 1, K).
        sigma: The standard deviation σ of a reward that the surrogates are given.
        optimism: κ of every arm.
        until: When an epoch ends.
        planning: "joint", one plan for all clients, or "own", each client for itself.
        steps: The number NT of pulls of Phase II.
        begun: The number T₀ of pulls before Phase II.
    """

    learners: int
    arms: Tensor
    runs: tuple[int, ...]
    surrogates: tuple[Surrogate, ...]
    first: Tally
    order: Tensor
    sigma: float
    optimism: Optimism
    until: Growing | Event
    planning: Planning
    steps: int
    begun: int

    def begin(self) -> EpochState:
        """Return the state after the first fit, to the counts and sums that everybody knows.

        Raises:
            ValueError: The first fit of a run failed.
        """
        run = torch.arange(len(self.runs))
        return self._epoch(run, self.first, torch.zeros_like(run), [None] * len(run))

    def _epoch(self, run: Tensor, server: Tally, turn: Tensor, before: Sequence[Fitted | None]) -> EpochState:
        """Return the state of the R runs ``run`` (R,) at the beginning of an epoch, in which client ``turn`` (R,) pulls
        first.

        Each surrogate is fitted to the counts and sums at the ``server`` (R, K) and may begin from its fit ``before``.
        If a fit fails, the run keeps the fit before; a ``ValueError`` is raised if it has none.
        """
        fits: list[Fitted] = []
        kept = torch.zeros(len(run), dtype=torch.bool)
        for r, counts, sums, last in zip(run.tolist(), *server, before, strict=True):
            try:
                fit = fitted(self.surrogates[r], self.arms[r], Tally(counts, sums), self.sigma, last)
            except Exception as error:
                why = f"({why_it_failed(error)}): scale arms and rewards to order 1, or explore longer"
                if last is None:
                    raise ValueError(f"the first fit of run {self.runs[r]} failed {why}") from error
                fit, kept[len(fits)] = last, True
            fits.append(fit)
        (runs, arms), clients = server.counts.shape, self.learners
        seat = (torch.arange(clients) - turn.unsqueeze(1)) % clients
        length = self._length(server.counts.sum(-1))
        plan: Tensor | Own
        if self.planning == "own":
            mean = torch.stack([fit.mean for fit in fits])
            covariance = torch.stack([fit.covariance(torch.arange(arms)) for fit in fits]) / self.sigma**2
            moments = (part.unsqueeze(1).expand(-1, clients, *part.shape[1:]) for part in (covariance, mean))
            plan = Own(Posterior(*moments), mean.new_zeros(runs, clients))
        else:
            length, plan = self._plan(run, fits, length, server.counts)
        fresh = Tally.blank(runs, clients, arms)
        return EpochState(fresh, server, seat, length, tuple(fits), kept, plan)

    def notes(self, state: EpochState, index: Tensor, arm: Tensor) -> Mapping[str, Tensor]:
        """Return the note ``kept_fit`` (shape of ``arm``, bool), whether the pull follows a fit of an earlier epoch
        because a newer one failed. The result is empty if no run keeps such a fit now.
        """
        return {"kept_fit": state.kept.unsqueeze(1).expand_as(arm)} if bool(state.kept.any()) else {}

    def index(self, state: EpochState) -> Tensor:
        """Return the index of every arm: in a joint plan 1 for the planned arm and 0 for the others, (S, N, K). If each
        client plans for itself, the index is mean + κ√variance of the client's own posterior, (S, N, K).
        """
        plan = state.plan
        if isinstance(plan, Own):
            return plan.posterior.mean + self.optimism.kappa * self.sigma * width(plan.posterior.variance)
        # whoever else synchronises, a guard, may be late: then the plan begins again
        arm = plan.gather(1, state.place % state.length.clamp(max=plan.shape[1]).unsqueeze(1))
        return torch.nn.functional.one_hot(arm, state.fresh.counts.shape[-1]).double()

    def fires(self, state: EpochState, arm: Tensor) -> Tensor:
        """Return whether the pull of ``arm`` (S, N) would be the last of its epoch, (S, N) bool."""
        if isinstance(state.plan, Own) and isinstance(self.until, Event):
            gain = state.plan.gain + state.plan.posterior.gain(arm)
            return (state.fresh.counts.sum(-1) + 1) * gain > self.until.gamma
        return state.place + 1 >= state.length.unsqueeze(1)  # above it only where clients do not take turns

    def learn(self, state: EpochState, arm: Tensor, reward: Tensor, turn: Tensor) -> EpochState:
        """Return the state after the clients in ``turn`` (S, N) bool have pulled ``arm`` and received ``reward``, (S,
        N) each.
        """
        plan = state.plan
        if isinstance(plan, Own):
            gain = plan.gain + turn * plan.posterior.gain(arm)
            plan = Own(plan.posterior.absorb(arm, reward, turn), gain)
        place = state.place + self.learners * turn.long()
        return state._replace(fresh=state.fresh.record(arm, reward, turn), place=place, plan=plan)

    def synchronise(self, state: EpochState, star: Star, when: When) -> EpochState:
        """Return the state after a synchronisation of the runs in ``when``: every client sends its new counts and sums,
        the server broadcasts their totals, and all fit again and plan the next epoch.
        """
        run, fits = when.run, list(state.fits)
        news = star.collect(self._message(state.fresh.of(run)), when).summed()
        server = state.server.of(run) + star.broadcast(self._message(news), when)
        turn = (when.step + 1 - self.begun) % self.learners
        new = self._epoch(run, server, turn, [fits[r] for r in run.tolist()])
        for r, fit in zip(run.tolist(), new.fits, strict=True):
            fits[r] = fit
        return place(state._replace(fits=()), run, new._replace(fits=()))._replace(fits=tuple(fits))

    def _message(self, tally: Tally) -> Message[Tally]:
        """Return the message with ``tally`` (R, …, K): counts and sums if each client plans for itself, and sums alone
        if the counts are known from a joint plan.
        """
        if self.planning == "own":
            return counts_and_sums(tally)
        return sums_alone(tally)

    def _length(self, pulls: Tensor) -> Tensor:
        """Return the length (R,) of the epoch that follows ``pulls`` (R,); with an event this is 4N, a first guess of
        how many pulls have to be planned.
        """
        if isinstance(self.until, Event):
            return torch.full(pulls.shape, 4 * self.learners)
        return torch.tensor([self.until.length(int(made)) for made in pulls])

    def _plan(
        self, run: Tensor, fits: Sequence[Fitted], length: Tensor, counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the lengths (R,) and the arms (R, NT) of an epoch for the runs ``run`` (R,). With an event the guess
        ``length`` (R,) is doubled until the event fires within the plan of every run or the plan has NT pulls.
        """
        kappa, order = self.optimism.of_arms(counts), self.order[run].squeeze(1)
        while True:
            pulls = min(int(length.max()), self.steps)
            arm, variance = plan(fits, kappa, order, self.sigma, pulls)
            if isinstance(self.until, Growing):
                break
            fired = self._fired(variance)
            if bool(fired.any(1).all()) or pulls == self.steps:
                length = torch.where(fired.any(1), fired.int().argmax(1) + 1, self.steps + 1)
                break
            length = 2 * length
        return length, torch.nn.functional.pad(arm, (0, self.steps - pulls))

    def _fired(self, variance: Tensor) -> Tensor:
        """Return whether some client's event would fire at each of the L pulls of a plan, (R, L) bool, given the
        ``variance`` (R, L) of each pulled arm before its pull.
        """
        assert isinstance(self.until, Event)
        pulls, clients = variance.shape[1], self.learners
        gain = torch.nn.functional.pad((variance / self.sigma**2).log1p(), (0, -pulls % clients))
        own = gain.unflatten(1, (-1, clients)).cumsum(1)
        fired: Tensor = own * torch.arange(1, own.shape[1] + 1).unsqueeze(-1) > self.until.gamma
        return fired.flatten(1)[:, :pulls]


def sums_alone(tally: Tally) -> Message[Tally]:
    """Return a message with the sums of ``tally`` (R, …, K) for a receiver that knows the counts; it is charged one
    scalar for each arm with a pull.
    """
    return Message(tally, (tally.counts > 0).sum(-1))


def require_epochs(
    surrogates: Sequence[Surrogate], rounds: int, until: Growing | Event, optimism: Optimism
) -> None:
    """Check that surrogates can be played in epochs with these arguments.

    Raises:
        TypeError: A surrogate has no ``fit``, ``until`` is neither `Growing` nor `Event`, or ``optimism`` is no
            `Optimism`.
        ValueError: T = ``rounds`` is below 1.
        ImportError: A surrogate is a `GaussianProcess`, and SciPy is not installed.
    """
    for surrogate in surrogates:
        remedy = "give a Surrogate, GaussianProcess() for instance"
        require_kind(hasattr(surrogate, "fit"), "surrogate", surrogate, remedy)
        if isinstance(surrogate, GaussianProcess):
            with extra("study"):  # said now, not at the first fit
                import scipy.optimize  # noqa: F401
    count("rounds", rounds, "give T, at least one round")
    require_kind(isinstance(until, Growing | Event), "until", until, "give Growing or Event")
    require_kind(isinstance(optimism, Optimism), "optimism", optimism, "give Optimism(kappa)")


@on_cpu
def each_arm(problem: Problem, length: int) -> Exploration:
    """Return T₀ = ``length`` exploratory pulls that go through all K arms in a random order before they repeat one.

    If T₀ is K, each arm is pulled once. The scalars sent are not charged yet.

    Raises:
        ValueError: ``length`` is below 1.
    """
    count("length", length, "give T₀, at least one exploratory pull")
    arms = problem.means.shape[1]
    arm = torch.stack([distinct(arms, length, source) for source in problem.generators("each arm")])
    return Exploration(arm, problem.observe(arm, problem.tape(length)), Ledger.blank(*arm.shape))


def distinct(arms: int, length: int, source: torch.Generator) -> Tensor:
    """Return ``length`` arms in a random order, (length,) int64, such that each block of K = ``arms`` pulls has every
    arm once.

    Args:
        arms: The number K of arms.
        length: The number of pulls. The last block is cut off after it.
        source: The generator of the random orders.
    """
    orders = [torch.randperm(arms, generator=source) for _ in range(-(-length // arms))]
    return torch.cat(orders)[:length]


@on_cpu
def surrogate_ucb(
    problem: Problem,
    surrogate: Surrogate | Sequence[Surrogate],
    clients: int,
    rounds: int,
    *,
    until: Growing | Event | None = None,
    planning: Planning = "joint",
    optimism: Optimism = Optimism(),
    begins: Beginning = Beginning(),
    guarantee: Guarantee | None = None,
) -> Trace:
    """Play T₀ pulls of Phase I and then T = ``rounds`` rounds in epochs, each planned by a fit of a surrogate.

    Args:
        problem: The arms and rewards of S runs.
        surrogate: One surrogate for all runs, or one for each.
        clients: N.
        rounds: T, so that Phase II has NT pulls.
        until: When an epoch ends, `Growing` or `Event`; ``Growing()`` unless given.
        planning: "joint", one plan for all clients, or "own", each client for itself.
        optimism: κ and σ.
        begins: The pulls before the first fit.
        guarantee: With one, the plan is the proposal of a guard, whose event ends the epochs.

    Returns:
        The trace of both phases.

    Raises:
        TypeError: An argument is of another kind than stated.
        ValueError: A value is out of range, the number of surrogates is neither 1 nor S, the start does not fit the
            problem, or the first fit of a run fails.
        ImportError: A surrogate is a `GaussianProcess`, and SciPy is not installed.
    """
    require_kind(isinstance(problem, Problem), "problem", problem, "give a Problem")
    count("clients", clients, "give N, at least one client")
    runs, arms = problem.means.shape
    each = tuple(surrogate) if isinstance(surrogate, Sequence) else (surrogate,) * runs
    require(
        len(each) == runs, "the number of surrogates", len(each), f"give one, or one for each of {runs} runs"
    )
    until = Growing() if until is None else until
    require_epochs(each, rounds, until, optimism)
    require_kind(isinstance(begins, Beginning), "begins", begins, "give Beginning(start or exploration)")
    sigma = problem.sigma if optimism.sigma is None else optimism.sigma
    kinds = get_args(Planning)
    require(planning in kinds, "planning", planning, f"choose one of {kinds}")
    start, exploration = begins.start, begins.exploration
    if start is not None:
        start.require_for(problem, start.encoding, shared=True)
        exploration = start.exploration
    told = start is not None and names_arms(start.encoding)  # the server knows the data of Phase I already
    exploration = exploration or explore(problem, phase_one_length(clients, rounds))
    first, begun = Tally.blank(runs, arms), exploration.arm.shape[1]
    if begins.informed:
        first = phase_one_tally(exploration, 1, arms).summed()
        if guarantee is None:
            message = sums_alone if begins.foretold else counts_and_sums
            exploration, first = exchange(exploration, clients, arms, told, message)
    learner = Epochs(
        clients, problem.arms, problem.runs, each, first, order_of_ties(problem, 1),
        sigma, optimism, until, planning, clients * rounds, begun,
    )  # fmt: skip
    name = f"{type(each[0]).__name__}, {planning}"
    if guarantee is not None:
        return guarded(f"{name}, guarded", problem, learner, exploration, clients, rounds, guarantee, told)
    return simulate(name, problem, learner, exploration, clients, clients * rounds)
