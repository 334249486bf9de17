"""Equal tuning: successive halving finds a known best setting, costs the same for all, and no executor or interruption
changes its result; the shipped tables are what the code's grids give."""

import math
import multiprocessing
import re
import sqlite3
import subprocess
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import torch
from distributed import Client, LocalCluster

from fedgo import Settings, fed_go_ucb, hartmann6, one_go_ucb
from fedgo.experiments import record, store, tune, tuning
from fedgo.experiments.claims import late_share
from fedgo.experiments.comparison import (
    ALGORITHMS,
    EXPERIMENTS,
    LINE_THREE,
    TUNING_SEED,
    YARDSTICK,
    YARDSTICK_ON,
    YARDSTICK_STEPS,
    YARDSTICKS,
    World,
    evaluate,
    tuned,
    world,
)
from fedgo.experiments.tune import Kept, Measured, Progress, Task
from fedgo.experiments.tuning import (
    CLAIM_RUNS,
    CLAIM_SEED,
    GRIDS,
    RUNGS,
    STUDIES,
    Bracket,
    Chosen,
    HeldOut,
    Judged,
    Rung,
    bracket,
    rows_of,
)

TITLES = [("made-up", "A"), ("made-up", "B")]
GRID = tuple({"lam": 0.1, "beta": float(k)} for k in range(12))
SMALL = (Rung(12, 4), Rung(5, 10), Rung(3, 30))


def made_up(title=("made-up", "A"), rungs=SMALL):
    return Bracket(*title, GRID, rungs)


def pretend(task: Task) -> Measured:
    """A regret of 10 + 3|β − 7| and noise of the run alone, but β = 3 is lucky at first: 0 in its first four runs."""
    rows = []
    for setting in task.settings:
        beta = record.parse(setting)["beta"]
        noise = [
            np.random.default_rng((run, len(task.algorithm))).normal() for run in range(task.first, task.end)
        ]
        lucky = [beta == 3.0 and run < 4 for run in range(task.first, task.end)]
        rows.append(
            tuple(0.0 if luck else 10 + 3 * abs(beta - 7) + z for luck, z in zip(lucky, noise, strict=True))
        )
    return Measured(tuple(rows), 0.5 * len(task.settings))


class Counting:
    """`pretend`, counting what is computed, and interrupted before the task ``stop``."""

    def __init__(self, stop=None):
        self.tasks, self.stop = [], stop

    def __call__(self, task):
        if len(self.tasks) == self.stop:
            raise KeyboardInterrupt
        self.tasks.append(task)
        return pretend(task)


@pytest.fixture(autouse=True)
def made_up_code(monkeypatch):
    """What is made up has no code in the package to be hashed."""
    real = tune.code_of
    monkeypatch.setattr(tune, "code_of", lambda e, a: "today's" if e == "made-up" else real(e, a))


@pytest.fixture
def kept(tmp_path):
    return Kept(tmp_path / "kept" / "tuning.sqlite")


# --- Successive halving


def test_the_best_setting_wins_and_a_lucky_one_stays_to_be_judged(kept):
    (regrets,) = tune.tune([made_up()], 5, kept, measure=pretend)
    first, second, third = made_up().entrants(regrets)
    assert len(first) == 12 and second[0] == "lam=0.1 beta=3.0"  # lucky in four runs
    assert second[1] == third[0] == "lam=0.1 beta=7.0"  # the true best
    assert len(second) == 5 and {"lam=0.1 beta=6.0", "lam=0.1 beta=8.0"} < set(second)
    assert "lam=0.1 beta=3.0" in third and len(third) == 3
    rows = tuning.judged(made_up(), regrets)
    chosen = tuning.chosen(made_up(), rows)
    assert (chosen.setting, chosen.runs) == ("lam=0.1 beta=7.0", 30)
    assert (chosen.first, chosen.second) == ("lam=0.1 beta=3.0", "lam=0.1 beta=7.0")


def test_a_rung_computes_the_new_runs_only_and_the_budget_is_spent_to_the_run(kept):
    counting = Counting()
    (regrets,) = tune.tune([made_up()], 5, kept, measure=counting)
    runs = [(setting, run) for t in counting.tasks for setting in t.settings for run in range(t.first, t.end)]
    assert len(runs) == len(set(runs)) == made_up().budget == 12 * 4 + 5 * 6 + 3 * 20
    assert {t.seed for t in counting.tasks} == {5}
    assert sorted(len(known) for known in regrets.values()) == [4] * 7 + [10] * 2 + [30] * 3
    whole = pretend(Task("made-up", "A", tuple(regrets), 5, 0, 30)).regrets
    assert all(known == full[: len(known)] for known, full in zip(regrets.values(), whole, strict=True))


