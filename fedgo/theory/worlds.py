"""Realizable problems (Assumption 1), on which the theory can be checked because their w* is known.

They are problems of any network, and of a single unit f_x(w) = tanh(wᵀx) on W = [0, 1]^d_w, for which all constants of
the assumptions have a closed form.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedgo._checks import count, number, on_cpu, require
from fedgo._streams import generator, normal_tape
from fedgo.network import Parametric
from fedgo.problem import Problem, run_numbers, uniform_arms
from fedgo.theory.assumptions import Assumptions


@dataclass(frozen=True)
class SingleUnit:
    """The parametric class F with f_x(w) = tanh(wᵀx) and d_w = d_x, so small that the bounds of the paper are not
    vacuous.

    For every w, |f_x| ≤ 1, ‖∇f_x‖ ≤ |x| and ‖∇²f_x‖ ≤ 4|x|²/(3√3). The mean rewards of d_x linearly independent arms
    determine w*.
    """

    d_x: int

    def __post_init__(self) -> None:
        count("d_x", self.d_x, "give the arms' dimension, at least 1")

    @property
    def size(self) -> int:
        """The dimension d_w = d_x of the parameter."""
        return self.d_x

    def values(self, w: Tensor, x: Tensor) -> Tensor:
        """Return f_x(w), (..., K), for ``w`` (..., d_x) at the points ``x`` (..., K, d_x)."""
        return torch.tanh((x @ w.unsqueeze(-1)).squeeze(-1))

    def gradients(self, w: Tensor, x: Tensor) -> Tensor:
        """Return the gradient ∇f_x(w) = (1 − tanh²(wᵀx))x, (..., K, d_x), at the points ``x`` (..., K, d_x)."""
        return (1 - self.values(w, x).square()).unsqueeze(-1) * x

    def squared_loss(self, w: Tensor, x: Tensor, y: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the summed squared error (...) and its gradient in ``w`` (..., d_w).

        The arguments are those of `fedgo.network.Network.squared_loss`.
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
    """Return a realizable problem with f = f_{w*} of `SingleUnit`.

    The arms are uniform in ``scale``·[−½, ½]^d_x, so that they have both signs. w* is uniform in [0.2, 0.8]^d_w, which
    lies in the interior of W.

    Args:
        runs: The number of runs, or their numbers.
        dimension: The dimension d_w = d_x.
        arms: The number K of arms.
        seed: Together with the number of a run, it determines the random numbers of the run.
        sigma: The standard deviation σ of the noise.
        scale: The scale of the arms.
        source: A generator that draws the w* of all runs in turn; if it is None each run has its own generator.

    Raises:
        ValueError: An argument is out of range.
        TypeError: An argument is of another kind.
    """
    require(dimension >= 1, "dimension", dimension, "give d_w = d_x, at least 1")
    require(0 < scale < math.inf, "scale", scale, "give a finite scale > 0 of the arms")
    blank = uniform_arms("single unit", lambda x: x.sum(-1), (-0.5, 0.5), dimension, runs, arms, seed, sigma)
    sources = blank.generators("inside") if source is None else [source] * len(blank.runs)
    share = torch.stack([torch.rand(dimension, generator=own, dtype=torch.float64) for own in sources])
    points, truth = scale * blank.arms, 0.2 + 0.6 * share
    return replace(blank, arms=points, means=SingleUnit(dimension).values(truth, points), truth=truth)


def single_unit_assumptions(problem: Problem) -> Assumptions:
    """Return the constants of Assumptions 2 and 3 for `SingleUnit` on the arms of ``problem``, the worst of its runs.

    With r_x = max |wᵀx| over W, F = max_x tanh r_x is attained at a corner of W, C_g = max_x |x| is attained at w = 0,
    and C_h = 4C_g²/(3√3) bounds the second derivatives for all w. By the mean value theorem, |f_x(w) − f_x(w*)| ≥
    (1 − tanh² r_x)|(w − w*)ᵀx|. Therefore L(w) ≥ ½μ|w − w*|² on all of W for each w* ∈ W, where μ is twice the least
    eigenvalue of Σ_x (1 − tanh² r_x)²xxᵀ/K. The growth is quadratic everywhere, τ = ∞.
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
    """Return a problem with f = f_{w*} of ``network`` and uniform arms in [0, 1]^d_x, so that Assumption 1 holds
    exactly.

    w* is drawn from N(0, ``scale``²I). The other arguments are those of `single_unit`.

    Raises:
        ValueError: An argument is out of range.
        TypeError: An argument is of another kind.
    """
    numbers = run_numbers(runs)
    count("seed", seed, "give a seed of at least 0", least=0)
    number("scale", scale, "give the standard deviation of w*")
    drawn = [normal_tape(generator(seed, run, "truth"), network.size) for run in numbers]
    truth, box, d_x = torch.stack(drawn).mul(scale), (0.0, 1.0), network.d_x
    problem = uniform_arms("realizable", lambda x: x.sum(-1), box, d_x, numbers, arms, seed, sigma)
    return replace(problem, means=network.values(truth, problem.arms), truth=truth)
