"""The regime map: its problems, its rows, its tuning, and what is said of them."""

import math
from collections import Counter
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedgo._streams import generator
from fedgo.beyond.counted import optimistic_ucb1
from fedgo.beyond.epochs import Growing, surrogate_ucb
from fedgo.beyond.guard import Guarantee
from fedgo.beyond.surrogates import GaussianProcess
from fedgo.experiments import families, players, record, regime_map, regimes
from fedgo.experiments.comparison import TUNING_SEED
from fedgo.experiments.fitted_kernel import fitted_kernel_ucb
from fedgo.experiments.players import PLAYERS, Job, Regime, Row
from fedgo.experiments.regimes import REGIMES, TUNING

SMALL = Regime("hartmann6", arms=6, rounds=3, clients=2)


def job(player="UCB1", setting="b=0.2", runs=range(2), regime=SMALL):
    return Job(regime, player, setting, 0, runs)


@pytest.mark.parametrize("name", players.FAMILIES)
def test_a_run_of_a_family_is_the_same_alone_and_its_value_is_a_bound(name):
    family = players.FAMILIES[name]
    whole = family.problem(range(3), arms=20, seed=1, sigma=0.5)
    alone = family.problem([2], arms=20, seed=1, sigma=0.5)
    assert torch.equal(whole.arms[2], alone.arms[0])
    torch.testing.assert_close(whole.means[2], alone.means[0], rtol=1e-12, atol=1e-12)
    assert family.value is None or float(whole.means.abs().max()) <= family.value
    assert float(whole.means.std()) > 0.05


def test_two_ridges_are_a_function_of_two_directions():
    problem = families.two_ridge(1, arms=200)
    assert float(problem.means.max()) <= 2 and problem.arms.shape == (1, 200, 20)
    x = torch.cat([problem.arms[0], torch.ones(200, 1).double()], 1)
    # no linear function explains it
    away = problem.means[0] - x @ torch.linalg.lstsq(x, problem.means[0]).solution
    assert float(away.var() / problem.means[0].var()) > 0.5


def test_two_ridges_and_levy_are_their_formulas():
    problem = families.two_ridge([3], arms=20, seed=7)
    ridges = torch.randn(2, 20, generator=generator(7, 3, "ridges"), dtype=torch.float64)
    a, b = (ridge / ridge.square().sum().sqrt() for ridge in ridges)
    for x, mean in zip(problem.arms[0], problem.means[0], strict=True):
        z = 12**0.5 * (x - 0.5)
        assert float(mean) == pytest.approx(math.sin(2 * float(a @ z)) + math.cos(2 * float(b @ z)))
    problem = families.levy10([3], arms=20, seed=7)
    for x, mean in zip(problem.arms[0].tolist(), problem.means[0], strict=True):
        w = [1 + (20 * part - 11) / 4 for part in x]
        levy = math.sin(math.pi * w[0]) ** 2 + (w[-1] - 1) ** 2 * (1 + math.sin(2 * math.pi * w[-1]) ** 2)
        levy += sum((v - 1) ** 2 * (1 + 10 * math.sin(math.pi * v + 1) ** 2) for v in w[:-1])
        assert float(mean) == pytest.approx(-levy / 100)


def test_the_settings_are_in_units_of_the_noise():
    world = Regime("hartmann6", arms=6, sigma=0.5, rounds=3, clients=2).world(range(2))
    found = players._ridge(world, {"s": 10.0, "kappa": 4.0})
    assert (found.lam, found.beta, found.encoding) == (pytest.approx(0.0025), pytest.approx(4.0), "counts")
    for kappa in (0.0, 6.0):
        expected = fitted_kernel_ucb(world.problem, 2, 3, kappa)
        assert torch.equal(PLAYERS["kernel"].play(world, {"kappa": kappa}).arm, expected.arm)


def test_damaged_rows_are_refused(tmp_path, monkeypatch):
    text = (families.FOLDER / "magic_rows.csv").read_text(encoding="utf-8")
    last = text.rstrip().rsplit(",", 1)
    (tmp_path / "magic_rows.csv").write_text(f"{last[0]},0.123456\n", encoding="utf-8")
    monkeypatch.setattr(families, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=r"sha256 of the numbers in magic_rows\.csv"):
        families.shipped_rows()


def test_rows_of_magic_are_shares_of_a_hundred_and_other_rows_in_every_run():
    table = families.shipped_rows()
    assert table.shape == (1000, 11) and table.min() >= 0 and table.max() <= 1
    assert np.allclose(table[:, 0] * 100, np.round(table[:, 0] * 100))
    problem = families.magic_rows(2, arms=40)
    assert not torch.equal(problem.arms[0], problem.arms[1])
    assert set(problem.observe(torch.zeros(2, 9).long(), problem.tape(9)).unique().tolist()) <= {0.0, 1.0}


