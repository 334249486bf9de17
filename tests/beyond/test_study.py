"""A study on options of one's own: the simulator's arms, many open trials, sites, mistakes, its file, its commands."""

import json
import math
import random
import re
from dataclasses import replace

import pandas as pd
import pytest
import torch

from fedgo import Problem
from fedgo.beyond.method.advised import ADVISED, UCB1
from fedgo.beyond.method.networks import Relinearised
from fedgo.beyond.study.study import Study
from fedgo.beyond.study.table import Options
from fedgo.beyond.study.trials import _planned, as_lines
from fedgo.network import Network

LINES = [
    "name,sugar,heat,fixed",
    "plain,0,100,7",
    "sweet,30,110,7",
    "hot,10,200,7",
    "both,25,190,7",
    "some,12,140,7",
]
TASTE = {"plain": 2.0, "sweet": 3.0, "hot": 3.5, "both": 2.5, "some": 4.0, "more": 3.9}
PLAIN = {"trials": 30, "noise": 0.1, "goal": "reward"}
GUARDED = PLAIN | {"centre": 3.0, "reach": 3.0}
OWN = PLAIN | {"method": Relinearised(Network(2, 3), 1)}


@pytest.fixture
def csv(tmp_path):
    return written(tmp_path / "options.csv", LINES)


def written(path, lines):
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def opened(csv, name="study.json", **how):
    return Study(csv.parent / name, csv, **(how or PLAIN))


def go_on(study, pulls, draw, site=None):
    asked = []
    for _ in range(pulls):
        asked.append(study.ask(site))
        study.tell(asked[-1], TASTE[asked[-1]] + draw.gauss(0, 0.1), site)
    return asked


@pytest.mark.parametrize(("method", "how"), [("advised", ADVISED), ("ucb1", UCB1)])
def test_a_study_asks_for_the_arms_of_the_simulator_with_one_client(tmp_path, method, how):
    draw = torch.Generator().manual_seed(0)
    arms = torch.rand(1, 40, 3, generator=draw, dtype=torch.float64)
    problem = Problem("sines", arms, torch.sin(5 * arms).sum(-1), sigma=0.1, runs=(0,), seed=0)
    trace = how.play(problem, 1, 100)
    names = [f"option {arm}" for arm in range(40)]
    frame = pd.DataFrame(arms[0].numpy(), names, ["a", "b", "c"])
    study = Study(tmp_path / "study.json", frame, trials=100, noise=0.1, method=method, goal="reward")
    for arm, reward in zip(trace.arm[0].tolist(), trace.reward[0].tolist(), strict=True):
        assert study.ask() == names[arm]
        study.tell(names[arm], reward)
    # with more results than planned trials, a study explores as if it had planned as many as there are
    plans = {_planned(replace(study.content[0], trials=n), study.content[1], "").plan for n in (1, 110)}
    assert len(plans) == 1 and len(study.told) == 110


def test_a_file_holds_its_setting(csv):
    study = opened(csv)
    content = json.loads(study.path.read_text())
    del content["checksum"]  # as a person who edits the file does
    assert content["about"]["setting"] == ADVISED.setting
    for name, value in (("kappa", -1), ("growth", 1e7)):
        content["about"]["setting"] = ADVISED.setting | {name: value}
        study.path.write_text(json.dumps(content))
        with pytest.raises(ValueError, match=rf"study.json.*{name} is {value}"):
            Study(study.path).ask()


@pytest.mark.parametrize("how", [PLAIN, GUARDED, OWN])
def test_a_study_that_is_opened_for_every_trial_is_the_one_that_stayed_open(csv, how):
    whole, draw = opened(csv, "one.json", **how), random.Random(1)
    asked = go_on(whole, 20, random.Random(1))
    again = [go_on(opened(csv, "two.json", **how), 1, draw)[0] for _ in range(20)]
    assert again == asked
    assert as_lines(opened(csv, "two.json", **how).standings()) == as_lines(whole.standings())
    assert asked.count("some") > 6
    assert whole.standings()[0].option in whole.verdict()
    assert len(as_lines(whole.standings()).splitlines()) == 6


