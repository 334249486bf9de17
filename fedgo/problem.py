"""What the clients face: finite arms, their mean rewards f(x), and the noise y_t = f(x_t) + η_t (eq. 1).

Everything has a leading axis of S independent runs; run r of seed s is the same alone and in any batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedgo._checks import require, require_finite
from fedgo._streams import generator, normal_tape
from fedgo.network import Parametric


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
        shape = (len(self.runs), *self.arms.shape[1:])
        require(
            self.arms.ndim == 3 and self.arms.shape == shape and min(shape) >= 1,
            "the shape of arms",
            tuple(self.arms.shape),
            f"give (S, K, d_x) with S = {len(self.runs)}, the number of runs, and K, d_x at least 1",
        )
        require(
            self.means.shape == shape[:2],
            "the shape of means",
            tuple(self.means.shape),
            f"give (S, K) = {tuple(shape[:2])}, one mean reward per arm",
        )
        for name, values in (("arms", self.arms), ("means", self.means)):
            require(values.dtype == torch.float64, f"the dtype of {name}", values.dtype, "give float64")
            require_finite(name, values)
        require(0 <= self.sigma < float("inf"), "sigma", self.sigma, "give a finite noise level, at least 0")
        require(self.seed >= 0, "seed", self.seed, "give a seed of at least 0")
        kinds = ("gaussian", "bernoulli")
        require(self.reward in kinds, "reward", self.reward, f"choose one of {kinds}")
        if self.reward == "bernoulli":
            low, high = self.means.min().item(), self.means.max().item()
            require(
                low >= 0 and high <= 1, "the range of means", (low, high), "Bernoulli means lie in [0, 1]"
            )

    def only(self, *positions: int) -> "Problem":
        """The runs at ``positions`` as a problem of their own."""
        pick = list(positions)
        truth = None if self.truth is None else self.truth[pick]
        return replace(
            self,
            arms=self.arms[pick],
            means=self.means[pick],
            runs=tuple(self.runs[p] for p in pick),
            truth=truth,
        )

    def generators(self, purpose: str) -> list[torch.Generator]:
        """One generator per run for ``purpose``."""
        return [generator(self.seed, run, purpose) for run in self.runs]

    def tape(self, steps: int) -> Tensor:
        """The standard normals z of every run's first ``steps`` steps, shape (S, steps)."""
        return torch.stack([normal_tape(source, steps) for source in self.generators("noise")])

    def observe(self, arm: Tensor, noise: Tensor) -> Tensor:
        """Rewards y (S, n) of the arms ``arm`` (S, n) under the standard normals ``noise`` (S, n)."""
        mean = self.means.gather(1, arm)
        if self.reward == "bernoulli":
            uniform: Tensor = torch.special.ndtr(noise)
            return (uniform < mean).to(mean.dtype)
        return mean + self.sigma * noise

    def regret(self, arm: Tensor) -> Tensor:
        """Instantaneous regret f(x*) − f(x) ≥ 0 of ``arm`` (S, n), against the best of the run's arms."""
        return self.means.amax(1, keepdim=True) - self.means.gather(1, arm)


def uniform_arms(
    name: str,
    mean: Callable[[Tensor], Tensor],
    bounds: tuple[float, float],
    d_x: int,
    runs: int | Sequence[int],
    arms: int,
    seed: int,
    sigma: float,
) -> Problem:
    """``arms`` points per run, uniform in the cube ``bounds``^d_x, drawn anew for every run."""
    numbers = run_numbers(runs)
    require(arms >= 1, "arms", arms, "give at least one arm")
    require(seed >= 0, "seed", seed, "give a seed of at least 0")
    low, high = bounds
    points = torch.stack(
        [
            torch.rand(arms, d_x, generator=generator(seed, run, "arms"), dtype=torch.float64)
            for run in numbers
        ]
    )
    points = low + (high - low) * points
    means = mean(points.flatten(0, 1)).unflatten(0, points.shape[:2])
    return Problem(name, points, means, numbers, seed, sigma)


def run_numbers(runs: int | Sequence[int]) -> tuple[int, ...]:
    """The numbers of ``runs`` runs from 0, or those given."""
    numbers = tuple(range(runs)) if isinstance(runs, int) else tuple(runs)
    require(len(numbers) >= 1 and min(numbers) >= 0, "runs", runs, "give at least one run, numbered from 0")
    return numbers


def realizable(
    network: Parametric,
    runs: int | Sequence[int] = 10,
    *,
    arms: int = 50,
    seed: int = 0,
    sigma: float = 0.1,
    scale: float = 1.0,
) -> Problem:
    """f = f_{w*} and uniform arms in [0,1]^d_x: Assumption 1 holds exactly; w* ~ N(0, s²I), s = ``scale``."""
    numbers = run_numbers(runs)
    truth = torch.stack([normal_tape(generator(seed, run, "truth"), network.size) for run in numbers]).mul(
        scale
    )
    problem = uniform_arms(
        "realizable", lambda x: x.sum(-1), (0.0, 1.0), network.d_x, numbers, arms, seed, sigma
    )
    return replace(problem, means=network.values(truth, problem.arms), truth=truth)
