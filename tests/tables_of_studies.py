"""What every table has to say that is shipped with a study, of the paper or beyond it."""

import pandas as pd

from fedgo.experiments import runner


def assert_shipped(study: runner.Sweep) -> None:
    """The table of ``study`` lacks no run, and each call that added rows says when and how."""
    name, known = study.name, runner.shipped(study)
    played = study.players.keys() - runner.missing(study).keys()
    missing = [player for player in played if any(study.jobs(known, player))]
    assert not missing, f"rows of {missing} are missing in {name}.csv: run `make study NAME={name}`"
    table = pd.read_csv(study.folder / f"{name}.csv")
    made = runner.facts(name, study.folder)["made"]
    assert len(table) <= sum(entry["rows"] for entry in made)
    assert all(("commit" in entry) != ("origin" in entry) for entry in made)
