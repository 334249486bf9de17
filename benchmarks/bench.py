"""`make bench`: how long things take beside what they are to be compared with, on one thread, as a table of ratios.

A ratio says what a change of the code does on any machine, which seconds do not. A case and its yardstick take turns,
so that a machine that is slower for a while is so for both; the table has the median of the ratios and their range.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from reference import go_ucb as plain

from fedgo import (
    Network,
    Settings,
    approx_dis_kernel_ucb,
    dis_lin_ucb,
    fed_glb_ucb,
    fed_go_ucb,
    hartmann6,
    n_go_ucb,
    one_go_ucb,
    phase_one_length,
    private_start,
    shared_start,
)
from fedgo.beyond.epochs import surrogate_ucb
from fedgo.beyond.guard import Guarantee, guarded_fed_go_ucb
from fedgo.beyond.surrogates import Relinearised
from fedgo.federation import Plan
from fedgo.federation.local import play

CLIENTS, ROUNDS = 20, 100
SETTINGS = Settings(lam=0.01, beta=0.1, gamma=1.0)
COUNTS = replace(SETTINGS, encoding="counts")
NETWORK = Network(6)
TEN = hartmann6(10)
START = shared_start(TEN, NETWORK, CLIENTS, ROUNDS)
ONE = TEN.only(0)
ALONE = shared_start(ONE, NETWORK, CLIENTS, ROUNDS)


class Case(NamedTuple):
    """What is timed, its yardstick, what the ratio of their seconds is multiplied by, and how often they take turns."""

    task: Callable[[], object]
    yardstick: Callable[[], object]
    scale: float = 1.0
    turns: int = 5


def transcription() -> None:
    """One round of one run of Fed-GO-UCB's Phase II as the tests transcribe it, client by client in numpy."""
    arms, noise, means = ONE.arms[0].numpy(), ONE.tape(CLIENTS)[0].numpy(), ONE.means[0].numpy()
    w0 = START.w0[0].expand(CLIENTS, -1).numpy()
    sizes, settings = (NETWORK.hidden, CLIENTS, CLIENTS), (SETTINGS.lam, SETTINGS.beta, SETTINGS.gamma)
    plain.phase_two(arms, lambda arm, t: means[arm] + ONE.sigma * noise[t], w0, *sizes, *settings)


def six_algorithms(runs: int) -> None:
    """The paper's comparison on Hartmann6, Phase I with it."""
    problem = hartmann6(runs)
    steps = phase_one_length(CLIENTS, ROUNDS) + CLIENTS * ROUNDS
    start = shared_start(problem, NETWORK, CLIENTS, ROUNDS)
    fed_go_ucb(problem, start, SETTINGS)
    one_go_ucb(problem, start, SETTINGS)
    n_go_ucb(problem, private_start(problem, NETWORK, CLIENTS, ROUNDS), SETTINGS)
    for algorithm in (dis_lin_ucb, fed_glb_ucb, approx_dis_kernel_ucb):
        algorithm(problem, CLIENTS, steps, SETTINGS)


def letters() -> None:
    """One run of a server and its clients, letter by letter."""
    length = phase_one_length(CLIENTS, ROUNDS)
    play(ONE, Plan(ONE.arms[0], COUNTS, CLIENTS, NETWORK, length), CLIENTS * ROUNDS)


def simulated() -> None:
    """The same run in the simulator, Phase I with it."""
    fed_go_ucb(ONE, shared_start(ONE, NETWORK, CLIENTS, ROUNDS, encoding="counts"), COUNTS)


def imported(module: str) -> None:
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)


FED_GO = partial(fed_go_ucb, TEN, START, SETTINGS)
LINE_THREE = Settings(lam=1.0, beta=0.1, gamma=1.0)
SAFE = Guarantee(value=8.4, sigma=TEN.sigma, gamma=0.3)
CASES = {
    "plain transcription, a run / Fed-GO-UCB, a run of ten": Case(transcription, FED_GO, ROUNDS * 10),
    "six algorithms: 100 runs / 10 runs": Case(
        partial(six_algorithms, 100), partial(six_algorithms, 10), turns=1
    ),
    "One-GO-UCB / Fed-GO-UCB": Case(partial(one_go_ucb, TEN, START, SETTINGS), FED_GO),
    "Fed-GO-UCB in parameter space / in arm space": Case(
        partial(fed_go_ucb, TEN, START, SETTINGS, space="parameters"), FED_GO
    ),
    "guard around Fed-GO-UCB / Fed-GO-UCB": Case(
        partial(guarded_fed_go_ucb, TEN, START, SETTINGS, SAFE), FED_GO
    ),
    "line 3 as printed / first-order index": Case(
        partial(fed_go_ucb, ONE, ALONE, LINE_THREE, "ascent"), partial(fed_go_ucb, ONE, ALONE, LINE_THREE)
    ),
    "network linearised again / Fed-GO-UCB, one run": Case(
        partial(surrogate_ucb, ONE, Relinearised(NETWORK), CLIENTS, ROUNDS),
        partial(fed_go_ucb, ONE, ALONE, SETTINGS),
    ),
    "server and clients / simulator, one run": Case(letters, simulated),
    "import fedgo / import torch": Case(partial(imported, "fedgo"), partial(imported, "torch")),
}


def seconds(task: Callable[[], object]) -> float:
    begin = time.perf_counter()
    task()
    return time.perf_counter() - begin


def main() -> None:
    """Print a line for each case; words on the command line choose those in whose names they are."""
    torch.set_num_threads(1)
    print(f"{'':58s}{'ratio':>8s}{'from':>8s}{'to':>8s}{'seconds':>10s}")
    for name, case in CASES.items():
        if not all(word in name for word in sys.argv[1:]):
            continue
        pairs = [(seconds(case.task), seconds(case.yardstick)) for _ in range(case.turns)]
        ratios = sorted(case.scale * task / yardstick for task, yardstick in pairs)
        shown = "".join(f"{value:8.2f}" for value in (statistics.median(ratios), ratios[0], ratios[-1]))
        print(f"{name:58s}{shown}{min(task for task, _ in pairs):10.2f}", flush=True)


if __name__ == "__main__":
    main()
