"""The data sets: the shipped arms, checked when they are read, and the script that computes them from UCI's files.

The raw files come from FEDGO_DATA or ../shared/data.
"""

import os
from pathlib import Path

import numpy as np
import pytest
import uci_arms
from numpy.testing import assert_allclose

from fedgo import problems
from fedgo.problems import shipped

ROOT = Path(__file__).resolve().parents[1]
FILES = Path(os.environ.get("FEDGO_DATA") or ROOT.parent / "shared/data")

needs_raw_files = pytest.mark.skipif(not (FILES / "shuttle.tst").is_file(), reason="needs UCI's files")
ROWS = {  # of each class, from UCI's documentation
    "magic": {"g": 12_332, "h": 6_688},
    "shuttle": {"1": 45_586, "2": 50, "3": 171, "4": 8_903, "5": 3_267, "6": 10, "7": 13},
}
names = pytest.mark.parametrize("name", uci_arms.RAW)


@names
def test_the_shipped_arms_account_for_every_row(name: str) -> None:
    table = shipped(problems.ARMS_FOLDER / f"{name}.csv")
    sizes, means, features = table[:, 0], table[:, 1], table[:, 2:]
    totals = ROWS[name]
    assert features.shape == (20, 10) and means.shape == sizes.shape == (20,)
    assert features.min() >= 0 and features.max() <= 1
    assert sizes.sum() == sum(totals.values())
    # The shares are exact: weighted by the cluster sizes they give back the total of the positive class.
    assert_allclose(means @ sizes, totals[uci_arms.RAW[name].positive], rtol=1e-12)
    assert np.all(np.diff(features[:, 0]) > 1e-6)  # so rounding cannot change the order of the arms
    assert np.all(features[:, 9] == 1) == (name == "shuttle")


@pytest.mark.parametrize("damage", [("0.59", "0.6"), ("sha256 of the numbers", "sha of them")])
def test_a_damaged_shipped_file_is_refused_by_its_name(damage: tuple[str, str], tmp_path: Path) -> None:
    text = (problems.ARMS_FOLDER / "magic.csv").read_text(encoding="utf-8")
    assert damage[0] in text
    (tmp_path / "magic.csv").write_text(text.replace(*damage, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=r"sha256 of the numbers in magic\.csv is .*restore it"):
        shipped(tmp_path / "magic.csv")


@pytest.mark.slow
@needs_raw_files
def test_the_script_computes_the_shipped_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDGO_DATA", str(FILES))
    made = [(uci_arms.ship(name, tmp_path), problems.ARMS_FOLDER) for name in uci_arms.RAW]
    beyond = ROOT / "fedgo/beyond/evidence/data"
    if beyond.is_dir():  # the paper does without it
        made.append((uci_arms.ship_rows(tmp_path), beyond))
    for path, there in made:
        new, old = path.read_text("utf-8").splitlines(), (there / path.name).read_text("utf-8").splitlines()
        assert new[:5] == old[:5]  # licence, source, checksum of what was received
        # other versions, other last bits
        assert_allclose(shipped(path), shipped(there / path.name), rtol=1e-6)