def test_a_plan_takes_open_trials_for_observed(csv):
    study = opened(csv)
    go_on(study, 5, random.Random(0))
    many = opened(written(csv, [*LINES, "more,14,150,7"])).batch(30)
    assert many[0] == "more" and many.count("some") > 3 and many.count("more") > 1
    assert json.loads((csv.parent / "study.json").read_text())["open"] == [[option, ""] for option in many]


def test_a_mistake_can_be_taken_back_and_ends_nothing(csv):
    study = opened(csv)
    go_on(study, 12, random.Random(3))
    before = as_lines(study.standings())
    with pytest.warns(UserWarning, match=r"result of 'hot' is 1e\+09, more than 5 spreads"):
        study.tell("hot", 1e9)
    assert "hot" in study.verdict() and study.ask() in TASTE
    assert study.untell() == ("hot", 1e9) and as_lines(study.standings()) == before
    with pytest.raises(ValueError, match="it was not entered"):
        study.untell("nobody")
    with pytest.raises(ValueError, match=r"reward is 1e\+160: give a number of size below"):
        study.tell("hot", 1e160)


@pytest.mark.parametrize("trials", [1, 30])
def test_rewards_that_are_all_alike_and_a_single_trial_end_nothing(csv, trials):
    study = opened(csv, **PLAIN | {"trials": trials})
    for _ in range(15):
        study.tell(study.ask(), 7.0)
    assert {row.option for row in study.standings() if row.pulls} == set(TASTE) - {"more"}
    assert "fewer than two" in opened(csv, "new.json").verdict()
    assert "some" in go_on(study, 12, random.Random(0))


def test_options_are_added_at_the_end_and_retired_at_any_time(csv):
    study, draw = opened(csv), random.Random(3)
    study.retire("plain")
    assert "plain" not in go_on(study, 6, draw)
    study = opened(written(csv, [*LINES, "more,14,150,7"]))
    assert math.isfinite(next(row for row in study.standings() if row.option == "more").estimate)
    assert "more" in go_on(study, 3, draw)
    for name in ("sweet", "hot", "both", "some"):
        study.retire(name)
    assert set(go_on(study, 3, draw)) == {"more"}
    with pytest.raises(ValueError, match="keep at least one"):
        study.retire("more")
    study.retire("some", False)
    assert opened(csv).ask() in ("some", "more")
    # a row that is missing stays in the study, and columns may have another order
    assert len(opened(written(csv, [LINES[0], *LINES[2:]])).standings()) == 6
    assert len(opened(written(csv, ["name,heat,sugar,fixed", "last,150,14,7"])).standings()) == 7
    with pytest.raises(ValueError, match=r"row 5: 'some' has other features in the study"):
        opened(written(csv, [*LINES[:-1], "some,13,140,7"]))
    with pytest.raises(ValueError, match=r"row 7: 'z' has other features in row 6: there 'sugar' is '1'"):
        opened(written(csv, [*LINES, "z,1,140,7", "z,2,140,7"]))
    with pytest.raises(ValueError, match="row 1: 'heat' is '': give a number"):
        opened(written(csv, ["name,sugar", "new,3"]))


def test_features_are_scaled_by_the_ranges_of_the_first_options(csv):
    options = Options.of(csv)
    expected = [[0, 0], [1, 0.1], [1 / 3, 1], [5 / 6, 0.9], [0.4, 0.4]]
    torch.testing.assert_close(options.scaled(5), torch.tensor(expected, dtype=torch.float64))
    assert options.scaled(2)[2].tolist() == pytest.approx([1 / 3, 10])


def test_certificates_hold_and_a_wrong_bound_is_refuted(csv):
    study = opened(csv, **GUARDED)
    go_on(study, 40, random.Random(1))
    assert all(TASTE["some"] - TASTE[row.option] <= row.certificate <= 6 for row in study.standings())
    assert study.verdict().startswith("No option beats some by more than") and len(study.to_frame()) == 5
    assert study.plot().get_suptitle().split() == study.verdict().split()
    # the probability falls by about δ/K = 0.1/5 for an option that is added
    assert "with probability 0.9 if" in study.verdict()
    grown = opened(written(csv, [*LINES, "more,14,150,7"]))
    assert f"with probability {0.9 - 0.1 * math.log(6 / 5):.3g} if" in grown.verdict()
    written(csv, LINES)
    wrong = opened(csv, "wrong.json", **GUARDED | {"noise": 0.001, "reach": 0.5})
    go_on(wrong, 30, random.Random(1))
    assert "refute" in wrong.verdict() and all(math.isnan(row.certificate) for row in wrong.standings())


