"""What the tables of the studies say: choices, cells, who wins and who gets stuck."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from fedgo.beyond.map.results import evaluations
from fedgo.beyond.map.roster import VARIANTS
from fedgo.beyond.map.studies import MAIN, MAP, REGIMES
from fedgo.experiments import results, runner
from fedgo.experiments.results import judged, ranked, summary, tuned
from fedgo.experiments.roster import ALGORITHMS
from fedgo.experiments.runner import afresh, known, read
from fedgo.experiments.studies import CURVES, RUNGS, STUDIES, curve, exponent
from fedgo.experiments.world import EXPERIMENTS, PROBLEMS, TUNING_SEED, Regime

SMALL = Regime("hartmann6", 50)


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


def test_a_summary_from_single_runs_is_that_of_the_kept_means(monkeypatch):
    """One setting for four on rung one, with single runs in place of what was kept of a tuning."""
    draw = np.random.default_rng(0)
    grid = ALGORITHMS["DisLinUCB"].grid
    rows = []
    for place, setting in enumerate(grid):
        for run in range(100):
            row = vars(EXPERIMENTS["hartmann6"]) | {"player": "DisLinUCB", **setting, "seed": TUNING_SEED}
            rows.append(row | {"run": run, "regret": 10 + place + draw.normal()})
    table = runner.Known(pd.DataFrame(rows))
    monkeypatch.setattr(results, "known", lambda study: table)
    monkeypatch.setattr(runner, "known", lambda study: table)
    monkeypatch.setattr(results, "read", lambda study: read(study).iloc[:0])
    ranked.cache_clear()
    try:
        found, every = summary("hartmann6", "DisLinUCB"), judged("hartmann6", "DisLinUCB")
        assert tuned("hartmann6", "DisLinUCB") == grid[0] and found.runs == 100
        assert found.regret == pytest.approx(10, abs=0.3) and found.error == pytest.approx(0.1, abs=0.03)
        assert found.worst == pytest.approx(4.1, abs=0.3) and found.median == pytest.approx(2.55, abs=0.2)
        best = every[(every["lam"] == grid[0]["lam"]) & (every["beta"] == grid[0]["beta"])]
        assert list(best["runs"]) == [10, 30, 100] and (best["low"] == 0).all() and len(every) == 32 + 12 + 8
    finally:
        ranked.cache_clear()


# --- The map


def test_every_cell_has_its_runs_and_one_setting_that_no_evaluation_chose():
    for (regime, name), rows in evaluations().items():
        assert list(rows["run"]) == [*range(MAP.runs(name, regime))]
        setting = MAP.setting(name, regime)
        assert all((rows[part] == value).all() for part, value in setting.items())
    assert [
        (regime, name) for regime in REGIMES for name in MAIN if (regime, name) not in evaluations()
    ] == []
    assert set(PROBLEMS) == {regime.problem for regime in REGIMES}


@pytest.mark.slow
def test_a_run_of_every_family_comes_again():
    rows = read("map").query("player == 'UCB1' and seed == 0 and run == 0").sort_values(["arms", "rounds"])
    rows = rows.drop_duplicates("problem")
    assert set(rows["problem"]) == set(PROBLEMS)
    np.testing.assert_allclose(afresh(MAP, rows)["regret"], rows["regret"], rtol=0, atol=0.0051)


def test_the_variants_change_what_their_names_say_and_choose_their_own_kappa():
    for name in VARIANTS:
        tries = results.tried("ablation", name, SMALL)
        means = [rows["regret"].mean() for _, rows in tries]
        kappa = tries[int(np.argmin(means))][0]["kappa"]
        assert set(results.evaluated("ablation", SMALL)[name]["kappa"]) == {kappa}


def test_the_worst_tenth_and_what_uniform_play_loses():
    assert results.worst([float(k) for k in range(20)]) == 18.5 and results.worst([3.0, 4.0]) == 4.0
    means = SMALL.world(50).problem.means.tolist()
    assert results.uniform(SMALL) == pytest.approx(sum(max(of) - sum(of) / 50 for of in means) / 50)


def test_of_the_map_it_is_said_who_wins_and_who_is_stuck(monkeypatch):
    def cell(regret, late=0.0):
        return pd.DataFrame({"regret": np.array(regret, float), "late_regret": np.full(len(regret), late)})

    noise = np.random.default_rng(0).normal(size=20)
    made = {
        (SMALL, "UCB1"): cell(10 + noise, 0.5),
        (SMALL, "process"): cell(9 + noise[:10]),
        (SMALL, "network"): cell([9.5 + (-1) ** k for k in range(10)]),
    }
    monkeypatch.setattr(results, "cells", lambda: made)
    monkeypatch.setattr(results, "uniform", lambda regime: 2.0)
    assert results.players(SMALL) == ["UCB1", "process", "network"]
    assert results.difference(SMALL, "process", "UCB1") == pytest.approx((-1, -1, -1))
    assert results.ratio(SMALL, "process", "UCB1")[0] == pytest.approx(
        (9 + noise[:10].mean()) / (10 + noise[:10].mean())
    )
    assert results.leader(SMALL) == "process" and results.alike(SMALL) == ["process", "network"]
    assert results.stuck(SMALL, "UCB1").all() and not results.stuck(SMALL, "process").any()
    found = results.across([SMALL, SMALL], "UCB1")
    assert found.regret == pytest.approx((10 + noise.mean()) / (2 * 2045)) and found[2:] == (40, 40)


def test_regimes_are_counted_by_the_side_of_one_on_which_the_whole_interval_lies(monkeypatch):
    group = [replace(SMALL, arms=10 * k) for k in range(1, 6)]
    noise = np.random.default_rng(0).normal(size=20)
    made = {(one, "UCB1"): pd.DataFrame({"regret": 10 + noise}) for one in group}
    for one, shift in zip(group, (-1.0, -1.0, -1.0, 0.0, 1.0), strict=True):
        spread = 0.0 if shift else (-1.0) ** np.arange(20)
        made[one, "process"] = pd.DataFrame({"regret": 10 + noise + shift + spread})
    monkeypatch.setattr(results, "cells", lambda: made)
    whole = results.compared(group, "process", "UCB1")
    assert whole == (3, 1, 1)
    assert results.compared(group, "UCB1", "process") == (1, 1, 3)


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


def test_every_problem_is_bounded_by_its_bound_and_a_run_is_the_same_alone():
    played = {regime.problem for regime, *_ in known("map").cells}
    for name, entry in PROBLEMS.items():
        arms = 20
        whole = entry.make(range(3), arms=arms, seed=1, sigma=0.5)
        alone = entry.make([2], arms=arms, seed=1, sigma=0.5)
        assert np.array_equal(whole.arms[2], alone.arms[0]), name
        assert np.allclose(whole.means[2], alone.means[0], rtol=1e-12)
        assert entry.bound is None or float(whole.means.abs().max()) <= entry.bound
        assert float(whole.means.std()) > 0.05 and name in played
