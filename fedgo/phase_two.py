"""Phase II for features g_x (Algorithm 1, lines 3–10): optimistic arm, ridge statistics, event-triggered sync.

Each client holds Σ and b of the data it knows, in arm space. Client i synchronises everybody when
(|D_{t,i}| − |D_{t_last,i}|)·ln(det Σ_{t,i}/det(Σ_{t,i} − ΔΣ_{t,i})) > γ; then every ΔΣ, Δb goes up, the sums come
down, and every client's Δ is reset (a reset that the printed algorithm leaves out).
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

Part = TypeVar("Part", bound=Any)
Index = Callable[[Estimates, Tally], Tensor]
_AFRESH = 100  # pulls after which a posterior is computed from its data again: rank-one updates drift


@dataclass(frozen=True)
class Settings:
    """λ = ``lam``, the squared radius β = ``beta``, the threshold γ = ``gamma`` (0: always, inf: never synchronise).

    ``encoding`` is the form in which statistics are sent, the paper's dense one unless said; it decides what is
    charged and nothing else.
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
    """The arguments that all algorithms without a Phase I share are of their kinds and in range."""
    require_kind(isinstance(problem, Problem), "problem", problem, "give a Problem")
    count("clients", clients, "give N, at least one client")
    count("steps", steps, "give at least one step")
    require_kind(isinstance(settings, Settings), "settings", settings, "give Settings(lam, beta, gamma)")


class EventState(NamedTuple):
    """``posterior`` of every learner, its own data since the last sync (``fresh``, log-ratio ``gain``), all (S, M, …);
    the ``server``'s tally of everything synchronised, (S, K)."""

    posterior: Estimates
    fresh: Tally
    gain: Tensor
    server: Tally

    @property
    def known(self) -> Tally:
        """D_{t,i}: all the data in each learner's model, (S, M, K)."""
        return Tally(*(part.unsqueeze(1) for part in self.server)) + self.fresh


