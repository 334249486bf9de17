"""Letters as bytes: 36 bytes of header, the numbers as little-endian float64, a CRC-32 of both.

In their order, by their bytes:

- 4: ``FDGO``; 2: the version of this layout; 2: the kind of letter;
- 4: the client that it goes to or comes from; 4: the exchange that it belongs to, numbered from 1;
- 4: what it builds on (see ``Letter.since``); 8: the fingerprint of the plan that both sides hold;
- 8: how many numbers follow; 8 each: the numbers, the scalars of Section 3, and nothing else is charged;
- 4: the CRC-32 of all that stands before it.

The numbers are ŵ₀, or counts and sums: how often every arm was pulled, and the sum of its residuals y − f_x(ŵ₀) or of
its rewards (`pack`). The checksum finds damage, not forgery: who may speak at all is for the transport to say.
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
    """What a letter is: ``REPORT`` and ``SYNCHRONISE`` ask, ``EXPLORED`` and ``STATISTICS`` answer them; ``START`` and
    ``NEWS`` want no answer."""

    # 1 and 2 were dense letters; at the end of Phase I, a request, and counts and sums of rewards
    REPORT, EXPLORED = 3, 4
    SYNCHRONISE, STATISTICS = 5, 6  # a request, and the counts and sums since the last one
    START, NEWS = 7, 8  # ŵ₀, and the counts and sums that this client has not got; no answer


class Letter(NamedTuple):
    """A letter of ``kind`` in exchange ``number``, to or from ``client``, with ``numbers`` (n,) float64.

    ``since`` is, in a request, the last exchange in which the client's answer was used (0: none); in an answer, the
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
    other = f"another plan ({plan:016x}): this side holds {fingerprint:016x}; give both the same"
    must(plan == fingerprint, other)
    fits = len(received) == OVERHEAD + 8 * scalars
    must(fits, f"wrong length: {len(received)} bytes for {scalars} numbers")
    numbers = torch.from_numpy(np.frombuffer(body, "<f8", offset=_HEADER.size).astype(np.float64))
    must(bool(numbers.isfinite().all()), "not finite: a number is NaN or infinite")
    return Letter(Kind(kind), client, number, since, numbers)


def pack(data: Tensor) -> Tensor:
    """The numbers that are sent for the counts and sums ``data`` (2, K): 2 min(k, K) for k pulls of K arms.

    With k < K they are k arms and k sums: an arm stands there once for each pull, its sum at the first.
    """
    counts, sums = data
    if counts.sum() >= len(counts):
        return data.flatten()
    arm = each_pull(counts)
    first = torch.cat([torch.ones(1, dtype=torch.bool), arm[1:] != arm[:-1]])[: len(arm)]
    return torch.cat([arm.double(), torch.where(first, sums[arm], 0.0)])


def unpack(numbers: Tensor, arms: int) -> Tensor:
    """The counts and sums (2, K) on K = ``arms`` that ``pack`` made ``numbers`` of, bit by bit; else ``Refused``."""
    size = len(numbers)
    even = size % 2 == 0 and size <= 2 * arms
    must(even, f"wrong shape: {size} numbers, not 2 min(k, K) with K = {arms}")
    numbers = numbers.view(2, size // 2)
    first, sums = numbers
    if size == 2 * arms:
        must(bool(((first >= 0) & (first == first.floor())).all()), "no statistics: a count is not whole")
        must(bool((sums[first == 0] == 0).all()), "no statistics: an arm without pulls has a sum")
        return numbers
    known = (first >= 0) & (first < arms) & (first == first.floor())
    must(bool(known.all()), f"no statistics: there are {arms} arms")
    blank = torch.zeros(2, arms, dtype=torch.float64)
    return blank.index_add(1, first.long(), torch.stack([torch.ones_like(sums), sums]))


def each_pull(counts: Tensor) -> Tensor:
    """The arms (k,) of k pulls of which ``counts`` (K,) says how many are of each, in the order of the arms."""
    return torch.arange(len(counts)).repeat_interleave(counts.long())
