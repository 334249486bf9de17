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
    """Refuse the name of a form in which statistics cannot be sent."""
    kinds = get_args(Encoding)
    require(encoding in kinds, "encoding", encoding, f"choose one of {kinds}")


def names_arms(encoding: Encoding) -> bool:
    """Return whether a message in this form may name an arm by its number."""
    return encoding in ("counts", "cheapest")


def scalars(
    encoding: Encoding,
    dimension: int | Tensor,
    pulls: int | Tensor,
    arms: int,
    vectors: int = 1,
    news: Tensor | None = None,
) -> Tensor:
    """Return how many scalars it costs to send statistics: a d × d matrix and some vectors, (...) int64.

    Args:
        encoding: The form in which they are sent.
        dimension: The dimension d; it broadcasts with ``pulls``.
        pulls: The number k of pulls that the statistics contain, (...).
        arms: The number K of arms.
        vectors: The number of vectors beside the matrix.
        news: The number of pulls that the receiver does not know yet, (...), if it has counts of earlier pulls; only
            these are sent as counts.
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
