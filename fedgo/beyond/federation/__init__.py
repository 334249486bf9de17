"""A federation on clients of your own: a client and a server without a transport, and letters that are bytes."""

from pathlib import Path

DATA = Path(__file__).parent / "data"  # the stored runs of `make federation` and of the limits
