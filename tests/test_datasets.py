"""The data sets: raw files read, refused and clustered by data/uci_arms.py; the shipped arms checked when read.

The raw files come from FEDGO_DATA or ../shared/data.
"""

import importlib.util
import os
import re
import socket
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedgo.datasets import SOURCES, digest, shipped_arms
from fedgo.experiments import datasets

ROOT = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("uci_arms", ROOT / "data/uci_arms.py")
uci_arms = sys.modules["uci_arms"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(uci_arms)
Table, checksum, cluster_arms, load = (
    getattr(uci_arms, name) for name in ("Table", "checksum", "cluster_arms", "load")
)

FILES = Path(os.environ.get("FEDGO_DATA") or Path(__file__).parents[2] / "shared" / "data")
NAMES = tuple(SOURCES)


@pytest.fixture
def raw() -> Path:
    missing = [m for name in NAMES for m in uci_arms.RAW[name].members if not (FILES / m).is_file()]
    if missing:
        pytest.skip(f"FEDGO_DATA or ../shared/data must hold UCI's files; missing here: {', '.join(missing)}")
    return FILES


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and neither the user's folder nor a proxy."""
    monkeypatch.setenv("FEDGO_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDGO_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache"


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        assert isinstance(self.server, Server)
        self.server.requested.append(self.path)


class Server(ThreadingHTTPServer):
    """A web server on 127.0.0.1: the files in `folder`, and the paths `requested` so far."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.folder = folder
        self.requested: list[str] = []

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "served"
    folder.mkdir()
    with Server(folder) as running:
        thread = threading.Thread(target=partial(running.serve_forever, poll_interval=0.01))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def pack(path: Path, **members: bytes) -> None:
    """A zip of `members`, named with _ for the dot so that they can be keywords."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_", "."), content)


