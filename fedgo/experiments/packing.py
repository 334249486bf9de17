"""The counts that stand behind the matrices (ΔΣ, Δb); `fedgo.messages` says what each form costs."""

import torch
from torch import Tensor

from fedgo.confidence import Tally, compress


def reveal(gradients: Tensor, matrix: Tensor, vector: Tensor) -> Tally:
    """n and S behind ΔΣ = Σ n_a g_a g_aᵀ and Δb = Σ S_a g_a, of independent g_a."""
    factor, basis = compress(gradients)  # G = LQᵀ; GGᵀ would lose half the digits
    upper, sums = factor.mT, basis.mT @ vector.unsqueeze(-1)
    inner = basis.mT @ matrix @ basis
    for _ in range(2):
        inner = torch.linalg.solve_triangular(upper, inner, upper=True).mT
    sums = torch.linalg.solve_triangular(upper, sums, upper=True)
    return Tally(inner.diagonal(dim1=-2, dim2=-1), sums.squeeze(-1))
