"""Realizable problems (Assumption 1), on which the theory can be checked because their true parameter w* is known.

Their mean rewards are those of any network, or of a single unit f_x(w) = tanh(wᵀx) on W = [0, 1]^d_w, for which all
constants of the assumptions have a closed form. There are S runs of K arms x with d_x features, (S, K, d_x); w* (S,
d_w) is the field ``truth`` of a problem.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedgo._checks import count, number, on_cpu, require
from fedgo._streams import normal_tape
from fedgo.network import Parametric
from fedgo.problem import Problem, uniform_arms
from fedgo.theory.assumptions import Assumptions


@dataclass(frozen=True)
class SingleUnit:
    """The parametric class F of a single unit, f_x(w) = tanh(wᵀx), with as many parameters as an arm has features.

    For every w, |f_x| ≤ 1, ‖∇f_x‖ ≤ |x| and ‖∇²f_x‖ ≤ 4|x|²/(3√3) (`single_unit_assumptions`). The mean rewards of d_x
    linearly independent arms determine w*.

    Args:
        d_x: The dimension of the arms and of w, at least 1.

    Raises:
        ValueError: ``d_x`` is below 1.
        TypeError: ``d_x`` is not a whole number.
    """

    d_x: int

    def __post_init__(self) -> None:
        count("d_x", self.d_x, "give the arms' dimension, at least 1")

    @property
    def size(self) -> int:
        """The dimension d_w = d_x of the parameter w."""
        return self.d_x

    def values(self, w: Tensor, x: Tensor) -> Tensor:
        """Return f_x(w) = tanh(wᵀx), (..., K), for parameters ``w`` (..., d_x) at points ``x`` (..., K, d_x)."""
        return torch.tanh((x @ w.unsqueeze(-1)).squeeze(-1))

    def gradients(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the gradients (1 − tanh²(wᵀx))x of f_x(w) in ``w``, (..., K, d_x), for arguments as those of
        `values`.
        """
        return (1 - self.values(w, x).square()).unsqueeze(-1) * x

    def squared_loss(self, w: Tensor, x: Tensor, y: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the squared error Σ (y − f_x(w))² over the points with mask 1, (...), and its gradient (..., d_x).

        Args:
            w: Parameters, (..., d_x).
            x: Points, (..., m, d_x).
            y: The rewards at the points, (..., m), finite also where the mask is 0.
            mask: 1 for the points that count and 0 for the others, (..., m).
        """
        value = self.values(w, x)
        error = (value - y) * mask
        slope = 2 * error * (1 - value.square())
        return error.square().sum(-1), (slope.unsqueeze(-2) @ x).squeeze(-2)


def single_unit(
    runs: int | Sequence[int],
    dimension: int = 5,
    arms: int = 50,
    *,
    seed: int = 0,
    sigma: float = 0.1,
    scale: float = 1.0,
    source: torch.Generator | None = None,
) -> Problem:
    """Return a problem with mean rewards tanh(w*ᵀx), w* uniform in [0.2, 0.8]^d_w inside W, and Gaussian noise.

    The arms are uniform in ``scale``·[−½, ½]^d_x, so that their features have both signs.

    Args:
        runs: The number S of runs, which are then numbered from 0, or a sequence of their numbers.
        dimension: The dimension d_w = d_x of the parameter and the arms.
        arms: The number K of arms.
        seed: The seed, which with the number of a run determines the random numbers of the run.
        sigma: The standard deviation σ of a reward's noise.
        scale: The side of the cube of the arms, positive and finite.
        source: Draws the w* of all runs in turn; if it is None, the seed and the number of the run determine w*.
    """
    require(dimension >= 1, "dimension", dimension, "give d_w = d_x, at least 1")
    require(0 < scale < math.inf, "scale", scale, "give a finite scale > 0 of the arms")
    blank = uniform_arms("single unit", lambda x: x.sum(-1), (-0.5, 0.5), dimension, runs, arms, seed, sigma)
    sources = blank.generators("inside") if source is None else [source] * len(blank.runs)
    share = torch.stack([torch.rand(dimension, generator=own, dtype=torch.float64) for own in sources])
    points, truth = scale * blank.arms, 0.2 + 0.6 * share
    return replace(blank, arms=points, means=SingleUnit(dimension).values(truth, points), truth=truth)


def single_unit_assumptions(problem: Problem) -> Assumptions:
    """Return constants of Assumptions 2 and 3 for `SingleUnit` that hold in all runs with W = [0, 1]^d_w.

    With r_x = max |wᵀx| over W, F = max_x tanh r_x is attained at a corner of W, C_g = max_x |x| at w = 0, and C_h =
    4C_g²/(3√3). By the mean value theorem |f_x(w) − f_x(w*)| ≥ (1 − tanh² r_x)|(w − w*)ᵀx|. Therefore L(w) ≥ ½μ|w −
    w*|² on all of W (τ = ∞), where μ is twice the least eigenvalue of Σ_x (1 − tanh² r_x)²xxᵀ/K. If the arms of a run
    do not span the space, μ is 0 and refused, unless rounding leaves it slightly positive.
    """
    x = problem.arms
    reach = torch.maximum(x.clamp(min=0).sum(-1), -x.clamp(max=0).sum(-1))
    steep = (1 - reach.tanh().square()).unsqueeze(-1) * x
    growth = 2 * torch.linalg.eigvalsh(steep.mT @ steep / x.shape[1])[:, 0]
    slope = x.norm(dim=-1).max().item()
    value, curvature = reach.tanh().max().item(), 4 * slope**2 / (3 * math.sqrt(3))
    return Assumptions(x.shape[2], value, slope, curvature, problem.sigma, growth.min().item())


@on_cpu
def realizable(
    network: Parametric,
    runs: int | Sequence[int] = 10,
    *,
    arms: int = 50,
    seed: int = 0,
    sigma: float = 0.1,
    scale: float = 1.0,
) -> Problem:
    """Return a problem whose mean rewards are the values f_x(w*) of ``network``, so that Assumption 1 holds exactly.

    The arms are uniform in [0, 1]^d_x. The entries of w* are normal with mean 0 and standard deviation ``scale``.

    Args:
        network: The parametric class F of functions f_x, with d_w parameters.
        runs: The number S of runs, which are then numbered from 0, or a sequence of their numbers.
        arms: The number K of arms.
        seed: The seed, which with the number of a run determines the random numbers of the run.
        sigma: The standard deviation σ of a reward's noise.
        scale: The standard deviation of the entries of w*; its sign does not matter.

    Raises:
        ValueError: An argument is out of range, or a run is given twice.
        TypeError: A number is of another kind, or ``runs`` is a NumPy array.
    """
    number("scale", scale, "give the standard deviation of w*")
    box, d_x = (0.0, 1.0), network.d_x
    problem = uniform_arms("realizable", lambda x: x.sum(-1), box, d_x, runs, arms, seed, sigma)
    drawn = [normal_tape(source, network.size) for source in problem.generators("truth")]
    truth = torch.stack(drawn).mul(scale)
    return replace(problem, means=network.values(truth, problem.arms), truth=truth)