def test_several_settings_of_a_rung_in_one_task_are_the_same(kept, tmp_path, monkeypatch):
    one_each = tune.tune([made_up()], 5, kept, measure=pretend)
    monkeypatch.setattr(tune, "TOGETHER", ("A",))
    counting = Counting()
    assert tune.tune([made_up()], 5, Kept(tmp_path / "other"), measure=counting) == one_each
    assert [len(t.settings) for t in counting.tasks] == [12, 5, 3]


@pytest.mark.parametrize(
    ("grid", "rungs", "word"),
    [
        (GRID[:11], SMALL, "12"),
        (GRID[:11] + GRID[:1], SMALL, "once"),
        (GRID, (Rung(12, 4), Rung(13, 10)), "more runs"),
        (GRID, (Rung(12, 4), Rung(5, 4)), "more runs"),
        (GRID, (Rung(12, 4), Rung(1, 10), Rung(1, 30)), "leader"),
    ],
)
def test_a_bracket_that_would_not_be_fair_or_narrow_is_refused(grid, rungs, word):
    with pytest.raises(ValueError, match=word):
        Bracket("made-up", "A", grid, rungs)


def test_alike_worst_and_median_by_hand(kept):
    (regrets,) = tune.tune([made_up()], 5, kept, measure=pretend)
    rows = tuning.judged(made_up(), regrets)
    chosen = tuning.chosen(made_up(), rows)
    assert chosen.alike == 0  # the noise is the run's own: paired differences are exact
    best = fmean(regrets["lam=0.1 beta=7.0"][:4])
    means = sorted(fmean(known[:4]) for known in regrets.values())
    assert chosen.worst == pytest.approx(means[-1] / best, abs=1e-3)
    assert chosen.median == pytest.approx((means[5] + means[6]) / 2 / best, abs=1e-3)
    lucky = next(row for row in rows if row.setting == "lam=0.1 beta=3.0" and row.runs == 4)
    assert lucky.low <= lucky.mean - best <= lucky.high < 0


def test_a_setting_within_its_noise_is_alike_in_its_last_word_only(kept):
    (regrets,) = tune.tune([made_up()], 5, kept, measure=pretend)
    eight = "lam=0.1 beta=8.0"
    sway = {**regrets, eight: [value + (30, -30)[run % 2] for run, value in enumerate(regrets[eight])]}
    rows = tuning.judged(made_up(), sway)
    assert {row.alike for row in rows if row.setting == eight} == {True}
    assert tuning.chosen(made_up(), rows).alike == 1
    late = [row._replace(low=0.1) if row.setting == eight and row.runs > 4 else row for row in rows]
    assert tuning.chosen(made_up(), late).alike == 0


def test_held_out_regrets_are_of_the_last_rungs_runs_alone(kept):
    (regrets,) = tune.tune([made_up()], 5, kept, measure=pretend)
    rows = tuning.held_out(made_up(), regrets)
    assert [(row.rung, row.setting) for row in rows] == [
        (1, "lam=0.1 beta=3.0"), (2, "lam=0.1 beta=7.0"), (3, "lam=0.1 beta=7.0"),
    ]  # fmt: skip
    for row in rows:
        expected = [f"{value:.1f}" for value in regrets[row.setting][10:30]]
        assert row.regrets.split() == expected
    assert tuning.held_out(made_up(rungs=(Rung(12, 4),)), {s: k[:4] for s, k in regrets.items()}) == []


# --- Executors and interruptions


class Backwards(Executor):
    """Computes what it was given last first, and only when asked for a result."""

    def __init__(self):
        self.jobs = []

    def submit(self, function, /, *args):
        future = Future()
        self.jobs.append((future, function, args))
        if len(self.jobs) > 6:
            self.flush()
        return future

    def flush(self):
        while self.jobs:
            future, function, args = self.jobs.pop()
            future.set_result(function(*args))


def test_the_order_of_the_results_changes_nothing(kept, tmp_path, monkeypatch):
    brackets = [made_up(title) for title in TITLES]
    alone = tune.tune(brackets, 5, kept, measure=pretend)
    backwards, waited = Backwards(), tune.wait
    monkeypatch.setattr(
        tune, "wait", lambda *args, **options: (backwards.flush(), waited(*args, **options))[1]
    )
    assert tune.tune(brackets, 5, Kept(tmp_path / "b"), backwards, pretend) == alone
    with ThreadPoolExecutor(3) as pool:
        assert tune.tune(brackets, 5, Kept(tmp_path / "c"), pool, pretend) == alone
    assert alone == [tune.tune([b], 5, Kept(tmp_path / b.algorithm), measure=pretend)[0] for b in brackets]


