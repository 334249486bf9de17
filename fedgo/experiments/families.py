"""Problems beyond the paper's: Levy's function, two ridges, networks, and rows of MagicTelescope as arms."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from botorch.test_functions.synthetic import Levy

from fedgo._checks import on_cpu, require
from fedgo._streams import generator
from fedgo.network import Network
from fedgo.problem import Problem, run_numbers, uniform_arms
from fedgo.problems import shipped
from fedgo.theory import worlds

_ROWS = Path(__file__).parent / "data/magic_rows.csv"


@on_cpu
def levy10(runs: int | Sequence[int] = 10, *, arms: int = 500, seed: int = 0, sigma: float = 0.1) -> Problem:
    """−1/100 of Levy's function on [−10, 10]¹⁰ (Laguna and Martí 2005), the arms given in [0, 1]¹⁰."""
    function = Levy(dim=10)
    return uniform_arms(
        "Levy-10",
        lambda x: -function.evaluate_true(20 * x - 10) / 100,
        (0.0, 1.0),
        10,
        runs,
        arms,
        seed,
        sigma,
    )


@on_cpu
def two_ridge(
    runs: int | Sequence[int] = 10, *, arms: int = 500, seed: int = 0, sigma: float = 0.1, d_x: int = 20
) -> Problem:
    """f(x) = sin 2aᵀz + cos 2bᵀz with z = √12(x − ½) and random unit vectors a, b, drawn anew for every run."""
    numbers = run_numbers(runs)
    blank = uniform_arms("two ridges", lambda x: x.sum(-1), (0.0, 1.0), d_x, numbers, arms, seed, sigma)
    ridges = torch.stack(
        [torch.randn(2, d_x, generator=generator(seed, r, "ridges"), dtype=torch.float64) for r in numbers]
    )
    ridges = ridges / ridges.norm(dim=-1, keepdim=True)
    along = 12**0.5 * (blank.arms - 0.5) @ ridges.mT
    return replace(blank, means=(2 * along[..., 0]).sin() + (2 * along[..., 1]).cos())


def realizable(
    runs: int | Sequence[int] = 10, *, arms: int = 500, seed: int = 0, sigma: float = 0.1, d_x: int = 15
) -> Problem:
    """A network of the paper's class with random parameters, `fedgo.realizable`."""
    found = worlds.realizable(Network(d_x), runs, arms=arms, seed=seed, sigma=sigma)
    return replace(found, name=f"network, {d_x} inputs")


@on_cpu
def magic_rows(
    runs: int | Sequence[int] = 10, *, arms: int = 500, seed: int = 0, sigma: float = 0.5
) -> Problem:
    """Rows of MagicTelescope as arms, drawn anew for every run, and Bernoulli rewards.

    The mean reward of a row is the share of gammas among the hundred rows nearest to it, itself included; ``sigma`` is
    what the algorithms are told, and ½ is a bound for any reward of 0 or 1.
    """
    numbers = run_numbers(runs)
    table = torch.from_numpy(shipped_rows())
    require(1 <= arms <= len(table), "arms", arms, f"give 1 to {len(table)}, the rows there are")
    rows = torch.stack(
        [torch.randperm(len(table), generator=generator(seed, r, "rows"))[:arms] for r in numbers]
    )
    return Problem(
        "Magic, rows", table[rows][..., 1:], table[rows][..., 0], numbers, seed, sigma, "bernoulli"
    )


def shipped_rows() -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The rows as shipped, (1000, 11): the mean reward, then ten attributes in [0, 1]; a ``ValueError`` if damaged."""
    return shipped(_ROWS)
