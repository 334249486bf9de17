"""The star: N clients around one server; the one place where messages are delivered and their scalars counted.

The communication cost C_NT is "the total amount of real numbers being transferred" (Section 3). What crosses the star
is a `Message`: a content and the number of scalars that it costs to send. The leading axes of a content are runs and
clients; the client axis of what the server sends to all clients is 1.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from fedgo._checks import require

Content = TypeVar("Content")
Answer = TypeVar("Answer")


class Message(NamedTuple, Generic[Content]):
    """A message with its content and its cost.

    ``content`` has the form in which the receiver uses it, which may differ from the form in which it is sent.
    ``scalars`` is the number of scalars that are sent: one number for all runs, one for each of R runs (R,), or one for
    each client of each run (R, N).
    """

    content: Content
    scalars: int | Tensor


class When(NamedTuple):
    """The numbers ``run`` of the R runs that take part in an exchange, and the ``step`` of each at which its scalars
    are booked, (R,) int64 both.
    """

    run: Tensor
    step: Tensor


# A handler computes the clients' answers to a tensor, or their sum if the server needs no more. An Ask carries the
# tensor to the clients and the answers back: `Star.at` returns one that books the scalars of both directions, and
# `answer` is the one of a server that has the data itself.
Handler = Callable[[Tensor], Message[Answer]]
Ask = Callable[[Handler[Any], Message[Tensor]], Any]


class Ledger(NamedTuple):
    """The scalars sent to the server (``up``) and from the server (``down``) at each step, (S, steps) int64."""

    up: Tensor
    down: Tensor

    @classmethod
    def blank(cls, runs: int, steps: int) -> "Ledger":
        """Return a ledger of zeros for ``runs`` runs of ``steps`` steps."""
        return cls(*(torch.zeros(runs, steps, dtype=torch.int64) for _ in range(2)))


class Star(NamedTuple):
    """A network without losses between N = ``clients`` clients and a server, which books the scalars that cross it.

    ``ledger`` is where they are booked. If ``charged`` is False nothing is booked; this is for results that each client
    can compute from data that it has already.
    """

    clients: int
    ledger: Ledger
    charged: bool = True

    def collect(self, message: Message[Content], when: When, senders: int | None = None) -> Content:
        """Deliver the ``message`` of the clients to the server, book its scalars, and return its content.

        Args:
            message: What the clients send. If it has one number of scalars for each run, each sender sends as many.
            when: The runs that take part, and the step of each.
            senders: How many clients send in each run; all N if it is None.

        Raises:
            ValueError: ``senders`` is not from 0 to N.
        """
        senders = self.clients if senders is None else senders
        require(
            0 <= senders <= self.clients, "senders", senders, f"give a number from 0 to N = {self.clients}"
        )
        scalars = torch.as_tensor(message.scalars)
        if self.charged:
            sent = scalars.sum(1) if scalars.ndim == 2 else senders * scalars
            self.ledger.up.index_put_(when, sent, accumulate=True)
        return message.content

    def broadcast(self, message: Message[Content], when: When) -> Content:
        """Deliver the ``message`` of the server to all N clients, book its scalars N times, and return its content."""
        if self.charged:
            sent = self.clients * torch.as_tensor(message.scalars)
            self.ledger.down.index_put_(when, sent, accumulate=True)
        return message.content

    def ask(self, handler: Handler[Answer], message: Message[Tensor], when: When) -> Answer:
        """Broadcast ``message``, call ``handler`` once on its content, and return the answers that are collected.

        The answers are those of all clients, often summed already. The scalars of both directions are booked to the
        runs and steps in ``when``.
        """
        return self.collect(handler(self.broadcast(message, when)), when)

    def at(self, when: When) -> Ask:
        """Return `ask` with its scalars booked at ``when``."""
        return partial(self.ask, when=when)


def answer(handler: Handler[Answer], message: Message[Tensor]) -> Answer:
    """Return the answer of ``handler`` to ``message`` for a server that has the data itself, so that nothing is sent.

    It takes the place of `Star.ask`.
    """
    return handler(message.content).content