@pytest.mark.parametrize("stop", [0, 5, 13, 17, 30])
def test_an_interrupted_tuning_goes_on_where_it_was(tmp_path, stop):
    brackets = [made_up(title) for title in TITLES]
    whole = Counting()
    expected = tune.tune(brackets, 5, Kept(tmp_path / "whole"), measure=whole)
    before, after = Counting(stop), Counting()
    with pytest.raises(KeyboardInterrupt):
        tune.tune(brackets, 5, Kept(tmp_path / "kept"), measure=before)
    assert len(before.tasks) == stop
    assert tune.tune(brackets, 5, Kept(tmp_path / "kept"), measure=after) == expected
    assert sorted(before.tasks + after.tasks) == sorted(whole.tasks)


def test_results_of_other_code_or_another_seed_are_not_taken(tmp_path, monkeypatch):
    path, counting = tmp_path / "kept", Counting()
    tune.tune([made_up()], 5, Kept(path), measure=counting)
    once = len(counting.tasks)
    tune.tune([made_up()], 5, Kept(path), measure=counting)
    assert len(counting.tasks) == once
    tune.tune([made_up()], 6, Kept(path), measure=counting)
    assert len(counting.tasks) == 2 * once
    monkeypatch.setattr(tune, "code_of", lambda experiment, algorithm: "changed code")
    tune.tune([made_up()], 5, Kept(path), measure=counting)
    assert len(counting.tasks) == 3 * once
    kept = Kept(path)
    kept.forget(5, [("made-up", "B")])
    assert kept.get(counting.tasks[-1]) is not None
    kept.forget(5, [("made-up", "A")])
    assert kept.get(counting.tasks[-1]) is None


def test_the_code_of_an_algorithm_is_its_own():
    codes = {tune.code_of("magic", a) for a in ("DisLinUCB", "Fed-GLB-UCB", "Fed-GO-UCB")}
    assert len(codes) == 3 and tune.code_of("shuttle", "DisLinUCB") not in codes


def test_a_result_is_kept_whole_or_not_at_all(kept, monkeypatch):
    task = Task("made-up", "A", ("beta=1.0", "beta=2.0"), 5, 0, 2)
    with pytest.raises(ValueError, match="shorter"):
        kept.put(task, Measured(((1.0, 2.0),), 1.0))
    assert kept.get(task) is None
    kept.put(task._replace(settings=("beta=1.0",)), Measured(((1.0, 2.0),), 1.0))
    assert kept.get(task) is None  # one of two
    kept.put(task, Measured(((1.0, 2.0), (3.0, 1 / 3)), 1.0))
    assert kept.get(task) == Measured(((1.0, 2.0), (3.0, 1 / 3)), 1.0)


def test_a_damaged_database_is_begun_anew_and_one_out_of_reach_is_named(tmp_path):
    path = tmp_path / "kept"
    path.write_bytes(b"this is no database" * 100)
    kept = Kept(path)
    kept.put(Task("made-up", "A", ("beta=1.0",), 5, 0, 1), Measured(((1.0,),), 1.0))
    with pytest.raises(OSError, match="cannot be used"):
        Kept(tmp_path)
    with closing(sqlite3.connect(path)) as base:
        assert base.execute("select count(*) from results").fetchone() == (1,)


def test_progress_counts_settings_and_estimates_the_rest():
    seconds = iter([0.0, 8.0, 8.0, 8.0])
    progress = Progress([made_up(title) for title in TITLES], clock=lambda: next(seconds))
    assert str(progress) == "0 of 40 settings, 0 of 2 brackets"
    settings = tuple(made_up().settings)
    progress.add(Task("made-up", "A", settings[:6], 5, 0, 4), Measured((), 10.0), old=True)
    assert progress.left is None
    progress.add(Task("made-up", "A", settings[6:], 5, 0, 4), Measured((), 14.0), old=False)
    # 24 s for 48 runs of A, so half a second for a run of B too; 14 s of work took 8 s
    left = ((138 - 48) * 0.5 + 138 * 0.5) * 8 / 14
    assert progress.left == pytest.approx(left)
    assert str(progress) == f"12 of 40 settings, 0 of 2 brackets, {math.ceil(left / 60)} min left"


