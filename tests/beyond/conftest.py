"""Fixtures of the federation's tests."""

import pytest


@pytest.fixture
def kept_at_every_step(tmp_path, monkeypatch):
    """Clients and servers of a plan are saved, emptied and loaded before and after each of their steps."""
    from fedgo.beyond import Client, Server

    def start(plan):
        def reloaded(party, kind):
            party.save(tmp_path / "file.npz")
            party.__dict__.clear()
            party.__dict__.update(kind.load(tmp_path / "file.npz", plan).__dict__)

        def around(kind, method):
            def inner(self):
                reloaded(self, kind)
                result = method(self)
                reloaded(self, kind)
                return result

            return inner

        for kind, name in ((Client, "ask"), (Server, "begin"), (Server, "merge")):
            monkeypatch.setattr(kind, name, around(kind, getattr(kind, name)))

    return start
