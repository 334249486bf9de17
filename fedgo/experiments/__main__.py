"""Compute the rows that the table of a study lacks, or play some of its rows again and compare them.

``python -m fedgo.experiments NAME`` is for the studies of the paper, and ``python -m fedgo.beyond NAME`` for all."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from fedgo._checks import extra

with extra("experiments"):
    import joblib

    from fedgo.experiments.runner import SEED, Sweep, asked, check, missing, run
    from fedgo.experiments.studies import STUDIES
    from fedgo.experiments.world import REGIME


def run_or_check(package: str = "fedgo.experiments", studies: Mapping[str, Sweep] = STUDIES) -> None:
    """Run or check one study, as the arguments of the command line say, and print the results.

    Args:
        package: The name of the package that the help text shows in the command.
        studies: The studies by name.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {package}", description=__doc__)
    option = parser.add_argument
    option("study", choices=list(studies), help="the study")
    option("--player", action="append", default=[], help="play this player only; repeat it for more players")
    option("--regime", default="", help="play only the regimes with this text in their name")
    option("--runs", type=int, default=sys.maxsize, help="play at most this number of runs of the evaluation")
    option("--fresh", action="store_true", help="remove the rows asked for and play them again")
    option("--check", action="store_true", help="play a row of every player again, and compare it")
    option("--workers", type=int, default=2, help="the number of processes, with one thread each")
    option("--folder", type=Path, help="the folder of the table; that of the package if it is not given")
    options = parser.parse_args()
    study = studies[options.study]
    folder = options.folder or study.folder
    for player, module in missing(study).items():
        if player in (options.player or study.players):
            print(f"{study.name}: not played: {player}, because {module} is not installed")
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
    if not comparison["same"].all():
        sys.exit(f"{study.name}: not the same: {', '.join(comparison['player'][~comparison['same']])}")


if __name__ == "__main__":
    run_or_check()
