"""The problems of the paper's experiments (Section 6, appendix D): BoTorch's functions and the clustered data."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from botorch.test_functions.synthetic import Cosine8, Hartmann

from fedgo._checks import on_cpu, require
from fedgo.datasets import shipped_arms
from fedgo.problem import Problem, run_numbers, uniform_arms


@contextmanager
def _double_precision() -> Iterator[None]:
    """BoTorch's tables are in the default dtype, whatever ``dtype`` says: Hartmann's would be wrong by 4e-8."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@on_cpu
def hartmann6(
    runs: int | Sequence[int] = 10, *, arms: int = 50, seed: int = 0, sigma: float = 0.1
) -> Problem:
    """Hartmann's function on [0,1]⁶, reward −f₁ = Σ ᾱ exp(−Σ Ā(x − P̄)²) ∈ (0, 3.33] (Section 6, appendix D).

    The paper's table of P̄ lacks its factor 1e-4; BoTorch's function has it.
    """
    with _double_precision():
        function = Hartmann(dim=6, dtype=torch.float64)
    return uniform_arms(
        "Hartmann6", lambda x: -function.evaluate_true(x), (0.0, 1.0), 6, runs, arms, seed, sigma
    )


@on_cpu
def cosine8(
    runs: int | Sequence[int] = 10,
    *,
    arms: int = 50,
    seed: int = 0,
    sigma: float = 0.1,
    negated: bool = True,
) -> Problem:
    """The cosine mixture on [−1,1]⁸: reward −f₂ as the appendix says, or f₂ itself with ``negated=False``.

    f₂ = 0.1 Σ cos(5πx) − Σ x² has its maximum 0.8 at 0; −f₂ is largest at the corners of the cube.
    """
    with _double_precision():
        function = Cosine8(dtype=torch.float64)
    sign = -1.0 if negated else 1.0
    name = "Cosine8" if negated else "Cosine8 as printed"
    return uniform_arms(
        name, lambda x: sign * function.evaluate_true(x), (-1.0, 1.0), 8, runs, arms, seed, sigma
    )


@on_cpu
def clustered(
    name: Literal["magic", "shuttle"],
    runs: int | Sequence[int] = 10,
    *,
    seed: int = 0,
    sigma: float = 0.1,
    reward: Literal["gaussian", "bernoulli"] = "gaussian",
) -> Problem:
    """MagicTelescope or Shuttle as 20 arms: cluster centroids and their share of the positive class.

    The arms are the same in every run (only the noise differs); see `fedgo.datasets.shipped_arms`.
    """
    titles = {"magic": "MagicTelescope", "shuttle": "Shuttle"}
    require(name in titles, "name", name, f"choose one of {tuple(titles)}")
    numbers = run_numbers(runs)
    table = shipped_arms(name)
    arms = torch.as_tensor(table.features, dtype=torch.float64).expand(len(numbers), -1, -1)
    means = torch.as_tensor(table.means, dtype=torch.float64).expand(len(numbers), -1)
    return Problem(titles[name], arms, means, numbers, seed, sigma, reward)
