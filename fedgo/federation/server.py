"""The server of Algorithm 1, without a transport: it begins exchanges, accepts answers, and merges what came.

In the order of an exchange::

    server.begin()  # Phase I, or a synchronisation that a client called for
    for me, letter in server.letters().items():
        server.accept(...)  # what client me answers, if it does
    server.merge()  # goes on without who was silent; letters() are the next ones

What the server holds determines its letters, so that they can be sent again. A client that was silent keeps its data,
and gets at its next synchronisation all that it has missed.
"""

from collections.abc import Iterator
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo import _files
from fedgo._checks import on_cpu, require, require_kind
from fedgo._streams import generator
from fedgo.federation.plan import Plan, each_pull
from fedgo.federation.wire import Kind, Letter, decode, must
from fedgo.langevin import langevin_noise, langevin_rounds, last, move, require_convergent
from fedgo.phase_one import deal
from fedgo.star import Ledger, Message, Star, When, answer

_ANSWERS = {Kind.WEIGHTS: Kind.GRADIENT, Kind.REPORT: Kind.EXPLORED, Kind.SYNCHRONISE: Kind.STATISTICS}
_BOOKED = When(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))  # all at one place


class Link(NamedTuple):
    """What the server knows of one client: the exchange that it has ``seen`` the client apply, the last one that it
    was ``offered``, and the last one in which its data were ``used``; the statistics in that ``offer``, and those that
    came ``later``."""

    seen: int = 0
    offered: int = 0
    used: int = 0
    offer: Tensor | None = None
    later: Tensor | None = None


class Desk(NamedTuple):
    """All that a server's file holds. ``w`` is the oracle's iterate after ``rounds`` rounds, and then ŵ₀; ``inbox``
    the answers of the exchange ``number``, while it is ``open``."""

    w: Tensor
    total: Tensor
    links: tuple[Link, ...]
    inbox: dict[int, Letter]
    number: int
    rounds: int
    open: bool
    started: bool


