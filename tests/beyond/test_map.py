"""The regime map and the other studies beyond the paper: their tables, who wins, and who gets stuck."""

from dataclasses import replace

import grimp
import numpy as np
import pandas as pd
import pytest
from tables_of_studies import assert_shipped

from fedgo.beyond.evidence import results
from fedgo.beyond.evidence.families import PROBLEMS
from fedgo.beyond.evidence.results import evaluations
from fedgo.beyond.evidence.roster import PLAYERS, VARIANTS
from fedgo.beyond.evidence.studies import ABLATION, BEYOND, ELSEWHERE, MAIN, MAP, REGIMES
from fedgo.experiments import traces
from fedgo.experiments.roster import ALGORITHMS
from fedgo.experiments.runner import afresh, compared, read, shipped
from fedgo.experiments.world import Regime

PLAYED = [name for name in VARIANTS if name not in ABLATION.needs]
SMALL, TINY = Regime("hartmann6", 50), Regime("hartmann6", 6, rounds=3, clients=2)


def test_every_cell_has_its_runs_and_one_setting_that_no_evaluation_chose():
    for (regime, name), rows in evaluations().items():
        assert list(rows["run"]) == [*range(MAP.runs(name, regime))]
        setting = MAP.setting(name, regime)
        assert all((rows[part] == value).all() for part, value in setting.items())
    assert {(regime, name) for regime in REGIMES for name in MAIN} <= evaluations().keys()
    assert set(PROBLEMS) == {regime.problem for regime in REGIMES}


@pytest.mark.slow
def test_a_run_of_every_family_and_of_a_search_comes_again():
    rows = read("map").query("player == 'UCB1' and seed == 0 and run == 0").drop_duplicates("problem")
    assert set(rows["problem"]) == set(PROBLEMS)
    np.testing.assert_allclose(afresh(MAP, rows)["regret"], rows["regret"], rtol=0, atol=0.0051)
    rows = read("elsewhere").query("player == 'SEARCH' and arms == 400 and run == 0")
    assert len(rows) == 1 and compared(ELSEWHERE, rows, afresh(ELSEWHERE, rows))["same"].all()


def test_the_worst_tenth_and_what_uniform_play_loses():
    assert results.worst([float(k) for k in range(20)]) == 18.5 and results.worst([3.0, 4.0]) == 4.0
    means = SMALL.world(50).problem.means.tolist()
    assert results.uniform_loss(SMALL) == pytest.approx(sum(max(of) - sum(of) / 50 for of in means) / 50)


def test_of_the_map_it_is_said_who_wins_and_who_is_stuck(monkeypatch):
    def cell(regret, late=0.0):
        return pd.DataFrame({"regret": np.array(regret, float), "late_regret": np.full(len(regret), late)})

    noise = np.random.default_rng(0).normal(size=20)
    made = {
        (SMALL, "UCB1"): cell(10 + noise, 0.5),
        (SMALL, "process"): cell(9 + noise[:10]),
        (SMALL, "network"): cell([9.5 + (-1) ** k for k in range(10)]),
    }
    monkeypatch.setattr(results, "evaluations", lambda study="map": made)
    monkeypatch.setattr(results, "uniform_loss", lambda regime: 2.0)
    assert results.players_on(SMALL) == ["UCB1", "process", "network"]
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
    monkeypatch.setattr(results, "evaluations", lambda study="map": made)
    whole = results.count_regimes(group, "process", "UCB1")
    assert whole == (3, 1, 1)
    assert results.count_regimes(group, "UCB1", "process") == (1, 1, 3)


def test_every_problem_is_bounded_by_its_bound_and_a_run_is_the_same_alone():
    played = {regime.problem for regime, *_ in shipped(MAP).cells}
    for name, entry in PROBLEMS.items():
        arms = 20
        how = {"arms": arms, "seed": 1, "sigma": 0.5, **entry.options}
        whole, alone = entry.make(runs=range(3), **how), entry.make(runs=[2], **how)
        assert np.array_equal(whole.arms[2], alone.arms[0]), name
        assert np.allclose(whole.means[2], alone.means[0], rtol=1e-12)
        assert entry.bound is None or float(whole.means.abs().max()) <= entry.bound
        assert float(whole.means.std()) > 0.05 and name in played


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PLAYERS, *(f"variant {name}" for name in PLAYED)])
def test_every_player_plays_a_small_regime_to_its_end(name):
    player = PLAYERS[name] if name in PLAYERS else VARIANTS[name.removeprefix("variant ")]
    world = TINY.world(2, encoding="counts")
    trace = player.call(world, {"kappa": 1.0} if player.setting_of else player.grid[0])
    # T₀ + NT = 3 + 6: after 6 arms there is one round of two left, or with the advised rule whole rounds beyond
    steps = {"process, each arm first": 6 + 2} | dict.fromkeys(("advised", "before", "UCB1, planned"), 2 + 8)
    steps["each arm first"] = 6 + 4
    assert trace.arm.shape[1] == steps.get(name.removeprefix("variant "), world.steps)
    assert (trace.communication[:, -1] > 0).all() == (name != "N-GO-UCB")


@pytest.mark.parametrize("study", BEYOND, ids=lambda study: study.name)
def test_the_shipped_table_of_a_study_is_whole_and_every_row_has_an_origin(study):
    assert_shipped(study)


def test_the_code_of_all_that_is_played_counts_and_that_of_a_figure_does_not() -> None:
    names = {
        ".".join(file.relative_to(traces.PACKAGE.parent).with_suffix("").parts) for file in traces.files()
    }
    graph = grimp.build_graph("fedgo", cache_dir=None)
    for player in (*ALGORITHMS.values(), *PLAYERS.values()):
        algorithm = getattr(player.call, "key", "fedgo.problem.Problem").split(", ")[0]
        played = max((name for name in graph.modules if algorithm.startswith(f"{name}.")), key=len)
        others = ({player.call.__module__, played} | graph.find_upstream_modules(played)) - names
        # what runs studies and keeps tables is no part of a player
        assert all(name.startswith(("fedgo.experiments.", "fedgo.beyond.evidence.")) for name in others)
    assert not names & {"fedgo.pages.figures", "fedgo.experiments.runner", "fedgo.beyond.study.study"}
