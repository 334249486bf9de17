"""The star: N clients around one server; the one place where messages are delivered and their scalars counted.

The communication cost C_NT is "the total amount of real numbers being transferred" (Section 3). What crosses the star
is a `Message`: a content as the receiver uses it, with leading axes (runs, clients, …) and a client axis of one for
what the server says to all, and the number of scalars that it costs to send.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from fedgo._checks import require

Content = TypeVar("Content")
Reply = TypeVar("Reply")


class Message(NamedTuple, Generic[Content]):
    """What is delivered, and what it costs: ``scalars`` is one number, one for each run (R,) where runs differ, or one
    for each client (R, N) where clients do. The content may be held in another form than it is sent in."""

    content: Content
    scalars: int | Tensor


class When(NamedTuple):
    """The runs that take part in an exchange and the step it is booked at in each, both (n,) int64."""

    run: Tensor
    step: Tensor


# A round with the clients: they get a tensor, and a handler says what they reply, their sum where that is all the
# server needs. `Star.at` gives the Ask that sends both ways, `answer` is the one of a server that has the data itself.
Handler = Callable[[Tensor], Message[Reply]]
Ask = Callable[[Handler[Any], Message[Tensor]], Any]


class Ledger(NamedTuple):
    """Scalars sent to the server (``up``) and from it (``down``) at every step, (S, steps) int64."""

    up: Tensor
    down: Tensor

    @classmethod
    def blank(cls, runs: int, steps: int) -> "Ledger":
        """A ledger of zeros."""
        return cls(*(torch.zeros(runs, steps, dtype=torch.int64) for _ in range(2)))


class Star(NamedTuple):
    """N = ``clients`` clients and a server over a perfect network; another transport is another ``Star``.

    Unless it is ``charged``, messages are free: for what each client computes from the data that it has already.
    """

    clients: int
    ledger: Ledger
    charged: bool = True

    def collect(self, message: Message[Content], when: When, senders: int | None = None) -> Content:
        """Clients → server: deliver the ``message`` of ``senders`` clients (all of them unless said) per run."""
        count = self.clients if senders is None else senders
        require(0 <= count <= self.clients, "senders", count, f"at most the N = {self.clients} clients send")
        each = torch.as_tensor(message.scalars)
        if self.charged:
            self.ledger.up.index_put_(when, each.sum(1) if each.ndim == 2 else count * each, accumulate=True)
        return message.content

    def broadcast(self, message: Message[Content], when: When) -> Content:
        """Server → all N clients: deliver one ``message`` per run, charged N times, or to each client its part."""
        if self.charged:
            each = torch.as_tensor(message.scalars)
            sent = each.sum(1) if each.ndim == 2 else self.clients * each
            self.ledger.down.index_put_(when, sent, accumulate=True)
        return message.content

    def ask(self, handler: Handler[Reply], message: Message[Tensor], when: When) -> Reply:
        """One round: every client gets ``message`` and sends back what ``handler`` makes of it."""
        return self.collect(handler(self.broadcast(message, when)), when)

    def at(self, when: When) -> Ask:
        """`ask`, booked at ``when``."""
        return partial(self.ask, when=when)


def answer(handler: Handler[Reply], message: Message[Tensor]) -> Reply:
    """What takes the place of `Star.ask` where the server has the data itself: nothing is sent."""
    return handler(message.content).content
