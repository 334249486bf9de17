"""The pulls of a search for the best arm, for which only the final choice counts.

Each pull takes the arm x, among those without a pull, with the largest m(x) + 2√v(x), with the posterior mean m and the
posterior variance v of its mean reward, its misfit included. In the last third of the pulls, an arm is pulled again
instead if one more reward of it is worth more to the final choice than to know the mean reward of an arm without a
pull; before, only if none of these is left. If the mean of x changes by N(0, s²) and the others stay, the largest mean
rises on average by

    s·(φ(z) − z·Φ(−z)),   z = |m(x) − m′|/s,

with the largest mean m′ of the others. If the mean reward of x becomes known, s is √v(x); after one more reward, with
noise σ, it is v(x)/√(v(x) + σ²) (Frazier, Powell and Dayanik 2009, https://doi.org/10.1287/ijoc.1080.0314).

The posterior of a Gaussian process is averaged over parameters around the mode, because one fit to few rewards is too
sure of itself. The variances are updated as if the rewards of the open and the planned pulls had been observed.

There are K arms, or cells (pairs of one of N sites and an arm); if sites differ, each looks for its own best arm.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedgo._streams import generator
from fedgo.beyond.method.planning import plan
from fedgo.beyond.method.process import ProcessFit
from fedgo.beyond.method.surrogates import Fitted
from fedgo.simulation import largest

_WEIGHT = 2.0
# the half-width of an interval in standard deviations: with it, after 30 trials, intervals held 94 % of the mean
# rewards of arms without a pull on 29 tables that no evaluation uses, with a σ that the fit found; with 1.96, 87 %
HALF_WIDTH = 2.8
_SAMPLES, _MOST = 1000, 1000  # of the posterior, on so many arms at most, those with the largest m + 2√v
_AVERAGED = 5000  # arms or cells; on more of them averaging over parameters would take seconds


@dataclass(frozen=True)
class Whole:
    """A posterior of the K mean rewards that includes the misfit of arms without a reward.

    Args:
        fits: Posteriors without this misfit, of which it is the mixture with equal weights.
    """

    fits: tuple[Fitted, ...]

    @classmethod
    def of(cls, fit: Fitted) -> "Whole":
        """Return the whole posterior of a fit, averaged over parameters around those of a Gaussian process's fit."""
        if isinstance(fit, ProcessFit) and fit.redraw is not None and len(fit.mean) <= _AVERAGED:
            return cls(fit.redraw())
        return cls((fit,))

    @cached_property
    def _away(self) -> Tensor:
        """The posterior means of each fit less those of the mixture, (R, K) for R fits."""
        return torch.stack([fit.mean for fit in self.fits]) - self.mean

    @cached_property
    def mean(self) -> Tensor:
        return torch.stack([fit.mean for fit in self.fits]).mean(0)

    @cached_property
    def variance(self) -> Tensor:
        each = [fit.variance.clamp(min=0) + _misfit(fit) for fit in self.fits]
        return torch.stack(each).mean(0) + self._away.square().mean(0)

    def columns(self, arm: Tensor, among: Tensor) -> Tensor:
        """Return the posterior covariance of each of A mean rewards with each of C, (A, C)."""
        same, away = arm.unsqueeze(-1) == among, self._away
        each = [fit.columns(arm, among) + _misfit(fit)[among] * same for fit in self.fits]
        return torch.stack(each).mean(0) + away[:, arm].mT @ away[:, among] / len(away)


def _misfit(fit: Fitted) -> Tensor:
    """Return the variance that the posterior leaves out, (K,); only that of a Gaussian process leaves out any."""
    return fit.misfit if isinstance(fit, ProcessFit) else torch.zeros_like(fit.variance)