def test_the_display_is_one_line_on_a_terminal_and_a_line_for_each_bracket_elsewhere(kept, capsys):
    brackets = [made_up(title) for title in TITLES]
    tune.tune(brackets, 5, kept, measure=pretend, show=tune.Display(terminal=True))
    shown = capsys.readouterr().out
    assert "\n" not in shown and shown.rsplit("\r", 1)[1].startswith("40 of 40 settings, 2 of 2 brackets")
    tune.tune(brackets, 6, kept, measure=pretend, show=tune.Display(terminal=False))
    assert [line.split(", ")[1] for line in capsys.readouterr().out.splitlines()] == [
        "0 of 2 brackets", "1 of 2 brackets", "2 of 2 brackets",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def pools():
    """A process pool, and Dask's on a local cluster that is reached through the loopback alone."""
    spawn = multiprocessing.get_context("spawn")
    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=50
    )
    with ProcessPoolExecutor(2, spawn, tune._begin_worker) as processes, cluster, Client(cluster) as client:
        yield {"processes": processes, "Dask": client.get_executor()}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["processes", "Dask"])
def test_tuning_and_evaluation_are_the_same_with_any_executor(pools, kind, tmp_path, monkeypatch):
    grid = GRIDS["DisLinUCB"][::8]
    small = [Bracket("hartmann6", a, grid, (Rung(4, 2), Rung(2, 3))) for a in ("DisLinUCB", "Fed-GO-UCB")]
    here = tune.tune(small, TUNING_SEED, Kept(tmp_path / "here"))
    assert tune.tune(small, TUNING_SEED, Kept(tmp_path / "there"), pools[kind]) == here
    monkeypatch.setattr("fedgo.experiments.comparison._BATCH", 2)
    algorithms = ["Fed-GO-UCB", "DisLinUCB", "Uniform"]
    alone = evaluate("hartmann6", 3, algorithms=algorithms)
    assert list(alone) == algorithms and len(alone["Uniform"].arm) == 3
    assert evaluate("hartmann6", 3, algorithms=algorithms, executor=pools[kind]) == alone


def test_something_that_is_no_executor_is_refused():
    with pytest.raises(TypeError, match=r"executor is 4 \(int\): give a concurrent"):
        evaluate("hartmann6", 1, executor=4)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["Fed-GO-UCB", "Fed-GLB-UCB", "ApproxDisKernelUCB"])
def test_the_messages_that_the_tuning_counts_change_no_regret(algorithm):
    setting = record.text(tuned("hartmann6", algorithm))
    found = tune.measure(Task("hartmann6", algorithm, (setting,), TUNING_SEED, 3, 5))
    dense = ALGORITHMS[algorithm].run(world("hartmann6", range(3, 5), TUNING_SEED), record.parse(setting))
    assert found.regrets == (tuple(dense.cumulative_regret[:, -1].tolist()),)
    assert torch.get_num_threads() == 1


def test_a_wider_grid_computes_its_new_settings_only(kept, monkeypatch):
    monkeypatch.setattr(tune, "TOGETHER", ("A",))
    few = replace(made_up(), grid=GRID[:4], rungs=(Rung(4, 4), Rung(2, 10)))
    tune.tune([few], 5, kept, measure=pretend)
    again = Counting()
    (regrets,) = tune.tune([made_up()], 5, kept, measure=again)
    first, *_ = again.tasks
    assert first.settings == tuple(made_up().settings)[4:] and (first.first, first.end) == (0, 4)
    assert (regrets,) == tuple(tune.tune([made_up()], 6, kept, measure=pretend))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", tune.IN_A_BATCH)
def test_settings_that_differ_in_beta_alone_have_the_same_regrets_in_one_batch(algorithm, monkeypatch):
    short = replace(world("hartmann6", range(3, 5), TUNING_SEED), rounds=4, encoding="counts")
    monkeypatch.setattr(tune, "_world", lambda *_: short)
    of = bracket("hartmann6", algorithm)
    tasks = list(tune.tasks_of(of, TUNING_SEED, {}))
    assert sorted(setting for task in tasks for setting in task.settings) == sorted(of.settings)
    assert 1 <= len(tasks) <= 8
    (found,) = (tune.measure(task) for task in tasks[-1:])
    alone = [tune.measure(tasks[-1]._replace(settings=(setting,))) for setting in tasks[-1].settings]
    assert found.regrets == tuple(one.regrets[0] for one in alone)
    assert len({regret for part in found.regrets for regret in part}) > 2


# --- What the book tunes


