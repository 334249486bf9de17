"""Letters as bytes: 36 bytes of header, the numbers as little-endian float64, a CRC-32 of both.

In their order, by their bytes:

- 4: ``FDGO``; 2: the version of this layout; 2: the kind of letter;
- 4: the client that it goes to or comes from; 4: the exchange that it belongs to, numbered from 1;
- 4: what it builds on (see ``Letter.since``); 8: the fingerprint of the plan that both sides hold;
- 8: how many numbers follow; 8 each: the numbers, the scalars of Section 3, and nothing else is charged;
- 4: the CRC-32 of all that stands before it.

The checksum finds damage, not forgery: who may speak at all is for the transport to say.
"""

import struct
import zlib
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

VERSION = 1
_HEADER = struct.Struct("<4sHHIIIQQ")
_CHECK = struct.Struct("<I")
OVERHEAD = _HEADER.size + _CHECK.size  # bytes of a letter without its numbers


class Refused(ValueError):
    """A letter that is not what it should be; whoever refuses it is as before."""


def must(condition: bool, reason: str) -> None:
    """Raise ``Refused`` with ``reason`` unless ``condition`` holds."""
    if not condition:
        raise Refused(reason)


class Kind(IntEnum):
    """What a letter is: ``WEIGHTS``, ``REPORT`` and ``SYNCHRONISE`` ask, ``GRADIENT``, ``EXPLORED`` and ``STATISTICS``
    answer them; ``START`` and ``NEWS`` want no answer."""

    WEIGHTS, GRADIENT = 1, 2  # a round of Algorithm 2: w, and Σ 2(f − y)∇f over the client's own data
    REPORT, EXPLORED = (
        3,
        4,
    )  # packed Phase I: a request, and the pulls of every arm with the sum of their rewards
    SYNCHRONISE, STATISTICS = 5, 6  # a request, and (ΔΣ, Δb)
    START, NEWS = 7, 8  # ŵ₀, and the sums of the statistics that this client has not got; no answer


class Letter(NamedTuple):
    """``numbers`` (n,) float64 of exchange ``number`` to or from ``client``.

    ``since`` is, in a request, the last exchange in which the server used this client's statistics; in an answer, the
    exchange whose ``START`` or ``NEWS`` the client applied last (0: none); in ``NEWS``, that same number back.
    """

    kind: Kind
    client: int
    number: int
    since: int
    numbers: Tensor

    def encode(self, fingerprint: int) -> bytes:
        """The bytes of this letter under the plan with ``fingerprint``."""
        head = (b"FDGO", VERSION, self.kind, self.client, self.number, self.since, fingerprint)
        body = _HEADER.pack(*head, len(self.numbers)) + self.numbers.numpy().astype("<f8").tobytes()
        return body + _CHECK.pack(zlib.crc32(body))


def decode(received: bytes, fingerprint: int) -> Letter:
    """The letter that ``received`` is; ``Refused`` where it is damaged, of another version or plan, or not finite."""
    must(isinstance(received, bytes), f"a letter is {type(received).__name__}: give bytes")
    must(len(received) >= OVERHEAD, f"damaged: {len(received)} bytes, fewer than a header")
    body, (check,) = received[: -_CHECK.size], _CHECK.unpack(received[-_CHECK.size :])
    must(zlib.crc32(body) == check, "damaged: the checksum is another")
    magic, version, kind, client, number, since, plan, scalars = _HEADER.unpack_from(body)
    must(magic == b"FDGO", f"not a letter of fedgo: it begins with {magic!r}")
    must(version == VERSION, f"version {version}: this is version {VERSION}; install the same fedgo")
    must(kind in list(Kind), f"kind {kind}: there are {[int(each) for each in Kind]}")
    must(
        plan == fingerprint,
        f"another plan ({plan:016x}): this side holds {fingerprint:016x}; give both the same",
    )
    must(
        len(received) == OVERHEAD + 8 * scalars, f"wrong length: {len(received)} bytes for {scalars} numbers"
    )
    numbers = torch.from_numpy(np.frombuffer(body, "<f8", offset=_HEADER.size).astype(np.float64))
    must(bool(numbers.isfinite().all()), "not finite: a number is NaN or infinite")
    return Letter(Kind(kind), client, number, since, numbers)
