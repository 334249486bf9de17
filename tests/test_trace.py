"""Traces as values: equal if every entry is, also after a file, and no key of a dictionary."""

from dataclasses import replace

import pytest
import torch
from instances import made_trace

from fedgo import Problem, Trace, uniform_random
from fedgo.problems import hartmann6

ARRAYS = ("arm", "reward", "regret", "up", "down", "sync")


@pytest.fixture
def trace() -> Trace:
    problem: Problem = hartmann6(2)
    return uniform_random(problem, 3, 4)


def test_equal_traces_are_equal(trace, tmp_path):
    trace.save(tmp_path / "trace.npz")
    assert trace == trace
    assert trace == replace(trace, **{name: getattr(trace, name).clone() for name in ARRAYS})
    assert trace == Trace.load(tmp_path / "trace.npz")
    assert trace == Trace.join([trace])
    assert trace == Trace.join([trace.first(1), replace(trace, **{n: getattr(trace, n)[1:] for n in ARRAYS})])


@pytest.mark.parametrize("name", ARRAYS)
def test_one_entry_makes_a_difference(trace, name):
    changed = getattr(trace, name).clone()
    changed[1, 2] = not changed[1, 2] if name == "sync" else changed[1, 2] + 1
    assert trace != replace(trace, **{name: changed})
    shorter = {each: getattr(trace, each)[:, :-1] for each in ARRAYS}
    assert replace(trace, **shorter) == replace(trace, **shorter) != trace


def test_notes_make_a_difference_and_have_the_shape_of_the_arms(trace, tmp_path):
    some = replace(trace, notes={"width": trace.reward})
    assert some != trace and some == replace(trace, notes={"width": trace.reward.clone()})
    other, changed = (
        replace(trace, notes=notes) for notes in ({"other": trace.reward}, {"width": trace.regret})
    )
    assert some != other != changed
    some.save(tmp_path / "some.npz")
    assert Trace.load(tmp_path / "some.npz") == some
    with pytest.raises(ValueError, match=r"join the runs of one experiment only"):
        Trace.join([some, trace])
    with pytest.raises(ValueError, match=r"the shape of the note 'width' is \(2, 3\)"):
        replace(trace, notes={"width": trace.reward[:, 1:]})
    with pytest.raises(TypeError, match=r"the note 'width' is 3 \(int\): give a tensor"):
        replace(trace, notes={"width": 3})


@pytest.mark.parametrize(("steps", "late"), [(1, 1), (5, 1), (9, 1), (10, 1), (11, 2), (20, 2)])
def test_the_last_tenth_is_of_a_tenth_of_the_steps_rounded_up(steps, late):
    """The best arm is pulled in every step but the last ``late``, and in every step of those alone."""
    regret = torch.zeros(2, steps, dtype=torch.float64)
    regret[0, -late:] = regret[1, : steps - late] = 3.0
    frame = made_trace(regret).to_frame()
    assert frame["late_regret"].tolist() == [3.0, 0.0] and frame["misses_best"].tolist() == [True, False]
    regret[0, -late] = 0.0  # the first of the last tenth
    assert not made_trace(regret).to_frame()["misses_best"].any()
