"""The book's own scripts, which are no package, as modules for the tests."""

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

BOOK = Path(__file__).resolve().parents[1] / "book"
sys.path.append(str(BOOK))


def shared(name: str):
    """The module of ``book/NAME.py`` that the other scripts import too."""
    return import_module(name)


def load(name: str, called: str | None = None):
    """The module of ``book/NAME.py`` anew, known to other imports as ``called`` (book_NAME unless said)."""
    called = called or f"book_{name}"
    spec = spec_from_file_location(called, BOOK / f"{name}.py")
    module = module_from_spec(spec)
    sys.modules[called] = module
    spec.loader.exec_module(module)
    return module