@dataclass(frozen=True)
class EventTriggered:
    """M = ``learners`` ridge learners per run on ``features`` (S, 1 or M, K, r) with ``offsets`` (S, 1 or M, K).

    ``dimension`` d_w is that of the statistics sent; ``optimism`` gives the index, the first-order one unless said.
    ``in_place`` `learn` and `synchronise` use up the posterior of the state that they get: for whoever, as `simulate`,
    keeps the last state only.
    """

    learners: int
    features: Tensor
    offsets: Tensor
    dimension: int
    settings: Settings
    optimism: Index | None = None
    in_place: bool = field(default=False, kw_only=True)

    def statistics(self, tally: Tally) -> Message[Tally]:
        """The message (Σ, b) or (ΔΣ, Δb), held as the ``tally`` (R, ..., K) that determines it."""
        pulls, arms = tally.counts.sum(-1), self.features.shape[-2]
        return Message(tally, scalars(self.settings.encoding, self.dimension, pulls, arms))

    def begin(self) -> EventState:
        """Σ = λI, b = 0, ΔΣ = 0, Δb = 0 for every learner, and the same at the server."""
        runs, _, arms, _ = self.features.shape
        return self.resume(Tally.blank(runs, arms))

    def resume(self, server: Tally) -> EventState:
        """The state of learners that know what is at the ``server`` (S, K), and have pulled nothing since."""
        require_prior(self.features.square().sum(-1).amax(), self.settings.lam)
        runs, arms = server.counts.shape
        known = Tally(*(part.unsqueeze(1) for part in server))
        posterior = self.posterior(torch.arange(runs), known).of_each(self.learners)
        gain = torch.zeros(runs, self.learners, dtype=torch.float64)
        # a copy, as it may be updated in place
        return EventState(
            posterior, Tally.blank(runs, self.learners, arms), gain, server.of(torch.arange(runs))
        )

    def posterior(self, run: Tensor, tally: Tally, before: EventState | None = None) -> Estimates:
        """That of every learner of the runs ``run`` given the ``tally`` (R, 1 or M, K) that it knows.

        An engine may make use of the state ``before`` a synchronisation.
        """
        return condition(self.features[run], self.offsets[run], self.settings.lam, tally)

    def absorb(self, state: EventState, arm: Tensor, reward: Tensor, turn: Tensor) -> Estimates:
        """The posterior of the learners with ``turn`` 1 after their pull, as `learn` says."""
        assert isinstance(state.posterior, Posterior)
        return state.posterior.absorb(arm, reward, turn, self.in_place)

    def gain(self, state: EventState, arm: Tensor, turn: Tensor) -> Tensor:
        """ln(det Σ/det(Σ − ΔΣ)) after the pull."""
        return state.gain + turn * state.posterior.gain(arm)

    def index(self, state: EventState) -> Tensor:
        """Line 3: the optimistic value of every arm."""
        if self.optimism is None:
            return first_order(state.posterior, self.settings.beta)
        return self.optimism(state.posterior, state.known)

    def fires(self, state: EventState, arm: Tensor) -> Tensor:
        """Line 6, for the statistics after the pull."""
        pulls = state.fresh.counts.sum(-1) + 1
        return pulls * (state.gain + state.posterior.gain(arm)) > self.settings.gamma

    def learn(self, state: EventState, arm: Tensor, reward: Tensor, turn: Tensor) -> EventState:
        """Lines 4–5, and now and then the posteriors from all their data."""
        residual = reward - self.offsets.expand_as(state.fresh.sums).gather(-1, arm.unsqueeze(-1)).squeeze(-1)
        gain = self.gain(state, arm, turn)  # before `absorb` uses the posterior up
        posterior = self.absorb(state, arm, reward, turn)
        after = EventState(posterior, state.fresh.record(arm, residual, turn), gain, state.server)
        pulls = after.fresh.counts.sum(-1)
        due = (turn == 1) & (pulls % _AFRESH == 0)
        return self._afresh(after, due) if due.any() else after

    def _afresh(self, state: EventState, due: Tensor) -> EventState:
        """``state`` with the posteriors of the learners ``due`` (S, M) computed from all their data."""
        assert isinstance(state.posterior, Posterior)
        known = state.known
        rows = due.nonzero(as_tuple=True)
        features = self.features.expand(*due.shape, *self.features.shape[2:])[rows]
        offsets = self.offsets.expand_as(known.sums)[rows]
        exact = condition(features, offsets, self.settings.lam, Tally(*(part[rows] for part in known)))
        posterior = state.posterior if self.in_place else state.posterior.copy()
        for part, new in zip(posterior, exact, strict=True):
            part.index_put_(rows, new)
        return state._replace(posterior=posterior)

    def synchronise(self, state: EventState, star: Star, when: When) -> EventState:
        """Lines 7–10, with every Δ and its log-ratio reset and every ball recomputed."""
        run = when.run
        fresh = state.fresh.of(run)
        sent = star.collect(self.statistics(fresh), when)
        news = sent.summed()
        # the server sends the news of this epoch; dense, that is as large as the total of the printed line 9
        total = state.server.of(run) + star.broadcast(self.statistics(news), when)
        received = Tally(*(part.unsqueeze(1) for part in total))
        posterior = self.posterior(run, received, state)
        blank = Tally.blank(*fresh.counts.shape)
        new = EventState(posterior, blank, torch.zeros_like(state.gain[run]), total)
        return place(state, run, new, self.in_place)


def place(state: Part, run: Tensor, new: Part, in_place: bool = False) -> Part:
    """``state``, a tensor or a tuple of such, with the rows ``run`` of each first axis replaced by ``new``;
    ``in_place`` in the memory of ``state``, which is then used up."""
    old: Any = state
    placed: Part
    if isinstance(old, tuple):
        placed = type(state)(*(place(part, run, rows, in_place) for part, rows in zip(old, new, strict=True)))
    else:
        copy = old.index_copy_ if in_place else old.index_copy
        placed = copy(0, run, new.expand(-1, *old.shape[1:]))
    return placed
