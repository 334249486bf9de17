"""Play any surrogate in epochs: all clients fit it to the shared counts and sums, pull arms, and share the new ones.

Every client makes the same fit to the same data, so no model is sent. An epoch ends when the pulls of all clients have
grown by a factor (`Growing`). Its pulls are one plan for all clients, as GP-BUCB makes it. Each pull has the arm with
the largest mean + κ√variance, with the posterior mean and variance of its mean reward and a weight κ. The mean stays as
fitted, and the variance is updated as if the rewards of the pulls planned before had been observed (Desautels, Krause
and Burdick, JMLR 2014, https://arxiv.org/abs/1206.6402).

All clients and the server can compute a joint plan, so that they know who pulls which arm. Therefore only sums are
sent: one scalar to the server for each arm that the client pulled, and one scalar to each client for each arm that
any client pulled. This requires that the fits of all clients agree to the last digit, as they do on machines of the
same kind.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, extra, number, on_cpu, require, require_kind
from fedgo.beyond.guarantees.guarantee import Guarantee, exchange, guarded, phase_one_tally
from fedgo.beyond.guarantees.optimist import counts_and_sums
from fedgo.beyond.method.gaussian_process import GaussianProcess
from fedgo.beyond.method.planning import plan
from fedgo.beyond.method.surrogates import Fitted, Surrogate, fitted, why_it_failed
from fedgo.confidence import Tally
from fedgo.messages import names_arms
from fedgo.phase_one import Exploration, Start, explore, phase_one_length
from fedgo.phase_two import place
from fedgo.problem import Problem
from fedgo.simulation import order_of_ties, simulate
from fedgo.star import Ledger, Message, Star, When
from fedgo.trace import Trace


@dataclass(frozen=True)
class Growing:
    """A rule that ends an epoch by growth: the epoch after n pulls has max(⌈n(factor − 1)⌉, least) pulls.

    The pulls are those of all clients together. The product is computed in float64; where it should be a whole number,
    rounding may make the epoch one pull longer.

    Args:
        factor: The factor by which the number of pulls of all clients grows in an epoch, above 1.
        least: The smallest number of pulls of an epoch, at least 1.

    Raises:
        ValueError: ``factor`` is not above 1 or not finite, or ``least`` is below 1.
        TypeError: ``factor`` is not a number, or ``least`` is not a whole number.
    """

    factor: float = 1.3
    least: int = 4

    def __post_init__(self) -> None:
        remedy = "give a factor above 1 by which the pulls grow"
        number("factor", self.factor, remedy, above=1)
        count("least", self.least, "give the least pulls of an epoch, at least 1")

    def length(self, pulls: int) -> int:
        """Return the number of pulls by all clients together in the epoch after the first ``pulls`` pulls.

        It is max(⌈``pulls``·(``factor`` − 1)⌉, ``least``). The product is computed in float64; where it should be a
        whole number, rounding may make the result one larger.
        """
        return max(self.least, math.ceil(pulls * (self.factor - 1)))


@dataclass(frozen=True)
class Optimism:
    """The weight κ of exploration: the index of an arm is its posterior mean + κ·(its posterior standard deviation).

    Args:
        kappa: κ ≥ 0 of an arm that has been pulled.
        untried: κ ≥ 0 of an arm that nobody has pulled. None means ``kappa``.
        sigma: The standard deviation σ > 0 of a reward's noise that the surrogate is given. None means the σ of the
            problem.

    Raises:
        ValueError: κ is negative or not finite, or σ is not positive and finite.
        TypeError: κ or σ is not a number.
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
        """Return the weight κ of each of K arms, (…, K).

        It is ``kappa`` if the arm has been pulled, otherwise ``untried``, or ``kappa`` if that is None, rounded to
        float32 and returned as float64.

        Args:
            counts: The number of pulls of each arm, (…, K).
        """
        # The stored runs were played with float32 weights; with others, near ties could end differently.
        untried = self.kappa if self.untried is None else self.untried
        weights = torch.tensor([self.kappa, untried], dtype=torch.float32, device=counts.device).double()
        return torch.where(counts > 0, weights[0], weights[1])


