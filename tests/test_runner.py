"""The frame: successive halving finds a known best setting, a table grows by what it lacks, and its rows come again."""

import json
import sys
from collections import Counter
from dataclasses import replace

import joblib
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from instances import made_trace
from tables_of_studies import assert_shipped

from fedgo.experiments import __main__ as command
from fedgo.experiments import runner
from fedgo.experiments.halving import Rung, halve, score_of
from fedgo.experiments.players import Player, grid
from fedgo.experiments.runner import Sweep, compared, run
from fedgo.experiments.studies import STUDIES
from fedgo.experiments.world import TUNING_SEED, Entry, Regime, World
from fedgo.problems import cosine8, hartmann6
from fedgo.trace import Trace

RUNGS = (Rung(12, 4), Rung(5, 10), Rung(3, 30))
BETAS = grid(beta=tuple(float(k) for k in range(12)))
SMALL, OTHER = Regime("hartmann6", 6, rounds=3, clients=2), Regime("cosine8", 6, rounds=3, clients=2)


def pretend(beta: float, run: int) -> float:
    """10 + 3|β − 7| and noise of the run alone, but β = 3 is lucky at first: 0 in its first four runs."""
    noise = np.random.default_rng(run).normal()
    return 0.0 if beta == 3 and run < 4 else 10 + 3 * abs(beta - 7) + noise


# --- Successive halving


def climbed():
    """The choice among `BETAS`, computing what waits, and how many runs each setting was given."""
    runs = dict.fromkeys(range(12), 0)

    def score(beta, wanted):
        if runs[beta] < wanted:
            return None
        return sum(pretend(beta, run) for run in range(wanted)) / wanted

    while (found := halve(range(12), RUNGS, score)).waiting:
        runs.update(dict.fromkeys(found.waiting, found.runs))
    return found, runs


def test_the_best_setting_wins_and_a_lucky_one_stays_to_be_judged():
    found, runs = climbed()
    first, second, third = found.ranked
    assert len(first) == 12 and first[0] == 3  # lucky in four runs
    assert second[0] == third[0] == 7 and {3, 7, 6, 8} < set(second) and 3 in third
    assert [len(rung) for rung in found.ranked] == [12, 5, 3]
    assert sorted(runs.values()) == [4] * 7 + [10] * 2 + [30] * 3  # the budget, to the run


def test_a_setting_for_several_regimes_has_the_least_geometric_mean():
    assert score_of([2.0]) == 2.0 and score_of([2.0, None]) is None
    assert score_of([1.0, 9.0]) == pytest.approx(20**0.5 - 1)
    means = {"a": [1.0, 9.0], "b": [5.0, 4.0]}  # √(2·10) < √(6·5), though 5 > 4.5
    assert halve(["b", "a"], [Rung(2, 1)], lambda one, runs: score_of(means[one])).ranked == [["a", "b"]]


# --- The runner


class Counting:
    """A player with known regrets, which counts the runs that it plays."""

    def __init__(self, stop: int | None = None):
        self.calls, self.stop = [], stop

    def __call__(self, world: World, setting) -> Trace:
        if len(self.calls) == self.stop:
            raise KeyboardInterrupt
        self.calls.append((setting["beta"], world.problem.name, world.problem.seed, world.problem.runs))
        return made_trace([[pretend(setting["beta"], run)] for run in world.problem.runs])

    @property
    def played(self):
        """How often each (setting, problem, seed, run) was."""
        return Counter((beta, name, seed, run) for beta, name, seed, runs in self.calls for run in runs)


def made_up(play, **changes):
    """A choice on one regime, and five runs on two."""
    usual = {
        "players": {"A": Player(play, BETAS)},
        "columns": ("regret", "scalars", "seconds"),
        "chosen_on": lambda name: [(SMALL,)],
        "rungs": lambda name: RUNGS,
        "regimes": lambda name: (SMALL, OTHER),
        "runs": lambda name, regime: 5,
        "batch": 7,
    }
    return Sweep("made up", "a test", **usual | changes)


