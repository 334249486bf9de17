"""Stored traces equal computed ones, are extended by the runs that are lacking, and go with the code that made them."""

import multiprocessing
import sys
from dataclasses import replace

import pytest

from fedgo.paper import experiments, store
from fedgo.paper.code import closure
from fedgo.paper.experiments import ALGORITHMS, evaluate

FEW = ["Uniform", "DisLinUCB"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A store, and a count of the runs that are computed."""
    monkeypatch.setenv(store.FOLDER, str(tmp_path))
    return tmp_path


@pytest.fixture
def computed(monkeypatch):
    """The algorithms that are run, with the runs they are run on."""
    calls = []
    for name, algorithm in ALGORITHMS.items():

        def run(world, setting, name=name, original=algorithm.run):
            calls.append((name, world.problem.runs))
            return original(world, setting)

        run.__module__ = algorithm.run.__module__
        monkeypatch.setitem(ALGORITHMS, name, replace(algorithm, run=run))
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


def test_without_a_folder_nothing_is_stored(computed, tmp_path, monkeypatch):
    monkeypatch.delenv(store.FOLDER, raising=False)
    monkeypatch.chdir(tmp_path)
    evaluate("hartmann6", 1, algorithms=FEW)
    evaluate("hartmann6", 1, algorithms=FEW)
    assert len(computed) == 4
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("name", experiments.EXPERIMENTS)
def test_stored_and_computed_traces_are_the_same(name, tmp_path, monkeypatch):
    """Every algorithm of the paper and every control: at once, and in the pieces that the store makes of it."""
    names = [*ALGORITHMS] if name == "hartmann6" else [*FEW, "UCB1, shared"]
    monkeypatch.delenv(store.FOLDER, raising=False)
    whole = evaluate(name, 3, algorithms=names)
    monkeypatch.setenv(store.FOLDER, str(tmp_path))
    evaluate(name, 1, algorithms=names[:2])
    for runs in (2, 3, 1, 3):
        assert evaluate(name, runs, algorithms=names) == {a: t.first(runs) for a, t in whole.items()}


def test_only_what_is_lacking_is_computed(folder, computed):
    evaluate("hartmann6", 2, algorithms=FEW)
    computed.clear()
    evaluate("hartmann6", 2, algorithms=FEW)
    evaluate("hartmann6", 1, algorithms=["Uniform"])
    assert computed == []
    evaluate("hartmann6", 4, algorithms=FEW)
    assert computed == [(name, (2, 3)) for name in FEW]
    computed.clear()
    evaluate("hartmann6", 5, algorithms=["Uniform"])
    assert computed == [("Uniform", (4,))]
    computed.clear()
    evaluate("hartmann6", 6, algorithms=FEW)
    assert computed == [(name, (4, 5)) for name in FEW]
    evaluate("hartmann6", 5, algorithms=["Uniform"])
    assert len(computed) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"sigma": 0.2},
        {"arms": 20},
        {"name": "cosine8"},
    ],
)
def test_another_problem_has_another_place(folder, computed, other):
    evaluate("hartmann6", 1, algorithms=FEW)
    computed.clear()
    evaluate(**{"name": "hartmann6", "runs": 1, "algorithms": FEW} | other)
    assert len(computed) == 2
    assert len([*folder.glob("*/*.npz")]) == 4


def test_another_setting_has_another_place(folder, computed, monkeypatch):
    evaluate("hartmann6", 1, algorithms=["DisLinUCB"])
    monkeypatch.setattr(experiments, "tuned", lambda name, algorithm: {"lam": 0.5, "beta": 0.5})
    evaluate("hartmann6", 1, algorithms=["DisLinUCB"])
    assert len(computed) == 2


def test_other_code_computes_again_and_removes_what_the_old_one_made(folder, computed, monkeypatch):
    evaluate("hartmann6", 1, algorithms=FEW)
    before = {path.name for path in folder.glob("*/*.npz")}
    computed.clear()
    monkeypatch.setattr(store, "code", lambda modules, files: "0" * 16)
    evaluate("hartmann6", 1, algorithms=["Uniform"])
    assert computed == [("Uniform", (0,))]
    after = {path.name for path in folder.glob("*/*.npz")}
    assert len(before) == len(after) == 2
    assert len(before & after) == 1 and any("0" * 16 in name for name in after)


def test_the_code_of_a_trace_is_that_of_its_algorithm_and_its_problem():
    files = {name: set(closure(experiments._key("magic", name, 0, {}).modules)) for name in ALGORITHMS}
    assert "fedgo.algorithms.fed_glb_ucb" in files["Fed-GLB-UCB"]
    assert "fedgo.algorithms.fed_glb_ucb" not in files["Fed-GO-UCB"]
    for names in files.values():
        assert {"fedgo.paper.problems", "fedgo.simulation", "fedgo._streams"} <= names
        assert not names & {"fedgo.paper.claims", "fedgo.paper.tune", "fedgo.theory.theorem"}
    assert experiments._key("magic", "Uniform", 0, {}).files == (
        "paper/experiments.py",
        "paper/data/magic.csv",
    )


@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_a_damaged_file_is_computed_again(folder, computed, content):
    evaluate("hartmann6", 1, algorithms=["Uniform"])
    (path,) = folder.glob("*/*.npz")
    path.write_bytes(path.read_bytes()[:500] if content is None else content)
    evaluate("hartmann6", 1, algorithms=["Uniform"])
    evaluate("hartmann6", 1, algorithms=["Uniform"])
    assert len(computed) == 2


def test_what_is_read_is_announced_and_what_is_computed_is_not(folder):
    assert heard(lambda: evaluate("hartmann6", 2, algorithms=FEW)) == []
    facts = heard(lambda: evaluate("hartmann6", 1, algorithms=FEW))
    assert [fact["algorithm"] for fact in facts] == FEW
    (first, _) = facts
    key = experiments._key("hartmann6", "Uniform", 0, {})
    assert (first["experiment"], first["seed"], first["runs"]) == ("hartmann6", 0, 1)
    assert first["code"] == key.code == store.code(first["modules"], first["files"])
    assert first["made"].startswith("20")


def _evaluate(path, answers):
    import os

    os.environ[store.FOLDER] = str(path)
    answers.put(len(heard(lambda: evaluate("hartmann6", 2, algorithms=FEW))))


def test_two_processes_do_not_compute_the_same(tmp_path):
    answers = multiprocessing.Queue()
    both = [multiprocessing.Process(target=_evaluate, args=(tmp_path, answers)) for _ in range(2)]
    for process in both:
        process.start()
    assert sorted(answers.get(timeout=120) for _ in both) == [0, 2]  # one computed both, the other read both
    for process in both:
        process.join()
