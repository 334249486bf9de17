"""Play any surrogate in epochs: all clients fit it to the shared counts and sums, pull arms, and share the new ones.

Every client makes the same fit to the same data, so no model is sent. An epoch ends when the pulls of all clients have
grown by a factor (`Growing`). Its pulls are one plan for all clients, as GP-BUCB makes it. Each pull has the arm with
the largest mean + κ√variance, with the posterior mean and variance of its mean reward and a weight κ. The mean stays as
fitted, and the variance is updated as if the rewards of the pulls planned before had been observed (Desautels, Krause
and Burdick, JMLR 2014, https://arxiv.org/abs/1206.6402).

All clients and the server can compute a joint plan, so that they know who pulls which arm. Therefore only sums are
sent: one scalar to the server for each arm that the client pulled, and one scalar to each client for each arm that any
client pulled. This requires that the fits of all clients agree to the last digit, as they do on machines of the same
kind. There are S runs of N clients, T rounds and K arms; arrays are (S, N, K).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, extra, number, on_cpu, require_kind
from fedgo.beyond.guarantees.guarantee import Guarantee, exchange, guarded, phase_one_tally
from fedgo.beyond.guarantees.optimist import counts_and_sums
from fedgo.beyond.method.gaussian_process import GaussianProcess
from fedgo.beyond.method.planning import plan
from fedgo.beyond.method.surrogates import Fitted, Surrogate, fitted, why_it_failed
from fedgo.confidence import Tally
from fedgo.phase_one import Exploration, explore, phase_one_length
from fedgo.phase_two import place
from fedgo.problem import Problem
from fedgo.simulation import order_of_ties, simulate
from fedgo.star import Ledger, Message, Star, When
from fedgo.trace import Trace


@dataclass(frozen=True)
class Growing:
    """A rule that ends an epoch by growth: the epoch after n pulls has max(⌈n(factor − 1)⌉, least) pulls.

    The pulls are those of all clients together. Where the float64 product should be a whole number, rounding may make
    the epoch one pull longer.

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
        """Return the number of pulls by all clients together in the epoch after the first ``pulls`` pulls."""
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
        """Return the weight κ of each arm, given its number of pulls, (…, K) float64 numbers of float32 precision."""
        # The stored runs were played with float32 weights; with others, near ties could end differently.
        untried = self.kappa if self.untried is None else self.untried
        weights = torch.tensor([self.kappa, untried], dtype=torch.float32, device=counts.device).double()
        return torch.where(counts > 0, weights[0], weights[1])


class EpochState(NamedTuple):
    """The state of `Epochs`.

    Args:
        fresh: The counts and sums of each client's pulls since the last synchronisation, (S, N, K) each.
        server: The counts and sums of all clients up to the last synchronisation, (S, K) each.
        place: The number of pulls of the epoch that come before each client's next pull, (S, N) int64.
        length: The number of pulls of the epoch, (S,) int64.
        fits: The fit of each run, which is a posterior on its arms.
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
        arms: The features of the arms, (S, K, d_x).
        runs: The numbers of the runs, which errors name.
        surrogate: The surrogate of every run.
        first: The counts and sums that everybody knows before the first fit, (S, K) each.
        order: Of tied arms of a plan the one with the largest number here is pulled, (S, 1, K).
        sigma: The standard deviation σ of a reward's noise that the surrogate is given.
        optimism: The weight κ.
        until: The rule that ends an epoch.
        steps: The number NT of pulls of Phase II.
        begun: The number T₀ of pulls before Phase II.
    """

    learners: int
    arms: Tensor
    runs: tuple[int, ...]
    surrogate: Surrogate
    first: Tally
    order: Tensor
    sigma: float
    optimism: Optimism
    until: Growing
    steps: int
    begun: int

    def begin(self) -> EpochState:
        """Fit the surrogate of each run to ``first``, plan the first epoch, and return the state at its beginning."""
        run = torch.arange(len(self.runs))
        return self._epoch(run, self.first, torch.zeros_like(run), [None] * len(run))

    def _epoch(self, run: Tensor, server: Tally, turn: Tensor, before: Sequence[Fitted | None]) -> EpochState:
        """Fit the surrogate of R runs to ``server`` (R, K), plan the epoch whose first pull ``turn`` makes, (R,)."""
        fits: list[Fitted] = []
        kept = torch.zeros(len(run), dtype=torch.bool)
        for r, counts, sums, last in zip(run.tolist(), *server, before, strict=True):
            try:
                fit = fitted(self.surrogate, self.arms[r], Tally(counts, sums), self.sigma, last)
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
        arm = plan(fits, kappa, order, self.sigma, pulls)
        planned = torch.nn.functional.pad(arm, (0, self.steps - pulls))
        fresh = Tally.blank(runs, clients, arms)
        return EpochState(fresh, server, seat, length, tuple(fits), kept, planned)

    def notes(self, state: EpochState, index: Tensor, arm: Tensor) -> Mapping[str, Tensor]:
        """Return ``kept_fit`` (S, N), whether the pull follows an earlier fit because a newer one failed.

        If no run uses such a fit now, there is no note.
        """
        return {"kept_fit": state.kept.unsqueeze(1).expand_as(arm)} if bool(state.kept.any()) else {}

    def index(self, state: EpochState) -> Tensor:
        """Return 1 for the planned arm and 0 for the others, (S, N, K); a plan that is used up begins again."""
        plan = state.plan
        # a guard decides on its own when to synchronise; if the plan ends before that, it begins again
        arm = plan.gather(1, state.place % state.length.clamp(max=plan.shape[1]).unsqueeze(1))
        return torch.nn.functional.one_hot(arm, state.fresh.counts.shape[-1]).double()

    def fires(self, state: EpochState, arm: Tensor) -> Tensor:
        """Return whether each client's pull would be the last one of the epoch or a later one, (S, N) bool."""
        # the place exceeds the length only if clients do not take turns
        return state.place + 1 >= state.length.unsqueeze(1)

    def learn(self, state: EpochState, arm: Tensor, reward: Tensor, turn: Tensor) -> EpochState:
        """Return the state after a pull, which is added to the client's own counts and sums."""
        place = state.place + self.learners * turn.long()
        return state._replace(fresh=state.fresh.record(arm, reward, turn), place=place)

    def synchronise(self, state: EpochState, star: Star, when: When) -> EpochState:
        """Return the state after the runs of ``when`` have shared their sums and fitted and planned anew."""
        run, fits = when.run, list(state.fits)
        news = star.collect(sums_alone(state.fresh.of(run)), when).summed()
        server = state.server.of(run) + star.broadcast(sums_alone(news), when)
        turn = (when.step + 1 - self.begun) % self.learners
        new = self._epoch(run, server, turn, [fits[r] for r in run.tolist()])
        for r, fit in zip(run.tolist(), new.fits, strict=True):
            fits[r] = fit
        return place(state._replace(fits=()), run, new._replace(fits=()))._replace(fits=tuple(fits))


