"""The states of a client and of a server, and the form of the two tables that say what follows in each.

The tables are `fedgo.beyond.federation.client.CLIENT` and `fedgo.beyond.federation.server.SERVER`. When a letter (a
message) or a call comes, client and server look up in them which of their methods handles it. A letter that no table
has for the state is refused with a reason. The page on twelve sites draws and shows both tables.
"""

import inspect
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class ClientState(StrEnum):
    """The states of a client: whether it can play after Phase I, and whether it waits for what follows on its answer.

    ŵ₀ is the parameter of the paper's network that the server fits after Phase I and sends to the clients. With a
    surrogate in place of the network, the server plans the pulls, and there is no ŵ₀.

    - ``EXPLORING``: The client makes its pulls of Phase I, or waits for ŵ₀. With the network it begins in this state.
    - ``PULLING``: It plays by ŵ₀ and the data of all clients, or its share of the server's plan. With a surrogate it
      begins in this state.
    - ``ANSWERED``: It plays on, but has not received what follows on its last answer.
    """

    EXPLORING = "exploring"
    PULLING = "pulling"
    ANSWERED = "answered"


class ServerState(StrEnum):
    """The states of a server: whether an exchange of letters is open, and whether Phase I of the paper is over.

    At the end of Phase I the server fits the parameter ŵ₀ of the paper's network. With a surrogate in place of the
    network there is no ŵ₀, and the server is ``CLOSED`` or ``OPEN`` from the start.

    - ``EXPLORING``: No exchange is open, and ŵ₀ is not fitted. With the network the server begins in this state.
    - ``FITTING``: The exchange is open whose answers ŵ₀ is fitted to.
    - ``CLOSED``: No exchange is open. With the network, ŵ₀ is fitted.
    - ``OPEN``: An exchange is open. With the network, ŵ₀ is fitted.
    """

    EXPLORING = "closed, before ŵ₀ is fitted"
    FITTING = "open, before ŵ₀ is fitted"
    CLOSED = "closed"
    OPEN = "open"


class Call(StrEnum):
    """The calls of a user to the server that change its state.

    ``BEGIN`` opens an exchange of letters with the clients, and ``MERGE`` closes it.
    """

    BEGIN = "begin"
    MERGE = "merge"


class Step(NamedTuple):
    """An entry of the table of a client or of the server: what follows in a state when a letter or a call comes.

    Args:
        handler: The method of the client or server that handles the letter or call. The first line of its docstring
            says what it does.
        leads_to: The state of the client or server after the method has returned.
    """

    handler: Callable[..., Any]
    leads_to: ClientState | ServerState


def described(steps: Mapping[Any, Step]) -> list[list[str]]:
    """Return a row of four texts for each entry of a table of client or server, so that a page can show the table.

    Args:
        steps: The entries by their keys. A key is a pair of a state and a kind of letter or a call, as in
            `fedgo.beyond.federation.client.CLIENT`.

    Returns:
        The rows in the order of ``steps``. The texts of a row are the state, the name of the kind of letter or of the
        call that comes, the state after it, and the first line of the handler's docstring (empty if it has none).
    """
    return [
        [state, event.name, step.leads_to, (inspect.getdoc(step.handler) or "").partition("\n")[0]]
        for (state, event), step in steps.items()
    ]
