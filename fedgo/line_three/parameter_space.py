"""Phase II for many arms: the same learner without a K × K matrix, O(K d_w) for a pull.

With v = Σ⁻¹g_x/√(1 + ‖g_x‖²_{Σ⁻¹}) a pull of x takes (gᵀv)² from the variance ‖g‖²_{Σ⁻¹} of every arm, and adds
gᵀv·(y − its mean)/√(1 + ‖g_x‖²_{Σ⁻¹}) to its mean. So a learner needs the arms' mean and variance, the Cholesky factor
of Σ at the last synchronisation, which all share, and its own v since:

    Σ⁻¹g = Σ₀⁻¹g − Σ_j v_j (v_jᵀg)

The pulls of all learners at once are one product of the gradients (K, d_w) with as many vectors. At a synchronisation
the k arms that were pulled since the last take k squares from every variance, O(K k d_w); now and then, or where k is
large, a triangular solve gives all variances anew, O(K d_w²).
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo.confidence import Tally, precision_factor
from fedgo.phase_two import EventState, EventTriggered

_CHUNK = 2**22  # numbers of a triangular solve held at once
_ANEW = 8  # synchronisations after which the variances are computed anew: what is taken away leaves rounding behind
_STEEP = 1e3  # a variance above it falls by so much that rounding would show: they are computed anew at once


class Columns(NamedTuple):
    """The posterior of all arms without a K × K matrix, for many arms.

    ``mean`` and ``variance`` (S, M, K) are those of `Posterior`. ``base`` (S, 1, K) is the variance at the last
    synchronisation, and ``age`` (S, 1) the number of synchronisations for which it was updated and not computed afresh.
    ``factor`` is the Cholesky factor of Σ, (S, 1, r, r) if all learners of a run share it and (S, M, r, r) if not.
    ``vectors`` (S, M, L, r) were added to it since, and ``taken`` (S, M) counts them. M is 1 right after a
    synchronisation, when all learners know the same.
    """

    mean: Tensor
    variance: Tensor
    base: Tensor
    age: Tensor
    factor: Tensor
    vectors: Tensor
    taken: Tensor

    def gain(self, arm: Tensor) -> Tensor:
        """Return ln(1 + ‖g_x‖²_{Σ⁻¹}) for a pull of ``arm`` (S, M)."""
        return self.variance.gather(-1, arm.unsqueeze(-1)).squeeze(-1).log1p()

    def of_each(self, learners: int) -> "Columns":
        """Return the columns of each of M = ``learners`` learners in memory of its own, where all learners share
        these.
        """
        held = (self.mean, self.variance, self.vectors, self.taken)
        each = (part.expand(-1, learners, *part.shape[2:]).clone() for part in held)
        mean, variance, vectors, taken = each
        return self._replace(mean=mean, variance=variance, vectors=vectors, taken=taken)

    def absorb(
        self, features: Tensor, arm: Tensor, reward: Tensor, turn: Tensor, in_place: bool = False
    ) -> "Columns":
        """Return the columns after one pull of ``arm`` with ``reward`` where ``turn`` is 1, (S, M) each.

        ``features`` are (S, 1, K, r). With ``in_place`` the memory of these columns is used up.
        """
        run = torch.arange(len(arm)).unsqueeze(-1)
        g = features[:, 0][run, arm]  # (S, M, r)
        if self.factor.shape[1] == 1:
            solved = torch.cholesky_solve(g.mT, self.factor.squeeze(1)).mT
        else:
            solved = torch.cholesky_solve(g.unsqueeze(-1), self.factor).squeeze(-1)
        most = int(self.taken.max())
        own = self.vectors[:, :, :most]
        solved = solved - ((own @ g.unsqueeze(-1)).mT @ own).squeeze(-2)
        root = (1 + (g * solved).sum(-1, keepdim=True)).sqrt()
        v = solved * (turn.unsqueeze(-1) / root)
        column = v @ features.squeeze(1).mT  # (S, M, K)
        surprise = (reward.unsqueeze(-1) - self.mean.gather(-1, arm.unsqueeze(-1))) / root
        full = most == self.vectors.shape[2]
        vectors = torch.nn.functional.pad(self.vectors, (0, 0, 0, most)) if full else self.vectors
        at = self.taken.view(*arm.shape, 1, 1).expand(*arm.shape, 1, v.shape[-1])
        # where it is nobody's turn v is 0, which is what stands there
        mean, variance, vectors = (
            part if in_place else part.clone() for part in (self.mean, self.variance, vectors)
        )
        return self._replace(
            mean=mean.addcmul_(column, surprise),
            variance=variance.addcmul_(column, column, value=-1),
            vectors=vectors.scatter_(2, at, v.unsqueeze(2)),
            taken=self.taken + turn.long(),
        )


def columns(
    features: Tensor,
    offsets: Tensor,
    lam: float,
    tally: Tally,
    before: tuple[Columns, Tally] | None = None,
) -> Columns:
    """Return the posterior of learners that all know ``tally`` (S, K), on ``features`` (S, 1, K, r).

    It is computed from scratch, or from the columns ``before`` the new pulls and their tally, if all learners shared
    them.
    """
    runs, size = len(features), features.shape[-1]
    known, rows = _pulled(features, tally)
    factor = precision_factor(rows, lam, known)
    moved = torch.cholesky_solve(rows.mT @ known.sums.unsqueeze(-1), factor)  # Σ⁻¹GᵀS
    mean = offsets + (features.squeeze(1) @ moved).mT
    base = age = None
    if before is not None and _fit_to_go_on(before[0]):
        base, age = _taken(features, *before, tally), before[0].age + 1
    if base is None or age is None:
        parts = [
            torch.linalg.solve_triangular(factor, part.mT, upper=False).square().sum(1)
            for part in features.squeeze(1).split(max(1, _CHUNK // (runs * size)), 1)
        ]
        base, age = torch.cat(parts, -1).unsqueeze(1), torch.zeros(runs, 1, dtype=torch.int64)
    blank, taken = features.new_zeros(runs, 1, 1, size), torch.zeros(runs, 1, dtype=torch.int64)
    return Columns(mean, base, base, age, factor.unsqueeze(1), blank, taken)


def _fit_to_go_on(own: Columns) -> bool:
    """Return whether all learners shared these columns and rounding has left enough of their variances."""
    return own.factor.shape[1] == 1 and int(own.age.max()) < _ANEW and float(own.base.max()) <= _STEEP


def _pulled(features: Tensor, tally: Tally) -> tuple[Tally, Tensor]:
    """Return the ``tally`` (S, K) and ``features`` (S, 1, K, r) of the arms that were pulled, padded to as many in
    every run.
    """
    most = int((tally.counts > 0).sum(-1).max())
    at = tally.counts.topk(most, -1).indices  # where a run has fewer, arms with a count of 0
    rows = at.unsqueeze(-1).expand(-1, -1, features.shape[-1])
    return Tally(*(part.gather(-1, at) for part in tally)), features.squeeze(1).gather(1, rows)


def _taken(features: Tensor, own: Columns, old: Tally, new: Tally) -> Tensor | None:
    """Return the variances (S, 1, K) after the pulls that lead from ``old`` to ``new``.

    With U = diag(√n)G of the arms that were pulled n times, (Σ + UᵀU)⁻¹ = Σ⁻¹ − WᵀW for W = L⁻¹UΣ⁻¹ and LLᵀ = I +
    UΣ⁻¹Uᵀ. The result is None where a triangular solve costs no more.
    """
    news, rows = _pulled(features, Tally(new.counts - old.counts, new.sums))
    if 2 * rows.shape[1] > features.shape[-1]:
        return None
    rows = rows * news.counts.sqrt().unsqueeze(-1)
    solved = torch.cholesky_solve(rows.mT, own.factor.squeeze(1))  # Σ⁻¹Uᵀ
    inner = torch.linalg.cholesky(torch.eye(rows.shape[1], dtype=rows.dtype) + rows @ solved)
    w = torch.linalg.solve_triangular(inner, solved.mT, upper=False)
    base: Tensor = own.base - (features.squeeze(1) @ w.mT).square().sum(-1).unsqueeze(1)
    return base


@dataclass(frozen=True)
class ParameterSpace(EventTriggered):
    """`EventTriggered` with `Columns` in place of K × K matrices, for many arms.

    ``features`` and ``offsets`` are shared by the learners, (S, 1, …). Arms, messages and synchronisations are the
    same, up to rounding.
    """

    def posterior(self, run: Tensor, tally: Tally, before: EventState | None = None) -> Columns:
        """Return the columns that all learners share after a synchronisation."""
        every = len(run) == len(self.features)
        features, offsets = (part if every else part[run] for part in (self.features, self.offsets))
        known, last = Tally(*(part[:, 0] for part in tally)), None
        if before is not None:
            last = Columns(*(part[run] for part in _columns(before))), before.server.of(run)
        return columns(features, offsets, self.settings.lam, known, last)

    def absorb(self, state: EventState, arm: Tensor, reward: Tensor, turn: Tensor) -> Columns:
        """Return the columns after a pull of each learner, by one product of the features with the vectors of all
        learners.
        """
        return _columns(state).absorb(self.features, arm, reward, turn, self.in_place)

    def _afresh(self, state: EventState, due: Tensor) -> EventState:
        """Return the state in which the learners ``due`` (S, M) begin again with a factor of their own."""
        own, known = _columns(state), state.known
        factor = own.factor.expand(-1, self.learners, -1, -1)
        kept = Columns(*(part.clone() for part in own._replace(factor=factor)))
        for at in due.nonzero().unbind():
            run, learner = at.tolist()
            data = Tally(*(part[run, learner].unsqueeze(0) for part in known))
            some = slice(run, run + 1)
            exact = columns(self.features[some], self.offsets[some], self.settings.lam, data)
            for name in ("mean", "variance", "factor", "vectors", "taken"):
                getattr(kept, name)[run, learner] = getattr(exact, name)[0, 0]
        return state._replace(posterior=kept)


def _columns(state: EventState) -> Columns:
    """Return the posterior of ``state`` as the columns that it is."""
    assert isinstance(state.posterior, Columns)
    return state.posterior
