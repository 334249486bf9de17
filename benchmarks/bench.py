"""`make bench`: how long things take beside what they are to be compared with, on one thread, as a table of ratios.

A ratio says what a change of the code does on any machine, which seconds do not. A case and its yardstick take turns,
so that a machine that is slower for a while is so for both; the table has the median of the ratios and their range.
"""

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

import fedgo
from fedgo import Network, Settings, fed_go_ucb, one_go_ucb, shared_start
from fedgo.beyond import Plan
from fedgo.beyond.epochs import surrogate_ucb
from fedgo.beyond.federation.local import play
from fedgo.beyond.guard.guarantee import Guarantee, guarded_fed_go_ucb
from fedgo.beyond.surrogates.networks import Relinearised

CLIENTS, ROUNDS = 20, 100
SETTINGS = Settings(lam=0.01, beta=0.1, gamma=1.0)
COUNTS, LINE_THREE = replace(SETTINGS, encoding="counts"), replace(SETTINGS, lam=1.0)
NETWORK = Network(6)
TEN = fedgo.hartmann6(10)
START = shared_start(TEN, NETWORK, CLIENTS, ROUNDS)
ONE = TEN.only(0)
ALONE = shared_start(ONE, NETWORK, CLIENTS, ROUNDS)
SAFE = Guarantee(value=8.4, sigma=TEN.sigma, gamma=0.3)


def transcription() -> None:
    """One round of one run of Fed-GO-UCB's Phase II as the tests transcribe it, client by client in numpy."""
    arms, noise, means = ONE.arms[0].numpy(), ONE.tape(CLIENTS)[0].numpy(), ONE.means[0].numpy()
    w0 = START.w0[0].expand(CLIENTS, -1).numpy()
    sizes, settings = (NETWORK.hidden, CLIENTS, CLIENTS), (SETTINGS.lam, SETTINGS.beta, SETTINGS.gamma)
    plain.phase_two(arms, lambda arm, t: means[arm] + ONE.sigma * noise[t], w0, *sizes, *settings)


def six_algorithms(runs: int) -> None:
    """The paper's comparison on Hartmann6, Phase I with it."""
    problem = fedgo.hartmann6(runs)
    steps = fedgo.phase_one_length(CLIENTS, ROUNDS) + CLIENTS * ROUNDS
    start = shared_start(problem, NETWORK, CLIENTS, ROUNDS)
    fed_go_ucb(problem, start, SETTINGS)
    one_go_ucb(problem, start, SETTINGS)
    fedgo.n_go_ucb(problem, fedgo.private_start(problem, NETWORK, CLIENTS, ROUNDS), SETTINGS)
    for algorithm in (fedgo.dis_lin_ucb, fedgo.fed_glb_ucb, fedgo.approx_dis_kernel_ucb):
        algorithm(problem, CLIENTS, steps, SETTINGS)


def letters() -> None:
    """One run of a server and its clients, letter by letter."""
    length = fedgo.phase_one_length(CLIENTS, ROUNDS)
    play(ONE, Plan(ONE.arms[0], COUNTS, CLIENTS, NETWORK, length), CLIENTS * ROUNDS)


def simulated() -> None:
    """The same run in the simulator, Phase I with it."""
    fed_go_ucb(ONE, shared_start(ONE, NETWORK, CLIENTS, ROUNDS, encoding="counts"), COUNTS)


def imported(module: str) -> None:
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)


class Case(NamedTuple):
    """What is timed, its yardstick, what the ratio of their seconds is multiplied by, and how often they take turns."""

    name: str
    task: Callable[[], object]
    yardstick: Callable[[], object]
    scale: float = 1.0
    turns: int = 5


of_ten, of_one = partial(fed_go_ucb, TEN, START), partial(fed_go_ucb, ONE, ALONE)
fed_go = partial(of_ten, SETTINGS)
guarded = partial(guarded_fed_go_ucb, TEN, START, SETTINGS, SAFE)
again = partial(surrogate_ucb, ONE, Relinearised(NETWORK), CLIENTS, ROUNDS)
many, few = partial(six_algorithms, 100), partial(six_algorithms, 10)
first_order = partial(of_one, LINE_THREE)
CASES = [
    Case("plain transcription, a run / Fed-GO-UCB, a run of ten", transcription, fed_go, scale=ROUNDS * 10),
    Case("six algorithms: 100 runs / 10 runs", many, few, turns=1),
    Case("One-GO-UCB / Fed-GO-UCB", partial(one_go_ucb, TEN, START, SETTINGS), fed_go),
    Case("Fed-GO-UCB in parameter space / in arm space", partial(fed_go, space="parameters"), fed_go),
    Case("guard around Fed-GO-UCB / Fed-GO-UCB", guarded, fed_go),
    Case("line 3 as printed / first-order index", partial(first_order, "ascent"), first_order),
    Case("network linearised again / Fed-GO-UCB, one run", again, partial(of_one, SETTINGS)),
    Case("server and clients / simulator, one run", letters, simulated),
    Case("import fedgo / import torch", partial(imported, "fedgo"), partial(imported, "torch")),
]


def seconds(task: Callable[[], object]) -> float:
    begin = time.perf_counter()
    task()
    return time.perf_counter() - begin


def main() -> None:
    """Print a line for each case; words on the command line choose those in whose names they are."""
    torch.set_num_threads(1)
    print(f"{'':58s}{'ratio':>8s}{'from':>8s}{'to':>8s}{'seconds':>10s}")
    for case in CASES:
        if not all(word in case.name for word in sys.argv[1:]):
            continue
        pairs = [(seconds(case.task), seconds(case.yardstick)) for _ in range(case.turns)]
        ratios = sorted(case.scale * task / yardstick for task, yardstick in pairs)
        shown = "".join(f"{value:8.2f}" for value in (statistics.median(ratios), ratios[0], ratios[-1]))
        print(f"{case.name:58s}{shown}{min(task for task, _ in pairs):10.2f}", flush=True)


if __name__ == "__main__":
    main()
