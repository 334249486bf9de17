"""Equal tuning: every algorithm has the same budget, and the file of winners is what the code's grids give."""

import json

import pytest

from fedgo.paper.experiments import (
    ALGORITHMS,
    EXPERIMENTS,
    TUNED_FILE,
    TUNING_RUNS,
    TUNING_SEED,
    YARDSTICK,
    YARDSTICK_ON,
    YARDSTICK_STEPS,
    YARDSTICKS,
    evaluate,
    tuned,
    world,
)
from fedgo.paper.tune import tune_algorithm, tune_experiment

BUDGET = 24
EVERY = ALGORITHMS | YARDSTICKS
TUNED = [(name, a) for name in EXPERIMENTS for a in (EVERY if name == YARDSTICK_ON else ALGORITHMS)]


@pytest.fixture(scope="module")
def file():
    return json.loads(TUNED_FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EVERY)
def test_every_algorithm_has_the_same_number_of_settings(name):
    grid = EVERY[name].grid
    assert len(grid) == (1 if name == "Uniform" else BUDGET)
    assert len({json.dumps(setting, sort_keys=True) for setting in grid}) == len(grid)


def test_no_algorithm_has_its_threshold_tuned():
    assert not any("gamma" in setting for algorithm in EVERY.values() for setting in algorithm.grid)


def test_the_paper_compares_six_algorithms():
    assert [name for name, algorithm in ALGORITHMS.items() if algorithm.in_paper] == [
        "Fed-GO-UCB", "One-GO-UCB", "N-GO-UCB", "DisLinUCB", "Fed-GLB-UCB", "ApproxDisKernelUCB",
    ]  # fmt: skip


def test_the_file_says_how_it_was_made(file):
    assert file["about"].items() >= {"runs": TUNING_RUNS, "seed": TUNING_SEED}.items()


def test_the_file_has_every_experiment_and_algorithm(file):
    assert list(file["experiments"]) == list(EXPERIMENTS)
    assert [(name, a) for name, found in file["experiments"].items() for a in found] == TUNED


@pytest.mark.parametrize(("name", "algorithm"), TUNED)
def test_the_file_has_the_grid_of_the_code_and_its_best_setting(file, name, algorithm):
    found = file["experiments"][name][algorithm]
    rows = found["grid"]
    assert [row["setting"] for row in rows] == [dict(setting) for setting in EVERY[algorithm].grid]
    assert all(row["regret"] > 0 and row["error"] >= 0 for row in rows)
    best = min(row["regret"] for row in rows)
    assert found["winner"] in [row["setting"] for row in rows if row["regret"] == best]  # 0.1 may hide a tie
    assert tuned(name, algorithm) == found["winner"]


@pytest.mark.parametrize("algorithm", ["DisLinUCB", "Uniform"])
def test_tuning_again_gives_the_numbers_of_the_file(file, algorithm):
    within = world("hartmann6", TUNING_RUNS, TUNING_SEED)
    found = json.loads(json.dumps(tune_algorithm(within, ALGORITHMS[algorithm])))
    assert found == file["experiments"]["hartmann6"][algorithm]


def test_no_evaluation_uses_the_tuning_instances():
    with pytest.raises(ValueError, match=rf"seed is {TUNING_SEED}: .*tuning"):
        evaluate("hartmann6", 1, TUNING_SEED, ["Uniform"])


def test_an_evaluation_of_more_runs_than_fit_at_once_is_one_trace(file):
    traces = evaluate("hartmann6", 12, algorithms=["DisLinUCB", "Uniform"])
    few = evaluate("hartmann6", 2, algorithms=["DisLinUCB"])
    assert set(traces) == {"DisLinUCB", "Uniform"}
    for name, trace in traces.items():
        assert trace.algorithm == name and len(trace.arm) == 12
    assert traces["DisLinUCB"].first(2).arm.equal(few["DisLinUCB"].arm)


def test_the_yardstick_runs_as_tuned_and_on_one_experiment_only(monkeypatch):
    calls = []
    monkeypatch.setattr("fedgo.paper.experiments.gp_ucb", lambda *arguments: calls.append(arguments))
    within = world(YARDSTICK_ON, 2)
    YARDSTICKS[YARDSTICK].run(within, {"beta": 0.7})
    assert calls == [(within.problem, within.clients, YARDSTICK_STEPS, 0.7)]
    assert tune_experiment(next(name for name in EXPERIMENTS if name != YARDSTICK_ON), [YARDSTICK]) == {}
