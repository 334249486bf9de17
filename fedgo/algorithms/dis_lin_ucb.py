"""DisLinUCB: LinUCB on the arms themselves (Wang, Hu, Chen and Wang, ICLR 2020, https://arxiv.org/abs/1904.06309).

With A = λI + Σ xxᵀ and b = Σ xy over the pulled arms x (d_x features) and their rewards y, and with θ = A⁻¹b, the index
of an arm is xᵀθ + √β‖x‖_{A⁻¹}. λ is the regularisation weight, and β the squared weight of the confidence width. Client
i triggers a synchronisation when n_i·ln(det A_i/det(A_i − ΔA_i)) exceeds the threshold γ, where A_i is the client's A,
n_i the number of its pulls since the last synchronisation, and ΔA_i the sum of xxᵀ over these pulls. In the dense form
a synchronisation of N clients costs 2N(d_x² + d_x) scalars. The learners are those of `fedgo.phase_two`, with the arms
as features.
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
    """Play DisLinUCB, which fits a linear model of the reward on the features of the arms.

    A client pulls the arm x with the largest index xᵀθ + √β‖x‖_{A⁻¹}, where A = λI + Σ xxᵀ and θ = A⁻¹ Σ xy are the
    matrix and the ridge estimate of the pulls that the client knows, with their rewards y. The clients synchronise when
    n·ln(det A/det(A − ΔA)) exceeds the threshold γ for some client. n is the number of this client's pulls since the
    last synchronisation, and ΔA the sum of xxᵀ over these pulls.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        steps: The number of steps, in each of which one client pulls one arm; the clients take turns.
        settings: The regularisation λ, the squared weight β of the confidence width, the threshold γ, and the form of
            the messages.

    Returns:
        The trace of ``steps`` steps, without a Phase I.

    Raises:
        ValueError: ``clients`` or ``steps`` is below 1 or above 2⁵³; or the arms are so large, or λ so small, that
            rounding would decide which arm is pulled; or rewards are so large that an index is NaN.
        TypeError: An argument is of another kind.
        torch.linalg.LinAlgError: The matrix A of all pulls is not positive definite in float64, because λ is too small
            for so many pulls.
    """
    require_run(problem, clients, steps, settings)
    arms = problem.arms.unsqueeze(1)
    d_x = arms.shape[-1]
    offsets = torch.zeros(arms.shape[:-1], dtype=torch.float64)
    learner = EventTriggered(clients, arms, offsets, d_x, settings)
    return simulate("DisLinUCB", problem, learner, Exploration.nothing(len(problem.runs)), clients, steps)
