"""The star of N clients around one server: it delivers their messages and counts the scalars that are sent.

The communication cost C_NT, of N clients in T rounds, is "the total amount of real numbers being transferred" (Section
3). Whatever a client and the server exchange over the star is a `Message`: a content, and the number of scalars that it
costs to send. The tensors in a content have the runs as their first axis. If each client sends a content of its own,
the second axis is that of the clients; a content that the server sends to all clients has no such axis, or one of
length 1.
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
    ``scalars`` is the cost of sending the message once, over the line of one client, a whole number or int64: one
    number for all runs, one for each of R runs (R,), or, for messages of the clients, one for each of N clients in each
    run (R, N).
    """

    content: Content
    scalars: int | Tensor


class When(NamedTuple):
    """The runs that take part in an exchange, and the steps at which its scalars are counted.

    ``run`` has the positions of R runs among all S runs, and ``step`` the step of each of these R runs, counted from 0
    with Phase I included, (R,) int64 each.
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
        """Return a ledger for S = ``runs`` runs in which ``up`` and ``down`` are zeros, (S, ``steps``) int64 each."""
        return cls(*(torch.zeros(runs, steps, dtype=torch.int64) for _ in range(2)))


class Star(NamedTuple):
    """A network without losses between a server and N = ``clients`` clients, which counts the scalars sent.

    The numbers of scalars are added to the arrays of ``ledger``, in place. If ``charged`` is False, nothing is counted;
    this is for results that each client can compute from data that it has already.
    """

    clients: int
    ledger: Ledger
    charged: bool = True

    def collect(self, message: Message[Content], when: When, senders: int | None = None) -> Content:
        """Deliver the ``message`` of the clients to the server: count its scalars and return its content.

        The scalars are added to the ledger's ``up``, in place, unless the star is not ``charged``.

        Args:
            message: What the clients send. Its scalars are those of each client, (R, N); or those of one sender, one
                number for all R runs or (R,), which are multiplied by the number of senders.
            when: The R runs that take part, and the step of each at which the scalars are counted.
            senders: How many of the N clients send in each run, or None for all. The number is checked but not used if
                the scalars of each client are given.

        Raises:
            ValueError: ``senders`` is not from 0 to N.
            IndexError: A run or a step is not in the ledger; a negative number counts from the end.
            RuntimeError: The number of scalars is neither an ``int`` nor int64, or its shape does not fit the R runs.
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

        The scalars are added to the ledger's ``down``, in place, unless the star is not ``charged``.

        Args:
            message: What the server sends to each client. Its scalars are one number for all R runs, or (R,).
            when: The R runs that take part, and the step of each at which the scalars are counted.

        Raises:
            IndexError: A run or a step is not in the ledger; a negative number counts from the end.
            RuntimeError: The number of scalars is neither an ``int`` nor int64, or its shape does not fit the R runs.
        """
        if self.charged:
            sent = self.clients * torch.as_tensor(message.scalars)
            self.ledger.down.index_put_(when, sent, accumulate=True)
        return message.content

    def ask(self, handler: Handler[Answer], message: Message[Tensor], when: When) -> Answer:
        """Send ``message`` to all N clients, call ``handler`` once on its content, and return the answer.

        The scalars in both directions are added to the ledger, unless the star is not ``charged``.

        Args:
            handler: A function that computes the clients' answers from the content: it returns one `Message` whose
                content is the answers of all clients, or their sum. Its scalars are those of one client's answer, or
                those of each client, (R, N).
            message: What the server sends to each client, with the scalars of sending it to one client.
            when: The R runs that take part, and the step of each at which the scalars are counted.

        Returns:
            The content of the message that ``handler`` returns.

        Raises:
            IndexError: A run or a step is not in the ledger; a negative number counts from the end.
            RuntimeError: A number of scalars is neither an ``int`` nor int64, or its shape does not fit the R runs.
        """
        return self.collect(handler(self.broadcast(message, when)), when)

    def at(self, when: When) -> Ask:
        """Return a function of a handler and a message that calls `ask` with these two and with ``when``.

        The function sends the message to all clients, calls the handler on its content, and returns the content of the
        handler's message. It counts the scalars of both directions for the runs and steps of ``when``.
        """
        return partial(self.ask, when=when)


def answer(handler: Handler[Answer], message: Message[Tensor]) -> Answer:
    """Call ``handler`` on the content of ``message``, and return the content of the message that ``handler`` returns.

    No scalars are counted. This function takes the place of `Star.ask` for a server that has the clients' data itself,
    so that nothing is sent.
    """
    return handler(message.content).content
