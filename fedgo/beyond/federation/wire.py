"""Letters as bytes: 60 bytes of header, the numbers as little-endian float64, a CRC-32 of both.

In their order, by their bytes:

- 4: ``FDGO``; 2: the version of this layout; 2: the kind of letter;
- 2: the payload, 0 for numbers, 1 for bytes, of which there are none yet; 2: the round within its exchange, yet 0;
- 4: the client that it goes to or comes from; 8: the fingerprint of the plan that both sides hold;
- 8: the federation, a number that its server drew when it began, so that yesterday's letters are refused;
- 8: the exchange that it belongs to, and 8: what it builds on (see ``Letter.since``); of each the upper 4 are its
  number from 1 on, and the lower 4 a checksum of what the server knew, which an older file of a server gets wrong;
- 4: the checksum of the client's answer that the server used last;
- 8: how many numbers follow; 8 each: the numbers, the scalars of Section 3, and nothing else is charged;
- 4: the CRC-32 of all that stands before it.

The numbers are ŵ₀, a client's share of a plan, or counts and sums: how often every arm was pulled, and the sum of its
residuals y − f_x(ŵ₀) or of its rewards (`pack`). Checksums find damage and older files, not forgery: a stranger who may
speak can have rewards believed that nobody earned, or shut a client out, so the transport has to say who may speak.
"""

import struct
import zlib
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedgo._checks import MOST

VERSION = 2
_HEADER = struct.Struct("<4sHHHHIQQQQIQ")
_CHECK = struct.Struct("<I")
OVERHEAD = _HEADER.size + _CHECK.size  # bytes of a letter without its numbers
HUGE = 1e100  # of a reward, so that no sum of them leaves float64


class Refused(ValueError):
    """A letter that is not what it should be; whoever refuses it is as before."""


def must(condition: bool, reason: str) -> None:
    """Raise ``Refused`` with ``reason`` unless ``condition`` holds."""
    if not condition:
        raise Refused(reason)


class Kind(IntEnum):
    """What a letter is: ``SYNCHRONISE`` asks, ``STATISTICS`` answer, and the others want no answer."""

    # 1 to 4 were of earlier versions
    SYNCHRONISE, STATISTICS = 5, 6  # a request, and the counts and sums since the last one
    START, NEWS = 7, 8  # ŵ₀, and the counts and sums that this client has not got; no answer
    PLAN = 9  # this client's arms in their order, and after how many of its own pulls it calls; no answer


class Letter(NamedTuple):
    """A letter of ``kind`` in an ``exchange``, to or from ``client``, with ``numbers`` (n,) float64.

    ``since`` is, in a request, the last exchange in which the client's answer was used (0: none), and ``used`` that
    answer's checksum; in an answer, the exchange whose ``START``, ``NEWS`` or ``PLAN`` the client applied last (0:
    none); in ``NEWS`` and ``PLAN``, that same exchange back, and ``used`` the checksum of the answer.
    """

    kind: Kind
    client: int
    exchange: int
    since: int
    numbers: Tensor
    federation: int = 0
    used: int = 0

    def encode(self, fingerprint: int) -> bytes:
        """The bytes of this letter under the plan with ``fingerprint``."""
        head = _HEADER.pack(
            *(b"FDGO", VERSION, self.kind, 0, 0, self.client, fingerprint, self.federation),
            *(self.exchange, self.since, self.used, len(self.numbers)),
        )
        body = head + self.numbers.numpy().astype("<f8").tobytes()
        return body + _CHECK.pack(zlib.crc32(body))


def number_of(exchange: int) -> int:
    """The number of an ``exchange``, from 1 on."""
    return exchange >> 32


def checksum(letter: bytes) -> int:
    """The one at the end of a ``letter``; 0 where there is none."""
    return int.from_bytes(letter[-_CHECK.size :], "little")


def decode(received: bytes, fingerprint: int, federation: int = 0) -> Letter:
    """The letter that ``received`` is; ``Refused`` where it is damaged, not finite, or of another version, plan or
    ``federation`` (0: any)."""
    must(isinstance(received, bytes), f"a letter is {type(received).__name__}: give bytes")
    body, version = received[: -_CHECK.size], int.from_bytes(received[4:6], "little")
    must(received[:4] == b"FDGO", f"not a letter of fedgo: it begins with {received[:4]!r}")
    must(version == VERSION, f"version {version}: this is version {VERSION}; install the same fedgo")
    must(len(received) >= OVERHEAD, f"damaged: {len(received)} bytes, fewer than a header")
    must(zlib.crc32(body) == checksum(received), "damaged: the checksum is another")
    _, _, kind, payload, turn, client, plan, drawn, *rest = _HEADER.unpack_from(body)
    must(kind in list(Kind), f"kind {kind}: there are {[int(each) for each in Kind]}")
    must(
        (payload, turn) == (0, 0), f"payload {payload}, round {turn}: this fedgo knows numbers and one round"
    )
    other = f"another plan ({plan:016x}): this side holds {fingerprint:016x}; give both the same"
    must(plan == fingerprint, other)
    other = f"another federation ({drawn:016x}): this side is in {federation:016x}; begin all of it anew, or nothing"
    must(federation in (0, drawn), other)
    exchange, since, used, scalars = rest
    fits = len(received) == OVERHEAD + 8 * scalars
    must(fits, f"wrong length: {len(received)} bytes for {scalars} numbers")
    numbers = torch.from_numpy(np.frombuffer(body, "<f8", offset=_HEADER.size).astype(np.float64))
    must(bool(numbers.isfinite().all()), "not finite: a number is NaN or infinite")
    must(bool((numbers.abs() <= MOST * HUGE).all()), "out of range: rewards are of order 1")
    return Letter(Kind(kind), client, exchange, since, numbers, drawn, used)


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
    """Return the counts and sums (2, K) on K = ``arms`` that ``pack`` made ``numbers`` of, bit by bit.

    Raises:
        Refused: If ``pack`` cannot have made these ``numbers``, or if a sum is larger than its pulls allow.
    """
    size = len(numbers)
    even = size % 2 == 0 and size <= 2 * arms
    must(even, f"wrong shape: {size} numbers, not 2 min(k, K) with K = {arms}")
    numbers = numbers.view(2, size // 2)
    first, sums = numbers
    must(float(first.sum()) <= MOST, "no statistics: more pulls than can be counted")
    if size == 2 * arms:
        must(bool(((first >= 0) & (first == first.floor())).all()), "no statistics: a count is not whole")
        must(bool((sums[first == 0] == 0).all()), "no statistics: an arm without pulls has a sum")
        most = 2 * HUGE * first  # a reward is within ±HUGE, and so is the prior mean that is taken from it
        must(bool((sums.abs() <= most).all()), f"no statistics: a sum is beyond {2 * HUGE:g} for each pull")
        return numbers
    known = (first >= 0) & (first < arms) & (first == first.floor())
    must(bool(known.all()), f"no statistics: there are {arms} arms")
    must(bool((sums.abs() <= 2 * HUGE).all()), f"no statistics: a reward is beyond {2 * HUGE:g}")
    blank = torch.zeros(2, arms, dtype=torch.float64)
    return blank.index_add(1, first.long(), torch.stack([torch.ones_like(sums), sums]))


def each_pull(counts: Tensor) -> Tensor:
    """The arms (k,) of k pulls of which ``counts`` (K,) says how many are of each, in the order of the arms."""
    return torch.arange(len(counts)).repeat_interleave(counts.long())
