"""Lemma U: a radius that holds for every linearisation point at once, chosen before or after the data were seen.

In arm space m = f₀ + A⁻¹(Y − n∘f₀) with A = Q⁻¹ + diag(n), so that m − f = A⁻¹(ξ − Q⁻¹(f − f₀)), ξ_x the summed noise
of arm x. As A ⪰ Q⁻¹ and A ⪰ diag(n), for any positive definite Q and any f₀

    |m − f|_A ≤ √(Σ_{n_x>0} ξ_x²/n_x) + |f − f₀|_{Q⁻¹},   w_x² = (A⁻¹)_xx ≤ 1/n_x.

The first term knows nothing of the network; the features e_x are always predictable, and for any l > 0 it is at most
(1 + l)σ²(Σ_x ln(1 + n_x/l) + 2 ln(π²N(p + 1)²/(6δ))) for all clients and steps, with probability 1 − δ. So models may
be fitted to all synchronised data, Phase I included, and as often as one likes; the price is the tabular information.
"""

import torch
from torch import Tensor

from fedgo._checks import require
from fedgo.theory.confidence import noise_radius
from fedgo.theory.exact import Prior
from fedgo.theory.phase_two import PhaseTwoRegret, regret_phase_two_clipped


def tabular_information(counts: Tensor, known: Tensor | float = 0.0) -> Tensor:
    """Λ_tab = Σ_x ln((1 + n_x)/(1 + n⁰_x)) of ``counts`` n (..., K), with those ``known`` before, n⁰, (...).

    The information of the event on counts, at most K ln(1 + NT/K) for NT pulls.
    """
    known = torch.as_tensor(known, dtype=torch.float64)
    return ((1 + counts) / (1 + known)).log().sum(-1)


def uniform_radius(
    counts: Tensor,
    syncs: Tensor | int,
    *,
    clients: int,
    sigma: float,
    delta: float,
    bias: Tensor | float,
) -> Tensor:
    """√β with which |m − f|_A ≤ √β for any Q and f₀, (...): ``bias`` is |f − f₀|_{Q⁻¹} or a bound on it.

    ``counts`` (..., K) are all pulls in the model, and l = 1. Instead of the lemma's factor 1 + l it has
    1 + l/min n_x over the arms pulled, which is less.
    """
    require(bool((counts >= 0).all()), "counts", counts.min().item(), "give numbers of pulls, at least 0")
    fewest = torch.where(counts > 0, counts, torch.inf).amin(-1)
    noise = noise_radius(tabular_information(counts), syncs, members=clients, sigma=sigma, delta=delta)
    return noise * (1 + 1 / fewest).sqrt() + bias


def uniform_regret(
    root: float,
    information: float,
    clients: int,
    rounds: int,
    gamma: float,
    value: float,
    patience: int = 0,
) -> PhaseTwoRegret:
    """Item 3 for whoever plays the largest m + √β w of its latest fit, on the event n_i·Σ ln(1 + 1/(1 + n)) > γ.

    ``root`` bounds every √β, ``information`` is Λ_tab of Phase II. As w² ≤ 1/n ≤ 2/(1 + n) for n ≥ 1, and r_t ≤ 2F
    where n = 0, r_t ≤ 2 max(√(2β), F)/√(1 + n).
    """
    scale = max(2 * root**2, value**2)
    return regret_phase_two_clipped(
        scale, information, clients, rounds, gamma, value, widest=1.0, patience=patience
    )


def prior_after_the_fact(noise: Tensor, means: Tensor, along: float, across: float) -> Prior:
    """Q = s·ξξᵀ/|ξ|² + ν²I of the summed ``noise`` ξ (..., K), s = ``along``, ν² = ``across``, around f = ``means``.

    A kernel that was chosen after the noise was seen: it knows f exactly and doubts it only along ξ. Its information is
    small, so that a radius that holds for a fixed Q fails.
    """
    require(along > 0 and across > 0, "(along, across)", (along, across), "give positive variances")
    unit = noise / noise.norm(dim=-1, keepdim=True)
    eye = torch.eye(noise.shape[-1], dtype=torch.float64)
    kernel = along * unit.unsqueeze(-1) * unit.unsqueeze(-2) + across * eye
    factor: Tensor = torch.linalg.cholesky(kernel)
    return Prior(factor, means)
