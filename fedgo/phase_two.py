"""Phase II on features g_x of the arms x (Algorithm 1, lines 3–10): optimism, ridge regression and synchronisation.

Each client i keeps the statistics Σ_{t,i} and b_{t,i} of the data D_{t,i} that it knows after step t: all data up to
the last synchronisation, at step t_last, and its own since. With the features g of the pulled arms and the
regularisation weight λ, Σ_{t,i} is λI plus the sum of g gᵀ over these data, and b_{t,i} a sum of multiples of g.
ΔΣ_{t,i} and Δb_{t,i} are their parts from the client's own n_i pulls since t_last. The event of line 6 is

    n_i·ln(det Σ_{t,i}/det(Σ_{t,i} − ΔΣ_{t,i})) > γ.

When it occurs at one client, every client sends its ΔΣ and Δb to the server, the server sends the sums to all clients,
and every client sets its ΔΣ and Δb to 0. The printed algorithm leaves this reset out.

In this module the statistics are kept in arm space: as the number of pulls and the sum of residuals of each arm, and as
a posterior of the arms' mean rewards. There are S runs, R of which take part in a synchronisation, M learners (clients)
and K arms with r features; arrays are (S, M, K), with 1 in place of M for what all learners share. ``arm`` (S, M) int64
is the arm that each learner pulls, and ``turn`` (S, M) is 1 for the learners that do and 0 for the others.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from fedgo._checks import count, number, require_kind
from fedgo.confidence import Estimates, Posterior, Tally, condition, first_order, gain, of_arm, require_prior
from fedgo.messages import Encoding, check_encoding, scalars
from fedgo.problem import Problem
from fedgo.star import Message, Star, When

StateT = TypeVar("StateT", bound=Any)
PosteriorT = TypeVar("PosteriorT", bound=Estimates)
# A function that returns the index of K arms for each of M learners in each of S runs, (S, M, K), from the learners'
# posteriors and their data.
Index = Callable[[Estimates, Tally], Tensor]
# The number of pulls after which a posterior is computed from its data again, because rank-one updates accumulate
# rounding errors.
AFRESH = 100


@dataclass(frozen=True)
class Settings:
    """The parameters of Phase II: for the ridge regression, the optimism, and when and how the clients synchronise.

    The baselines take the same parameters; the docstring of each says what γ means for it.

    Args:
        lam: The regularisation weight λ > 0 of the ridge regression.
        beta: The squared radius β ≥ 0 of the confidence ball; an index adds √β times an arm's width to its mean.
        gamma: The threshold γ ≥ 0 of the event. With γ = 0 every pull of an arm whose variance is not 0 triggers a
            synchronisation; with γ = ∞ none does.
        encoding: The form in which statistics are sent (`fedgo.messages`), the paper's dense form by default. It
            decides what each message costs and does not change which arms are pulled.

    Raises:
        ValueError: A number is out of range or NaN, λ or β is infinite, or ``encoding`` is not the name of a form.
        TypeError: λ, β or γ is not a number.
    """

    lam: float = 1.0
    beta: float = 1.0
    gamma: float = 1.0
    encoding: Encoding = "dense"

    def __post_init__(self) -> None:
        number("lam", self.lam, "give a positive regularisation weight λ", above=0)
        number("beta", self.beta, "give a finite squared radius β, at least 0", least=0)
        number("gamma", self.gamma, "give a threshold γ of at least 0 (inf: never)", least=0, infinite=True)
        check_encoding(self.encoding)


_ANY = Settings()


def require_run(problem: Problem, clients: int, steps: int, settings: Settings = _ANY) -> None:
    """Check the arguments of an algorithm that has no Phase I."""
    require_kind(isinstance(problem, Problem), "problem", problem, "give a Problem")
    count("clients", clients, "give N, at least one client")
    count("steps", steps, "give at least one step")
    require_kind(isinstance(settings, Settings), "settings", settings, "give Settings(lam, beta, gamma)")


class EventState(NamedTuple, Generic[PosteriorT]):
    """What the learners and the server know at one moment.

    Args:
        posterior: Each learner's confidence set: a mean and a variance of each arm, (S, M, K) each.
        fresh: The counts and sums of each learner's own pulls since the last synchronisation, (S, M, K) each.
        gain: The log-ratio ln(det Σ/det(Σ − ΔΣ)) of each learner, (S, M).
        server: The counts and sums of the pulls of all learners up to the last synchronisation, (S, K) each.
    """

    posterior: PosteriorT
    fresh: Tally
    gain: Tensor
    server: Tally

    @property
    def known(self) -> Tally:
        """The counts and sums of the data that each learner knows, (S, M, K) each."""
        return self.server.for_all() + self.fresh


@dataclass(frozen=True)
class OnEvent(ABC, Generic[PosteriorT]):
    """M learners with a ridge model each, which synchronise when the event of line 6 occurs.

    `fedgo.simulation.simulate` plays them. A subclass says how a posterior is computed: `EventTriggered` in arm space,
    `fedgo.many_arms.ParameterSpace` for many arms.

    Args:
        learners: The number M of learners in each run.
        features: The gradients g_x of the network at ŵ₀, or their coordinates, (S, M or 1, K, r).
        offsets: The outputs f_x(ŵ₀), (S, M or 1, K).
        dimension: The number d_w ≤ 10⁶ of parameters, which decides the cost of messages.
        settings: λ, β, γ and the form of the messages.
        optimism: Returns the index of each arm from the posterior and the data; None for the first-order index.
    """

    learners: int
    features: Tensor
    offsets: Tensor
    dimension: int
    settings: Settings
    optimism: Index | None = None

    @abstractmethod
    def informed(self, run: Any, total: Tally, state: EventState[PosteriorT] | None = None) -> PosteriorT:
        """Return the posterior of the runs at the positions ``run``, whose learners all know the data ``total`` (R, K).

        ``state`` is that of all runs before they synchronised, or None if they had no state.
        """

    @abstractmethod
    def absorb(self, posterior: PosteriorT, arm: Tensor, reward: Tensor, turn: Tensor) -> PosteriorT:
        """Return the ``posterior`` after one pull of each learner with ``turn`` 1, in the memory of the old one."""

    @abstractmethod
    def afresh(self, posterior: PosteriorT, known: Tally, due: Tensor) -> PosteriorT:
        """Return ``posterior`` with the entries where ``due`` (S, M) is True computed from all data ``known``."""

    def statistics(self, tally: Tally) -> Message[Tally]:
        """Return the message that sends ΔΣ and Δb of the pulls in ``tally``, whose counts and sums determine them."""
        pulls, arms = tally.counts.sum(-1), self.features.shape[-2]
        return Message(tally, scalars(self.settings.encoding, self.dimension, pulls, arms))

    def begin(self) -> EventState[PosteriorT]:
        """Return the state before Phase II, in which no learner has data.

        Raises:
            ValueError: The features are so large, or λ so small, that rounding would decide which arm is pulled.
        """
        runs, _, arms, _ = self.features.shape
        return self.resume(Tally.blank(runs, arms))

    def resume(self, server: Tally) -> EventState[PosteriorT]:
        """Return the state in which all learners know the data ``server`` (S, K) and no others.

        Raises:
            ValueError: The features are so large, or λ so small, that rounding would decide which arm is pulled.
        """
        require_prior(self.features.square().sum(-1).amax(), self.settings.lam)
        runs, arms = server.counts.shape
        every, fresh = torch.arange(runs), Tally.blank(runs, self.learners, arms)
        posterior = self.informed(slice(None), server).of_each(self.learners)
        # the server's tally is a copy, because it may be updated in place
        return EventState(posterior, fresh, gain=fresh.sums[..., 0].clone(), server=server.of(every))

    def index(self, state: EventState[PosteriorT]) -> Tensor:
        """Return the optimistic value of each arm for each learner, (S, M, K), by which line 3 chooses.

        Raises:
            ValueError: A variance of the first-order index is NaN, or is negative by more than rounding.
        """
        if self.optimism is None:
            return first_order(state.posterior, self.settings.beta)
        return self.optimism(state.posterior, state.known)

    def fires(self, state: EventState[PosteriorT], arm: Tensor) -> Tensor:
        """Return whether the event of line 6 would occur at each learner if it pulled its ``arm``, (S, M) bool."""
        pulls = state.fresh.counts.sum(-1) + 1
        return pulls * (state.gain + gain(state.posterior, arm)) > self.settings.gamma

    def learn(
        self, state: EventState[PosteriorT], arm: Tensor, reward: Tensor, turn: Tensor
    ) -> EventState[PosteriorT]:
        """Return the state after one pull of each learner with ``turn`` 1 (lines 4 and 5 of Algorithm 1).

        After every hundredth pull of a learner since the last synchronisation its posterior is computed from all its
        data again, because rank-one updates accumulate rounding errors. The old state must not be used afterwards.
        """
        residual = reward - of_arm(self.offsets.expand_as(state.fresh.sums), arm)
        # this comes first, because `absorb` may overwrite the posterior
        ratio = state.gain + turn * gain(state.posterior, arm)
        posterior = self.absorb(state.posterior, arm, reward, turn)
        after = EventState(posterior, state.fresh.record(arm, residual, turn), ratio, state.server)
        pulls = after.fresh.counts.sum(-1)
        due = (turn == 1) & (pulls % AFRESH == 0)
        return after._replace(posterior=self.afresh(posterior, after.known, due)) if due.any() else after

    def synchronise(self, state: EventState[PosteriorT], star: Star, when: When) -> EventState[PosteriorT]:
        """Return the state after the runs of ``when`` have synchronised over ``star`` (lines 7 to 10 of Algorithm 1).

        The old state must not be used afterwards.
        """
        run = when.run
        fresh = state.fresh.of(run)
        sent = star.collect(self.statistics(fresh), when)
        # The server sends the sums over the pulls since the last synchronisation. As a matrix and a vector they cost as
        # much as the totals that line 9 of Algorithm 1 sends.
        total = state.server.of(run) + star.broadcast(self.statistics(sent.summed()), when)
        posterior, blank = self.informed(run, total, state), Tally.blank(*fresh.counts.shape)
        new = EventState(posterior, blank, torch.zeros_like(state.gain[run]), total)
        return place(state, run, new, Tensor.index_copy_)


@dataclass(frozen=True)
class EventTriggered(OnEvent[Posterior]):
    """The learners of `OnEvent` in arm space, with a K × K matrix each; the fields are the same."""

    def informed(self, run: Any, total: Tally, state: EventState[Posterior] | None = None) -> Posterior:
        """Return the posterior of some runs given their data ``total``; ``state`` is not needed in arm space."""
        return condition(self.features[run], self.offsets[run], self.settings.lam, total.for_all())

    def absorb(self, posterior: Posterior, arm: Tensor, reward: Tensor, turn: Tensor) -> Posterior:
        """Return the ``posterior`` after one pull of each learner with ``turn`` 1, a rank-one update."""
        return posterior.absorb(arm, reward, turn)

    def afresh(self, posterior: Posterior, known: Tally, due: Tensor) -> Posterior:
        """Return ``posterior`` with the entries where ``due`` is True computed from all data."""
        return recomputed(posterior, self.features, self.offsets, self.settings.lam, known, due)


def recomputed(
    posterior: Posterior, features: Tensor, offsets: Tensor, lam: float, known: Tally, due: Tensor
) -> Posterior:
    """Return ``posterior``, overwritten where ``due`` (S, M) is True by what the data ``known`` (S, M, K) give."""
    learners = due.nonzero(as_tuple=True)
    own = features.expand(*due.shape, *features.shape[2:])[learners]
    exact = condition(own, offsets.expand_as(known.sums)[learners], lam, known.of(learners))
    posterior.covariance[learners] = exact.covariance
    posterior.mean[learners] = exact.mean
    return posterior


def place(state: StateT, run: Tensor, new: StateT, write: Callable[..., Any] = Tensor.index_copy) -> StateT:
    """Return the ``state`` of a learner with the entries of some runs from ``new``, as a copy by default.

    Args:
        state: A tensor with the runs as its first axis, or a named tuple of such tensors, which may be nested.
        run: The positions of the R runs that are replaced, (R,) int64.
        new: A state of the same kind with R as first axis, which is expanded to the other axes of ``state``.
        write: `Tensor.index_copy`, or `Tensor.index_copy_` to write into the memory of ``state``.
    """
    if isinstance(state, tuple):
        parts = (place(values, run, rows, write) for values, rows in zip(state, new, strict=True))
        return type(state)(*parts)
    placed: StateT = write(state, 0, run, new.expand(-1, *state.shape[1:]))
    return placed