@dataclass(frozen=True)
class Beginning:
    """The pulls before the first fit, and how the clients share their rewards.

    If neither ``start`` nor ``exploration`` is given, they are ⌈√(NT)⌉ uniform pulls, with N clients and T rounds.

    Args:
        start: The paper's Phase I, with its pulls and the parameters ŵ₀ of the network that were fitted to them.
        exploration: Other pulls, for instance those of `each_arm`.
        informed: Whether the surrogate is fitted to the data of these pulls too. If not, these data are not shared,
            unless a guard plays.
        foretold: Whether all clients and the server know the arms of these pulls beforehand, from a common seed. Then
            only the sums of the rewards are sent, without counts. With a guard it makes no difference.

    Raises:
        ValueError: Both ``start`` and ``exploration`` are given. Their types are not checked here.
    """

    start: Start | None = None
    exploration: Exploration | None = None
    informed: bool = True
    foretold: bool = False

    def __post_init__(self) -> None:
        both = self.start is not None and self.exploration is not None
        require(not both, "exploration", "given", "a start has its own; give one of the two")


class EpochState(NamedTuple):
    """The state of S runs of `Epochs` with N clients and K arms.

    Args:
        fresh: The counts and sums of each client's pulls since the last synchronisation, (S, N, K) each.
        server: The counts and sums of all clients up to the last synchronisation, (S, K) each.
        place: The number of pulls of the epoch that come before each client's next pull, (S, N) int64.
        length: The number of pulls of the epoch, (S,) int64.
        fits: The fit of each of the S runs, which is a posterior on its K arms.
        kept: Whether a run uses the fit of an earlier epoch because a newer one failed, (S,) bool.
        plan: The arms of the epoch's pulls, (S, NT) int64, of which those after ``length`` pulls are not used.
    """

    fresh: Tally
    server: Tally
    place: Tensor
    length: Tensor
    fits: tuple[Fitted, ...]
    kept: Tensor
    plan: Tensor


@dataclass(frozen=True)
class Epochs:
    """A `Learner` of N clients that fits a surrogate at every synchronisation and plans the pulls up to the next one.

    Args:
        learners: The number N of clients.
        arms: The d_x features of each of the K arms, (S, K, d_x).
        runs: The numbers of the S runs, which errors name.
        surrogates: The surrogate of each run.
        first: The counts and sums that everybody knows before the first fit, (S, K) each.
        order: A number for each arm by which ties of a joint plan are broken, (S, 1, K); of tied arms the one with the
            largest of these numbers is pulled.
        sigma: The standard deviation σ of a reward's noise that the surrogates are given.
        optimism: The weight κ of the standard deviation in the index of each arm.
        until: The rule that ends an epoch.
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
    until: Growing
    steps: int
    begun: int

    def begin(self) -> EpochState:
        """Fit the surrogate of each of S runs to the counts and sums in ``first``, and plan the first epoch.

        Returns:
            The state of the runs at the beginning of Phase II.

        Raises:
            ValueError: The first fit of a run fails, or the index of an arm is NaN.
            ImportError: A library that the fit needs is missing.
            MemoryError: The fit needs more memory than there is.
        """
        run = torch.arange(len(self.runs))
        return self._epoch(run, self.first, torch.zeros_like(run), [None] * len(run))

    def _epoch(self, run: Tensor, server: Tally, turn: Tensor, before: Sequence[Fitted | None]) -> EpochState:
        """Fit the surrogates of R runs, plan the next epoch, and return the state at its beginning.

        If a fit fails, the run keeps the fit before it; a ``ValueError`` is raised if there is none. If a library or
        memory is missing, the error passes through.

        Args:
            run: The positions of the R runs among all S runs, (R,) int64.
            server: The counts and sums of all clients, to which the surrogates are fitted, (R, K) each.
            turn: The number of the client that makes the first pull of the epoch, (R,) int64.
            before: The last fit of each of the R runs, from which the new fit may begin; None if there is none.
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
        length = torch.tensor([self.until.length(int(made)) for made in server.counts.sum(-1)])
        pulls = min(int(length.max()), self.steps)
        kappa, order = self.optimism.of_arms(server.counts), self.order[run].squeeze(1)
        arm, _ = plan(fits, kappa, order, self.sigma, pulls)
        planned = torch.nn.functional.pad(arm, (0, self.steps - pulls))
        fresh = Tally.blank(runs, clients, arms)
        return EpochState(fresh, server, seat, length, tuple(fits), kept, planned)

    def notes(self, state: EpochState, index: Tensor, arm: Tensor) -> Mapping[str, Tensor]:
        """Return the notes on each client's pull, by name, for N clients in S runs.

        Args:
            state: The state before the pull.
            index: Not used.
            arm: The arm that each client pulls, (S, N) int64.

        Returns:
            ``kept_fit`` (S, N) bool, whether the pull follows a fit of an earlier epoch because a newer fit failed; or
            no note if no run uses such a fit now.
        """
        return {"kept_fit": state.kept.unsqueeze(1).expand_as(arm)} if bool(state.kept.any()) else {}

    def index(self, state: EpochState) -> Tensor:
        """Return the index of each of K arms for the next pull of each of N clients in S runs, (S, N, K).

        It is 1 for the planned arm and 0 for the others; a plan that is used up begins again.
        """
        plan = state.plan
        # a guard decides on its own when to synchronise; if the plan ends before that, it begins again
        arm = plan.gather(1, state.place % state.length.clamp(max=plan.shape[1]).unsqueeze(1))
        return torch.nn.functional.one_hot(arm, state.fresh.counts.shape[-1]).double()

    def fires(self, state: EpochState, arm: Tensor) -> Tensor:
        """Return whether each client's pull would end the epoch, (S, N) bool, for N clients in S runs.

        The pull does so if it is the last one of the epoch, or a later one.

        Args:
            state: The state before the pull.
            arm: The arm that each client pulls, (S, N) int64.
        """
        # the place exceeds the length only if clients do not take turns
        return state.place + 1 >= state.length.unsqueeze(1)

    def learn(self, state: EpochState, arm: Tensor, reward: Tensor, turn: Tensor) -> EpochState:
        """Return the state after some of the N clients of S runs have made a pull.

        The pull is added to the counts and sums of the client since the last synchronisation.

        Args:
            state: The state before the pull.
            arm: The arm that each client pulls, (S, N) int64.
            reward: The reward that it receives, (S, N).
            turn: 1 for the clients that make this pull, 0 for the others, (S, N) float64.
        """
        place = state.place + self.learners * turn.long()
        return state._replace(fresh=state.fresh.record(arm, reward, turn), place=place)

    def synchronise(self, state: EpochState, star: Star, when: When) -> EpochState:
        """Return the state after a synchronisation of some runs.

        Every client sends its sums since the last synchronisation, whose counts all know from the plan, and the server
        broadcasts their totals. Then all clients fit the surrogate again and plan the next epoch. A run
        whose fit fails keeps the fit before it.

        Args:
            state: The state before the synchronisation.
            star: The network over which clients and server send, which counts the scalars.
            when: The positions of the R runs that synchronise, and the step of each at which the scalars are counted,
                (R,) int64 each.

        Raises:
            ImportError: A library that the fit needs is missing.
            MemoryError: The fit needs more memory than there is.
            ValueError: The index of an arm is NaN.
        """
        run, fits = when.run, list(state.fits)
        news = star.collect(sums_alone(state.fresh.of(run)), when).summed()
        server = state.server.of(run) + star.broadcast(sums_alone(news), when)
        turn = (when.step + 1 - self.begun) % self.learners
        new = self._epoch(run, server, turn, [fits[r] for r in run.tolist()])
        for r, fit in zip(run.tolist(), new.fits, strict=True):
            fits[r] = fit
        return place(state._replace(fits=()), run, new._replace(fits=()))._replace(fits=tuple(fits))


