"""One thread: faster at these sizes, and the same sums in the same order everywhere. And fixtures to look inside,
and to write the package's tables elsewhere."""

from types import SimpleNamespace

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture
def watch(monkeypatch):
    """Collects the results of a method, with its arguments."""

    def start(owner, name):
        calls, method = [], getattr(owner, name)

        def watched(*args, **options):
            result = method(*args, **options)
            calls.append(SimpleNamespace(args=args, kwargs=options, result=result))
            return result

        monkeypatch.setattr(owner, name, watched)
        return calls

    return start


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """An empty folder in the place of the shipped tables."""
    from fedgo.paper import record  # here: most tests need no table

    monkeypatch.setattr(record, "DATA", tmp_path)
    record.read.cache_clear()
    yield tmp_path
    record.read.cache_clear()
