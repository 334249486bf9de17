"""A joint plan of many pulls, as GP-BUCB makes it (Desautels, Krause and Burdick, JMLR 2014).

Each pull has the arm with the largest mean + κ√variance, with the posterior mean and variance of its mean reward and a
weight κ. The mean stays as fitted, and the variance is updated as if the rewards of the pulls planned before had been
observed. Source: https://arxiv.org/abs/1206.6402.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedgo.beyond.method.surrogates import Fitted
from fedgo.simulation import largest

_DENSE = 1000  # for up to this many arms, each of which may be pulled often, the whole covariance is computed at once
_ROOM = 1024  # memory is allocated for this many pulls of a plan at a time
_LOOK = 16  # after every so many pulls it is checked whether the plan can pull only a single arm from then on
_SINGLE, _SHARE = 2**13, 2**9  # after so many pulls, a block is this part of the pulls before it


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
    once: bool = False,
) -> Tensor:
    """Plan L pulls for each of R runs, each with the arm of the largest mean + κ√variance at that point of the plan.

    Only the C arms of each run that can be planned at all are considered (`rivals`). A pull costs O(C) operations for
    each pull planned before it, but for at most about 2C + 1,024 of them. After 8,192 pulls, each arm is planned for a
    block of pulls, 1/512 of those planned before.

    Args:
        fits: The fit of each run, a posterior on K arms with finite means.
        kappa: The weight κ ≥ 0 of each arm's standard deviation, (R, K).
        order: A number for each arm by which ties are broken, (R, K); the largest wins.
        sigma: The standard deviation σ of a reward's noise.
        pulls: The number L ≥ 1 of pulls, those in ``begun`` included.
        begun: The arms with which the plan begins in every run.
        retired: Whether an arm must not be planned any more, (K,) bool; at least one arm of each site has to remain.
        sites: The number N of sites, with K/N consecutive cells for each. If it is above 1, each pull after ``begun``
            has a cell of the site whose turn it is, in cyclic order.
        turn: The number of the site whose turn comes first after ``begun``.
        once: Whether no arm is planned twice; as many arms of each site have to remain.

    Returns:
        The arms, (R, L) int64.
    """
    opened = torch.tensor(begun, dtype=torch.int64)
    mean = torch.stack([fit.mean for fit in fits])
    if retired is not None:
        mean = mean.masked_fill(retired, -torch.inf)
    variance = torch.stack([fit.variance for fit in fits]).clamp(min=0)
    among = rivals(mean, variance, kappa, opened, sites, -(-(pulls - len(begun)) // sites) if once else 1)
    site = among // (mean.shape[1] // sites)
    mean, variance, kappa, order = (part.gather(1, among) for part in (mean, variance, kappa, order))
    variance, columns = _moments(fits, among, variance, once)
    places, noise = torch.searchsorted(among, opened.repeat(len(among), 1)), sigma**2
    vectors, used = mean.new_zeros(len(mean), min(pulls, _ROOM), mean.shape[1]), 0
    arms, times = [], []
    k = made = first = 0
    block = 1
    while True:
        if k >= len(begun) and (k - len(begun)) % sites == 0:  # a block of rounds, with one pull by each site
            first, most = made, (pulls - made) // sites
            block = max(1, min(made // _SHARE, most)) if made >= _SINGLE and not once else 1
        index = mean + kappa * variance.sqrt()
        if sites > 1:
            index = index.masked_fill(site != (turn + k - len(begun)) % sites, -torch.inf)
        arm = places[:, k : k + 1] if k < len(begun) else largest(index, order).unsqueeze(-1)
        before = variance.gather(-1, arm)
        arms.append(arm.expand(-1, block))
        times.append(first + sites * torch.arange(block))
        k, made, first = k + 1, made + block, first + 1
        if made >= pulls:
            break
        if once:
            mean = mean.scatter(1, arm, -torch.inf)
        looks = sites == 1 and not once and k > len(begun) and (k - 1) % _LOOK == 0
        if looks and rivals(mean, variance, kappa, opened[:0]).shape[1] == 1:
            left = torch.arange(block, block + pulls - made)
            arms.append(arm.expand(-1, len(left)))
            times.append(made + left)
            break
        if used == vectors.shape[1]:
            if used > 2 * mean.shape[1]:  # C vectors suffice to describe the change of the covariance
                vectors = torch.linalg.qr(vectors, mode="r").R
                used = vectors.shape[1]
            vectors = torch.nn.functional.pad(vectors, (0, 0, 0, min(pulls - made + block, _ROOM)))
        past = vectors[:, :used]
        explained = past.gather(-1, arm.unsqueeze(-1).expand(-1, used, 1)).mT @ past
        column = columns(arm.squeeze(-1)) - explained.squeeze(-2)
        vectors[:, used] = column / (noise / block + before).sqrt()
        variance = (variance - vectors[:, used].square()).clamp(min=0)
        used += 1
    turns = torch.cat(times).argsort()
    return among.gather(1, torch.cat(arms, -1)[:, turns])


def rivals(
    mean: Tensor, variance: Tensor, kappa: Tensor, opened: Tensor, sites: int = 1, distinct: int = 1
) -> Tensor:
    """Return the numbers of the C arms that a joint plan may pull in each run, (R, C) int64, in ascending order.

    Variances only shrink during a plan. Therefore an arm is left out if its mean + κ√variance is below the largest mean
    of its site by more than 1e-6 of the largest standard deviation. C is the number in the run with the most of them.

    Args:
        mean: The posterior mean of each of K arms in R runs, (R, K).
        variance: The posterior variance of each arm, (R, K).
        kappa: The weight κ of each arm's standard deviation, (R, K).
        opened: The numbers of arms that are kept in any case, (B,) int64.
        sites: The number N of sites, with K/N consecutive arms for each.
        distinct: The number of different arms of a site that a plan needs; the limit is the mean so many places down.
    """
    upper = (mean + kappa * variance.sqrt()).index_fill(1, opened, torch.inf)
    each = mean.unflatten(1, (sites, -1))
    top = each.topk(min(distinct, each.shape[-1])).values[..., -1:]
    margin = upper.unflatten(1, (sites, -1)).sub(top).flatten(1)
    slack = 1e-6 * variance.amax(-1, keepdim=True).sqrt()
    most = int((margin >= -slack).sum(-1).max())
    among: Tensor = margin.topk(most, -1).indices.sort(-1).values
    return among


def _moments(
    fits: Sequence[Fitted], among: Tensor, variance: Tensor, once: bool
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return the posterior variances (R, C) of the arms ``among``, and a function from one of the C of each run (R,) to
    its covariance with all C, (R, C), computed at once for up to 1,000 arms unless each is planned ``once``.
    """
    if once or among.shape[1] > _DENSE:

        def columns(arm: Tensor) -> Tensor:
            each = zip(fits, among, arm, strict=True)
            return torch.cat([fit.columns(some[one].unsqueeze(0), some) for fit, some, one in each])

        return variance, columns
    covariance = torch.stack([fit.columns(some, some) for fit, some in zip(fits, among, strict=True)])
    runs = torch.arange(len(fits))
    return covariance.diagonal(dim1=-2, dim2=-1).clamp(min=0), lambda arm: covariance[runs, arm]
