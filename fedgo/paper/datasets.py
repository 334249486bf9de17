"""The paper's two real data sets turned into arms: one arm x_k per k-means cluster C_k of the scaled rows.

    x_k = mean of the rows in C_k,   f(x_k) = share of the positive class in C_k,   k = 1, ..., 20

(section "Real-world dataset", after Filippi et al. 2010). The attributes are min-max scaled to [0, 1], the
paper's X; scaling by the standard deviation instead leaves Shuttle with clusters of a single row. The arms
ship with the package (``shipped_arms``); ``python -m fedgo.paper.datasets`` computes them anew from UCI's files.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import unlzw3
from numpy.typing import NDArray

from fedgo._checks import require

_SHIPPED = Path(__file__).parent / "data"
_UNREADABLE = (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


class Table(NamedTuple):
    """A data set in canonical order: rows sorted by the attributes from left to right, then by the label."""

    attributes: NDArray[np.float64]  # (rows, d), as published, unscaled
    labels: NDArray[np.str_]  # (rows,)


class Arms(NamedTuple):
    """The arms of a data set, sorted by their features from left to right."""

    features: NDArray[np.float64]  # (clusters, d_x), in [0, 1]
    means: NDArray[np.float64]  # (clusters,), the mean rewards, in [0, 1]
    sizes: NDArray[np.int64]  # (clusters,), how many rows each cluster holds


@dataclass(frozen=True)
class Source:
    """Where a data set comes from, and what its table must be."""

    attribution: str
    doi: str
    licence: str
    url: str  # UCI's archive
    members: tuple[
        str, ...
    ]  # the archive's files; each may be there as Unix compress packs it, with .Z added
    separator: str | None  # None: white space
    attributes: tuple[str, ...]
    totals: dict[str, int]  # rows of each class, from UCI's documentation
    positive: str  # the class that is a reward of 1
    constant: bool  # whether a feature equal to 1 is appended, which gives the paper's d_x = 10
    sha256: str  # of the canonical table (see ``checksum``): neither packing nor the order of rows matters


SOURCES = {
    "magic": Source(
        attribution="R. Bock (2004). MAGIC Gamma Telescope. UCI Machine Learning Repository.",
        doi="10.24432/C52C8B",
        licence="CC BY 4.0",
        url="https://archive.ics.uci.edu/static/public/159/magic+gamma+telescope.zip",
        members=("magic04.data",),
        separator=",",
        attributes=(
            *("fLength", "fWidth", "fSize", "fConc", "fConc1"),
            *("fAsym", "fM3Long", "fM3Trans", "fAlpha", "fDist"),
        ),
        totals={"g": 12_332, "h": 6_688},
        positive="g",
        constant=False,
        sha256="6ea1b8ec45be924a72808afe21ea323f58c457b4e75fbb87f901c951e00065a8",
    ),
    "shuttle": Source(
        attribution="NASA. Statlog (Shuttle). UCI Machine Learning Repository.",
        doi="10.24432/C5WS31",
        licence="CC BY 4.0",
        url="https://archive.ics.uci.edu/static/public/148/statlog+shuttle.zip",
        members=("shuttle.trn", "shuttle.tst"),
        separator=None,
        attributes=("time", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9"),
        totals={"1": 45_586, "2": 50, "3": 171, "4": 8_903, "5": 3_267, "6": 10, "7": 13},
        positive="1",
        constant=True,
        sha256="fdd7505089c175255e8ab9c84be82098c70c2b720e2eee5509b545ef09f2e059",
    ),
}


def load(name: str, folder: str | Path | None = None, url: str | None = None) -> Table:
    """Read a data set from a local folder, or download it once into the user's cache, and verify it.

    ``name`` is "magic" (19,020 rows, d = 10) or "shuttle" (58,000 rows, d = 9, training and test rows). ``folder``
    holds magic04.data, or shuttle.trn (or shuttle.trn.Z) and shuttle.tst; ``url`` is a mirror of UCI's archive, whose
    content is verified like UCI's own. With neither, the environment variable FEDGO_DATA names the folder; where that
    is unset too, UCI's archive is downloaded into pooch's cache for "fedgo" (or into FEDGO_CACHE).

    Returns attributes (rows, d) and labels (rows,). A ``ValueError`` for an unknown name, for folder and url together,
    and where there is no network or an archive or a file is missing, damaged or not the published data; a damaged
    archive is deleted from the cache.
    """
    source = _source(name)
    require(folder is None or url is None, "(folder, url)", (folder, url), "give at most one of them")
    if url is None:
        folder = folder or os.environ.get("FEDGO_DATA")
    by_hand = f"download {source.url} by hand, unpack it into a folder and set FEDGO_DATA=<that folder>"

    if folder:
        try:
            return _read(source, Path(folder))
        except _UNREADABLE as error:
            raise ValueError(
                f"{name}: the folder {str(folder)!r} (FEDGO_DATA or folder=) does not serve: {error}. "
                f"To mend this, {by_hand}, or unset FEDGO_DATA to have it downloaded"
            ) from error

    import pooch  # here: in a notebook its progress bars warn when they are loaded, and most users never download

    url = url or source.url
    archive = f"{name}.zip"
    cache = pooch.create(
        pooch.os_cache("fedgo"), base_url="", registry={archive: None}, urls={archive: url}, env="FEDGO_CACHE"
    )
    try:
        path = Path(cache.fetch(archive))
    except (OSError, ValueError) as error:  # requests' own errors are OSErrors
        raise ValueError(
            f"{name}: could not download {url} ({type(error).__name__}: {error}). "
            f"Check the network and run again, or {by_hand}"
        ) from error
    size = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as unpacked:
            return _read(source, zipfile.Path(unpacked))
    except _UNREADABLE as error:
        path.unlink(missing_ok=True)
        raise ValueError(
            f"{name}: the archive {str(path)!r} ({size:,} bytes from {url}) does not serve: {error}. "
            f"It has been deleted: run again to download it anew, or {by_hand}"
        ) from error


def checksum(table: Table) -> str:
    """The sha256 of a table in canonical order: attributes by row as little-endian doubles, then labels."""
    content = table.attributes.astype("<f8").tobytes() + "".join(table.labels).encode()
    return hashlib.sha256(content).hexdigest()


def cluster_arms(table: Table, name: str, clusters: int = 20) -> Arms:
    """Cluster the min-max scaled rows of a data set (k-means, best of 10 starts, fixed seed) into arms.

    ``table`` has attributes (rows, d), d = 10 for magic and 9 for shuttle, and labels (rows,). ``name`` says what the
    positive class is and whether a constant 1 is appended. Returns features (``clusters``, 10), in whatever order
    k-means numbers its clusters. A ``ValueError`` for an unknown name, a table of the wrong shape, or fewer distinct
    rows than clusters.
    """
    from sklearn.cluster import KMeans  # here, as this import takes a second

    source = _source(name)
    attributes, labels = np.asarray(table.attributes, dtype=np.float64), np.asarray(table.labels)
    require(
        attributes.ndim == 2 and attributes.shape == (*labels.shape, len(source.attributes)),
        "the shape of the attributes",
        attributes.shape,
        f"give (rows, {len(source.attributes)}) for {name!r} and one label per row (received {labels.shape})",
    )
    distinct = len(np.unique(attributes, axis=0))
    require(1 <= clusters <= distinct, "clusters", clusters, f"give 1 to {distinct}, the distinct rows")

    low, high = attributes.min(axis=0), attributes.max(axis=0)
    scaled = (attributes - low) / np.where(high > low, high - low, 1.0)
    # tol=0 iterates until no row changes its cluster: the centroids are then exactly the means of their rows.
    member = KMeans(clusters, n_init=10, tol=0.0, max_iter=1000, random_state=0).fit_predict(scaled)
    rows = [member == k for k in range(clusters)]
    features = np.array([scaled[row].mean(axis=0) for row in rows])
    if source.constant:
        features = np.column_stack([features, np.ones(clusters)])
    means = np.array([np.mean(labels[row] == source.positive) for row in rows])
    sizes = np.array([np.sum(row) for row in rows], dtype=np.int64)
    order = np.lexsort(features.T[::-1])
    return Arms(features[order], means[order], sizes[order])


def shipped_arms(name: str) -> Arms:
    """The 20 arms of "magic" or "shuttle" as shipped: features (20, 10), means (20,), sizes (20,).

    Raises:
        ValueError: unknown name.
    """
    _source(name)
    table = np.loadtxt(_SHIPPED / f"{name}.csv", delimiter=",", comments="#")
    return Arms(features=table[:, 2:], means=table[:, 1], sizes=table[:, 0].astype(np.int64))


def _source(name: str) -> Source:
    require(name in SOURCES, "name", name, f"choose one of {tuple(SOURCES)}")
    return SOURCES[name]


def _read(source: Source, place: Path | zipfile.Path) -> Table:
    """Parse, sort and verify the data set's files in a folder or an archive."""
    numbers: list[list[float]] = []
    classes: list[str] = []
    d = len(source.attributes)
    for member in source.members:
        for count, line in enumerate(_text(place, member).splitlines(), start=1):
            *row, label = line.strip().split(source.separator) or [""]
            try:
                numbers.append([float(number) for number in row])
            except ValueError:
                row = []
            if len(row) != d or label not in source.totals:
                raise ValueError(
                    f"line {count} of {member} reads {line[:60]!r}, not {d} numbers and a class out of "
                    f"{', '.join(source.totals)}"
                )
            classes.append(label)
    totals = {label: classes.count(label) for label in source.totals}
    if totals != source.totals:
        raise ValueError(
            f"{len(classes):,} rows with class totals {totals}, "
            f"not {sum(source.totals.values()):,} rows with {source.totals}"
        )
    attributes, labels = np.array(numbers) + 0.0, np.array(classes)  # + 0.0 turns -0.0 into 0.0
    order = np.lexsort((labels, *attributes.T[::-1]))
    table = Table(attributes[order], labels[order])
    if checksum(table) != source.sha256:
        raise ValueError(
            f"the sorted table has sha256 {checksum(table)}, not {source.sha256}, although the row and class "
            f"totals are right"
        )
    return table


