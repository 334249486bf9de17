"""The wings import only downwards, and `import fedgo` needs torch and numpy alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fedgo

PACKAGE = Path(fedgo.__file__).parent
BELOW = {
    "core": {"core"},
    "optimism": {"core", "optimism"},
    "algorithms": {"core", "optimism", "algorithms"},
    "theory": {"core", "optimism", "algorithms", "theory"},
    "beyond": {"core", "optimism", "algorithms", "theory", "beyond"},
    "federation": {"core", "optimism", "algorithms", "beyond", "federation"},
    "paper": {"core", "optimism", "algorithms", "theory", "beyond", "federation", "paper"},
}


def wing(module: str) -> str:
    """The wing of ``fedgo.a.b``: a, if that is a folder, else the core."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (PACKAGE / parts[1]).is_dir() else "core"


def imports(text: str) -> list[str]:
    """Every module of the package that ``text`` imports, at its top or inside a function."""
    nodes = list(ast.walk(ast.parse(text)))
    named = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return [
        n
        for n in [*named, *(str(n.module) for n in nodes if isinstance(n, ast.ImportFrom))]
        if n[:5] == "fedgo"
    ]


def faults(file: str, text: str) -> list[str]:
    own = wing("fedgo." + file.removesuffix(".py").replace("/", "."))
    return [f"{file} imports {module}" for module in imports(text) if wing(module) not in BELOW[own]]


def test_no_wing_imports_one_above_it():
    files = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    face = files.pop(
        "__init__.py"
    )  # the one file that may name every wing, as it loads those above when asked
    assert [fault for file, text in files.items() for fault in faults(file, text)] == []
    eager = ast.Module([n for n in ast.parse(face).body if not isinstance(n, ast.If)], [])
    assert {wing(module) for module in imports(ast.unparse(eager))} == {"core", "algorithms"}


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("star.py", "from fedgo.algorithms.controls import uniform_random"),
        ("phase_two.py", "from fedgo.optimism.line_three import LineThree"),
        ("theory/replay.py", "import fedgo.experiments.figures"),
        ("algorithms/go_ucb.py", "def late():\n    from fedgo.theory import radius"),
    ],
)
def test_an_import_upwards_is_found(file, line):
    assert len(faults(file, line)) == 1


def test_import_fedgo_brings_torch_and_numpy_and_nothing_else():
    heavy = ("botorch", "gpytorch", "sklearn", "scipy", "matplotlib", "pooch", "unlzw3")
    code = (
        f"import sys, fedgo; assert 'torch' in sys.modules; assert not set({heavy}) & set(sys.modules), 'at import';"
        "fedgo.hartmann6; assert 'botorch' in sys.modules; from fedgo import *; assert callable(evaluate)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PACKAGE.parent)


@pytest.mark.slow
def test_import_fedgo_says_nothing_and_warns_of_nothing():
    code = (
        "import torch, warnings; warnings.simplefilter('error'); import fedgo"  # what torch says is torch's
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, cwd=PACKAGE.parent, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_tuning_and_claims_neither_draw_nor_read_raw_data():
    code = (
        "import sys, fedgo.experiments.tune, fedgo.experiments.claims;"
        "assert not {'matplotlib', 'sklearn', 'pooch', 'unlzw3'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, cwd=PACKAGE.parent)


def test_every_public_name_is_there_and_nothing_else_pretends_to_be():
    assert all(hasattr(fedgo, name) for name in fedgo.__all__)
    assert set(fedgo.__all__) <= set(dir(fedgo))
    with pytest.raises(AttributeError, match="no attribute 'experiments_of_mine'"):
        fedgo.experiments_of_mine  # noqa: B018


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "algorithms").glob("[a-z]*.py")), ids=lambda path: path.stem
)
def test_an_algorithms_file_links_its_paper_and_shows_its_entry_point_first(path):
    module = ast.parse(path.read_text("utf-8"))
    first = next(node for node in module.body if isinstance(node, ast.FunctionDef))
    assert "https://" in ast.get_docstring(module)
    assert first.name in fedgo.__all__ and ast.unparse(first.returns) == "Trace"
