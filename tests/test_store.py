"""Stored traces equal computed ones, are extended by the runs that are lacking, and go with the code that made them."""

import multiprocessing
import os
import sys
from dataclasses import replace
from functools import partial, wraps

import pytest

from fedgo.experiments import store
from fedgo.experiments.code import closure
from fedgo.experiments.comparison import ALGORITHMS, EVERY, YARDSTICKS, World, evaluate, tuned, world
from fedgo.problems import clustered, hartmann6

FEW = ["Uniform", "DisLinUCB"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A store."""
    monkeypatch.setenv(store.FOLDER, str(tmp_path))
    return tmp_path


@pytest.fixture
def computed(monkeypatch):
    """The algorithms that are computed, with the runs they are computed on."""
    calls = []
    for name, algorithm in EVERY.items():

        @wraps(algorithm.compute)
        def compute(world, setting, name=name, original=algorithm.compute):
            calls.append((name, world.problem.runs))
            return original(world, setting)

        for table in (ALGORITHMS, EVERY):
            if name in table:
                monkeypatch.setitem(table, name, replace(algorithm, compute=compute))
    return calls


def heard(call):
    """What is announced as read while ``call`` runs; a hook cannot be removed, so it falls silent."""
    facts, listening = [], [True]

    def hear(event, arguments):
        if listening and event == store.EVENT:
            facts.extend(arguments)

    sys.addaudithook(hear)
    call()
    listening.clear()
    return facts


def small(runs=3, **changes):
    """A world on which every algorithm takes a moment."""
    problem = hartmann6(
        runs, arms=8, **{key: changes.pop(key) for key in ("seed", "sigma") if key in changes}
    )
    return replace(World(problem, 3, 6), **changes)


def test_without_a_folder_nothing_is_stored(computed, tmp_path, monkeypatch):
    monkeypatch.delenv(store.FOLDER, raising=False)
    monkeypatch.chdir(tmp_path)
    evaluate("hartmann6", 1, algorithms=FEW)
    evaluate("hartmann6", 1, algorithms=FEW)
    assert len(computed) == 4
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_stored_and_computed_traces_are_the_same(name, tmp_path, monkeypatch):
    """At once, and in the pieces that the store makes of it."""
    setting = tuned("hartmann6", name)
    monkeypatch.delenv(store.FOLDER, raising=False)
    whole = ALGORITHMS[name].run(small(3), setting)
    monkeypatch.setenv(store.FOLDER, str(tmp_path))
    for runs in (2, 3, 1):
        assert ALGORITHMS[name].run(small(runs), setting) == whole.first(runs)


def test_only_what_is_lacking_is_computed(folder, computed):
    evaluate("hartmann6", 2, algorithms=FEW)
    computed.clear()
    evaluate("hartmann6", 2, algorithms=FEW)
    evaluate("hartmann6", 1, algorithms=["Uniform"])
    assert computed == []
    evaluate("hartmann6", 4, algorithms=FEW)
    assert computed == [(name, (2, 3)) for name in FEW]
    computed.clear()
    evaluate(
        "hartmann6", 10, algorithms=["Uniform"]
    )  # of most of them nothing is there: all are computed at once
    assert computed == [("Uniform", tuple(range(10)))]
    evaluate("hartmann6", 10, algorithms=["Uniform"])
    assert len(computed) == 1


def test_a_batch_is_found_wherever_it_is_asked_for(folder, computed):
    problem = hartmann6(6, arms=8)
    for positions in ((2, 3, 4, 5), (2, 3), (0, 1, 2, 3, 4, 5), (0, 1)):
        ALGORITHMS["Uniform"].run(World(problem.only(*positions), 3, 6), {})
    assert computed == [("Uniform", (2, 3, 4, 5)), ("Uniform", (0, 1, 2, 3, 4, 5))]


def test_phase_one_is_shared_by_those_that_need_it(folder, watch):
    one = small()
    calls = watch(World.shared, "func")
    for name in ("Fed-GO-UCB", "One-GO-UCB"):
        ALGORITHMS[name].run(one, tuned("hartmann6", name))
    assert len(calls) == 1


def other_arms(one):
    arms = one.problem.arms.clone()
    arms[1, 0, 0] += 1e-12
    return replace(one, problem=replace(one.problem, arms=arms))


def other_means(one):
    return replace(one, problem=replace(one.problem, means=one.problem.means + 1))


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
        lambda: other_means(small()),
        lambda: World(replace(small().problem, runs=(0, 1, 3)), 3, 6),
        lambda: World(clustered("magic", 3), 3, 6),
        lambda: World(clustered("magic", 3, reward="bernoulli"), 3, 6),
    ],
)
def test_another_problem_is_not_taken_for_this(folder, computed, other, monkeypatch):
    setting = {"lam": 0.1, "beta": 0.1}
    ALGORITHMS["DisLinUCB"].run(World(clustered("magic", 3, sigma=0.2), 3, 6), setting)
    ALGORITHMS["DisLinUCB"].run(small(), setting)
    found = ALGORITHMS["DisLinUCB"].run(other(), setting)
    monkeypatch.delenv(store.FOLDER)
    assert found == ALGORITHMS["DisLinUCB"].run(other(), setting)
    assert len(computed) == 4


def test_another_setting_is_not_taken_for_this_and_the_usual_threshold_is(folder, computed):
    run = ALGORITHMS["DisLinUCB"].run
    run(small(), {"lam": 0.1, "beta": 0.1})
    run(small(), {"lam": 0.1, "beta": 0.1, "gamma": 1.0})
    assert len(computed) == 1
    for setting in ({"lam": 0.1, "beta": 0.2}, {"lam": 0.1, "beta": 0.1, "gamma": float("inf")}):
        run(small(), setting)
    assert len(computed) == 3


def test_another_version_of_a_library_computes_again(folder, computed, monkeypatch):
    ALGORITHMS["Uniform"].run(small(), {})
    monkeypatch.setattr(store, "version", lambda name: "99")
    ALGORITHMS["Uniform"].run(small(), {})
    assert len(computed) == 2


def test_other_code_computes_again_and_removes_what_the_old_one_made(folder, computed, monkeypatch):
    for name in FEW:
        ALGORITHMS[name].run(small(), {})
    before = {path.name for path in folder.glob("*.npz")}
    monkeypatch.setattr(store, "code", lambda modules, files: "0" * 16)
    ALGORITHMS["Uniform"].run(small(), {})
    assert [name for name, _ in computed] == [*FEW, "Uniform"]
    after = {path.name for path in folder.glob("*.npz")}
    assert len(before) == len(after) == 2
    assert len(before & after) == 1 and any("0" * 16 in name for name in after)


def made_by(name, monkeypatch):
    """How the store knows a trace of the algorithm ``name``."""
    seen = []
    monkeypatch.setattr(store, "stored", lambda made, problem, compute: seen.append(made))
    (ALGORITHMS | YARDSTICKS)[name].run(small(), {})
    return seen[0]


def test_the_code_of_a_trace_is_that_of_its_algorithm(monkeypatch):
    found = {name: made_by(name, monkeypatch) for name in ALGORITHMS | YARDSTICKS}
    modules = {name: set(closure(made.modules)) for name, made in found.items()}
    assert "fedgo.algorithms.fed_glb_ucb" in modules["Fed-GLB-UCB"]
    assert "fedgo.algorithms.fed_glb_ucb" not in modules["Fed-GO-UCB"]
    for names in modules.values():
        assert {"fedgo.trace", "fedgo.problem", "fedgo._streams"} <= names
        assert not any(name.startswith(("fedgo.experiments.", "fedgo.theory")) for name in names)
    assert {made.files for made in found.values()} == {("paper/experiments.py",)}
    assert len({made.how["algorithm"] for made in found.values()}) == len(found)


def cut(path):
    path.write_bytes(path.read_bytes()[:500])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("suffix", ["npz", "json"])
@pytest.mark.parametrize(
    "damage", [cut, flip, lambda path: path.unlink(), lambda path: path.write_bytes(b"[]")]
)
def test_a_damaged_file_is_computed_again(folder, computed, suffix, damage):
    ALGORITHMS["Uniform"].run(small(40), {})
    (path,) = folder.glob(f"*.{suffix}")
    damage(path)
    ALGORITHMS["Uniform"].run(small(40), {})
    ALGORITHMS["Uniform"].run(small(40), {})
    assert len(computed) == 2


def test_what_is_read_is_announced_and_what_is_computed_is_not(folder):
    assert heard(lambda: evaluate("hartmann6", 2, algorithms=FEW)) == []
    facts = heard(lambda: evaluate("hartmann6", 1, algorithms=FEW))
    assert [fact["algorithm"] for fact in facts] == FEW
    (first, _) = facts
    assert (first["problem"], first["seed"], first["runs"]) == ("Hartmann6", 0, 1)
    assert first["code"] == store.code(first["modules"], first["files"])
    assert first["made"].startswith("20")
    (more,) = heard(lambda: evaluate("hartmann6", 3, algorithms=["Uniform"]))
    assert more["runs"] == 2  # the third is computed


def _evaluate(path, answers):
    os.environ[store.FOLDER] = str(path)
    within = world("hartmann6", 2)
    runs = [partial(ALGORITHMS[name].run, within, tuned("hartmann6", name)) for name in FEW]
    answers.put([len(heard(run)) for run in runs])


def test_two_processes_do_not_compute_the_same(tmp_path):
    answers = multiprocessing.Queue()
    both = [multiprocessing.Process(target=_evaluate, args=(tmp_path, answers)) for _ in range(2)]
    for process in both:
        process.start()
    found = [answers.get(timeout=120) for _ in both]
    assert [sum(pair) for pair in zip(*found, strict=True)] == [1, 1]  # one computed it, the other read it
    for process in both:
        process.join()
