"""`make bench`: the paper's sizes on one thread, each with its aim and its ratio to the tests' plain transcription.

The transcription is timed on a few steps (or rounds of the oracle) of one run and scaled up; its time per step
does not depend on the step.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from reference import go_ucb as reference

from fedgo import (
    Langevin,
    Network,
    Problem,
    Settings,
    Start,
    clustered,
    fed_go_ucb,
    hartmann6,
    one_go_ucb,
    shared_start,
)
from fedgo.beyond.guard import guarded_fed_go_ucb
from fedgo.experiments import costs
from fedgo.experiments.comparison import ALGORITHMS, EXPERIMENTS, GO_SETTINGS, evaluate
from fedgo.experiments.guarded import guarantee

RUNS, ROUNDS = 10, 100
IN_PAPER = [name for name, algorithm in ALGORITHMS.items() if algorithm.in_paper]
LINE_THREE = Settings(lam=1.0, beta=0.1, gamma=1.0)


def clock(task: Callable[..., object], *arguments: object) -> float:
    """Seconds of one call, the better of two."""
    times = []
    for _ in range(2):
        begin = time.perf_counter()
        task(*arguments)
        times.append(time.perf_counter() - begin)
    return min(times)


def plain_phase_two(
    problem: Problem, start: Start, settings: Settings, gamma: float, index: Callable[..., float]
) -> float:
    """Seconds of the transcription for one round of one run."""
    noise = problem.tape(start.clients)[0].numpy()
    means, w0 = problem.means[0].numpy(), start.w0[0].expand(start.clients, -1).numpy()
    begin = time.perf_counter()
    reference.phase_two(
        problem.arms[0].numpy(),
        lambda arm, t: means[arm] + problem.sigma * noise[t],
        w0,
        start.network.hidden,
        start.clients,
        start.clients,
        settings.lam,
        settings.beta,
        gamma,
        index,
    )
    return time.perf_counter() - begin


def plain_oracle(network: Network, problem: Problem, start: Start, langevin: Langevin) -> float:
    """Estimated seconds of the transcription of Algorithm 2 for one run, from ten of its rounds."""
    x = problem.arms[0, start.exploration.arm[0]].numpy()
    pairs = list(zip(x, start.exploration.reward[0].tolist(), strict=True))
    data = [pairs[i :: start.clients] for i in range(start.clients)]
    noise = torch.randn(10, network.size, dtype=torch.float64).numpy()
    begin = time.perf_counter()
    reference.distributed_gld(
        data, network.hidden, network.size, langevin.step, langevin.inverse_temperatures(), noise,
        SimpleNamespace(up=0, down=0),
    )  # fmt: skip
    return (time.perf_counter() - begin) * langevin.rounds / 10


def both_phases(problem: Problem, settings: Settings) -> None:
    """Fed-GO-UCB from the first pull on, in parameter space."""
    start = shared_start(problem, Network(problem.arms.shape[-1]), 20, ROUNDS)
    fed_go_ucb(problem, start, settings, space="parameters")


def report(what: str, seconds: float, aim: float, plain: float) -> None:
    """One row of the table."""
    print(f"{what:58s} {seconds:8.2f} s   aim {aim:5.1f} s   {plain / seconds:9,.0f} x", flush=True)


def import_seconds(module: str) -> float:
    """Seconds that ``import module`` takes in a new process, the best of five."""
    code = f"import time; begin = time.perf_counter(); import {module}; print(time.perf_counter() - begin)"
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(5)
    ]
    return min(float(run.stdout) for run in runs)


def imports() -> None:
    """What the package adds to the import of torch."""
    ratio = import_seconds("fedgo") / import_seconds("torch")
    print(f"{'import fedgo, as a ratio to import torch':58s} {ratio:8.2f}     aim  1.15")


def algorithms(runs: int, rounds: int) -> None:
    """Both phases at the paper's sizes."""
    print(f"{runs} runs, T = {rounds}, one thread{'ratio to plain':>62s}")
    langevin = Langevin()
    for problem, clients, fed_aim, one_aim in (
        (hartmann6(runs), 20, 1.0, 2.0),
        (clustered("magic", runs), 100, 1.5, 12.0),
    ):
        network = Network(problem.arms.shape[-1])
        start = shared_start(problem, network, clients, rounds, langevin)
        label = f"N = {clients}, K = {problem.arms.shape[1]}, d_w = {network.size}"
        if clients == 20:
            seconds = clock(shared_start, problem, network, clients, rounds, langevin)
            run = plain_oracle(network, problem, start, langevin)
            report(f"GLD, {label}", seconds, 2.0, run * runs)
        for name, algorithm, aim, gamma in (
            ("Fed-GO-UCB", fed_go_ucb, fed_aim, GO_SETTINGS.gamma),
            ("One-GO-UCB", one_go_ucb, one_aim, 0.0),
        ):
            round_of_one = plain_phase_two(problem, start, GO_SETTINGS, gamma, reference.first_order)
            seconds = clock(algorithm, problem, start, GO_SETTINGS)
            report(f"{name}, {label}", seconds, aim, round_of_one * rounds * runs)
        promise = guarantee("hartmann6" if clients == 20 else "magic")
        often = replace(GO_SETTINGS, gamma=promise.threshold(problem.arms.shape[1], clients, rounds))
        ratio = clock(guarded_fed_go_ucb, problem, start, often, promise) / clock(
            fed_go_ucb, problem, start, often
        )
        what = f"guarded, {label}, to Fed-GO-UCB on its event"
        print(f"{what:58s} {ratio:8.2f}     aim   3.0", flush=True)
        if clients == 20:
            # Of every client the first step is timed, where no ascent goes on from the last one's end.
            round_of_one = plain_phase_two(
                problem, start, LINE_THREE, LINE_THREE.gamma, lambda *of: reference.ascent(*of)[0]
            )
            seconds = clock(fed_go_ucb, problem, start, LINE_THREE, "ascent")
            report(f"Fed-GO-UCB by ascent, {label}", seconds, 60.0, round_of_one * rounds * runs)


