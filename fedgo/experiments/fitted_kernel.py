"""Kernel UCB with hyperparameters fitted once: those of BoTorch's SingleTaskGP after Phase I, then the exact kernel.

    index_x = μ_x + κσ‖φ_x‖_{Σ⁻¹},   Σ = σ²I + Σ_t φ(x_t)φ(x_t)ᵀ,   φ_xᵀφ_x' = k(x, x')

with the constant mean and the kernel k of the fit, its scale included; every pull is shared at once, as in
`fedgo.algorithms.controls.exact_kernel_ucb`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedgo._checks import number, on_cpu, require
from fedgo.algorithms.go_ucb import Immediate
from fedgo.beyond import guard
from fedgo.beyond.guard import phase_one_tally
from fedgo.beyond.surrogates import GaussianProcess
from fedgo.confidence import Tally
from fedgo.phase_one import explore, phase_one_length
from fedgo.phase_two import Settings, require_run
from fedgo.problem import Problem
from fedgo.simulation import simulate
from fedgo.trace import Trace


@dataclass(frozen=True)
class Informed(guard.Informed, Immediate):
    """`Immediate` whose learner knows the data of Phase I."""


@on_cpu
def fitted_kernel_ucb(problem: Problem, clients: int, rounds: int, kappa: float = 3.0) -> Trace:
    """T₀ = ⌈√(NT)⌉ uniform pulls, a fit to them, then T = ``rounds`` rounds of kernel UCB with N = ``clients``.

    κ = ``kappa`` standard deviations of optimism. A pull is sent as its arm's number and its reward, 2 scalars up and
    2N down, in Phase I too. K × K numbers for every run.
    """
    require_run(problem, clients, rounds)
    remedy = "give a finite number of standard deviations κ, at least 0"
    require(0 <= number("kappa", kappa, remedy) < float("inf"), "kappa", kappa, remedy)
    exploration = explore(problem, phase_one_length(clients, rounds))
    exploration.ledger.up.fill_(2)
    exploration.ledger.down.fill_(2 * clients)
    runs, arms = problem.means.shape
    first = phase_one_tally(exploration, 1, arms).summed()
    fits = [
        prior(problem.arms[run], Tally(first.counts[run], first.sums[run]), problem.sigma)
        for run in range(runs)
    ]
    offsets, kernel = (torch.stack(parts) for parts in zip(*fits, strict=True))
    values, vectors = torch.linalg.eigh(kernel)
    features = (vectors * values.clamp(min=0).sqrt().unsqueeze(-2)).unsqueeze(1)
    settings = Settings(problem.sigma**2, (kappa * problem.sigma) ** 2)
    residuals = Tally(first.counts, first.sums - first.counts * offsets)
    learner = Informed(1, features, offsets.unsqueeze(1), arms, settings, datum=2, first=residuals)
    return simulate("Kernel UCB, fitted", problem, learner, exploration, clients, clients * rounds)


def prior(arms: Tensor, data: Tally, sigma: float) -> tuple[Tensor, Tensor]:
    """Mean (K,) and kernel (K, K) of the ``arms`` (K, d_x) before any data, of a process fitted to ``data`` (K,)."""
    found = GaussianProcess().fit(arms, data, sigma)
    model = found.model
    with torch.no_grad():
        standard = model.forward(found.arms)
        mean, covariance = standard.mean.detach(), standard.covariance_matrix.detach()
    centre, scale = model.outcome_transform.means.squeeze(), model.outcome_transform.stdvs.squeeze()
    return centre + scale * mean, scale.square() * covariance