def test_a_row_is_made_once_and_again_when_its_code_has_changed(tables, monkeypatch):
    calls = []

    def measure(asked):
        calls.append(asked.player)
        return Row(
            *asked.key, 2, "1.00 2.00", "0.1 0.2", "3 4", math.nan, 1.0, 0.1, players.code_of(asked.player)
        )

    monkeypatch.setattr(regimes, "measure", measure)
    wanted = [job(), job("process", "kappa=1.0")]
    regimes.compute(wanted, "trial")
    regimes.compute(wanted, "trial")
    assert calls == ["UCB1", "process"] and len(regimes.rows("trial")) == 2
    monkeypatch.setattr(regimes, "code_of", lambda player: f"new {player == 'UCB1'}")
    regimes.compute(wanted[:1], "trial", seconds=-1)
    regimes.compute(wanted[:1], "trial", keep=True)
    assert len(calls) == 2  # no time is left; other code's row is kept
    regimes.compute(wanted[:1], "trial")
    assert calls == ["UCB1", "process", "UCB1"]


def test_the_first_runs_of_a_cell_of_the_map_come_out_as_they_are_stored_and_other_instances_do_not():
    regime = Regime("hartmann6", arms=50)
    found, other = regime_map.again(regime, "UCB1", 3), regime_map.again(regime, "UCB1", 3, seed=1)
    assert len(found.now) == 3 and found.now == found.stored == other.stored
    assert not set(other.now) & set(found.now)


def test_what_uniform_play_loses_is_the_best_mean_less_the_average_one():
    regime = Regime("hartmann6", arms=50)
    runs = max(len(regime_map.cells()[regime.name, player].regret) for player in regime_map.players(regime))
    means = regime.world(range(runs)).problem.means.tolist()
    assert runs >= 10
    assert regime_map.uniform(regime) == pytest.approx(sum(max(of) - sum(of) / 50 for of in means) / runs)


def test_a_row_measured_in_two_parts_is_the_row_measured_at_once():
    whole, parts = players.measure(job()), [players.measure(job(runs=range(r, r + 1))) for r in range(2)]
    for name in ("regrets", "late", "packed"):
        assert regimes.numbers(getattr(whole, name)) == [
            value for part in parts for value in regimes.numbers(getattr(part, name))
        ]


@pytest.mark.slow
@pytest.mark.parametrize("player", [name for name in PLAYERS if name not in ("kernel", "process, guarded")])
def test_every_player_plays_a_small_regime_to_its_end(player):
    setting = record.text((PLAYERS[player].grid or PLAYERS[PLAYERS[player].setting_of].grid)[0])
    setting += " value=8.4" if PLAYERS[player].guarded else ""
    row = players.measure(job(player, setting))
    low, high = -1e-9, SMALL.world(range(1)).steps * 3.4
    assert all(low <= value <= high for value in regimes.numbers(row.regrets))
    assert all((value > 0) == (player != "N-GO-UCB") for value in regimes.numbers(row.packed))


def test_a_row_says_of_every_run_what_was_lost_at_last_and_sent():
    regime = Regime("hartmann6", arms=6, rounds=20, clients=2)
    row = players.measure(Job(regime, "UCB1", "b=0.2", 7, range(3, 5)))
    world = regime.world(range(3, 5), 7)
    trace = optimistic_ucb1(world.problem, 2, world.steps, 0.2 * 0.1**2)
    lost = world.problem.means.amax(1, keepdim=True) - world.problem.means.gather(1, trace.arm)
    assert (world.problem.seed, world.steps, row.runs) == (7, 47, 2)
    assert regimes.numbers(row.regrets) == pytest.approx(lost.sum(1).tolist(), abs=0.006)
    assert regimes.numbers(row.late) == pytest.approx(lost[:, -5:].mean(1).tolist(), abs=6e-5)
    assert regimes.numbers(row.packed) == (trace.up + trace.down).sum(1).tolist()
    assert row.syncs == pytest.approx(trace.sync.sum(1).double().mean().item(), abs=0.06)


@pytest.mark.parametrize("guard", [False, True])
def test_a_surrogate_is_played_in_growing_epochs_with_the_kappa_and_the_guard_of_its_setting(guard):
    regime = Regime("hartmann6", arms=8, rounds=15, clients=2)
    world, setting = regime.world(range(1)), {"kappa": 2.0, "value": 8.4}
    given = Guarantee(8.4, 0.1, gamma=1.0) if guard else None
    expected = surrogate_ucb(
        world.problem, GaussianProcess(), 2, 15, until=Growing(1.6), kappa=2.0, guarantee=given
    )
    found = PLAYERS["process, guarded" if guard else "process"].play(world, setting)
    for name in ("arm", "sync", "up", "down"):
        assert torch.equal(getattr(found, name), getattr(expected, name))
    slower = surrogate_ucb(world.problem, GaussianProcess(), 2, 15, until=Growing(1.2), kappa=2.0)
    assert guard or not torch.equal(found.sync, slower.sync)


