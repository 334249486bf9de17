"""Phase II on features g_x (Algorithm 1, lines 3–10): optimistic arms, ridge statistics, synchronisation by an event.

Each client keeps Σ and b of the data D_{t,i} that it knows, in arm space. Client i triggers a synchronisation when
(|D_{t,i}| − |D_{t_last,i}|)·ln(det Σ_{t,i}/det(Σ_{t,i} − ΔΣ_{t,i})) > γ. Then every client sends its ΔΣ and Δb to the
server, the server sends the sums to all clients, and every client sets its ΔΣ and Δb to 0. The printed algorithm leaves
this reset out.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from fedgo._checks import count, number, require_kind
from fedgo.confidence import Estimates, Posterior, Tally, condition, first_order, require_prior
from fedgo.messages import Encoding, check_encoding, scalars
from fedgo.problem import Problem
from fedgo.star import Message, Star, When

StateT = TypeVar("StateT", bound=Any)
# An index of optimism: from the estimates of the arms and the data they rest on, a value of each arm (S, M, K).
Index = Callable[[Estimates, Tally], Tensor]
_AFRESH = 100  # pulls after which a posterior is computed from its data again, because rank-one updates drift


@dataclass(frozen=True)
class Settings:
    """The parameters of Phase II: λ, β, the threshold γ, and the form in which statistics are sent.

    ``lam`` is the regularisation weight λ > 0 and ``beta`` the squared radius β ≥ 0 of the confidence ball. ``gamma``
    is the threshold γ of the event: with 0 every pull synchronises, with ∞ none does. ``encoding`` decides what each
    message costs and changes no decision; the default is the paper's dense form (`fedgo.messages`).

    Raises:
        ValueError: A parameter is out of range, or ``encoding`` is not the name of a form.
        TypeError: A parameter is not a number.
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
    """Refuse arguments of a wrong kind or out of range, for the algorithms that have no Phase I."""
    require_kind(isinstance(problem, Problem), "problem", problem, "give a Problem")
    count("clients", clients, "give N, at least one client")
    count("steps", steps, "give at least one step")
    require_kind(isinstance(settings, Settings), "settings", settings, "give Settings(lam, beta, gamma)")


class EventState(NamedTuple):
    """What the learners and the server know at one moment, for S runs with M learners each.

    ``posterior`` is each learner's confidence set. ``fresh`` is its own data since the last synchronisation, (S, M, K),
    and ``gain`` its log-ratio ln(det Σ/det(Σ − ΔΣ)), (S, M). ``server`` is the tally of everything synchronised, (S,
    K).
    """

    posterior: Estimates
    fresh: Tally
    gain: Tensor
    server: Tally

    @property
    def known(self) -> Tally:
        """D_{t,i}: all data in the model of each learner, (S, M, K)."""
        return self.server.for_all() + self.fresh


