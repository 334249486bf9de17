"""The states of a client and of a server, and the form of the two tables that say what follows in each.

The tables are `fedgo.beyond.federation.client.CLIENT` and `fedgo.beyond.federation.server.SERVER`. When a letter (a
message) or a call comes, client and server look up in them which of their methods handles it. A pair of a state and a
letter that is in no table is refused with a reason. The page on twelve sites draws and shows both tables.
"""

import inspect
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class ClientState(StrEnum):
    """The states of a client: whether it has ŵ₀ to play by (a surrogate needs none), and whether it waits for what
    follows on its last answer.

    ``EXPLORING``: it makes its pulls of Phase I, or waits for ŵ₀. ``PULLING``: it plays by ŵ₀ and the news, or its
    share of the plan. ``ANSWERED``: it plays on, but has not received what follows on its last answer. With the paper's
    network a client begins as ``EXPLORING``, with a surrogate as ``PULLING``.
    """

    EXPLORING = "exploring"
    PULLING = "pulling"
    ANSWERED = "answered"


class ServerState(StrEnum):
    """The states of a server: whether an exchange of letters is open, and whether it is about Phase I of the paper.

    ``EXPLORING`` and ``CLOSED``: no exchange is open, before ŵ₀ is fitted and afterwards. ``FITTING`` and ``OPEN``: an
    exchange is open, before ŵ₀ is fitted and afterwards. With the paper's network a server begins as ``EXPLORING``,
    with a surrogate as ``CLOSED``.
    """

    EXPLORING = "closed, before ŵ₀ is fitted"
    FITTING = "open, before ŵ₀ is fitted"
    CLOSED = "closed"
    OPEN = "open"


class Call(StrEnum):
    """The calls by the server's user that change its state: ``BEGIN`` opens an exchange, and ``MERGE`` closes it."""

    BEGIN = "begin"
    MERGE = "merge"


class Step(NamedTuple):
    """What follows in a state when a letter or a call comes.

    Args:
        handler: The method that handles it; the first line of its docstring says what it does.
        leads_to: The state after it.
    """

    handler: Callable[..., Any]
    leads_to: ClientState | ServerState


def described(steps: Mapping[Any, Step]) -> list[list[str]]:
    """Return a row of four texts for each of the ``steps``, to be shown as a table.

    They are the state, the name of the letter or call that comes, the state after it, and what follows, which is the
    first line of the docstring of the handler.

    Args:
        steps: The steps by state and kind of letter or call, as in `fedgo.beyond.federation.client.CLIENT`.
    """
    return [
        [state, event.name, step.leads_to, (inspect.getdoc(step.handler) or "").partition("\n")[0]]
        for (state, event), step in steps.items()
    ]
