"""Problems beyond the paper's (`PROBLEMS` has them and the paper's), and the regimes of the studies.

A regime (`fedgo.experiments.world.Regime`) is a problem by its name, with its numbers of arms, rounds and clients and
its noise. The functions that make a problem have the same arguments: ``runs`` (the number S of runs, or their numbers),
the number K of ``arms``, drawn anew for each run, the ``seed`` of everything random, and the noise ``sigma``. Arms are
(S, K, d_x), in [0, 1]^d_x unless it is said otherwise, and the noise is Gaussian. To import this module, BoTorch must
be installed.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from fedgo._checks import count, on_cpu
from fedgo._streams import generator
from fedgo.experiments import world
from fedgo.experiments.world import Entry, Regime
from fedgo.network import Network
from fedgo.problem import Problem, Runs, run_numbers, uniform_arms
from fedgo.problems import shipped
from fedgo.theory.worlds import realizable

TABLES = Path(__file__).parent / "data"
# a thousand rows, each with the mean reward and ten attributes in [0, 1]
_ROWS = TABLES / "magic_rows.csv"
# The text ``data/regimes.toml`` lists the regimes of the studies and says what each group of them is for.
LISTED = tomllib.loads((TABLES / "regimes.toml").read_text(encoding="utf-8"))


def listed(group: str) -> tuple[Regime, ...]:
    """Return the regimes of a ``group`` of the file ``data/regimes.toml``, for instance "base"."""
    return tuple(Regime(**regime, problems=PROBLEMS) for regime in LISTED[group])


@on_cpu
def levy10(runs: Runs, *, arms: int, seed: int, sigma: float) -> Problem:
    """Return a problem with −1/100 of Levy's function on [−10, 10]¹⁰ at 20x − 10 (Laguna and Martí 2005)."""
    from botorch.test_functions.synthetic import Levy  # its import takes as long as that of pandas

    function = Levy(dim=10)

    def mean(x: Tensor) -> Tensor:
        return -function.evaluate_true(20 * x - 10) / 100

    return uniform_arms("Levy-10", mean, (0.0, 1.0), 10, runs, arms, seed, sigma)


@on_cpu
def two_ridge(runs: Runs, *, arms: int, seed: int, sigma: float) -> Problem:
    """Return a problem with means sin 2aᵀz + cos 2bᵀz, z = √12(x − ½), in 20 dimensions.

    Each run has its own unit vectors a and b.
    """
    blank = _in_cube("two ridges", 20, runs, arms, seed, sigma)
    sources = blank.generators("ridges")
    ridges = torch.stack([torch.randn(2, 20, generator=one, dtype=torch.float64) for one in sources])
    ridges = ridges / ridges.norm(dim=-1, keepdim=True)
    along = 12**0.5 * (blank.arms - 0.5) @ ridges.mT
    return replace(blank, means=(2 * along[..., 0]).sin() + (2 * along[..., 1]).cos())


@on_cpu
def unrelated(runs: Runs, *, arms: int, seed: int, sigma: float) -> Problem:
    """Return a problem whose mean rewards are standard normal, independent of the five features, which cannot help."""

    def means(x: Tensor, source: torch.Generator) -> Tensor:
        return torch.randn(len(x), generator=source, dtype=torch.float64)

    return _drawn(_in_cube("unrelated", 5, runs, arms, seed, sigma), means)


@on_cpu
def tree(runs: Runs, *, arms: int, seed: int, sigma: float) -> Problem:
    """Return a problem whose mean reward is constant on each of the 64 leaves of a random tree of depth 6 in [0, 1]⁴.

    Each inner node splits its box along a random coordinate, at a uniform place between a fifth and four fifths of its
    length. The values of the leaves are standard normal. Each run has its own tree.
    """
    return _drawn(_in_cube("tree", 4, runs, arms, seed, sigma), _leaves)


def _in_cube(name: str, d_x: int, runs: Runs, arms: int, seed: int, sigma: float) -> Problem:
    """Return a problem with uniform arms in [0, 1]^d_x and a placeholder as mean rewards."""
    return uniform_arms(name, lambda x: x.sum(-1), (0.0, 1.0), d_x, runs, arms, seed, sigma)


