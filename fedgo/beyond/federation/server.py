"""The server of Algorithm 1, without a transport: it begins exchanges, accepts answers, and merges what came.

In the order of an exchange::

    server.begin()  # the end of Phase I, or a synchronisation that a client called for
    for me, letter in server.letters().items():
        server.accept(...)  # what client me answers, if it does
    server.merge()  # goes on without who was silent; letters() are the next ones

What the server holds determines its letters, so that they can be sent again; save it before they are: clients refuse a
server from an older file. A client that was silent keeps its data, and gets at its next synchronisation all that it has
missed, or its share of the plan of the day.
"""

import secrets
import zlib
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo import _files
from fedgo._checks import on_cpu, require, require_kind
from fedgo.beyond.federation.model import Course, course
from fedgo.beyond.federation.plan import Plan
from fedgo.beyond.federation.wire import Kind, Letter, checksum, decode, must, number_of, pack, unpack
from fedgo.confidence import Tally
from fedgo.star import Ledger, Message, Star, When

_BOOKED = When(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))  # all at one place
_MOST = 2**31 - 1  # exchanges


class Account(NamedTuple):
    """What the server knows of one client: the exchange that it has ``seen`` the client apply, the last one that it
    was ``offered``, the last one in which its data were ``used``, and the ``checksum`` of that answer; the counts and
    sums (2, K) in that ``offer``, unless it is ŵ₀ or a plan, and those that came ``later``."""

    seen: int
    offered: int
    used: int
    checksum: int
    offer: Tensor
    later: Tensor


class Reply(NamedTuple):
    """What a client has answered, with its ``checksum``: counts and sums ``data`` (2, K), which build on the exchange
    ``since``; 0 for those of Phase I, and of a client that has no ŵ₀ and nothing to say."""

    since: int
    checksum: int
    data: Tensor


class Desk(NamedTuple):
    """All that a server's file holds: what is ``planned`` (with its weights or ŵ₀, empty before they are fitted),
    everybody's counts and sums ``total`` (2, K), an account of each client, the number of the ``federation``, and the
    ``exchange``, with the replies in its ``inbox`` while it is ``open``."""

    planned: Course
    total: Tensor
    accounts: tuple[Account, ...]
    inbox: dict[int, Reply]
    federation: int
    exchange: int
    open: bool


