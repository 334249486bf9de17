"""DisLinUCB: LinUCB on the arms themselves (Wang, Hu, Chen and Wang, ICLR 2020, https://arxiv.org/abs/1904.06309).

θ = (A + λI)⁻¹b with A = Σ xxᵀ, b = Σ xy; the index is xᵀθ + √β‖x‖_{(A+λI)⁻¹}; client i synchronises everybody
when n_i·ln(det A_i/det(A_i − ΔA_i)) > γ, at a cost of 2N(d_x² + d_x) scalars. State and steps are those of
`fedgo.phase_two`, with the arms as features.
"""

import math

import torch
from torch import Tensor

from fedgo._checks import number, on_cpu
from fedgo.confidence import Estimates, Tally, width
from fedgo.phase_one import Exploration
from fedgo.phase_two import EventTriggered, Index, Settings, require_run
from fedgo.problem import Problem
from fedgo.simulation import simulate
from fedgo.trace import Trace


@on_cpu
def dis_lin_ucb(
    problem: Problem, clients: int, steps: int, settings: Settings, theorem_delta: float | None = None
) -> Trace:
    """``steps`` steps of DisLinUCB with the squared radius ``settings.beta``.

    With ``theorem_delta`` = δ the radius is the paper's α = σ√(d ln(1 + n/(dλ)) + 2 ln(1/δ)) + √λ instead, n the
    data that the client knows, 1 the bound on |θ|, and arms with |x| ≤ 1 (longer ones are outside its theorem).
    """
    require_run(problem, clients, steps, settings)
    arms = problem.arms.unsqueeze(1)
    d_x = arms.shape[-1]
    optimism = None
    if theorem_delta is not None:
        number("theorem_delta", theorem_delta, "give δ in (0, 1)", above=0, below=1)
        optimism = _theorem(d_x, problem.sigma, settings.lam, theorem_delta)
    offsets = torch.zeros(arms.shape[:-1], dtype=torch.float64)
    learner = EventTriggered(clients, arms, offsets, d_x, settings, optimism, in_place=True)
    return simulate("DisLinUCB", problem, learner, Exploration.nothing(len(problem.runs)), clients, steps)


def _theorem(d_x: int, sigma: float, lam: float, delta: float) -> Index:
    """The index with the paper's radius α."""

    def index(posterior: Estimates, known: Tally) -> Tensor:
        pulls = known.counts.sum(-1, keepdim=True)
        log = d_x * (1 + pulls / (d_x * lam)).log() + 2 * math.log(1 / delta)
        alpha = sigma * log.sqrt() + math.sqrt(lam)
        return posterior.mean + alpha * width(posterior.variance)

    return index
