"""A federation of your own clients: a client and a server without a transport, whose messages (letters) are bytes."""

from pathlib import Path

DATA = Path(__file__).parent / "data"  # the stored runs of `make federation` and of the limits
