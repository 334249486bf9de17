"""UCI's files turned into the arms that the package ships: one arm x_k per k-means cluster C_k of the scaled rows.

    x_k = mean of the rows in C_k,   f(x_k) = share of the positive class in C_k,   k = 1, ..., 20

(section "Real-world dataset", after Filippi et al. 2010). The attributes are min-max scaled to [0, 1], the
paper's X; scaling by the standard deviation instead leaves Shuttle with clusters of a single row. Run as a script,
``python data/uci_arms.py`` writes what `fedgo.problems.clustered` reads. It is no part of the package, whose
users need neither the raw data nor what reads them (pooch, unlzw3, scikit-learn).
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pooch
import unlzw3
from numpy.typing import NDArray
from sklearn import __version__ as sklearn_version
from sklearn.cluster import KMeans
from sklearn.neighbors import NearestNeighbors

from fedgo._checks import require
from fedgo.problems import digest

CLUSTERS = 20
Numbers = NDArray[np.float64]
PACKAGE = Path(__file__).resolve().parents[1] / "fedgo"


class Raw(NamedTuple):
    """A published data set: its files in UCI's archive, and the sha256 of the table in them (see `load`)."""

    attribution: str
    doi: str
    positive: str  # the class that is a reward of 1
    url: str
    members: tuple[str, ...]  # those on .Z are packed by Unix compress
    separator: str | None  # None: white space
    sha256: str
    attributes: tuple[str, ...]
    constant: bool  # whether a feature equal to 1 is appended, which gives the paper's d_x = 10


