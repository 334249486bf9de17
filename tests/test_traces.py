"""Stored traces equal computed ones, are extended by the runs that are lacking, and go with the code that made them."""

from dataclasses import replace

import pytest

from fedgo.experiments import traces
from fedgo.experiments.code import hashes
from fedgo.experiments.players import Play, Player
from fedgo.experiments.results import evaluate, tuned
from fedgo.experiments.roster import ALGORITHMS
from fedgo.experiments.world import World
from fedgo.problems import clustered, hartmann6

FEW = ["Uniform", "DisLinUCB"]


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

        def play(world, setting, name=name, original=ALGORITHMS[name].play.call):
            calls.append((name, world.problem.runs))
            return original(world, setting)

        known = replace(ALGORITHMS[name].play, call=play)
        monkeypatch.setitem(ALGORITHMS, name, replace(ALGORITHMS[name], play=known))
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_stored_and_computed_traces_are_the_same(name, tmp_path, monkeypatch):
    """At once, and in the pieces that the store makes of it."""
    setting = tuned("hartmann6", name)
    monkeypatch.delenv(traces.VARIABLE, raising=False)
    whole = ALGORITHMS[name].run(small(3), setting)
    monkeypatch.setenv(traces.VARIABLE, str(tmp_path))
    for runs in (2, 3, 1):
        assert ALGORITHMS[name].run(small(runs), setting) == whole.first(runs)


def test_only_what_is_lacking_is_computed(folder, computed):
    for runs in (2, 2, 1):
        evaluate("hartmann6", runs, algorithms=FEW)
    assert computed == [(name, (0, 1)) for name in FEW]
    evaluate("hartmann6", 4, algorithms=FEW)
    assert computed[2:] == [(name, (2, 3)) for name in FEW]


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
    monkeypatch.delenv(traces.VARIABLE)
    assert found == ALGORITHMS["DisLinUCB"].run(other(), setting)


def test_other_code_or_libraries_compute_again_and_remove_what_older_code_made(folder, computed, monkeypatch):
    for name in FEW:
        ALGORITHMS[name].run(small(), {"lam": 0.1, "beta": 0.1} if name == "DisLinUCB" else {})
    monkeypatch.setattr(traces, "code", lambda modules, files: "0" * 16)
    ALGORITHMS["Uniform"].run(small(), {})
    assert len(computed) == 3 and len([*folder.glob("*-*")]) == 2
    monkeypatch.setattr(traces, "version", lambda name: "99")
    ALGORITHMS["Uniform"].run(small(), {})
    assert len(computed) == 4


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_stored_trace_goes_with_the_module_of_its_own_algorithm(folder, monkeypatch, name):
    roots = []
    monkeypatch.setattr(traces, "code", lambda modules, files: roots.extend(modules) or "0" * 16)
    key = ALGORITHMS[name].play.key
    traces.stored(ALGORITHMS["Uniform"].play.call, key, small(), {})
    assert key.split(", ")[0].rpartition(".")[0] in hashes(roots)


def test_what_nobody_knows_the_code_of_is_not_kept(folder):
    mine = Player(Play(lambda world, setting: ALGORITHMS["Uniform"].play(world, setting)))
    mine.run(small(), {})
    ALGORITHMS["UCB1, shared"].run(small(), {"beta": 1.0})
    assert len([*folder.glob("*-*")]) == 1  # the second


@pytest.mark.parametrize("damage", [lambda p: p.write_bytes(p.read_bytes()[:500]), lambda p: p.unlink()])
def test_a_damaged_file_is_computed_again(folder, computed, damage):
    ALGORITHMS["Uniform"].run(small(), {})
    damage(sorted(folder.glob("*/*.npz"))[0])
    for _ in range(2):
        ALGORITHMS["Uniform"].run(small(), {})
    assert [len(runs) for _, runs in computed] == [3, 1]