def many_arms(sizes: Mapping[int, float]) -> None:
    """One run with as many arms, each with its aim in seconds, and the memory so far."""
    for arms, aim in sizes.items():
        problem = hartmann6(1, arms=arms)
        seconds = clock(both_phases, problem, GO_SETTINGS)
        what = f"Both phases, 1 run, N = 20, K = {arms:,}, d_w = 201"
        gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # on Linux in kilobytes
        print(
            f"{what:58s} {seconds:8.2f} s   aim {aim:5.1f} s   {gigabytes:5.2f} GB so far, aim 2", flush=True
        )


def growth() -> None:
    """Chapter 19's curves: how seconds grow with the number of arms and weights."""
    rows = costs.measure_all()
    for name, curve in costs.CURVES.items():
        found = [row for row in rows if row.curve == name]
        shown = "  ".join(f"{row.value:,}: {row.seconds:.2f}" for row in found)
        what = f"CPU seconds, {name}, by {curve.by}"
        print(f"{what:58s} {shown}   exponent {costs.exponent(found):.2f}", flush=True)


def figures(sizes: Mapping[int, float], names: Sequence[str] = tuple(EXPERIMENTS)) -> None:
    """The paper's figures with as many runs, each with its aim in seconds."""
    for runs, aim in sizes.items():
        begin = time.perf_counter()
        for name in names:
            evaluate(name, runs, algorithms=IN_PAPER)
        seconds = time.perf_counter() - begin
        what = f"Figures 2 and 3, {len(IN_PAPER)} algorithms, {runs} runs"
        print(f"{what:58s} {seconds:8.2f} s   aim {aim:5.1f} s", flush=True)


def main() -> None:
    """Run everything and print the table."""
    torch.set_num_threads(1)
    imports()
    algorithms(RUNS, ROUNDS)
    many_arms({5_000: 2.0, 50_000: 20.0})
    growth()
    figures({10: 60.0, 100: 480.0})


if __name__ == "__main__":
    main()