def compress(data: bytes) -> bytes:
    """Unix `compress`: LZW with codes of 9 to 16 bits, in groups of eight codes of the same width."""
    table, width, free, run = {bytes([b]): b for b in range(256)}, 9, 257, b""
    out, group = bytearray(b"\x1f\x9d\x90"), list[int]()

    def flush() -> None:
        bits = sum(code << (width * i) for i, code in enumerate(group))
        out.extend(bits.to_bytes((width * len(group) + 7) // 8, "little"))
        group.clear()

    for byte in data:
        longer = run + bytes([byte])
        if longer in table:
            run = longer
            continue
        group.append(table[run])
        if len(group) == 8:
            flush()
        if free < 1 << 16:
            if free == 1 << width:
                if group:
                    group.extend([0] * (8 - len(group)))
                    flush()
                width += 1
            table[longer] = free
            free += 1
        run = bytes([byte])
    group.append(table[run])
    flush()
    return bytes(out)


# --- what is read


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_folder_is_read_from_the_argument_and_from_the_environment(
    name: str, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_argument = load(name, folder=raw)
    monkeypatch.setenv("FEDGO_DATA", str(raw))
    by_environment = load(name)
    assert by_argument.attributes.shape == (sum(SOURCES[name].totals.values()), len(SOURCES[name].attributes))
    assert_array_equal(by_argument.attributes, by_environment.attributes)
    assert_array_equal(by_argument.labels, by_environment.labels)
    assert np.all(np.diff(by_argument.attributes[:, 0]) >= 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_script_computes_the_shipped_file_from_the_raw_data(
    name: str, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped, before = shipped_arms(name), comments(datasets.FOLDER / f"{name}.csv")
    monkeypatch.setenv("FEDGO_DATA", str(raw))
    monkeypatch.setattr(datasets, "FOLDER", tmp_path)
    assert comments(uci_arms.ship(name, tmp_path)) == before
    computed = shipped_arms(name)
    assert_array_equal(computed.sizes, shipped.sizes)
    assert_allclose(computed.means, shipped.means, rtol=1e-6)
    assert_allclose(computed.features, shipped.features, rtol=1e-6)


def comments(file: Path) -> list[str]:
    """What a shipped file says of itself, without versions and the last bits of its numbers."""
    lines = file.read_text(encoding="utf-8").splitlines()
    changing = ("# Regenerate: ", "# sha256 of the numbers below: ")
    return [line for line in lines if line[0] == "#" and not line.startswith(changing)]


@pytest.mark.parametrize("name", NAMES)
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


def test_clusters_worked_out_by_hand() -> None:
    # The first attribute is {0, 1} or {9, 10}, all others constant: scaled, the centroids are 0.05 and 0.95.
    attributes = np.full((4, 9), 7.0)
    attributes[:, 0] = [10, 0, 9, 1]
    arms = cluster_arms(Table(attributes, np.array(["1", "1", "4", "1"])), "shuttle", clusters=2)
    assert_allclose(arms.features[:, 0], [0.05, 0.95], atol=1e-15)
    assert_array_equal(arms.features[:, 1:], np.repeat([[0.0] * 8 + [1.0]], 2, axis=0))
    assert_array_equal(arms.means, [1.0, 0.5])
    assert_array_equal(arms.sizes, [2, 2])


# --- the shipped files, damaged


def edit(row: int, column: int, value: str) -> Callable[[list[str]], list[str]]:
    def damaged(lines: list[str]) -> list[str]:
        first = next(k for k, line in enumerate(lines) if line[0] != "#") + row
        cells = lines[first].split(",")
        cells[column] = value
        return [*lines[:first], ",".join(cells), *lines[first + 1 :]]

    return damaged


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: lines[:-1], r"shape of magic.csv is \(19, 12\): it must be \(20, 12\)"),
        (lambda lines: [*lines, lines[-1]], r"shape of magic.csv is \(21, 12\)"),
        (lambda lines: [line.rpartition(",")[0] or line for line in lines], r"shape of magic.csv is \(20, 11\)"),
        (edit(3, 1, "7.5"), r"mean_reward of arm 3 in magic.csv is 7.5: it must lie in \[0, 1\]"),
        (edit(0, 4, "-0.01"), r"fSize of arm 0 in magic.csv is -0.01: it must lie in \[0, 1\]"),
        (edit(19, 11, "nan"), r"fDist of arm 19 in magic.csv is nan: it must lie in \[0, 1\]"),
        (edit(2, 0, "0"), r"size of arm 2 in magic.csv is 0.0: it must lie in \[1, 19020\]"),
        (edit(2, 0, "1"), r"\(rows, rows of class g\) of all clusters in magic.csv is .*UCI has \(19020, 12332\)"),
        (edit(2, 1, "0.5"), r"\(rows, rows of class g\) of all clusters in magic.csv is .*UCI has \(19020, 12332\)"),
        (
            lambda lines: edit(3, 0, "826")(edit(3, 1, "1")(lines)),  # of 1180 rows 0.7 are positive
            r"\(rows, rows of class g\) of all clusters in magic.csv is \(18666.0, 12332.*UCI has \(19020, 12332\)",
        ),
        (edit(5, 6, "0.5"), r"sha256 of the numbers in magic.csv is '\w{64}': the file says \w{64}"),
        (lambda lines: [line for line in lines if "sha256 of the" not in line], r"sha256 .*the file says nothing"),
        (edit(5, 6, "half"), r"magic.csv' does not serve: could not convert string 'half'"),
        (lambda lines: [*lines[:-1], "1,0.5"], r"magic.csv' does not serve: the number of columns changed"),
    ],
)  # fmt: skip
def test_a_damaged_shipped_file_is_refused_by_name(
    damage: Callable[[list[str]], list[str]], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (datasets.FOLDER / "magic.csv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "magic.csv").write_text("\n".join(damage(lines)) + "\n", encoding="utf-8")
    monkeypatch.setattr(datasets, "FOLDER", tmp_path)
    with pytest.raises(
        ValueError, match=message + r".*restore the file, or compute it with .*data/uci_arms.py"
    ):
        shipped_arms("magic")


def test_a_shipped_file_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=r"shuttle.csv' does not serve: .*No such file.*restore the file"):
        shipped_arms("shuttle")


def test_the_checksum_is_of_the_numbers_and_not_of_how_they_are_written() -> None:
    text = (datasets.FOLDER / "magic.csv").read_text(encoding="utf-8")
    stated = re.search("^# sha256 of the numbers below: (.*)$", text, re.MULTILINE)
    arms = shipped_arms("magic")
    assert stated[1] == digest(np.column_stack([arms.sizes, arms.means, arms.features]))
    assert (
        digest(np.array([[1.0, 0.5]]))
        == digest(np.array([[1, 0.50]], order="F"))
        != digest(np.array([[1, 0.51]]))
    )


# --- the download


@pytest.mark.slow
def test_shuttle_is_downloaded_once_and_its_z_file_unpacked(raw: Path, server: Server, cache: Path) -> None:
    train, test = (raw / "shuttle.trn").read_bytes(), (raw / "shuttle.tst").read_bytes()
    pack(server.folder / "s.zip", shuttle_trn_Z=compress(train), shuttle_tst=test)
    first = load("shuttle", url=server.url("s.zip"))
    second = load("shuttle", url=server.url("s.zip"))
    assert server.requested == ["/s.zip"]
    assert [path.name for path in cache.iterdir()] == ["shuttle.zip"]
    expected = load("shuttle", folder=raw)
    for table in (first, second):
        assert_array_equal(table.attributes, expected.attributes)
        assert_array_equal(table.labels, expected.labels)


def test_a_repacked_archive_with_shuffled_rows_gives_the_same_table(raw: Path, server: Server) -> None:
    rows = (raw / "magic04.data").read_text().splitlines()
    np.random.default_rng(0).shuffle(rows)
    pack(server.folder / "m.zip", magic04_data="\r\n".join(rows).encode(), README=b"repacked")
    table, expected = load("magic", url=server.url("m.zip")), load("magic", folder=raw)
    assert_array_equal(table.attributes, expected.attributes)
    assert_array_equal(table.labels, expected.labels)
    assert checksum(table) == uci_arms.RAW["magic"].sha256


@pytest.mark.parametrize(
    "around", [lambda text: b"\xef\xbb\xbf" + text, lambda text: b"\r\n" + text, lambda text: text + b"\n \n"],
    ids=["byte-order mark", "blank first line", "blank last lines"],
)  # fmt: skip
def test_the_right_table_is_accepted_whatever_an_editor_put_around_it(
    around: Callable[[bytes], bytes], raw: Path, tmp_path: Path
) -> None:
    (tmp_path / "magic04.data").write_bytes(around((raw / "magic04.data").read_bytes()))
    assert checksum(load("magic", folder=tmp_path)) == uci_arms.RAW["magic"].sha256


def test_a_changed_value_is_refused_by_checksum_and_deleted(raw: Path, server: Server, cache: Path) -> None:
    content = (raw / "magic04.data").read_bytes()
    pack(server.folder / "m.zip", magic04_data=content.replace(b"28.7967", b"28.7968", 1))
    with pytest.raises(
        ValueError, match=r"has sha256 [0-9a-f]{64}, not 6ea1.* deleted: run again to download"
    ):
        load("magic", url=server.url("m.zip"))
    assert not list(cache.iterdir())


def test_a_truncated_archive_is_refused_and_the_next_call_downloads_anew(raw: Path, server: Server) -> None:
    content, path = (raw / "magic04.data").read_bytes(), server.folder / "m.zip"
    pack(path, magic04_data=content)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        ValueError, match=r"magic.zip' \([\d,]+ bytes from http.*not a zip.*run again"
    ) as caught:
        load("magic", url=server.url("m.zip"))
    assert "\n" not in str(caught.value)
    path.write_bytes(whole)
    assert len(load("magic", url=server.url("m.zip")).labels) == 19_020
    assert server.requested == ["/m.zip"] * 2


@pytest.mark.parametrize("offset", [3, 200])
def test_a_damaged_z_file_is_refused(offset: int, server: Server) -> None:
    packed = bytearray(compress(b"50 21 77 0 28 0 27 48 22 2\n" * 40))
    packed[offset : offset + 20] = b"\xff" * 20
    pack(server.folder / "s.zip", shuttle_trn_Z=bytes(packed), shuttle_tst=b"")
    with pytest.raises(ValueError, match=r"does not serve: .* run again to download it anew"):
        load("shuttle", url=server.url("s.zip"))


def test_a_damaged_member_is_refused(raw: Path, server: Server) -> None:
    path = server.folder / "m.zip"
    pack(path, magic04_data=(raw / "magic04.data").read_bytes())
    damaged = bytearray(path.read_bytes())
    damaged[10_000:10_100] = bytes(100)
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"does not serve: .* run again to download it anew"):
        load("magic", url=server.url("m.zip"))


def test_an_archive_without_the_file_is_refused(server: Server) -> None:
    pack(server.folder / "m.zip", README=b"moved")
    with pytest.raises(
        ValueError, match=r"neither magic04.data nor magic04.data.Z.*set FEDGO_DATA=<that folder>"
    ):
        load("magic", url=server.url("m.zip"))


def test_no_network_says_how_to_go_on_without_it(cache: Path) -> None:
    with socket.socket() as closed:  # bound but not listening, so the connection is refused
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/m.zip"
        with pytest.raises(ValueError, match=r"could not download http.*/m.zip .* by hand.* set FEDGO_DATA="):
            load("magic", url=url)
    assert not list(cache.iterdir())


def test_a_page_that_is_not_there_is_named(server: Server) -> None:
    with pytest.raises(ValueError, match=r"could not download .*404.*Check the network and run again"):
        load("magic", url=server.url("gone.zip"))


# --- the folder


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_without_the_file_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDGO_DATA", str(tmp_path / "nowhere"))
    member = uci_arms.RAW[name].members[0]
    with pytest.raises(ValueError, match=rf"nowhere'.*neither {member} nor .*by hand.*or unset FEDGO_DATA"):
        load(name)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "1,2,3,g\n",
            r"line 1 of magic04.data reads '1,2,3,g', not 10 numbers and a class out of g, h.*by hand",
        ),
        ("1,2,3,4,5,6,7,8,9,ten,g\n", r"line 1 of magic04.data reads '1,2,.*by hand"),
        ("1,2,3,4,5,6,7,8,9,10,gamma\n", r"line 1 of magic04.data reads '1,2,.*by hand"),
        ("\n\ufeff1,2,3,4,5,6,7,8,9,10,g\n", r"line 2 of magic04.data reads '.+1,2,.*by hand"),
        ("1,2,3,4,5,6,7,8,9,10,h\n", r"1 rows with class totals {'g': 0, 'h': 1}, not 19,020 .*by hand"),
        ("", r"0 rows with class totals .*by hand"),
    ],
)
def test_a_file_that_is_not_the_table_is_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "magic04.data").write_text(content)
    with pytest.raises(ValueError, match=message):
        load("magic", folder=tmp_path)


