"""Phase II for many arms: the same learner without a K × K matrix, with O(K d_w) operations for a pull.

With v = Σ⁻¹g_x/√(1 + ‖g_x‖²_{Σ⁻¹}), a pull of the arm x with residual or reward y subtracts (gᵀv)² from the variance
‖g‖²_{Σ⁻¹} of every arm and adds gᵀv·(y − mean of x)/√(1 + ‖g_x‖²_{Σ⁻¹}) to its mean. A learner therefore needs the
mean and the variance of each arm, the Cholesky factor of Σ₀, which is Σ at the last synchronisation and common to all
learners, and the vectors v_j of its own pulls since then:

    Σ⁻¹g = Σ₀⁻¹g − Σ_j v_j (v_jᵀg)

The pulls of all M learners together are one product of the gradients (K, d_w) with M vectors. At a synchronisation the
k arms that were pulled since the last one subtract k squares from every variance, with O(K k d_w) operations. From time
to time, or if k is large, a triangular solve computes all variances afresh, with O(K d_w²) operations.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo.confidence import Tally, precision_factor
from fedgo.phase_two import EventState, EventTriggered

_SOLVED_AT_ONCE = 2**22  # numbers of a triangular solve that are held at once
_UPDATES = 8  # synchronisations after which the variances are computed afresh: subtracting leaves rounding
_STEEP = 1e3  # a variance above this falls by so much that rounding would show: it is not updated


class Columns(NamedTuple):
    """The posterior of all arms without a K × K matrix, for many arms.

    ``mean`` and ``variance`` (S, M, K) are those of `fedgo.confidence.Posterior`. ``base`` (S, 1, K) is the variance at
    the last synchronisation, and ``age`` (S, 1) the number of synchronisations since it was last computed afresh.
    ``factor`` is the lower Cholesky factor of Σ₀, (S, 1, r, r) if all learners of a run share it and (S, M, r, r)
    otherwise. ``vectors`` has room for the v_j of each learner's pulls since then, (S, M, room, r), of which the first
    ``taken`` (S, M) are in use; the others are 0. M is 1 right after a synchronisation, when all know the same data.
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
        """Return columns with an entry for each of M = ``learners`` learners, (S, M, …), in memory of its own.

        The learners go on sharing ``base``, ``age`` and ``factor``.
        """
        own = ("mean", "variance", "vectors", "taken")
        shared = ((name, getattr(self, name)) for name in own)
        copies = {name: values.expand(-1, learners, *values.shape[2:]).clone() for name, values in shared}
        return self._replace(**copies)

    def absorb(
        self, features: Tensor, arm: Tensor, reward: Tensor, turn: Tensor, in_place: bool = False
    ) -> "Columns":
        """Return the columns after one pull of each learner with ``turn`` 1.

        Args:
            features: The gradients of the arms, or their coordinates, (S, 1, K, r).
            arm: The arm that each learner pulls, (S, M) int64.
            reward: The reward that it sees, (S, M).
            turn: 1 for the learners that make this pull and 0 for the others, (S, M) float64.
            in_place: Overwrite the memory of these columns, which must not be used afterwards.
        """
        run = torch.arange(len(arm)).unsqueeze(-1)
        g = features[:, 0][run, arm]  # (S, M, r)
        if self.factor.shape[1] == 1:
            solved = torch.cholesky_solve(g.mT, self.factor.squeeze(1)).mT
        else:
            solved = torch.cholesky_solve(g.unsqueeze(-1), self.factor).squeeze(-1)
        most = int(self.taken.max())
        earlier = self.vectors[:, :, :most]
        solved = solved - ((earlier @ g.unsqueeze(-1)).mT @ earlier).squeeze(-2)
        root = (1 + (g * solved).sum(-1, keepdim=True)).sqrt()
        v = solved * (turn.unsqueeze(-1) / root)
        column = v @ features.squeeze(1).mT  # (S, M, K)
        surprise = (reward.unsqueeze(-1) - self.mean.gather(-1, arm.unsqueeze(-1))) / root
        full = most == self.vectors.shape[2]
        vectors = torch.nn.functional.pad(self.vectors, (0, 0, 0, most)) if full else self.vectors
        at = self.taken.view(*arm.shape, 1, 1).expand(*arm.shape, 1, v.shape[-1])
        mean, variance = self.mean, self.variance
        if not in_place:
            mean, variance, vectors = mean.clone(), variance.clone(), vectors.clone()
        return self._replace(
            mean=mean.addcmul_(column, surprise),
            variance=variance.addcmul_(column, column, value=-1),
            # a learner with turn 0 has v = 0, which is written where a 0 is already
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
    """Return the posterior of learners that all know the same data.

    The variances are updated from those ``before`` if that is cheaper and accurate, and computed afresh otherwise.

    Args:
        features: The gradients of the arms, or their coordinates, (S, 1, K, r).
        offsets: f_x(ŵ₀) of each arm, (S, 1, K).
        lam: The regularisation weight λ.
        tally: The data, (S, K).
        before: The columns at the last synchronisation with the data (S, K) that they rest on, if there are any.
    """
    runs, size = len(features), features.shape[-1]
    pulled, rows = _pulled(features, tally)
    factor = precision_factor(rows, lam, pulled)
    moved = torch.cholesky_solve(rows.mT @ pulled.sums.unsqueeze(-1), factor)  # ŵ − ŵ₀
    mean = offsets + (features.squeeze(1) @ moved).mT
    base = age = None
    if before is not None and _can_be_updated(before[0]):
        last, data = before
        base, age = _updated(features, last, data, tally), last.age + 1
    if base is None or age is None:
        squares = [
            torch.linalg.solve_triangular(factor, rows.mT, upper=False).square().sum(1)
            for rows in features.squeeze(1).split(max(1, _SOLVED_AT_ONCE // (runs * size)), 1)
        ]
        base, age = torch.cat(squares, -1).unsqueeze(1), torch.zeros(runs, 1, dtype=torch.int64)
    blank, taken = features.new_zeros(runs, 1, 1, size), torch.zeros(runs, 1, dtype=torch.int64)
    return Columns(mean, base, base, age, factor.unsqueeze(1), blank, taken)


def _can_be_updated(last: Columns) -> bool:
    """Return whether all learners share the factor of ``last``, and its variances are accurate enough to be updated."""
    shared = last.factor.shape[1] == 1
    return shared and int(last.age.max()) < _UPDATES and float(last.base.max()) <= _STEEP


def _pulled(features: Tensor, tally: Tally) -> tuple[Tally, Tensor]:
    """Return the ``tally`` (S, k) and the ``features`` (S, k, r) of the k arms that were pulled.

    A run in which fewer arms were pulled than in another one is padded with arms whose count is 0.
    """
    most = int((tally.counts > 0).sum(-1).max())
    at = tally.counts.topk(most, -1).indices
    rows = at.unsqueeze(-1).expand(-1, -1, features.shape[-1])
    pulled = Tally(tally.counts.gather(-1, at), tally.sums.gather(-1, at))
    return pulled, features.squeeze(1).gather(1, rows)


def _updated(features: Tensor, last: Columns, old: Tally, new: Tally) -> Tensor | None:
    """Return the variances (S, 1, K) after the pulls by which ``new`` differs from ``old``, from those of ``last``.

    With U = diag(√n)G of the k arms that were pulled n times, (Σ₀ + UᵀU)⁻¹ = Σ₀⁻¹ − WᵀW for W = L⁻¹UΣ₀⁻¹ and the
    Cholesky factor L of I + UΣ₀⁻¹Uᵀ. The result is None if k is so large that a triangular solve costs no more.
    """
    news, rows = _pulled(features, Tally(new.counts - old.counts, new.sums))
    if 2 * rows.shape[1] > features.shape[-1]:
        return None
    rows = rows * news.counts.sqrt().unsqueeze(-1)
    solved = torch.cholesky_solve(rows.mT, last.factor.squeeze(1))  # Σ₀⁻¹Uᵀ
    inner = torch.linalg.cholesky(torch.eye(rows.shape[1], dtype=rows.dtype) + rows @ solved)
    w = torch.linalg.solve_triangular(inner, solved.mT, upper=False)
    base: Tensor = last.base - (features.squeeze(1) @ w.mT).square().sum(-1).unsqueeze(1)
    return base


@dataclass(frozen=True)
class ParameterSpace(EventTriggered):
    """`EventTriggered` with `Columns` in place of K × K matrices, for many arms.

    ``features`` and ``offsets`` are shared by the learners, (S, 1, …). Arms, messages and synchronisations are the
    same, up to rounding.
    """

    def posterior(self, run: Tensor, tally: Tally, before: EventState | None = None) -> Columns:
        """Return the columns that all learners of the runs ``run`` share after a synchronisation."""
        features, offsets = self.features, self.offsets
        if len(run) < len(features):
            features, offsets = features[run], offsets[run]
        last = None
        if before is not None:
            last = Columns(*(values[run] for values in _columns(before))), before.server.of(run)
        return columns(features, offsets, self.settings.lam, tally.of((slice(None), 0)), last)

    def absorb(self, state: EventState, arm: Tensor, reward: Tensor, turn: Tensor) -> Columns:
        """Return the columns after a pull of each learner with ``turn`` 1; the arguments are those of `learn`."""
        return _columns(state).absorb(self.features, arm, reward, turn, self.in_place)

    def _afresh(self, state: EventState, due: Tensor) -> EventState:
        """Return ``state`` with the columns of the learners ``due`` (S, M) computed from all their data.

        Every learner has a factor of its own afterwards.
        """
        shared, known = _columns(state), state.known
        factor = shared.factor.expand(-1, self.learners, -1, -1)
        own = Columns(*(values.clone() for values in shared._replace(factor=factor)))
        for run, learner in due.nonzero().tolist():
            alone = slice(run, run + 1)
            data = known.of((alone, learner))
            exact = columns(self.features[alone], self.offsets[alone], self.settings.lam, data)
            for name in ("mean", "variance", "factor", "vectors", "taken"):
                getattr(own, name)[run, learner] = getattr(exact, name)[0, 0]
        return state._replace(posterior=own)


def _columns(state: EventState) -> Columns:
    """Return the posterior of ``state`` as the columns that it is."""
    assert isinstance(state.posterior, Columns)
    return state.posterior
