"""What every table has to say that is shipped with a study, of the paper or beyond it."""

import pandas as pd

from fedgo.experiments import runner


def assert_shipped(study: runner.Sweep) -> None:
    """The table of ``study`` lacks no run, and each row has an origin; without the column all have one."""
    name, known = study.name, runner.shipped(study)
    missing = [player for player in study.players if any(study.jobs(known, player))]
    assert not missing, f"rows of {missing} are missing in {name}.csv: run `make study NAME={name}`"
    table = pd.read_csv(study.folder / f"{name}.csv")
    made = runner.facts(name, study.folder)["made"]
    counts = table.get("made", pd.Series(0, table.index)).value_counts()
    assert counts.sum() == len(table) and {*counts.index} <= {*range(len(made))}
    for place, rows in counts.items():
        assert rows <= made[place]["rows"] and ("commit" in made[place]) != ("origin" in made[place])
