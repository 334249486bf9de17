"""The pulls by which a search for the best arm gains most: the noisy expected improvement over the arms pulled so far.

    gain(x) = E max(f(x) − max_{x′ ∈ P} f(x′), 0),   f ~ the posterior of the mean rewards,

with the set P of the arms that were pulled, are open, or were chosen before in the same batch. The gain of a batch is
the expected improvement of its best arm, so that its arms differ. An arm of P has the gain 0: it is pulled again only
when no other arm has a gain. Given the values of f on P, f(x) is normal and the expectation has a closed form; the mean
over 128 samples of these values is taken. The posterior includes the misfit of arms without a reward. Source: Letham,
Karrer, Ottoni and Bakshy, Bayesian Analysis 2019, https://arxiv.org/abs/1706.07094.

There are K arms, or cells (pairs of one of N sites and an arm); if sites differ, each looks for its own best arm.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedgo._streams import generator
from fedgo.beyond.method.planning import plan
from fedgo.beyond.method.process import ProcessFit
from fedgo.beyond.method.surrogates import Fitted
from fedgo.simulation import largest

_SAMPLES = 128
_MOST = (
    1000  # so many arms, those with the largest mean + 2·(standard deviation), are compared with those pulled
)
_WEIGHT = 2.0  # of the standard deviation, in that bound and where no arm has a gain


def whole_variance(fit: Fitted) -> Tensor:
    """Return the posterior variance of each of the K mean rewards, its misfit included, (K,)."""
    return (fit.variance + fit.misfit if isinstance(fit, ProcessFit) else fit.variance).clamp(min=0)


def whole_covariance(fit: Fitted, among: Tensor) -> Tensor:
    """Return the posterior covariance of C mean rewards, their misfit included, (C, C)."""
    covariance = fit.covariance(among)
    return covariance + (whole_variance(fit) - fit.variance.clamp(min=0))[among].diag()


def log_improvement(u: Tensor) -> Tensor:
    """Return ln(φ(u) + u·Φ(u)), with the density φ and the distribution Φ of N(0, 1); it is ln E max(u + ε, 0)."""
    near = u.clamp(min=-30)
    density = (-near.square() / 2).exp() / math.sqrt(2 * math.pi)
    value = (density + near * torch.special.erfc(-near / math.sqrt(2)) / 2).log()
    far = -u.square() / 2 - math.log(2 * math.pi) / 2 - 2 * u.abs().log()
    return torch.where(u < -30, far, value)


class Values:
    """Samples of f on a growing set P of C arms, and the normal distribution of f elsewhere given each of them.

    Args:
        mean: The posterior mean of the C arms, (C,).
        covariance: Their posterior covariance, (C, C).
    """

    def __init__(self, mean: Tensor, covariance: Tensor) -> None:
        self.covariance, self.variance = covariance, covariance.diagonal().clone()
        self.mean = mean.repeat(_SAMPLES, 1)
        self.known = torch.zeros(len(mean), dtype=torch.bool)
        self.rows = mean.new_zeros(0, len(mean))  # of the Cholesky factor of the covariance, pivoted by P
        self.source = generator(0, 0, "improvement")
        self.least = 1e-12 * float(self.variance.amax())  # a variance below this is rounding

    def add(self, arm: int) -> None:
        """Sample f at ``arm``, and condition all others on it."""
        drawn = torch.randn(_SAMPLES, generator=self.source, dtype=torch.float64)
        if float(self.variance[arm]) > self.least:
            row = self.covariance[arm] - self.rows[:, arm] @ self.rows
            row = row.masked_fill(self.known, 0.0) / self.variance[arm].sqrt()
            self.mean = self.mean + drawn.unsqueeze(-1) * row
            self.rows = torch.cat([self.rows, row.unsqueeze(0)])
            self.variance = (self.variance - row.square()).clamp(min=0)
        self.known[arm], self.variance[arm] = True, 0.0

    def gain(self, best: Tensor) -> Tensor:
        """Return ln of the expected improvement of each arm over ``best``, of each sample, (C,)."""
        spread = self.variance.sqrt()
        log = log_improvement((self.mean - best.unsqueeze(-1)) / spread.where(spread > 0, 1.0)).logsumexp(0)
        return (log + spread.log()).masked_fill(self.known, -torch.inf)


def improving(
    fit: Fitted,
    counts: Tensor,
    sigma: float,
    order: Tensor,
    pulls: int,
    begun: Sequence[int] = (),
    retired: Tensor | None = None,
    sites: int = 1,
    turn: int = 0,
) -> Tensor:
    """Return the L arms or cells of a batch that gains most for the choice of the best arm, (L,) int64.

    Args:
        fit: The posterior of the K mean rewards.
        counts: The number of pulls of each arm or cell, (K,).
        sigma: The standard deviation σ of a reward's noise, for pulls of arms that were pulled before.
        order: A number for each of the K by which ties are broken; the largest wins.
        pulls: The number L of pulls.
        begun: The numbers of open pulls.
        retired: Whether each must not be pulled any more, (K,) bool.
        sites: The number N of sites if the K are cells; otherwise 1.
        turn: The site of the first pull; the others follow in cyclic order.
    """
    opened = torch.tensor(begun, dtype=torch.int64)
    known = (counts > 0).index_fill(0, opened, True)
    free = ~known if retired is None else ~(known | retired)
    bound = fit.mean + _WEIGHT * whole_variance(fit).sqrt()
    each = [
        bound.masked_fill(~chosen, -torch.inf).topk(min(_MOST, len(bound))).indices
        for chosen in (known, free)
    ]
    among = torch.cat(each)
    among = among[(known | free)[among]].unique()
    values, site = Values(fit.mean[among], whole_covariance(fit, among)), among // (len(bound) // sites)
    for at in known[among].nonzero().squeeze(-1).tolist():
        values.add(at)
    free, own = free[among], site == torch.arange(sites).unsqueeze(-1)
    leader = (
        fit.mean[among].masked_fill(~own, -torch.inf).argmax(-1)
    )  # the arm that a site would name untried
    chosen: list[int] = []
    for k in range(pulls):
        now = (turn + k) % sites
        mine = own[now] & values.known
        mine[leader[now]] |= not mine.any()
        best = values.mean.masked_fill(~mine, -torch.inf).amax(-1)
        gain = values.gain(best).masked_fill(~(free & own[now]), -torch.inf)
        if not bool(gain.isfinite().any()):
            break
        at = int(largest(gain, order[among]))
        chosen.append(int(among[at]))
        values.add(at)
        free[at] = False
    left = pulls - len(chosen)
    if left:
        weight, before, turn = torch.full((1, len(bound)), _WEIGHT), [*begun, *chosen], turn + len(chosen)
        ties, length = order.unsqueeze(0), len(before) + left
        rest, _ = plan([fit], weight.double(), ties, sigma, length, before, retired, sites, turn % sites)
        chosen += rest[0, len(before) :].tolist()
    return torch.tensor(chosen)
