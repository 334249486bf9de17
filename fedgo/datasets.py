"""The arms of the paper's two real data sets: one arm x_k per k-means cluster C_k of the scaled rows.

    x_k = mean of the rows in C_k,   f(x_k) = share of the positive class in C_k,   k = 1, ..., 20

(section "Real-world dataset", after Filippi et al. 2010). They are files of the package; the repository's
``data/uci_arms.py`` computes them from UCI's files.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgo._checks import require

CLUSTERS = 20
FOLDER = Path(__file__).parent / "data"


class Arms(NamedTuple):
    """The arms of a data set, sorted by their features from left to right."""

    features: NDArray[np.float64]  # (clusters, d_x), in [0, 1]
    means: NDArray[np.float64]  # (clusters,), the mean rewards, in [0, 1]
    sizes: NDArray[np.int64]  # (clusters,), how many rows each cluster holds


@dataclass(frozen=True)
class Source:
    """A published data set, and how it becomes a bandit problem."""

    attribution: str
    doi: str
    licence: str
    attributes: tuple[str, ...]
    totals: dict[str, int]  # rows of each class, from UCI's documentation
    positive: str  # the class that is a reward of 1
    constant: bool  # whether a feature equal to 1 is appended, which gives the paper's d_x = 10

    @property
    def columns(self) -> tuple[str, ...]:
        """What a row of the shipped file holds."""
        return ("size", "mean_reward", *self.attributes, *(("constant",) if self.constant else ()))


SOURCES = {
    "magic": Source(
        attribution="R. Bock (2004). MAGIC Gamma Telescope. UCI Machine Learning Repository.",
        doi="10.24432/C52C8B",
        licence="CC BY 4.0",
        attributes=(
            *("fLength", "fWidth", "fSize", "fConc", "fConc1"),
            *("fAsym", "fM3Long", "fM3Trans", "fAlpha", "fDist"),
        ),
        totals={"g": 12_332, "h": 6_688},
        positive="g",
        constant=False,
    ),
    "shuttle": Source(
        attribution="NASA. Statlog (Shuttle). UCI Machine Learning Repository.",
        doi="10.24432/C5WS31",
        licence="CC BY 4.0",
        attributes=("time", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9"),
        totals={"1": 45_586, "2": 50, "3": 171, "4": 8_903, "5": 3_267, "6": 10, "7": 13},
        positive="1",
        constant=True,
    ),
}


def shipped_arms(name: str) -> Arms:
    """The 20 arms of "magic" or "shuttle" as shipped: features (20, 10), means (20,), sizes (20,).

    A ``ValueError`` for an unknown name, and for a file that is damaged.
    """
    require(name in SOURCES, "name", name, f"choose one of {tuple(SOURCES)}")
    table = shipped(FOLDER / f"{name}.csv")
    return Arms(table[:, 2:], table[:, 1], table[:, 0].astype(np.int64))


def shipped(path: Path) -> NDArray[np.float64]:
    """The numbers of a file that ``data/uci_arms.py`` wrote; a ``ValueError`` if they are not those it wrote."""
    text = path.read_text(encoding="utf-8")
    table = np.loadtxt(text.splitlines(), delimiter=",", comments="#", ndmin=2)
    remedy = "the file says another: restore it, or compute it with the repository's data/uci_arms.py"
    stated = f"# sha256 of the numbers below: {digest(table)}"
    require(stated in text.splitlines(), f"the sha256 of the numbers in {path.name}", digest(table), remedy)
    return table


def digest(numbers: NDArray[np.float64]) -> str:
    """The sha256 of ``numbers``, row by row as little-endian doubles: how they are written down does not matter."""
    return hashlib.sha256(numbers.astype("<f8").tobytes()).hexdigest()
