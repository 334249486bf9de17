"""DisLinUCB: LinUCB on the arms themselves (Wang, Hu, Chen and Wang, ICLR 2020, https://arxiv.org/abs/1904.06309).

θ = (A + λI)⁻¹b with A = Σ xxᵀ, b = Σ xy; the index is xᵀθ + √β‖x‖_{(A+λI)⁻¹}; client i synchronises everybody
when n_i·ln(det A_i/det(A_i − ΔA_i)) > γ, at a cost of 2N(d_x² + d_x) scalars. State and steps are those of
`fedgo.phase_two`, with the arms as features.
"""

import torch

from fedgo._checks import on_cpu
from fedgo.phase_one import Exploration
from fedgo.phase_two import EventTriggered, Settings, require_run
from fedgo.problem import Problem
from fedgo.simulation import simulate
from fedgo.trace import Trace


@on_cpu
def dis_lin_ucb(problem: Problem, clients: int, steps: int, settings: Settings) -> Trace:
    """Play ``steps`` steps of DisLinUCB, with the squared radius ``settings.beta``."""
    require_run(problem, clients, steps, settings)
    arms = problem.arms.unsqueeze(1)
    d_x = arms.shape[-1]
    offsets = torch.zeros(arms.shape[:-1], dtype=torch.float64)
    learner = EventTriggered(clients, arms, offsets, d_x, settings, in_place=True)
    return simulate("DisLinUCB", problem, learner, Exploration.nothing(len(problem.runs)), clients, steps)
