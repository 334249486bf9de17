"""Public names of a package that are loaded when they are first asked for (PEP 562)."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loader(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a ``package`` whose names are loaded when they are first asked for.

    Args:
        package: The name of the package, ``__name__`` in its ``__init__.py``.
        modules: The names that each module has, by the module's name below the package.
    """
    origin = {name: module for module, names in modules.items() for name in names}

    def load(name: str) -> Any:
        if name not in origin:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{origin[name]}"), name)

    return load