def test_another_noise_is_kept_and_fitted_again_but_not_under_a_guard(csv):
    study, other = opened(csv), opened(csv, "other.json", **PLAIN | {"noise": 0.4})
    for option in ["plain", "sweet", "hot", "both", *["some"] * 7]:
        for each in (study, other):
            each.tell(option, TASTE[option], again=True)
    before = as_lines(study.standings())
    study.batch(2)
    with pytest.warns(UserWarning, match=r"noise of .*study.json was 0.1 and is 0.4 from now on"):
        changed = opened(csv, noise=0.4)
    setup, record = changed.content
    assert (setup.noise, len(record.told), len(record.open), record.until) == (0.4, 11, 2, 11)
    assert as_lines(changed.standings()) == as_lines(other.standings()) != before
    opened(csv, "guarded.json", **GUARDED)
    with pytest.raises(ValueError, match=r"begun with is {'noise': 0.1}: not {'noise': 0.4}; begin another"):
        opened(csv, "guarded.json", noise=0.4)


def test_what_does_not_fit_the_study_is_refused(csv):
    study, own = opened(csv), replace(OWN["method"], network=Network(2, 3))
    opened(csv, "own.json", **PLAIN, method=own)
    for call, kind, reason in (
        (lambda: opened(csv, nois=1), TypeError, "an argument is .'nois'.*give one of"),
        (lambda: study.tell(study.ask(), "good"), TypeError, "reward is 'good'"),
        (lambda: study.ask("A"), ValueError, "site is 'A': this study has no sites"),
        (lambda: opened(csv, "new.json", **PLAIN, reach=1), ValueError, "centre or noise is None: reach"),
        (lambda: Study(csv), ValueError, "options.csv' cannot be read as a study: .* give another file"),
        (lambda: Study(csv.parent / "own.json"), ValueError, "give a Surrogate of your own at each opening"),
    ):
        with pytest.raises(kind, match=reason):
            call()


def test_a_search_repeats_nothing_and_plans_anew_from_every_result(csv):
    study = opened(written(csv, ["name,x", *(f"o{k},{k}" for k in range(40))]), trials=40)
    for k in range(12):
        study.tell(study.ask(), math.sin(k))
    study.tell(study.batch(2)[1], 1.0)
    assert study.content[1].until == len(study.told) == len({option for option, *_ in study.told}) == 13
    assert "with probability 0.95 if the model is right" in study.verdict()


@pytest.mark.parametrize("factor, shift", [(2.0**-60, 0.0), (2.0**60, 0.0), (1.0, 500.0)])
@pytest.mark.parametrize("how", [{}, {"goal": "reward"}, {"method": "ucb1", "goal": "reward"}], ids=str)
def test_the_unit_and_the_zero_of_results_change_no_trial(csv, how, factor, shift):
    told = []
    for name, unit, zero in (("one.json", 1.0, 0.0), ("two.json", factor, shift)):
        study, order = opened(csv, name, trials=30, noise=0.1 * unit, **how), []
        for k in range(14):
            order.append(study.ask())
            study.tell(order[-1], (TASTE[order[-1]] + 0.01 * k + zero) * unit)
        told.append(order)
    assert told[0] == told[1]


def test_a_leader_without_a_result_is_called_so_and_the_plot_shows_where_the_study_begins(tmp_path):
    table = pd.DataFrame({"heat": range(11), "yield": [0.0, 1, 2, 3, 4, *[""] * 6]})
    study = Study(tmp_path / "s.json", table, result="yield", trials=9)
    assert re.match(r"No option beats option \d+ \(not tried yet\) by more than", study.verdict())
    labels = [line.get_label() for line in study.plot().axes[0].lines]
    assert labels == ["result", "best so far", "the study begins"]
    assert study.untell("1") == ("1", 1.0) and study.untell() == ("4", 4.0)
    begins = study.plot().axes[0].lines[2].get_xdata()
    assert list(begins) == [3.5, 3.5]  # after the three results that are left
    study.tell("10", 9.0)
    assert study.verdict().startswith("No option beats option 10 by more than")
