"""The file of a client or of a server: an archive of ``torch.save``, whose content is never run, and its CRC-32."""

import zipfile
import zlib
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from fedgo._checks import require
from fedgo.beyond._files import refused_by_name, whole
from fedgo.beyond.federation.plan import Plan
from fedgo.beyond.federation.wire import Exchange, Kind, Letter, checksum


def keep(path: str | Path, what: str, plan: int, content: Any) -> None:
    """Write the state of a client or of a server to a file, whole or not at all.

    The file is an archive of ``torch.save`` followed by its CRC-32, because torch does not check the checksums within.

    Args:
        path: The file to write.
        what: What the file holds, "the client" or "the server", for the errors.
        plan: The fingerprint of the plan (`Plan.fingerprint`), which is written too.
        content: The state: tensors and numbers, in tuples, dictionaries and the letters of the federation.

    Raises:
        ValueError: ``path`` is a folder or something else that is no file, or its links lead in a circle, which Python
            refuses before 3.13.
        OSError: The file cannot be written; or it is written, but its folder cannot be synchronised with the disk.
    """
    with whole(path, what) as file:
        archive = BytesIO()
        torch.save({"plan": plan, "content": content}, archive)
        file.write(archive.getvalue())
        file.write(zlib.crc32(archive.getvalue()).to_bytes(4, "little"))


def kept(path: str | Path, what: str, plan: Plan, kinds: Sequence[type]) -> Any:
    """Return the state of a client or of a server that `keep` wrote to a file.

    Args:
        path: The file to read.
        what: What the file has to hold, "the client" or "the server", for the errors.
        plan: The plan to which the file has to belong.
        kinds: The classes of tuples that the state may contain besides `Letter`, `Exchange` and `Kind`.

    Raises:
        ValueError: The file is damaged, larger than `Plan.file_size` bytes, or from an earlier version of fedgo; it
            contains other classes than these, as the file of the other side does; it belongs to another plan; or
            ``plan`` is not a `Plan`. The message names the file.
        OSError: The file does not exist or cannot be read, for instance because it is a folder.
    """
    with refused_by_name(path, what, f"a saved file of {what} with this plan"):
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
            size, remedy = max(Path(path).stat().st_size, unpacked), f"it is at most {plan.file_size} bytes"
            require(size <= plan.file_size, "the size", size, remedy)
        received = Path(path).read_bytes()
        intact = zlib.crc32(received[:-4]) == checksum(received)
        require(intact, "the checksum", received[-4:].hex(), "the file is damaged")
        with torch.serialization.safe_globals([*kinds, Letter, Exchange, Kind]):
            held = torch.load(BytesIO(received[:-4]), weights_only=True)
        other = f"it is another than {plan.fingerprint:016x}"
        require(held["plan"] == plan.fingerprint, "the plan", f"{held['plan']:016x}", other)
        return held["content"]
