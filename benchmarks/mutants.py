"""`make mutants`: random faults in the package, one at a time, against the tests that import the module.

A mutant has one operator, comparison, constant or sign changed, or a clamp dropped; the draw is seeded. It is caught if
a test fails, or none ends in time. Survivors are printed with their line: each wants a test, or a reason.
"""

import argparse
import ast
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
_FIRST = 3  # tests that are run before the others
WITH_BOOK = {"test_site.py", "test_pdf.py", "test_wheel.py", "test_determinism.py"}
OPERATORS: dict[type, type] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Mod: ast.FloorDiv},
    **{ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd},
    **{
        ast.Lt: ast.LtE,
        ast.LtE: ast.Lt,
        ast.Gt: ast.GtE,
        ast.GtE: ast.Gt,
        ast.Eq: ast.NotEq,
        ast.NotEq: ast.Eq,
    },
    **{ast.And: ast.Or, ast.Or: ast.And},
}


def mutated(node: ast.AST) -> ast.expr | None:
    """``node`` with its fault, or nothing where none is known."""
    match node:
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            return ast.BinOp(node.left, OPERATORS[type(op)](), node.right)
        case ast.Compare(ops=[op]) if type(op) in OPERATORS:
            return ast.Compare(node.left, [OPERATORS[type(op)]()], node.comparators)
        case ast.BoolOp(op=op):
            return ast.BoolOp(OPERATORS[type(op)](), node.values)
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert()):
            return node.operand
        case ast.Call(func=ast.Attribute(value=value, attr="clamp")):
            return value
        case ast.Constant(value=float() as number):
            return ast.Constant(2 * number + (number == 0))
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return ast.Constant(number + 1)
    return None


def spots(path: Path) -> Iterator[tuple[ast.expr, str]]:
    """The places of ``path`` that can have a fault, each with the text that it would have; not annotations."""
    tree = ast.parse(path.read_text("utf-8"))
    hints = [n.annotation for n in ast.walk(tree) if isinstance(n, ast.arg | ast.AnnAssign) and n.annotation]
    hints += [n.returns for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.returns]
    typing = {id(inner) for hint in hints for inner in ast.walk(hint)}
    for node in ast.walk(tree):
        fault = mutated(node) if id(node) not in typing else None
        if isinstance(node, ast.expr) and fault is not None:
            yield node, ast.unparse(fault)


def planted(text: str, node: ast.expr, new: str) -> str:
    """``text`` with ``new`` in the place of ``node``, whose columns count bytes."""
    lines = text.encode().splitlines(keepends=True)
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, lines[: (node.end_lineno or node.lineno) - 1])) + (node.end_col_offset or 0)
    return (text.encode()[:start] + f"({new})".encode() + text.encode()[end:]).decode()


class Uses(NamedTuple):
    """The ``modules`` that a file imports, or imports from, the ``words`` that it takes of them, and its ``size``."""

    modules: set[str]
    words: set[str]
    size: int


@cache
def uses(path: Path) -> Uses:
    """What the file ``path`` uses; `from package import module` is a use of both."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    taken = [n for n in nodes if isinstance(n, ast.ImportFrom) and n.module]
    modules = {str(n.module) for n in taken} | {f"{n.module}.{a.name}" for n in taken for a in n.names}
    modules |= {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}
    words = {a.name for n in taken for a in n.names} | {n.attr for n in nodes if isinstance(n, ast.Attribute)}
    return Uses(modules, words, len(nodes))


@cache
def faces() -> tuple[ast.AST, ...]:
    """The packages' own files."""
    return tuple(ast.parse(path.read_text("utf-8")) for path in (ROOT / "fedgo").rglob("__init__.py"))


def importers(module: str) -> list[str]:
    """The modules of the package that use ``module``."""
    paths = [path for path in (ROOT / "fedgo").rglob("*.py") if module in uses(path).modules]
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths if path.stem != "__init__"
    ]


def tests_of(module: str) -> list[str]:
    """The test files that use ``module`` or what a package takes from it, the most like it first.

    Where none does, those of the modules that use it.
    """
    taken = [
        n for face in faces() for n in ast.walk(face) if isinstance(n, ast.ImportFrom) and n.module == module
    ]
    names = {alias.name for n in taken for alias in n.names}
    found = []
    for path in (ROOT / "tests").glob("test_*.py"):
        modules, words, size = uses(path)
        if path.name not in WITH_BOOK and (module in modules or words & names):
            unlike = (module.rpartition(".")[2] not in path.stem, module not in modules, size)
            found.append((*unlike, f"tests/{path.name}"))
    tests = [str(test[-1]) for test in sorted(found)]
    return tests or sorted({test for user in importers(module) for test in tests_of(user)})


def run(tree: Path, tests: list[str], limit: float) -> str:
    """``caught`` or ``survived``, from pytest's verdict on the copy ``tree``: the likeliest tests, then all others."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    for some in filter(None, (tests[:_FIRST], tests[_FIRST:])):
        try:
            done = subprocess.run([*command, *some], cwd=tree, timeout=limit, capture_output=True)
        except subprocess.TimeoutExpired:
            return "caught"
        if done.returncode:
            return "caught"
    return "survived"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=80)
    parser.add_argument("--skip", type=int, default=0, help="of the same draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one mutant")
    wanted = parser.parse_args()
    files = sorted((ROOT / "fedgo").rglob("*.py"))
    every = [(path, *spot) for path in files for spot in spots(path)]
    drawn = random.Random(wanted.seed).sample(every, wanted.count + wanted.skip)[wanted.skip :]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "fedgo"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "_build", "_executed", "_traces"))
        for path, node, new in drawn:
            text, place = path.read_text("utf-8"), path.relative_to(ROOT)
            tests = tests_of(".".join(place.with_suffix("").parts).removesuffix(".__init__"))
            (tree / place).write_text(planted(text, node, new), "utf-8")
            verdict = run(tree, tests, wanted.limit)
            (tree / place).write_text(text, "utf-8")
            survivors += verdict == "survived"
            shown = f"{place}:{node.lineno} {ast.unparse(node)} → {new}"
            print(f"{verdict:9} {shown[:150]}  [{' '.join(t[6:-3] for t in tests[:_FIRST])}]", flush=True)
    print(f"{len(drawn)} mutants, {survivors} survived")


if __name__ == "__main__":
    main()
