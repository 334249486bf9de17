"""The problems of the paper's experiments (Section 6, appendix D): BoTorch's functions and the clustered data.

MagicTelescope and Shuttle have one arm x_k for each k-means cluster C_k of the scaled rows (section "Real-world
dataset", after Filippi et al. 2010). The script ``data/uci_arms.py`` of the repository computes the files with them:

    x_k = mean of the rows in C_k,   f(x_k) = share of the positive class in C_k,   k = 1, ..., 20
"""

import hashlib
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedgo._checks import extra, on_cpu, require
from fedgo.problem import Problem, Runs, run_numbers, uniform_arms

ARMS_FOLDER = Path(__file__).parent / "data"
DATA_SETS = {"magic": "MagicTelescope", "shuttle": "Shuttle"}  # of UCI's Machine Learning Repository


@on_cpu
def hartmann6(runs: Runs = 10, *, arms: int = 50, seed: int = 0, sigma: float = 0.1) -> Problem:
    """Return Hartmann's function on [0, 1]⁶ as a bandit problem with uniform arms (Section 6, appendix D).

    The mean reward is −f₁(x) = Σ_i ᾱ_i exp(−Σ_j Ā_ij(x_j − P̄_ij)²), in (0, 3.33]. The paper's table of P̄ lacks its
    factor 1e-4; BoTorch's function has it. The arguments are those of `fedgo.problem.uniform_arms`.
    """
    function = botorch_function("Hartmann", dim=6)
    cube = (0.0, 1.0)
    return uniform_arms("Hartmann6", lambda x: -function.evaluate_true(x), cube, 6, runs, arms, seed, sigma)


@on_cpu
def cosine8(
    runs: Runs = 10, *, arms: int = 50, seed: int = 0, sigma: float = 0.1, negated: bool = True
) -> Problem:
    """Return the cosine mixture on [−1, 1]⁸ as a bandit problem with uniform arms (Section 6, appendix D).

    With f₂(x) = 0.1 Σ_j cos(5πx_j) − Σ_j x_j², the mean reward is −f₂, as the appendix says, or f₂ if ``negated`` is
    False. The maximum of f₂ is 0.8 at 0, and −f₂ is largest at the corners of the cube. The other arguments are those
    of `fedgo.problem.uniform_arms`.
    """
    function = botorch_function("Cosine8")
    name, sign = ("Cosine8", -1.0) if negated else ("Cosine8 as printed", 1.0)
    cube = (-1.0, 1.0)
    return uniform_arms(name, lambda x: sign * function.evaluate_true(x), cube, 8, runs, arms, seed, sigma)


def botorch_function(name: str, **options: Any) -> Any:
    """Return BoTorch's test function ``name`` with the given ``options``, in double precision.

    BoTorch makes the function's tables in torch's default dtype; in single precision Hartmann's would be wrong by 4e-8.

    Raises:
        ImportError: BoTorch is not installed; the message says which extra installs it.
    """
    with extra("study"):
        from botorch.test_functions import synthetic
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return getattr(synthetic, name)(dtype=torch.float64, **options)
    finally:
        torch.set_default_dtype(before)


@on_cpu
def clustered(
    name: Literal["magic", "shuttle"],
    runs: Runs = 10,
    *,
    seed: int = 0,
    sigma: float = 0.1,
    reward: Literal["gaussian", "bernoulli"] = "gaussian",
) -> Problem:
    """Return MagicTelescope or Shuttle as a bandit problem with 20 arms in [0, 1]¹⁰.

    An arm is the centroid of a cluster, and its mean reward is the share of the positive class in the cluster
    (`shipped_arms`). The arms are the same in all runs, so that only the noise differs.

    Args:
        name: "magic" or "shuttle".
        runs: The number of runs, or their numbers.
        seed: Together with the number of a run, it determines the noise.
        sigma: The standard deviation σ of Gaussian rewards.
        reward: Whether rewards are "gaussian" or "bernoulli".

    Raises:
        ValueError: An argument is out of range, or the file is damaged.
        TypeError: An argument is of another kind.
    """
    numbers = run_numbers(runs)
    table = shipped_arms(name)
    arms = torch.from_numpy(table.features).expand(len(numbers), -1, -1)
    means = torch.from_numpy(table.means).expand(len(numbers), -1)
    return Problem(DATA_SETS[name], arms, means, numbers, seed, sigma, reward)


class Arms(NamedTuple):
    """The arms of a data set, sorted by their features from left to right."""

    features: NDArray[np.float64]  # (clusters, d_x), in [0, 1]
    means: NDArray[np.float64]  # (clusters,), the mean rewards, in [0, 1]
    sizes: NDArray[np.int64]  # (clusters,), how many rows each cluster holds


def shipped_arms(name: str) -> Arms:
    """Return the 20 arms of "magic" or "shuttle" that the package ships.

    Returns:
        The features (20, 10), the mean rewards (20,) and the sizes (20,) of the clusters.

    Raises:
        ValueError: The name is unknown, or the file is damaged.
    """
    require(name in DATA_SETS, "name", name, f"choose one of {tuple(DATA_SETS)}")
    table = shipped(ARMS_FOLDER / f"{name}.csv")
    return Arms(table[:, 2:], table[:, 1], table[:, 0].astype(np.int64))


def shipped(path: Path) -> NDArray[np.float64]:
    """Return the numbers of a file that ``data/uci_arms.py`` wrote.

    Raises:
        ValueError: The numbers do not have the sha256 that the file states.
    """
    text = path.read_text(encoding="utf-8")
    table = np.loadtxt(text.splitlines(), delimiter=",", comments="#", ndmin=2)
    remedy = "the file states another one: restore it, or compute it with the repository's data/uci_arms.py"
    stated = f"# sha256 of the numbers below: {digest(table)}"
    require(stated in text.splitlines(), f"the sha256 of the numbers in {path.name}", digest(table), remedy)
    return table


def digest(numbers: NDArray[np.float64]) -> str:
    """Return the sha256 of ``numbers``, row by row as little-endian doubles, whatever the digits in the file."""
    return hashlib.sha256(numbers.astype("<f8").tobytes()).hexdigest()
