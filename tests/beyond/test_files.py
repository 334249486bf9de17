"""A file is written whole or not at all, where a link leads; a new file has the usual mode."""

import os
import stat

import pytest

from fedgo.beyond import _files


def write(path):
    with _files.whole(path, "the thing") as file:
        file.write(b"1")


def test_the_mode_is_that_of_a_new_file_and_a_link_is_followed(tmp_path):
    path, link = tmp_path / "thing.npz", tmp_path / "link.npz"
    link.symlink_to(path)
    before = os.umask(0o027)
    try:
        write(link)  # of a file that is not there yet
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    finally:
        os.umask(before)
    assert link.is_symlink()
    with pytest.raises(ValueError, match=r"the thing file is .*give the path of a file"):
        write(tmp_path)


def test_the_folder_is_synchronised_after_the_file_is_in_its_place(tmp_path, monkeypatch):
    synced, sync = [], os.fsync

    def watched(descriptor):
        there = (tmp_path / "thing.npz").exists()
        synced.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), there))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    write(tmp_path / "thing.npz")
    assert synced == [(False, False), (True, True)]
