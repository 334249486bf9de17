"""The guard on the paper's experiments: what it is given, that the store tells all settings apart, and who plays."""

import pytest
import torch

from fedgo import Settings, fed_go_ucb
from fedgo.beyond.counted import optimistic_ucb1
from fedgo.beyond.guard import Guarantee, guarded_fed_go_ucb
from fedgo.experiments import guarded as played
from fedgo.experiments import store
from fedgo.experiments.comparison import EXPERIMENTS, tuned, world


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_the_guard_is_given_bounds_what_there_is(name):
    problem, given = world(name, 20).problem, played.guarantee(name)
    assert (problem.means.abs() <= given.value).all() and problem.sigma == given.sigma


def test_the_players_are_the_algorithms_at_their_tuned_settings():
    within = played._batches("hartmann6", 2, 3, 4)[0]
    setting, beta = tuned("hartmann6", "Fed-GO-UCB"), tuned("hartmann6", "UCB1, shared")["beta"]
    given = Guarantee(8.4, 0.1, kappa=3.0, gamma=0.2)
    expected = guarded_fed_go_ucb(within.problem, within.shared, Settings(**setting), given)
    assert played.guarded("hartmann6", 2, 3, 4, kappa=3.0, gamma=0.2) == expected
    uninformed = guarded_fed_go_ucb(within.problem, within.shared, Settings(**setting), given, informed=False)
    assert played.guarded("hartmann6", 2, 3, 4, informed=False, kappa=3.0, gamma=0.2) == uninformed
    other = played.guarded("hartmann6", 2, 3, 4, setting={"lam": 0.3, "beta": 2.0}, kappa=3.0, gamma=0.2)
    assert other == guarded_fed_go_ucb(within.problem, within.shared, Settings(0.3, 2.0), given)
    assert not torch.equal(other.arm, expected.arm)
    free = fed_go_ucb(within.problem, within.shared, Settings(**{**setting, "gamma": 0.2}))
    assert played.unguarded("hartmann6", 2, 3, 4, gamma=0.2) == free
    alone = optimistic_ucb1(within.problem, within.clients, within.steps, beta, gamma=0.2)
    assert played.counted("hartmann6", 2, 3, 4, gamma=0.2) == alone
    assert len({len(t.arm[0]) for t in (expected, free, alone)}) == 1  # equal budgets


def test_the_store_tells_every_setting_apart_and_batches_change_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv(store.FOLDER, str(tmp_path))
    arguments = [
        {}, {"kappa": 3.0}, {"value": 9.0}, {"sigma": 0.2}, {"delta": 0.2}, {"gamma": 0.7}, {"patience": 1},
        {"informed": False}, {"rounds": 3}, {"setting": {"lam": 0.3, "beta": 2.0}},
    ]  # fmt: skip
    traces = [played.guarded("hartmann6", 2, **({"rounds": 2} | changes)) for changes in arguments]
    assert len([*tmp_path.glob("*.npz")]) == len(arguments)
    for changes, trace in zip(arguments, traces, strict=True):  # now they are read
        again = played.guarded("hartmann6", 2, **({"rounds": 2} | changes))
        assert again == trace and again.notes["proposed"].dtype == torch.bool
    played.counted("hartmann6", 2, rounds=2, gamma=0.1)
    played.counted("hartmann6", 2, rounds=2, gamma=0.2)
    assert len([*tmp_path.glob("*.npz")]) == len(arguments) + 2
    monkeypatch.delenv(store.FOLDER)
    monkeypatch.setattr(played, "_BATCH", 1)
    parts = played.guarded("hartmann6", 2, rounds=2)
    assert torch.equal(parts.arm, traces[0].arm) and torch.equal(parts.sync, traces[0].sync)


def test_bad_arguments_are_refused_by_name():
    for call, message in (
        (lambda: played.guarantee("hartmann"), "name is 'hartmann': choose one of"),
        (lambda: played.guarded("hartmann", 2), "name is 'hartmann': choose one of"),
        (lambda: played.unguarded("hartmann6", 0), "runs is 0: give at least one run"),
        (lambda: played.counted("hartmann6", 2, rounds=0), "rounds is 0: give T"),
        (lambda: played.guarded("hartmann6", 2, kappa=0.5), r"kappa is 0\.5: give κ ≥ 1"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
