"""The pulls by which a search for the best arm gains most: the noisy expected improvement over the arms pulled so far.

    gain(x) = E max(f(x) − max_{x′ ∈ P} f(x′), 0),   f ~ the posterior of the mean rewards,

with the set P of the arms that were pulled, are open, or were chosen before in the same batch. The gain of a batch is
the expected improvement of its best arm, so that its arms differ. An arm of P has the gain 0: it is pulled again only
when no other arm has a gain. The expectation is the mean over 512 samples of the posterior, with the misfit of arms
without a reward. Source: Letham, Karrer, Ottoni and Bakshy, Bayesian Analysis 2019, https://arxiv.org/abs/1706.07094.

There are K arms, or cells (pairs of one of N sites and an arm); if sites differ, each looks for its own best arm.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedgo._streams import generator
from fedgo.beyond.method.planning import plan
from fedgo.beyond.method.process import ProcessFit
from fedgo.beyond.method.surrogates import Fitted
from fedgo.simulation import largest

_SAMPLES = 512
_MOST = (
    1000  # so many arms, those with the largest mean + 2·(standard deviation), are compared with those pulled
)
_WEIGHT = 2.0  # of the standard deviation, in that bound and where no arm has a gain


def whole_variance(fit: Fitted) -> Tensor:
    """Return the posterior variance of each of the K mean rewards, its misfit included, (K,)."""
    return (fit.variance + fit.misfit if isinstance(fit, ProcessFit) else fit.variance).clamp(min=0)


def samples(fit: Fitted, among: Tensor, number: int = _SAMPLES) -> Tensor:
    """Return samples of the mean rewards of the C arms ``among`` (C,) from fixed base numbers, (number, C)."""
    covariance = fit.covariance(among)
    covariance.diagonal().add_(whole_variance(fit)[among] - fit.variance[among])
    size = covariance.diagonal().amax()
    for rounding in (
        1e-10,
        1e-8,
        1e-6,
        1e-4,
    ):  # a covariance of rank below C is positive definite with a little more
        factor, failed = torch.linalg.cholesky_ex(
            covariance + rounding * size * torch.eye(len(among)).to(size)
        )
        if not failed:
            break
    source = generator(0, len(among), "improvement")
    base = torch.randn(number, len(among), generator=source, dtype=torch.float64)
    drawn: Tensor = fit.mean[among] + base @ factor.mT
    return drawn


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
    drawn, site = samples(fit, among), among // (len(bound) // sites)
    mean, free, own = fit.mean[among], free[among], site == torch.arange(sites).unsqueeze(-1)
    # the best of what each site knows, or if it knows nothing the arm that it would name
    best = torch.stack([drawn.masked_fill(~(mine & known[among]), -torch.inf).amax(-1) for mine in own])
    leader = mean.masked_fill(~own, -torch.inf).argmax(-1)
    best = torch.where(best.isfinite(), best, drawn[:, leader].mT)
    chosen: list[int] = []
    for k in range(pulls):
        now = (turn + k) % sites
        gain = (
            (drawn - best[now].unsqueeze(-1)).clamp(min=0).mean(0).masked_fill(~(free & own[now]), -torch.inf)
        )
        if not float(gain.amax()) > 0:
            break
        at = int(largest(gain, order[among]))
        chosen.append(int(among[at]))
        best[now] = torch.maximum(best[now], drawn[:, at])
        free[at] = False
    left = pulls - len(chosen)
    if left:
        weight, before, turn = torch.full((1, len(bound)), _WEIGHT), [*begun, *chosen], turn + len(chosen)
        ties, length = order.unsqueeze(0), len(before) + left
        rest, _ = plan([fit], weight.double(), ties, sigma, length, before, retired, sites, turn % sites)
        chosen += rest[0, len(before) :].tolist()
    return torch.tensor(chosen)
