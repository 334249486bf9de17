"""Problems beyond the paper's (`PROBLEMS` has them and the paper's), and the regimes of the studies.

A regime (`fedgo.experiments.world.Regime`) is a problem by its name, with its numbers of arms, rounds and clients and
its noise. The problems are Levy's function, two ridges, a random tree, features that tell nothing about the rewards,
networks, and rows of two data sets as arms. To import this module, BoTorch must be installed.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from botorch.test_functions.synthetic import Levy
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
    """Return the regimes of a ``group``, for instance "base", as the file ``data/regimes.toml`` lists them.

    A regime is a problem with its numbers of arms, rounds and clients and its noise. The regimes are in the order of
    the file.

    Raises:
        KeyError: The file has no such group.
        TypeError: The group is "differ", whose entries have numbers that a regime does not have.
    """
    return tuple(Regime(**regime, problems=PROBLEMS) for regime in LISTED[group])


@on_cpu
def levy10(runs: Runs, *, arms: int, seed: int, sigma: float) -> Problem:
    """Return S runs of a problem whose mean reward is −1/100 of Levy's function on [−10, 10]¹⁰.

    The K arms, (S, K, 10), are uniform in [0, 1]¹⁰. The mean reward of an arm x is that of the point 20x − 10 of the
    function's domain; the rewards have Gaussian noise. Source: Laguna and Martí 2005.

    Args:
        runs: The number S of runs, or the number of each run.
        arms: The number K of arms.
        seed: The seed of everything random.
        sigma: The standard deviation σ of a reward's noise.

    Raises:
        ValueError: ``runs``, ``arms``, ``seed`` or ``sigma`` is out of range, or a run is given twice.
        TypeError: One of these is of another kind.
    """
    function = Levy(dim=10)

    def mean(x: Tensor) -> Tensor:
        """Return the mean reward, (n,), of each of the n points ``x`` (n, 10) of the unit cube."""
        return -function.evaluate_true(20 * x - 10) / 100

    return uniform_arms("Levy-10", mean, (0.0, 1.0), 10, runs, arms, seed, sigma)


@on_cpu
def two_ridge(runs: Runs, *, arms: int, seed: int, sigma: float) -> Problem:
    """Return S runs of a problem whose mean reward is sin 2aᵀz + cos 2bᵀz, with z = √12(x − ½) for an arm x.

    The K arms, (S, K, 20), are uniform in [0, 1]²⁰. Each run draws its own unit vectors a and b, uniformly on the unit
    sphere. The rewards have Gaussian noise.

    Args:
        runs: The number S of runs, or the number of each run.
        arms: The number K of arms.
        seed: The seed of everything random.
        sigma: The standard deviation σ of a reward's noise.

    Raises:
        ValueError: ``runs``, ``arms``, ``seed`` or ``sigma`` is out of range, or a run is given twice.
        TypeError: One of these is of another kind.
    """
    blank = _in_cube("two ridges", 20, runs, arms, seed, sigma)
    sources = blank.generators("ridges")
    ridges = torch.stack([torch.randn(2, 20, generator=one, dtype=torch.float64) for one in sources])
    ridges = ridges / ridges.norm(dim=-1, keepdim=True)
    along = 12**0.5 * (blank.arms - 0.5) @ ridges.mT
    return replace(blank, means=(2 * along[..., 0]).sin() + (2 * along[..., 1]).cos())


@on_cpu
def unrelated(runs: Runs, *, arms: int, seed: int, sigma: float) -> Problem:
    """Return S runs of a problem whose mean rewards are independent of the arms' features.

    The K arms, (S, K, 5), are uniform in [0, 1]⁵, and every mean reward is an independent standard normal draw. A model
    of the features therefore cannot help. The rewards have Gaussian noise.

    Args:
        runs: The number S of runs, or the number of each run.
        arms: The number K of arms.
        seed: The seed of everything random.
        sigma: The standard deviation σ of a reward's noise.

    Raises:
        ValueError: ``runs``, ``arms``, ``seed`` or ``sigma`` is out of range, or a run is given twice.
        TypeError: One of these is of another kind.
    """

    def means(x: Tensor, source: torch.Generator) -> Tensor:
        """Return a standard normal draw from ``source`` for each of the K arms ``x`` (K, 5); the result is (K,)."""
        return torch.randn(len(x), generator=source, dtype=torch.float64)

    return _drawn(_in_cube("unrelated", 5, runs, arms, seed, sigma), means)


@on_cpu
def tree(runs: Runs, *, arms: int, seed: int, sigma: float) -> Problem:
    """Return S runs of a problem whose mean reward is constant on each of the 64 leaves of a random tree of depth 6.

    The K arms, (S, K, 4), are uniform in [0, 1]⁴. Each inner node splits its box along a random coordinate, at a
    uniform place between a fifth and four fifths of the box's length. The values of the leaves are standard normal.
    Each run draws its own tree. The rewards have Gaussian noise.

    Args:
        runs: The number S of runs, or the number of each run.
        arms: The number K of arms.
        seed: The seed of everything random.
        sigma: The standard deviation σ of a reward's noise.

    Raises:
        ValueError: ``runs``, ``arms``, ``seed`` or ``sigma`` is out of range, or a run is given twice.
        TypeError: One of these is of another kind.
    """
    return _drawn(_in_cube("tree", 4, runs, arms, seed, sigma), _leaves)


def _in_cube(name: str, d_x: int, runs: Runs, arms: int, seed: int, sigma: float) -> Problem:
    """Return S runs of a problem with K = ``arms`` uniform arms in the cube [0, 1]^d_x, with a placeholder as mean
    rewards.

    The caller replaces the mean rewards. ``name`` is what the problem is called, ``d_x`` the number of coordinates of
    an arm, ``runs`` the number S or the number of each run, ``seed`` the seed, and ``sigma`` the standard deviation of
    the noise.
    """
    return uniform_arms(name, lambda x: x.sum(-1), (0.0, 1.0), d_x, runs, arms, seed, sigma)


def _drawn(blank: Problem, means: Callable[[Tensor, torch.Generator], Tensor]) -> Problem:
    """Return the problem ``blank`` with other mean rewards, which each run draws by ``means``.

    ``means`` is called once for each run, with its K arms of d_x coordinates, (K, d_x), and a generator of random
    numbers. It returns the mean rewards, (K,).
    """
    drawn = [means(x, source) for x, source in zip(blank.arms, blank.generators(blank.name), strict=True)]
    return replace(blank, means=torch.stack(drawn))


def _leaves(x: Tensor, source: torch.Generator, depth: int = 6) -> Tensor:
    """Return for each of the K points ``x`` (K, d_x) of the unit cube the value of the leaf of a random tree that
    contains it, (K,).

    The tree has 2^``depth`` leaves. Each inner node splits its box along a random one of the d_x coordinates, at a
    uniform place between a fifth and four fifths of the box's length. ``source`` draws the splits and the values of the
    leaves, which are standard normal.
    """
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
    """Return S runs of a problem whose K arms are patients of scikit-learn's diabetes data, drawn anew for each run.

    The arms of a run are K different ones of the 442 patients. The mean reward of a patient is the progression of the
    illness after a year, less its mean over all patients and divided by its standard deviation. The features are the
    ten measurements as scikit-learn scales them, so that the arms are (S, K, 10). The rewards have Gaussian noise.
    Source: Efron et al., 2004.

    Args:
        runs: The number S of runs, or the number of each run.
        arms: The number K of arms.
        seed: The seed of everything random.
        sigma: The standard deviation σ of a reward's noise.

    Raises:
        ValueError: ``arms`` is below 1 or above 442, the number of patients; ``runs``, ``seed`` or ``sigma`` is out of
            range; a run is given twice; or ``seed`` is a text.
        TypeError: ``runs``, ``arms`` or ``sigma`` is of another kind, or ``seed`` is a float.
        ImportError: scikit-learn is missing.
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
    """Return S runs of a problem whose K arms are drawn anew for each run from 1,000 rows of the data MagicTelescope,
    with rewards of 0 or 1.

    The arms of a run are K different rows, and their features ten attributes scaled to [0, 1], so that the arms are
    (S, K, 10). The mean reward of a row, the probability of a reward of 1, is the share of gamma rays among the hundred
    rows of the whole data set nearest to it, itself included. Source: Bock, UCI Machine Learning Repository 2004,
    https://doi.org/10.24432/C52C8B.

    Args:
        runs: The number S of runs, or the number of each run.
        arms: The number K of arms.
        seed: The seed of everything random.
        sigma: The σ that the algorithms are given as the noise of a reward. It does not change the rewards, which are
            ½-sub-Gaussian, as all rewards of 0 or 1 are.

    Raises:
        ValueError: ``arms`` is below 1 or above 1,000; ``runs``, ``seed`` or ``sigma`` is out of range; a run is given
            twice; or the file with the rows is damaged.
        TypeError: ``runs``, ``arms`` or ``sigma`` is of another kind, or ``seed`` is a float.
        OSError: The file cannot be read.
    """
    drawn, numbers = _rows_as_arms(torch.from_numpy(shipped(_ROWS)), runs, arms, seed)
    return Problem("Magic, rows", drawn[..., 1:], drawn[..., 0], numbers, seed, sigma, "bernoulli")


def _rows_as_arms(table: Tensor, runs: Runs, arms: int, seed: int) -> tuple[Tensor, tuple[int, ...]]:
    """Return the rows of ``table`` that each of S runs draws as its K = ``arms`` arms, (S, K, 1 + d_x), and the runs'
    numbers.

    The rows of a run are different ones. ``table`` is (rows, 1 + d_x), with a mean reward and d_x features in each row.
    ``runs`` is the number of runs or their numbers, and ``seed`` the seed of the draws.

    Raises:
        ValueError: ``arms`` is below 1 or above the number of rows, ``runs`` is out of range or has a run twice, or the
            seed is negative or a text.
        TypeError: ``runs`` or ``arms`` is of another kind, or the seed is a float.
    """
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
