"""Files of arrays, ``.npz``: written whole or not at all, read without pickles, and refused by name."""

import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from fedgo._checks import require

_UNREADABLE = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error),
    *(ValueError, TypeError, KeyError, AttributeError, RuntimeError),
)


@contextmanager
def whole(path: str | Path, what: str) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of ``path`` in the end; what was there stays whole until then."""
    path = Path(path)
    partial = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            partial = Path(file.name)
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise OSError(f"{what} cannot be written to {str(path)!r}: {error.strerror or error}") from error
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def write(path: str | Path, what: str, about: Mapping[str, Any], arrays: Mapping[str, Tensor]) -> None:
    """Write ``about`` as JSON and ``arrays`` to ``path``; the file that was there stays whole until the new one is."""
    with whole(path, what) as file:
        plain: dict[str, Any] = {name: values.numpy() for name, values in arrays.items()}
        np.savez_compressed(file, about=np.array(json.dumps(dict(about))), **plain)


def read(path: str | Path, what: str, needed: Iterable[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What ``write`` wrote: ``about``, and every array by its name, among them the ``needed``."""
    with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
        missing = {"about", *needed} - set(file.files)
        require(not missing, f"{what} file", str(path), f"it lacks {sorted(missing)}")
        arrays = {name: torch.from_numpy(file[name]) for name in file.files if name != "about"}
        return json.loads(str(file["about"])), arrays


@contextmanager
def refused_by_name(path: str | Path, what: str, give: str) -> Iterator[None]:
    """Turn whatever a damaged or foreign file raises into a ``ValueError`` that names it and what to ``give``."""
    try:
        yield
    except FileNotFoundError:
        raise
    except _UNREADABLE as error:
        # numpy's own advice for what it cannot read is to allow pickles, which would run whatever is in them
        reason = "it is no .npz file" if "pickle" in str(error) else str(error)
        raise ValueError(f"{what} file is {str(path)!r}: {reason}; give {give}") from error