def _text(place: Path | zipfile.Path, member: str) -> str:
    plain, packed = place / member, place / f"{member}.Z"
    if plain.is_file():
        content = plain.read_bytes()
    elif packed.is_file():
        content = unlzw3.unlzw(packed.read_bytes())
    else:
        raise ValueError(f"it holds neither {member} nor {member}.Z")
    return content.decode("ascii", errors="replace")


def _ship(name: str) -> Path:
    """Compute the arms of a data set and write the file that ``shipped_arms`` reads."""
    import sklearn

    source, table = SOURCES[name], load(name)
    arms = cluster_arms(table, name)
    constant = ["constant"] if source.constant else []
    about = [
        f"{source.attribution} https://doi.org/{source.doi}",
        f"Licence of the data and of this file: {source.licence}. Changes: clustered, averaged; see below.",
        f"Source: {source.url}",
        f"Received: {len(table.labels)} rows; sha256 of the sorted table {checksum(table)}",
        "Computed: attributes min-max scaled to [0, 1]; k-means with 20 clusters. One row per cluster: its",
        f"number of rows, mean reward (share of class {source.positive}), centroid{', 1' * len(constant)}.",
        f"Regenerate: python -m fedgo.paper.datasets (scikit-learn {sklearn.__version__}, numpy {np.__version__})",
        ",".join(["size", "mean_reward", *source.attributes, *constant]),
    ]
    lines = [f"# {line}" for line in about]
    for size, mean, features in zip(arms.sizes, arms.means, arms.features, strict=True):
        lines.append(",".join([str(size), *(repr(float(value)) for value in (mean, *features))]))
    path = _SHIPPED / f"{name}.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    argparse.ArgumentParser(description="Compute the shipped arms anew from UCI's files.").parse_args()
    for dataset in SOURCES:
        print(_ship(dataset))
