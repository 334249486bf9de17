"""The star of N clients around one server: the only place where messages are delivered and their scalars counted.

The communication cost C_NT is "the total amount of real numbers being transferred" (Section 3). Whatever a client and
the server exchange is a `Message`: a content, and the number of scalars that it costs to send. The first axis of a
content is that of the runs. If each client sends a content of its own, the second axis is that of the clients; what the
server sends to all clients has no such axis, or one of length 1.
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
    """A message: what is sent, and how many scalars it costs to send it.

    ``content`` has the form in which the receiver uses it, which may differ from the form in which it is sent.
    ``scalars`` is the cost of sending the message once, over the line of one client: one number for all runs, one for
    each of R runs (R,), or, for messages of the clients, one for each of N clients in each run (R, N).
    """

    content: Content
    scalars: int | Tensor


class When(NamedTuple):
    """The runs that take part in an exchange, and the steps at which its scalars are counted.

    ``run`` has the positions of R runs among all S runs, and ``step`` a step of each of them, counted from 0 with Phase
    I included, (R,) int64 each.
    """

    run: Tensor
    step: Tensor


# A handler computes the clients' answers to a tensor that the server sends, or only the sum of these answers if the
# server needs no more. An Ask carries the tensor to the clients and the answers back. `Star.at` returns an Ask that
# counts the scalars of both directions, and `answer` is the Ask of a server that has the data itself.
Handler = Callable[[Tensor], Message[Answer]]
Ask = Callable[[Handler[Any], Message[Tensor]], Any]


class Ledger(NamedTuple):
    """The numbers of scalars that the clients and the server of each of S runs send at each step.

    ``up`` has the numbers of scalars that all clients together send to the server, and ``down`` the numbers of those
    that the server sends to all clients together, (S, steps) int64 each.
    """

    up: Tensor
    down: Tensor

    @classmethod
    def blank(cls, runs: int, steps: int) -> "Ledger":
        """Return a ledger of zeros, (``runs``, ``steps``) int64 in both directions."""
        return cls(*(torch.zeros(runs, steps, dtype=torch.int64) for _ in range(2)))


class Star(NamedTuple):
    """A network without losses between a server and N = ``clients`` clients, which counts the scalars sent.

    The counts are added to ``ledger``, in place. If ``charged`` is False nothing is counted; this is for results that
    each client can compute from data that it has already.
    """

    clients: int
    ledger: Ledger
    charged: bool = True

    def collect(self, message: Message[Content], when: When, senders: int | None = None) -> Content:
        """Deliver the ``message`` of the clients to the server: count its scalars and return its content.

        Args:
            message: What the clients send. Its scalars are those of each client, (R, N); or those of one sender, one
                number for all R runs or (R,), which are multiplied by the number of senders.
            when: The runs that take part, and the step of each at which the scalars are counted.
            senders: How many of the N clients send in each run, or None for all. The number is not used if the scalars
                of each client are given.

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
        """Deliver the ``message`` of the server to all N clients: count its scalars N times and return its content.

        The scalars of ``message`` are one number for all R runs, or (R,). ``when`` has the runs that take part, and the
        step of each at which the scalars are counted.
        """
        if self.charged:
            sent = self.clients * torch.as_tensor(message.scalars)
            self.ledger.down.index_put_(when, sent, accumulate=True)
        return message.content

    def ask(self, handler: Handler[Answer], message: Message[Tensor], when: When) -> Answer:
        """Send ``message`` to all clients, call ``handler`` once on its content, and return the answer.

        The answer is the content of the message that ``handler`` returns: the answers of all clients, or their sum. The
        scalars in both directions are counted for the runs and steps of ``when``.
        """
        return self.collect(handler(self.broadcast(message, when)), when)

    def at(self, when: When) -> Ask:
        """Return a function of a handler and a message that calls `ask` with them and ``when``.

        The scalars of both directions are then counted for the runs and steps of ``when``.
        """
        return partial(self.ask, when=when)


def answer(handler: Handler[Answer], message: Message[Tensor]) -> Answer:
    """Return the content of the answer of ``handler`` to the content of ``message``, without counting any scalars.

    This takes the place of `Star.ask` for a server that has the clients' data itself, so that nothing is sent.
    """
    return handler(message.content).content