@pytest.mark.slow
def test_a_folder_may_hold_the_z_file_as_unpacked_from_the_archive(raw: Path, tmp_path: Path) -> None:
    (tmp_path / "shuttle.trn.Z").write_bytes(compress((raw / "shuttle.trn").read_bytes()))
    (tmp_path / "shuttle.tst").write_bytes((raw / "shuttle.tst").read_bytes())
    assert load("shuttle", folder=tmp_path).attributes.shape == (58_000, 9)


# --- the arguments


def test_an_unknown_name_is_refused_with_the_accepted_ones() -> None:
    table = Table(np.zeros((1, 10)), np.array(["g"]))
    for call in (load, shipped_arms, partial(cluster_arms, table)):
        with pytest.raises(ValueError, match=r"name is 'iris': choose one of \('magic', 'shuttle'\)"):
            call("iris")


def test_a_folder_and_a_url_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="give at most one of them"):
        load("magic", folder="here", url="http://127.0.0.1/m.zip")


def test_tables_that_cannot_be_clustered_are_refused() -> None:
    with pytest.raises(ValueError, match=r"is \(4, 9\): give \(rows, 10\) for 'magic'"):
        cluster_arms(Table(np.zeros((4, 9)), np.array(list("gghh"))), "magic")
    with pytest.raises(ValueError, match="clusters is 2: give 1 to 1, the distinct rows"):
        cluster_arms(Table(np.zeros((4, 10)), np.array(list("gghh"))), "magic", clusters=2)
