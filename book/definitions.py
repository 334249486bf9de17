"""What a notebook uses of the package, definition by definition, and whether that is still the same.

A file of the package falls into entries: functions, methods ("Class.method"), classes without their methods, imports,
assignments, and "" for all other statements. A notebook uses the functions that its kernel executed, the entries that
these and the notebook's own cells mention, and so on from entry to entry. An entry is known by a hash of its syntax
tree, in which docstrings, comments and layout leave no trace.
"""

import ast
import builtins
import hashlib
import importlib.util
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "fedgo"
CHANGING = "edited while the notebook ran"  # in place of a hash: equal to none
BUILTINS = frozenset(dir(builtins))

Used = dict[str, dict[str, str]]  # file, entry, hash


def _load(name: str, path: Path) -> Any:
    """The module of the package in the file ``path``, without the package around it, which would load torch."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


code = _load("fedgo_paper_code", ROOT / "fedgo/experiments/code.py")


class Entry(NamedTuple):
    """A definition: its hash, the identifiers in it, and whether it is a function, which is used if it runs."""

    hash: str
    mentions: frozenset[str]
    runs: bool


class Module(NamedTuple):
    """A file: the hash of its bytes, and its entries."""

    content: str
    entries: dict[str, Entry]


Package = dict[str, Module]  # by file, relative to the root


def mentions(*nodes: ast.AST) -> frozenset[str]:
    """Every identifier in ``nodes``, also where it stands in a string, as for ``getattr`` or in an annotation."""
    found: set[str] = set()
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found.add(name)
            case ast.alias(name=name):
                found.update(name.split("."))
            case ast.ImportFrom(module=str(name)):
                found.update(name.split("."))
            case ast.Constant(value=str(text)):
                found.update(re.findall(r"\w+", text))
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                found.add(name)
    return frozenset(found)


def _bound(statement: ast.stmt) -> list[str]:
    """The names that an assignment binds; none of any other statement, or where it is more than names."""
    match statement:
        case ast.Assign(targets=targets):
            pass
        case ast.AnnAssign(target=target):
            targets = [target]
        case _:
            return []
    names = [node for target in targets for node in getattr(target, "elts", [target])]
    return (
        [node.id for node in names if isinstance(node, ast.Name)]
        if all(isinstance(node, ast.Name) for node in names)
        else []
    )


def _skeleton(node: ast.ClassDef) -> ast.ClassDef:
    """A class without its methods, of which the names stay where a name alone can change what the class does."""
    fields = {name for statement in node.body for name in _bound(statement)}
    body: list[ast.stmt] = []
    for statement in node.body:
        if not isinstance(statement, ast.FunctionDef):
            body.append(statement)
        elif node.bases or statement.name.startswith("__") or statement.name in fields:
            body.append(ast.Expr(ast.Constant(statement.name)))
    return ast.ClassDef(node.name, node.bases, node.keywords, body, node.decorator_list)


def _parts(scope: ast.Module | ast.ClassDef, within: str = "") -> Iterator[tuple[str, ast.AST, bool]]:
    """The entries of a file, or the methods of a class: name, tree, and whether it is a function."""
    for node in scope.body:
        match node:
            case ast.FunctionDef(name=name):
                yield within + name, node, True
                if node.decorator_list and not within:  # is called even if the function never is
                    yield f"@{name}", ast.Tuple(node.decorator_list, ast.Load()), False
            case ast.ClassDef(name=name):
                if not within:
                    yield name, _skeleton(node), False
                yield from _parts(node, f"{within}{name}.")
            case ast.Import(names=names) | ast.ImportFrom(names=names) if not within:
                for alias in names:
                    one: ast.stmt = ast.Import([alias])
                    if isinstance(node, ast.ImportFrom):
                        one = ast.ImportFrom(node.module, [alias], node.level)
                    bound = alias.asname or alias.name.partition(".")[0]
                    yield "" if bound == "*" else bound, one, False
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue  # nothing that runs
            case _ if not within:
                for name in _bound(node) or [""]:
                    yield name, node, False


def module(content: bytes) -> Module:
    """What a file of the package defines."""
    trees: dict[str, list[ast.AST]] = {}
    functions: dict[str, bool] = {}
    for name, tree, function in _parts(code.parsed(content.decode())):
        trees.setdefault(name, []).append(tree)
        functions[name] = function
    entries = {
        name: Entry(code.digest(map(ast.dump, parts)), mentions(*parts), functions[name])
        for name, parts in trees.items()
    }
    return Module(sha256(content), entries)


def sha256(content: bytes) -> str:
    """Hash of a file's content."""
    return hashlib.sha256(content).hexdigest()


def package(root: Path) -> Package:
    """What the package below ``root`` defines now."""
    files = sorted((root / PACKAGE).rglob("*.py"))
    return {file.relative_to(root).as_posix(): module(file.read_bytes()) for file in files}


def used(ran: Mapping[str, Collection[str]], cells: Iterable[str], now: Package) -> Used:
    """What a notebook used: the functions that ``ran``, by imported file, and what they and its ``cells`` mention."""
    files = {file: now[file].entries for file in ran if file in now}
    found: dict[str, set[str]] = {file: set() for file in files}
    said = set(mentions(*map(tree, cells)))
    grows = True
    while grows:
        grows = False
        for file, entries in files.items():
            for name in entries.keys() - found[file]:
                entry = entries[name]
                mentioned = not entry.runs and (name == "" or name.lstrip("@") in said)
                if mentioned or name in ran[file] or name in BUILTINS:
                    found[file].add(name)
                    said |= entry.mentions | {name.partition(".")[0]}
                    grows = True
    return {file: {name: files[file][name].hash for name in sorted(names)} for file, names in found.items()}


def tree(cell: str) -> ast.Module:
    """The syntax tree of a cell, without IPython's own lines; what is no Python is taken for a string."""
    lines = ("" if line.lstrip().startswith(("%", "!")) else line for line in cell.splitlines())
    try:
        return ast.parse("\n".join(lines))
    except SyntaxError:
        return ast.Module([ast.Expr(ast.Constant(cell))], [])


def changed(before: Used, now: Package) -> str:
    """Why what was ``used`` is not the same ``now``; empty if it is."""
    for file, entries in before.items():
        if file not in now:
            return f"{file} is gone"
        today = now[file].entries
        for name, value in entries.items():
            if value == CHANGING:
                return f"{file} was {CHANGING}"
            if name not in today:
                return f"{file}: {name or 'a statement'} is gone"
            if today[name].hash != value:
                return f"{file}: {name or 'a statement'} changed"
        if new := sorted(BUILTINS & today.keys() - entries.keys()):
            return f"{file}: {new[0]} is new and hides a name of Python's own"
    return ""
