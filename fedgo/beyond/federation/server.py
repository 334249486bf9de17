"""The server of a federation, without a transport: it begins exchanges, accepts answers and merges them.

The methods are called in this order::

    server.begin()  # the end of Phase I, or a synchronisation that a client called for
    for me, letter in server.letters().items():
        server.accept(...)  # what client me answers, if it does
    server.merge()  # goes on without the clients that were silent; letters() are then the next ones

Letters are the messages between the server and its clients. The state of the server determines its letters, so that
they can be sent again. Save the server before its letters are sent, because clients refuse a server that was restored
from an older file. A client that has not answered keeps its data. At its next synchronisation it receives all that it
has missed, or its share of the current plan.
"""

import secrets
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import on_cpu, require, require_kind
from fedgo.beyond.federation import files, wire
from fedgo.beyond.federation.model import Course, course
from fedgo.beyond.federation.plan import MOST_PULLS, Plan
from fedgo.beyond.federation.states import Call, ServerState, Step
from fedgo.beyond.federation.wire import NEVER, Exchange, Kind, Letter, Refused, must
from fedgo.confidence import Tally
from fedgo.star import Ledger, Message, Star, When

# all scalars are booked at the same place of the ledger
_BOOKED = When(*torch.zeros(2, 1, dtype=torch.int64, device="cpu"))
_OLDER = "it or the server is from an older file"


class Account(NamedTuple):
    """What the server knows of one client. Counts and sums are (2, K) float64 for K arms.

    Args:
        own: The counts and sums in all answers of the client that were used, except that of Phase I with the paper's
            network.
        seen: The last exchange that the client has applied, as far as the server knows; at first `Plan.known_exchange`.
        offered: The last exchange whose ``START``, ``NEWS`` or ``PLAN`` the client was offered; at first
            `Plan.known_exchange`.
        used: The last exchange in which an answer of the client was used, or ``NEVER``. With the paper's network,
            answers that the client gave before it had ŵ₀ do not count.
        offer: The counts and sums in the last ``NEWS`` that the client was offered; 0 if ŵ₀ was offered since. With a
            fitting they are kept too, although a ``PLAN`` is sent.
        later: The counts and sums of all clients that came after the last offer; after ŵ₀, those of all pulls after
            Phase I.
        checksum: The checksum of the client's answer in the exchange ``used``, or 0.
        start: The number that the client drew when it began without a file, as in that answer, or 0.
        former: The numbers of the client's earlier starts, whose answers were used and whose files are lost. The 0 that
            comes first stands for none.
    """

    own: Tensor
    seen: Exchange
    offered: Exchange
    used: Exchange
    offer: Tensor
    later: Tensor
    checksum: int = 0
    start: int = 0
    former: tuple[int, ...] = ()


class Desk(NamedTuple):
    """The state of a server; its file holds this state and the ledger of the scalars sent.

    Args:
        planned: The plan of the epoch, with the weights of a network, or ŵ₀ (`Course`). With the paper's network its
            arms remain those of Phase I.
        total: The counts and the sums of rewards in all answers that were used, (2, K); with the paper's network, those
            of the pulls after Phase I, with residuals y − f_x(ŵ₀) in place of rewards.
        accounts: What the server knows of each client, in the order of their numbers.
        inbox: The answers to the open exchange, with their counts, by client.
        federation: The number that the server drew at random when it began.
        exchange: The exchange that is open, or the last one; at first `Plan.known_exchange`.
        open: Whether an exchange is open.
    """

    planned: Course
    total: Tensor
    accounts: tuple[Account, ...]
    inbox: dict[int, Letter]
    federation: int
    exchange: Exchange
    open: bool


