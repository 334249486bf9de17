"""The counts that stand behind the matrices (ΔΣ, Δb); `fedgo.messages` says what each form costs."""

import torch
from torch import Tensor

from fedgo.confidence import Tally, compress


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
