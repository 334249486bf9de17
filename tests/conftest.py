"""One thread: faster at these sizes, and the same sums in the same order everywhere. And fixtures to look inside,
and to write the package's tables elsewhere."""

import os
from types import SimpleNamespace

import pytest
import torch

torch.set_num_threads(1)
os.fsync = lambda descriptor: None  # the tests cut no power, and a busy disk takes seconds for each file
# Only Unix has fork, named pipes, modes of files, signals that end a process, and the shell of postBuild.
BEYOND = ("attacks", "federation", "files", "flare", "random_attacks", "shell", "study_attacks")
UNIX = ["test_repository.py", *(f"beyond/test_{name}.py" for name in BEYOND)]
collect_ignore = [] if os.name == "posix" else UNIX
# A process that a test starts passes over what a chapter does, as the tests themselves do (see pyproject.toml).
os.environ["PYTHONWARNINGS"] = "ignore:`torch.jit.script` is"


@pytest.fixture
def watch(monkeypatch):
    """Collects the results of a method, with its arguments as they were."""

    def start(owner, name):
        calls, method = [], getattr(owner, name)

        def watched(*args, **options):
            before = _copied(args)
            result = method(*args, **options)
            calls.append(SimpleNamespace(args=before, kwargs=options, result=result))
            return result

        monkeypatch.setattr(owner, name, watched)
        return calls

    return start


def _copied(part):
    """``part`` with tensors of its own, in tuples too: what a state was, though a later step is made in its memory."""
    if isinstance(part, torch.Tensor):
        return part.clone()
    if isinstance(part, tuple):
        return type(part)(*map(_copied, part)) if hasattr(part, "_fields") else tuple(map(_copied, part))
    return part