@pytest.mark.slow
@pytest.mark.parametrize(
    "player", ["Fed-GO-UCB", "One-GO-UCB", "DisLinUCB", "FN-UCB", "Fed-GLB-UCB", "ApproxDisKernelUCB"]
)
def test_the_dense_bill_is_what_the_star_charges(player, monkeypatch):
    world = SMALL.world(range(2))
    setting = dict(PLAYERS[player].grid[0])
    packed = PLAYERS[player].play(world, setting)
    if player == "FN-UCB":
        monkeypatch.setattr(players, "fn_ucb", partial(_dense_fn_ucb, players.fn_ucb))
    dense = PLAYERS[player].play(replace(SMALL.world(range(2)), encoding="dense"), setting)
    assert torch.equal(packed.arm, dense.arm) and bool(dense.sync.any())
    charged = dense.communication[:, -1].double().mean().item()
    assert charged > packed.communication[:, -1].double().mean().item()
    assert players.dense(world, packed, player, setting) == pytest.approx(charged)


def _dense_fn_ucb(play, *args, **options):
    return play(*args, **options | {"encoding": "dense"})


def test_the_tuning_chooses_the_least_geometric_mean(tables, monkeypatch):
    rows = [
        Row(regime.name, "UCB1", f"b={b}", 1000, 0, 1, f"{regret}", "0", "0", math.nan, 0.0, 0.0, "")
        for regime, regrets in zip(TUNING, [(1.0, 5.0), (9.0, 4.0)], strict=True)
        for b, regret in zip((1, 2), regrets, strict=True)
    ]
    record.write("trial", {}, Row._fields, rows)
    (found,) = regimes.chosen("trial")
    assert (found.setting, found.mean) == ("b=1", 3.47)  # √(2·10) < √(6·5), though 5 > 4.5


def test_every_player_has_four_settings_and_is_tuned_on_as_many_instances_that_no_evaluation_uses():
    tuning = [*regimes.tuning_jobs()]
    assert {part.seed for part in tuning} == {TUNING_SEED}
    assert all(len(player.grid) in (0, 4) for player in PLAYERS.values())
    instances = Counter((part.player, part.setting) for part in tuning for _ in part.runs)
    assert set(instances.values()) == {2 * regimes.TUNING_RUNS}
    assert {name for name, _ in instances} == {name for name, player in PLAYERS.items() if player.grid}
    assert {part.regime.family for part in tuning} == {n for n, f in players.FAMILIES.items() if f.saw}


@pytest.fixture
def settled(monkeypatch):
    """Every player's first setting, as if it had been chosen."""
    found = [regimes.Chosen(n, record.text(p.grid[0]), 1.0) for n, p in PLAYERS.items() if p.grid]
    monkeypatch.setattr(regimes, "chosen", lambda: found)


def test_the_evaluation_takes_the_first_runs_of_all_cells_first_and_none_twice(settled):
    assert len({regime.name for regime in REGIMES}) == len(REGIMES)
    jobs = regimes.jobs()
    assert len({job.key for job in jobs}) == len(jobs)
    assert all(job.seed == 0 != TUNING_SEED for job in jobs)
    first = [
        job
        for job in jobs
        if job.player in regimes.MAIN and job.runs.start == 0 and job.regime in regimes.CHEAP
    ]
    assert jobs[: len(first)] == first and len(first) == len(regimes.CHEAP) * len(regimes.MAIN)
    for cell, runs in regimes.planned().items():
        firsts = [job.runs for job in jobs if (job.regime, job.player) == cell]
        assert [run for part in firsts for run in part] == [*range(runs)]  # none is left out
        assert runs >= regimes.LEAST or cell == (TUNING[0], cell[1])
        assert not regimes.why_not(*cell)
    assert all(regimes.planned()[regime, name] >= 10 for regime in REGIMES for name in regimes.MAIN)


