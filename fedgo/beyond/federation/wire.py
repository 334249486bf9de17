"""The letters, which are the messages between server and clients, as bytes: a header, numbers and a CRC-32 of both.

The fields of a letter, in their order and with their number of bytes, are:

- 4: ``FDGO``; 2: the version of this layout; 2: the kind of letter;
- 4: the client that the letter goes to or comes from; 8: the fingerprint of the plan that both sides hold;
- 8: the federation, a number that its server drew when it began, so that letters of an earlier federation are refused;
- 8: the start of the client, a number that the client drew when it began without a file (see ``Letter.start``);
- 4 and 4: the number of the letter's exchange, from 1 on, and a checksum of what the server knew when it opened or
  closed the exchange, by which a server that was restored from an older file is recognised;
- 4 and 4: the number and the checksum of the exchange on which the letter builds (see ``Letter.since``);
- 4: the checksum of the client's answer that the server used last, or 0 (see ``Letter.used``);
- 4: the count of numbers that follow;
- 8 each: the numbers, as float64. They are the scalars of Section 3 of the paper, and only they are charged;
- 4: the CRC-32 of everything before it.

All numbers are little-endian. A request of the server has no numbers of 8 bytes. Those of another letter are ŵ₀ (the
parameter of the network f_x that is fitted in Phase I), a client's share of a plan, or counts and sums of K arms, (2,
K): the number of pulls of every arm x, and the sum of its residuals y − f_x(ŵ₀) or of its rewards y (`pack`). If both
sides know the counts, the sums alone are sent.

The checksums detect damage and older files, but no forgery: a stranger who can send letters can report rewards that
nobody received, or shut a client out. The transport therefore has to authenticate the senders.
"""

import struct
import zlib
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedgo._checks import MOST, number

VERSION = 3
_HEADER = struct.Struct("<4sHHIQQQIIIIII")
_CHECK = struct.Struct("<I")
OVERHEAD = _HEADER.size + _CHECK.size  # the bytes of a letter without its numbers
HUGE = 1e100  # the largest size of a reward, so that no sum of rewards overflows float64


class Refused(ValueError):
    """The error with which a client or the server refuses a letter; its state stays as it was.

    It is also raised for a client's file whose numbers allow no model.
    """


def must(condition: bool, reason: str) -> None:
    """Raise `Refused` with ``reason`` unless ``condition`` holds."""
    if not condition:
        raise Refused(reason)


def checked_reward(received: Any) -> float:
    """Return ``received`` as a ``float`` if it is a number of size below 10¹⁰⁰, so that no sum of rewards overflows."""
    return number("reward", received, f"give a number of size below {HUGE:g}", above=-HUGE, below=HUGE)


class Kind(IntEnum):
    """The kinds of letters.

    ``SYNCHRONISE`` is a request of the server. A client answers it by ``STATISTICS``, the counts and sums of all its
    pulls that the server has not used, or by ``SUMS``, the sums alone if both sides know the counts. A client without
    ŵ₀, after others have ended Phase I, answers by counts and sums of 0. ``START`` carries ŵ₀ from the server, ``NEWS``
    the counts and sums that the client has not received, and ``PLAN`` the client's arms and the number of its pulls
    after which it asks for an exchange. These three need no answer.
    """

    # the numbers 1 to 4 belonged to earlier versions
    SYNCHRONISE, STATISTICS = 5, 6
    START, NEWS = 7, 8
    PLAN = 9
    SUMS = 10

    def __reduce_ex__(self, protocol: object) -> tuple[type["Kind"], tuple[int]]:
        """Return how a file names a member: Python 3.11.2 would do so by `getattr`, which no file may call."""
        return Kind, (self.value,)


