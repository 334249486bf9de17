"""What code does, as a hash: two texts that differ in comments, docstrings or layout have the same."""

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parents[1]


def hash_of(parts: Iterable[str | bytes]) -> str:
    """16 hexadecimal digits that stand for ``parts`` and the places where they are divided."""
    total = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        total.update(f"{len(content)}\0".encode() + content)
    return total.hexdigest()[:16]


def bound(tree: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    """The names that the imports of a module ``name`` give to others, and those of these others, with dots."""
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
    """What a module ``name`` takes from others, with dots: what it imports, and what it names after a package."""
    pairs = [*bound(tree, name)]
    yield from (other for _, other in pairs)
    others = dict(pairs)
    for node in ast.walk(tree):
        first, _, rest = _dotted(node).partition(".")
        if rest and first in others:
            yield f"{others[first]}.{rest}"


def module_of(name: str, package: Path = PACKAGE) -> str:
    """The module of the ``package`` that defines ``name``; empty for a folder of it, and for what is not its own.

    A name that a folder's ``__init__.py`` imports is that of the module it comes from. So a name more in there changes
    nothing for whoever does not use it.
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
    """A hash of what each module does that defines one of the names ``roots``, and of all that these take from the
    ``package``, by module."""
    found: dict[str, str] = {}
    waiting = [*roots]
    while waiting:
        module = module_of(waiting.pop(), package)
        file = package.parent.joinpath(*module.split(".")).with_suffix(".py")
        if module and module not in found and file.is_file():
            found[module] = _read(file, module).hash
            waiting += _read(file, module).imported
    return dict(sorted(found.items()))


def code(roots: Iterable[str], files: Iterable[str] = (), package: Path = PACKAGE) -> str:
    """A hash of what the modules ``roots`` and all that they import do, and the Python of ``files`` by themselves."""
    parts = [part for pair in hashes(roots, package).items() for part in pair]
    for name in files:
        parts += [name, _read(package / name, "").hash]
    return hash_of(parts)


def _dotted(node: ast.AST) -> str:
    """``a.b.c`` as text; what does not begin with a name begins with a dot."""
    match node:
        case ast.Attribute(value=value, attr=attribute):
            return f"{_dotted(value)}.{attribute}"
        case ast.Name(id=name):
            return name
    return ""


class _Module(NamedTuple):
    """What is read off a file: a ``hash`` of what it does, and the names that are ``bound`` and ``imported``."""

    hash: str
    bound: tuple[tuple[str, str], ...]
    imported: tuple[str, ...]


def _read(file: Path, name: str) -> _Module:
    return _read_once(file, file.stat().st_mtime_ns, name)


@cache
def _read_once(file: Path, changed: int, name: str) -> _Module:
    """The ``file`` of the module ``name``, last ``changed`` then, without its docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(value=ast.Constant(value=str())), *rest]:
                    node.body = rest
    return _Module(hash_of([ast.dump(tree)]), tuple(bound(tree, name)), tuple(imported(tree, name)))
