"""The data sets: the shipped arms, checked when they are read, and the script that computes them from UCI's files.

The raw files come from FEDGO_DATA or ../shared/data; without them the script is tried on small tables alone.
"""

import importlib.util
import io
import os
import sys
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedgo import problems
from fedgo.problems import SOURCES, shipped, shipped_arms

ROOT = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("uci_arms", ROOT / "data/uci_arms.py")
uci_arms = sys.modules["uci_arms"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(uci_arms)
FILES = Path(os.environ.get("FEDGO_DATA") or ROOT.parent / "shared/data")

needs_raw_files = pytest.mark.skipif(not (FILES / "shuttle.tst").is_file(), reason="needs UCI's files")
names = pytest.mark.parametrize("name", SOURCES)


@names
def test_the_shipped_arms_account_for_every_row(name: str) -> None:
    features, means, sizes = shipped_arms(name)
    totals = SOURCES[name].totals
    assert features.shape == (20, 10) and means.shape == sizes.shape == (20,)
    assert features.min() >= 0 and features.max() <= 1
    assert sizes.sum() == sum(totals.values())
    # The shares are exact: weighted by the cluster sizes they give back the total of the positive class.
    assert_allclose(means @ sizes, totals[SOURCES[name].positive], rtol=1e-12)
    assert np.all(np.diff(features[:, 0]) > 1e-6)  # so rounding cannot change the order of the arms
    assert np.all(features[:, 9] == 1) == (name == "shuttle")


@pytest.mark.parametrize(
    "damage", [("0.59", "0.6"), ("733,", "734,"), ("sha256 of the numbers", "sha of them")]
)
def test_a_damaged_shipped_file_is_refused_by_its_name(damage: tuple[str, str], tmp_path: Path) -> None:
    text = (problems.FOLDER / "magic.csv").read_text(encoding="utf-8")
    assert damage[0] in text
    (tmp_path / "magic.csv").write_text(text.replace(*damage, 1), encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"sha256 of the numbers in magic\.csv is .*restore it, or compute it"
    ):
        shipped(tmp_path / "magic.csv")


@pytest.mark.slow
@needs_raw_files
def test_the_script_computes_the_shipped_files_from_the_raw_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDGO_DATA", str(FILES))
    folder = ROOT / "fedgo/experiments/data"
    made = [uci_arms.ship(name, tmp_path) for name in SOURCES] + [uci_arms.ship_rows(tmp_path)]
    for path, there in zip(made, (problems.FOLDER, problems.FOLDER, folder), strict=True):
        new, old = path.read_text("utf-8").splitlines(), (there / path.name).read_text("utf-8").splitlines()
        assert new[:5] == old[:5]  # licence, source, checksum of what was received
        assert_allclose(
            shipped(path), shipped(there / path.name), rtol=1e-6
        )  # other versions, other last bits


def test_clusters_worked_out_by_hand() -> None:
    # The first attribute is {0, 1} or {9, 10}, all others constant: scaled, the centroids are 0.05 and 0.95.
    attributes = np.full((4, 9), 7.0)
    attributes[:, 0] = [10, 0, 9, 1]
    table = uci_arms.Table(attributes, np.array(["1", "1", "4", "1"]))
    arms = uci_arms.cluster_arms(table, "shuttle", clusters=2)
    assert_allclose(arms.features[:, 0], [0.05, 0.95], atol=1e-15)
    assert_array_equal(arms.features[:, 1:], np.repeat([[0.0] * 8 + [1.0]], 2, axis=0))
    assert_array_equal(arms.means, [1.0, 0.5])
    assert_array_equal(arms.sizes, [2, 2])


# Two rows as Unix compress packs them, and one that is not packed.
PACKED = bytes.fromhex(
    "1f9d90356080901103c48d1b2004cac0917020421a0c65c818a860064281376c345c082206431a02218260184301"
)
PLAIN = b"21 0 76 0 28 18 40 48 8 1\r\n\r\n"
ROWS = [
    [21, 0, 76, 0, 28, 18, 40, 48, 8],
    [37, 0, 76, 0, 28, 18, 40, 48, 8],
    [50, 21, 77, 0, 28, 0, 27, 48, 22],
]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def test_an_archive_is_downloaded_once_unpacked_sorted_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FEDGO_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("shuttle.trn.Z", PACKED)
        archive.writestr("shuttle.tst", PLAIN)
    (tmp_path / "s.zip").write_bytes(content.getvalue())
    expected = uci_arms.Table(np.array(ROWS, dtype=np.float64), np.array(["1", "1", "2"]))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        threading.Thread(target=partial(server.serve_forever, poll_interval=0.01)).start()
        url = f"http://127.0.0.1:{server.server_port}/s.zip"
        raw = uci_arms.RAW["shuttle"]._replace(url=url, sha256=uci_arms.checksum(expected))
        monkeypatch.setitem(uci_arms.RAW, "shuttle", raw)
        table = uci_arms.load("shuttle")
        server.shutdown()
    again = uci_arms.load("shuttle")  # the server is gone
    for found in (table, again):
        assert_array_equal(found.attributes, expected.attributes)
        assert_array_equal(found.labels, expected.labels)
    monkeypatch.setitem(uci_arms.RAW, "shuttle", raw._replace(sha256="0" * 64))
    with pytest.raises(ValueError, match=r"sha256 of shuttle's sorted table is .*by hand.* FEDGO_DATA"):
        uci_arms.load("shuttle")
