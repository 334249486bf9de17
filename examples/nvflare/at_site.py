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
    """Return the plan, and a function that returns the reward of an arm at a step, the simulator's at the same step.

    Args:
        file: The path of an ``.npz`` file with the features of the K arms (K, d_x), their mean rewards (K,), the noise
            of each step, and the standard deviation σ of the noise.
        clients: The number N of clients.
        length: The number T₀ of pulls in Phase I.
        rounds: The number T of pulls of each client in Phase II.
        settings: The fields of the `Settings` of the paper's algorithm; if it is None, the method that the book
            recommends is played, and the server plans.

    Raises:
        ValueError: The plan refuses a value.
        OSError: The file does not exist or cannot be read.
    """
    torch.set_num_threads(1)
    with np.load(file) as found:
        arms, means, noise, sigma = (found[name] for name in ("arms", "means", "noise", "sigma"))
    paper = {"settings": Settings(**settings), "network": Network(arms.shape[1])} if settings else {}
    advised = {} if settings else {"fitting": Fitting(float(sigma), rounds)}
    plan = Plan(torch.from_numpy(arms), clients=clients, length=length, **paper, **advised)
    return plan, lambda arm, step: float(means[arm] + noise[step])
