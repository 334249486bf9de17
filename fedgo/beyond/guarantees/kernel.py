"""Theorem K: certificates for many arms, from a kernel and a norm that are given before the first reward.

Let Φ be a matrix of K arms' features, (K, r), and f = Φw the mean rewards, with ‖w‖ ≤ B. Then k = ΦΦᵀ is the kernel
matrix and B a bound on the norm of f in its space. After n pulls of each arm with the sums Y of rewards, let

    Σ = σ²I + Φᵀdiag(n)Φ,   m = ΦΣ⁻¹ΦᵀY,   V = σ²ΦΣ⁻¹Φᵀ,   Λ = ln det(Σ/σ²).

For σ-sub-Gaussian noise, N clients and p synchronisations so far, all mean rewards are within

    m_x ± √V_xx·([Λ + 2 ln(π²N(p + 1)²/(3δ))]^½ + B)

for all clients and steps with probability 1 − δ/2; a single client has 2 ln(2/δ). These intervals are intersected with
those of Theorems G and G′ at δ/2, which use counts and sums alone, so an empty intersection refutes B, F or σ. The
radius does not contain K. Nothing is certified by a kernel that was fitted to the same rewards, nor by a guessed B.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedgo._checks import number, require
from fedgo.beyond.guarantees.guarantee import TabularIntervals
from fedgo.beyond.guarantees.intervals import Interval, clipped
from fedgo.confidence import Tally, precision_factor
from fedgo.theory.ball import noise_radius


@dataclass(frozen=True)
class KernelIntervals(TabularIntervals):
    """The rule of Theorem K. The other fields are those of `TabularIntervals`.

    Args:
        features: The features Φ of the arms, (K, r) float64, the same in all runs, fixed before the first reward that
            counts.
        norm: B ≥ 0, such that the mean rewards are f = Φw with ‖w‖ ≤ B.
    """

    features: Tensor = field(kw_only=True)
    norm: float = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        shape = tuple(self.features.shape)
        fits = len(shape) == 2 and bool(self.features.isfinite().all())
        require(fits, "features", shape, "give a finite row of numbers for each arm, (K, r)")
        number("norm", self.norm, "give B ≥ 0, a bound on the norm of f", least=0)

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """Return the intervals, with the ``gain`` ln(1 + V_xx/σ²), which the next pull of the arm x adds to Λ."""
        delta = self.delta / 2
        counted = TabularIntervals(self.clients, self.sigma, self.value, delta, self.simultaneous)
        factor = precision_factor(self.features, self.sigma**2, known)
        half: Tensor = torch.linalg.solve_triangular(factor, self.features.mT, upper=False)
        mean = (half.mT @ (half @ known.sums.unsqueeze(-1))).squeeze(-1)
        variance = half.square().sum(-2)  # V_xx/σ²
        information = 2 * (factor.diagonal(dim1=-2, dim2=-1).log() - math.log(self.sigma)).sum(-1)
        epoch = None if self.clients == 1 else syncs
        noise = noise_radius(information, epoch, members=self.clients, sigma=self.sigma, delta=delta)
        width = (noise + self.sigma * self.norm).unsqueeze(-1) * variance.sqrt()
        interval = clipped(mean, width, self.value, variance.log1p())
        return interval.within(counted.after(known, syncs, shared=shared))
