"""`make tune`: every setting of every grid on instances that no evaluation uses; writes fedgo/paper/data/tuned.json.

The criterion is the mean final regret over the tuning runs, Phase I included, the same runs for every algorithm.
"""

import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from typing import Any

import torch

from fedgo.paper.experiments import (
    ALGORITHMS,
    EXPERIMENTS,
    TUNED_FILE,
    TUNING_RUNS,
    TUNING_SEED,
    YARDSTICK_ON,
    YARDSTICKS,
    Algorithm,
    Setting,
    World,
    world,
)
from fedgo.paper.summaries import mean_error


def tune_algorithm(within: World, algorithm: Algorithm) -> dict[str, Any]:
    """The winner of the ``algorithm``'s grid on ``within``, and mean and standard error of every setting."""
    rows: list[tuple[float, float, Setting]] = []
    for setting in algorithm.grid:
        final = algorithm.run(within, setting).cumulative_regret[:, -1]
        mean, error = mean_error(final)
        rows.append((float(mean), float(error), setting))
    winner = min(rows, key=lambda row: row[0])[2]
    grid = [
        {"setting": dict(setting), "regret": round(mean, 1), "error": round(error, 1)}
        for mean, error, setting in rows
    ]
    return {"winner": dict(winner), "grid": grid}


def tune_experiment(name: str, algorithms: Sequence[str]) -> dict[str, object]:
    """The results of ``algorithms`` on the experiment ``name``, without yardsticks that do not run there."""
    torch.set_num_threads(1)
    within = world(name, TUNING_RUNS, TUNING_SEED)
    found: dict[str, object] = {}
    known = ALGORITHMS | (YARDSTICKS if name == YARDSTICK_ON else {})
    for algorithm in [algorithm for algorithm in algorithms if algorithm in known]:
        result = found[algorithm] = tune_algorithm(within, known[algorithm])
        print(f"{name}: {algorithm} {result['winner']}", flush=True)
    return found


def main(algorithms: Sequence[str]) -> None:
    """Tune ``algorithms``, two experiments at a time, and leave what the file says of the others."""
    known = json.loads(TUNED_FILE.read_text(encoding="utf-8"))["experiments"] if TUNED_FILE.exists() else {}
    with ProcessPoolExecutor(2) as pool:
        results = pool.map(tune_experiment, EXPERIMENTS, repeat(algorithms))
        found = {name: known.get(name, {}) | new for name, new in zip(EXPERIMENTS, results, strict=True)}
    about = {
        "command": "make tune",
        "criterion": "mean final regret, Phase I included",
        "runs": TUNING_RUNS,
        "seed": TUNING_SEED,
    }
    partial = TUNED_FILE.with_suffix(".partial")
    partial.write_text(json.dumps({"about": about, "experiments": found}, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, TUNED_FILE)


if __name__ == "__main__":
    main(sys.argv[1:] or (*ALGORITHMS, *YARDSTICKS))