@dataclass(frozen=True)
class EventTriggered:
    """Learners with a ridge model each that synchronise when the event of Algorithm 1, line 6, fires.

    ``learners`` is their number M. ``features`` (S, 1 or M, K, r) are the arms' gradients, or their coordinates, and
    ``offsets`` (S, 1 or M, K) the values f_x(ŵ₀); a learner axis of 1 means that all learners share them.
    ``dimension`` is the d_w of the statistics that are sent. ``settings`` has λ, β and γ. ``optimism`` computes the
    index of each arm from the posterior and the data; if it is None, the index is the first-order one. With
    ``in_place``, `learn` and `synchronise` overwrite the memory of the state that they are given. This suits a caller
    that keeps the last state only, as `fedgo.simulation.simulate` does.
    """

    learners: int
    features: Tensor
    offsets: Tensor
    dimension: int
    settings: Settings
    optimism: Index | None = None
    in_place: bool = field(default=False, kw_only=True)

    def statistics(self, tally: Tally) -> Message[Tally]:
        """Return the message (ΔΣ, Δb), or (Σ, b), of R runs with its cost in scalars.

        The receiver uses it as the ``tally`` (R, ..., K), which determines the matrix and the vector.
        """
        pulls, arms = tally.counts.sum(-1), self.features.shape[-2]
        return Message(tally, scalars(self.settings.encoding, self.dimension, pulls, arms))

    def begin(self) -> EventState:
        """Return the state before Phase II, without data: Σ = λI and b = ΔΣ = Δb = 0 for each learner."""
        runs, _, arms, _ = self.features.shape
        return self.resume(Tally.blank(runs, arms))

    def resume(self, server: Tally) -> EventState:
        """Return the state of learners that know the data at the ``server`` (S, K) and have pulled nothing since."""
        require_prior(self.features.square().sum(-1).amax(), self.settings.lam)
        runs, arms = server.counts.shape
        every, fresh = torch.arange(runs), Tally.blank(runs, self.learners, arms)
        posterior = self.posterior(every, server.for_all()).of_each(self.learners)
        # the server's tally is a copy, because it may be updated in place
        return EventState(posterior, fresh, gain=fresh.sums[..., 0].clone(), server=server.of(every))

    def posterior(self, run: Tensor, tally: Tally, before: EventState | None = None) -> Estimates:
        """Return the posterior of each learner of the runs ``run``, given the data that it knows.

        Args:
            run: The numbers of R runs, (R,) int64.
            tally: The data, (R, 1, K) if all learners of a run know the same, else (R, M, K).
            before: The state before a synchronisation, which an engine for many arms may reuse.
        """
        return condition(self.features[run], self.offsets[run], self.settings.lam, tally)

    def absorb(self, state: EventState, arm: Tensor, reward: Tensor, turn: Tensor) -> Estimates:
        """Return the posteriors after the learners with ``turn`` 1 made their pull, given the arguments of `learn`."""
        assert isinstance(state.posterior, Posterior)
        return state.posterior.absorb(arm, reward, turn, self.in_place)

    def gain(self, state: EventState, arm: Tensor, turn: Tensor) -> Tensor:
        """Return the log-ratio ln(det Σ/det(Σ − ΔΣ)) of each learner after its pull, (S, M)."""
        return state.gain + turn * state.posterior.gain(arm)

    def index(self, state: EventState) -> Tensor:
        """Return the optimistic value of each arm for each learner, (S, M, K) (line 3)."""
        if self.optimism is None:
            return first_order(state.posterior, self.settings.beta)
        return self.optimism(state.posterior, state.known)

    def fires(self, state: EventState, arm: Tensor) -> Tensor:
        """Return whether pulls times log-ratio exceed γ (line 6) after each learner's ``arm`` (S, M), (S, M) bool."""
        pulls = state.fresh.counts.sum(-1) + 1
        return pulls * (state.gain + state.posterior.gain(arm)) > self.settings.gamma

    def learn(self, state: EventState, arm: Tensor, reward: Tensor, turn: Tensor) -> EventState:
        """Return the state after the learners with ``turn`` 1 pulled ``arm`` and saw ``reward``, (S, M) each (lines 4
        and 5).

        After every hundredth pull of a learner since the last synchronisation its posterior is computed from all its
        data again, because rank-one updates drift.
        """
        residual = reward - self.offsets.expand_as(state.fresh.sums).gather(-1, arm.unsqueeze(-1)).squeeze(-1)
        gain = self.gain(state, arm, turn)  # before `absorb` uses the posterior up
        posterior = self.absorb(state, arm, reward, turn)
        after = EventState(posterior, state.fresh.record(arm, residual, turn), gain, state.server)
        pulls = after.fresh.counts.sum(-1)
        due = (turn == 1) & (pulls % _AFRESH == 0)
        return self._afresh(after, due) if due.any() else after

    def _afresh(self, state: EventState, due: Tensor) -> EventState:
        """Return ``state`` with the posteriors of the learners ``due`` (S, M) computed from all their data."""
        assert isinstance(state.posterior, Posterior)
        learners = due.nonzero(as_tuple=True)
        features = self.features.expand(*due.shape, *self.features.shape[2:])[learners]
        offsets = self.offsets.expand_as(state.fresh.sums)[learners]
        exact = condition(features, offsets, self.settings.lam, state.known.of(learners))
        posterior = state.posterior if self.in_place else state.posterior.copy()
        posterior.covariance[learners] = exact.covariance
        posterior.mean[learners] = exact.mean
        return state._replace(posterior=posterior)

    def synchronise(self, state: EventState, star: Star, when: When) -> EventState:
        """Return the state after the runs ``when.run`` synchronised over ``star`` (lines 7 to 10).

        All ΔΣ, Δb and log-ratios of these runs are 0 then, and their posteriors are computed from the server's data.
        """
        run = when.run
        fresh = state.fresh.of(run)
        sent = star.collect(self.statistics(fresh), when)
        # the server sends the news of this epoch; as matrices they are as large as the total of the printed line 9
        total = state.server.of(run) + star.broadcast(self.statistics(sent.summed()), when)
        posterior, blank = self.posterior(run, total.for_all(), state), Tally.blank(*fresh.counts.shape)
        synchronised = EventState(posterior, blank, gain=torch.zeros_like(state.gain[run]), server=total)
        return place(state, run, synchronised, self.in_place)


def place(state: StateT, run: Tensor, new: StateT, in_place: bool = False) -> StateT:
    """Return the ``state`` of a learner with the runs ``run`` replaced by ``new``.

    Args:
        state: A tensor with the runs as its first axis, or a tuple of such tensors, which may be nested.
        run: The numbers of the runs that are replaced, (R,) int64.
        new: A state of the same kind with first axis R, which is expanded to the other axes of ``state``.
        in_place: Write into the memory of ``state``, which must not be used afterwards.
    """
    old: Any = state
    placed: StateT
    if isinstance(old, tuple):
        pairs = zip(old, new, strict=True)
        placed = type(state)(*(place(values, run, rows, in_place) for values, rows in pairs))
    else:
        copy = old.index_copy_ if in_place else old.index_copy
        placed = copy(0, run, new.expand(-1, *old.shape[1:]))
    return placed
