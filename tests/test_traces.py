"""Stored traces equal computed ones; another problem, setting, library or code is played anew."""

from dataclasses import replace

import pytest

from fedgo.experiments import traces
from fedgo.experiments.players import Player
from fedgo.experiments.results import evaluate, tuned
from fedgo.experiments.roster import ALGORITHMS
from fedgo.experiments.world import World
from fedgo.problems import clustered, hartmann6

FEW = ["Uniform", "DisLinUCB"]
SETTINGS = {"Uniform": {}, "DisLinUCB": {"lam": 0.1, "beta": 0.1}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A store."""
    monkeypatch.setenv(traces.VARIABLE, str(tmp_path))
    return tmp_path


@pytest.fixture
def computed(monkeypatch):
    """The algorithms that are played, with the runs they are played on."""
    calls = []
    for name in FEW:

        def play(world, setting, name=name, original=ALGORITHMS[name].call):
            calls.append((name, world.problem.runs))
            return original(world, setting)

        play.__module__, play.key = ALGORITHMS[name].call.__module__, ALGORITHMS[name].call.key
        monkeypatch.setitem(ALGORITHMS, name, replace(ALGORITHMS[name], call=play))
    return calls


def small(runs=3, **changes):
    """A world on which every algorithm takes a moment."""
    own = {name: changes.pop(name) for name in ("seed", "sigma") if name in changes}
    return replace(World(hartmann6(runs, arms=8, **own), 3, 6), **changes)


def test_without_a_folder_nothing_is_stored(computed, tmp_path, monkeypatch):
    monkeypatch.delenv(traces.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        evaluate("hartmann6", 1, algorithms=FEW)
    assert len(computed) == 4 and [*tmp_path.iterdir()] == []


def test_what_is_stored_is_not_played_again(folder, computed):
    first, again = (evaluate("hartmann6", 2, algorithms=FEW) for _ in range(2))
    assert first == again and computed == [(name, (0, 1)) for name in FEW]


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_stored_and_computed_traces_are_the_same(name, tmp_path, monkeypatch):
    setting = tuned("hartmann6", name)
    monkeypatch.delenv(traces.VARIABLE, raising=False)
    whole = ALGORITHMS[name].play(small(3), setting)
    monkeypatch.setenv(traces.VARIABLE, str(tmp_path))
    assert all(ALGORITHMS[name].play(small(3), setting) == whole for _ in range(2))


def other_arms(one):
    arms = one.problem.arms.clone()
    arms[1, 0, 0] += 1e-12
    return replace(one, problem=replace(one.problem, arms=arms))


@pytest.mark.parametrize(
    "other",
    [
        lambda: small(seed=1),
        lambda: small(clients=4),
        lambda: small(encoding="cheapest"),
        lambda: other_arms(small()),
        lambda: World(replace(small().problem, runs=(4, 5, 3)), 3, 6),
        lambda: World(clustered("magic", 3, reward="bernoulli"), 3, 6),
    ],
)
def test_another_problem_is_not_taken_for_this(folder, other, monkeypatch):
    ALGORITHMS["DisLinUCB"].play(small(), SETTINGS["DisLinUCB"])
    found = ALGORITHMS["DisLinUCB"].play(other(), SETTINGS["DisLinUCB"])
    monkeypatch.delenv(traces.VARIABLE)
    assert found == ALGORITHMS["DisLinUCB"].play(other(), SETTINGS["DisLinUCB"])


def test_another_setting_other_code_or_libraries_compute_again(folder, computed, monkeypatch):
    setting = SETTINGS["DisLinUCB"]
    ALGORITHMS["DisLinUCB"].play(small(), setting)
    ALGORITHMS["DisLinUCB"].play(small(), setting | {"gamma": 1.0})  # the default
    assert len(computed) == 1
    ALGORITHMS["DisLinUCB"].play(small(), setting | {"beta": 0.2})
    monkeypatch.setattr(traces, "code", lambda: "0" * 16)
    ALGORITHMS["DisLinUCB"].play(small(), setting)
    monkeypatch.setattr(traces, "version", lambda name: "99")
    ALGORITHMS["DisLinUCB"].play(small(), setting)
    assert len(computed) == 4


def test_what_nobody_knows_the_code_of_is_not_kept(folder):
    Player(lambda world, setting: ALGORITHMS["Uniform"].call(world, setting)).play(small(), {})
    assert [*folder.iterdir()] == []
