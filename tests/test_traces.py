"""Stored traces equal computed ones, and go with the problem, the code and the libraries that made them."""

from dataclasses import replace
from functools import wraps

import pytest

from fedgo.experiments import traces
from fedgo.experiments.players import Player, World
from fedgo.experiments.results import evaluate, tuned
from fedgo.experiments.roster import ALGORITHMS
from fedgo.problems import clustered, hartmann6

FEW = ["Uniform", "DisLinUCB"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A store."""
    monkeypatch.setenv(traces.FOLDER, str(tmp_path))
    return tmp_path


@pytest.fixture
def computed(monkeypatch):
    """The algorithms that are played, with the runs they are played on."""
    calls = []
    for name in FEW:

        @wraps(ALGORITHMS[name].play)
        def play(world, setting, name=name, original=ALGORITHMS[name].play):
            calls.append((name, world.problem.runs))
            return original(world, setting)

        monkeypatch.setitem(ALGORITHMS, name, replace(ALGORITHMS[name], play=play))
    monkeypatch.setattr("fedgo.experiments.results.EVERY", ALGORITHMS)
    return calls


def small(runs=3, **changes):
    """A world on which every algorithm takes a moment."""
    own = {name: changes.pop(name) for name in ("seed", "sigma") if name in changes}
    return replace(World(hartmann6(runs, arms=8, **own), 3, 6), **changes)


def test_without_a_folder_nothing_is_stored(computed, tmp_path, monkeypatch):
    monkeypatch.delenv(traces.FOLDER, raising=False)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        evaluate("hartmann6", 1, algorithms=FEW)
    assert len(computed) == 4 and [*tmp_path.iterdir()] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_stored_and_computed_traces_are_the_same(name, tmp_path, monkeypatch):
    setting = tuned("hartmann6", name)
    monkeypatch.delenv(traces.FOLDER, raising=False)
    whole = ALGORITHMS[name].run(small(), setting)
    monkeypatch.setenv(traces.FOLDER, str(tmp_path))
    for _ in range(2):
        assert ALGORITHMS[name].run(small(), setting) == whole


def test_what_is_kept_is_not_computed_again(folder, computed):
    for runs in (2, 2, 1):
        evaluate("hartmann6", runs, algorithms=FEW)
    assert computed == [(name, runs) for runs in ((0, 1), (0,)) for name in FEW]


def other_arms(one):
    arms = one.problem.arms.clone()
    arms[1, 0, 0] += 1e-12
    return replace(one, problem=replace(one.problem, arms=arms))


@pytest.mark.slow
@pytest.mark.parametrize(
    "other",
    [
        lambda: small(seed=1),
        lambda: small(sigma=0.2),
        lambda: small(clients=4),
        lambda: small(rounds=7),
        lambda: small(encoding="cheapest"),
        lambda: other_arms(small()),
        lambda: replace(small(), problem=replace(small().problem, means=small().problem.means + 1)),
        lambda: World(replace(small().problem, runs=(4, 5, 3)), 3, 6),
        lambda: World(clustered("magic", 3), 3, 6),
        lambda: World(clustered("magic", 3, reward="bernoulli"), 3, 6),
    ],
)
def test_another_problem_is_not_taken_for_this(folder, other, monkeypatch):
    setting = {"lam": 0.1, "beta": 0.1}
    ALGORITHMS["DisLinUCB"].run(World(clustered("magic", 3, sigma=0.2), 3, 6), setting)
    ALGORITHMS["DisLinUCB"].run(small(), setting)
    found = ALGORITHMS["DisLinUCB"].run(other(), setting)
    monkeypatch.delenv(traces.FOLDER)
    assert found == ALGORITHMS["DisLinUCB"].run(other(), setting)


def test_other_code_or_libraries_compute_again(folder, computed, monkeypatch):
    ALGORITHMS["Uniform"].run(small(), {})
    monkeypatch.setattr(traces, "code", lambda modules, files: "0" * 16)
    ALGORITHMS["Uniform"].run(small(), {})
    monkeypatch.setattr(traces, "version", lambda name: "99")
    for _ in range(2):
        ALGORITHMS["Uniform"].run(small(), {})
    assert len(computed) == 3


def test_what_nobody_knows_the_code_of_is_not_kept(folder):
    played = []
    mine = Player(lambda world, setting: played.append(1) or ALGORITHMS["Uniform"].play(world, setting))
    for _ in range(2):
        mine.run(small(), {})
    assert len(played) == 2


def test_a_damaged_file_is_computed_again(folder, computed):
    ALGORITHMS["Uniform"].run(small(), {})
    (kept,) = folder.rglob("output.pkl")
    kept.write_bytes(kept.read_bytes()[:500])
    for _ in range(2):
        ALGORITHMS["Uniform"].run(small(), {})
    assert len(computed) == 2
