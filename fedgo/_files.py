"""Files of arrays (``.npz``) and of torch: written whole or not at all, refused by name, and nothing in them is run."""

import glob
import json
import os
import secrets
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from fedgo._checks import require

_UNREADABLE = (
    *(EOFError, MemoryError, IndexError, OverflowError, UnpicklingError, zipfile.BadZipFile, zlib.error),
    *(ValueError, TypeError, KeyError, AttributeError, RuntimeError),
)
_STALE = 3600  # seconds after which nobody is still writing


@contextmanager
def whole(path: str | Path, what: str) -> Iterator[IO[bytes]]:
    """Open a file to write to, which takes the place of ``path`` in the end; what was there stays whole until then.

    A link is followed, and the file's mode and group are kept. What a process that was killed has left behind is
    removed. An ``OSError`` says whether the new file is in its place.
    """
    target = resolved(path, what)
    try:
        require(target.is_file() or not target.exists(), f"{what} file", str(path), "give that of a file")
        for left in target.parent.glob(
            f".{glob.escape(target.name)}.{'[0-9a-f]' * 8}"
        ):  # of this module alone
            with suppress(FileNotFoundError):  # another process tidies too
                if time.time() - left.stat().st_mtime > _STALE:
                    left.unlink()
        partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            with open(partial, "xb") as file:
                yield file
                file.flush()
                if target.exists():
                    _keep_mode(target, partial)
                os.fsync(file.fileno())
            partial.replace(target)
        except BaseException:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OSError(f"{what} cannot be written to {str(path)!r}: {error.strerror or error}") from error
    if os.name == "posix":
        try:
            _synchronise(target.parent)
        except OSError as error:
            failed = f"its folder cannot be synchronised: {error.strerror or error}"
            words = (
                f"{what} is written to {str(path)!r}, but {failed}; a power cut may bring the older file back"
            )
            raise OSError(words) from error


def resolved(path: str | Path, what: str) -> Path:
    """Return where ``path`` leads, without links; a ``ValueError`` says if its links lead in a circle."""
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError before Python 3.13
        raise ValueError(
            f"{what} file is {str(path)!r}: its links lead nowhere: give that of a file"
        ) from error


def _keep_mode(before: Path, after: Path) -> None:
    """Give the file ``after`` the mode of ``before``, and its owner and group as far as that is allowed."""
    status = before.stat()
    if os.name == "posix":
        for owner in (status.st_uid, -1):
            with suppress(PermissionError):
                os.chown(after, owner, status.st_gid)
                break
    os.chmod(after, status.st_mode & 0o7777)


def _synchronise(folder: Path) -> None:
    """Have the names of the files in ``folder`` on the disk, so that they survive a power cut."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write_arrays(path: str | Path, what: str, about: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> None:
    """Write ``about`` as JSON and ``arrays`` to ``path``; the file that was there stays whole until the new one is."""
    with whole(path, what) as file:
        plain: dict[str, Any] = {name: values.numpy() for name, values in arrays.items()}
        np.savez_compressed(file, about=np.array(json.dumps(dict(about))), **plain)


def read_arrays(
    path: str | Path, what: str, needed: Iterable[str]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What ``write_arrays`` wrote: ``about``, and every array by its name, among them the ``needed``."""
    with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
        missing = {"about", *needed} - set(file.files)
        remedy = f"it lacks {sorted(missing)}, as an earlier fedgo's does"
        require(not missing, f"{what} file", str(path), remedy)
        arrays = {name: torch.from_numpy(file[name]) for name in file.files if name != "about"}
        return json.loads(str(file["about"])), arrays


@contextmanager
def refused_by_name(path: str | Path, what: str, give: str) -> Iterator[None]:
    """Turn whatever a damaged or foreign file raises into a ``ValueError`` that names it and what to ``give``."""
    try:
        yield
    except _UNREADABLE as error:
        # numpy's and torch's own advice for what they cannot read is to allow pickles, which would run what is in them
        unread = isinstance(error, UnpicklingError) or "pickle" in str(error)
        reason = "it holds what no file of fedgo does" if unread else str(error)
        raise ValueError(f"{what} file is {str(path)!r}: {reason}; give {give}") from error
