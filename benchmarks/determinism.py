"""`make determinism`: the same arms, scalars and synchronisations on every BLAS path, thread count, batch and default.

Each case is a process of its own that runs every algorithm and control on the four problems and prints a hash of what
each did; a case is right if all hashes are those of the first. ``--runs``, ``--rounds`` and ``--cases`` make a slice.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Case:
    """What a process is started with: variables, threads, runs at once (0: all), and torch's and numpy's defaults."""

    variables: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1
    batch: int = 0
    dtype: str = "float32"
    device: str = "cpu"
    seed: int | None = None


CASES = {
    "as the book is built": Case(),
    "MKL_CBWR=COMPATIBLE": Case({"MKL_CBWR": "COMPATIBLE"}),
    "MKL_CBWR=AVX2": Case({"MKL_CBWR": "AVX2"}),
    "ATEN_CPU_CAPABILITY=default": Case({"ATEN_CPU_CAPABILITY": "default"}),
    "ATEN_CPU_CAPABILITY=avx2": Case({"ATEN_CPU_CAPABILITY": "avx2"}),
    "COMPATIBLE and default": Case({"MKL_CBWR": "COMPATIBLE", "ATEN_CPU_CAPABILITY": "default"}),
    "two threads": Case(threads=2),
    "two threads, COMPATIBLE": Case({"MKL_CBWR": "COMPATIBLE"}, threads=2),
    "one run at a time": Case(batch=1),
    "seven runs at a time": Case(batch=7),
    "default dtype float64": Case(dtype="float64"),
    "default dtype float16": Case(dtype="float16"),
    "default device meta": Case(device="meta"),
    "global seeds": Case(seed=12345),
}


def hashes(case: Case, runs: int, rounds: int, names: list[str]) -> Iterator[tuple[str, str]]:
    """(problem and algorithm, hash of arms, scalars and synchronisations) of the experiments ``names``."""
    import numpy as np
    import torch

    torch.set_num_threads(case.threads)
    torch.set_default_dtype(getattr(torch, case.dtype))
    torch.set_default_device(case.device)
    if case.seed is not None:
        torch.manual_seed(case.seed)
        np.random.seed(case.seed)  # the global generator is what is tested

    from fedgo import Trace
    from fedgo.experiments.comparison import ALGORITHMS, EXPERIMENTS, World, tuned

    for name in names:
        experiment = EXPERIMENTS[name]
        size = case.batch or runs
        parts: dict[str, list[Trace]] = {algorithm: [] for algorithm in ALGORITHMS}
        for first in range(0, runs, size):
            numbers = range(first, min(first + size, runs))
            problem = experiment.problem(numbers, seed=0)
            within = World(problem, experiment.clients, rounds)
            for algorithm, how in ALGORITHMS.items():
                parts[algorithm].append(how.run(within, tuned(name, algorithm)))
        for algorithm, traces in parts.items():
            trace, digest = Trace.join(traces), hashlib.sha256()
            for part in (trace.arm, trace.up, trace.down, trace.sync):
                digest.update(part.contiguous().numpy().tobytes())
            yield f"{name}: {algorithm}", digest.hexdigest()[:16]


def outcome(label: str, runs: int, rounds: int, names: list[str]) -> dict[str, str]:
    """The hashes of one case, computed in a process of its own."""
    case = CASES[label]
    clean = {
        key: value for key, value in os.environ.items() if key not in ("MKL_CBWR", "ATEN_CPU_CAPABILITY")
    }
    environment = clean | dict.fromkeys(THREADS, str(case.threads)) | dict(case.variables)
    command = [sys.executable, __file__, "--case", label, "--runs", str(runs), "--rounds", str(rounds)]
    done = subprocess.run(
        [*command, "--problems", *names],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{label}: the process failed\n{done.stderr[-2000:]}")
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Run the cases, print a line for each, and leave with 1 if any differs from the first."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=25, help="T; the paper has 100")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--problems", nargs="+", default=["hartmann6", "cosine8", "magic", "shuttle"])
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(dict(hashes(CASES[options.case], options.runs, options.rounds, options.problems))))
        return
    first, wrong = None, False
    for label in options.cases:
        begin = time.perf_counter()
        found = outcome(label, options.runs, options.rounds, options.problems)
        first = first or found
        different = [key for key in first if found.get(key) != first[key]]
        wrong |= bool(different)
        verdict = f"DIFFERENT: {'; '.join(different)}" if different else f"the same {len(found)} hashes"
        print(f"{label:30s} {time.perf_counter() - begin:6.1f} s  {verdict}", flush=True)
    sys.exit(wrong)


if __name__ == "__main__":
    main()