class Server:
    """The server of the federation of ``plan``: it opens exchanges, takes the clients' answers and merges them.

    Its ``desk`` is its state (`Desk`). Its ``ledger`` counts all scalars received (``up``) and sent (``down``) so far,
    (1, 1) int64 each. A letter that is sent again is not counted again.

    Args:
        plan: The public plan of the federation.

    Raises:
        TypeError: ``plan`` is not a `Plan`.
    """

    @on_cpu
    def __init__(self, plan: Plan) -> None:
        require_kind(isinstance(plan, Plan), "plan", plan, "give a Plan")
        self.plan = plan
        first, nothing = plan.known_exchange, torch.zeros(2, len(plan.arms)).double()
        accounts = (Account(nothing, first, first, NEVER, nothing, nothing),) * plan.clients
        planned = Course(plan.first, plan.length, 0, nothing[0, :0])
        self.desk = Desk(planned, nothing, accounts, {}, 1 + secrets.randbits(63), first, False)
        self.ledger = Ledger.blank(1, 1)

    @property
    def state(self) -> ServerState:
        """The state of this server, by which it looks up in the table `SERVER` what to do with an answer or a call."""
        if self.plan.network is not None and not self.started:
            return ServerState.FITTING if self.desk.open else ServerState.EXPLORING
        return ServerState.OPEN if self.desk.open else ServerState.CLOSED

    @property
    def number(self) -> int:
        """The number of the exchange that is open, or of the last one; at first 0, or 1 with a fitting."""
        return self.desk.exchange.number

    @property
    def started(self) -> bool:
        """Whether Phase I is over, which ends when the first exchange of letters is closed (`merge`)."""
        return self.number - self.desk.open > self.plan.known_exchange.number

    @property
    def known(self) -> Tally:
        """The counts of the pulls of each arm in all answers that were used, and the sums of their rewards, (K,) each.

        With the paper's network they are those of the pulls after Phase I, with residuals in place of rewards.
        """
        return Tally(*self.desk.total)

    @property
    def scalars(self) -> tuple[int, int]:
        """The number of scalars received from all clients, and the number of scalars sent to them."""
        return int(self.ledger.up), int(self.ledger.down)

    def begin(self) -> None:
        """Open an exchange, which is the end of Phase I or a synchronisation; do nothing if one is open.

        Raises:
            ValueError: The number of the exchange would exceed 2³¹ − 1.
        """
        step = SERVER.get((self.state, Call.BEGIN))
        if step is not None:
            self.desk = step.handler(self)
            self._charge()

    def _open(self) -> Desk:
        """Open an exchange; the letters are requests to all clients."""
        require(self.number < 2**31 - 1, "the exchange", self.number, "begin another federation")
        return _named(self.number + 1, self.desk._replace(open=True, inbox={}))

    def letters(self) -> dict[int, bytes]:
        """Return the letters that are due, as bytes, by the number of the client that each goes to.

        While an exchange is open, they are requests to the clients that have not answered. Otherwise they contain what
        the last `merge` made: at the end of Phase I ŵ₀ for all clients; later, for each client that answered, the data
        that are new to it or its share of the plan, or ŵ₀ if it answered without. If no client answered, there are
        none. Before the first exchange there is a letter without numbers for each client, which ignores it.
        """
        return {letter.client: letter.encode(self.plan.fingerprint) for letter in self._letters()}

    @on_cpu
    def _letters(self) -> list[Letter]:
        """Return the letters that are due, in the order of the clients' numbers and before they are encoded."""
        desk = self.desk
        due = [client for client, account in enumerate(desk.accounts) if account.offered == desk.exchange]
        if desk.open:
            due = [client for client in range(self.plan.clients) if client not in desk.inbox]
        return [self._letter(client) for client in due]

    def _letter(self, client: int) -> Letter:
        """Return the letter that is due to ``client``: a request, ŵ₀, its share of the plan, or what is new to it."""
        desk, account = self.desk, self.desk.accounts[client]
        if desk.open:
            kind, since, numbers = Kind.SYNCHRONISE, account.used, torch.zeros(0).double()
        elif account.used != desk.exchange:
            kind, since, numbers = Kind.START, account.used, desk.planned.weights
        elif self.plan.fitting is None:
            kind, since, numbers = Kind.NEWS, account.seen, wire.pack(account.offer)
        else:
            arms, calls = self.plan.share(client, desk.planned.arms, desk.planned.length, desk.planned.turn)
            kind, since, numbers = Kind.PLAN, account.seen, torch.cat([arms, torch.tensor([calls])]).double()
        letter = Letter(kind, client, desk.exchange, since, numbers, desk.federation)
        return letter._replace(used=account.checksum, start=account.start)

    def _charge(self) -> None:
        """Add the number of scalars in all letters that are due to the ledger, as sent to the clients."""
        for letter in self._letters():
            Star(1, self.ledger).broadcast(Message(letter, len(letter.numbers)), _BOOKED)

    @on_cpu
    def accept(self, received: bytes, sender: int | None = None) -> bool:
        """Take an answer to the open exchange, and return True, or False if the server has one of this client already.

        Args:
            received: The letter, as bytes.
            sender: The number of the client that the transport says the letter came from, or None if it does not say
                so.

        Raises:
            Refused: The letter is none that `decode` accepts; its client is unknown or not the ``sender``; it does not
                answer the open exchange; its client has begun anew since, or it or the server was restored from an
                older file; or its numbers are no counts and sums, or those of more pulls than there can be. Then
                nothing has changed.
        """
        sent = wire.decode(received, self.plan.fingerprint, self.desk.federation)
        letter = wire.with_counts(sent, self.plan.foretold(sent))
        self._check(letter, sender)
        if letter.client in self.desk.inbox:
            return False
        self.desk = self.desk._replace(inbox=self.desk.inbox | {letter.client: letter})
        Star(1, self.ledger).collect(Message(letter, len(sent.numbers)), _BOOKED)
        return True

    def _check(self, letter: Letter, sender: int | None = None) -> None:
        """Refuse ``letter`` unless it answers the open exchange, and comes from ``sender`` if that is known."""
        plan, me, number = self.plan, f"client {letter.client}", letter.exchange.number
        must(letter.client < plan.clients, f"unknown {me}: there are N = {plan.clients}")
        must(sender in (None, letter.client), f"another sender: the letter names {me}, and {sender} sent it")
        step, account = SERVER.get((self.state, letter.kind)), self.desk.accounts[letter.client]
        if step is None or letter.exchange != self.desk.exchange:
            of = f"{letter.kind.name} of exchange {number}"
            raise Refused(f"out of order: {of}, and exchange {self.number} is {self.state}")
        must(letter.start not in account.former, f"out of order: {me} has begun anew since; {_OLDER}")
        known = (plan.known_exchange, account.seen, account.offered)
        follows = letter.since in known or letter.start != account.start
        must(follows, f"out of order: {me} builds on exchange {letter.since.number}; {_OLDER}")
        step.handler(self, letter, int(wire.unpack(letter.numbers, len(plan.arms))[0].sum()))

    def _require_phase_one(self, letter: Letter, pulls: int) -> None:
        """Keep an answer that carries as many pulls as its client makes in Phase I."""
        share, _ = self.plan.first_share(letter.client)
        must(pulls == len(share), f"wrong shape: {pulls} pulls of Phase I, not {len(share)}")

    def _require_due(self, letter: Letter, pulls: int) -> None:
        """Keep an answer that carries no more pulls than there can be; a second one of its client changes nothing."""
        account, me = self.desk.accounts[letter.client], f"client {letter.client}"
        must(letter.since != NEVER or pulls == 0, f"wrong shape: {pulls} pulls by {me}, which has no ŵ₀")
        due = min(self.plan.due, MOST_PULLS - int(account.own[0].sum()))
        must(pulls <= due, f"too many pulls: {me} claims {pulls}, and at most {due} are due")

    @on_cpu
    def merge(self) -> None:
        """Close the open exchange, merge the answers that have come, and make the letters that follow.

        If it raises an error, the state of the server has not changed. If a fit of the surrogate fails, a
        ``UserWarning`` says why, and what is planned instead.

        Raises:
            ImportError: A library that the fit of the surrogate needs is missing.
            ValueError: No exchange is open; no client has answered in the first exchange, which ends Phase I; or the
                oracle (Algorithm 2) finds no ŵ₀ then.
        """
        step, inbox = SERVER.get((self.state, Call.MERGE)), self.desk.inbox
        if step is None:
            raise ValueError(f"the exchange is {self.state}: begin one")
        heard = self.started or len(inbox) > 0
        require(heard, "the answers", 0, "no client answered: send the letters again")
        # the sums are added in the order of the clients, whichever answer came first
        data = {client: wire.unpack(inbox[client].numbers, len(self.plan.arms)) for client in sorted(inbox)}
        self.desk = step.handler(self, data, sum(data.values(), torch.zeros_like(self.desk.total)))
        self._charge()

    def _fit(self, data: dict[int, Tensor], news: Tensor) -> Desk:
        """Fit ŵ₀ to the answers of Phase I (lines 1–2); the letters send ŵ₀ to every client."""
        planned = self.desk.planned._replace(weights=self.plan.oracle(news))
        desk = _named(self.number, self.desk._replace(planned=planned, inbox={}, open=False))
        accounts = tuple(account._replace(offered=desk.exchange) for account in desk.accounts)
        return desk._replace(accounts=accounts)

    def _add_up(self, data: dict[int, Tensor], news: Tensor) -> Desk:
        """Add up the answers (Algorithm 1, lines 8–10), and send news or new shares to the clients that answered."""
        inbox, total, planned = self.desk.inbox, self.desk.total + news, self.desk.planned
        accounts = [account._replace(later=account.later + news) for account in self.desk.accounts]
        for client, own in data.items():
            accounts[client] = accounts[client]._replace(own=accounts[client].own + own)
        if self.plan.fitting is not None and data:
            planned = course(self.plan, planned.weights, total, [account.own for account in accounts])
        desk = _named(self.number, self.desk._replace(planned=planned, total=total, inbox={}, open=False))
        for client in data:
            checksum = wire.checksum(self.plan.encoded(inbox[client]))
            accounts[client] = _settled(accounts[client], inbox[client], checksum, desk.exchange, total)
        return desk._replace(accounts=tuple(accounts))

    # the file

    def save(self, path: str | Path) -> None:
        """Write all that the server knows to the file ``path``, whole or not at all.

        Raises:
            ValueError: ``path`` is a folder or something else that is no file.
            OSError: The file cannot be written.
        """
        files.keep(path, "the server", self.plan.fingerprint, (self.desk, self.ledger))

    @classmethod
    @on_cpu
    def load(cls, path: str | Path, plan: Plan) -> "Server":
        """Return the server of ``plan`` that `save` wrote to the file ``path``.

        Raises:
            TypeError: ``plan`` is not a `Plan`.
            ValueError: The file is damaged, too large, from an earlier version of fedgo, a client's, or of another
                plan. The message names the file.
            OSError: The file does not exist or cannot be read.
        """
        server = cls(plan)
        server.desk, server.ledger = files.kept(path, "the server", plan, [Account, Course, Desk, Ledger])
        return server


