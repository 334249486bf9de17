"""What code does, as a hash: two texts that differ in comments, docstrings or layout have the same."""

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
            origins = _origins(face, face.stat().st_mtime_ns, folder) if face.is_file() else {}
            return module_of(origins[part], package) if part in origins else f"{folder}.__init__"
        folder, path = f"{folder}.{part}", path / part
    return ""


def closure(roots: Iterable[str], package: Path = PACKAGE) -> dict[str, Path]:
    """The files of the modules that define the names ``roots``, and of all that these take from the ``package``."""
    found: dict[str, Path] = {}
    waiting = [*roots]
    while waiting:
        module = module_of(waiting.pop(), package)
        file = package.parent.joinpath(*module.split(".")).with_suffix(".py")
        if module and module not in found and file.is_file():
            found[module] = file
            waiting += _imported(file, file.stat().st_mtime_ns, module)
    return dict(sorted(found.items()))


def hashes(roots: Iterable[str], package: Path = PACKAGE) -> dict[str, str]:
    """A hash of what each module of the `closure` does, by module."""
    files = closure(roots, package).items()
    return {module: _hashed(file, file.stat().st_mtime_ns) for module, file in files}


def code(roots: Iterable[str], files: Iterable[str] = (), package: Path = PACKAGE) -> str:
    """A hash of what the modules ``roots`` and all that they import do, and the Python of ``files`` by themselves."""
    parts = [part for pair in hashes(roots, package).items() for part in pair]
    for name in files:
        parts += [name, _hashed(package / name, (package / name).stat().st_mtime_ns)]
    return digest(parts)


def _dotted(node: ast.AST) -> str:
    """``a.b.c`` as text; what does not begin with a name begins with a dot."""
    match node:
        case ast.Attribute(value=value, attr=attribute):
            return f"{_dotted(value)}.{attribute}"
        case ast.Name(id=name):
            return name
    return ""


@cache
def _origins(face: Path, changed: int, folder: str) -> dict[str, str]:
    """The names that the ``__init__.py`` of a ``folder`` imports, each with where it comes from."""
    return dict(bound(_tree(face, changed), f"{folder}.__init__"))


@cache
def _imported(file: Path, changed: int, name: str) -> tuple[str, ...]:
    return tuple(imported(_tree(file, changed), name))


@cache
def _hashed(file: Path, changed: int) -> str:
    return digest([ast.dump(_tree(file, changed))])


@cache
def _tree(file: Path, changed: int) -> ast.Module:
    """The syntax tree of ``file``, last ``changed`` then."""
    return parsed(file.read_text(encoding="utf-8"))
