"""A few of the random attacks of `make attack`: the federation, its files, its letters, and the file of a study."""

import random
from pathlib import Path

import pytest
from attack import KINDS

SEEDS = {"federations": 40, "simulators": 20, "damaged_files": 4}  # of others one takes long enough


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [attack.__name__ for attack, _ in KINDS.values()])
def test_random_attacks_break_no_promise(name: str, tmp_path: Path) -> None:
    (attack,) = (attack for attack, _ in KINDS.values() if attack.__name__ == name)
    for seed in range(SEEDS.get(name, 1)):
        (tmp_path / str(seed)).mkdir()
        assert attack(random.Random(seed), tmp_path / str(seed)) > 0
