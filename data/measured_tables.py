"""Tables of real experiments, as their owners publish them, turned into the small tables that the package ships.

A shipped table has a line for each option, with its features, the mean of its results, their number, and the results
themselves if an option has several. Larger results are better; if smaller ones were, their sign is turned. Run as a
script, ``python data/measured_tables.py`` reads the published files in the folder ``$FEDGO_DATA/tables`` and writes
what `fedgo.beyond.evidence.measured` reads. It is no part of the package.
"""

import csv
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, variance

PACKAGE = Path(__file__).resolve().parents[1] / "fedgo"


@dataclass(frozen=True)
class Published:
    """A published table.

    Args:
        about: Who measured what.
        source: The address of the repository that publishes the table.
        licence: The licence of the table there.
        features: The columns with the features of an option.
        result: The column with the result.
        noise: The standard deviation of a result, where the table has no replicates; 0 means that it has some.
        header: The header, if the file has none.
        sign: −1 if smaller results are better.
    """

    about: str
    source: str
    licence: str
    features: Sequence[str]
    result: str
    noise: float = 0.0
    header: Sequence[str] | None = None
    sign: int = 1


_PV_LAB = "https://github.com/PV-Lab/Benchmarking"
_HYBRID = ("organic", "cation", "anion")
TABLES = {
    "direct_arylation": Published(
        "Shields and others, Nature 590 (2021): yield of a direct arylation, in percent.",
        "https://github.com/emdgroup/baybe",
        "Apache-2.0",
        ("Base", "Ligand", "Solvent", "Concentration", "Temp_C"),
        "yield",
        noise=3.0,
    ),
    "suzuki_b1": Published(
        "Torres and others, J. Am. Chem. Soc. 144 (2022), EDBO+: conversion of a Suzuki coupling, in percent.",
        "https://github.com/doyle-lab-ucla/edboplus",
        "MIT",
        ("ligand", "base", "solvent", "ligand_equivalent"),
        "objective_conversion",
        noise=3.0,
    ),
    "crossed_barrel": Published(
        "Gongora and others, Science Advances 6 (2020): toughness of printed crossed barrels.",
        _PV_LAB,
        "MIT",
        ("n", "theta", "r", "t"),
        "toughness",
    ),
    "p3ht": Published(
        "Bash and others, Adv. Funct. Mater. 31 (2021): conductivity of composites with P3HT, in S/cm.",
        _PV_LAB,
        "MIT",
        tuple(f"{part} content (%)" for part in ("P3HT", "D1", "D2", "D6", "D8")),
        "Conductivity (measured) (S/cm)",
    ),
    "autoam": Published(
        "Deneault and others, MRS Bulletin 46 (2021): score of the shape of a line that was printed.",
        _PV_LAB,
        "MIT",
        ("Prime Delay", "Print Speed", "X Offset Correction", "Y Offset Correction"),
        "Score",
        noise=0.03,
    ),
    "hybrid_perovskites": Published(
        "Kim and others, Scientific Data 4 (2017), as in Olympus: band gap of a perovskite, computed, in eV.",
        "https://github.com/aspuru-guzik-group/olympus",
        "MIT",
        _HYBRID,
        "band gap",
        noise=0.01,
        header=(*_HYBRID, "band gap"),
        sign=-1,
    ),
}


def results_of(name: str, folder: Path) -> dict[tuple[str, ...], list[float]]:
    """The results of each option, by the texts of its features, in the order of the file ``name`` in ``folder``."""
    table, results = TABLES[name], dict[tuple[str, ...], list[float]]()
    text = (folder / f"{name}.csv").read_text(encoding="utf-8-sig")
    for row in csv.DictReader(io.StringIO(text), fieldnames=table.header):
        option = tuple(row[column] for column in table.features)
        results.setdefault(option, []).append(table.sign * float(row[table.result]))
    return results


def noise_of(results: dict[tuple[str, ...], list[float]]) -> float:
    """The standard deviation of a result, from the variances within the options that have several results."""
    several = [each for each in results.values() if len(each) > 1]
    squares = sum(variance(each) * (len(each) - 1) for each in several)
    return float((squares / sum(len(each) - 1 for each in several)) ** 0.5)


def ship(name: str, raw: Path, folder: Path = PACKAGE / "beyond/evidence/data/tables") -> Path:
    """Write the table ``name`` that the package ships, from the published file in the folder ``raw``."""
    table, results = TABLES[name], results_of(name, raw)
    measured = not table.noise
    columns = [*table.features, "mean_result", "replicates", *["results"] * measured]
    how = "from its replicates" if measured else "assumed, since no option has two results"
    lines = io.StringIO()
    for line in (
        table.about,
        f"Source: {table.source}",
        f"Licence of the data and of this file: {table.licence}. Changes: some columns left out, results of an "
        f"option averaged{', sign turned' * (table.sign < 0)}.",
        "Regenerate: python data/measured_tables.py",
        f"Standard deviation of a result, {how}: {table.noise or noise_of(results):.3g}",
    ):
        lines.write(f"# {line}\n")
    rows = csv.writer(lines, lineterminator="\n")
    rows.writerow(columns)
    for option, each in results.items():
        shown = [" ".join(f"{result:.8g}" for result in each)] * measured
        rows.writerow([*option, f"{fmean(each):.8g}", len(each), *shown])
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.csv"
    path.write_text(lines.getvalue(), encoding="utf-8")
    return path


if __name__ == "__main__":
    for shipped in TABLES:
        print(ship(shipped, Path(os.environ["FEDGO_DATA"], "tables")))
