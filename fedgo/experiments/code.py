"""What code does, as a hash: two texts that differ in comments, docstrings or layout have the same."""

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parents[1]


def hash_of(parts: Iterable[str | bytes]) -> str:
    """Return 16 hexadecimal digits that stand for ``parts`` and for the places where they are divided."""
    total = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        total.update(f"{len(content)}\0".encode() + content)
    return total.hexdigest()[:16]


def bound(tree: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    """Yield, for each import of a module ``name``, the name that it binds and the dotted name of what is imported."""
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
    """Yield the dotted names of what a module ``name`` imports, and of what it uses of an imported package."""
    pairs = [*bound(tree, name)]
    yield from (other for _, other in pairs)
    others = dict(pairs)
    for node in ast.walk(tree):
        first, _, rest = _dotted(node).partition(".")
        if rest and first in others:
            yield f"{others[first]}.{rest}"


def module_of(name: str, package: Path = PACKAGE) -> str:
    """Return the module of the ``package`` that defines ``name``, or "" for a folder and for other packages' names.

    A name that a folder's ``__init__.py`` imports belongs to the module that it comes from, so that one name more in
    there changes nothing for modules that do not use it.
    """
    first, *parts = name.split(".")
    folder, path = first, package
    for part in parts if first == package.name else []:
        if (path / f"{part}.py").is_file():
            return f"{folder}.{part}"
        if not (path / part).is_dir():
            face = path / "__init__.py"
            origins = dict(_read(face, f"{folder}.__init__").bound) if face.is_file() else {}
            return module_of(origins[part], package) if part in origins else f"{folder}.__init__"
        folder, path = f"{folder}.{part}", path / part
    return ""


def hashes(roots: Iterable[str], package: Path = PACKAGE) -> dict[str, str]:
    """Return a hash for each module that defines one of the names ``roots``, and for each that these import from
    ``package``.
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
    """Return one hash of the modules of ``roots`` with all that they import, and of the Python files ``files`` by
    themselves.
    """
    parts = [part for pair in hashes(roots, package).items() for part in pair]
    for name in files:
        parts += [name, _read(package / name, "").hash]
    return hash_of(parts)


def _dotted(node: ast.AST) -> str:
    """Return ``a.b.c`` as text; an expression that does not begin with a name begins with a dot."""
    match node:
        case ast.Attribute(value=value, attr=attribute):
            return f"{_dotted(value)}.{attribute}"
        case ast.Name(id=name):
            return name
    return ""


class _Module(NamedTuple):
    """What is read off a file: a ``hash`` of what its code does, and the names that it binds and imports."""

    hash: str
    bound: tuple[tuple[str, str], ...]
    imported: tuple[str, ...]


def _read(file: Path, name: str) -> _Module:
    """Return what is read off ``file``, the module ``name``; a file that has not changed is read once."""
    return _read_once(file, file.stat().st_mtime_ns, name)


@cache
def _read_once(file: Path, changed: int, name: str) -> _Module:
    """Read ``file``, the module ``name``, without its docstrings; ``changed`` is the time of its last change."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(value=ast.Constant(value=str())), *rest]:
                    node.body = rest
    return _Module(hash_of([ast.dump(tree)]), tuple(bound(tree, name)), tuple(imported(tree, name)))
