"""What every algorithm did on the four problems, as hashes: no change moves an arm, a scalar, a synchronisation.

Runs that this very code has played for the book are taken from there.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedgo.experiments import traces
from fedgo.experiments.results import tuned
from fedgo.experiments.roster import ALGORITHMS
from fedgo.experiments.world import EXPERIMENTS

RUNS, ROUNDS = 10, 100
FROZEN = json.loads((Path(__file__).parent / "frozen.json").read_text(encoding="utf-8"))
PLAYED = Path(__file__).resolve().parents[1] / "book/_traces"


def played(name: str) -> dict[str, str]:
    """Return a hash of arms, scalars and synchronisations of each frozen algorithm on the problem ``name``."""
    experiment = EXPERIMENTS[name]
    world = replace(experiment, rounds=ROUNDS).world(range(RUNS))
    found = {}
    for algorithm in FROZEN[name]:
        trace, digest = ALGORITHMS[algorithm].play(world, tuned(name, algorithm)), hashlib.sha256()
        for part in (trace.arm, trace.up, trace.down, trace.sync):
            digest.update(part.contiguous().numpy().tobytes())
        found[algorithm] = digest.hexdigest()[:16]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_arm_scalar_or_synchronisation_has_moved(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if PLAYED.is_dir():
        monkeypatch.setenv(traces.VARIABLE, str(PLAYED))
    assert played(name) == FROZEN[name]
