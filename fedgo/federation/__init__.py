"""Fed-GO-UCB on clients of your own: a client and a server without a transport, and letters that are bytes."""

from fedgo.federation.client import Client
from fedgo.federation.local import at_random, converse, play
from fedgo.federation.plan import Fitting, Plan
from fedgo.federation.server import Server
from fedgo.federation.study import Options, Standing, Study, table
from fedgo.federation.wire import Kind, Letter, Refused, decode

__all__ = [
    "Client",
    "Fitting",
    "Kind",
    "Letter",
    "Options",
    "Plan",
    "Refused",
    "Server",
    "Standing",
    "Study",
    "at_random",
    "converse",
    "decode",
    "play",
    "table",
]