def test_a_study_plays_every_run_once_and_chooses_where_nothing_is_evaluated(tmp_path):
    play = Counting()
    table = run(made_up(play), folder=tmp_path)
    assert set(play.played.values()) == {1} and len(table) == len(play.played) == 12 * 4 + 5 * 6 + 3 * 20 + 10
    assert all(len(runs) <= 7 for *_, runs in play.calls)
    evaluated = table[table["seed"] == 0]
    assert set(evaluated["beta"]) == {7.0} and sorted(evaluated["problem"].value_counts()) == [5, 5]
    assert set(table["seed"]) == {0, TUNING_SEED}
    row = table[(table["seed"] == TUNING_SEED) & (table["beta"] == 3.0) & (table["run"] == 20)].iloc[0]
    assert row["regret"] == pytest.approx(pretend(3.0, 20)) and row["player"] == "A"


def test_the_table_is_what_pandas_reads_and_its_facts_stand_beside_it(tmp_path):
    table = run(made_up(Counting()), folder=tmp_path)
    plain = pd.read_csv(tmp_path / "made up.csv")
    assert list(plain.columns) == [
        "problem", "arms", "sigma", "rounds", "clients", "player", "beta", "seed", "run",
        "regret", "scalars", "seconds",
    ]  # fmt: skip
    expected = [round(pretend(*each), 6) for each in zip(plain["beta"], plain["run"], strict=True)]
    assert list(plain["regret"]) == list(table["regret"]) == expected
    (made,) = json.loads((tmp_path / "made up.json").read_text())["made"]
    assert made["rows"] == len(table) and set(made) == {"when", "commit", "command", "rows"}


@pytest.mark.parametrize("stop", [1, 9, 14, 26])
def test_an_interrupted_study_goes_on_where_it_was(tmp_path, tmp_path_factory, stop):
    whole, before, after = Counting(), Counting(stop), Counting()
    expected = run(made_up(whole), folder=tmp_path_factory.mktemp("whole"))
    with pytest.raises(KeyboardInterrupt):
        run(made_up(before), folder=tmp_path)
    found = run(made_up(after), folder=tmp_path)
    assert before.played + after.played == whole.played
    pd.testing.assert_frame_equal(found.drop(columns="seconds"), expected.drop(columns="seconds"))


def test_only_what_is_asked_for_is_played_and_no_other_row_goes(tmp_path):
    first, second = Counting(), Counting()
    one = made_up(first)
    table = run(one, regime="cosine8", runs=2, folder=tmp_path)
    evaluated = table[table["seed"] == 0]
    assert list(evaluated["run"]) == [0, 1] and set(evaluated["problem"]) == {"cosine8"}
    both = replace(one, players=one.players | {"B": Player(second, grid(beta=(1.0,)))})
    more = run(both, players=["B"], folder=tmp_path)
    assert len(more[more["player"] == "A"]) == len(table) and second.calls
    before = len(first.calls)
    again = run(both, players=["B"], fresh=True, folder=tmp_path)
    assert len(again) == len(more) and len(first.calls) == before and set(second.played.values()) == {2}
    with pytest.raises(ValueError, match=r"player is 'C': choose from \('A', 'B'\)"):
        run(both, players=["C"], folder=tmp_path)
    with pytest.raises(ValueError, match=r"regime is 'magic': give a part of .*'hartmann6, K=6"):
        run(both, regime="magic", folder=tmp_path)


def test_a_problem_of_ones_own_is_an_entry(tmp_path):
    """Also one that is written anew, under the same name, in one session."""
    play = Counting()
    for entry in (Entry(hartmann6, "Mine", bound=8.4), Entry(cosine8, "Mine")):
        mine = Regime("mine", 6, rounds=3, clients=2, problems={"mine": entry})
        study = made_up(
            play, regimes=lambda name, mine=mine: [mine], chosen_on=lambda name, mine=mine: [(mine,)]
        )
        assert set(run(study, fresh=True, folder=tmp_path)["problem"]) == {"mine"}
    assert {name for _, name, *_ in play.calls} == {"Hartmann6", "Cosine8"}
    assert set(play.played.values()) == {1}
    with pytest.raises(ValueError, match="problem is 'hers': choose one of"):
        Regime("hers").world(1)


