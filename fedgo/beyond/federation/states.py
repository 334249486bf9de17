"""The states of a client and of a server, and two tables that say what follows in each on a letter or a call.

`fedgo.beyond.federation.client.Client.answer` looks its handler up in ``CLIENT``, and the methods of
`fedgo.beyond.federation.server.Server` look theirs up in ``SERVER``. A pair of a state and a letter that is in no table
is refused in words. The page on twelve sites shows both tables.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from fedgo.beyond.federation.wire import Kind


class ClientState(StrEnum):
    """What a client has done last; only with a network does it begin as ``EXPLORING``, else as ``PULLING``."""

    EXPLORING = "exploring"  # it makes its pulls of Phase I, and has no ŵ₀
    EXPLORED = "explored"  # it has answered without ŵ₀, and waits for it
    PULLING = "pulling"  # it plays by ŵ₀ and the news, or in its share of the plan
    CALLING = "calling"  # the same, and its event has fired or its share is used up
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
    """What follows: the method ``handler``, the state that it leads to, and a sentence that says what it does."""

    handler: str
    leads_to: ClientState | ServerState
    words: str


_PHASE_ONE = "It answers with the counts and sums of Phase I, or with none if others have ended Phase I."
_SINCE = "It answers with the counts and sums of all its pulls that the server has not used."
_START = "It takes over ŵ₀, and sums residuals around ŵ₀ from now on."
_NEWS = (
    "It adds the counts and sums of the others to its model, and keeps what it has pulled since its answer."
)
_PLAN = "It begins the new share, and keeps what it has pulled since its answer."
CLIENT: Mapping[tuple[ClientState, Kind], Step] = {
    (ClientState.EXPLORING, Kind.SYNCHRONISE): Step("_answer_early", ClientState.EXPLORED, _PHASE_ONE),
    (ClientState.EXPLORING, Kind.START): Step("_start", ClientState.PULLING, _START),
    (ClientState.EXPLORED, Kind.SYNCHRONISE): Step("_answer_early", ClientState.EXPLORED, _PHASE_ONE),
    (ClientState.EXPLORED, Kind.START): Step("_start", ClientState.PULLING, _START),
    (ClientState.PULLING, Kind.SYNCHRONISE): Step("_answer_since", ClientState.ANSWERED, _SINCE),
    (ClientState.CALLING, Kind.SYNCHRONISE): Step("_answer_since", ClientState.ANSWERED, _SINCE),
    (ClientState.ANSWERED, Kind.SYNCHRONISE): Step("_answer_since", ClientState.ANSWERED, _SINCE),
    (ClientState.ANSWERED, Kind.NEWS): Step("_learn", ClientState.PULLING, _NEWS),
    (ClientState.ANSWERED, Kind.PLAN): Step("_follow", ClientState.PULLING, _PLAN),
}
_OPENS = "It opens an exchange, and its letters are requests to all clients."
_KEEPS = "It checks the answer and keeps it; a second answer of the same client changes nothing."
_FITS = "It fits ŵ₀ to the answers of Phase I, and its letters send ŵ₀ to every client."
_MERGES = "It adds up the answers; its letters send news or shares to those who answered, and to nobody else."
SERVER: Mapping[tuple[ServerState, Kind | Call], Step] = {
    (ServerState.EXPLORING, Call.BEGIN): Step("_open", ServerState.FITTING, _OPENS),
    (ServerState.FITTING, Kind.STATISTICS): Step("_require_phase_one", ServerState.FITTING, _KEEPS),
    (ServerState.FITTING, Call.MERGE): Step("_fit", ServerState.CLOSED, _FITS),
    (ServerState.CLOSED, Call.BEGIN): Step("_open", ServerState.OPEN, _OPENS),
    (ServerState.OPEN, Kind.STATISTICS): Step("_require_due", ServerState.OPEN, _KEEPS),
    (ServerState.OPEN, Call.MERGE): Step("_add_up", ServerState.CLOSED, _MERGES),
}


def described(steps: Mapping[tuple[StrEnum, Kind | Call], Step]) -> list[list[str]]:
    """Return a row for each of the ``steps``: the state, what comes, the state after it, and what follows."""
    return [[state, event.name, step.leads_to, step.words] for (state, event), step in steps.items()]
