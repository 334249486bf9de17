"""What the tables of the studies say: choices, and what a run costs."""

from itertools import pairwise

import pandas as pd
import pytest

from fedgo.experiments.results import judged, ranked, tuned
from fedgo.experiments.roster import ALGORITHMS
from fedgo.experiments.studies import CURVES, RUNGS, STUDIES, curve, exponent
from fedgo.experiments.world import EXPERIMENTS, Regime

# --- Tunings


def test_a_winner_is_the_best_of_the_last_rung_and_leaders_stay():
    for name, regime in EXPERIMENTS.items():
        for algorithm in ALGORITHMS:
            rungs = ranked("tune", algorithm, (regime,))
            rows = judged(name, algorithm)
            last = rows[rows["runs"] == rows["runs"].max()]
            best = last.loc[last["regret"].idxmin()]
            assert {part: best[part] for part in rungs[-1][0]} == rungs[-1][0] == tuned(name, algorithm)
            assert all(wide[0] in narrow for wide, narrow in pairwise(rungs))
            sizes = [min(rung.settings, len(ALGORITHMS[algorithm].grid)) for rung in RUNGS]
            assert [len(rung) for rung in rungs] == sizes


# --- Costs


def test_the_exponent_is_that_of_a_power_and_a_curve_is_by_what_changes():
    rows = pd.DataFrame({"value": [1, 10, 100], "seconds": [90.0, 2 * 10**1.5, 2 * 100**1.5]})
    assert exponent(rows) == pytest.approx(1.5)  # what does not grow does not count
    for name, (by, _) in CURVES.items():
        rows = curve(name)
        assert rows["value"].is_monotonic_increasing and (rows["seconds"] > 0).all()
        same = [part for part in ("arms", "clients", "rounds", "hidden") if rows[part].nunique() > 1]
        assert same == [by]
    assert list(curve("units")["value"]) == [201, 401, 801, 2001]


@pytest.mark.slow
def test_a_size_is_measured_in_a_process_of_its_own():
    study, regime = STUDIES["costs"], Regime("hartmann6", 50, rounds=2, clients=2)
    (row,) = study.measure(study.job(regime, "parameter space", {"hidden": 3}, 0, (0,)))
    assert 0.05 < row["gigabytes"] < 20 and row["seconds"] > 0 and row["hidden"] == 3
