"""How to compute a client's counts and sums from its message (ΔΣ, Δb) of the paper.

ΔΣ = Σ_x n_x g_x g_xᵀ and Δb = Σ_x e_x g_x, with the gradient g_x of each arm x, the number n_x of the client's new
pulls of it, and the sum e_x over these pulls of what multiplies g_x in Δb. `reveal` returns n_x and e_x;
`fedgo.messages` counts the scalars of each form of a message.
"""

import torch
from torch import Tensor

from fedgo.confidence import Tally, compress


def reveal(gradients: Tensor, matrix: Tensor, vector: Tensor) -> Tally:
    """Return the counts n_x and the sums e_x of K arms x that a client's message reveals, (..., K) each.

    The message has ΔΣ = Σ_x n_x g_x g_xᵀ and Δb = Σ_x e_x g_x with the gradients g_x of the arms in d_w parameters. n_x
    is the number of the client's pulls of the arm x. e_x is the sum, over these pulls, of what multiplies g_x in Δb; in
    Algorithm 1 this is g_xᵀŵ₀ + y − f_x(ŵ₀), with the reward y and the network's value f_x(ŵ₀) at the parameter ŵ₀ of
    Phase I.

    Args:
        gradients: The gradients g_x, (..., K, d_w) with K ≤ d_w. They have to be linearly independent, which is not
            checked; if they are not, the result is meaningless or not finite.
        matrix: ΔΣ, (..., d_w, d_w).
        vector: Δb, (..., d_w).

    Raises:
        RuntimeError: There are more arms than parameters, K > d_w, or the shapes do not fit together.
    """
    factor, basis = compress(gradients)  # G = LQᵀ; a Cholesky factor of GGᵀ would lose half the digits
    upper, sums = factor.mT, basis.mT @ vector.unsqueeze(-1)
    inner = basis.mT @ matrix @ basis
    for _ in range(2):
        inner = torch.linalg.solve_triangular(upper, inner, upper=True).mT
    sums = torch.linalg.solve_triangular(upper, sums, upper=True)
    return Tally(inner.diagonal(dim1=-2, dim2=-1), sums.squeeze(-1))
