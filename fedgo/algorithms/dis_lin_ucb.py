"""DisLinUCB: LinUCB on the arms themselves (Wang, Hu, Chen and Wang, ICLR 2020, https://arxiv.org/abs/1904.06309).

With A = λI + Σ xxᵀ and θ = A⁻¹Σ xy over the pulls of arms x (d_x features) with rewards y that a client knows, it pulls
the arm with the largest xᵀθ + √β‖x‖_{A⁻¹}. The event and the messages are those of `fedgo.phase_two`.
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
    """Play DisLinUCB with N = ``clients`` clients in turn, ``steps`` pulls in all; every setting is used.

    Raises:
        ValueError: A number is below 1, or the arms or rewards are so large, or λ so small, that rounding would decide
            which arm is pulled.
        TypeError: An argument is of another kind.
    """
    require_run(problem, clients, steps, settings)
    arms = problem.arms.unsqueeze(1)
    d_x = arms.shape[-1]
    offsets = torch.zeros(arms.shape[:-1], dtype=torch.float64)
    learner = EventTriggered(clients, arms, offsets, d_x, settings)
    return simulate("DisLinUCB", problem, learner, Exploration.nothing(len(problem.runs)), clients, steps)
