"""Phase II for many arms: the same learner without a K × K matrix, O(K d_w) for a pull.

With v = Σ⁻¹g_x/√(1 + ‖g_x‖²_{Σ⁻¹}) a pull of x takes (gᵀv)² from the variance ‖g‖²_{Σ⁻¹} of every arm, and adds
gᵀv·(y − its mean)/√(1 + ‖g_x‖²_{Σ⁻¹}) to its mean. So a learner needs the arms' mean and variance, the Cholesky factor
of Σ at the last synchronisation, which all share, and its own v since:

    Σ⁻¹g = Σ₀⁻¹g − Σ_j v_j (v_jᵀg)

The pulls of all learners at once are one product of the gradients (K, d_w) with as many vectors. At a synchronisation a
triangular solve gives all variances anew.
"""

from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor

from fedgo.confidence import Posterior, Tally, precision_factor
from fedgo.phase_two import EventTriggered, State

_CHUNK = 2**22  # numbers of a triangular solve held at once


class Columns(NamedTuple):
    """``mean`` and ``variance`` of every arm (S, M, K), as of `Posterior`; the Cholesky ``factor`` of the Σ of all
    learners (S, 1, r, r) or of each, and the ``vectors`` v (S, M, L, r) that it has added since, ``taken`` (S, M)."""

    mean: Tensor
    variance: Tensor
    factor: Tensor
    vectors: Tensor
    taken: Tensor

    def gain(self, arm: Tensor) -> Tensor:
        """ln(1 + ‖g_x‖²_{Σ⁻¹}) of pulling ``arm`` (S, M)."""
        return self.variance.gather(-1, arm.unsqueeze(-1)).squeeze(-1).log1p()

    def absorb(self, features: Tensor, arm: Tensor, reward: Tensor, turn: Tensor) -> "Columns":
        """One pull of ``arm`` with ``reward`` where ``turn`` is 1, all (S, M); ``features`` (S, 1, K, r)."""
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
        return Columns(
            torch.addcmul(self.mean, column, surprise),
            torch.addcmul(self.variance, column, column, value=-1),
            self.factor,
            vectors.scatter(2, at, v.unsqueeze(2)),
            self.taken + turn.long(),
        )


def columns(features: Tensor, offsets: Tensor, lam: float, tally: Tally, learners: int) -> Columns:
    """The posterior of M = ``learners`` that all know ``tally`` (S, K) of residuals on ``features`` (S, 1, K, r)."""
    runs, size = len(features), features.shape[-1]
    most = int((tally.counts > 0).sum(-1).max())
    touched = tally.counts.topk(most, -1).indices  # of the others the counts are 0
    known = Tally(*(part.gather(-1, touched) for part in tally))
    rows = features.squeeze(1).gather(1, touched.unsqueeze(-1).expand(-1, -1, size))
    factor = precision_factor(rows, lam, known)
    moved = torch.cholesky_solve(rows.mT @ known.sums.unsqueeze(-1), factor)  # Σ⁻¹GᵀS
    mean = offsets.squeeze(1) + (features.squeeze(1) @ moved).squeeze(-1)
    parts = [
        torch.linalg.solve_triangular(factor, part.mT, upper=False).square().sum(1)
        for part in features.squeeze(1).split(max(1, _CHUNK // (runs * size)), 1)
    ]
    mean, variance = (part.unsqueeze(1).expand(-1, learners, -1) for part in (mean, torch.cat(parts, -1)))
    blank = features.new_zeros(runs, learners, 1, size)
    return Columns(mean, variance, factor.unsqueeze(1), blank, torch.zeros(runs, learners, dtype=torch.int64))


@dataclass(frozen=True)
class ParameterSpace(EventTriggered):
    """`EventTriggered` with `Columns` in place of the matrices; ``features`` and ``offsets`` are shared, (S, 1, …).

    Arms, messages and synchronisations are the same, up to rounding.
    """

    def posterior(self, run: Tensor, tally: Tally) -> Posterior:
        """Everybody's, as all know the same at a synchronisation."""
        every = len(run) == len(self.features)
        features, offsets = (part if every else part[run] for part in (self.features, self.offsets))
        # a Columns answers whatever is asked of a Posterior here
        return cast(
            Posterior,
            columns(
                features, offsets, self.settings.lam, Tally(*(part[:, 0] for part in tally)), self.learners
            ),
        )

    def absorb(self, state: State, arm: Tensor, reward: Tensor, turn: Tensor) -> Posterior:
        """One product of the features with the vectors of all learners."""
        own = cast(Columns, state.posterior)
        return cast(Posterior, own.absorb(self.features, arm, reward, turn))

    def _afresh(self, state: State, due: Tensor) -> State:
        """The learners ``due`` (S, M) begin again with a factor of their own."""
        own, known = cast(Columns, state.posterior), state.known
        factor = own.factor.expand(-1, self.learners, -1, -1)
        kept = Columns(*(part.clone() for part in own._replace(factor=factor)))
        for at in due.nonzero().unbind():
            run, learner = at.tolist()
            data = Tally(*(part[run, learner].unsqueeze(0) for part in known))
            some = slice(run, run + 1)
            exact = columns(self.features[some], self.offsets[some], self.settings.lam, data, 1)
            for part, new in zip(kept, exact, strict=True):
                part[run, learner] = new[0, 0]
        return state._replace(posterior=cast(Posterior, kept))