def test_every_algorithm_has_the_same_budget():
    budgets = {(b.experiment, b.algorithm): b.budget for b in STUDIES[""].brackets}
    assert list(budgets)[: len(ALGORITHMS)] == [("hartmann6", algorithm) for algorithm in ALGORITHMS]
    assert set(budgets) == {(e, a) for e in EXPERIMENTS for a in ALGORITHMS} | {(YARDSTICK_ON, YARDSTICK)}
    equal = {spent for (_, algorithm), spent in budgets.items() if algorithm not in ("Uniform", YARDSTICK)}
    assert equal == {32 * 10 + 12 * 20 + 8 * 70}
    assert {budgets[e, "Uniform"] for e in EXPERIMENTS} == {100}  # nothing to choose
    assert budgets[YARDSTICK_ON, YARDSTICK] < min(equal)  # too slow for more, and no comparison rests on it


def test_the_last_settings_have_at_least_a_hundred_runs_and_line_three_thirty():
    assert all(b.rungs[-1].runs >= 100 for b in STUDIES[""].brackets if b.algorithm != YARDSTICK)
    assert all(b.rungs[0].runs >= 30 for b in STUDIES["line3"].brackets)
    assert {(b.experiment, b.algorithm) for b in STUDIES["line3"].brackets} == {
        (e, a) for e in ("hartmann6", "cosine8") for a in LINE_THREE
    }


def test_no_algorithm_has_its_threshold_tuned():
    brackets = [b for study in STUDIES.values() for b in study.brackets]
    assert not any("gamma" in setting for b in brackets for setting in b.grid)


def test_the_paper_compares_six_algorithms():
    assert [name for name, algorithm in ALGORITHMS.items() if algorithm.in_paper] == [
        "Fed-GO-UCB", "One-GO-UCB", "N-GO-UCB", "DisLinUCB", "Fed-GLB-UCB", "ApproxDisKernelUCB",
    ]  # fmt: skip


def test_what_is_best_in_hindsight_is_chosen_from_the_whole_grid_on_the_runs_of_the_claims():
    study = STUDIES["in_sample"]
    assert study.seed == CLAIM_SEED != TUNING_SEED
    assert all(b.rungs == (Rung(len(GRIDS[b.algorithm]), CLAIM_RUNS),) for b in study.brackets)
    page = (Path(__file__).resolve().parents[1] / "notebooks" / "claims.md").read_text(encoding="utf-8")
    assert f"\nruns = {CLAIM_RUNS}\nseed = {CLAIM_SEED}\n" in page


def test_the_kept_runs_of_the_winners_are_those_of_their_settings():
    for experiment, of in tuning.winners("in_sample").items():
        rows = [row for row in rows_of(Chosen, "in_sample") if row.experiment == experiment]
        assert [row.algorithm for row in rows] == list(of)
        for row, kept in zip(rows, of.values(), strict=True):
            assert len(kept.arm) == row.runs == CLAIM_RUNS
            assert kept.cumulative_regret[:, -1].mean().item() == pytest.approx(row.mean, abs=2e-3)
    again = evaluate("hartmann6", 2, CLAIM_SEED, ["Fed-GO-UCB"], study="in_sample")["Fed-GO-UCB"]
    kept = tuning.winners("in_sample")["hartmann6"]["Fed-GO-UCB"].first(2)
    assert again.communication[:, -1].tolist() == kept.communication[:, -1].tolist()
    torch.testing.assert_close(
        again.cumulative_regret[:, -1], kept.cumulative_regret[:, -1], rtol=0, atol=2e-3
    )


def test_no_evaluation_uses_the_tuning_instances():
    assert STUDIES[""].seed == STUDIES["line3"].seed == TUNING_SEED
    with pytest.raises(ValueError, match=rf"seed is {TUNING_SEED}: .*tuning"):
        evaluate("hartmann6", 1, TUNING_SEED, ["Uniform"])


def test_the_yardstick_runs_as_tuned(monkeypatch):
    calls = []
    monkeypatch.setattr("fedgo.experiments.comparison.gp_ucb", lambda *arguments: calls.append(arguments))
    within = world(YARDSTICK_ON, 2)
    YARDSTICKS[YARDSTICK].run(within, {"beta": 0.7})
    assert calls == [(within.problem, within.clients, YARDSTICK_STEPS, 0.7)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "function"), [("Fed-GO-UCB", fed_go_ucb), ("One-GO-UCB", one_go_ucb)])
