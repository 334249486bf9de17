"""Writing and reading files.

A file is written whole or not at all, a damaged file is refused with an error that names it, and no file is run as
code.
"""

import glob
import os
import secrets
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import IO

from fedgo._checks import require

# The errors that zipfile, zlib, pickle, NumPy, torch and json raise for damaged or foreign files.
_UNREADABLE = (
    *(EOFError, MemoryError, IndexError, OverflowError, UnpicklingError, zipfile.BadZipFile, zlib.error),
    *(ValueError, TypeError, KeyError, AttributeError, RuntimeError),
)
_STALE = 3600  # a temporary file older than these seconds belongs to a process that was killed


@contextmanager
def whole(path: str | Path, what: str) -> Iterator[IO[bytes]]:
    """Open a temporary file for writing in binary; when the context ends, this file replaces the file ``path``.

    The temporary file is in the folder of ``path``. Until the context ends, an older file at ``path`` stays as it is.
    If the context raises an error, the older file stays and the temporary file is removed. If ``path`` is a link, the
    file to which it leads is replaced. The new file gets the mode of an older file, and its owner and group as far as
    the system allows. Temporary files for the same ``path`` that are older than an hour are removed, because the
    processes that wrote them were killed.

    Args:
        path: The file to write.
        what: What the file holds, for the errors.

    Yields:
        The temporary file.

    Raises:
        ValueError: ``path`` is a folder or something else that is no file, or its links lead in a circle.
        OSError: The file cannot be written, for instance because its folder does not exist, or the context raises an
            ``OSError``; or the file is written, but its folder cannot be synchronised with the disk. The message says
            whether the file is written.
        TypeError: ``path`` is neither a text nor a path.
    """
    target = resolved(path, what)
    try:
        require(target.is_file() or not target.exists(), f"{what} file", str(path), "give the path of a file")
        # this pattern fits the names that this function gives to temporary files below
        temporary = f".{glob.escape(target.name)}.{'[0-9a-f]' * 8}"
        for left in target.parent.glob(temporary):
            with suppress(FileNotFoundError):  # another process may remove this file at the same time
                if time.time() - left.stat().st_mtime > _STALE:
                    left.unlink()
        partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            with open(partial, "xb") as file:
                yield file
                file.flush()
                if target.exists():
                    keep_mode(target, partial)
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
            written = f"{what} is written to {str(path)!r}"
            raise OSError(f"{written}, but {failed}; a power cut may bring the older file back") from error


def resolved(path: str | Path, what: str) -> Path:
    """Return ``path`` as an absolute path with all links followed; the file need not exist.

    ``what`` says in the error what the file holds.

    Raises:
        ValueError: The links lead in a circle.
        TypeError: ``path`` is neither a text nor a path.
    """
    with suppress(OSError, RuntimeError):  # which a circle raises before Python 3.13; later it stays a link
        found = Path(path).resolve()
        if not found.is_symlink():
            return found
    raise ValueError(f"{what} file is {str(path)!r}: its links lead in a circle; give the path of a file")


def keep_mode(before: Path, after: Path) -> None:
    """Give the file ``after`` the mode of the file ``before``, and its owner and group as far as the system allows."""
    status = before.stat()
    if os.name == "posix":
        for owner in (status.st_uid, -1):
            with suppress(PermissionError):
                os.chown(after, owner, status.st_gid)
                break
    os.chmod(after, status.st_mode & 0o7777)


def _synchronise(folder: Path) -> None:
    """Make the operating system write the list of the files in ``folder`` to the disk, so that it survives a power
    cut.
    """
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def refused_by_name(path: str | Path, what: str, give: str) -> Iterator[None]:
    """Turn the errors that a damaged or foreign file causes in this context into a ``ValueError`` that names the file.

    A device or a pipe is refused before it is read. An ``OSError``, for instance about a file that does not exist, is
    passed on as it is.

    Args:
        path: The file that is read in this context.
        what: What the file should hold, for instance "the trace"; the text of the error begins with it.
        give: What to give instead, for instance "a saved Trace"; the text of the error ends with it.

    Raises:
        ValueError: The context raised one of the errors that damaged or foreign files cause: ``ValueError``,
            ``TypeError``, ``KeyError``, ``IndexError``, ``AttributeError``, ``RuntimeError``, ``OverflowError``,
            ``EOFError``, ``MemoryError``, or an error of pickle, zipfile or zlib. The text repeats that of the error.
            But if pickle raised the error, or its text contains "pickle", the new text says that the file holds pickled
            objects, or is a file of another kind.
    """
    try:
        kind = Path(path)
        if kind.exists() and not (kind.is_file() or kind.is_dir()):  # reading it might never end
            raise ValueError("it is a device or a pipe")
        yield
    except _UNREADABLE as error:
        # For a file that they cannot read, NumPy and torch advise to allow pickles, which would run the code in the
        # file. Therefore the error does not repeat their text.
        unread = isinstance(error, UnpicklingError) or "pickle" in str(error)
        reason = "it holds pickled objects, or is a file of another kind" if unread else str(error)
        raise ValueError(f"{what} file is {str(path)!r}: {reason}; give {give}") from error