def sums_alone(tally: Tally) -> Message[Tally]:
    """Return the message with ``tally`` and the cost of sending its sums alone, to a receiver that knows the counts.

    ``tally`` has the counts and sums of K arms, (R, …, K) each, for R runs. The cost is one scalar for each arm with a
    pull, (R, …) int64.
    """
    return Message(tally, (tally.counts > 0).sum(-1))


def require_epochs(surrogates: Sequence[Surrogate], rounds: int, until: Growing, optimism: Optimism) -> None:
    """Check that `surrogate_ucb` can play in epochs with these arguments.

    Args:
        surrogates: The surrogate of each run.
        rounds: The number T of rounds.
        until: The rule that ends an epoch.
        optimism: The weights of exploration.

    Raises:
        TypeError: A surrogate has no ``fit``, ``until`` is no `Growing`, ``optimism`` is not an
            `Optimism`, or T is not a whole number.
        ValueError: T is below 1 or above 2⁵³.
        ImportError: A surrogate is a `GaussianProcess`, and SciPy is not installed.
    """
    for surrogate in surrogates:
        remedy = "give a Surrogate, GaussianProcess() for instance"
        require_kind(hasattr(surrogate, "fit"), "surrogate", surrogate, remedy)
        if isinstance(surrogate, GaussianProcess):
            with extra("study"):  # refuse now and not at the first fit
                import scipy.optimize  # noqa: F401
    count("rounds", rounds, "give T, at least one round")
    require_kind(isinstance(until, Growing), "until", until, "give Growing(factor)")
    require_kind(isinstance(optimism, Optimism), "optimism", optimism, "give Optimism(kappa)")


