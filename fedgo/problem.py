"""The bandit problem: finitely many arms x, their mean rewards f(x), and rewards y_t = f(x_t) + η_t with noise (eq. 1).

The first axis of arms, mean rewards and noise is that of S independent runs. The random numbers of a run are the
same whether it is played alone or together with others.
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

    The noise of a run is made from standard normal numbers z, one for each step, which the seed and the number of the
    run determine. Therefore all algorithms meet the same z at the same step.

    Args:
        name: What the problem is called. It is not checked.
        arms: The features x of K ≥ 1 arms in each run, of dimension d_x ≥ 1, (S, K, d_x) float64. `Problem` keeps them
            without gradients, as it does with ``means``.
        means: The mean reward f(x) of each arm, (S, K) float64.
        runs: The numbers of the S ≥ 1 runs, a tuple of whole numbers from 0 to 2⁵³. Runs with the same number have the
            same random numbers.
        seed: The seed, from 0 to 2⁵³, which with the number of a run determines its random numbers.
        sigma: The standard deviation σ ≥ 0 of the noise of Gaussian rewards. Bernoulli rewards do not use it.
        reward: "gaussian" for rewards f(x) + σz; "bernoulli" for rewards that are 1 if Φ(z) < f(x) and 0 otherwise,
            with the standard normal distribution function Φ.
        truth: The parameter w* (S, d_w) of a problem with f(x) = f_x(w*) for a parametric class of functions f_x with
            d_w parameters (Assumption 1), and None otherwise. It is not checked.

    Raises:
        TypeError: ``arms`` or ``means`` is not a tensor, ``runs`` is not a tuple of whole numbers, ``seed`` is not a
            whole number, or ``sigma`` is not a number.
        ValueError: A tensor is not float64, not dense or not on the CPU; its shape does not fit; a number is not finite
            or out of range; ``reward`` is unknown; or a Bernoulli mean is not in [0, 1].
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
        """Return a problem with only the runs at the given ``positions`` of the first axis, in the order given.

        The positions are counted from 0; a negative position counts from the end, so that −1 is the last run. A run
        whose position is given twice occurs twice.

        Raises:
            ValueError: No position is given.
            IndexError: There is no run at a position.
            TypeError: A position is not a whole number, for instance because the positions are given as a list.
        """
        pick = list(positions)
        runs = tuple(self.runs[p] for p in pick)
        truth = None if self.truth is None else self.truth[pick]
        return replace(self, arms=self.arms[pick], means=self.means[pick], runs=runs, truth=truth)

    def rescaled(self, centre: float, scale: float) -> "Problem":
        """Return the same problem with rewards (y − ``centre``)/``scale`` in place of the rewards y.

        This is for rewards that are not of order 1, because the default step size and temperatures of the oracle that
        fits the network in Phase I (Algorithm 2) are for rewards of order 1. The regret on the new problem, times
        ``scale``, is the regret on this one. The ``truth`` of the new problem is None, because a true parameter belongs
        to the old mean rewards.

        Raises:
            ValueError: ``centre`` is not finite, ``scale`` is not positive and finite, the rewards are not Gaussian, or
                the new mean rewards or noise level exceed float64.
            TypeError: ``centre`` or ``scale`` is not a number.
        """
        number("centre", centre, "give a finite number")
        number("scale", scale, "give a positive scale", above=0)
        remedy = "only a problem with Gaussian rewards can be rescaled; give 'gaussian'"
        require(self.reward == "gaussian", "reward", self.reward, remedy)
        return replace(self, means=(self.means - centre) / scale, sigma=self.sigma / scale, truth=None)

    def same(self, other: "Problem") -> bool:
        """Return whether the `Problem` ``other`` is the same problem.

        This is so if its arms, means, run numbers, seed, noise level ``sigma`` and kind of rewards are equal to those
        of this problem. The fields ``name`` and ``truth`` are not compared.
        """
        names = ("runs", "seed", "sigma", "reward")
        same = all(getattr(self, name) == getattr(other, name) for name in names)
        return same and torch.equal(self.arms, other.arms) and torch.equal(self.means, other.means)

    def generators(self, purpose: str) -> list[torch.Generator]:
        """Return a list with one new random generator for each of the S runs, in their order.

        The seed of the problem, the number of the run and the text ``purpose``, such as "noise", determine the
        generator's numbers.
        """
        return [generator(self.seed, run, purpose) for run in self.runs]

    @on_cpu
    def tape(self, steps: int) -> Tensor:
        """Return the standard normal numbers from which the noise of the first ``steps`` steps is made, (S, steps)
        float64.

        Each of the S runs has its own numbers, which the seed of the problem and the number of the run determine. The
        result for fewer steps is the beginning of the result for more. ``steps`` is at least 0.
        """
        return torch.stack([normal_tape(source, steps) for source in self.generators("noise")])

    @on_cpu
    def observe(self, arm: Tensor, noise: Tensor) -> Tensor:
        """Return the rewards y of the given arms, (S, n) float64.

        Gaussian rewards are f(x) + σz, with the mean reward f(x) and the noise level σ. Bernoulli rewards are 1 if
        Φ(z) < f(x) and 0 otherwise, with the standard normal distribution function Φ.

        Args:
            arm: The numbers, from 0 to K − 1, of the arms x that are pulled in each of S runs, (S, n) int64.
            noise: The standard normal number z of each pull, (S, n) float64.

        Raises:
            RuntimeError: An arm is negative or not below the number K of arms, ``arm`` has more rows than there are
                runs, or the shapes do not broadcast. Fewer rows are not refused: they count as the first runs.
        """
        mean = self.means.gather(1, arm)
        if self.reward == "bernoulli":
            share: Tensor = torch.special.ndtr(noise)
            return (share < mean).to(mean.dtype)
        return mean + self.sigma * noise

    @on_cpu
    def regret(self, arm: Tensor) -> Tensor:
        """Return the instantaneous regret f(x*) − f(x) ≥ 0 of each pull, (S, n) float64.

        f is the mean reward, x the arm that is pulled, and x* the arm with the largest mean reward in the run.

        Args:
            arm: The numbers, from 0 to K − 1, of the arms x of n pulls in each of S runs, (S, n) int64.

        Raises:
            RuntimeError: An arm is negative or not below the number K of arms.
        """
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
        mean: A function that returns the mean rewards f(x), (n,) float64, at n points x (n, d_x) float64. It is called
            once, with the arms of all runs.
        bounds: The lower and the upper end of the interval of each coordinate, the same for all coordinates.
        d_x: The dimension of the arms, at least 1.
        runs: The number of runs, or a sequence of their numbers.
        arms: The number K of arms in each run.
        seed: The seed, which with the number of a run determines its arms and its noise.
        sigma: The standard deviation σ of the Gaussian noise.

    Raises:
        ValueError: ``runs``, ``arms``, ``d_x``, ``seed`` or ``sigma`` is out of range, a run is given twice, or the
            mean rewards are not finite, not float64 or not of the shape (n,).
        TypeError: ``runs``, ``arms``, ``seed`` or ``sigma`` is of another kind.
    """
    numbers = run_numbers(runs)
    count("arms", arms, "give at least one arm")
    count("seed", seed, "give a seed of at least 0", least=0)
    low, high = bounds
    points = low + (high - low) * uniform_draws((generator(seed, run, "arms") for run in numbers), arms, d_x)
    means = mean(points.flatten(0, 1)).unflatten(0, points.shape[:2])
    return Problem(name, points, means, numbers, seed, sigma)


def run_numbers(runs: Runs) -> tuple[int, ...]:
    """Return the numbers of the runs as a tuple: 0 to S − 1 if ``runs`` is their number S, else those in ``runs``, in
    their order.

    Raises:
        ValueError: There is no run, a number is negative or above 2⁵³, or a run is given twice.
        TypeError: ``runs`` is neither a whole number nor a sequence of whole numbers. A bool does not count as a whole
            number; a NumPy array, a tensor and a set do not count as sequences.
    """
    remedy = "give at least one run, numbered from 0"
    if not isinstance(runs, Sequence) or isinstance(runs, str):
        return tuple(range(count("runs", runs, remedy)))
    require(len(runs) >= 1, "runs", runs, remedy)
    require(len({*runs}) == len(runs), "runs", runs, "give each run once")
    return tuple(count("runs", run, remedy, least=0) for run in runs)