def test_line_three_runs_by_ascent_and_is_stored_apart(name, function, monkeypatch, tmp_path):
    monkeypatch.setenv(store.FOLDER, str(tmp_path))
    short = World(hartmann6(1), clients=4, rounds=9)
    setting = {"lam": 0.1, "beta": 1.0}
    ALGORITHMS[name].run(short, setting)
    trace = LINE_THREE[f"{name}, line 3"].run(short, setting)
    assert trace == function(short.problem, short.shared, Settings(**setting), "ascent")
    assert trace != function(short.problem, short.shared, Settings(**setting))


# --- The tables


def test_a_table_is_read_as_it_was_written_and_read_once(tables):
    settings = [{"link": "identity", "lam": 1e-06, "beta": 0.1 + 0.2}, {}]
    rows = [Judged("e", "a, b", record.text(s), 10, 1.5, 0.25, -1.0, math.inf) for s in settings]
    path = record.write("tuning", {"made": "today: now", "seed": "5"}, Judged._fields, rows)
    assert path.read_text(encoding="utf-8").splitlines()[:3] == [
        "# made: today: now", "# seed: 5", "experiment,algorithm,setting,runs,mean,error,low,high",
    ]  # fmt: skip
    assert record.read("tuning").about == {"made": "today: now", "seed": "5"}
    assert rows_of(Judged) == rows
    assert [record.parse(row.setting) for row in rows_of(Judged)] == settings
    path.write_text("changed", encoding="utf-8")
    assert rows_of(Judged) == rows
    assert list(tables.iterdir()) == [path]
    with pytest.raises(ValueError, match="make tune"):
        record.read("nothing")


def test_a_study_is_written_and_found_again(tables, kept, monkeypatch):
    brackets = tuple(made_up(title) for title in TITLES)
    study = tuning.Study("line3", "make tune LINE3=1", 5, brackets)
    asked = []
    monkeypatch.setattr(tune, "evaluate", lambda *how: asked.append(how) or {})
    paths = tune.write(study, tune.tune(brackets, 5, kept, measure=pretend), executor="pool")
    assert [path.name for path in paths] == ["line3_tuned.csv", "line3_tuning.csv", "line3_evaluated.csv"]
    assert asked == [("made-up", 30, 0, ["A", "B"], "pool", "line3")]
    assert record.read("line3_evaluated").about["seed"] == "0"
    about = record.read("line3_tuned").about
    assert about["command"] == "make tune LINE3=1" and about["seed"] == "5"
    assert re.fullmatch("[0-9a-f]{16}", about["code"]) and about["commit"] and about["made"].endswith("UTC")
    assert tuned("made-up", "B", "line3") == {"lam": 0.1, "beta": 7.0}
    with pytest.raises(ValueError, match="C"):
        tuned("made-up", "C", "line3")


@pytest.mark.slow
def test_winners_on_the_runs_of_the_claims_are_kept_part_by_part(tables, kept):
    setting = {"lam": 0.01, "beta": 1.0}
    few = (Bracket("hartmann6", "One-GO-UCB", (setting,), (Rung(1, 2),)),)
    study = tuning.Study("in_sample", "make tune INSAMPLE=1", 0, few)
    tune.write(study, tune.tune(few, 0, kept), runs=2)
    whole = ALGORITHMS["One-GO-UCB"].run(world("hartmann6", 2), setting)
    assert {name: list(of) for name, of in tuning.winners("in_sample").items()} == {
        "hartmann6": ["One-GO-UCB"]
    }
    three = tuning.winners("in_sample")["hartmann6"]["One-GO-UCB"]
    assert (three.problem, three.clients, three.phase_one) == (whole.problem, whole.clients, 1)
    ends = [0, whole.phase_one, whole.phase_one + 1000, whole.phase_one + 2000]
    for run, (first, end) in ((run, part) for run in (0, 1) for part in enumerate(pairwise(ends))):
        part = slice(*end)
        assert three.regret[run, first].item() == pytest.approx(
            whole.regret[run, part].sum().item(), abs=6e-4
        )
        assert three.up[run, first] == whole.up[run, part].sum() + whole.down[run, part].sum()
    assert (three.up > 0).all() and not three.down.any() and len(set(three.regret.flatten().tolist())) == 6
    shares = [
        late_share({"hartmann6": {"One-GO-UCB": t}}, ["hartmann6"], "One-GO-UCB", 0.5) for t in (whole, three)
    ]
    assert shares[0] == shares[1]


SHIPPED = [(name, b.experiment, b.algorithm) for name, study in STUDIES.items() for b in study.brackets]


