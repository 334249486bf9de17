"""The problems of the paper's experiments (Section 6, appendix D): BoTorch's functions and the clustered data.

MagicTelescope and Shuttle have one arm x_k for each k-means cluster C_k of a data set's rows, whose attributes are
scaled to [0, 1] (section "Real-world dataset", after Filippi et al. 2010):

    x_k = mean of the rows in C_k,   f(x_k) = share of the positive class in C_k,   k = 1, ..., 20

The script ``data/uci_arms.py`` of the repository computes these arms. The rows of Shuttle have 9 attributes; its arms
have a tenth feature, which is 1. Arms of S runs are (S, K, d_x).
"""

import hashlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from fedgo._checks import extra, on_cpu, require
from fedgo.problem import Problem, Runs, run_numbers, uniform_arms

ARMS_FOLDER = Path(__file__).parent / "data"
DATA_SETS = {"magic": "MagicTelescope", "shuttle": "Shuttle"}  # names in UCI's Machine Learning Repository


@on_cpu
def hartmann6(runs: Runs = 10, *, arms: int = 50, seed: int = 0, sigma: float = 0.1) -> Problem:
    """Return Hartmann's function on [0, 1]⁶ with uniformly drawn arms and Gaussian rewards (appendix D).

    The mean reward is −f₁(x) = Σ_i ᾱ_i exp(−Σ_j Ā_ij(x_j − P̄_ij)²), i = 1, …, 4, j = 1, …, 6, in (0, 3.33]. The
    paper's table of P̄ lacks its factor 1e-4; BoTorch's function, which is used here, has it.

    Args:
        runs: The number of runs, or a sequence of their numbers, each at least 0 and given once.
        arms: The number K of arms, drawn anew for each run.
        seed: The seed, which with the number of a run determines its arms and its noise.
        sigma: The standard deviation σ of the Gaussian noise.

    Raises:
        ValueError: An argument is out of range, or a run is given twice.
        TypeError: An argument is of another kind.
        ImportError: BoTorch is not installed; the message says which extra installs it.
    """
    function = botorch_function("Hartmann", dim=6)
    cube = (0.0, 1.0)
    return uniform_arms("Hartmann6", lambda x: -function.evaluate_true(x), cube, 6, runs, arms, seed, sigma)


@on_cpu
def cosine8(
    runs: Runs = 10, *, arms: int = 50, seed: int = 0, sigma: float = 0.1, negated: bool = True
) -> Problem:
    """Return the cosine mixture on [−1, 1]⁸ with uniformly drawn arms and Gaussian rewards (appendix D).

    With f₂(x) = 0.1 Σ_j cos(5πx_j) − Σ_j x_j², j = 1, …, 8, the mean reward is −f₂(x), as the appendix says, with the
    maximum 8.8 at the corners of the cube. See `hartmann6` for the other arguments and the errors.

    Args:
        runs: The number of runs, or a sequence of their numbers.
        arms: The number K of arms.
        seed: The seed.
        sigma: The standard deviation σ of the Gaussian noise.
        negated: Whether the mean reward is −f₂; if not, it is f₂, with the maximum 0.8 at x = 0, and the name "Cosine8
            as printed".
    """
    function = botorch_function("Cosine8")
    name, sign = ("Cosine8", -1.0) if negated else ("Cosine8 as printed", 1.0)
    cube = (-1.0, 1.0)
    return uniform_arms(name, lambda x: sign * function.evaluate_true(x), cube, 8, runs, arms, seed, sigma)


def botorch_function(name: str, **options: Any) -> Any:
    """Return BoTorch's test function ``name`` in double precision.

    BoTorch makes its constants in torch's default dtype, with which Hartmann's function would be wrong by 5e-8.
    Therefore this default is float64 while the function is made.
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
    """Return MagicTelescope or Shuttle with 20 arms in [0, 1]¹⁰, the same in all runs, so that only the noise differs.

    Args:
        name: "magic" for MagicTelescope or "shuttle" for Shuttle.
        runs: The number of runs, or a sequence of their numbers.
        seed: The seed, which with the number of a run determines its noise.
        sigma: The standard deviation σ of the noise of Gaussian rewards.
        reward: The kind of rewards, "gaussian" or "bernoulli".

    Raises:
        ValueError: ``name`` or ``reward`` is unknown, another argument is out of range, a run is given twice, or the
            file with the arms is damaged.
        TypeError: ``runs``, ``seed`` or ``sigma`` is of another kind.
    """
    numbers = run_numbers(runs)
    require(name in DATA_SETS, "name", name, f"choose one of {tuple(DATA_SETS)}")
    # a row for each cluster: its number of rows, its mean reward, and its centroid
    table = torch.from_numpy(shipped(ARMS_FOLDER / f"{name}.csv")).expand(len(numbers), -1, -1)
    return Problem(DATA_SETS[name], table[..., 2:], table[..., 1], numbers, seed, sigma, reward)


def shipped(path: Path) -> NDArray[np.float64]:
    """Return the numbers of the CSV file ``path``, after a check of the sha256 that its comments state."""
    text = path.read_text(encoding="utf-8")
    table = np.loadtxt(text.splitlines(), delimiter=",", comments="#", ndmin=2)
    remedy = "the file states another one: restore it, or compute it with the repository's data/uci_arms.py"
    stated = f"# sha256 of the numbers below: {digest(table)}"
    require(stated in text.splitlines(), f"the sha256 of the numbers in {path.name}", digest(table), remedy)
    return table


def digest(numbers: NDArray[np.float64]) -> str:
    """Return the sha256 of a matrix as little-endian doubles, row by row, however a file writes them."""
    return hashlib.sha256(numbers.astype("<f8").tobytes()).hexdigest()
