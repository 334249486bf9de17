"""DisLinUCB: LinUCB on the arms themselves (Wang, Hu, Chen and Wang, ICLR 2020, https://arxiv.org/abs/1904.06309).

With A = λI + Σ xxᵀ, b = Σ xy and θ = A⁻¹b, the index of an arm is xᵀθ + √β‖x‖_{A⁻¹}. Client i triggers a
synchronisation when n_i·ln(det A_i/det(A_i − ΔA_i)) > γ, with its n_i pulls and its ΔA_i since the last one. This costs
2N(d_x² + d_x) scalars. The learners are those of `fedgo.phase_two`, with the arms as features.
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
    """Play ``steps`` steps of DisLinUCB with N = ``clients`` clients and the λ, β and γ of ``settings``."""
    require_run(problem, clients, steps, settings)
    arms = problem.arms.unsqueeze(1)
    d_x = arms.shape[-1]
    offsets = torch.zeros(arms.shape[:-1], dtype=torch.float64)
    learner = EventTriggered(clients, arms, offsets, d_x, settings, in_place=True)
    return simulate("DisLinUCB", problem, learner, Exploration.nothing(len(problem.runs)), clients, steps)
