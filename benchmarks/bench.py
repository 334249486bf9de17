"""Time the algorithms, each beside something to compare it with, on one thread, and print the ratios (`make bench`).

A ratio shows what a change of the code does, on any machine; seconds do not. A case and its yardstick take turns, so
that a machine that is slower for a while slows both. The table has the median, the smallest and the largest ratio.
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
from fedgo.beyond.federation.local import play
from fedgo.beyond.guarantees.guarantee import Guarantee, guarded_fed_go_ucb
from fedgo.beyond.method.epochs import surrogate_ucb
from fedgo.beyond.method.networks import Relinearised

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
    """Play one round of Fed-GO-UCB's Phase II in one run, client by client in NumPy, as the tests transcribe it."""
    arms, noise, means = ONE.arms[0].numpy(), ONE.tape(CLIENTS)[0].numpy(), ONE.means[0].numpy()
    w0 = START.w0[0].expand(CLIENTS, -1).numpy()
    sizes, settings = (NETWORK.hidden, CLIENTS, CLIENTS), (SETTINGS.lam, SETTINGS.beta, SETTINGS.gamma)
    plain.phase_two(arms, lambda arm, t: means[arm] + ONE.sigma * noise[t], w0, *sizes, *settings)


def six_algorithms(runs: int) -> None:
    """Play the six algorithms of the paper's comparison on the given number of ``runs`` of Hartmann6, with Phase I."""
    problem = fedgo.hartmann6(runs)
    steps = fedgo.phase_one_length(CLIENTS, ROUNDS) + CLIENTS * ROUNDS
    start = shared_start(problem, NETWORK, CLIENTS, ROUNDS)
    fed_go_ucb(start, SETTINGS)
    one_go_ucb(start, SETTINGS)
    fedgo.n_go_ucb(fedgo.private_start(problem, NETWORK, CLIENTS, ROUNDS), SETTINGS)
    for algorithm in (fedgo.dis_lin_ucb, fedgo.fed_glb_ucb, fedgo.approx_dis_kernel_ucb):
        algorithm(problem, CLIENTS, steps, SETTINGS)


def letters() -> None:
    """Play both phases of one run by a server and its clients, which exchange letters."""
    length = fedgo.phase_one_length(CLIENTS, ROUNDS)
    play(ONE, Plan(ONE.arms[0], COUNTS, CLIENTS, NETWORK, length), CLIENTS * ROUNDS)


def simulated() -> None:
    """Play the same run as `letters` in the simulator, with Phase I."""
    fed_go_ucb(shared_start(ONE, NETWORK, CLIENTS, ROUNDS, encoding="counts"), COUNTS)


def imported(module: str) -> None:
    """Import the ``module`` in a new Python process."""
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)


class Case(NamedTuple):
    """A task to be timed, and the yardstick to compare it with.

    ``scale`` is the factor by which the ratio of their seconds is multiplied, because the two may do different amounts
    of work. They take turns ``turns`` times.
    """

    name: str
    task: Callable[[], object]
    yardstick: Callable[[], object]
    scale: float = 1.0
    turns: int = 5


of_ten, of_one = partial(fed_go_ucb, START), partial(fed_go_ucb, ALONE)
fed_go = partial(of_ten, SETTINGS)
guarded = partial(guarded_fed_go_ucb, START, SETTINGS, SAFE)
again = partial(surrogate_ucb, ONE, Relinearised(NETWORK), CLIENTS, ROUNDS)
many, few = partial(six_algorithms, 100), partial(six_algorithms, 10)
first_order = partial(of_one, LINE_THREE)
CASES = [
    Case("plain transcription, a run / Fed-GO-UCB, a run of ten", transcription, fed_go, scale=ROUNDS * 10),
    Case("six algorithms: 100 runs / 10 runs", many, few, turns=1),
    Case("One-GO-UCB / Fed-GO-UCB", partial(one_go_ucb, START, SETTINGS), fed_go),
    Case("Fed-GO-UCB in parameter space / in arm space", partial(fed_go, space="parameters"), fed_go),
    Case("guard around Fed-GO-UCB / Fed-GO-UCB", guarded, fed_go),
    Case("line 3 as printed / first-order index", partial(first_order, "ascent"), first_order),
    Case("network linearised again / Fed-GO-UCB, one run", again, partial(of_one, SETTINGS)),
    Case("server and clients / simulator, one run", letters, simulated),
    Case("import fedgo / import torch", partial(imported, "fedgo"), partial(imported, "torch")),
]


def seconds(task: Callable[[], object]) -> float:
    """Return the seconds of real time that a call of ``task`` takes."""
    begin = time.perf_counter()
    task()
    return time.perf_counter() - begin


def main() -> None:
    """Print a line for each case: the median, least and largest ratio, and the least seconds of the task.

    If there are words on the command line, only the cases are timed whose names have all of them.
    """
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
