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
    """What is delivered and what it costs.

    ``content`` is held as the receiver uses it, which may be another form than the one in which it is sent. ``scalars``
    is one number, or one number for each run (R,), or one for each client of each run (R, N).
    """

    content: Content
    scalars: int | Tensor


class When(NamedTuple):
    """The runs that take part in an exchange, ``run``, and the step of each at which it is booked, both (n,) int64."""

    run: Tensor
    step: Tensor


# A round with the clients: they get a tensor, and a handler says what they reply, their sum where that is all the
# server needs. `Star.at` gives the Ask that sends both ways, `answer` is the one of a server that has the data itself.
Handler = Callable[[Tensor], Message[Reply]]
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
    """A perfect network between N = ``clients`` clients and a server, which books the scalars that cross it.

    Another transport would be another ``Star``. With ``charged`` False nothing is booked, which is for what each client
    computes from data that it has already.
    """

    clients: int
    ledger: Ledger
    charged: bool = True

    def collect(self, message: Message[Content], when: When, senders: int | None = None) -> Content:
        """Deliver the ``message`` of the clients to the server, book its scalars, and return its content.

        Args:
            message: What the clients send.
            when: The runs that take part, and the step of each.
            senders: How many clients send in each run; all N if it is None.
        """
        count = self.clients if senders is None else senders
        require(0 <= count <= self.clients, "senders", count, f"at most the N = {self.clients} clients send")
        each = torch.as_tensor(message.scalars)
        if self.charged:
            self.ledger.up.index_put_(when, each.sum(1) if each.ndim == 2 else count * each, accumulate=True)
        return message.content

    def broadcast(self, message: Message[Content], when: When) -> Content:
        """Deliver a ``message`` of the server to all N clients, book its scalars, and return its content.

        The message is charged N times, once for each client.
        """
        if self.charged:
            sent = self.clients * torch.as_tensor(message.scalars)
            self.ledger.down.index_put_(when, sent, accumulate=True)
        return message.content

    def ask(self, handler: Handler[Reply], message: Message[Tensor], when: When) -> Reply:
        """Send ``message`` to each client and collect what ``handler`` makes of it.

        ``handler`` is called once on the content and returns the replies of all clients, often summed already. The
        scalars of both directions are booked to the runs and steps in ``when``.
        """
        return self.collect(handler(self.broadcast(message, when)), when)

    def at(self, when: When) -> Ask:
        """Return `ask` with its scalars booked at ``when``."""
        return partial(self.ask, when=when)


def answer(handler: Handler[Reply], message: Message[Tensor]) -> Reply:
    """Return the reply of ``handler`` to ``message`` where the server has the data itself, so that nothing is sent.

    It takes the place of `Star.ask`.
    """
    return handler(message.content).content