def test_a_guard_is_given_its_bound_and_plays_only_where_it_certifies(settled):
    guarded = [job for job in regimes.jobs() if PLAYERS[job.player].guarded]
    assert {job.setting for job in guarded if job.regime.family == "hartmann6"} == {"kappa=1.0 value=8.4"}
    for job in guarded:
        assert job.regime.clients * job.regime.rounds >= regimes.CERTIFIED * job.regime.arms
    assert regimes.why_not(Regime("levy10", arms=50), "process, guarded") == "no bound"
    assert regimes.why_not(Regime("hartmann6"), "process, guarded") == "no certificate"
    assert regimes.why_not(Regime("hartmann6", rounds=1000), "process, guarded") == "dear"
    assert regimes.why_not(Regime("hartmann6", arms=5000), "kernel") == "dear"
    assert not regimes.why_not(Regime("hartmann6", arms=5000), "process")


def fill(*parts):
    """The table of the map with a row for every (regime, player, first, regrets, seconds)."""
    rows = [
        Row(
            regime.name,
            player,
            "",
            0,
            first,
            len(regrets),
            *(" ".join(map(str, regrets)),) * 3,
            1.0,
            2.0,
            s,
            "",
        )
        for regime, player, first, regrets, s in parts
    ]
    record.write(regimes.TABLE, {}, Row._fields, rows)
    regime_map.cells.cache_clear()


@pytest.fixture
def fresh():
    """No cell is remembered after the test."""
    yield
    regime_map.cells.cache_clear()


def test_a_cell_is_its_rows_in_order_up_to_the_first_gap_and_its_worst_tenth_the_largest(tables, fresh):
    many = [float(k) for k in range(20)]
    fill(
        (SMALL, "UCB1", 5, many[5:], 2.0),
        (SMALL, "UCB1", 0, many[:5], 1.0),
        (SMALL, "process", 5, [1.0], 1.0),
    )
    ((_, cell),) = regime_map.cells().items()
    assert cell.regret.tolist() == many and cell.worst == 18.5
    assert cell.seconds == pytest.approx(1.75)


def test_what_is_absent_is_listed_with_its_reason_and_its_price(tables, fresh, settled):
    small, base = Regime("hartmann6", arms=50), Regime("hartmann6")
    ten = [1.0] * 10
    fill((small, "process", 0, ten, 3.0), (small, "kernel", 0, ten, 0.5), (base, "kernel", 0, ten, 6.0))
    found = {(part.regime, part.player): part for part in regime_map.absent()}
    assert found[small, "process"][2:] == (20, "more", 1.0)
    assert (small, "kernel") not in found
    assert found[Regime("hartmann6", arms=5000), "kernel"][2:] == (10, "dear", pytest.approx(100.0))
    assert found[Regime("hartmann6", rounds=1000), "kernel"][2:] == (10, "dear", pytest.approx(10.0))
    assert found[Regime("levy10"), "process, guarded"].reason == "no bound"
    assert math.isnan(found[Regime("levy10"), "process, guarded"].minutes)
    assert found[small, "UCB1"].reason == "time" and math.isnan(found[small, "UCB1"].minutes)  # nobody knows


def test_of_the_map_it_is_said_who_wins_and_who_is_stuck(monkeypatch):
    def cell(regret, late=0.0):
        return SimpleNamespace(regret=np.array(regret), late=np.full(len(regret), late))

    there = {
        (SMALL.name, "UCB1"): cell([5.0, 6.0, 5.5, 90.0]),
        (SMALL.name, "process"): cell([1.0, 2.0, 1.5], late=0.3),
        (SMALL.name, "network"): cell([0.9, 2.3, 1.6], late=0.05),
    }
    monkeypatch.setattr(regime_map, "cells", lambda: there)
    monkeypatch.setattr(regime_map, "uniform", lambda regime: 1.0)
    assert regime_map.leader(SMALL) == "process"  # on the runs that all have
    assert regime_map.alike(SMALL) == ["process", "network"]
    assert regime_map.difference(SMALL, "UCB1", "process")[0] == 4.0
    assert regime_map.ratio(SMALL, "UCB1", "process")[0] == pytest.approx(16.5 / 4.5)
    assert regime_map.pulls(SMALL) == 1
    assert regime_map.stuck(SMALL, "process").all() and not regime_map.stuck(SMALL, "network").any()


@pytest.mark.parametrize("workers", [0, -1])
def test_without_a_process_there_is_no_map_and_one_is_enough(workers, monkeypatch):
    done = []
    monkeypatch.setattr(regimes, "compute", lambda jobs, path, executor, seconds, keep: done.append(executor))
    monkeypatch.setattr(regimes, "_missing", lambda jobs, path, keep: [])
    monkeypatch.setattr("sys.argv", ["make map", "--workers", str(workers)])
    with pytest.raises(ValueError, match=rf"workers is {workers}: give at least one"):
        regimes.main()
    assert not done
    monkeypatch.setattr("sys.argv", ["make map", "--workers", "1"])
    regimes.main()
    assert done == [None, None]  # tuning, then the map, both in this process
