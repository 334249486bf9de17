"""pyproject.toml and the two locks agree, and the locks name releases only."""

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))


def lock_lines() -> list[str]:
    files = ("requirements.lock", "federation.lock")  # the second adds to the first
    lines = [line for file in files for line in (ROOT / file).read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def locked() -> dict[str, Version]:
    pairs = (line.split("==") for line in lock_lines())
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def requirements() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"].values()
    named = [
        Requirement(text) for text in [*PROJECT["dependencies"], *(t for extra in extras for t in extra)]
    ]
    return [requirement for requirement in named if requirement.name != "fedgo"]  # an extra may name another


def test_every_lock_line_is_a_plain_pin():
    """No address, path, hash or local version: they would tie the lock to the machine that wrote it."""
    pin = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.]*")
    assert [line for line in lock_lines() if not pin.fullmatch(line)] == []
    assert len(locked()) == len(lock_lines())


def test_lock_satisfies_pyproject():
    versions = locked()
    wrong = [str(r) for r in requirements() if versions.get(canonicalize_name(r.name)) not in r.specifier]
    assert wrong == []


def test_every_requirement_has_a_lower_bound():
    unbounded = [str(r) for r in requirements() if not any(s.operator in (">=", "==") for s in r.specifier)]
    assert unbounded == []


def test_environment_python_is_supported():
    (python,) = (entry for entry in ENVIRONMENT["dependencies"] if str(entry).startswith("python="))
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(python.split("=")[1])
