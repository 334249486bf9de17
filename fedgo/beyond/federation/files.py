"""The file of a client and of a server: one archive of ``torch.save``, whose content is never run, and its CRC-32."""

import zipfile
import zlib
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from fedgo._checks import require
from fedgo._files import refused_by_name, whole
from fedgo.beyond.federation.plan import Plan
from fedgo.beyond.federation.wire import Exchange, Kind, Letter


def keep(path: str | Path, what: str, plan: int, content: Any) -> None:
    """Write the ``content``, tuples of tensors and numbers, that belongs to the plan with the fingerprint ``plan``.

    The file is one of ``torch.save``, and the CRC-32 of it: torch does not look at the checksums within.
    """
    with whole(path, what) as file:
        archive = BytesIO()
        torch.save({"what": what, "plan": plan, "content": content}, archive)
        file.write(archive.getvalue())
        file.write(zlib.crc32(archive.getvalue()).to_bytes(4, "little"))


def kept(path: str | Path, what: str, plan: Plan, kinds: Sequence[type]) -> Any:
    """Return what ``keep`` wrote for ``plan``, of tuples of these ``kinds``, of letters and exchanges.

    Raises:
        ValueError: If the file is damaged, larger than a file of this plan can be, an earlier fedgo's, of something
            else or of another plan.
    """
    with refused_by_name(path, what, f"a saved file of {what} with this plan"):
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
            size, remedy = max(Path(path).stat().st_size, unpacked), f"it is at most {plan.file_size} bytes"
            require(size <= plan.file_size, "the size", size, remedy)
            require("about.npy" not in archive.namelist(), "the format", "arrays", "it is an earlier fedgo's")
        received = Path(path).read_bytes()
        checksum = zlib.crc32(received[:-4]).to_bytes(4, "little")
        require(received[-4:] == checksum, "the checksum", received[-4:].hex(), "the file is damaged")
        with torch.serialization.safe_globals([*kinds, Letter, Exchange, Kind]):
            held = torch.load(BytesIO(received[:-4]), weights_only=True)
        require(held["what"] == what, "the content", held["what"], f"it is not {what}")
        other = f"it is another than {plan.fingerprint:016x}"
        require(held["plan"] == plan.fingerprint, "the plan", f"{held['plan']:016x}", other)
        return held["content"]
