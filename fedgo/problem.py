"""The bandit problem: finitely many arms x, their mean rewards f(x), and rewards y_t = f(x_t) + η_t with noise (eq. 1).

There are S independent runs of K arms with d_x features: arms (S, K, d_x), means (S, K), pulls (S, n). The seed and the
number of a run determine its random numbers, so that they are the same whether it is played alone or together with
others. All algorithms meet the same standard normal number z at the same step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedgo._checks import count, number, on_cpu, require, require_each, require_finite, require_kind, tensor
from fedgo._streams import generator, normal_tape, uniform_draws

Runs = int | Sequence[int]  # either the number of runs, which are then numbered from 0, or their numbers


@dataclass(frozen=True)
class Problem:
    """S runs of one bandit problem: the arms, their mean rewards, and the noise.

    Args:
        name: What the problem is called.
        arms: The features x of the arms, (S, K, d_x) float64; kept without gradients, as ``means`` are.
        means: The mean reward f(x) of each arm, (S, K) float64.
        runs: The numbers of the runs, a tuple of whole numbers from 0. Equal numbers have equal random numbers.
        seed: The seed, at least 0.
        sigma: The standard deviation σ ≥ 0 of the noise of Gaussian rewards.
        reward: "gaussian" for rewards f(x) + σz; "bernoulli" for rewards that are 1 if Φ(z) < f(x) and 0 otherwise,
            with the standard normal distribution function Φ.
        truth: The parameter w* (S, d_w) of a problem with f(x) = f_x(w*) (Assumption 1), or None. It is not checked.

    Raises:
        TypeError: ``arms`` or ``means`` is not a tensor, or another argument is of another kind.
        ValueError: A tensor is not float64, dense and on the CPU; its shape does not fit; a number is not finite or out
            of range; ``reward`` is unknown; or a Bernoulli mean is not in [0, 1].
    """

    name: str
    arms: Tensor
    means: Tensor
    runs: tuple[int, ...]
    seed: int = 0
    sigma: float = 0.1
    reward: Literal["gaussian", "bernoulli"] = "gaussian"
    truth: Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("arms", "means"):
            values = tensor(name, getattr(self, name)).detach()
            require_finite(name, values)
            object.__setattr__(self, name, values)
        require_kind(isinstance(self.runs, tuple), "runs", self.runs, "give a tuple, say (0, 1)")
        for run in self.runs:
            count("runs", run, "number the runs from 0", least=0)
        count("seed", self.seed, "give a seed of at least 0", least=0)
        shape = tuple(self.arms.shape)
        fits = len(shape) == 3 and shape[0] == len(self.runs) and min(shape) >= 1
        remedy = f"give (S, K, d_x) with S = {len(self.runs)}, the number of runs"
        require(fits, "the shape of arms", shape, remedy)
        fits = self.means.shape == shape[:2]
        require(fits, "the shape of means", tuple(self.means.shape), f"give (S, K) = {shape[:2]}")
        number("sigma", self.sigma, "give a finite noise level, at least 0", least=0)
        kinds = ("gaussian", "bernoulli")
        require(self.reward in kinds, "reward", self.reward, f"choose one of {kinds}")
        if self.reward == "bernoulli":
            inside = (self.means >= 0) & (self.means <= 1)
            require_each(inside, "means", self.means, "Bernoulli means lie in [0, 1]")

    def only(self, *positions: int) -> "Problem":
        """Return a problem with only the runs at the given ``positions``, in this order; −1 is the last run."""
        pick = list(positions)
        runs = tuple(self.runs[p] for p in pick)
        truth = None if self.truth is None else self.truth[pick]
        return replace(self, arms=self.arms[pick], means=self.means[pick], runs=runs, truth=truth)

    def generators(self, purpose: str) -> list[torch.Generator]:
        """Return a random generator for each run, one for every text ``purpose``, such as "noise" or "arms"."""
        return [generator(self.seed, run, purpose) for run in self.runs]

    @on_cpu
    def tape(self, steps: int) -> Tensor:
        """Return the numbers z of the first ``steps`` steps, (S, steps) float64; fewer are the beginning of more."""
        return torch.stack([normal_tape(source, steps) for source in self.generators("noise")])

    def observe(self, arm: Tensor, noise: Tensor) -> Tensor:
        """Return the rewards of the arms with the numbers ``arm`` and the normal numbers ``noise``, (S, n) each."""
        mean = self.means.gather(1, arm)
        if self.reward == "bernoulli":
            share: Tensor = torch.special.ndtr(noise)
            return (share < mean).to(mean.dtype)
        return mean + self.sigma * noise

    def regret(self, arm: Tensor) -> Tensor:
        """Return the instantaneous regret f(x*) − f(x) ≥ 0 of each pull in ``arm`` (S, n) int64, (S, n)."""
        return self.means.amax(1, keepdim=True) - self.means.gather(1, arm)


@on_cpu
def uniform_arms(
    name: str,
    mean: Callable[[Tensor], Tensor],
    bounds: tuple[float, float],
    d_x: int,
    runs: Runs,
    arms: int,
    seed: int,
    sigma: float,
) -> Problem:
    """Return a problem with Gaussian rewards whose arms are drawn anew for each run, uniformly in a cube.

    Args:
        name: What the problem is called.
        mean: Returns the mean rewards f(x), (n,), at points x (n, d_x); called once, with the arms of all runs.
        bounds: The lower and the upper end of the interval of each coordinate.
        d_x: The dimension of the arms.
        runs: The number of runs, or a sequence of their numbers.
        arms: The number K of arms in each run.
        seed: The seed.
        sigma: The standard deviation σ.
    """
    numbers = run_numbers(runs)
    count("arms", arms, "give at least one arm")
    count("seed", seed, "give a seed of at least 0", least=0)
    low, high = bounds
    points = low + (high - low) * uniform_draws((generator(seed, run, "arms") for run in numbers), arms, d_x)
    means = mean(points.flatten(0, 1)).unflatten(0, points.shape[:2])
    return Problem(name, points, means, numbers, seed, sigma)


def run_numbers(runs: Runs) -> tuple[int, ...]:
    """Return the numbers of the runs: 0 to S − 1 for a number S, else those in the sequence ``runs``."""
    remedy = "give at least one run, numbered from 0"
    if not isinstance(runs, Sequence) or isinstance(runs, str):
        return tuple(range(count("runs", runs, remedy)))
    require(len(runs) >= 1, "runs", runs, remedy)
    require(len({*runs}) == len(runs), "runs", runs, "give each run once")
    return tuple(count("runs", run, remedy, least=0) for run in runs)
