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
import warnings
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
    """The account of one client: what the server knows of it.

    Counts and sums have the shape (2, K) for K arms, float64. An exchange ends with letters of the server. ``START``
    carries ŵ₀, the parameter of the paper's network that is fitted after Phase I; ``NEWS`` carries the data of all
    clients; ``PLAN`` carries the client's share of a plan.

    Args:
        own: The counts and sums in all answers of the client that were used, except that of Phase I with the paper's
            network.
        seen: The last exchange that the client has applied, as far as the server knows; at first
            `Plan.known_exchange`.
        offered: The last exchange whose ``START``, ``NEWS`` or ``PLAN`` the client was offered; at first
            `Plan.known_exchange`.
        used: The last exchange in which an answer of the client was used, or ``NEVER`` if there is none. With the
            paper's network, answers that the client gave before it had ŵ₀ do not count.
        offer: The counts and sums in the last ``NEWS`` that the client was offered. They are 0 if ŵ₀ was offered since;
            with a fitting they are kept in the same way, although a ``PLAN`` is sent in place of ``NEWS``.
        later: The counts and sums of all clients that came after the last ``NEWS`` or ``PLAN`` was offered. If ŵ₀ was
            offered since, those of all pulls after Phase I.
        checksum: The checksum of the client's answer in the exchange ``used``, or 0 if there is none.
        start: The number that the client drew when it began without a file, as in that answer (``Letter.start``), or 0
            if there is none.
        former: The numbers of the client's earlier starts, whose answers were used and whose files are lost. The 0 that
            comes first in it stands for none; it is empty until an answer is used.
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

    ŵ₀ is the parameter of the paper's network f_x that is fitted after Phase I.

    Args:
        planned: The plan of the epoch, with the weights ŵ of a network, or ŵ₀ (`Course`). With the paper's network its
            arms remain those of Phase I.
        total: The counts and the sums of rewards y in all answers that were used, (2, K) for K arms; with the paper's
            network, those of the pulls after Phase I, with residuals y − f_x(ŵ₀) of the arms x in place of rewards.
        accounts: What the server knows of each client, in the order of their numbers.
        inbox: The answers to the open exchange, with their counts, by client; empty if no exchange is open.
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

    Its ``desk`` is its state (`Desk`). Its ``ledger`` counts all scalars sent so far, to the server (``up``) and to the
    clients (``down``), each a tensor (1, 1) int64. A letter that is sent again is not counted again.

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
        """The state of this server, by which it looks up in the table `SERVER` what to do with an answer or a call.

        With a network it is ``EXPLORING`` or ``FITTING`` until the exchange that ends Phase I is closed: ``FITTING``
        while it is open. Otherwise it is ``OPEN`` while an exchange is open, and ``CLOSED`` while none is.
        """
        if self.plan.network is not None and not self.started:
            return ServerState.FITTING if self.desk.open else ServerState.EXPLORING
        return ServerState.OPEN if self.desk.open else ServerState.CLOSED

    @property
    def number(self) -> int:
        """The number of the exchange of letters that is open, or of the last one.

        Before the first exchange it is 0 with a network. With a fitting it is 1, because Phase I is planned already.
        """
        return self.desk.exchange.number

    @property
    def started(self) -> bool:
        """Whether Phase I is over, which ends when the first exchange of letters is closed (`merge`)."""
        return self.number - self.desk.open > self.plan.known_exchange.number

    @property
    def known(self) -> Tally:
        """The number of pulls of each of K arms in all answers that were used, and the sums of the rewards, (K,) each.

        With the paper's network f_x they are those of the pulls after Phase I. The sums are then those of the residuals
        y − f_x(ŵ₀), with the reward y of an arm x and the parameter ŵ₀ that is fitted after Phase I.
        """
        return Tally(*self.desk.total)

    @property
    def scalars(self) -> tuple[int, int]:
        """The number of scalars received from all clients, and the number of scalars sent to them, as whole numbers.

        A letter that is sent again is not counted again.
        """
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
        """Open an exchange; the letters are requests to all clients.

        The result is the state of the server in which the exchange is open and no answer has come.

        Raises:
            ValueError: The number of the exchange would exceed 2³¹ − 1.
        """
        require(self.number < 2**31 - 1, "the exchange", self.number, "begin another federation")
        return _named(self.number + 1, self.desk._replace(open=True, inbox={}))

    def letters(self) -> dict[int, bytes]:
        """Return the letters that are due, as bytes, by the number of the client that each goes to.

        While an exchange is open, they are requests to the clients that have not answered. Otherwise they contain what
        the last `merge` made. At the end of Phase I of the paper it is the parameter ŵ₀ of the network, for all
        clients. Later it is the data that are new to the client, or its share of the plan, for each client that
        answered; with the paper's network, a client that answered without ŵ₀ gets ŵ₀. If no client answered, there are
        no letters. Before the first exchange there is a letter without numbers for each client, which ignores it.
        """
        return {letter.client: letter.encode(self.plan.fingerprint) for letter in self._letters()}

    @on_cpu
    def _letters(self) -> list[Letter]:
        """Return the letters that are due, in the order of the clients' numbers and before they are encoded as bytes.

        While an exchange is open, they go to the clients that have not answered. Otherwise they go to the clients that
        were offered ŵ₀, data or a plan when the last exchange was closed.
        """
        desk = self.desk
        due = [client for client, account in enumerate(desk.accounts) if account.offered == desk.exchange]
        if desk.open:
            due = [client for client in range(self.plan.clients) if client not in desk.inbox]
        return [self._letter(client) for client in due]

    def _letter(self, client: int) -> Letter:
        """Return the letter that is due to ``client``.

        While an exchange is open, the letter is a request. After it, the letter has the parameter ŵ₀ fitted in Phase I
        if the exchange used no answer that the client gave after it had received ŵ₀. Otherwise it has the client's
        share of the plan (with a fitting), or the counts and sums that are new to the client (with a network). Before
        the first exchange the letter has no numbers.
        """
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

        The second answer of a client is checked too, and then dropped.

        Args:
            received: The letter, as bytes.
            sender: The number of the client that the transport says the letter came from, or None if it does not say
                so. A letter that names another client is refused.

        Raises:
            Refused: The letter is not bytes, or is damaged, or has another version, kind, length, plan or federation
                than expected; it names an unknown client, or another than ``sender``; no exchange is open, or it
                answers another one; its client has begun anew since, or it or the server was restored from an older
                file; its numbers are no counts and sums; it carries more pulls than there can be; or, in the exchange
                that ends Phase I with a network, it does not carry as many pulls as the client's share has. Then
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
        """Raise `Refused` unless ``letter`` answers the open exchange, and comes from ``sender`` if that is known.

        It is called before an answer is stored, and again on a stored answer that is read from a file.

        Args:
            letter: The answer, with its counts.
            sender: The number of the client from which the answer came, or None if it is not known.

        Raises:
            Refused: The client is unknown or is not ``sender``; the letter is no answer or does not belong to the open
                exchange; its client has begun anew since; it builds on an exchange that the server does not expect; its
                numbers are no counts and sums; or it carries a number of pulls that cannot be.
        """
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
        """Keep an answer that carries as many pulls as its client makes in Phase I.

        This method only checks the answer; `accept` stores it.

        Args:
            letter: The answer.
            pulls: The number of pulls that it carries.

        Raises:
            Refused: The answer carries another number of pulls.
        """
        share, _ = self.plan.first_share(letter.client)
        must(pulls == len(share), f"wrong shape: {pulls} pulls of Phase I, not {len(share)}")

    def _require_due(self, letter: Letter, pulls: int) -> None:
        """Keep an answer that carries no more pulls than there can be; a second one of its client changes nothing.

        This method only checks the answer; `accept` stores it, unless there is one of this client already. There can be
        at most `Plan.due` pulls, and at most 10⁸ together with those of the client that were used before.

        Args:
            letter: The answer.
            pulls: The number of pulls that it carries.

        Raises:
            Refused: The answer carries more pulls than that; or, with a network, it carries a pull of a client that
                does not have the parameter ŵ₀ fitted after Phase I.
        """
        account, me = self.desk.accounts[letter.client], f"client {letter.client}"
        must(letter.since != NEVER or pulls == 0, f"wrong shape: {pulls} pulls by {me}, which has no ŵ₀")
        due = min(self.plan.due, MOST_PULLS - int(account.own[0].sum()))
        must(pulls <= due, f"too many pulls: {me} claims {pulls}, and at most {due} are due")

    @on_cpu
    def merge(self) -> None:
        """Close the open exchange, merge the answers that have come, and make the letters that follow.

        If it raises an error, the state of the server has not changed.

        Raises:
            ImportError: A library that the fit of the surrogate needs is missing.
            MemoryError: That fit needs more memory than there is.
            ValueError: No exchange is open; no client has answered in the first exchange, which ends Phase I; or the
                oracle (Algorithm 2) finds no parameter ŵ₀ of the network then.

        Warns:
            UserWarning: A fit of the surrogate fails; the message says why, and what is planned instead.
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
        """Fit ŵ₀ to the answers of Phase I (lines 1–2); the letters send ŵ₀ to every client.

        ŵ₀ is the parameter of the network, and the lines are those of Algorithm 1.

        Args:
            data: The counts and sums in each client's answer, (2, K) for K arms, by client. They are not used.
            news: The total of all answers, (2, K).

        Returns:
            The state of the server in which the exchange is closed and ŵ₀ is known.

        Raises:
            ValueError: The oracle (Algorithm 2) finds no ŵ₀.
        """
        planned = self.desk.planned._replace(weights=self.plan.oracle(news))
        desk = _named(self.number, self.desk._replace(planned=planned, inbox={}, open=False))
        accounts = tuple(account._replace(offered=desk.exchange) for account in desk.accounts)
        return desk._replace(accounts=accounts)

    def _add_up(self, data: dict[int, Tensor], news: Tensor) -> Desk:
        """Add up the answers (Algorithm 1, lines 8–10), and send news or shares to the clients that answered.

        A client of a plan with a network that answered without the fitted parameter ŵ₀ is sent ŵ₀ in place of the news.

        Args:
            data: The counts and sums in each client's answer, (2, K) for K arms, by client.
            news: The total of all answers, (2, K).

        Returns:
            The state of the server in which the exchange is closed. If the plan has a fitting (a surrogate in place of
            the network) and a client answered, the next epoch is planned.

        Raises:
            ImportError: A library that the fit of the surrogate needs is missing.
            MemoryError: That fit needs more memory than there is.

        Warns:
            UserWarning: A fit of the surrogate fails.
        """
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
            ValueError: ``path`` is a folder or something else that is no file, or its links lead in a circle, which
                Python refuses before 3.13.
            OSError: The file cannot be written; or it is written, but its folder cannot be synchronised with the disk.
        """
        files.keep(path, "the server", self.plan.fingerprint, (self.desk, self.ledger))

    @classmethod
    @on_cpu
    def load(cls, path: str | Path, plan: Plan) -> "Server":
        """Return the server of ``plan`` that `save` wrote to the file ``path``.

        An answer in the file that the server would refuse now is dropped.

        Raises:
            TypeError: ``plan`` is not a `Plan`.
            ValueError: The file is damaged, too large, from an earlier version of fedgo, a client's, or of another
                plan. The message names the file.
            OSError: The file does not exist or cannot be read, for instance because it is a folder.

        Warns:
            UserWarning: A stored answer is dropped; the message says why.
        """
        server = cls(plan)
        server.desk, server.ledger = files.kept(path, "the server", plan, [Account, Course, Desk, Ledger])
        for client, letter in list(server.desk.inbox.items()):
            try:
                server._check(letter, client)
            except Refused as reason:
                warnings.warn(f"a stored answer is dropped, and asked for again: {reason}", stacklevel=3)
                del server.desk.inbox[client]
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
    """Return the ``account`` of a client after its ``answer`` was used in the exchange ``named``, which led to
    ``total``.

    With a network, a client without the parameter ŵ₀ fitted after Phase I is offered ŵ₀. A client that begins, or
    begins anew, is offered the ``total``. Any other client is offered what came after the last offer, together with
    that offer if it has not received it.

    Args:
        account: The account before, with the answers of this exchange in ``own`` and ``later``.
        answer: The client's answer.
        checksum: The checksum of the encoded answer.
        named: The exchange in which the answer was used.
        total: The counts and sums of all clients after it, (2, K) for K arms.
    """
    nothing, former, since = torch.zeros_like(total), account.former, answer.since
    if since == NEVER:
        return account._replace(seen=NEVER, offered=named, offer=nothing, later=total)
    offers = {account.seen: account.offer + account.later, account.offered: account.later}
    offer = offers.get(since, total)
    if answer.start != account.start:
        offer, former = total, (*former, account.start)
    return Account(account.own, since, named, named, offer, nothing, checksum, answer.start, former)


def _named(number: int, desk: Desk) -> Desk:
    """Return the state ``desk`` of the server with the exchange that is named by ``number`` and a new checksum.

    The checksum is the CRC-32 of the weights in the plan (those of the last fit of a network, or ŵ₀ of the paper's), of
    the counts and sums of all clients, and of the checksum that the exchange in ``desk`` has.
    """
    known = torch.cat([desk.planned.weights, desk.total.flatten()]).numpy().tobytes()
    return desk._replace(exchange=Exchange(number, zlib.crc32(known, desk.exchange.checksum)))
