"""Files of arrays, ``.npz``: written whole or not at all, refused by name, and nothing in them is ever run."""

import glob
import json
import os
import secrets
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from fedgo._checks import require

_UNREADABLE = (
    *(EOFError, MemoryError, UnpicklingError, zipfile.BadZipFile, zlib.error),
    *(ValueError, TypeError, KeyError, AttributeError, RuntimeError),
)
_STALE = 3600  # seconds after which nobody is still writing


@contextmanager
def whole(path: str | Path, what: str) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of ``path`` in the end; what was there stays whole until then.

    A link is followed, and the file's mode is kept. What a process that was killed has left behind is removed.
    """
    try:
        target = Path(path).resolve()
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
                    os.chmod(partial, target.stat().st_mode & 0o7777)
                os.fsync(file.fileno())
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
        if os.name == "posix":  # else a power cut may bring the older file back
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        raise OSError(f"{what} cannot be written to {str(path)!r}: {error.strerror or error}") from error


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
        # numpy's own advice for what it cannot read is to allow pickles, which would run whatever is in them
        reason = "it is no .npz file" if "pickle" in str(error) else str(error)
        raise ValueError(f"{what} file is {str(path)!r}: {reason}; give {give}") from error


def keep(path: str | Path, what: str, plan: int, content: Any) -> None:
    """Write the ``content``, tuples of tensors and numbers, that belongs to the plan with the fingerprint ``plan``."""
    packed = BytesIO()
    torch.save(content, packed)
    write_arrays(
        path, what, {"plan": plan}, {what: torch.from_numpy(np.frombuffer(packed.getvalue(), "u1").copy())}
    )


def kept(path: str | Path, what: str, plan: int, kinds: Sequence[type]) -> Any:
    """What ``keep`` wrote, of tuples of these ``kinds``; a ``ValueError`` that names the file where it is another's."""
    with refused_by_name(path, what, f"a saved file of {what} with this plan"):
        about, arrays = read_arrays(path, what, [what])
        remedy = f"the file is of another plan than {plan:016x}"
        require(about["plan"] == plan, "the plan", f"{about['plan']:016x}", remedy)
        with torch.serialization.safe_globals(list(kinds)):
            return torch.load(BytesIO(arrays[what].numpy().tobytes()), weights_only=True)