def test_rows_come_again_up_to_the_tolerance_and_means_are_not_compared(tmp_path):
    study = made_up(Counting(), columns=("regret", "scalars_dense", "seconds"))
    table = pd.DataFrame(
        {
            **{name: [value] * 2 for name, value in SMALL.columns.items()},
            "player": "A", "beta": 1.0, "seed": 0, "run": [0, 1],
            "regret": [2.5, np.nan], "scalars_dense": [7.5, 7.0], "seconds": [1.0, 2.0],
        }
    )  # fmt: skip
    table.to_csv(tmp_path / "made up.csv", index=False)
    (tmp_path / "made up.json").write_text(json.dumps({"made": [{"batch means": ["scalars_dense"]}, {}]}))
    now = table[list(study.columns)].assign(scalars_dense=[7.0, 8.0], seconds=0.1)
    for regret, same in ((2.505, True), (2.506, False), (np.nan, False)):
        found = compared(study, table, now.assign(regret=[regret, 1.0]), tmp_path)
        assert list(found["not_compared"]) == ["scalars_dense, seconds", "regret, scalars_dense, seconds"]
        assert list(found["same"]) == [same, True]


def test_the_command_fails_on_a_wrong_row_and_says_what_it_left_out(tmp_path, monkeypatch, capsys):
    play = Counting()
    study = made_up(play, needs={"B": "no_such_module"})
    study = replace(study, players=dict.fromkeys("AB", study.players["A"]))
    table = run(study, folder=tmp_path)
    calls = len(play.calls)
    monkeypatch.setattr(sys, "argv", ["", "made up", "--check", "--workers", "1", "--folder", str(tmp_path)])
    tuned = table["seed"] == study.tuning_seed
    assert tuned.any()
    table.assign(regret=table["regret"] + tuned).to_csv(tmp_path / "made up.csv", index=False)
    runner.forget()
    command.run_or_check(studies={"made up": study})
    assert len(play.calls) == calls + 1
    said = capsys.readouterr().out
    assert "made up: not compared: seconds of A" in said
    assert "made up: not played: B, because no_such_module is not installed" in said
    assert run(study, players=["B"], fresh=True, folder=tmp_path).equals(
        table.assign(regret=table["regret"] + tuned)
    )
    table.assign(regret=table["regret"] + 0.01).to_csv(tmp_path / "made up.csv", index=False)
    runner.forget()
    with pytest.raises(SystemExit, match="made up: not the same: A"):
        command.run_or_check(studies={"made up": study})


@pytest.mark.slow
def test_on_processes_and_on_a_cluster_the_rows_are_the_same(tmp_path):
    study = made_up(Counting())
    alone = run(study, folder=tmp_path).drop(columns="seconds")
    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50
    )
    with cluster, Client(cluster):
        for backend in ("loky", "dask"):
            with joblib.parallel_config(backend=backend, n_jobs=2):
                found = run(study, folder=tmp_path / backend).drop(columns="seconds")
            pd.testing.assert_frame_equal(found, alone)


# --- The lists


@pytest.mark.parametrize("name", STUDIES)
def test_the_shipped_table_of_a_study_is_whole_and_every_row_has_an_origin(name):
    assert_shipped(STUDIES[name])


def test_no_setting_is_given_twice_and_no_threshold_is_tuned():
    for study in STUDIES.values():
        for player in study.players.values():
            assert len({str(setting) for setting in player.grid}) == len(player.grid)
            assert not any("gamma" in setting for setting in player.grid)
        for name in study.players:
            rungs = study.rungs(name)
            assert [*rungs] == sorted(rungs, key=lambda rung: (-rung.settings, rung.runs))