def _drawn(blank: Problem, means: Callable[[Tensor, torch.Generator], Tensor]) -> Problem:
    """Return ``blank`` with mean rewards that ``means`` draws for each run, from its arms and a generator."""
    drawn = [means(x, source) for x, source in zip(blank.arms, blank.generators(blank.name), strict=True)]
    return replace(blank, means=torch.stack(drawn))


def _leaves(x: Tensor, source: torch.Generator, depth: int = 6) -> Tensor:
    """Return for each point of ``x`` (K, d_x) the value of its leaf in a random tree, (K,)."""
    low, high, rows = torch.zeros_like(x), torch.ones_like(x), torch.arange(len(x))
    node = torch.zeros(len(x), dtype=torch.int64)
    for level in range(depth):
        axis = torch.randint(x.shape[1], (2**level,), generator=source)[node]
        share = 0.2 + 0.6 * torch.rand(2**level, generator=source, dtype=torch.float64)[node]
        cut = low[rows, axis] + share * (high - low)[rows, axis]
        above = x[rows, axis] > cut
        low[rows[above], axis[above]] = cut[above]
        high[rows[~above], axis[~above]] = cut[~above]
        node = 2 * node + above
    return torch.randn(2**depth, generator=source, dtype=torch.float64)[node]


@on_cpu
def diabetes_rows(runs: Runs, *, arms: int, seed: int, sigma: float) -> Problem:
    """Return a problem whose arms are some of the 442 patients of scikit-learn's diabetes data (Efron et al. 2004).

    The mean reward is the standardised progression of the illness after a year; the ten features are as scikit-learn
    scales them.
    """
    from sklearn.datasets import load_diabetes

    data = load_diabetes()
    progression = torch.from_numpy(data.target)
    standardised = (progression - progression.mean()) / progression.std()
    table = torch.cat([standardised.unsqueeze(-1), torch.from_numpy(data.data)], -1)
    drawn, numbers = _rows_as_arms(table, runs, arms, seed)
    return Problem("Diabetes, rows", drawn[..., 1:], drawn[..., 0], numbers, seed, sigma)


@on_cpu
def magic_rows(runs: Runs, *, arms: int, seed: int, sigma: float) -> Problem:
    """Return a problem whose arms are some of 1,000 rows of the data MagicTelescope, with rewards of 0 or 1.

    The mean reward of a row is the share of gamma rays among the hundred rows of the whole data set nearest to it.
    ``sigma`` is what the algorithms are given as noise; rewards of 0 or 1 are ½-sub-Gaussian. Source: Bock, UCI Machine
    Learning Repository 2004, https://doi.org/10.24432/C52C8B.
    """
    drawn, numbers = _rows_as_arms(torch.from_numpy(shipped(_ROWS)), runs, arms, seed)
    return Problem("Magic, rows", drawn[..., 1:], drawn[..., 0], numbers, seed, sigma, "bernoulli")


def _rows_as_arms(table: Tensor, runs: Runs, arms: int, seed: int) -> tuple[Tensor, tuple[int, ...]]:
    """Return the different rows of ``table`` (rows, 1 + d_x) that each run draws as arms, and the runs' numbers."""
    numbers = run_numbers(runs)
    count("arms", arms, f"give 1 to {len(table)}, the rows there are", most=len(table))
    drawn = [torch.randperm(len(table), generator=generator(seed, run, "rows"))[:arms] for run in numbers]
    return table[torch.stack(drawn)], numbers


PROBLEMS: Mapping[str, Entry] = {
    **world.PROBLEMS,
    "levy10": Entry(levy10, "Levy-10"),
    "two ridges": Entry(two_ridge, "two ridges", 2.0),
    "network 6": Entry(realizable, "network, 6 inputs", options={"network": Network(6)}),
    "network 15": Entry(realizable, "network, 15 inputs", options={"network": Network(15)}),
    "magic rows": Entry(magic_rows, "Magic, rows", 1.0),
    "diabetes": Entry(diabetes_rows, "Diabetes, rows"),
    "tree": Entry(tree, "random tree"),
    "unrelated": Entry(unrelated, "features that say nothing"),
}
