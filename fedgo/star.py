"""The star of N clients around one server: it delivers their messages and counts the scalars that are sent.

The communication cost C_NT is "the total amount of real numbers being transferred" (Section 3). Whatever a client and
the server exchange is a `Message`: a content, and the number of scalars that it costs to send. Of S runs, R take part
in an exchange. Tensors in a content have the axes (R, N, …) if each client sends its own, and (R, …) or (R, 1, …) if
the server sends one to all.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from fedgo._checks import count

Content = TypeVar("Content")
Answer = TypeVar("Answer")


class Message(NamedTuple, Generic[Content]):
    """A message: what is sent, and how many scalars it costs to send it.

    Args:
        content: What is sent, in the form in which the receiver uses it.
        scalars: The cost of sending it once, over the line of one client, a whole number or int64: one for all runs,
            (R,), or, for messages of the clients, (R, N).
    """

    content: Content
    scalars: int | Tensor


class When(NamedTuple):
    """The R runs that take part, and the step (Phase I included) to which each is charged, (R,) int64 each."""

    run: Tensor
    step: Tensor


# A handler computes the clients' answers to a tensor that the server sends, or only the sum of these answers if the
# server needs no more. An Ask carries the tensor to the clients and the answers back. `Star.at` returns an Ask that
# counts the scalars of both directions, and `answer` is the Ask of a server that has the data itself.
Handler = Callable[[Tensor], Message[Answer]]
Ask = Callable[[Handler[Any], Message[Tensor]], Any]


class Ledger(NamedTuple):
    """The scalars that all clients send at each step, ``up``, and that they receive, ``down``, (S, steps) int64."""

    up: Tensor
    down: Tensor

    @classmethod
    def blank(cls, runs: int, steps: int) -> "Ledger":
        """Return a ledger of zeros."""
        return cls(*(torch.zeros(runs, steps, dtype=torch.int64) for _ in range(2)))


class Star(NamedTuple):
    """A network without losses between a server and N clients, which counts the scalars sent.

    Args:
        clients: The number N.
        ledger: The arrays to which the numbers are added, in place.
        charged: Whether anything is counted; False for results that each client can compute from data that it has.
    """

    clients: int
    ledger: Ledger
    charged: bool = True

    def collect(self, message: Message[Content], when: When, senders: int | None = None) -> Content:
        """Deliver the ``message`` of the clients to the server: count its scalars and return its content.

        Args:
            message: What the clients send. Its scalars are those of each client, (R, N), or those of one sender.
            when: The runs and steps to which the scalars are charged.
            senders: How many clients send in each run, or None for all; not used if the scalars of each client are
                given.
        """
        if senders is None:
            senders = self.clients
        else:
            count("senders", senders, f"give a number up to N = {self.clients}", least=0, most=self.clients)
        scalars = torch.as_tensor(message.scalars)
        if self.charged:
            sent = scalars.sum(1) if scalars.ndim == 2 else senders * scalars
            self.ledger.up.index_put_(when, sent, accumulate=True)
        return message.content

    def broadcast(self, message: Message[Content], when: When) -> Content:
        """Deliver the ``message`` of the server to all N clients: count its scalars N times and return its content."""
        if self.charged:
            sent = self.clients * torch.as_tensor(message.scalars)
            self.ledger.down.index_put_(when, sent, accumulate=True)
        return message.content

    def ask(self, handler: Handler[Answer], message: Message[Tensor], when: When) -> Answer:
        """Broadcast ``message``, call ``handler`` once on its content, and collect its answer.

        Args:
            handler: Computes the answers of all clients, or their sum.
            message: What the server sends, with the scalars for one client.
            when: The runs and steps to which both directions are charged.
        """
        return self.collect(handler(self.broadcast(message, when)), when)

    def at(self, when: When) -> Ask:
        """Return `ask` with ``when`` given."""
        return partial(self.ask, when=when)


def answer(handler: Handler[Answer], message: Message[Tensor]) -> Answer:
    """Take the place of `Star.ask` for a server that has the clients' data itself, so that nothing is sent."""
    return handler(message.content).content
