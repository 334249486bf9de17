"""A file is written whole or not at all, where a link leads, with the mode it had; leftovers go."""

import os
import stat

import pytest
import torch

from fedgo.beyond import _files

ARRAYS = {"one": torch.ones(2)}


def kept(path):
    return _files.read_arrays(path, "the thing", ("one",))[0]["k"]


def test_the_mode_is_kept_and_a_link_is_followed(tmp_path):
    path, link = tmp_path / "thing.npz", tmp_path / "link.npz"
    link.symlink_to(path)
    before = os.umask(0o027)
    try:
        _files.write_arrays(link, "the thing", {"k": 1}, ARRAYS)  # of a file that is not there yet
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    finally:
        os.umask(before)
    path.chmod(0o664)
    _files.write_arrays(link, "the thing", {"k": 2}, ARRAYS)
    assert link.is_symlink() and kept(path) == 2 and stat.S_IMODE(path.stat().st_mode) == 0o664
    with pytest.raises(ValueError, match=r"the thing file is .*give the path of a file"):
        _files.write_arrays(tmp_path, "the thing", {}, ARRAYS)


def test_the_folder_is_synchronised_after_the_file_is_in_its_place(tmp_path, monkeypatch):
    synced, sync = [], os.fsync

    def watched(descriptor):
        there = (tmp_path / "thing.npz").exists()
        synced.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), there))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    _files.write_arrays(tmp_path / "thing.npz", "the thing", {"k": 1}, ARRAYS)
    assert synced == [(False, False), (True, True)]
