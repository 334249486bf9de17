"""Lossless encodings of the statistics (ΔΣ, Δb) that cross the star, and what each costs to send.

With k pulls of K public arms in d dimensions: "dense" d² + d, as the paper counts; "triangle" d(d + 3)/2, the
symmetric half; "rows" k(d + 1), the gradients g_s with their residuals; "counts" 2 min(k, K), the pulls of every arm
and their sums (or, for each pull, its arm's number and that arm's mean reward), from which whoever knows the arms and
ŵ₀ forms the rest; "cheapest" the least of the last three, and one scalar that says which.
"""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from fedgo.checks import require
from fedgo.confidence import Tally, compress

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


class Statistics(NamedTuple):
    """The message (Σ, b) or (ΔΣ, Δb), held as the ``tally`` (R, n, K) of n clients that determines it.

    ``scalars`` is what it costs to send: of each client (R, n), or of the one message to all (R,).
    """

    tally: Tally
    scalars: Tensor


class Sent(NamedTuple):
    """A message of which only the size matters: (R,) scalars per run, or (R, N) per client."""

    scalars: Tensor


def pack_triangle(matrix: Tensor, vector: Tensor) -> Tensor:
    """The symmetric ``matrix`` (..., d, d) and the ``vector`` (..., d) as d(d + 3)/2 scalars."""
    row, column = torch.triu_indices(*matrix.shape[-2:])
    return torch.cat([matrix[..., row, column], vector], -1)


def unpack_triangle(message: Tensor, dimension: int) -> tuple[Tensor, Tensor]:
    """What `pack_triangle` packed, bit by bit."""
    row, column = torch.triu_indices(dimension, dimension)
    matrix = message.new_zeros(*message.shape[:-1], dimension, dimension)
    matrix[..., row, column] = message[..., :-dimension]
    matrix[..., column, row] = message[..., :-dimension]
    return matrix, message[..., -dimension:]


def pack_rows(gradients: Tensor, residuals: Tensor) -> Tensor:
    """The ``gradients`` (k, d) of the pulls and their ``residuals`` z (k,) as k rows of d + 1 scalars."""
    return torch.cat([gradients, residuals.unsqueeze(-1)], -1)


def unpack_rows(message: Tensor) -> tuple[Tensor, Tensor]:
    """ΔΣ = GᵀG and Δb = Gᵀz of the packed rows."""
    gradients, residuals = message[..., :-1], message[..., -1]
    return gradients.mT @ gradients, (gradients.mT @ residuals.unsqueeze(-1)).squeeze(-1)


def reveal(gradients: Tensor, matrix: Tensor, vector: Tensor) -> Tally:
    """The counts n and sums S that stand behind ΔΣ = Σ n_a g_a g_aᵀ and Δb = Σ S_a g_a.

    For linearly independent ``gradients`` G (..., K, d): diag(n) = G⁺ᵀΔΣG⁺ and S = G⁺ᵀΔb, so whoever knows arms and ŵ₀
    reads the counts out of the dense statistics; sending them reveals nothing more.
    """
    factor, basis = compress(gradients)  # G = LQᵀ: forming GGᵀ instead would lose half the digits
    inner = basis.mT @ matrix @ basis
    for _ in range(2):
        inner = torch.linalg.solve_triangular(factor.mT, inner, upper=True).mT
    sums = torch.linalg.solve_triangular(factor.mT, basis.mT @ vector.unsqueeze(-1), upper=True)
    return Tally(inner.diagonal(dim1=-2, dim2=-1), sums.squeeze(-1))
