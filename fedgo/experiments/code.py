"""What code does, as a hash: two texts that differ in comments, docstrings or layout have the same.

Only the standard library is needed here, so that the book's build, which compares such hashes, need not load torch.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def parsed(text: str) -> ast.Module:
    """The syntax tree of ``text`` without its docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(value=ast.Constant(value=str())), *rest]:
                    node.body = rest
    return tree


def digest(parts: Iterable[str | bytes]) -> str:
    """16 hexadecimal digits that stand for ``parts`` and the places where they are divided."""
    total = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        total.update(f"{len(content)}\0".encode() + content)
    return total.hexdigest()[:16]


def imported(tree: ast.AST, name: str) -> Iterator[str]:
    """The modules that a module ``name`` may import, as far as its text says; some of them may be mere names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = name.split(".")[: -node.level] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def closure(roots: Iterable[str], package: Path = PACKAGE) -> dict[str, Path]:
    """The files of the modules ``roots`` of the ``package`` and of all that these import from it, by module.

    The packages around a module are among them, but not what these import for the sake of others.
    """
    found: dict[str, Path] = {}
    waiting = [*roots]
    while waiting:
        name = waiting.pop()
        first, *parts = name.split(".")
        path = package.joinpath(*parts)
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if first != package.name or name in found or not file.is_file():
            continue
        found[name] = file
        if path.is_dir():
            continue
        waiting += _imported(file, file.stat().st_mtime_ns, name)
        waiting += [".".join([first, *parts[:depth]]) for depth in range(len(parts))]
    return dict(sorted(found.items()))


def code(roots: Iterable[str], files: Iterable[str] = (), package: Path = PACKAGE) -> str:
    """A hash of what the modules ``roots`` and all that they import from the ``package`` do.

    ``files`` of the package count too, with their bytes or, if they hold Python, with what that does by itself.
    """
    parts: list[str | bytes] = []
    for name, file in closure(roots, package).items():
        parts += [name, _dumped(file, file.stat().st_mtime_ns)]
    for name in files:
        file = package / name
        parts += [name, _dumped(file, file.stat().st_mtime_ns) if file.suffix == ".py" else file.read_bytes()]
    return digest(parts)


@cache
def _imported(file: Path, changed: int, name: str) -> tuple[str, ...]:
    return tuple(imported(_tree(file, changed), name))


@cache
def _dumped(file: Path, changed: int) -> str:
    return ast.dump(_tree(file, changed))


@cache
def _tree(file: Path, changed: int) -> ast.Module:
    """The syntax tree of ``file``, last ``changed`` then."""
    return parsed(file.read_text(encoding="utf-8"))