def sums_alone(tally: Tally) -> Message[Tally]:
    """Return the message with ``tally`` at one scalar for each arm with a pull, to a receiver that knows the counts."""
    return Message(tally, (tally.counts > 0).sum(-1))


def require_epochs(surrogate: Surrogate, rounds: int, until: Growing, optimism: Optimism) -> None:
    """Check that `surrogate_ucb` can play in epochs with these arguments."""
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
    """Return T₀ = ``length`` pulls in each run that go through all arms in a random order before one repeats.

    Raises:
        ValueError: T₀ is below 1.
        TypeError: T₀ is not a whole number.
    """
    count("length", length, "give T₀, at least one exploratory pull")
    arms = problem.means.shape[1]
    arm = torch.stack([distinct(arms, length, source) for source in problem.generators("each arm")])
    return Exploration(arm, problem.observe(arm, problem.tape(length)), Ledger.blank(*arm.shape))


def distinct(arms: int, length: int, source: torch.Generator) -> Tensor:
    """Return ``length`` arms such that each block of K pulls has every arm once, in a random order."""
    orders = [torch.randperm(arms, generator=source) for _ in range(-(-length // arms))]
    return torch.cat(orders)[:length]


@on_cpu
def surrogate_ucb(
    problem: Problem,
    surrogate: Surrogate,
    clients: int,
    rounds: int,
    *,
    until: Growing | None = None,
    optimism: Optimism = Optimism(),
    exploration: Exploration | None = None,
    foretold: bool = False,
    guarantee: Guarantee | None = None,
) -> Trace:
    """Play T₀ pulls of Phase I and then T rounds in epochs, each of which is planned with a new fit of a surrogate.

    Args:
        problem: S runs of a bandit problem.
        surrogate: The surrogate.
        clients: The number N of clients.
        rounds: The number T of rounds, so that Phase II has NT pulls.
        until: The rule that ends an epoch; None means ``Growing()``.
        optimism: The weight κ in the index of an arm, and the σ that the surrogate is given.
        exploration: The pulls before the first fit, for instance those of `each_arm`; None means ⌈√(NT)⌉ uniform ones.
        foretold: Whether all clients and the server know the arms of these pulls beforehand, from a common seed. Then
            only the sums of the rewards are sent, unless a guard plays.
        guarantee: The numbers of a guard. If they are given, the guard decides whether each planned arm is pulled or
            the arm with the largest upper bound (`guarded`), and the guard's event ends the epochs.

    Returns:
        The trace of both phases. If a later fit of a run fails, but not for want of a library or of memory, the run
        keeps its last fit, and the note ``kept_fit`` says at which pulls. With a guard the trace has the notes of
        `guarded`.

    Raises:
        TypeError: An argument is of another kind.
        ValueError: N or T is below 1, the first fit of a run fails, or the index of an arm is NaN.
        ImportError: A library that a fit needs is missing, SciPy for a `GaussianProcess` for instance.
    """
    require_kind(isinstance(problem, Problem), "problem", problem, "give a Problem")
    count("clients", clients, "give N, at least one client")
    arms = problem.means.shape[1]
    until = Growing() if until is None else until
    require_epochs(surrogate, rounds, until, optimism)
    fits = exploration is None or isinstance(exploration, Exploration)
    require_kind(fits, "exploration", exploration, "give an Exploration, that of each_arm for instance")
    sigma = problem.sigma if optimism.sigma is None else optimism.sigma
    exploration = exploration or explore(problem, phase_one_length(clients, rounds))
    first, begun = phase_one_tally(exploration, 1, arms).summed(), exploration.arm.shape[1]
    if guarantee is None:
        message = sums_alone if foretold else counts_and_sums
        exploration, first = exchange(exploration, clients, arms, False, message)
    learner = Epochs(
        clients, problem.arms, problem.runs, surrogate, first, order_of_ties(problem, 1),
        sigma, optimism, until, clients * rounds, begun,
    )  # fmt: skip
    name = f"{type(surrogate).__name__}, joint"
    if guarantee is not None:
        return guarded(f"{name}, guarded", problem, learner, exploration, clients, rounds, guarantee)
    return simulate(name, problem, learner, exploration, clients, clients * rounds)


def failed_fits(trace: Trace) -> Tensor:
    """Return how many synchronisations of each run left the model unfitted, by the note ``kept_fit``, (S,) int64."""
    kept = trace.notes.get("kept_fit", torch.zeros_like(trace.sync))
    return (trace.sync[:, :-1] & kept[:, 1:]).sum(1)