class Exchange(NamedTuple):
    """The name of an exchange, in which the server asks its clients for data and answers them by letters.

    Args:
        number: The number of the exchange, from 1 on; 0 in the constant ``NEVER``, which stands for no exchange.
        checksum: A CRC-32 of what the server knew when it opened or closed the exchange, and of the checksum before. If
            the plan has a fitting, exchange 1 counts as closed from the start, with the checksum 0.
    """

    number: int = 0
    checksum: int = 0


NEVER = Exchange()


class Letter(NamedTuple):
    """A message between the server and one client.

    By the fields ``since``, ``used`` and ``start`` each side recognises what the other side knows. The *last used
    answer* is the last of the client's answers that the server used. With the paper's network, answers that the client
    gave before it had ŵ₀ do not count as such.

    Args:
        kind: The kind of the letter.
        client: The number of the client that the letter goes to or comes from.
        exchange: The exchange to which the letter belongs.
        since: In an answer, the exchange whose ``START``, ``NEWS`` or ``PLAN`` the client applied last; before there is
            one, the plan's ``known_exchange``. In ``NEWS`` and ``PLAN``, the ``since`` of the last used answer. In
            ``SYNCHRONISE`` and ``START``, the exchange in which the server used the last used answer, or ``NEVER``.
        numbers: The numbers that the letter carries, (n,) float64.
        federation: The number that the server drew when it began.
        used: In a letter of the server, the checksum of the last used answer, or 0 if there is none. In an answer, 0.
        start: In an answer, the number that the client drew when it began without a file. In a letter of the server,
            the ``start`` of the last used answer, or 0 if there is none.
    """

    kind: Kind
    client: int
    exchange: Exchange
    since: Exchange
    numbers: Tensor
    federation: int = 0
    used: int = 0
    start: int = 0

    def encode(self, fingerprint: int) -> bytes:
        """Return this letter as bytes, with the ``fingerprint`` of the plan in the header."""
        first = (b"FDGO", VERSION, self.kind, self.client, fingerprint, self.federation, self.start)
        head = _HEADER.pack(*first, *self.exchange, *self.since, self.used, len(self.numbers))
        body = head + self.numbers.numpy().astype("<f8").tobytes()
        return body + _CHECK.pack(zlib.crc32(body))


def checksum(letter: bytes) -> int:
    """Return the checksum of an encoded ``letter``, or 0 of no bytes."""
    return int.from_bytes(letter[-_CHECK.size :], "little")


def decode(received: bytes, fingerprint: int, federation: int = 0) -> Letter:
    """Return the letter that the bytes ``received`` encode.

    Args:
        received: The bytes of the letter.
        fingerprint: The fingerprint of the plan, a number of 64 bits, which the letter has to have.
        federation: The number of the federation, which the letter has to have; 0 accepts any.

    Raises:
        Refused: ``received`` is not a ``bytes`` object or is damaged; its version, fingerprint, federation, kind or
            length is not an expected one; or one of its numbers is not finite or beyond 2⁵³·10¹⁰⁰.
    """
    must(isinstance(received, bytes), f"a letter is {type(received).__name__}: give bytes")
    body, version = received[: -_CHECK.size], int.from_bytes(received[4:6], "little")
    must(received[:4] == b"FDGO", f"not a letter of fedgo: it begins with {received[:4]!r}")
    must(version == VERSION, f"version {version}: this is version {VERSION}; install the same fedgo")
    must(len(received) >= OVERHEAD, f"damaged: {len(received)} bytes, fewer than a header")
    must(zlib.crc32(body) == checksum(received), "damaged: the checksum is another")
    _, _, kind, client, plan, drawn, start, *exchanges, used, scalars = _HEADER.unpack_from(body)
    must(kind in list(Kind), f"kind {kind}: there are {[int(each) for each in Kind]}")
    must(plan == fingerprint, f"another plan ({plan:016x}) than {fingerprint:016x}: give both sides the same")
    other = f"another federation ({drawn:016x}) than {federation:016x}: begin all sides anew, or none"
    must(federation in (0, drawn), other)
    must(len(received) == OVERHEAD + 8 * scalars, f"wrong length: {len(received)} bytes, {scalars} numbers")
    numbers = torch.from_numpy(np.frombuffer(body, "<f8", offset=_HEADER.size).astype(np.float64))
    must(bool(numbers.isfinite().all()), "not finite: a number is NaN or infinite")
    must(bool((numbers.abs() <= MOST * HUGE).all()), "out of range: rewards are of order 1")
    exchange, since = Exchange(*exchanges[:2]), Exchange(*exchanges[2:])
    return Letter(Kind(kind), client, exchange, since, numbers, drawn, used, start)


