"""GP-UCB with BoTorch's Gaussian process on the data of all clients, whose time `costs.py` measures.

The algorithm is that of Srinivas et al., ICML 2010, https://arxiv.org/abs/0912.3995.
"""

import torch
from botorch.acquisition.analytic import UpperConfidenceBound
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Standardize
from gpytorch.mlls import ExactMarginalLogLikelihood

from fedgo.beyond.method.process import in_cube
from fedgo.phase_one import explore
from fedgo.problem import Problem
from fedgo.trace import Trace


def gp_ucb(
    problem: Problem, clients: int, steps: int, beta: float, first: int = 10, refit: int = 25
) -> Trace:
    """Play GP-UCB, which pulls the arm with the largest mean + √β·standard deviation of a Gaussian process on all data.

    The process is BoTorch's SingleTaskGP on the arms' features, scaled to [0, 1] in each run. It is conditioned on all
    data again before each pull, so that this is slow. All clients share all data after every pull, at d_x + 1 scalars
    up and as many down to each. While all rewards of a run so far are equal, its arms are drawn uniformly.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        steps: The number of steps, in each of which one client pulls one arm; the clients take turns.
        beta: The squared weight β of the standard deviation.
        first: The number of uniformly drawn pulls at the beginning, from 1 to ``steps``.
        refit: The number of steps from one fit of the process's hyperparameters to the next, at least 1.
    """
    runs, d_x = len(problem.runs), problem.arms.shape[-1]
    tape = problem.tape(steps)
    # all pulls are drawn uniformly here, and those after the first ones are replaced by chosen arms below
    pulled, reward, _ = explore(problem, steps, "botorch")
    for run in range(runs):
        x, state = in_cube(problem.arms[run]), None  # BoTorch's priors expect inputs in [0, 1]
        for t in range(first, steps):
            past = pulled[run, :t]
            if (reward[run, :t] == reward[run, 0]).all():
                continue  # equal rewards cannot be standardised, so that the uniform pull stays
            model = SingleTaskGP(x[past], reward[run, :t, None], outcome_transform=Standardize(1))
            if state is None or (t - first) % refit == 0:
                fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
                state = {name: v for name, v in model.state_dict().items() if "outcome_transform" not in name}
            else:
                model.load_state_dict(state, strict=False)
            with torch.no_grad():
                pulled[run, t] = UpperConfidenceBound(model.eval(), beta=beta)(x.unsqueeze(-2)).argmax()
            now = slice(t, t + 1)
            reward[:, now] = problem.observe(pulled[:, now], tape[:, now])
    up, sync = torch.full_like(pulled, d_x + 1), torch.ones_like(pulled, dtype=torch.bool)
    regret, down = problem.regret(pulled), clients * up
    return Trace("GP-UCB (BoTorch)", problem.name, clients, 0, pulled, reward, regret, up, down, sync)