class Server:
    """The server of ``plan``, with its ``ledger`` of all scalars sent so far."""

    @on_cpu
    def __init__(self, plan: Plan) -> None:
        require_kind(isinstance(plan, Plan), "plan", plan, "give a Plan")
        self.plan = plan
        none, nothing = torch.zeros(0), torch.zeros(2, len(plan.arms)).double()
        accounts = (Account(plan.known_exchange, plan.known_exchange, 0, 0, nothing, nothing),) * plan.clients
        planned, drawn = Course(none.long(), 0, 0, none.double()), 1 + secrets.randbits(63)
        self.desk = Desk(planned, nothing, accounts, {}, drawn, plan.known_exchange, False)
        self.ledger = Ledger.blank(1, 1)

    @property
    def number(self) -> int:
        """Of the exchange that is open, or was last."""
        return number_of(self.desk.exchange)

    @property
    def started(self) -> bool:
        """Whether Phase I, which ends with the first exchange, is over."""
        return self.number - self.desk.open > number_of(self.plan.known_exchange)

    @property
    def known(self) -> Tally:
        """Pulls of every arm and sums of their rewards, with a network of residuals, by all clients; (K,) each."""
        return Tally(*self.desk.total)

    @property
    def scalars(self) -> tuple[int, int]:
        """Scalars received and sent, each letter counted once."""
        return int(self.ledger.up), int(self.ledger.down)

    @on_cpu
    def begin(self) -> None:
        """Open an exchange, unless one is open: the end of Phase I, or a synchronisation."""
        if not self.desk.open:
            require(self.number < _MOST, "the exchange", self.number, "begin another federation")
            desk = self.desk._replace(open=True, inbox={})
            self.desk = desk._replace(exchange=_exchange_number(self.number + 1, desk))
            self._charge()

    @on_cpu
    def letters(self) -> dict[int, bytes]:
        """By client, what is to be sent: requests to those who have not answered, or what the last merge gave."""
        return {letter.client: letter.encode(self.plan.fingerprint) for letter in self._letters()}

    def _letters(self) -> list[Letter]:
        desk, nothing = self.desk, torch.zeros(0, dtype=torch.float64)
        letters = []
        for i, account in enumerate(desk.accounts):
            kind, since, numbers = Kind.SYNCHRONISE, account.used, nothing
            if i in desk.inbox if desk.open else account.offered != desk.exchange:
                continue
            if not desk.open and account.used != desk.exchange:
                kind, numbers = Kind.START, desk.planned.weights
            elif not desk.open and self.plan.fitting is None:
                kind, since, numbers = Kind.NEWS, account.seen, pack(account.offer)
            elif not desk.open:
                arms, calls = self.plan.share(i, *desk.planned[:3])
                numbers = torch.cat([arms, torch.tensor([calls])]).double()
                kind, since = Kind.PLAN, account.seen
            letter = Letter(kind, i, desk.exchange, since, numbers, desk.federation, account.checksum)
            letters.append(letter)
        return letters

    @property
    def _fits(self) -> bool:
        """Whether the open exchange is the end of Phase I, after which ŵ₀ is fitted."""
        return self.plan.network is not None and not self.started

    def _charge(self) -> None:
        """Book what ``letters`` are, each to one client."""
        for letter in self._letters():
            Star(1, self.ledger).broadcast(Message(letter, len(letter.numbers)), _BOOKED)

    @on_cpu
    def accept(self, received: bytes, sender: int | None = None) -> bool:
        """Take an answer to the open exchange and return True, or False if the server has it already.

        Args:
            received: The letter.
            sender: The client that the transport says the letter came from, if it says so. A letter that names
                another client is refused.

        Raises:
            Refused: If the letter does not fit; then nothing has changed.
        """
        desk, plan = self.desk, self.plan
        letter = decode(received, plan.fingerprint, desk.federation)
        must(letter.kind == Kind.STATISTICS, f"kind {letter.kind.name}: a server sends it, and gets none")
        must(letter.client < plan.clients, f"unknown client {letter.client}: there are N = {plan.clients}")
        known = sender in (None, letter.client)
        must(known, f"another sender: the letter names client {letter.client}, and client {sender} sent it")
        state = f"{self.number} is {'open' if desk.open else 'closed'}"
        due = desk.open and letter.exchange == desk.exchange
        must(due, f"out of order: exchange {number_of(letter.exchange)}, and {state}")
        if letter.client in desk.inbox:
            return False
        data, size = unpack(letter.numbers, len(plan.arms)), len(letter.numbers)
        account, built = desk.accounts[letter.client], f"builds on exchange {number_of(letter.since)}"
        reason = f"out of order: client {letter.client} {built}; it or the server is from an older file"
        must(letter.since in (plan.known_exchange, account.seen, account.offered), reason)
        if self._fits:
            pulls, share = int(data[0].sum()), len(plan.first_share(letter.client)[0])
            must(pulls == share, f"wrong shape: {pulls} pulls of Phase I, not {share}")
        else:
            must(letter.since > 0 or size == 0, f"wrong shape: {size} numbers from a client without ŵ₀")
        reply = Reply(letter.since, checksum(received), data)
        self.desk = desk._replace(inbox=desk.inbox | {letter.client: reply})
        Star(1, self.ledger).collect(Message(letter, size), _BOOKED)
        return True

    @on_cpu
    def merge(self) -> None:
        """Close the exchange with the answers that came; a ``ValueError`` if there are none in Phase I."""
        desk = self.desk
        require(desk.open, "the exchange", "closed", "begin one")
        heard = self.started or len(desk.inbox) > 0
        require(heard, "the answers", 0, "no client answered: send the letters again")
        inbox = {i: desk.inbox[i] for i in sorted(desk.inbox)}  # one order of sums, whatever comes first
        nothing = torch.zeros_like(desk.total)
        news = sum((reply.data for reply in inbox.values() if reply.since > 0), nothing)
        planned, fits, total = desk.planned, self._fits, desk.total + news
        if fits:  # lines 1–2: Phase I is over, and every client is sent ŵ₀
            everything = sum((reply.data for reply in inbox.values()), nothing)
            planned = planned._replace(weights=self.plan.oracle(everything))
        elif self.plan.fitting is not None and inbox:
            planned = course(self.plan, planned.weights, total)
        desk = desk._replace(planned=planned, total=total, inbox={}, open=False)
        named, accounts = _exchange_number(self.number, desk), list(desk.accounts)
        for i, account in enumerate(accounts):  # lines 8–10: what of the sums every client has not got
            later, reply = account.later + news, inbox.get(i)
            if fits:
                accounts[i] = account._replace(offered=named)
            elif reply is None:
                accounts[i] = account._replace(later=later)
            elif reply.since == 0:  # it has no ŵ₀ yet, or has lost all that it knew
                accounts[i] = Account(0, named, account.used, account.checksum, nothing, total)
            else:  # all where it has lost all that it knew; with the last offer where it has not got that
                offers = {account.seen: account.offer + later, account.offered: later}
                offer = offers.get(reply.since, total)
                accounts[i] = Account(reply.since, named, named, reply.checksum, offer, nothing)
        self.desk = desk._replace(exchange=named, accounts=tuple(accounts))
        self._charge()

    # the file

    def save(self, path: str | Path) -> None:
        """Write all that the server knows to one file, whole or not at all."""
        _files.keep(path, "the server", self.plan.fingerprint, (self.desk, self.ledger))

    @classmethod
    @on_cpu
    def load(cls, path: str | Path, plan: Plan) -> "Server":
        """The server of ``plan`` that ``save`` wrote; a ``ValueError`` that names the file where it is another's."""
        server = cls(plan)
        kinds = [Account, Course, Desk, Ledger, Reply]
        server.desk, server.ledger = _files.kept(path, "the server", plan.fingerprint, kinds)
        return server


def _exchange_number(number: int, desk: Desk) -> int:
    """The exchange ``number``, with a checksum of what the server knows and of all exchanges before."""
    known = torch.cat([desk.planned.weights, desk.total.flatten()]).numpy().tobytes()
    return number << 32 | zlib.crc32(known, desk.exchange & 0xFFFFFFFF)