class Server:
    """The server of ``plan``, with its ``ledger`` of all scalars sent so far."""

    def __init__(self, plan: Plan) -> None:
        require_kind(isinstance(plan, Plan), "plan", plan, "give a Plan")
        self.plan = plan
        linear = plan.network is None
        w, links = (
            torch.zeros(plan.dimension, dtype=torch.float64),
            (Link(int(linear), int(linear)),) * plan.clients,
        )
        self.desk = Desk(w, plan.blank(), links, {}, int(linear), 0, False, linear and plan.fitting is None)
        self.ledger = Ledger.blank(1, 1)
        self._noise: tuple[int, Iterator[Tensor]] | None = None

    @property
    def waiting(self) -> list[int]:
        """The clients whose answer to the open exchange has not come."""
        return [i for i in range(self.plan.clients) if self.desk.open and i not in self.desk.inbox]

    @property
    def scalars(self) -> tuple[int, int]:
        """Scalars received and sent, each letter counted once."""
        return int(self.ledger.up), int(self.ledger.down)

    def begin(self) -> None:
        """Open an exchange, unless one is open: the next round of Phase I, or a synchronisation."""
        if not self.desk.open:
            self.desk = self.desk._replace(open=True, number=self.desk.number + 1, inbox={})
            self._charge()

    @on_cpu
    def letters(self) -> dict[int, bytes]:
        """By client, what is to be sent: requests to those who have not answered, or what the last merge gave."""
        return {letter.client: letter.encode(self.plan.fingerprint) for letter in self._letters()}

    def _letters(self) -> list[Letter]:
        desk, none = self.desk, torch.zeros(0, dtype=torch.float64)
        if desk.open:
            kind = self._request()
            numbers = desk.w if kind == Kind.WEIGHTS else none
            return [Letter(kind, i, desk.number, desk.links[i].used, numbers) for i in self.waiting]
        due = [i for i, link in enumerate(desk.links) if link.offered == desk.number > 0]
        found = []
        for i in due:
            offer, seen = desk.links[i].offer, desk.links[i].seen
            if offer is not None:
                found.append(Letter(Kind.NEWS, i, desk.number, seen, self.plan.pack(offer)))
            elif self.plan.network is not None:
                found.append(Letter(Kind.START, i, desk.number, 0, desk.w))
        return found

    def _request(self) -> Kind:
        if self.desk.started or self.plan.fitting is not None:  # whose Phase I ends with a synchronisation
            return Kind.SYNCHRONISE
        return Kind.REPORT if self.plan.packed else Kind.WEIGHTS

    def _charge(self) -> None:
        """Book what ``letters`` are, each to one client."""
        for letter in self._letters():
            Star(1, self.ledger).broadcast(Message(letter.client, len(letter.numbers)), _BOOKED)

    @on_cpu
    def accept(self, received: bytes) -> bool:
        """Take an answer to the open exchange; False where it is here already. ``Refused`` changes nothing."""
        letter, desk, plan = decode(received, self.plan.fingerprint), self.desk, self.plan
        must(letter.kind in _ANSWERS.values(), f"kind {letter.kind.name}: a server sends it, and gets none")
        must(letter.client < plan.clients, f"unknown client {letter.client}: there are N = {plan.clients}")
        must(
            desk.open and letter.number == desk.number,
            f"out of order: exchange {letter.number}, and {desk.number} is {'open' if desk.open else 'closed'}",
        )
        wanted = _ANSWERS[self._request()]
        must(letter.kind == wanted, f"kind {letter.kind.name}: exchange {desk.number} asks for {wanted.name}")
        if letter.client in desk.inbox:
            return False
        size = len(letter.numbers)
        if letter.kind == Kind.GRADIENT:
            must(size == plan.dimension, f"wrong shape: {size} numbers of GRADIENT, not {plan.dimension}")
        elif letter.kind == Kind.EXPLORED or letter.since > 0:
            letter = letter._replace(numbers=plan.unpack(letter.numbers))
        if letter.kind == Kind.EXPLORED:
            pulls, share = int(letter.numbers[: len(plan.arms)].sum()), self._share(letter.client)
            must(pulls == share, f"wrong shape: {pulls} pulls of Phase I, not {share}")
        elif letter.kind == Kind.STATISTICS:
            link = desk.links[letter.client]
            known = sorted({int(plan.network is None), link.seen, link.offered})
            must(
                letter.since in known,
                f"out of order: client {letter.client} builds on exchange {letter.since}, not on one of {known}",
            )
            must(letter.since > 0 or size == 0, f"wrong shape: {size} numbers from a client without ŵ₀")
        self.desk = desk._replace(inbox=desk.inbox | {letter.client: letter})
        Star(1, self.ledger).collect(Message(letter.client, size), _BOOKED)
        return True

    def _share(self, client: int) -> int:
        """How many of the T₀ pulls of Phase I are this client's."""
        return len(range(client, self.plan.length, self.plan.clients))

    @on_cpu
    def merge(self) -> None:
        """Close the exchange with the answers that came; a ``ValueError`` if there are none in Phase I.

        Every round of the oracle takes the mean over the data of those who answered. The next round opens by itself.
        """
        desk = self.desk
        require(desk.open, "the exchange", "closed", "begin one")
        require(
            desk.started or len(desk.inbox) > 0,
            "the answers",
            0,
            "no client answered: send the letters again",
        )
        inbox = {i: desk.inbox[i] for i in sorted(desk.inbox)}  # one order of sums, whatever comes first
        if self._request() == Kind.SYNCHRONISE:
            self.desk = self._synchronised(inbox)
        elif self.plan.packed:
            self.desk = self._fitted(self._oracle(inbox), self.plan.langevin.rounds)
        else:
            w, done = self._moved(inbox), desk.rounds + 1
            more = desk._replace(w=w, rounds=done, number=desk.number + 1, inbox={})
            self.desk = self._fitted(w, done) if done == self.plan.langevin.rounds else more
        self._charge()

    def _fitted(self, w: Tensor, rounds: int) -> Desk:
        """Phase I is over: every client is sent ŵ₀."""
        links = tuple(link._replace(offered=self.desk.number) for link in self.desk.links)
        return self.desk._replace(w=w, rounds=rounds, links=links, inbox={}, open=False, started=True)

    def _moved(self, inbox: dict[int, Letter]) -> Tensor:
        """One round of Algorithm 2."""
        desk, langevin = self.desk, self.plan.langevin
        if self._noise is None or self._noise[0] != desk.rounds:
            tape = langevin_noise([self._generator()], 1, self.plan.dimension)
            self._noise = desk.rounds, islice(tape, desk.rounds, None)
        z = next(self._noise[1])[0]
        self._noise = desk.rounds + 1, self._noise[1]
        gradient = reduce(torch.add, [letter.numbers for letter in inbox.values()])
        data = sum(self._share(i) for i in inbox)
        w = move(desk.w, gradient / data, langevin.step, langevin.inverse_temperatures()[desk.rounds], z)
        require_convergent(w, langevin.step, "rewards of order 1")
        return w

    def _oracle(self, inbox: dict[int, Letter]) -> Tensor:
        """All rounds of Algorithm 2 on the pulls and sums that were sent: for each pull, its arm's mean reward."""
        plan = self.plan
        assert plan.network is not None
        counts, sums = reduce(torch.add, [letter.numbers for letter in inbox.values()]).chunk(2)
        arm = each_pull(counts)
        shards = deal(plan.arms[arm].unsqueeze(0), (sums / counts)[arm].unsqueeze(0), 1)
        return last(langevin_rounds(plan.network, shards, plan.langevin, [self._generator()], answer)).w[0]

    def _generator(self) -> torch.Generator:
        return generator(self.plan.seed, self.plan.run, "langevin")

    def _synchronised(self, inbox: dict[int, Letter]) -> Desk:
        """Lines 8–10: the sums of what came, and what of them every client has not got."""
        desk, number = self.desk, self.desk.number
        sent = [letter.numbers for letter in inbox.values() if letter.since > 0]
        news = reduce(torch.add, sent) if sent else None
        total = _plus(desk.total, news)
        assert total is not None
        links = list(desk.links)
        for i, link in enumerate(links):
            later, letter = _plus(link.later, news), inbox.get(i)
            if letter is None:
                links[i] = link._replace(later=later)
            elif letter.since == 0:  # it has no ŵ₀ yet, or has lost all that it knew
                links[i] = Link(0, number, link.used, None, total)
            elif letter.since in (link.seen, link.offered):
                old = link.offer if letter.since != link.offered else None
                links[i] = Link(letter.since, number, number, _plus(old, later), None)
            else:  # without a network there is no ŵ₀ to lose
                links[i] = Link(letter.since, number, number, total, None)
        return desk._replace(total=total, links=tuple(links), inbox={}, open=False, started=True)

    @on_cpu
    def extended(self, plan: Plan) -> "Server":
        """This server under ``plan``, which has more arms and is else the same; allowed between two exchanges."""
        desk, server = self.desk, Server(plan)
        require(
            desk.started and not desk.open,
            "the exchange",
            desk.number,
            "Phase I or an exchange goes on: add later",
        )
        self.plan.require_extended_by(plan)

        def grown(part: Tensor | None) -> Tensor | None:
            return None if part is None else self.plan.grown(part, plan)

        links = (link._replace(offer=grown(link.offer), later=grown(link.later)) for link in desk.links)
        server.desk = desk._replace(total=self.plan.grown(desk.total, plan), links=tuple(links))
        server.ledger = self.ledger
        return server

    # the file

    def save(self, path: str | Path) -> None:
        """Write all that the server knows to one file, whole or not at all."""
        desk = self.desk
        several = [part for link in desk.links for part in (link.offer, link.later) if part is not None]
        parts = {id(part): part for part in several}  # most clients are offered the same
        place = {None: -1} | {key: k for k, key in enumerate(parts)}
        links = [
            [*link[:3], *(place[None if part is None else id(part)] for part in link[3:])]
            for link in desk.links
        ]
        inbox = [[letter.client, letter.since, int(letter.kind)] for letter in desk.inbox.values()]
        arrays = {
            "w": desk.w,
            "total": desk.total,
            "links": torch.tensor(links),
            "ledger": torch.cat(self.ledger),
            "inbox": torch.tensor(inbox, dtype=torch.int64).view(-1, 3),
            "parts": torch.stack(list(parts.values())) if parts else torch.zeros(0, len(desk.total)),
            "came": torch.cat([letter.numbers for letter in desk.inbox.values()] or [torch.zeros(0)]),
        }
        about = {name: getattr(desk, name) for name in ("number", "rounds", "open", "started")}
        _files.write(path, "the server", about | {"plan": self.plan.fingerprint}, arrays)

    @classmethod
    def load(cls, path: str | Path, plan: Plan) -> "Server":
        """The server of ``plan`` that ``save`` wrote; a ``ValueError`` that names the file where it is another's."""
        needed = ("w", "total", "links", "ledger", "inbox", "parts", "came")
        with _files.refused_by_name(path, "the server", "a saved Server of this plan"):
            about, arrays = _files.read(path, "the server", needed)
            require(
                about.pop("plan") == plan.fingerprint, "the plan", str(path), "the file is of another plan"
            )
            server = cls(plan)
            parts = [*arrays["parts"], None]
            links = [Link(*row[:3], *(parts[k] for k in row[3:])) for row in arrays["links"].tolist()]
            rows, came = arrays["inbox"].tolist(), arrays["came"]
            came = came.view(len(rows), -1) if rows else came
            inbox = {
                client: Letter(Kind(kind), client, about["number"], since, numbers)
                for (client, since, kind), numbers in zip(rows, came, strict=True)
            }
            server.desk = Desk(arrays["w"], arrays["total"], tuple(links), inbox, **about)
            server.ledger = Ledger(*arrays["ledger"].chunk(2))
        return server


def _plus(one: Tensor | None, two: Tensor | None) -> Tensor | None:
    if one is None or two is None:
        return two if one is None else one
    return one + two
