"""What Phase II costs to compute: seconds of one run of Fed-GO-UCB in either space, by K, N, T and d_w."""

import time
from dataclasses import dataclass, replace
from functools import partial

import torch

from fedgo.algorithms.controls import exact_kernel_ucb
from fedgo.algorithms.go_ucb import Space, fed_go_ucb
from fedgo.algorithms.gp_ucb import gp_ucb
from fedgo.langevin import Langevin
from fedgo.network import Network
from fedgo.paper.experiments import GO_SETTINGS
from fedgo.paper.problems import hartmann6
from fedgo.phase_one import shared_start
from fedgo.phase_two import Settings
from fedgo.trace import Trace

_BRIEF = Langevin(rounds=200)  # Phase II does not care how well ŵ₀ fits


@dataclass(frozen=True)
class Size:
    """K = ``arms``, N = ``clients``, T = ``rounds``, H = ``hidden`` units (d_w = 8H + 1); the paper's on Hartmann6."""

    arms: int = 50
    clients: int = 20
    rounds: int = 100
    hidden: int = 25

    @property
    def parameters(self) -> int:
        """d_w."""
        return Network(6, self.hidden).size

    def with_(self, **changes: int) -> "Size":
        """Another of these."""
        return replace(self, **changes)


@dataclass(frozen=True)
class Timed:
    """A run's ``trace`` and the ``seconds`` that its Phase II took."""

    trace: Trace
    seconds: float


def phase_two(size: Size, space: Space, seed: int = 0) -> Timed:
    """Fed-GO-UCB on Hartmann6 with `GO_SETTINGS`, one run."""
    problem = hartmann6(1, arms=size.arms, seed=seed)
    start = shared_start(problem, Network(6, size.hidden), size.clients, size.rounds, _BRIEF)
    return _timed(partial(fed_go_ucb, problem, start, GO_SETTINGS, space=space))


def exact_kernel(size: Size, seed: int = 0) -> Timed:
    """Kernel UCB on all data at once, one run."""
    problem = hartmann6(1, arms=size.arms, seed=seed)
    return _timed(
        partial(exact_kernel_ucb, problem, size.clients, size.clients * size.rounds, Settings(0.01, 0.03))
    )


def centralised(size: Size, steps: int, seed: int = 0) -> Timed:
    """BoTorch's GP-UCB, fitted anew every 25 steps, on the first ``steps``."""
    return _timed(partial(gp_ucb, hartmann6(1, arms=size.arms, seed=seed), size.clients, steps, 4.0))


def _timed(task: "partial[Trace]") -> Timed:
    begin = time.perf_counter()
    trace = task()
    return Timed(trace, time.perf_counter() - begin)


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """p of seconds ∝ sizeᵖ between the last two sizes, where what does not grow weighs least."""
    x, y = (torch.tensor(values[-2:], dtype=torch.float64).log() for values in (sizes, seconds))
    return float((y[1] - y[0]) / (x[1] - x[0]))
