"""What every site of `make federation` has: the plan, and rewards, here read from a file as if they were earned."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fedgo import Network, Settings
from fedgo.federation import Plan


def hartmann(
    file: str, settings: dict[str, Any], clients: int, length: int
) -> tuple[Plan, Callable[[int, int], float]]:
    """The plan, and the reward of an arm at a step: that of the simulator at the same step."""
    torch.set_num_threads(1)
    with np.load(file) as found:
        arms, means, noise = (found[name] for name in ("arms", "means", "noise"))
    plan = Plan(torch.from_numpy(arms), Settings(**settings), clients, Network(arms.shape[1]), length)
    return plan, lambda arm, step: float(means[arm] + noise[step])
