"""The regime map: its problems, its rows, its tuning, and what is said of them."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedgo import fed_go_ucb, shared_start
from fedgo.paper import families, players, record, regime_map, regimes
from fedgo.paper.players import PLAYERS, Job, Regime, Row
from fedgo.paper.regimes import REGIMES, TUNING

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
    assert len(calls) == 2  # no time is left
    regimes.compute(wanted[:1], "trial")
    assert calls == ["UCB1", "process", "UCB1"]


def test_a_row_measured_in_two_parts_is_the_row_measured_at_once():
    whole, parts = players.measure(job()), [players.measure(job(runs=range(r, r + 1))) for r in range(2)]
    for name in ("regrets", "late", "packed"):
        assert regimes.numbers(getattr(whole, name)) == [
            value for part in parts for value in regimes.numbers(getattr(part, name))
        ]


@pytest.mark.parametrize("player", [name for name in PLAYERS if name not in ("kernel", "process, guarded")])
def test_every_player_plays_a_small_regime_to_its_end(player):
    setting = record.text((PLAYERS[player].grid or PLAYERS[PLAYERS[player].setting_of].grid)[0])
    setting += " value=8.4" if PLAYERS[player].guarded else ""
    row = players.measure(job(player, setting))
    low, high = -1e-9, SMALL.world(range(1)).steps * 3.4
    assert all(low <= value <= high for value in regimes.numbers(row.regrets))
    assert all((value > 0) == (player != "N-GO-UCB") for value in regimes.numbers(row.packed))


def test_the_dense_bill_is_what_the_star_charges():
    world = SMALL.world(range(2))
    start = shared_start(world.problem, world.network, 2, 3)
    settings = players._ridge(world, {"s": 3.0, "kappa": 1.0})
    packed = PLAYERS["Fed-GO-UCB"].play(world, {"s": 3.0, "kappa": 1.0})
    dense = fed_go_ucb(world.problem, start, replace(settings, encoding="dense"))
    assert torch.equal(packed.arm, dense.arm) and bool(dense.sync.any())
    charged = dense.communication[:, -1].double().mean().item()
    assert players.dense(world, packed, "Fed-GO-UCB", {}) == pytest.approx(charged)


def test_the_tuning_chooses_the_least_geometric_mean(tables, monkeypatch):
    rows = [
        Row(regime.name, "UCB1", f"b={b}", 1000, 0, 1, f"{regret}", "0", "0", math.nan, 0.0, 0.0, "")
        for regime, regrets in zip(TUNING, [(1.0, 5.0), (9.0, 4.0)], strict=True)
        for b, regret in zip((1, 2), regrets, strict=True)
    ]
    record.write("trial", {}, Row._fields, rows)
    (found,) = regimes.chosen("trial")
    assert (found.setting, found.mean) == ("b=1", 3.47)  # √(2·10) < √(6·5), though 5 > 4.5


def test_the_evaluation_uses_no_instance_of_the_tuning_and_each_regime_has_a_name():
    assert len({regime.name for regime in REGIMES}) == len(REGIMES)
    assert all(part.seed == regimes.TUNING_SEED for part in regimes.tuning_jobs())
    assert all(len(player.grid) in (0, 4) for player in PLAYERS.values())


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
    assert regime_map.stuck(SMALL, "process").all() and not regime_map.stuck(SMALL, "network").any()
