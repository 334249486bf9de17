"""What the statistics (ΔΣ, Δb) cost to send, in each of the lossless forms in which they can cross the star.

With k pulls of K public arms in d dimensions: "dense" d² + d, as the paper counts; "triangle" d(d + 3)/2, the
symmetric half; "rows" k(d + 1), the gradients g_s with their residuals; "counts" 2 min(k, K), the pulls of every arm
and their sums (or, for each pull, its arm's number and that arm's mean reward), from which whoever knows the arms and
ŵ₀ forms the rest; "cheapest" the least of the last three, and one scalar that says which.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from fedgo._checks import require

_LARGEST = 10**6  # of a dimension, so that a million clients' matrices can still be counted
Encoding = Literal["dense", "triangle", "rows", "counts", "cheapest"]


def check_encoding(encoding: str) -> None:
    """A ``ValueError`` for the name of no encoding."""
    kinds = get_args(Encoding)
    require(encoding in kinds, "encoding", encoding, f"choose one of {kinds}")


def names_arms(encoding: Encoding) -> bool:
    """Whether an arm may be sent as its number."""
    return encoding in ("counts", "cheapest")


def scalars(
    encoding: Encoding,
    dimension: int | Tensor,
    pulls: int | Tensor,
    arms: int,
    vectors: int = 1,
    news: Tensor | None = None,
) -> Tensor:
    """Scalars of the statistics of ``pulls`` data: a d × d matrix and ``vectors`` sums, (...) int64.

    ``dimension`` d, ``pulls`` k and the result broadcast; ``arms`` is K. Where the receiver has counts already, only
    the ``news`` among the pulls are sent as counts.
    """
    d, k = torch.as_tensor(dimension), torch.as_tensor(pulls).long()
    largest = int(d.max())
    require(largest <= _LARGEST, "dimension", largest, f"give at most {_LARGEST}: the bill would leave int64")
    fresh = k if news is None else news.long()
    costs = {
        "dense": d * d + vectors * d + 0 * k,
        "triangle": d * (d + 1) // 2 + vectors * d + 0 * k,
        "rows": k * (d + vectors),
        "counts": (1 + vectors) * fresh.clamp(max=arms) + 0 * d,
    }
    if encoding != "cheapest":
        return costs[encoding]
    return 1 + torch.stack([costs[name] for name in ("triangle", "rows", "counts")]).amin(0)