SERVER: Mapping[tuple[ServerState, Kind | Call], Step] = {
    (ServerState.EXPLORING, Call.BEGIN): Step(Server._open, ServerState.FITTING),
    (ServerState.FITTING, Kind.STATISTICS): Step(Server._require_phase_one, ServerState.FITTING),
    (ServerState.FITTING, Call.MERGE): Step(Server._fit, ServerState.CLOSED),
    (ServerState.CLOSED, Call.BEGIN): Step(Server._open, ServerState.OPEN),
    (ServerState.OPEN, Kind.STATISTICS): Step(Server._require_due, ServerState.OPEN),
    (ServerState.OPEN, Call.MERGE): Step(Server._add_up, ServerState.CLOSED),
}


def _settled(account: Account, answer: Letter, checksum: int, named: Exchange, total: Tensor) -> Account:
    """Return the ``account`` of a client after its ``answer`` was used in the exchange ``named``."""
    # A client without ŵ₀ is offered ŵ₀, and one that begins (anew) the total. Any other is offered what came after the
    # last offer, together with that offer if it has not received it.
    nothing, former, since = torch.zeros_like(total), account.former, answer.since
    if since == NEVER:
        return account._replace(seen=NEVER, offered=named, offer=nothing, later=total)
    offers = {account.seen: account.offer + account.later, account.offered: account.later}
    offer = offers.get(since, total)
    if answer.start != account.start:
        offer, former = total, (*former, account.start)
    return Account(account.own, since, named, named, offer, nothing, checksum, answer.start, former)


def _named(number: int, desk: Desk) -> Desk:
    """Return ``desk`` with the exchange of this ``number`` and a checksum of weights, total and last name."""
    known = torch.cat([desk.planned.weights, desk.total.flatten()]).numpy().tobytes()
    return desk._replace(exchange=Exchange(number, zlib.crc32(known, desk.exchange.checksum)))
