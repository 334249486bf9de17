"""Same arms whatever the machine: ties by a seeded order, bounded drift, defaults that do not matter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from instances import sample

from fedgo import EventTriggered, Exploration, Problem, Settings, simulate
from fedgo.confidence import condition
from fedgo.many_arms import ParameterSpace
from fedgo.simulation import largest

ROOT = Path(__file__).resolve().parents[1]


# A process plays every learner of the book's comparison on two problems, and prints a hash of what each did.
PLAY = """
import hashlib, json, sys
import torch
threads, dtype, device = json.loads(sys.argv[1])
torch.set_num_threads(threads)
torch.set_default_dtype(getattr(torch, dtype))
torch.set_default_device(device)

from fedgo import clustered, hartmann6
from learners import LEARNERS

for make in (hartmann6, lambda runs: clustered("magic", runs)):
    for name in sys.argv[2:]:
        trace = LEARNERS[name](make(3), 4, 15)
        digest = hashlib.sha256()
        for part in (trace.arm, trace.up, trace.down, trace.sync):
            digest.update(part.contiguous().numpy().tobytes())
        print(name, digest.hexdigest())
"""
PLAYED = (
    "Fed-GO-UCB", "Fed-GO-UCB, parameter space", "One-GO-UCB", "N-GO-UCB", "DisLinUCB", "Fed-GLB-UCB",
    "ApproxDisKernelUCB", "Kernel UCB, at once", "UCB1, shared", "UCB1, counted", "Guard", "FN-UCB", "Uniform",
)  # fmt: skip
CASES = {
    "another path of MKL": ({"MKL_CBWR": "COMPATIBLE"}, (1, "float32", "cpu")),
    "another path of torch": ({"ATEN_CPU_CAPABILITY": "default"}, (1, "float32", "cpu")),
    "two threads": ({"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}, (2, "float32", "cpu")),
    "other defaults of torch": ({}, (1, "float16", "meta")),
}


def played(variables: dict[str, str], how: tuple[int, str, str], *names: str) -> list[str]:
    """The hashes of arms, scalars and synchronisations from a process of its own."""
    paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", PLAY, json.dumps(how), *(names or PLAYED)]
    environment = os.environ | paths | variables
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def as_the_book() -> list[str]:
    return played({}, (1, "float32", "cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_same_arms_scalars_and_synchronisations_everywhere(case: str, as_the_book: list[str]) -> None:
    assert len(as_the_book) == 2 * len(PLAYED)
    assert played(*CASES[case]) == as_the_book


def test_arms_that_rounding_cannot_tell_apart_are_taken_in_the_seeded_order():
    index = torch.tensor([[[1.0, 1.0 + 1e-15, 0.5, 1.0 - 1e-12]]], dtype=torch.float64)
    order = torch.tensor([[[0.1, 0.2, 0.9, 0.3]]], dtype=torch.float64)
    assert largest(index, order).tolist() == [[3]]
    assert largest(index, order.flip(-1)).tolist() == [[1]]
    clear = torch.tensor([[[1.0, 1.0 + 1e-8, 0.5, 1.0]]], dtype=torch.float64)
    assert largest(clear, order).tolist() == [[1]]
    never_pulled = torch.tensor([[[float("inf"), 5.0, float("inf"), -float("inf")]]], dtype=torch.float64)
    assert largest(never_pulled, order).tolist() == [[2]]
    large = torch.tensor([[[1e6, 1e6 + 1e-4, 0.0, 0.0]]], dtype=torch.float64)
    assert largest(large, order).tolist() == [[1]]


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [float("inf"), 1e3])
@pytest.mark.parametrize("kind", [EventTriggered, ParameterSpace])
def test_rank_one_updates_do_not_drift(kind, gamma, watch):
    """One learner of 20 arms, 6,050 pulls: its posterior stays that of its data, 50 pulls after it was made afresh."""
    arms = sample(1, 20, 6, seed=5)
    problem = Problem("drift", arms, arms.sum(-1) / 6, (0,))
    offsets = torch.zeros(1, 1, 20, dtype=torch.float64)
    learner = kind(1, arms.unsqueeze(1), offsets, 6, Settings(1e-9, 0.1, gamma))
    seen = watch(kind, "learn")
    simulate("drift", problem, learner, Exploration.nothing(1), 1, 6050)
    state = seen[-1].result
    exact = condition(learner.features, learner.offsets, 1e-9, state.known)
    torch.testing.assert_close(state.posterior.variance, exact.variance, rtol=1e-8, atol=0)
    assert bool((state.posterior.variance > 0).all())
