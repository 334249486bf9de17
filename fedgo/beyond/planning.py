"""A joint plan of many pulls, as GP-BUCB makes it: argmax of mean + κ√variance, the mean as fitted, the variance as if
the pulls planned before were observed (Desautels, Krause and Burdick, JMLR 2014, https://arxiv.org/abs/1206.6402)."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedgo.beyond.surrogates.models import ByColumns, Fitted
from fedgo.simulation import largest

_DENSE = 1000  # rivals up to which the covariance of all is made, whatever the fit


_BLOCK = 1024  # pulls of a plan for which memory is taken at once


_LOOK = 16  # pulls of a plan between two looks at the rivals


def plan(
    fits: Sequence[Fitted],
    kappa: Tensor,
    order: Tensor,
    sigma: float,
    pulls: int,
    begun: Sequence[int] = (),
    retired: Tensor | None = None,
    sites: int = 1,
    turn: int = 0,
) -> tuple[Tensor, Tensor]:
    """The arms of L = ``pulls`` pulls with noise σ = ``sigma``, and the variance of each when it is pulled, (R, L).

    By the largest mean + κ√variance of the ``fits`` of R runs, with ``kappa`` and ``order`` of ties (R, K). Each pull
    takes from the variances of the C `rivals` as if it were observed, O(C) for each pull before it, but not for more
    than some `_BLOCK` or 2C; where one rival is left, it has all further pulls. The first are those of ``begun``, if
    they are decided already; no other is of an arm that is ``retired`` (K,).

    With N = ``sites`` above 1 the K arms are the cells of `fedgo.beyond.surrogates.sites`, K/N of each site, and each
    pull takes a cell of the site whose turn it is: the site ``turn`` first after those of ``begun``, then in cyclic
    order.
    """
    opened = torch.tensor(begun, dtype=torch.int64)
    mean = torch.stack([fit.mean for fit in fits])
    if retired is not None:
        mean = mean.masked_fill(retired, -torch.inf)
    variance = torch.stack([fit.variance for fit in fits]).clamp(min=0)
    among = rivals(mean, variance, kappa, opened, sites)
    site = among // (mean.shape[1] // sites)
    mean, variance, kappa, order = (part.gather(1, among) for part in (mean, variance, kappa, order))
    variance, columns = _moments(fits, among, variance)
    places, noise = torch.searchsorted(among, opened.repeat(len(among), 1)), sigma**2
    vectors, used = mean.new_zeros(len(mean), min(pulls, _BLOCK), mean.shape[1]), 0
    arms, variances = [], []
    for k in range(pulls):
        index = mean + kappa * variance.sqrt()
        if sites > 1:
            index = index.masked_fill(site != (turn + k - len(begun)) % sites, -torch.inf)
        arm = places[:, k : k + 1] if k < len(begun) else largest(index, order).unsqueeze(-1)
        arms.append(arm)
        variances.append(variance.gather(-1, arm))
        left = pulls - k - 1
        if sites == 1 and k >= len(begun) and k % _LOOK == 0 and bool(_decided(mean, index).all()):
            arms.append(arm.expand(-1, left))
            variances.append(1 / (1 / variances[-1] + torch.arange(1, left + 1) / noise))
            break
        if used == vectors.shape[1]:
            if used > 2 * mean.shape[1]:  # C vectors say of the covariance what all do
                vectors = torch.linalg.qr(vectors, mode="r").R
                used = vectors.shape[1]
            vectors = torch.nn.functional.pad(vectors, (0, 0, 0, min(left + 1, _BLOCK)))
        past = vectors[:, :used]
        explained = past.gather(-1, arm.unsqueeze(-1).expand(-1, used, 1)).mT @ past
        column = columns(arm.squeeze(-1)) - explained.squeeze(-2)
        vectors[:, used] = column / (noise + variances[-1]).sqrt()
        variance = (variance - vectors[:, used].square()).clamp(min=0)
        used += 1
    return among.gather(1, torch.cat(arms, -1)), torch.cat(variances, -1)


def rivals(mean: Tensor, variance: Tensor, kappa: Tensor, opened: Tensor, sites: int = 1) -> Tensor:
    """The arms (R, C) that a joint plan may pull: widths only shrink, so that an arm whose mean + ``kappa``·√variance,
    (R, K) each, is below the largest mean of its site stays there, but for those ``opened`` (B,). The K arms are K/N of
    each of N = ``sites`` in turn. C is that of the run with the most."""
    upper = (mean + kappa * variance.sqrt()).index_fill(1, opened, torch.inf)
    top = mean.unflatten(1, (sites, -1)).amax(-1, keepdim=True)
    margin = upper.unflatten(1, (sites, -1)).sub(top).flatten(1)
    most = int((margin >= -1e-6).sum(-1).max())
    among: Tensor = margin.topk(most, -1).indices.sort(-1).values
    return among


def _moments(
    fits: Sequence[Fitted], among: Tensor, variance: Tensor
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Of the ``fits`` between the arms ``among`` (R, C): variance (R, C), and what makes of an arm of each run (R,) the
    column of its covariance (R, C). It is of the whole covariance where C is not large, or a fit has no single columns;
    else ``variance`` is as given, and columns are made when they are asked for."""
    by_columns = [fit for fit in fits if isinstance(fit, ByColumns)]
    if among.shape[1] > _DENSE and len(by_columns) == len(fits):

        def columns(arm: Tensor) -> Tensor:
            each = zip(by_columns, among, arm, strict=True)
            return torch.cat([fit.columns(some[one].unsqueeze(0), some) for fit, some, one in each])

        return variance, columns
    covariance = torch.stack([fit.covariance(some) for fit, some in zip(fits, among, strict=True)])
    runs = torch.arange(len(fits))
    return covariance.diagonal(dim1=-2, dim2=-1).clamp(min=0), lambda arm: covariance[runs, arm]


def _decided(mean: Tensor, index: Tensor) -> Tensor:
    """Whether no arm's ``index`` but one's reaches the largest ``mean`` (R, C): indices only fall."""
    top = mean.amax(-1, keepdim=True)
    return (index >= top - 1e-6 * top.abs().clamp(min=1.0)).sum(-1) <= 1
