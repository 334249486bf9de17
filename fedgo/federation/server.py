"""The server of Algorithm 1, without a transport: it begins exchanges, accepts answers, and merges what came.

In the order of an exchange::

    server.begin()  # the end of Phase I, or a synchronisation that a client called for
    for me, letter in server.letters().items():
        server.accept(...)  # what client me answers, if it does
    server.merge()  # goes on without who was silent; letters() are the next ones

What the server holds determines its letters, so that they can be sent again. A client that was silent keeps its data,
and gets at its next synchronisation all that it has missed.
"""

from functools import reduce
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedgo import _files
from fedgo._checks import on_cpu, require, require_kind
from fedgo.federation.plan import Plan
from fedgo.federation.wire import Kind, Letter, decode, must, pack, unpack
from fedgo.star import Ledger, Message, Star, When

_BOOKED = When(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))  # all at one place


class Link(NamedTuple):
    """What the server knows of one client: the exchange that it has ``seen`` the client apply, the last one that it
    was ``offered``, and the last one in which its data were ``used``; the counts and sums (2, K) in that ``offer``,
    None where it is ŵ₀, and those that came ``later``, None where there are none."""

    seen: int
    offered: int
    used: int = 0
    offer: Tensor | None = None
    later: Tensor | None = None


class Reply(NamedTuple):
    """What a client has answered: counts and sums ``data`` (2, K), which build on the exchange ``since``; 0 for those
    of Phase I, and of a client that has no ŵ₀ and nothing to say."""

    since: int
    data: Tensor


class Desk(NamedTuple):
    """All that a server's file holds: ŵ₀ (empty before it is fitted), everybody's counts and sums ``total`` (2, K), a
    link for each client, and the exchange ``number``, with the replies in its ``inbox`` while it is ``open``."""

    w0: Tensor
    total: Tensor
    links: tuple[Link, ...]
    inbox: dict[int, Reply]
    number: int
    open: bool


