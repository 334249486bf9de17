"""UCI's files turned into the arms that the package ships: one arm x_k per k-means cluster C_k of the scaled rows.

    x_k = mean of the rows in C_k,   f(x_k) = share of the positive class in C_k,   k = 1, ..., 20

(section "Real-world dataset", after Filippi et al. 2010). The attributes are min-max scaled to [0, 1], the
paper's X; scaling by the standard deviation instead leaves Shuttle with clusters of a single row. Run as a script,
``python data/uci_arms.py`` writes what `fedgo.datasets.shipped_arms` reads. It is no part of the package, whose
users need neither the raw data nor what reads them (pooch, unlzw3, scikit-learn).
"""

from __future__ import annotations

import argparse
import codecs
import hashlib
import os
import zipfile
import zlib
from dataclasses import dataclass
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
from fedgo.datasets import CLUSTERS, SOURCES, Arms, Source, digest, source_of

SHIPPED = Path(__file__).resolve().parents[1] / "fedgo/experiments/data"
_UNREADABLE = (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


class Table(NamedTuple):
    """A data set in canonical order: rows sorted by the attributes from left to right, then by the label."""

    attributes: NDArray[np.float64]  # (rows, d), as published, unscaled
    labels: NDArray[np.str_]  # (rows,)


@dataclass(frozen=True)
class Raw:
    """The raw files of a data set, and what their table must be."""

    url: str  # UCI's archive
    members: tuple[str, ...]  # its files; each may be there as Unix compress packs it, with .Z added
    separator: str | None  # None: white space
    sha256: str  # of the canonical table (see `checksum`): neither packing nor the order of rows matters


RAW = {
    "magic": Raw(
        url="https://archive.ics.uci.edu/static/public/159/magic+gamma+telescope.zip",
        members=("magic04.data",),
        separator=",",
        sha256="6ea1b8ec45be924a72808afe21ea323f58c457b4e75fbb87f901c951e00065a8",
    ),
    "shuttle": Raw(
        url="https://archive.ics.uci.edu/static/public/148/statlog+shuttle.zip",
        members=("shuttle.trn", "shuttle.tst"),
        separator=None,
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
    source, raw = source_of(name), RAW[name]
    require(folder is None or url is None, "(folder, url)", (folder, url), "give at most one of them")
    if url is None:
        folder = folder or os.environ.get("FEDGO_DATA")
    by_hand = f"download {raw.url} by hand, unpack it into a folder and set FEDGO_DATA=<that folder>"

    if folder:
        try:
            return _read(source, raw, Path(folder))
        except _UNREADABLE as error:
            raise ValueError(
                f"{name}: the folder {str(folder)!r} (FEDGO_DATA or folder=) does not serve: {error}. "
                f"To mend this, {by_hand}, or unset FEDGO_DATA to have it downloaded"
            ) from error

    url = url or raw.url
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
            return _read(source, raw, zipfile.Path(unpacked))
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


def cluster_arms(table: Table, name: str, clusters: int = CLUSTERS) -> Arms:
    """Cluster the min-max scaled rows of a data set (k-means, best of 10 starts, fixed seed) into arms.

    ``table`` has attributes (rows, d), d = 10 for magic and 9 for shuttle, and labels (rows,). ``name`` says what the
    positive class is and whether a constant 1 is appended. Returns features (``clusters``, 10), sorted from left to
    right. A ``ValueError`` for an unknown name, a table of the wrong shape, or fewer distinct rows than clusters.
    """
    source = source_of(name)
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


def _read(source: Source, raw: Raw, place: Path | zipfile.Path) -> Table:
    """Parse, sort and verify the data set's files in a folder or an archive."""
    numbers: list[list[float]] = []
    classes: list[str] = []
    d = len(source.attributes)
    for member in raw.members:
        for count, line in enumerate(_text(place, member).splitlines(), start=1):
            if not line.strip():  # the totals and the checksum say whether a row is lost
                continue
            *row, label = line.strip().split(raw.separator)
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
    if checksum(table) != raw.sha256:
        raise ValueError(
            f"the sorted table has sha256 {checksum(table)}, not {raw.sha256}, although the row and class "
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
    return content.removeprefix(codecs.BOM_UTF8).decode("ascii", errors="replace")


def ship(name: str, folder: Path = SHIPPED) -> Path:
    """Compute the arms of a data set and write the file that `shipped_arms` reads."""
    source, raw, table = SOURCES[name], RAW[name], load(name)
    arms = cluster_arms(table, name)
    numbers = np.column_stack([arms.sizes, arms.means, arms.features])
    about = [
        f"{source.attribution} https://doi.org/{source.doi}",
        f"Licence of the data and of this file: {source.licence}. Changes: clustered, averaged; see below.",
        f"Source: {raw.url}",
        f"Received: {len(table.labels)} rows; sha256 of the sorted table {checksum(table)}",
        f"Computed: attributes min-max scaled to [0, 1]; k-means with {CLUSTERS} clusters. One row per cluster: its",
        f"number of rows, mean reward (share of class {source.positive}), centroid{', 1' * source.constant}.",
        f"Regenerate: python data/uci_arms.py (scikit-learn {sklearn_version}, numpy {np.__version__})",
        f"sha256 of the numbers below: {digest(numbers)}",
        ",".join(source.columns),
    ]
    rows = [",".join([str(int(size)), *map(repr, values)]) for size, *values in numbers.tolist()]
    path = folder / f"{name}.csv"
    path.write_text("\n".join([*(f"# {line}" for line in about), *rows]) + "\n", encoding="utf-8")
    return path


def ship_rows(folder: Path = SHIPPED, rows: int = 1000, neighbours: int = 100) -> Path:
    """Write ``rows`` random rows of magic, scaled to [0, 1], each with the share of gammas among its nearest."""
    source, raw, table = SOURCES["magic"], RAW["magic"], load("magic")
    low, high = table.attributes.min(axis=0), table.attributes.max(axis=0)
    scaled = (table.attributes - low) / (high - low)
    chosen = np.sort(np.random.default_rng(0).choice(len(scaled), rows, replace=False))
    near = (
        NearestNeighbors(n_neighbors=neighbours).fit(scaled).kneighbors(scaled[chosen], return_distance=False)
    )
    means = (table.labels[near] == source.positive).mean(axis=1)
    numbers = np.column_stack([means, scaled[chosen]]).round(6)
    about = [
        f"{source.attribution} https://doi.org/{source.doi}",
        f"Licence of the data and of this file: {source.licence}. Changes: sampled, scaled, smoothed; see below.",
        f"Source: {raw.url}",
        f"Received: {len(table.labels)} rows; sha256 of the sorted table {checksum(table)}",
        f"Computed: {rows} rows drawn without replacement; attributes min-max scaled to [0, 1] over all rows; the",
        f"mean reward is the share of class {source.positive} among the {neighbours} nearest rows, itself included.",
        f"Regenerate: python data/uci_arms.py (scikit-learn {sklearn_version}, numpy {np.__version__})",
        f"sha256 of the numbers below: {digest(numbers)}",
        ",".join(["mean_reward", *source.attributes]),
    ]
    path = folder / "magic_rows.csv"
    lines = [*(f"# {line}" for line in about), *(",".join(map(repr, values)) for values in numbers.tolist())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    argparse.ArgumentParser(description="Compute the shipped arms anew from UCI's files.").parse_args()
    for dataset in SOURCES:
        print(ship(dataset))
    print(ship_rows())
