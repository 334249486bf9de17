"""Other readings of the setup: a run is the same alone and in a batch, and differs from the book's in one thing."""

import pytest
import torch

from fedgo.experiments.readings import READINGS
from fedgo.experiments.world import world


@pytest.mark.parametrize("name", READINGS)
def test_a_reading_of_a_run_is_the_same_alone(name):
    experiment, change = READINGS[name]
    whole, alone = (change(world(experiment, runs).problem) for runs in (3, [2]))
    assert torch.equal(whole.only(2).arms, alone.arms) and torch.equal(whole.only(2).means, alone.means)


def test_a_reading_changes_one_thing():
    changed = {}
    for name, (experiment, change) in READINGS.items():
        ours = world(experiment, 2).problem
        other = change(ours)
        differs = {
            part for part in ("arms", "means") if not torch.equal(getattr(ours, part), getattr(other, part))
        }
        changed[name.partition(", ")[2]] = differs | {other.reward} - {"gaussian"}
        assert (other.runs, other.seed, other.sigma) == (ours.runs, ours.seed, ours.sigma)
    assert changed == {
        "": set(),
        "sign as printed": {"means"},
        **{f"arms of run {run}": {"arms", "means"} for run in (1, 2, 3)},
        "Bernoulli": {"bernoulli"},
        "other class": {"means"},
        "z-scores": {"arms"},
    }
    scores = READINGS["MagicTelescope, z-scores"][1](world("magic", 2).problem).arms
    torch.testing.assert_close(scores.square().sum(-1).mean(1), torch.ones(2, dtype=torch.float64))
