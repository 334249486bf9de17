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
    """The rule of Theorem K, which computes the interval of each arm from the counts and sums of all arms.

    Args:
        features: The features Φ of the arms, (K, r) float64, the same in all runs. They are fixed before the first
            reward that counts.
        norm: B ≥ 0, such that the mean rewards are f = Φw with ‖w‖ ≤ B.

    Raises:
        ValueError: ``features`` is not a finite matrix, or B is negative or not finite.
        TypeError: B is not a number.
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
        """Return the interval of each of K arms, (R, L, K), for L clients (or L steps of one client) of R runs.

        The ``gain`` of the result is ln(1 + V_xx/σ²), which the next pull of the arm x adds to Λ.

        Args:
            known: The number of pulls and the summed rewards of each arm that each client knows, (R, L, K) each.
            syncs: The number p of synchronisations so far, (R, L) or (R, 1) int64. It is not used if N = 1.
            run: Not used, because all runs have the same features.
            shared: The pulls and summed rewards of each arm that all clients knew after the last synchronisation.
        """
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
