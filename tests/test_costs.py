"""The costs: every player plays the size it is asked for, and the exponent is that of a power."""

from types import SimpleNamespace

import pytest

from fedgo.experiments import costs, record
from fedgo.experiments.costs import CURVES, Row, Size, exponent, measured, play, recorded, value


@pytest.mark.parametrize("player", ["parameters", "arms", "kernel", "process"])
def test_a_player_plays_the_size(player):
    found = play(player, Size(9, 2, 3, 4))
    assert found.trace.arm.shape[1] - found.trace.phase_one == 6 and found.trace.clients == 2
    assert found.trace.arm.max() < 9 and found.seconds > 0


def test_the_seconds_are_those_of_the_second_phase(monkeypatch):
    now = iter([100.0, 100.25])
    monkeypatch.setattr(costs, "time", SimpleNamespace(process_time=lambda: next(now)))
    assert play("parameters", Size(9, 2, 3, 4)).seconds == 0.25


def test_both_spaces_pull_the_same_arms():
    one, other = (play(player, Size(60, 3, 20, 4)).trace for player in ("arms", "parameters"))
    assert one.arm.tolist() == other.arm.tolist() and one.sync.tolist() == other.sync.tolist()


def test_a_curve_is_by_what_changes():
    for curve in CURVES.values():
        values = [value(curve, size) for size in curve.sizes]
        assert values == sorted(set(values))
        parts = [(size.arms, size.clients, size.rounds, size.hidden) for size in curve.sizes]
        assert sum(len(set(part)) > 1 for part in zip(*parts, strict=True)) == 1
    assert value(CURVES["units"], Size(hidden=250)) == 2001


def test_the_exponent_is_that_of_a_power_and_the_record_gives_it_back(tmp_path, monkeypatch):
    rows = [Row("clients", 1, 90.0, 0.5, 7)]  # what does not grow does not count
    rows += [Row("clients", n, 2.0 * n**1.5, 0.5, 7) for n in (10, 100, 1000)]
    assert exponent(rows) == pytest.approx(1.5)
    monkeypatch.setattr(record, "DATA", tmp_path)
    monkeypatch.setattr(costs, "measure_all", lambda: rows)
    costs.main()
    assert recorded("clients") == rows and recorded("rounds") == []


def test_memory_is_that_of_the_process():
    row = measured("parameter space", Size(50, 2, 2, 3))
    assert 0.05 < row.gigabytes < 20 and row.value == 50
