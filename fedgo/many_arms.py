"""Phase II for many arms: the learners of Phase II without a K × K matrix, with O(K d_w) operations for a pull.

A pull of the arm x, with gradient g_x and reward y, changes the variance ‖g‖²_{Σ⁻¹} and the mean of every arm with
gradient g, where Σ is the matrix of the learner's data. With v = Σ⁻¹g_x/√(1 + ‖g_x‖²_{Σ⁻¹}), the pull subtracts (gᵀv)²
from the variance and adds gᵀv·(y − mean of x)/√(1 + ‖g_x‖²_{Σ⁻¹}) to the mean. A learner therefore needs the mean and
the variance of each of the K arms, the Cholesky factor of Σ₀, which is Σ at the last synchronisation and common to all
learners, and the vectors v_j of its own pulls j since then:

    Σ⁻¹g = Σ₀⁻¹g − Σ_j v_j (v_jᵀg)

The pulls of all M learners together are one product of the gradients (K, d_w) with M vectors. At a synchronisation the
k arms that were pulled since the last one subtract k squares from every variance, with O(K k d_w) operations. From time
to time, or if k is large, a triangular solve computes all variances afresh, with O(K d_w²) operations. There are S
runs; gradients have r coordinates, ``features`` (S, 1, K, r).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedgo.confidence import Tally, precision_factor
from fedgo.phase_two import EventState, OnEvent

_SOLVED_AT_ONCE = 2**22  # about how many numbers one triangular solve computes, which bounds the memory
_UPDATES = 8  # after these updates the variances are computed afresh, because each adds rounding errors
_STEEP = 1e3  # variances above this are computed afresh: an update may cancel nearly all of their digits


class Columns(NamedTuple):
    """The posterior of K arms without a K × K matrix, of M learners in each of S runs.

    Data that all learners of a run know have M = 1. If a learner's posterior was computed afresh since the last
    synchronisation, Σ₀ is its Σ at that time.

    Args:
        mean: The estimated mean reward of each arm, (S, M, K).
        variance: The squared width ‖g‖²_{Σ⁻¹} of each arm, (S, M, K).
        base: The ``variance`` of all learners at the last synchronisation, (S, 1, K).
        age: The number of synchronisations since ``base`` was last computed afresh, (S, 1) int64.
        factor: The lower Cholesky factor of Σ₀, (S, 1, r, r) if all learners of a run share it and (S, M, r, r)
            otherwise.
        vectors: The vectors v_j, (S, M, room, r); those that are not in use are 0.
        taken: The number of vectors that are in use, (S, M) int64.
    """

    mean: Tensor
    variance: Tensor
    base: Tensor
    age: Tensor
    factor: Tensor
    vectors: Tensor
    taken: Tensor

    def of_each(self, learners: int) -> "Columns":
        """Return columns in which each of M = ``learners`` learners has means, variances and vectors of its own."""
        own = ("mean", "variance", "vectors", "taken")
        parts = (getattr(self, name) for name in own)
        copies = (values.expand(-1, learners, *values.shape[2:]).clone() for values in parts)
        return self._replace(**dict(zip(own, copies, strict=True)))

    def absorb(self, features: Tensor, arm: Tensor, reward: Tensor, turn: Tensor) -> "Columns":
        """Return the columns after one pull of each learner with ``turn`` 1, in the memory of these columns.

        These columns must have the learner axis M, as those that `of_each` returns, and must not be used afterwards.

        Args:
            features: The gradients, (S, 1, K, r).
            arm: The arm that each learner pulls, (S, M) int64.
            reward: The reward, not a residual, (S, M), finite for the learners with ``turn`` 0 too.
            turn: 1 for the learners that make this pull and 0 for the others, (S, M) float64.
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
        return self._replace(
            mean=self.mean.addcmul_(column, surprise),
            variance=self.variance.addcmul_(column, column, value=-1),
            # a learner with turn 0 has v = 0, which is written to a place that is 0 already
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
    """Return the posterior of learners that all know the same data, as columns with a learner axis of length 1.

    The variances are updated from those of ``before`` if that is cheaper and accurate enough.

    Args:
        features: The gradients, (S, 1, K, r).
        offsets: The value f_x(ŵ₀) of each arm at the parameter of Phase I, (S, 1, K).
        lam: The regularisation weight λ.
        tally: The counts and the summed residuals of all data, (S, K).
        before: Earlier columns, and the data (S, K) on which their ``base`` and ``factor`` rest, part of ``tally``.
    """
    runs, size = len(features), features.shape[-1]
    pulled, rows = _pulled(features, tally)
    factor = precision_factor(rows, lam, pulled)
    moved = torch.cholesky_solve(rows.mT @ pulled.sums.unsqueeze(-1), factor)  # ŵ − ŵ₀
    mean = offsets + (features.squeeze(1) @ moved).mT
    blank, none = features.new_zeros(runs, 1, 1, size), torch.zeros(runs, 1, dtype=torch.int64)
    base, age = (None, none) if before is None else (_updated(features, *before, tally), before[0].age + 1)
    if base is None:
        squares = [
            torch.linalg.solve_triangular(factor, rows.mT, upper=False).square().sum(1)
            for rows in features.squeeze(1).split(max(1, _SOLVED_AT_ONCE // (runs * size)), 1)
        ]
        base, age = torch.cat(squares, -1).unsqueeze(1), none
    return Columns(mean, base, base, age, factor.unsqueeze(1), blank, taken=none)


def _pulled(features: Tensor, tally: Tally) -> tuple[Tally, Tensor]:
    """Return the tally (S, k) and the features (S, k, r) of the k arms pulled in any run, padded with counts of 0."""
    most = int((tally.counts > 0).sum(-1).max())
    at = tally.counts.topk(most, -1).indices
    rows = at.unsqueeze(-1).expand(-1, -1, features.shape[-1])
    pulled = Tally(tally.counts.gather(-1, at), tally.sums.gather(-1, at))
    return pulled, features.squeeze(1).gather(1, rows)


def _updated(features: Tensor, last: Columns, old: Tally, new: Tally) -> Tensor | None:
    """Return the variances (S, 1, K) after the pulls in ``new`` but not in ``old``, or None to compute them afresh."""
    # only Σ₀ that all learners share can be updated; see the constants for the other two conditions
    if last.factor.shape[1] > 1 or int(last.age.max()) >= _UPDATES or float(last.base.max()) > _STEEP:
        return None
    news, rows = _pulled(features, Tally(new.counts - old.counts, new.sums))
    if 2 * rows.shape[1] > features.shape[-1]:  # then solving for all variances costs less
        return None
    # With U = diag(√n)G for the k arms of these pulls, (Σ₀ + UᵀU)⁻¹ = Σ₀⁻¹ − WᵀW, where W = L⁻¹UΣ₀⁻¹ and L is the
    # Cholesky factor of I + UΣ₀⁻¹Uᵀ.
    rows = rows * news.counts.sqrt().unsqueeze(-1)
    solved = torch.cholesky_solve(rows.mT, last.factor.squeeze(1))  # Σ₀⁻¹Uᵀ
    inner = torch.linalg.cholesky(torch.eye(rows.shape[1], dtype=rows.dtype) + rows @ solved)
    w = torch.linalg.solve_triangular(inner, solved.mT, upper=False)
    base: Tensor = last.base - (features.squeeze(1) @ w.mT).square().sum(-1).unsqueeze(1)
    return base


@dataclass(frozen=True)
class ParameterSpace(OnEvent[Columns]):
    """The learners of `fedgo.phase_two.OnEvent` for many arms, with `Columns` in place of K × K matrices.

    All learners must share ``features`` and ``offsets``. The arms pulled, the messages and the synchronisations are
    those of `fedgo.phase_two.EventTriggered`, up to rounding.
    """

    def informed(self, run: Any, total: Tally, state: EventState[Columns] | None = None) -> Columns:
        """Return the posterior of some runs given their data ``total``, updated from that of ``state`` if possible."""
        features, offsets = self.features, self.offsets
        if state is None:
            return columns(features, offsets, self.settings.lam, total)
        if len(run) < len(features):
            features, offsets = features[run], offsets[run]
        last = Columns(*(values[run] for values in state.posterior)), state.server.of(run)
        return columns(features, offsets, self.settings.lam, total, last)

    def absorb(self, posterior: Columns, arm: Tensor, reward: Tensor, turn: Tensor) -> Columns:
        """Return the ``posterior`` after one pull of each learner with ``turn`` 1."""
        return posterior.absorb(self.features, arm, reward, turn)

    def afresh(self, posterior: Columns, known: Tally, due: Tensor) -> Columns:
        """Return a copy in which the learners that are ``due`` are computed from all data."""
        factor = posterior.factor.expand(-1, self.learners, -1, -1)
        own = Columns(*(values.clone() for values in posterior._replace(factor=factor)))
        for run, learner in due.nonzero().tolist():
            alone = slice(run, run + 1)
            data = known.of((alone, learner))
            exact = columns(self.features[alone], self.offsets[alone], self.settings.lam, data)
            for name in ("mean", "variance", "factor", "vectors", "taken"):
                getattr(own, name)[run, learner] = getattr(exact, name)[0, 0]
        return own
