"""How many scalars it costs to send the statistics (ΔΣ, Δb), in each of five lossless forms.

The d × d matrix ΔΣ is the sum of g gᵀ, and Δb a sum of multiples of g, over k pulls with gradients g of length d. For k
pulls of K arms that the clients and the server know, the forms are:

- "dense": the matrix and the vector, d² + d scalars, as the paper counts;
- "triangle": the upper half of the symmetric matrix and the vector, d(d + 3)/2 scalars;
- "rows": the gradient of each pull and its factor in Δb, k(d + 1) scalars;
- "counts": the number of pulls and the sum of rewards of each arm, or, if k < K, for each pull the number of its arm
  and a part of the arm's sum, 2 min(k, K) scalars; a receiver that knows the arms and ŵ₀ forms ΔΣ and Δb from them.
  The parts are all equal, the mean reward, or, in the letters of a federation, the whole sum once and then 0;
- "cheapest": the cheapest of the last three, and one scalar that says which it is.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from fedgo._checks import count, require

_LARGEST = 10**6  # the largest dimension d; the scalars of a million clients' matrices then fit into int64
Encoding = Literal["dense", "triangle", "rows", "counts", "cheapest"]


def check_encoding(encoding: str) -> None:
    """Refuse a text that is not the name of a form."""
    kinds = get_args(Encoding)
    require(encoding in kinds, "encoding", encoding, f"choose one of {kinds}")


def names_arms(encoding: Encoding) -> bool:
    """Return whether a message in this form may name arms by their numbers, as "counts" and "cheapest" may."""
    return encoding in ("counts", "cheapest")


def scalars(
    encoding: Encoding,
    dimension: int | Tensor,
    pulls: int | Tensor,
    arms: int,
    vectors: int = 1,
    news: Tensor | None = None,
) -> Tensor:
    """Return the number of scalars that it costs to send a d × d matrix and v vectors of length d, (...) int64.

    Each vector beyond the first adds d scalars to the forms "dense" and "triangle", k to "rows" and min(k', K) to
    "counts".

    Args:
        encoding: The form in which the matrix and the vectors are sent.
        dimension: The dimension d ≤ 10⁶, a whole number or (...) int64; it broadcasts with ``pulls``.
        pulls: The number k of pulls that the statistics contain, a number or (...).
        arms: The number K of arms.
        vectors: The number v of vectors beside the matrix.
        news: The number k' of these pulls that the receiver does not know yet, for "counts"; None if it knows none.
    """
    d, k = torch.as_tensor(dimension), torch.as_tensor(pulls).long()
    # a dictionary may be empty
    count("dimension", int(d.max()), "give one whose messages int64 can count", least=0, most=_LARGEST)
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
