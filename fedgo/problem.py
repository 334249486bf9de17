"""What the clients face: finite arms, their mean rewards f(x), and the noise y_t = f(x_t) + η_t (eq. 1).

Everything has a leading axis of S independent runs; run r of seed s is the same alone and in any batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedgo._checks import count, number, on_cpu, require, require_each, require_finite, require_kind, tensor
from fedgo._streams import generator, normal_tape, uniform_draws

Runs = int | Sequence[int]  # how many there are, numbered from 0, or their numbers


@dataclass(frozen=True)
class Problem:
    """S runs of one bandit problem.

    ``arms`` (S, K, d_x) float64, ``means`` (S, K) = f(x); ``runs`` the run numbers, which with ``seed``
    name the noise. ``reward`` is "gaussian" (y = f(x) + ``sigma``·z) or "bernoulli" (y = 1{Φ(z) < f(x)});
    z comes from one tape per run, indexed by the step, so every algorithm meets the same noise.
    ``truth`` (S, d_w) is w* where f = f_{w*} (Assumption 1) by construction.
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
            object.__setattr__(self, name, tensor(name, getattr(self, name)).detach())
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
        for name in ("arms", "means"):
            require_finite(name, getattr(self, name))
        number("sigma", self.sigma, "give a finite noise level, at least 0", least=0)
        kinds = ("gaussian", "bernoulli")
        require(self.reward in kinds, "reward", self.reward, f"choose one of {kinds}")
        if self.reward == "bernoulli":
            inside = (self.means >= 0) & (self.means <= 1)
            require_each(inside, "means", self.means, "Bernoulli means lie in [0, 1]")

    def only(self, *positions: int) -> "Problem":
        """The runs at ``positions`` as a problem of their own."""
        pick = list(positions)
        runs = tuple(self.runs[p] for p in pick)
        truth = None if self.truth is None else self.truth[pick]
        return replace(self, arms=self.arms[pick], means=self.means[pick], runs=runs, truth=truth)

    def rescaled(self, centre: float, scale: float) -> "Problem":
        """The same bandit with the rewards (y − ``centre``)/``scale``; its regrets times ``scale`` are this problem's.

        For rewards that are not of order 1, which the oracle's step size and temperatures expect. The result has no
        ``truth``: w* belongs to the rewards as they were, f_{w*} is not the mean of the rescaled ones.
        """
        number("centre", centre, "give a finite number")
        number("scale", scale, "give a positive scale", above=0)
        require(self.reward == "gaussian", "reward", self.reward, "only Gaussian rewards can be rescaled")
        return replace(self, means=(self.means - centre) / scale, sigma=self.sigma / scale, truth=None)

    def same(self, other: "Problem") -> bool:
        """Whether ``other`` has the same runs: arms, means, noise and seed."""
        mine, theirs = ((part.runs, part.seed, part.sigma, part.reward) for part in (self, other))
        same = torch.equal(self.arms, other.arms) and torch.equal(self.means, other.means)
        return same and mine == theirs

    def generators(self, purpose: str) -> list[torch.Generator]:
        """One generator per run for ``purpose``."""
        return [generator(self.seed, run, purpose) for run in self.runs]

    @on_cpu
    def tape(self, steps: int) -> Tensor:
        """The standard normals z of every run's first ``steps`` steps, shape (S, steps)."""
        return torch.stack([normal_tape(source, steps) for source in self.generators("noise")])

    @on_cpu
    def observe(self, arm: Tensor, noise: Tensor) -> Tensor:
        """Rewards y (S, n) of the arms ``arm`` (S, n) under the standard normals ``noise`` (S, n)."""
        mean = self.means.gather(1, arm)
        if self.reward == "bernoulli":
            share: Tensor = torch.special.ndtr(noise)
            return (share < mean).to(mean.dtype)
        return mean + self.sigma * noise

    @on_cpu
    def regret(self, arm: Tensor) -> Tensor:
        """Instantaneous regret f(x*) − f(x) ≥ 0 of ``arm`` (S, n), against the best of the run's arms."""
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
    """``arms`` points per run, uniform in the cube ``bounds``^d_x, drawn anew for every run."""
    numbers = run_numbers(runs)
    count("arms", arms, "give at least one arm")
    count("seed", seed, "give a seed of at least 0", least=0)
    low, high = bounds
    points = low + (high - low) * uniform_draws((generator(seed, run, "arms") for run in numbers), arms, d_x)
    means = mean(points.flatten(0, 1)).unflatten(0, points.shape[:2])
    return Problem(name, points, means, numbers, seed, sigma)


def run_numbers(runs: Runs) -> tuple[int, ...]:
    """The numbers of ``runs`` runs from 0, or those given."""
    remedy = "give at least one run, numbered from 0"
    if not isinstance(runs, Sequence) or isinstance(runs, str):
        return tuple(range(count("runs", runs, remedy)))
    require(len(runs) >= 1, "runs", runs, remedy)
    require(len({*runs}) == len(runs), "runs", runs, "give each run once")
    return tuple(count("runs", run, remedy, least=0) for run in runs)
