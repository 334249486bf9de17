"""A Gaussian process on cells, the pairs of a site and an arm, for sites whose mean rewards differ.

The model is the one with sites of `fedgo.beyond.method.process`. Its centre c₀ and spread s are the mean and the
standard deviation of the arms' mean rewards over all sites together, after the warp if there is one. Cells are numbered
site by site: of K arms, the arm x at site i is cell i·K + x, both counted from 0.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedgo.beyond.method.process import in_cube, squared_exponential, warped_posterior
from fedgo.beyond.method.surrogates import Fitted, Noise, observed
from fedgo.confidence import Tally


@dataclass(frozen=True)
class Sites:
    """A surrogate for N sites whose mean rewards differ, a Gaussian process on the pairs of a site and an arm.

    If it is given the counts and sums of all sites together, it fits the same process on the arms alone.

    Args:
        warp: Whether the mean rewards are first transformed by the power that is likeliest for the arms over all sites.
        groups: The number of the group of each feature, from 0; features of one group share a length scale. None means
            a group for each feature.
        outputscale: Whether the output scale is fitted; otherwise it is 1.
    """

    warp: bool = False
    groups: tuple[int, ...] | None = None
    outputscale: bool = False

    def fit(self, arms: Tensor, data: Tally, sigma: Noise, before: Fitted | None = None) -> Fitted:
        counts, sums = (part.reshape(-1, len(arms)) for part in data)
        pulled = observed(Tally(counts.flatten(), sums.flatten()), sigma, least=1)
        pooled = observed(Tally(counts.sum(0), sums.sum(0)), sigma)
        site = torch.arange(len(counts)).repeat_interleave(len(arms)) if data.counts.ndim > 1 else None
        points, units = in_cube(arms).repeat(len(counts), 1), (pooled.means.mean(), pooled.means.std())
        how: dict[str, Any] = {"groups": self.groups, "outputscale": self.outputscale}
        if self.warp:
            return warped_posterior(points, pulled, pooled, site, **how)
        return squared_exponential(points, pulled, site, units, **how)


def cochran(data: Tally, sigma: float) -> Tensor:
    """Return the p-value of the hypothesis that all N sites have the same mean rewards, by Cochran's Q.

    Q is Σ_x Σ_i n_ix (m_ix − m_x)²/σ² over the arms x that at least two sites pulled and the sites i that pulled x,
    with the mean m_ix of the n_ix rewards of x at i, and the mean m_x of all its rewards. If the sites are alike, and
    pulls were not chosen by rewards, Q has a χ² distribution. Source: Cochran, Biometrics 1954,
    https://doi.org/10.2307/3001666.

    Args:
        data: Counts and sums of the rewards of each of K arms at each site, (…, N, K) each.
        sigma: The standard deviation σ > 0 of one reward's noise. If it is too small, the sites seem to differ.

    Returns:
        The probability of so large a Q if the sites are alike, (…); 1 if no arm was pulled at two sites.
    """
    counts, sums = data
    pulled = (counts > 0) & ((counts > 0).sum(-2, keepdim=True) >= 2)
    pooled = sums.sum(-2, keepdim=True) / counts.sum(-2, keepdim=True).clamp(min=1)
    away = (sums / counts.clamp(min=1) - pooled).where(pulled, 0.0)
    statistic = (counts * away.square()).sum((-2, -1)) / sigma**2
    degrees = pulled.sum((-2, -1)) - pulled.any(-2).sum(-1)
    p: Tensor = torch.special.gammaincc(degrees.clamp(min=1).double() / 2, statistic / 2)
    p = p.where(degrees > 0, 1.0)
    return p
