"""The states of a client and of a server, and the form of the two tables that say what follows in each.

The tables are `fedgo.beyond.federation.client.CLIENT` and `fedgo.beyond.federation.server.SERVER`. When a letter or a
call comes, client and server look up in them which of their methods handles it. A letter that no table has for the
state is refused with a reason. ŵ₀ is the parameter of the paper's network that the server fits at the end of Phase I.
With a surrogate in place of the network, the server plans the pulls, and there is no ŵ₀.
"""

import inspect
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class ClientState(StrEnum):
    """The states of a client: whether it can play after Phase I, and whether it waits for what follows on its answer.

    ``EXPLORING``: it makes its pulls of Phase I, or waits for ŵ₀. ``PULLING``: it plays by ŵ₀ and the data of all
    clients, or its share of the server's plan; with a surrogate it begins so. ``ANSWERED``: it plays on, but has not
    received what follows on its last answer.
    """

    EXPLORING = "exploring"
    PULLING = "pulling"
    ANSWERED = "answered"


class ServerState(StrEnum):
    """The states of a server: whether an exchange of letters is open, and whether Phase I of the paper is over.

    - ``EXPLORING``: No exchange is open, and ŵ₀ is not fitted. With the network the server begins in this state.
    - ``FITTING``: The exchange is open whose answers ŵ₀ is fitted to.
    - ``CLOSED``: No exchange is open, and ŵ₀ is fitted or not needed. With a surrogate the server begins in this state.
    - ``OPEN``: An exchange is open, and ŵ₀ is fitted or not needed.
    """

    EXPLORING = "closed, before ŵ₀ is fitted"
    FITTING = "open, before ŵ₀ is fitted"
    CLOSED = "closed"
    OPEN = "open"


class Call(StrEnum):
    """The calls of a user to the server that change its state: ``BEGIN`` opens an exchange, and ``MERGE`` closes it."""

    BEGIN = "begin"
    MERGE = "merge"


class Step(NamedTuple):
    """What follows in a state when a letter or a call comes: the method that handles it, and the state after it."""

    handler: Callable[..., Any]
    leads_to: ClientState | ServerState


def described(steps: Mapping[Any, Step]) -> list[list[str]]:
    """Return a row of texts for each entry of a table: the state, what comes, the state after it, and what is done."""
    return [
        [state, event.name, step.leads_to, (inspect.getdoc(step.handler) or "").partition("\n")[0]]
        for (state, event), step in steps.items()
    ]
