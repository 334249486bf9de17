"""What a run costs: the benchmark measures a run by itself, and the shipped tables have every curve."""

import pytest

from fedgo.experiments.runner import read, shipped
from fedgo.experiments.world import Regime

costs = pytest.importorskip("costs")  # it measures memory, as only Unix can


@pytest.mark.parametrize("name", costs.STUDIES)
def test_the_shipped_table_has_every_size_of_every_curve(name: str) -> None:
    study, known = costs.STUDIES[name], shipped(costs.STUDIES[name])
    assert [curve for curve in study.players if any(study.jobs(known, curve))] == []
    assert (read(name)[["seconds", "gigabytes"]] > 0).all(axis=None)


@pytest.mark.slow
def test_a_size_is_measured_in_a_process_of_its_own() -> None:
    study, regime = costs.STUDIES["costs"], Regime("hartmann6", 50, rounds=2, clients=2)
    (row,) = study.measure(costs.Job(study, regime, "parameter space", {"hidden": 3}, 0, (0,)))
    assert 0.05 < row["gigabytes"] < 20 and row["seconds"] > 0 and row["hidden"] == 3