def searching(
    fit: Fitted,
    counts: Tensor,
    sigma: float,
    order: Tensor,
    pulls: int,
    begun: Sequence[int] = (),
    retired: Tensor | None = None,
    sites: int = 1,
    turn: int = 0,
    budget: int = 0,
    old: int = 0,
) -> Tensor:
    """Return the L arms or cells of the next pulls of a search, (L,) int64.

    Args:
        fit: The posterior of the K mean rewards.
        counts: The number of pulls of each arm or cell, (K,).
        sigma: The standard deviation σ of a reward's noise.
        order: A number for each of the K by which ties are broken; the largest wins.
        pulls: The number L of pulls.
        begun: The numbers of open pulls.
        retired: Whether each must not be pulled any more, (K,) bool.
        sites: The number N of sites if the K are cells; otherwise 1.
        turn: The site of the first pull; the others follow in cyclic order.
        budget: The number of pulls that is planned in total, or fewer than have been made.
        old: The number of pulls that were made before and that the ``budget`` does not contain.
    """
    opened = torch.tensor(begun, dtype=torch.int64)
    gone = torch.zeros_like(counts, dtype=torch.bool) if retired is None else retired
    tried = (counts > 0).index_fill(0, opened, True) | gone
    free = int((~tried).view(sites, -1).sum(-1).min())  # so many arms without a pull are left at each site
    early = max(0, old + math.ceil(2 * budget / 3) - int(counts.sum()) - len(begun))  # before the last third
    whole, slots = Whole.of(fit), [(turn + pull) % sites for pull in range(pulls)]
    mean, begins = whole.mean.masked_fill(gone, -torch.inf), opened.bincount(minlength=len(counts))
    parts = [part.view(sites, -1) for part in (mean, whole.variance, begins, tried, order)]

    def again(site: int) -> list[int]:
        """Return what the ``site`` pulls again: in late pulls, or because nothing else is left."""
        own, variance, times, known, ties = (part[site] for part in parts)
        wanted, repeated, first = slots.count(site), list[int](), site * len(own)
        forced = max(0, wanted - free)
        # of what repetitions replace, the least first
        worth = (
            _rise(own, variance.sqrt()).masked_fill(known, -torch.inf).topk(wanted - forced).values.flip(0)
        )
        while len(repeated) < max(slots[early:].count(site), forced):
            left = variance * sigma**2 / (sigma**2 + times * variance)
            rise = _rise(own, left / (left + sigma**2).sqrt()).masked_fill(~known, -torch.inf)
            best = int(largest(rise if rise.max() > 0 else own, ties))
            if len(repeated) >= forced and rise[best] <= worth[len(repeated) - forced]:
                break
            repeated.append(first + best)
            times[best] += 1
        return repeated

    chosen = [again(site) for site in range(sites)]
    new = [slots.count(site) - len(repeated) for site, repeated in enumerate(chosen)]
    if max(new):
        weight, ties = torch.full((1, len(mean)), _WEIGHT).double(), order.unsqueeze(0)
        length = len(begun) + sites * max(new)
        planned = plan([whole], weight, ties, sigma, length, begun, tried, sites, turn, once=True)
        of_sites = planned[0, len(begun) :].view(-1, sites).mT.roll(turn, 0).tolist()
        chosen = [arms[:n] + repeated for arms, n, repeated in zip(of_sites, new, chosen, strict=True)]
    return torch.tensor([chosen[site].pop(0) for site in slots])


def _rise(mean: Tensor, spread: Tensor) -> Tensor:
    """Return by how much the largest of the means (K,) rises on average if one changes by N(0, spread²), (K,)."""
    first, second = mean.topk(min(2, len(mean))).values[[0, -1]]
    z = (mean - torch.where(mean == first, second, first)).abs() / spread
    density, tail = (-z.square() / 2).exp() / math.sqrt(2 * math.pi), torch.erfc(z / math.sqrt(2)) / 2
    rise: Tensor = spread * (density - z * tail)
    return rise.nan_to_num(0.0).clamp(min=0)


def shortfall(whole: Whole, leader: int, remain: Tensor) -> float:
    """Return by how much the best of the arms ``remain`` (K,) exceeds the arm ``leader`` at most, with probability .95.

    It is the quantile of the difference of their mean rewards, at least 0, under the ``whole`` posterior.
    """
    bound = (whole.mean + _WEIGHT * whole.variance.sqrt()).masked_fill(~remain, -torch.inf)
    bound[leader] = torch.inf
    among = bound.topk(min(_MOST, int(bound.isfinite().sum()) + 1)).indices
    covariance = whole.columns(among, among)
    size, failed = float(covariance.diagonal().amax()), True
    # rounding can leave a covariance of lower rank slightly negative
    for rounding in (1e-10, 1e-8, 1e-6, 1e-4):
        factor, info = torch.linalg.cholesky_ex(covariance + rounding * size * torch.eye(len(among)).double())
        failed = bool(info)
        if not failed:
            break
    if failed:
        raise ValueError(
            "the covariance of the options is not positive definite: scale their features to order 1"
        )
    base = torch.randn(_SAMPLES, len(among), generator=generator(0, 0, "shortfall"), dtype=torch.float64)
    drawn = whole.mean[among] + base @ factor.mT
    return float((drawn - drawn[:, among == leader]).amax(-1).quantile(0.95))
