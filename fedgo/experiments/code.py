"""Hashes of what Python code does, to see whether stored results come from the present code.

Two texts that differ alone in comments, in layout or in the docstrings of modules, classes and functions have the same
hash.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parents[1]


def hash_of(parts: Iterable[str | bytes]) -> str:
    """Return a hash of ``parts`` and of where each begins, as 16 hexadecimal digits."""
    total = hashlib.sha256()
    for text in parts:
        content = text.encode() if isinstance(text, str) else text
        total.update(f"{len(content)}\0".encode() + content)
    return total.hexdigest()[:16]


def bound(tree: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    """Yield pairs of the names that imports in ``tree`` bind and what they stand for, such as ("c", "a.b").

    ``name`` is that of the module, from which relative imports start; the ``__init__.py`` of a folder ``p`` is
    "p.__init__". A pair may be yielded several times.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                package = alias.name.partition(".")[0]
                yield package, package
                yield alias.asname or alias.name, alias.name
        elif isinstance(node, ast.ImportFrom):
            above = name.split(".")[: -node.level] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                yield alias.asname or alias.name, f"{module}.{alias.name}"


def imported(tree: ast.AST, name: str) -> Iterator[str]:
    """Yield the dotted names that the module ``name`` imports, and those below them that its code uses."""
    pairs = [*bound(tree, name)]
    yield from (other for _, other in pairs)
    others = dict(pairs)
    for node in ast.walk(tree):
        first, _, rest = _dotted(node).partition(".")
        if rest and first in others:
            yield f"{others[first]}.{rest}"


def module_of(name: str, package: Path = PACKAGE) -> str:
    """Return the module of the package that defines the dotted ``name``, or "" if it is a folder or not of the package.

    A name that the ``__init__.py`` of a folder imports belongs to the module that it is imported from. Therefore
    another import in that file changes nothing for modules that do not use it.
    """
    first, *rest = name.split(".")
    folder, path = first, package
    for step in rest if first == package.name else []:
        if (path / f"{step}.py").is_file():
            return f"{folder}.{step}"
        if not (path / step).is_dir():
            face = path / "__init__.py"
            origins = dict(_read(face, f"{folder}.__init__").bound) if face.is_file() else {}
            return module_of(origins[step], package) if step in origins else f"{folder}.__init__"
        folder, path = f"{folder}.{step}", path / step
    return ""


def hashes(roots: Iterable[str], package: Path = PACKAGE) -> dict[str, str]:
    """Return a hash for each module of the package that the names ``roots`` need, directly or through imports.

    Names of folders and of other packages are passed over.
    """
    hash_by_module: dict[str, str] = {}
    waiting = [*roots]
    while waiting:
        module = module_of(waiting.pop(), package)
        file = package.parent.joinpath(*module.split(".")).with_suffix(".py")
        if module and module not in hash_by_module and file.is_file():
            hash_by_module[module] = _read(file, module).hash
            waiting += _read(file, module).imported
    return dict(sorted(hash_by_module.items()))


def code(roots: Iterable[str], files: Iterable[str] = (), package: Path = PACKAGE) -> str:
    """Return one hash of all the code that some names need.

    Args:
        roots: Dotted names; the code of their modules and of all modules of the package that these import counts.
        files: Paths of further files, relative to the folder of the package, which count without their imports.
        package: The folder of the package.
    """
    by_name = hashes(roots, package) | {name: _read(package / name, "").hash for name in files}
    return hash_of(text for pair in by_name.items() for text in pair)


def _dotted(node: ast.AST) -> str:
    """Return an expression such as ``a.b.c`` as text; "" if it is neither a name nor an attribute."""
    match node:
        case ast.Attribute(value=value, attr=attribute):
            return f"{_dotted(value)}.{attribute}"
        case ast.Name(id=name):
            return name
    return ""


class _Module(NamedTuple):
    """A module as read from its file: the ``hash`` of its code, and what `bound` and `imported` yield for it."""

    hash: str
    bound: tuple[tuple[str, str], ...]
    imported: tuple[str, ...]


def _read(file: Path, name: str) -> _Module:
    """Return the `_Module` of the module ``name`` in ``file``, which is read again only if it has changed."""
    return _read_once(file, file.stat().st_mtime_ns, name)


@cache
def _read_once(file: Path, changed: int, name: str) -> _Module:
    """Return the `_Module`, with the hash of its code without docstrings; ``changed`` is part of the cache's key."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(value=ast.Constant(value=str())), *rest]:
                    node.body = rest
    return _Module(hash_of([ast.dump(tree)]), tuple(bound(tree, name)), tuple(imported(tree, name)))
