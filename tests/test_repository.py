"""The repository: the files that name versions agree, the wheel serves a stranger, Binder opens the chapters."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as canonical

import fedgo

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


# A block that imports what an extra brings.
EXTRA = re.compile(r'with extra\("(\w+)"\):.*\n((?: +(?:from|import) .+\n)+)')


def required() -> list[Requirement]:
    """What pyproject.toml asks for, with all extras; an extra may name another."""
    extras = PROJECT["optional-dependencies"].values()
    texts = [*PROJECT["dependencies"], *(text for extra in extras for text in extra)]
    return [found for found in map(Requirement, texts) if found.name != "fedgo"]


def test_the_locks_hold_plain_pins_of_what_pyproject_asks_for() -> None:
    """No address, path, hash or local version, which would tie a lock to the machine that wrote it."""
    lines = [line for file in ROOT.glob("*.lock") for line in file.read_text("utf-8").splitlines()]
    pins = [line for line in lines if not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\d.]+(?:post\d+)?", pin)] == []
    locked = {canonical(name): version for name, version in (pin.split("==") for pin in pins)}
    wrong = [str(one) for one in required() if locked.get(canonical(one.name), "none") not in one.specifier]
    assert wrong == []


def test_the_citation_has_the_version_of_the_package() -> None:
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    assert cited and cited[1] == PROJECT["version"]


def test_the_extra_that_an_error_names_brings_the_library_that_is_missing() -> None:
    """Of every import in a block ``with extra(name)``; BoTorch brings GPyTorch."""
    extras = PROJECT["optional-dependencies"]
    brought = {
        name: {Requirement(text).name for text in texts} | {"gpytorch"} for name, texts in extras.items()
    }
    wanted = {
        (name, library)
        for file in (ROOT / "fedgo").rglob("*.py")
        for name, block in EXTRA.findall(file.read_text("utf-8"))
        for library in re.findall(r"^ +(?:from|import) (\w+)", block, re.MULTILINE)
        if library != "fedgo"
    }
    assert ("study", "botorch") in wanted
    assert [(name, library) for name, library in wanted if library not in brought[name]] == []


def test_import_fedgo_loads_torch_and_numpy_alone_and_says_nothing() -> None:
    others = {canonical(one.name).replace("-", "_") for one in required()} - {"torch", "numpy", "setuptools"}
    code = f"import torch, sys; old = {{*sys.modules}}; import fedgo; assert not {others} & ({{*sys.modules}} - old)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert set(fedgo.__all__) <= set(dir(fedgo)) and all(hasattr(fedgo, name) for name in fedgo.__all__)


# A stranger who has torch and numpy, and a strict mypy.
USE = """import sys
from pathlib import Path

import fedgo

network = fedgo.Network(d_x=2, hidden=3)
problem: fedgo.Problem = fedgo.realizable(network, runs=2, arms=5)
start = fedgo.shared_start(problem, network, clients=2, rounds=3)
trace: fedgo.Trace = fedgo.fed_go_ucb(start, fedgo.Settings(lam=0.1))
assert Path(fedgo.__file__).is_relative_to(sys.argv[1]) and "botorch" not in sys.modules
print(trace.arm.shape[1], fedgo.clustered("magic", 1).means.shape[1])
"""


@pytest.mark.slow
def test_the_wheel_has_what_a_stranger_needs(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(ROOT / "fedgo", source / "fedgo", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE", "MANIFEST.in", "CITATION.cff"):
        shutil.copy(ROOT / name, source)
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "-w", tmp_path, source], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(target)
    files = [path.relative_to(ROOT) for path in (ROOT / "fedgo").rglob("*") if path.suffix in (".py", ".csv")]
    assert [path for path in [*files, Path("fedgo/py.typed")] if not (target / path).is_file()] == []
    (tmp_path / "use.py").write_text(USE, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(target), "MYPYPATH": str(target)}
    command = [sys.executable, "use.py", target]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["9", "20"]
    (tmp_path / "mypy.ini").write_text("[mypy]\n[mypy-torch.*,numpy.*]\nfollow_imports = skip\n", "utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=mypy.ini", "use.py"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)


@pytest.mark.parametrize(("made_in", "stale"), [("here", 0), ("another folder", 1)])
def test_a_tree_that_was_copied_makes_its_own_environment(tmp_path: Path, made_in: str, stale: int) -> None:
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv").mkdir()
    folder = tmp_path.resolve() if made_in == "here" else made_in
    (tmp_path / ".venv/stamp").write_text(f"{folder}\n", "utf-8")
    done = subprocess.run(["make", "--question", ".venv/stamp"], cwd=tmp_path, check=False)
    assert done.returncode == stale


def test_nothing_of_the_paper_imports_what_lies_beyond_it() -> None:
    """Chapters and tests; import-linter holds the package to it. A test may look whether the folder is there."""
    imports = re.compile(
        r"^\s*(?:from|import) fedgo\.beyond|^\s*from fedgo import .*\bbeyond\b", re.MULTILINE
    )
    files = [*(ROOT / "notebooks").glob("*.md"), *(ROOT / "tests").glob("*.py"), ROOT / "book/use.md"]
    assert len(files) > 60
    assert [file.name for file in files if imports.search(file.read_text("utf-8"))] == []
