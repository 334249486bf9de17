"""The record of the tuning: small tables in fedgo/experiments/data, each headed by how it was made.

A table is a file of comma-separated values with lines "# name: value" before its columns. A setting is one cell of
it, as in "lam=0.001 beta=0.1".
"""

import csv
import os
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fedgo._checks import require

DATA = Path(__file__).parent / "data"

Setting = Mapping[str, Any]


class Table(NamedTuple):
    """What the header says, and the rows by column."""

    about: Mapping[str, str]
    rows: tuple[Mapping[str, str], ...]


def text(setting: Setting) -> str:
    """``setting`` as one cell; numbers as Python prints them, so that `parse` gives them back to the last digit."""
    return " ".join(f"{name}={value}" for name, value in setting.items())


def parse(cell: str) -> dict[str, Any]:
    """The setting that `text` wrote."""
    pairs = (part.partition("=") for part in cell.split())
    return {name: _value(shown) for name, _, shown in pairs}


def _value(shown: str) -> float | str:
    try:
        return float(shown)
    except ValueError:
        return shown


@cache
def read(name: str) -> Table:
    """The table ``name``, read once."""
    path = DATA / f"{name}.csv"
    require(path.exists(), "the table", name, f"there is no {path.name}; `make tune` writes it")
    lines = path.read_text(encoding="utf-8").splitlines()
    header = [line.removeprefix("# ").partition(": ") for line in lines if line.startswith("#")]
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return Table({key: value for key, _, value in header}, tuple(rows))


def write(
    name: str, about: Mapping[str, str], columns: Iterable[str], rows: Iterable[Iterable[object]]
) -> Path:
    """Write the table ``name``; the file that was there stays whole until the new one is. Returns its path."""
    path = DATA / f"{name}.csv"
    with tempfile.NamedTemporaryFile(
        "w", dir=DATA, prefix=f".{path.name}.", delete=False, encoding="utf-8", newline=""
    ) as file:
        file.writelines(f"# {key}: {value}\n" for key, value in about.items())
        csv.writer(file, lineterminator="\n").writerows([tuple(columns), *rows])
    os.chmod(file.name, 0o644)  # as a file that is not temporary
    os.replace(file.name, path)
    read.cache_clear()
    return path
