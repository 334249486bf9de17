"""Lemma U: a radius that holds for every linearisation point at once, chosen before or after the data were seen.

In arm space m = f₀ + A⁻¹(Y − n∘f₀) with A = Q⁻¹ + diag(n). For any positive definite Q and any f₀, with ξ_x the summed
noise of arm x,

    |m − f|_A ≤ √(Σ_{n_x>0} ξ_x²/n_x) + |f − f₀|_{Q⁻¹},   w_x² = (A⁻¹)_xx ≤ 1/n_x,

where the first term knows nothing of the network. So models may be fitted to all data, as often as one likes.
"""

import torch
from torch import Tensor

from fedgo._checks import require
from fedgo.theory.confidence import noise_radius


def tabular_information(counts: Tensor, known: Tensor | float = 0.0) -> Tensor:
    """Λ_tab = Σ_x ln((1 + n_x)/(1 + n⁰_x)) of ``counts`` n (..., K), with those ``known`` before, n⁰, (...).

    The information of the event on counts, at most K ln(1 + NT/K) for NT pulls.
    """
    known = torch.as_tensor(known, dtype=torch.float64)
    return ((1 + counts) / (1 + known)).log().sum(-1)


def uniform_radius(
    counts: Tensor, syncs: Tensor | int, *, clients: int, sigma: float, delta: float, bias: Tensor | float
) -> Tensor:
    """√β with which |m − f|_A ≤ √β for any Q and f₀, (...): ``bias`` is |f − f₀|_{Q⁻¹} or a bound on it.

    ``counts`` (..., K) are all pulls in the model, and l = 1.
    """
    require(bool((counts >= 0).all()), "counts", counts.min().item(), "give numbers of pulls, at least 0")
    fewest = torch.where(counts > 0, counts, torch.inf).amin(-1)
    noise = noise_radius(tabular_information(counts), syncs, members=clients, sigma=sigma, delta=delta)
    return noise * (1 + 1 / fewest).sqrt() + bias
