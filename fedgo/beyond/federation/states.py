"""The states of a client and of a server, and the form of the two tables that say what follows in each.

The tables are `fedgo.beyond.federation.client.CLIENT` and `fedgo.beyond.federation.server.SERVER`. Client and server
look up in them which of their methods follows on a letter or a call. A pair of a state and a letter that is in no table
is refused in words. The page on twelve sites draws and shows both tables.
"""

import inspect
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class ClientState(StrEnum):
    """What a client has done last; only with a network does it begin as ``EXPLORING``, else as ``PULLING``."""

    EXPLORING = "exploring"  # it makes its pulls of Phase I, or waits for ŵ₀
    PULLING = "pulling"  # it plays by ŵ₀ and the news, or in its share of the plan
    ANSWERED = "answered"  # the same, and the news of its last answer, or a new share, have not come


class ServerState(StrEnum):
    """Whether an exchange of the server is open; only with a network it begins as ``EXPLORING``, else as ``CLOSED``."""

    EXPLORING = "closed, before ŵ₀ is fitted"
    FITTING = "open, before ŵ₀ is fitted"
    CLOSED = "closed"
    OPEN = "open"


class Call(StrEnum):
    """What the server's user calls for, beside the letters that come."""

    BEGIN = "begin"
    MERGE = "merge"


class Step(NamedTuple):
    """What follows in a state: the method ``handler``, whose docstring says what it does, and the state after it."""

    handler: Callable[..., Any]
    leads_to: ClientState | ServerState


def described(steps: Mapping[Any, Step]) -> list[list[str]]:
    """Return a row for each of the ``steps``: the state, what comes, the state after it, and what follows.

    What follows is the first sentence of the docstring of the step's handler.
    """
    return [
        [state, event.name, step.leads_to, (inspect.getdoc(step.handler) or "").partition("\n")[0]]
        for (state, event), step in steps.items()
    ]