@on_cpu
def each_arm(problem: Problem, length: int) -> Exploration:
    """Return T₀ exploratory pulls in each run that go through all K arms in a random order before an arm is repeated.

    If T₀ ≤ K, the pulled arms are distinct.

    Args:
        problem: S runs of a bandit problem with K arms.
        length: The number T₀ of pulls.

    Returns:
        The arms and the rewards of the pulls, (S, T₀) each, with no scalars counted for sharing them.

    Raises:
        ValueError: T₀ is below 1 or above 2⁵³.
        TypeError: T₀ is not a whole number.
        AttributeError: ``problem`` is not a `Problem`.
    """
    count("length", length, "give T₀, at least one exploratory pull")
    arms = problem.means.shape[1]
    arm = torch.stack([distinct(arms, length, source) for source in problem.generators("each arm")])
    return Exploration(arm, problem.observe(arm, problem.tape(length)), Ledger.blank(*arm.shape))


def distinct(arms: int, length: int, source: torch.Generator) -> Tensor:
    """Return ``length`` arms, (length,) int64, such that each block of K pulls has every arm once, in a random order.

    Args:
        arms: The number K of arms.
        length: The number of pulls, at least 1. The last block may be incomplete.
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
    until: Growing | None = None,
    optimism: Optimism = Optimism(),
    begins: Beginning = Beginning(),
    guarantee: Guarantee | None = None,
) -> Trace:
    """Play T₀ pulls of Phase I and then T rounds in epochs, each of which is planned with a new fit of a surrogate.

    Args:
        problem: S runs of a bandit problem with K arms.
        surrogate: One surrogate for all runs, or a sequence with one for each run.
        clients: The number N of clients.
        rounds: The number T of rounds, so that Phase II has NT pulls.
        until: The rule that ends an epoch; None means ``Growing()``.
        optimism: The weight κ of the posterior standard deviation in the index of an arm, and the standard deviation σ
            of a reward's noise that the surrogate is given.
        begins: The pulls before the first fit.
        guarantee: The numbers of a guard. If they are given, the guard decides whether each planned arm is pulled or
            the arm with the largest upper bound (`guarded`), and the guard's event ends the epochs.

    Returns:
        The trace of both phases. If a later fit of a run fails, but not for want of a library or of memory, the run
        keeps its last fit, and the note ``kept_fit`` says at which pulls. With a guard the trace has the notes of
        `guarded` in place of this one.

    Raises:
        TypeError: ``problem``, a surrogate, ``until``, ``optimism``, ``begins`` or ``guarantee`` is of another kind, or
            N or T is not a whole number.
        ValueError: N or T is below 1; a sequence does not have one surrogate for each run; the
            ``start`` in ``begins`` was made on another problem or gives each client fitted parameters ŵ₀ of its own, or
            the ``exploration`` in it has another number of runs; the first fit of a run fails; or the index of an arm
            is NaN.
        AttributeError: The ``start`` in ``begins`` is not a `Start`, or the ``exploration`` not an `Exploration`.
        RuntimeError: The ``exploration`` in ``begins`` has an arm that the problem does not have.
        ImportError: A library that a fit needs is missing, SciPy for a `GaussianProcess` for instance.
        MemoryError: A fit needs more memory than there is.
    """
    require_kind(isinstance(problem, Problem), "problem", problem, "give a Problem")
    count("clients", clients, "give N, at least one client")
    runs, arms = problem.means.shape
    each = tuple(surrogate) if isinstance(surrogate, Sequence) else (surrogate,) * runs
    remedy = f"give one, or one for each of {runs} runs"
    require(len(each) == runs, "the number of surrogates", len(each), remedy)
    until = Growing() if until is None else until
    require_epochs(each, rounds, until, optimism)
    require_kind(isinstance(begins, Beginning), "begins", begins, "give Beginning(start or exploration)")
    sigma = problem.sigma if optimism.sigma is None else optimism.sigma
    start, exploration = begins.start, begins.exploration
    if start is not None:
        same = start.problem.same(problem)
        require(same, "the problem", problem.name, "give the problem on which the start was made")
        start.require(start.encoding, shared=True)
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
        sigma, optimism, until, clients * rounds, begun,
    )  # fmt: skip
    name = f"{type(each[0]).__name__}, joint"
    if guarantee is not None:
        return guarded(f"{name}, guarded", problem, learner, exploration, clients, rounds, guarantee, told)
    return simulate(name, problem, learner, exploration, clients, clients * rounds)
