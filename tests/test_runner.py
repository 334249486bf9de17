"""The frame: successive halving finds a known best setting, a table grows by what it lacks, and its rows come again."""

import json
from collections import Counter
from dataclasses import replace

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from distributed import Client, LocalCluster

from fedgo.experiments import runner
from fedgo.experiments.halving import Rung, halve, together
from fedgo.experiments.players import Player, World, grid
from fedgo.experiments.regimes import PROBLEMS, TUNING_SEED, Entry, Regime
from fedgo.experiments.roster import PLAYERS, VARIANTS
from fedgo.experiments.runner import Study, afresh, check, read, run
from fedgo.experiments.studies import STUDIES
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


def climbed(rungs=RUNGS, limit=99):
    """The choice among `BETAS`, computing what waits, and how many runs each setting was given."""
    runs = dict.fromkeys(range(12), 0)

    def score(beta, wanted):
        if runs[beta] < wanted:
            return None
        return sum(pretend(beta, run) for run in range(wanted)) / wanted

    for _ in range(limit):
        found = halve(range(12), rungs, score)
        if not found.waiting:
            break
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
    assert together([2.0]) == 2.0 and together([2.0, None]) is None
    assert together([1.0, 9.0]) == pytest.approx(20**0.5 - 1)
    means = {"a": [1.0, 9.0], "b": [5.0, 4.0]}  # √(2·10) < √(6·5), though 5 > 4.5
    assert halve(["b", "a"], [Rung(2, 1)], lambda one, runs: together(means[one])).ranked == [["a", "b"]]


# --- The runner


class Counting:
    """A player with known regrets, which counts the runs that it plays."""

    def __init__(self, stop: int | None = None):
        self.calls, self.stop = [], stop

    def __call__(self, world: World, setting) -> Trace:
        if len(self.calls) == self.stop:
            raise KeyboardInterrupt
        self.calls.append((setting["beta"], world.problem.name, world.problem.seed, world.problem.runs))
        regret = torch.tensor([[pretend(setting["beta"], run)] for run in world.problem.runs]).double()
        nothing = torch.zeros(regret.shape, dtype=torch.int64)
        return Trace("x", "y", 2, 0, nothing, -regret, regret, nothing, nothing, nothing.bool())

    @property
    def played(self):
        """How often each (setting, problem, seed, run) was."""
        return Counter((beta, name, seed, run) for beta, name, seed, runs in self.calls for run in runs)


def made_up(play, **changes):
    """A choice on one regime, and five runs on two."""
    players = {"A": Player(play, BETAS)}
    usual = {
        "chosen_on": lambda name: [(SMALL,)],
        "rungs": lambda name: RUNGS,
        "regimes": (SMALL, OTHER),
        "runs": lambda name, regime: 5,
        "batch": 7,
    }
    return Study("made up", "a test", players, ("regret", "scalars", "seconds"), **usual | changes)


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
    assert np.allclose(plain["regret"], table["regret"], rtol=1e-15)
    (made,) = json.loads((tmp_path / "made up.json").read_text())["made"]
    assert made["rows"] == len(table) and {"when", "commit", "command", "torch", "numpy"} <= set(made)


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


def test_a_problem_of_ones_own_is_an_entry(tmp_path, monkeypatch):
    monkeypatch.setitem(PROBLEMS, "mine", Entry(hartmann6, "Mine", bound=8.4))
    mine = Regime("mine", 6, rounds=3, clients=2)
    play = Counting()
    study = made_up(play, regimes=(mine,), chosen_on=lambda name: [(mine,)])
    assert set(run(study, folder=tmp_path)["problem"]) == {"mine"}
    monkeypatch.setitem(PROBLEMS, "mine", Entry(cosine8, "Mine"))  # written anew in one session
    run(study, fresh=True, folder=tmp_path)
    assert {name for _, name, *_ in play.calls} == {"Hartmann6", "Cosine8"}
    assert set(play.played.values()) == {1}
    assert mine.title == "Mine, 6 arms, T 3"
    with pytest.raises(ValueError, match="problem is 'hers': choose one of"):
        Regime("hers").world(1)


def tiny(**changes):
    """Three of the map's players on a small regime."""
    names = ("UCB1", "DisLinUCB", "Fed-GLB-UCB")
    return replace(
        STUDIES["map"],
        name="tiny",
        players={name: PLAYERS[name] for name in names},
        chosen_on=lambda name: [(SMALL, OTHER)],
        regimes=(SMALL,),
        runs=lambda name, regime: 4,
        **changes,
    )


@pytest.mark.slow
def test_rows_come_again_and_a_changed_one_is_found(tmp_path):
    table = run(tiny(), folder=tmp_path)
    found = check(tiny(), seed=3, folder=tmp_path)
    assert list(found["player"]) == ["DisLinUCB", "Fed-GLB-UCB", "UCB1"] and found["same"].all()
    rows = table[table["seed"] == 0].sample(6, random_state=1)
    again = afresh(tiny(), rows)
    assert (again.index == rows.index).all() and np.allclose(
        again["regret"], rows["regret"], rtol=0, atol=1e-12
    )
    changed = table.assign(regret=table["regret"] + (table["player"] == "UCB1"))
    changed.to_csv(tmp_path / "tiny.csv", index=False)
    read.cache_clear()
    assert list(check(tiny(), seed=3, folder=tmp_path)["same"]) == [True, True, False]


@pytest.mark.slow
def test_on_processes_and_on_a_cluster_the_rows_are_the_same(tmp_path):
    alone = run(tiny(), folder=tmp_path).drop(columns="seconds")
    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50
    )
    with cluster, Client(cluster):
        for backend in ("loky", "dask"):
            with joblib.parallel_config(backend=backend, n_jobs=2):
                found = run(tiny(), folder=tmp_path / backend).drop(columns="seconds")
            pd.testing.assert_frame_equal(found, alone)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PLAYERS, *(f"variant {name}" for name in VARIANTS)])
def test_every_player_plays_a_small_regime_to_its_end(name):
    player = PLAYERS[name] if name in PLAYERS else VARIANTS[name.removeprefix("variant ")]
    world = SMALL.world(2, encoding="counts")
    trace = player.play(world, {"kappa": 1.0} if player.setting_of else player.grid[0])
    # T₀ + NT = 3 + 6: after 6 arms there is one round of two left, or with the advised rule whole rounds beyond
    steps = {"process, each arm first": 6 + 2} | dict.fromkeys(("advised", "bold", "UCB1, planned"), 2 + 8)
    steps["each arm first"] = 6 + 4
    assert trace.arm.shape[1] == steps.get(name.removeprefix("variant "), world.steps)
    assert (trace.communication[:, -1] > 0).all() == (name != "N-GO-UCB")


# --- The lists


@pytest.mark.parametrize("name", STUDIES)
def test_the_shipped_table_of_a_study_is_whole(name):
    known = runner.known(name)
    assert [job for player in STUDIES[name].players for job in STUDIES[name].jobs(known, player)] == []


def test_no_setting_is_given_twice_and_no_threshold_is_tuned():
    for study in STUDIES.values():
        for player in study.players.values():
            assert len({str(setting) for setting in player.grid}) == len(player.grid)
            assert not any("gamma" in setting for setting in player.grid)
        for name in study.players:
            rungs = study.rungs(name)
            assert [*rungs] == sorted(rungs, key=lambda rung: (-rung.settings, rung.runs))