RAW = {
    "magic": Raw(
        "R. Bock (2004). MAGIC Gamma Telescope. UCI Machine Learning Repository.",
        "10.24432/C52C8B",
        "g",
        "https://archive.ics.uci.edu/static/public/159/magic+gamma+telescope.zip",
        ("magic04.data",),
        ",",
        "6ea1b8ec45be924a72808afe21ea323f58c457b4e75fbb87f901c951e00065a8",
        ("fLength", "fWidth", "fSize", "fConc", "fConc1", "fAsym", "fM3Long", "fM3Trans", "fAlpha", "fDist"),
        constant=False,
    ),
    "shuttle": Raw(
        "NASA. Statlog (Shuttle). UCI Machine Learning Repository.",
        "10.24432/C5WS31",
        "1",
        "https://archive.ics.uci.edu/static/public/148/statlog+shuttle.zip",
        ("shuttle.trn.Z", "shuttle.tst"),
        None,
        "fdd7505089c175255e8ab9c84be82098c70c2b720e2eee5509b545ef09f2e059",
        ("time", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9"),
        constant=True,
    ),
}


def files(raw: Raw) -> list[Path]:
    """The raw files: those in the folder FEDGO_DATA, unpacked, or else of UCI's archive, downloaded once by pooch."""
    if folder := os.environ.get("FEDGO_DATA"):
        return [Path(folder, member.removesuffix(".Z")) for member in raw.members]
    unpacked = pooch.retrieve(
        raw.url, None, path=pooch.os_cache("fedgo"), processor=pooch.Unzip(members=list(raw.members))
    )
    return [Path(found) for member in raw.members for found in unpacked if Path(found).name == member]


def load(name: str) -> tuple[Numbers, NDArray[np.bool_]]:
    """The table of "magic" (19,020 rows, d = 10) or "shuttle" (58,000, d = 9: training and test rows), verified.

    The attributes (rows, d), each scaled to [0, 1] over all rows, and which rows are of the positive class (rows,);
    sorted by the attributes from left to right, then by the label. The sha256 is that of the published attributes, by
    row as little-endian doubles, then of the labels: a ``ValueError`` if it is another, whatever the files' packing and
    order of rows.
    """
    raw, lines = RAW[name], list[str]()
    for file in files(raw):
        content = unlzw3.unlzw(file) if file.suffix == ".Z" else file.read_bytes()
        lines += content.decode("ascii").splitlines()
    cells = np.loadtxt(lines, dtype=str, delimiter=raw.separator)
    attributes, labels = cells[:, :-1].astype(np.float64) + 0.0, cells[:, -1]  # + 0.0 turns -0.0 into 0.0
    order = np.lexsort((labels, *attributes.T[::-1]))
    attributes, labels = attributes[order], labels[order]
    found = hashlib.sha256(attributes.astype("<f8").tobytes() + "".join(labels).encode()).hexdigest()
    remedy = f"it must be {raw.sha256}: get {raw.url} by hand, unpack it and set FEDGO_DATA to its folder"
    require(found == raw.sha256, f"the sha256 of {name}'s sorted table", found, remedy)
    low, high = attributes.min(axis=0), attributes.max(axis=0)
    return (attributes - low) / (high - low), labels == raw.positive


def write(
    path: Path, name: str, received: int, changes: str, how: str, columns: Sequence[str], numbers: Numbers
) -> Path:
    """A file of ``numbers`` below comments that say where they come from, under which licence, and what was done."""
    raw = RAW[name]
    about = [
        f"{raw.attribution} https://doi.org/{raw.doi}",
        f"Licence of the data and of this file: CC BY 4.0. Changes: {changes}; see below.",
        f"Source: {raw.url}",
        f"Received: {received} rows; sha256 of the sorted table {raw.sha256}",
        f"Computed: {how}",
        f"Regenerate: python data/uci_arms.py (scikit-learn {sklearn_version}, numpy {np.__version__})",
        f"sha256 of the numbers below: {digest(numbers)}",
        ",".join(columns),
    ]
    shown = ["%d" if column == "size" else "%s" for column in columns]  # %s: as many digits as it takes
    np.savetxt(path, numbers, fmt=shown, delimiter=",", header="\n".join(about), encoding="utf-8")
    return path


def ship(name: str, folder: Path = PACKAGE / "data") -> Path:
    """Write the file that `fedgo.problems.clustered` reads: k-means clusters of the scaled rows as arms.

    The best of 10 starts with a fixed seed; the arms are sorted from left to right.
    """
    raw, (scaled, positive) = RAW[name], load(name)
    # tol=0 iterates until no row changes its cluster: the centroids are then exactly the means of their rows.
    member = KMeans(CLUSTERS, n_init=10, tol=0.0, max_iter=1000, random_state=0).fit_predict(scaled)
    arms = []
    for k in range(CLUSTERS):
        rows = member == k
        centroid = scaled[rows].mean(axis=0)
        arms.append([rows.sum(), positive[rows].mean(), *centroid, *[1.0] * raw.constant])
    numbers = np.array(arms)
    how = (
        f"attributes min-max scaled to [0, 1]; k-means with {CLUSTERS} clusters. One row per cluster: its\n"
        f"number of rows, mean reward (share of class {raw.positive}), centroid{', 1' * raw.constant}."
    )
    columns = ["size", "mean_reward", *raw.attributes, *["constant"] * raw.constant]
    numbers = numbers[np.lexsort(numbers[:, :1:-1].T)]
    return write(folder / f"{name}.csv", name, len(scaled), "clustered, averaged", how, columns, numbers)


def ship_rows(
    folder: Path = PACKAGE / "beyond/evidence/data", rows: int = 1000, neighbours: int = 100
) -> Path:
    """Write ``rows`` random rows of magic, scaled to [0, 1], each with the share of gammas among its nearest."""
    scaled, positive = load("magic")
    how = (
        f"{rows} rows drawn without replacement; attributes min-max scaled to [0, 1] over all rows; the\n"
        f"mean reward is the share of class {RAW['magic'].positive} among the {neighbours} rows nearest to it, "
        "itself included."
    )
    chosen = scaled[np.sort(np.random.default_rng(0).choice(len(scaled), rows, replace=False))]
    near = NearestNeighbors(n_neighbors=neighbours).fit(scaled).kneighbors(chosen, return_distance=False)
    numbers = np.column_stack([positive[near].mean(axis=1), chosen]).round(6)
    columns = ["mean_reward", *RAW["magic"].attributes]
    changes = "sampled, scaled, smoothed"
    return write(folder / "magic_rows.csv", "magic", len(scaled), changes, how, columns, numbers)


if __name__ == "__main__":
    for dataset in RAW:
        print(ship(dataset))
    print(ship_rows())