def pack(data: Tensor) -> Tensor:
    """Return the 2 min(k, K) numbers that are sent for the counts and sums ``data`` (2, K) of k pulls.

    If k < K, they are the numbers of k arms in ascending order, and then k sums: an arm occurs once for each of its
    pulls, with its sum at the first of them and 0 at the others. If k ≥ K, they are the K counts and then the K sums.
    """
    counts, sums = data
    if counts.sum() >= len(counts):
        return data.flatten()
    arm = each_pull(counts)
    first = torch.cat([torch.ones(1, dtype=torch.bool), arm[1:] != arm[:-1]])[: len(arm)]
    return torch.cat([arm.double(), torch.where(first, sums[arm], 0.0)])


def unpack(numbers: Tensor, arms: int) -> Tensor:
    """Return the counts and sums (2, K) from which `pack` made ``numbers``, or refuse numbers that no pulls give."""
    size = len(numbers)
    fits = size % 2 == 0 and size <= 2 * arms
    must(fits, f"wrong shape: {size} numbers, not 2 min(k, K) with K = {arms}")
    data = numbers.view(2, size // 2)
    if size < 2 * arms:
        pulled, sums = data
        exists = (pulled >= 0) & (pulled < arms) & (pulled == pulled.floor())
        must(bool(exists.all()), f"no statistics: there are {arms} arms")
        blank = torch.zeros(2, arms, dtype=torch.float64)
        data = blank.index_add(1, pulled.long(), torch.stack([torch.ones_like(sums), sums]))
    else:
        counts = data[0]
        must(float(counts.sum()) <= MOST, "no statistics: more pulls than can be counted")
        must(bool(((counts >= 0) & (counts == counts.floor())).all()), "no statistics: a count is not whole")
    # a reward is within ±HUGE, and so is the prior mean that is subtracted from it
    fits = bool((data[1].abs() <= 2 * HUGE * data[0]).all())
    must(fits, f"no statistics: a sum is beyond {2 * HUGE:g} for each pull, or of an arm without pulls")
    return data


def without_counts(letter: Letter, counts: Tensor) -> Letter:
    """Return ``letter``, or one of kind ``SUMS`` if its receiver expects its ``counts`` (K,), which are not all 0."""
    if letter.kind != Kind.STATISTICS or not counts.any():
        return letter
    own, sums = unpack(letter.numbers, len(counts))
    return letter._replace(kind=Kind.SUMS, numbers=sums[counts > 0]) if torch.equal(own, counts) else letter


def with_counts(letter: Letter, counts: Tensor) -> Letter:
    """Return the answer with ``counts`` (K,) and sums from which `without_counts` made ``letter``."""
    if letter.kind != Kind.SUMS:
        return letter
    touched, size = counts > 0, len(letter.numbers)
    must(0 < size == int(touched.sum()), f"wrong shape: {size} sums of {int(touched.sum())} arms")
    sums = torch.zeros_like(counts).masked_scatter(touched, letter.numbers)
    return letter._replace(kind=Kind.STATISTICS, numbers=pack(torch.stack([counts, sums])))


def each_pull(counts: Tensor) -> Tensor:
    """Return the arm of each pull in ascending order, (k,) int64, given the number of pulls of each arm."""
    return torch.arange(len(counts)).repeat_interleave(counts.long())
