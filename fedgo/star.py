"""The star: N clients around one server; the one place where messages are delivered and their scalars counted.

The communication cost C_NT is "the total amount of real numbers being transferred" (Section 3). Messages have
shape (runs, clients, …), a client axis of one for what the server says to all; the cost of a message is the
product of the remaining dimensions, or its own ``scalars`` where it is stored in another form than it is sent in.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from fedgo.checks import require


class Encoded(Protocol):
    """A message that says itself how many scalars it costs to send: one number, one for each run (n,) where runs
    differ, or one for each sender (n, senders) where clients do."""

    @property
    def scalars(self) -> int | Tensor: ...


class Summed(NamedTuple):
    """The replies of all clients where the server needs only their sum ``total`` (R, …); each sends ``scalars``."""

    total: Tensor
    scalars: int


Handler = Callable[[Tensor], Summed]
Message = TypeVar("Message", bound=Tensor | Encoded)
Reply = TypeVar("Reply", bound=Tensor | Encoded)


class When(NamedTuple):
    """The runs that take part in an exchange and the step it is booked at in each, both (n,) int64."""

    run: Tensor
    step: Tensor


class Ledger(NamedTuple):
    """Scalars sent to the server (``up``) and from it (``down``) at every step, (S, steps) int64."""

    up: Tensor
    down: Tensor

    @classmethod
    def blank(cls, runs: int, steps: int) -> "Ledger":
        """A ledger of zeros."""
        return cls(*(torch.zeros(runs, steps, dtype=torch.int64) for _ in range(2)))


class Star(NamedTuple):
    """N = ``clients`` clients and a server over a perfect network; another transport is another ``Star``."""

    clients: int
    ledger: Ledger

    def collect(self, messages: Message, when: When, senders: int | None = None) -> Message:
        """Clients → server: deliver ``messages`` of ``senders`` clients (all of them unless said) per run."""
        count = self.clients if senders is None else senders
        require(0 <= count <= self.clients, "senders", count, f"at most the N = {self.clients} clients send")
        each = torch.as_tensor(_scalars(messages))
        self.ledger.up.index_put_(when, each.sum(1) if each.ndim == 2 else count * each, accumulate=True)
        return messages

    def broadcast(self, message: Message, when: When) -> Message:
        """Server → all N clients: deliver one ``message`` per run, charged N times."""
        self.ledger.down.index_put_(when, torch.as_tensor(self.clients * _scalars(message)), accumulate=True)
        return message

    def ask(self, handler: Callable[[Message], Reply], message: Message, when: When) -> Reply:
        """One round: every client gets ``message`` and sends back ``handler(message)``."""
        return self.collect(handler(self.broadcast(message, when)), when)


def answer(handler: Handler, message: Tensor, when: When | None = None) -> Summed:
    """What takes the place of ``Star.ask`` where the server has the data itself: nothing is sent."""
    return handler(message)


def _scalars(message: Tensor | Encoded) -> int | Tensor:
    return math.prod(message.shape[2:]) if isinstance(message, Tensor) else message.scalars