@pytest.fixture(scope="module", params=SHIPPED, ids=" ".join)
def shipped(request):
    """A bracket and its rows in the shipped tables."""
    name, *title = request.param
    of = next(b for b in STUDIES[name].brackets if [b.experiment, b.algorithm] == title)
    rows = [[row for row in rows_of(kind, name) if [*row[:2]] == title] for kind in (Chosen, Judged)]
    return name, of, *rows


def test_the_tables_have_every_bracket_in_order_and_nothing_else():
    for name, study in STUDIES.items():
        titles = [(b.experiment, b.algorithm) for b in study.brackets]
        assert [row[:2] for row in rows_of(Chosen, name)] == titles
        assert list(dict.fromkeys(row[:2] for row in rows_of(Judged, name))) == titles
        about = record.read(study.table("tuned")).about
        assert about == record.read(study.table("tuning")).about
        assert (about["command"], about["seed"]) == (study.command, str(study.seed))
        assert about["commit"] != "unknown" and not about["commit"].endswith("-dirty")


def test_the_tables_have_the_grid_and_the_rungs_of_the_code(shipped):
    _, of, _, rows = shipped
    for number, rung in enumerate(of.rungs):
        part = [row for row in rows if row.runs == rung.runs]
        assert len(part) == rung.settings and [row.mean for row in part] == sorted(row.mean for row in part)
        leaders = {
            r[0].setting for r in ([row for row in rows if row.runs == x.runs] for x in of.rungs[:number])
        }
        assert leaders <= {row.setting for row in part} <= set(of.settings)
    assert {row.setting for row in rows} == set(of.settings)
    assert all(row.mean > 0 and row.error >= 0 and row.low <= row.high for row in rows)


def test_the_shipped_choice_is_what_the_shipped_means_give(shipped):
    name, of, (chosen,), rows = shipped
    assert tuning.chosen(of, rows) == chosen
    assert tuned(of.experiment, of.algorithm, name) == of.settings[chosen.setting]


def test_the_held_out_regrets_agree_with_the_means():
    means = {(*row[:3], row.runs): row.mean for row in rows_of(Judged)}
    (few, many) = (rung.runs for rung in RUNGS[1:])
    seen = 0
    for row in rows_of(HeldOut):
        if row.algorithm != YARDSTICK:
            regrets = [float(part) for part in row.regrets.split()]
            before, whole = means[(*row[:2], row.setting, few)], means[(*row[:2], row.setting, many)]
            assert len(regrets) == many - few
            assert math.fsum(regrets) == pytest.approx(many * whole - few * before, abs=0.06 * many)
            seen += 1
    assert seen == len(EXPERIMENTS) * len(ALGORITHMS) * len(RUNGS)
    for rung in (1, 2, 3):
        traces = tuning.unseen(rung)
        assert {e: list(t) for e, t in traces.items()} == {e: list(ALGORITHMS) for e in EXPERIMENTS}
        trace = traces["magic"]["DisLinUCB"]
        row = next(r for r in rows_of(HeldOut) if r[:3] == ("magic", "DisLinUCB", rung))
        assert " ".join(f"{v:.1f}" for v in trace.cumulative_regret[:, -1].tolist()) == row.regrets


