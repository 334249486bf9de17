"""Bad input: one ValueError that names the value received and the remedy, before any work."""

import numpy as np
import pytest
import torch

from fedgo import (
    Langevin,
    Network,
    Problem,
    Settings,
    SingleUnit,
    Trace,
    clustered,
    cosine8,
    fed_go_ucb,
    hartmann6,
    n_go_ucb,
    phase_one_length,
    private_start,
    shared_start,
)
from fedgo.phase_one import deal
from fedgo.theory.confidence import radius

ARMS, MEANS = torch.rand(2, 3, 4).double(), torch.rand(2, 3).double()


def nan_at(values, *place):
    broken = values.clone()
    broken[place] = float("nan")
    return broken


CASES = {
    "mean reward NaN": (
        lambda: Problem("p", ARMS, nan_at(MEANS, 1, 2), (0, 1)),
        r"means\[1, 2\] is nan.*finite",
    ),
    "arm NaN": (
        lambda: Problem("p", nan_at(ARMS, 0, 1, 2), MEANS, (0, 1)),
        r"arms\[0, 1, 2\] is nan.*finite",
    ),
    "reward NaN": (lambda: deal(ARMS, nan_at(MEANS, 0, 1), 2), r"rewards y\[0, 1\] is nan.*finite"),
    "arms of two dimensions": (
        lambda: Problem("p", ARMS[0], MEANS, (0, 1)),
        r"arms is \(3, 4\).*\(S, K, d_x\)",
    ),
    "means of other arms": (lambda: Problem("p", ARMS, MEANS[:, :2], (0, 1)), r"means is \(2, 2\).*\(2, 3\)"),
    "single precision": (lambda: Problem("p", ARMS.float(), MEANS, (0, 1)), "float32.*float64"),
    "no run": (lambda: hartmann6(0), "runs is 0: .*at least one"),
    "negative run": (lambda: hartmann6([-1]), r"runs is \[-1\]"),
    "no arm": (lambda: cosine8(1, arms=0), "arms is 0: .*at least one"),
    "negative seed": (lambda: hartmann6(1, seed=-1), "seed is -1"),
    "negative noise": (lambda: hartmann6(1, sigma=-0.1), "sigma is -0.1.*at least 0"),
    "Bernoulli beyond 1": (
        lambda: Problem("p", ARMS, 1 + MEANS, (0, 1), reward="bernoulli"),
        r"range of means.*\[0, 1\]",
    ),
    "unknown reward": (lambda: clustered("magic", 1, reward="poisson"), "'poisson'.*bernoulli"),
    "unknown data set": (lambda: clustered("iris", 1), "'iris'.*magic.*shuttle"),
    "lam 0": (lambda: Settings(lam=0.0), "lam is 0.0: .*positive"),
    "lam NaN": (lambda: Settings(lam=float("nan")), "lam is nan: .*positive"),
    "beta negative": (lambda: Settings(beta=-1.0), "beta is -1.0: .*at least 0"),
    "gamma negative": (lambda: Settings(gamma=-0.5), "gamma is -0.5: .*at least 0"),
    "gamma NaN": (lambda: Settings(gamma=float("nan")), "gamma is nan"),
    "unknown encoding": (lambda: Settings(encoding="zip"), r"encoding is 'zip': .*'dense'.*'cheapest'"),
    "unknown encoding, whole": (
        lambda: shared_start(hartmann6(1), Network(6), 2, 2, encoding="zip"),
        "encoding is 'zip'",
    ),
    "no client": (lambda: phase_one_length(0, 10), "clients is 0: .*at least one"),
    "no round": (lambda: phase_one_length(10, 0), "rounds is 0: .*at least one"),
    "no client, whole": (lambda: shared_start(hartmann6(1), Network(6), 0, 5), "clients is 0"),
    "no round, whole": (lambda: private_start(hartmann6(1), Network(6), 5, 0), "rounds is 0"),
    "no exploration": (lambda: shared_start(hartmann6(1), Network(6), 2, 2, length=0), "length is 0"),
    "network of another dimension": (lambda: shared_start(hartmann6(1), Network(5), 2, 2), "d_x is 5: .*6"),
    "no unit": (lambda: Network(6, 0), "hidden is 0"),
    "w of another size": (lambda: Network(6).values(torch.zeros(7), ARMS), r"w is \(7,\).*201"),
    "no Langevin round": (lambda: Langevin(rounds=0), "rounds is 0"),
    "Langevin cools backwards": (lambda: Langevin(hot=10.0, cold=1.0), r"\(10.0, 1.0\).*hot ≤ cold"),
    "step size": (lambda: Langevin(step=-0.1), "step is -0.1"),
    "delta": (
        lambda: radius(MEANS, MEANS, 0, clients=1, lam=1, sigma=1, distance=1, curvature=1, delta=1.0),
        "delta is 1.0",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_names_the_value_and_the_remedy(case):
    call, message = CASES[case]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.fixture(scope="module")
def start():
    return shared_start(hartmann6(1), Network(6, 2), 2, 2, Langevin(rounds=2))


def test_an_unknown_argmax(start):
    with pytest.raises(ValueError, match=r"argmax is 'guess'.*ascent"):
        fed_go_ucb(hartmann6(1), start, Settings(), "guess")


def test_the_ascent_of_another_model():
    unit = SingleUnit(6)
    start = shared_start(hartmann6(1), unit, 2, 2, Langevin(rounds=2))
    with pytest.raises(ValueError, match=r"argmax is 'ascent': .*Network.*'first-order'"):
        fed_go_ucb(hartmann6(1), start, Settings(), "ascent")


def test_a_shared_start_given_to_n_go_ucb(start):
    with pytest.raises(ValueError, match=r"w0 is \(1, 1, 17\): .*private_start"):
        n_go_ucb(hartmann6(1), start, Settings())


def test_a_start_of_another_problem(start):
    with pytest.raises(ValueError, match=r"runs is 3: .*had 1"):
        fed_go_ucb(hartmann6(3), start, Settings())


def test_a_file_that_is_not_a_trace(tmp_path):
    np.savez(tmp_path / "other.npz", arm=np.zeros(3))
    with pytest.raises(ValueError, match=r"other.npz.*lacks"):
        Trace.load(tmp_path / "other.npz")
