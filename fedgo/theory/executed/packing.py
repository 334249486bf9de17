"""How to compute a client's counts and sums from its message (ΔΣ, Δb) of the paper.

ΔΣ = Σ_x n_x g_x g_xᵀ and Δb = Σ_x e_x g_x, with the gradient g_x (d_w) of each of K arms x, the number n_x of the
client's new pulls of it, and the sum e_x over these pulls of what multiplies g_x in Δb, which is g_xᵀŵ₀ + y − f_x(ŵ₀)
in Algorithm 1. `fedgo.messages` counts the scalars of each form of a message.
"""

import torch
from torch import Tensor

from fedgo.confidence import Tally, compress


def reveal(gradients: Tensor, matrix: Tensor, vector: Tensor) -> Tally:
    """Return n_x and e_x, (..., K) each, from linearly independent ``gradients`` (..., K, d_w), ΔΣ and Δb."""
    factor, basis = compress(gradients)  # G = LQᵀ; a Cholesky factor of GGᵀ would lose half the digits
    upper, sums = factor.mT, basis.mT @ vector.unsqueeze(-1)
    inner = basis.mT @ matrix @ basis
    for _ in range(2):
        inner = torch.linalg.solve_triangular(upper, inner, upper=True).mT
    sums = torch.linalg.solve_triangular(upper, sums, upper=True)
    return Tally(inner.diagonal(dim1=-2, dim2=-1), sums.squeeze(-1))