@pytest.mark.parametrize("algorithm", ["DisLinUCB", "Uniform"])
def test_tuning_again_gives_the_numbers_of_the_tables(algorithm):
    rows = [
        row for row in rows_of(Judged) if row[:2] == ("hartmann6", algorithm) and row.runs == RUNGS[0].runs
    ]
    for row in rows[:: max(1, len(rows) // 3)]:
        (regrets,), _ = tune.measure(Task("hartmann6", algorithm, (row.setting,), TUNING_SEED, 0, row.runs))
        assert tuning.mean(regrets, row.runs) == row.mean


def sloped(task):
    """The wider the ball the better, by one for each factor of ten, whatever λ."""
    runs = range(task.first, task.end)
    places = [tuning.coordinates(record.parse(setting)) for setting in task.settings]
    rows = tuple(tuple(100 - math.log10(place["beta/lam"]) for _ in runs) for place in places)
    return Measured(rows, 1.0)


def test_edges_are_found_and_told_from_flat_ones_and_a_step_outside_is_tried(tables, kept):
    of = Bracket("hartmann6", "DisLinUCB", GRIDS["DisLinUCB"], (Rung(32, 2), Rung(4, 3), Rung(3, 4)))
    study = tuning.Study("", "make tune", 5, (of,))
    run = partial(tune.tune, seed=5, kept=kept, measure=sloped)
    (regrets,) = run(study.brackets)
    rows = tuning.judged(of, regrets)
    best = tuning.chosen(of, rows)
    flat, steep = tuning.edges(best, rows)
    assert (flat.axis, flat.end, flat.matters) == ("lam", "smallest", False)
    assert (steep.axis, steep.end, steep.matters) == ("beta/lam", "largest", True)
    assert best.setting == "lam=1e-05 beta=0.03" and steep.neighbour.setting == "lam=1e-05 beta=0.01"
    assert flat.outside == "lam=1e-06 beta=0.003" and steep.outside == "lam=1e-05 beta=0.09"
    further = tune.look_outside(study, [regrets], run)
    assert [row[:6] for row in further] == [
        ("hartmann6", "DisLinUCB", "beta/lam", "largest", "lam=1e-05 beta=0.09", 3)
    ]
    assert further[0].mean == pytest.approx(100 - math.log10(9000), abs=1e-3)
    assert further[0].low == further[0].high == pytest.approx(-math.log10(3), abs=1e-3)
    tune.write(study, [regrets], further)
    assert rows_of(tuning.Outside) == further


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (0.03, "0.03"),
        (0.00237, "0.00237"),
        (1.0, "1"),
        (30.0, "30"),
        (3000.0, "3,000"),
        (1e-5, "$10^{-5}$"),
        (0.000316, r"$3.16\cdot10^{-4}$"),
        ("logistic", "logistic"),
    ],
)
def test_a_value_of_a_setting_has_its_digits_and_no_more(value, printed):
    assert tuning.as_set(value) == printed
    assert tuning.in_symbols(record.text({"lam": value})) == rf"$\lambda$ {printed}"


def test_coordinates_take_beta_relative_to_lambda():
    assert tuning.coordinates({"link": "identity", "lam": 0.001, "beta": 0.03}) == {
        "link": "identity", "lam": 0.001, "beta/lam": 30.0,
    }  # fmt: skip
    assert tuning.coordinates({"beta": 0.03}) == {"beta": 0.03}
    ridge = [tuning.coordinates(setting) for setting in GRIDS["Fed-GO-UCB"]]
    for setting in GRIDS["Fed-GO-UCB"] + GRIDS["Fed-GLB-UCB"] + GRIDS["UCB1, shared"]:
        assert tuning.setting_at(tuning.coordinates(setting)) == setting
    assert {len({place[axis] for place in ridge}) for axis in ("lam", "beta/lam")} == {4, 8}


def test_a_step_outside_every_edge_that_matters_was_tried(shipped):
    name, of, (chosen,), rows = shipped
    if not name:
        edges = [edge[:3] for edge in tuning.edges(chosen, rows) if edge.matters]
        tried = [row for row in rows_of(tuning.Outside) if row[:2] == (of.experiment, of.algorithm)]
        assert [row[:3] for row in tried] == edges
        assert all(row.runs == of.rungs[1].runs and row.setting not in of.settings for row in tried)


def test_an_evaluation_of_more_runs_than_fit_at_once_is_one_trace(monkeypatch):
    monkeypatch.setattr("fedgo.experiments.comparison._BATCH", 5)
    traces = evaluate("hartmann6", 12, algorithms=["DisLinUCB", "Uniform"])
    few = evaluate("hartmann6", 2, algorithms=["DisLinUCB"])
    assert set(traces) == {"DisLinUCB", "Uniform"}
    for name, trace in traces.items():
        assert trace.algorithm == name and len(trace.arm) == 12
    assert traces["DisLinUCB"].first(2) == few["DisLinUCB"]


@pytest.mark.slow
def test_one_bracket_more_for_an_algorithm_of_ones_own_costs_the_same():
    mine = replace(bracket("magic", "DisLinUCB"), algorithm="Mine")
    assert mine.budget == bracket("magic", "Fed-GO-UCB").budget


def test_the_commit_of_a_record_says_dirty_for_code_and_not_for_records(tmp_path, monkeypatch):
    record_file = tmp_path / "fedgo" / "paper" / "data" / "map.csv"
    record_file.parent.mkdir(parents=True)
    for file in (record_file, tmp_path / "code.py"):
        file.write_text("1", "utf-8")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(tune, "ROOT", tmp_path)
    clean = tune.commit()
    assert len(clean) == 12
    record_file.write_text("2", "utf-8")
    assert tune.commit() == clean
    (tmp_path / "code.py").write_text("2", "utf-8")
    assert tune.commit() == f"{clean}-dirty"
    monkeypatch.setattr(tune, "ROOT", tmp_path / "nowhere")
    assert tune.commit() == "unknown"
