"""The lossless forms of (ΔΣ, Δb) written out: the triangle, the rows, and the counts that stand behind the matrices.

`fedgo.messages` says what each costs; here each is packed and read again, which proves that nothing is lost.
"""

import torch
from torch import Tensor

from fedgo.confidence import Tally, compress


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
