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
    """Return a joint plan of L = ``pulls`` pulls for R runs; each pull has the arm with the largest mean + κ√variance.

    After each pull the variances are updated as if its reward had been observed, while the means stay as fitted. Only
    the C `rivals` of each run are considered. A pull costs O(C) for each pull planned before it, but for at most
    about 2C + 1,024 of them. If one rival is left in every run and N is 1, it gets all further pulls.

    Args:
        fits: The fit of each run, on K arms.
        kappa: κ of each arm, (R, K).
        order: The order in which ties are broken, (R, K).
        sigma: The standard deviation σ of the noise of a reward.
        pulls: L.
        begun: Arms whose pulls are already decided; the plan begins with them in every run.
        retired: Whether an arm may not be planned any more, (K,) bool. None means that all may.
        sites: The number N of sites. If N is above 1, the K arms are the cells of `fedgo.beyond.surrogates.sites`, K/N
            of each site, and each pull after ``begun`` takes a cell of the site whose turn it is, in cyclic order.
        turn: The site whose turn comes first after ``begun``.

    Returns:
        The arms, (R, L) int64, and the variance of each when it is pulled, (R, L).
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
    """Return the arms that a joint plan may pull, (R, C) int64, in ascending order.

    Variances only shrink during a plan. An arm is therefore left out if its mean + κ√variance is below the largest mean
    of its site. C is the number of arms that remain in the run with the most; the other runs are filled up to C with
    their next best arms.

    Args:
        mean: The posterior mean of each arm, (R, K).
        variance: The posterior variance of each arm, (R, K).
        kappa: κ of each arm, (R, K).
        opened: Arms that are kept in any case, (B,).
        sites: The number N of sites; the K arms are K/N of each site in turn.
    """
    upper = (mean + kappa * variance.sqrt()).index_fill(1, opened, torch.inf)
    top = mean.unflatten(1, (sites, -1)).amax(-1, keepdim=True)
    margin = upper.unflatten(1, (sites, -1)).sub(top).flatten(1)
    most = int((margin >= -1e-6).sum(-1).max())
    among: Tensor = margin.topk(most, -1).indices.sort(-1).values
    return among


def _moments(
    fits: Sequence[Fitted], among: Tensor, variance: Tensor
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return the variances (R, C) of the arms ``among`` (R, C), and a function that gives covariances (R, C) with all
    of them.

    The function takes one arm for each run, (R,). If C is at most 1,000, or if some of the ``fits`` cannot give single
    columns, the whole covariance is computed at once, and the variances are its diagonal. Otherwise the variances are
    those given, and columns are computed on demand.
    """
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
    """Return whether at most one arm of each run has an ``index`` (R, C) that reaches the largest ``mean`` (R, C), (R,)
    bool. As indices only fall, no other arm can then be planned.
    """
    top = mean.amax(-1, keepdim=True)
    return (index >= top - 1e-6 * top.abs().clamp(min=1.0)).sum(-1) <= 1
