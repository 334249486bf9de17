"""The book's own scripts, which are no package, as modules for the tests."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

BOOK = Path(__file__).resolve().parents[1] / "book"


def load(name: str, called: str | None = None):
    """The module of ``book/NAME.py``, known to other imports as ``called`` (book_NAME unless said)."""
    called = called or f"book_{name}"
    spec = spec_from_file_location(called, BOOK / f"{name}.py")
    module = module_from_spec(spec)
    sys.modules[called] = module
    spec.loader.exec_module(module)
    return module
