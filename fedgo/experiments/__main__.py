"""``python -m fedgo.experiments NAME``: compute what the table of a study lacks, or play some of its rows again.

``python -m fedgo.beyond NAME`` is the same command with the studies beyond the paper too."""

import argparse
import sys
from pathlib import Path

import joblib

from fedgo.experiments.runner import REGIME, SEED, asked, check, missing, run
from fedgo.experiments.studies import STUDIES


def main(package: str = "fedgo.experiments") -> None:
    """Run or check one study, or some of its players on some of its regimes."""
    parser = argparse.ArgumentParser(prog=f"python -m {package}", description=__doc__)
    parser.add_argument("study", choices=list(STUDIES))
    parser.add_argument("--player", action="append", default=[], help="this one only; may be given again")
    parser.add_argument("--regime", default="", help="only the regimes with this in their name")
    parser.add_argument(
        "--runs", type=int, default=sys.maxsize, help="at most so many runs of the evaluation"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="again what is there; without --regime the choices too"
    )
    parser.add_argument("--check", action="store_true", help="play a row of every player again and compare")
    parser.add_argument("--workers", type=int, default=2, help="processes, with one thread each")
    parser.add_argument("--folder", type=Path, help="where the table is kept, the package unless given")
    options = parser.parse_args()
    study = STUDIES[options.study]
    folder = options.folder or study.folder
    with joblib.parallel_config(n_jobs=options.workers):
        if not options.check:
            table = run(study, options.player, options.regime, options.runs, options.fresh, folder)
            print(f"{study.name}: {len(table):,} rows")
            if options.player or options.regime:
                rows = table[asked(table, options.player or list(study.players), options.regime)]
                means = rows[rows["seed"] == SEED].groupby([*REGIME, "player"])[list(study.columns)].mean()
                print(f"Means of the evaluation:\n{means.to_string()}")
            return
        comparison = check(study, options.player, options.regime, folder=folder)
    print(comparison.T.to_string())
    for columns, rows in comparison[comparison["not_compared"] != ""].groupby("not_compared"):
        print(f"{study.name}: not compared: {columns} of {', '.join(rows['player'])}")
    for player, module in missing(study).items():
        print(f"{study.name}: not played: {player}, because {module} is not installed")
    if not comparison["same"].all():
        sys.exit(f"{study.name}: not the same: {', '.join(comparison['player'][~comparison['same']])}")


if __name__ == "__main__":
    main()
