"""The arms of the paper's two real data sets: one arm x_k per k-means cluster C_k of the scaled rows.

    x_k = mean of the rows in C_k,   f(x_k) = share of the positive class in C_k,   k = 1, ..., 20

(section "Real-world dataset", after Filippi et al. 2010). They are files of the package; the repository's
``data/uci_arms.py`` computes them from UCI's files.
"""

import hashlib
import re
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


def source_of(name: str) -> Source:
    """The entry ``name`` of `SOURCES`; a ``ValueError`` if there is none."""
    require(name in SOURCES, "name", name, f"choose one of {tuple(SOURCES)}")
    return SOURCES[name]


def shipped_arms(name: str) -> Arms:
    """The 20 arms of "magic" or "shuttle" as shipped: features (20, 10), means (20,), sizes (20,).

    A ``ValueError`` for an unknown name, and for a file that is damaged: another number of rows or columns, a feature
    or a mean outside [0, 1], clusters that do not add up to the data set, or numbers without the file's checksum.
    """
    source, path = source_of(name), FOLDER / f"{name}.csv"
    mend = "restore the file, or compute it with the repository's data/uci_arms.py"
    try:
        text = path.read_text(encoding="utf-8")
        table = np.loadtxt(text.splitlines(), delimiter=",", comments="#", ndmin=2)
    except (OSError, ValueError) as error:
        raise ValueError(f"the file {str(path)!r} does not serve: {error}; {mend}") from error

    shape = (CLUSTERS, len(source.columns))
    require(table.shape == shape, f"the shape of {path.name}", table.shape, f"it must be {shape}; {mend}")
    rows, positive = sum(source.totals.values()), source.totals[source.positive]
    limits = [(1, rows), *[(0, 1)] * (shape[1] - 1)]
    for column, values, (least, most) in zip(source.columns, table.T, limits, strict=True):
        within = (values >= least) & (values <= most)
        first = int(np.argmin(within))
        require(
            bool(within.all()),
            f"{column} of arm {first} in {path.name}",
            float(values[first]),
            f"it must lie in [{least}, {most}]; {mend}",
        )
    sizes, means, features = table[:, 0], table[:, 1], table[:, 2:]
    totals = float(sizes.sum()), float(sizes @ means)
    require(
        np.allclose(totals, (rows, positive), rtol=1e-9),
        f"(rows, rows of class {source.positive}) of all clusters in {path.name}",
        totals,
        f"UCI has {(rows, positive)}; {mend}",
    )
    stated = re.search(r"^# sha256 of the numbers below: (\w+)$", text, re.MULTILINE)
    require(
        stated is not None and stated[1] == digest(table),
        f"the sha256 of the numbers in {path.name}",
        digest(table),
        f"the file says {stated[1] if stated else 'nothing'}; {mend}",
    )
    return Arms(features, means, sizes.astype(np.int64))


def digest(numbers: NDArray[np.float64]) -> str:
    """The sha256 of ``numbers``, row by row as little-endian doubles: how they are written down does not matter."""
    return hashlib.sha256(numbers.astype("<f8").tobytes()).hexdigest()
