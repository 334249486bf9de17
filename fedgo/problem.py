"""The bandit problem: finitely many arms x, their mean rewards f(x), and rewards y_t = f(x_t) + η_t with noise (eq. 1).

All tensors have a leading axis of S independent runs. A run with a given seed is the same alone and in any batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedgo._checks import count, number, on_cpu, require, require_each, require_finite, require_kind, tensor
from fedgo._streams import generator, normal_tape, uniform_draws

Runs = int | Sequence[int]  # the number of runs, which are then numbered from 0, or their numbers


@dataclass(frozen=True)
class Problem:
    """S runs of one bandit problem: the arms, their mean rewards, and the noise.

    ``arms`` (S, K, d_x) float64 are the features and ``means`` (S, K) the mean rewards f(x). ``runs`` are the numbers
    of the runs, which together with ``seed`` name the noise. With ``reward`` "gaussian" a reward is y = f(x) +
    ``sigma``·z, with "bernoulli" it is 1 if Φ(z) < f(x) and 0 otherwise. The standard normal z comes from one tape for
    each run, indexed by the step, so that all algorithms meet the same noise. ``truth`` (S, d_w) is w* of a problem
    with f = f_{w*} (Assumption 1), and None otherwise.

    Raises:
        TypeError: An argument is of another kind.
        ValueError: A shape does not fit, a number is not finite or out of range, or a Bernoulli mean is not in [0, 1].
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
        remedy = "give a tuple of run numbers, say (0, 1)"
        require_kind(isinstance(self.runs, tuple), "runs", self.runs, remedy)
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
        """Return a problem with the runs at these ``positions`` on the first axis, in this order."""
        pick = list(positions)
        runs = tuple(self.runs[p] for p in pick)
        truth = None if self.truth is None else self.truth[pick]
        return replace(self, arms=self.arms[pick], means=self.means[pick], runs=runs, truth=truth)

    def rescaled(self, centre: float, scale: float) -> "Problem":
        """Return the same problem with rewards (y − ``centre``)/``scale``, for rewards that are not of order 1.

        The oracle's step size and temperatures expect rewards of order 1. The regret in the result, times ``scale``, is
        the regret in this problem. The result has no ``truth``, because w* belongs to the rewards as they were.

        Raises:
            ValueError: ``centre`` or ``scale`` is out of range, or the rewards are not Gaussian.
        """
        number("centre", centre, "give a finite number")
        number("scale", scale, "give a positive scale", above=0)
        remedy = "only a problem with Gaussian rewards can be rescaled; give 'gaussian'"
        require(self.reward == "gaussian", "reward", self.reward, remedy)
        return replace(self, means=(self.means - centre) / scale, sigma=self.sigma / scale, truth=None)

    def same(self, other: "Problem") -> bool:
        """Return whether ``other`` has equal arms, means, run numbers, seed, noise level and kind of rewards."""
        names = ("runs", "seed", "sigma", "reward")
        same = all(getattr(self, name) == getattr(other, name) for name in names)
        return same and torch.equal(self.arms, other.arms) and torch.equal(self.means, other.means)

    def generators(self, purpose: str) -> list[torch.Generator]:
        """Return one generator of random numbers for each run; equal ``purpose`` gives equal numbers."""
        return [generator(self.seed, run, purpose) for run in self.runs]

    @on_cpu
    def tape(self, steps: int) -> Tensor:
        """Return the standard normals z from which the noise of the first ``steps`` steps of each run is made,
        (S, steps).
        """
        return torch.stack([normal_tape(source, steps) for source in self.generators("noise")])

    @on_cpu
    def observe(self, arm: Tensor, noise: Tensor) -> Tensor:
        """Return the rewards y (S, n) of the arms ``arm`` (S, n) int64, given the standard normals ``noise`` (S, n)."""
        mean = self.means.gather(1, arm)
        if self.reward == "bernoulli":
            share: Tensor = torch.special.ndtr(noise)
            return (share < mean).to(mean.dtype)
        return mean + self.sigma * noise

    @on_cpu
    def regret(self, arm: Tensor) -> Tensor:
        """Return the instantaneous regret f(x*) − f(x) ≥ 0 of each ``arm`` (S, n), with the best arm x* of the run."""
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
    """Return a problem whose arms are drawn anew for each run, uniformly in a cube.

    Args:
        name: What the problem is called.
        mean: Returns f(x), (n,), at points (n, d_x).
        bounds: The interval of each coordinate.
        d_x: The dimension of the arms.
        runs: The number of runs, or their numbers.
        arms: The number K of arms.
        seed: Together with the number of a run, it determines the arms and the noise.
        sigma: The standard deviation σ of the noise.

    Raises:
        ValueError: An argument is out of range.
        TypeError: An argument is of another kind.
    """
    numbers = run_numbers(runs)
    count("arms", arms, "give at least one arm")
    count("seed", seed, "give a seed of at least 0", least=0)
    low, high = bounds
    points = low + (high - low) * uniform_draws((generator(seed, run, "arms") for run in numbers), arms, d_x)
    means = mean(points.flatten(0, 1)).unflatten(0, points.shape[:2])
    return Problem(name, points, means, numbers, seed, sigma)


def run_numbers(runs: Runs) -> tuple[int, ...]:
    """Return the numbers of the runs: 0, 1, … if ``runs`` is their number, and ``runs`` itself if it is a sequence.

    Raises:
        ValueError: There is no run, a number is negative, or a run is given twice.
        TypeError: A number is not whole.
    """
    remedy = "give at least one run, numbered from 0"
    if not isinstance(runs, Sequence) or isinstance(runs, str):
        return tuple(range(count("runs", runs, remedy)))
    require(len(runs) >= 1, "runs", runs, remedy)
    require(len({*runs}) == len(runs), "runs", runs, "give each run once")
    return tuple(count("runs", run, remedy, least=0) for run in runs)