class Server:
    """The server of ``plan``, with its ``ledger`` of all scalars sent so far."""

    @on_cpu
    def __init__(self, plan: Plan) -> None:
        require_kind(isinstance(plan, Plan), "plan", plan, "give a Plan")
        self.plan = plan
        links = (Link(plan.known_exchange, plan.known_exchange),) * plan.clients
        no_weights, nothing = torch.zeros(0).double(), torch.zeros(2, len(plan.arms)).double()
        self.desk = Desk(no_weights, nothing, links, {}, plan.known_exchange, False)
        self.ledger = Ledger.blank(1, 1)

    @property
    def started(self) -> bool:
        """Whether Phase I, which ends with the first exchange, is over."""
        last = self.desk.number - self.desk.open
        return self.plan.length == 0 or last > self.plan.known_exchange

    @property
    def scalars(self) -> tuple[int, int]:
        """Scalars received and sent, each letter counted once."""
        return int(self.ledger.up), int(self.ledger.down)

    @on_cpu
    def begin(self) -> None:
        """Open an exchange, unless one is open: the end of Phase I, or a synchronisation."""
        if not self.desk.open:
            self.desk = self.desk._replace(open=True, number=self.desk.number + 1, inbox={})
            self._charge()

    @on_cpu
    def letters(self) -> dict[int, bytes]:
        """By client, what is to be sent: requests to those who have not answered, or what the last merge gave."""
        return {letter.client: letter.encode(self.plan.fingerprint) for letter in self._letters()}

    def _letters(self) -> list[Letter]:
        desk = self.desk
        if desk.open:
            kind, nothing = self._request, torch.zeros(0, dtype=torch.float64)
            waiting = [i for i in range(self.plan.clients) if i not in desk.inbox]
            return [Letter(kind, i, desk.number, desk.links[i].used, nothing) for i in waiting]
        letters = []
        for i, link in enumerate(desk.links):
            if link.offered < desk.number:
                continue
            if link.offer is not None:
                letters.append(Letter(Kind.NEWS, i, desk.number, link.seen, pack(link.offer)))
            elif len(desk.w0):
                letters.append(Letter(Kind.START, i, desk.number, 0, desk.w0))
        return letters

    @property
    def _request(self) -> Kind:
        """What the open exchange asks for; with a surrogate Phase I ends with a synchronisation."""
        return Kind.SYNCHRONISE if self.started or self.plan.network is None else Kind.REPORT

    def _charge(self) -> None:
        """Book what ``letters`` are, each to one client."""
        for letter in self._letters():
            Star(1, self.ledger).broadcast(Message(letter, len(letter.numbers)), _BOOKED)

    @on_cpu
    def accept(self, received: bytes) -> bool:
        """Take an answer to the open exchange; False where it is here already. ``Refused`` changes nothing."""
        letter, desk, plan = decode(received, self.plan.fingerprint), self.desk, self.plan
        answers = (Kind.EXPLORED, Kind.STATISTICS)
        must(letter.kind in answers, f"kind {letter.kind.name}: a server sends it, and gets none")
        must(letter.client < plan.clients, f"unknown client {letter.client}: there are N = {plan.clients}")
        state = f"{desk.number} is {'open' if desk.open else 'closed'}"
        due = desk.open and letter.number == desk.number
        must(due, f"out of order: exchange {letter.number}, and {state}")
        wanted = Kind.EXPLORED if self._request == Kind.REPORT else Kind.STATISTICS
        must(letter.kind == wanted, f"kind {letter.kind.name}: exchange {desk.number} asks for {wanted.name}")
        if letter.client in desk.inbox:
            return False
        data = unpack(letter.numbers, len(plan.arms))
        if letter.kind == Kind.EXPLORED:
            pulls, share = int(data[0].sum()), len(plan.uniform_pulls(letter.client))
            must(pulls == share, f"wrong shape: {pulls} pulls of Phase I, not {share}")
        else:
            link, size = desk.links[letter.client], len(letter.numbers)
            exchanges = sorted({plan.known_exchange, link.seen, link.offered})
            built = f"client {letter.client} builds on exchange {letter.since}"
            must(letter.since in exchanges, f"out of order: {built}, not on one of {exchanges}")
            must(letter.since > 0 or size == 0, f"wrong shape: {size} numbers from a client without ŵ₀")
        self.desk = desk._replace(inbox=desk.inbox | {letter.client: Reply(letter.since, data)})
        Star(1, self.ledger).collect(Message(letter, len(letter.numbers)), _BOOKED)
        return True

    @on_cpu
    def merge(self) -> None:
        """Close the exchange with the answers that came; a ``ValueError`` if there are none in Phase I."""
        desk = self.desk
        require(desk.open, "the exchange", "closed", "begin one")
        heard = self.started or len(desk.inbox) > 0
        require(heard, "the answers", 0, "no client answered: send the letters again")
        inbox = {i: desk.inbox[i] for i in sorted(desk.inbox)}  # one order of sums, whatever comes first
        self.desk = self._fitted(inbox) if self._request == Kind.REPORT else self._synchronised(inbox)
        self._charge()

    def _fitted(self, inbox: dict[int, Reply]) -> Desk:
        """Lines 1–2: Phase I is over, and every client is sent ŵ₀."""
        w0 = self.plan.oracle(reduce(torch.add, [reply.data for reply in inbox.values()]))
        links = tuple(link._replace(offered=self.desk.number) for link in self.desk.links)
        return self.desk._replace(w0=w0, links=links, inbox={}, open=False)

    def _synchronised(self, inbox: dict[int, Reply]) -> Desk:
        """Lines 8–10: the sums of what came, and what of them every client has not got."""
        desk, number = self.desk, self.desk.number
        several = [reply.data for reply in inbox.values() if reply.since > 0]
        news = reduce(torch.add, several) if several else None
        total = desk.total if news is None else desk.total + news
        links = list(desk.links)
        for i, link in enumerate(links):
            later, reply = _plus(link.later, news), inbox.get(i)
            if reply is None:
                links[i] = link._replace(later=later)
            elif reply.since == 0:  # it has no ŵ₀ yet, or has lost all that it knew
                links[i] = Link(0, number, link.used, None, total)
            elif reply.since == link.offered:
                links[i] = Link(reply.since, number, number, later, None)
            elif reply.since == link.seen:  # it has not got the last offer
                links[i] = Link(reply.since, number, number, _plus(link.offer, later), None)
            else:  # it has lost all that it knew, and there is no ŵ₀ to lose
                links[i] = Link(reply.since, number, number, total, None)
        return desk._replace(total=total, links=tuple(links), inbox={}, open=False)

    @on_cpu
    def extended(self, plan: Plan) -> "Server":
        """This server under ``plan``, which has more arms and is else the same; allowed between two exchanges."""
        desk, server, more = self.desk, Server(plan), (0, len(plan.arms) - len(self.plan.arms))
        remedy = "Phase I or an exchange goes on: add later"
        require(self.started and not desk.open, "the exchange", desk.number, remedy)
        self.plan.require_extended_by(plan)

        def grown(data: Tensor | None) -> Tensor | None:
            return None if data is None else pad(data, more)

        links = (link._replace(offer=grown(link.offer), later=grown(link.later)) for link in desk.links)
        server.desk = desk._replace(total=pad(desk.total, more), links=tuple(links))
        server.ledger = self.ledger
        return server

    # the file

    def save(self, path: str | Path) -> None:
        """Write all that the server knows to one file, whole or not at all."""
        desk = self.desk
        # most clients are offered the same: a link names its data by their number, None is −1
        several = [data for link in desk.links for data in (link.offer, link.later) if data is not None]
        distinct = list({id(data): data for data in several}.values())
        number = {id(None): -1} | {id(data): k for k, data in enumerate(distinct)}
        links = [
            [link.seen, link.offered, link.used, number[id(link.offer)], number[id(link.later)]]
            for link in desk.links
        ]
        inbox = [[client, reply.since] for client, reply in desk.inbox.items()]
        nothing = torch.zeros(0, *desk.total.shape, dtype=torch.float64)
        arrays = {
            "w0": desk.w0,
            "total": desk.total,
            "links": torch.tensor(links),
            "offers": torch.stack(distinct) if distinct else nothing,
            "inbox": torch.tensor(inbox, dtype=torch.int64).view(-1, 2),
            "replies": torch.stack([reply.data for reply in desk.inbox.values()]) if inbox else nothing,
            "ledger": torch.cat(self.ledger),
        }
        about = {"plan": self.plan.fingerprint, "number": desk.number, "open": desk.open}
        _files.write(path, "the server", about, arrays)

    @classmethod
    @on_cpu
    def load(cls, path: str | Path, plan: Plan) -> "Server":
        """The server of ``plan`` that ``save`` wrote; a ``ValueError`` that names the file where it is another's."""
        needed = ("w0", "total", "links", "offers", "inbox", "replies", "ledger")
        with _files.refused_by_name(path, "the server", "a saved Server of this plan"):
            about, arrays = _files.read(path, "the server", needed)
            same = about["plan"] == plan.fingerprint
            require(same, "the plan", str(path), "the file is of another plan")
            server, offers = cls(plan), [*arrays["offers"], None]
            links = tuple(
                Link(seen, offered, used, offers[offer], offers[later])
                for seen, offered, used, offer, later in arrays["links"].tolist()
            )
            rows = zip(arrays["inbox"].tolist(), arrays["replies"], strict=True)
            inbox = {client: Reply(since, data) for (client, since), data in rows}
            server.desk = Desk(arrays["w0"], arrays["total"], links, inbox, about["number"], about["open"])
            server.ledger = Ledger(*arrays["ledger"].chunk(2))
        return server


def _plus(one: Tensor | None, two: Tensor | None) -> Tensor | None:
    if one is None or two is None:
        return two if one is None else one
    return one + two
