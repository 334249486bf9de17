"""What every site of `make federation` has: the plan, and rewards, here read from a file as if they were earned."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fedgo import Network, Settings
from fedgo.beyond import Fitting, Plan


def hartmann(
    file: str, clients: int, length: int, rounds: int, settings: dict[str, Any] | None = None
) -> tuple[Plan, Callable[[int, int], float]]:
    """The plan, and the reward of an arm at a step: that of the simulator at the same step.

    With ``settings`` the paper's algorithm is played, else the advised one, which the server plans.
    """
    torch.set_num_threads(1)
    with np.load(file) as found:
        arms, means, noise, sigma = (found[name] for name in ("arms", "means", "noise", "sigma"))
    paper = {"settings": Settings(**settings), "network": Network(arms.shape[1])} if settings else {}
    advised = {} if settings else {"fitting": Fitting(float(sigma), rounds)}
    plan = Plan(torch.from_numpy(arms), clients=clients, length=length, **paper, **advised)
    return plan, lambda arm, step: float(means[arm] + noise[step])
