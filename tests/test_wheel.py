"""What is published: a source distribution, and a wheel made from it; all of the package, and types to be seen."""

import email
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
UNUSED = shutil.ignore_patterns(".*", "_build", "_executed", "__pycache__", "*.egg-info")


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


SDIST = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The source distribution of a copy of the repository."""
    folder = tmp_path_factory.mktemp("sdist")
    shutil.copytree(ROOT, folder / "repository", ignore=UNUSED)
    done = run(sys.executable, "-c", SDIST, folder, cwd=folder / "repository")
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.tar.gz")
    return built


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """The wheel of the source distribution, built without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir")
    done = run(sys.executable, "-m", "pip", "wheel", *options, folder, sdist)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def metadata(wheel):
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(file.read(name))


@pytest.fixture(scope="module")
def stranger(wheel, tmp_path_factory):
    """The interpreter of an environment that has the wheel and, for its dependencies, this environment's packages."""
    folder = tmp_path_factory.mktemp("stranger")
    done = run(sys.executable, "-m", "venv", "--without-pip", folder)
    assert done.returncode == 0, done.stderr
    python = folder / "bin/python"
    paths = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run(python, "-c", paths).stdout.strip())
    with zipfile.ZipFile(wheel) as file:
        file.extractall(packages)
    # a folder named in a .pth has none of its own .pth files read: the editable fedgo of this environment is not seen
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


def wrong_contents(names: list[str], sources: list[str]) -> list[str]:
    """Files of the package that are missing in the wheel, and what is there besides them and its own records."""
    own = [name for name in names if ".dist-info/" not in name and not name.endswith(".md")]
    faults = [f"{name} is missing" for name in sources if name not in own]
    faults += [f"{name} is no part of the package" for name in own if name not in sources]
    return faults + ["the licence is missing"] * (not any(n.endswith("/licenses/LICENSE") for n in names))


def sources() -> list[str]:
    """All files of the package; its page is part of the metadata."""
    paths = (
        path for path in (ROOT / "fedgo").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )
    return [path.relative_to(ROOT).as_posix() for path in paths if path.suffix != ".md"]


def test_the_source_distribution_is_the_package_without_its_tests(sdist):
    with tarfile.open(sdist) as file:
        names = [name.partition("/")[2] for name in file.getnames()]
    assert set(sources()) | {"LICENSE", "CITATION.cff", "pyproject.toml"} <= set(names)
    assert [name for name in names if name.startswith(("tests", "book", "notebooks", "benchmarks"))] == []


@pytest.mark.slow
def test_the_wheel_has_all_of_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    assert {"fedgo/py.typed", "fedgo/data/magic.csv"} <= set(sources())
    assert wrong_contents(names, sources()) == []


def test_wrong_contents_are_found():
    good = ["fedgo/__init__.py", "fedgo/py.typed"]
    licence = "fedgo-1.dist-info/licenses/LICENSE"
    assert wrong_contents([*good, licence], good) == []
    assert wrong_contents([good[0], licence], good) == ["fedgo/py.typed is missing"]
    assert wrong_contents([*good, licence, "tests/a.py"], good) == ["tests/a.py is no part of the package"]
    assert wrong_contents(good, good) == ["the licence is missing"]


def test_the_core_asks_for_torch_and_numpy_and_the_extras_for_the_rest(wheel):
    about = metadata(wheel)
    asked = [Requirement(text) for text in about.get_all("Requires-Dist")]
    assert {requirement.name for requirement in asked if not requirement.marker} == {"numpy", "torch"}
    assert {"study", "experiments", "federation", "book", "test"} <= set(about.get_all("Provides-Extra"))


def test_the_page_of_the_package_leads_nowhere_that_it_cannot(wheel):
    about = metadata(wheel)
    links = re.findall(r"\]\(([^)]+)\)", about.get_payload()) + re.findall(
        r"<(http[^>]+)>", about.get_payload()
    )
    links += [url.split(", ")[1] for url in about.get_all("Project-URL")]
    assert [link for link in links if not link.startswith("https://")] == []
    assert {"MIT", "CC-BY-4.0"} <= set(about["License-Expression"].split())


USE = """
import sys, fedgo
assert sys.prefix in fedgo.__file__, fedgo.__file__
traces = fedgo.evaluate("hartmann6", 1, algorithms=["Uniform"])
print(fedgo.__version__, fedgo.clustered("magic", 1).arms.shape[1], len(traces))
"""


@pytest.mark.slow
def test_the_installed_wheel_finds_its_data_and_its_version(stranger, wheel, tmp_path):
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = run(stranger, "-c", USE, cwd=tmp_path, env=clean | {"OMP_NUM_THREADS": "1"})
    version = wheel.name.split("-")[1]
    assert (done.stdout.split(), done.stderr) == ([version, "20", "1"], "")


# Types

CODE = """import fedgo

problem: fedgo.Problem = fedgo.hartmann6(runs=2)
start = fedgo.shared_start(problem, fedgo.Network(d_x=6), clients=2, rounds=3)
traces = [fedgo.fed_go_ucb(problem, start, fedgo.Settings(lam=0.1)), fedgo.uniform_random(problem, 2, 6)]
traces += fedgo.evaluate("hartmann6", 2, algorithms=["Uniform"]).values()
steps: int = max(trace.phase_one for trace in traces)
names: list[str] = [trace.algorithm for trace in traces]
trace: fedgo.Trace = fedgo.gp_ucb(problem, 2, 6, 1.0)
"""
CONFIG = """[mypy]
strict = true
[mypy-torch.*,numpy.*,botorch.*,gpytorch.*,scipy.*,sklearn.*,matplotlib.*]
follow_imports = skip
"""  # the types of large libraries are theirs to show, and take a minute to read


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("", "", None),
        ("lam=0.1", 'lam="0.1"', 'has incompatible type "str"'),
        ("steps: int", "steps: str", "Incompatible types in assignment"),
        ("runs=2", "run=2", 'Unexpected keyword argument "run" for "hartmann6"'),
        ("fedgo.gp_ucb", "fedgo.gp_ucbs", 'Module has no attribute "gp_ucbs"'),
        (".values()", "", '"dict[str, Trace]"; expected "Iterable[Trace]"'),
    ],
)
def test_a_strangers_type_checker_sees_the_types(stranger, tmp_path, tmp_path_factory, old, new, fault):
    """mypy, as strict as it gets, on ten lines by somebody who has installed the wheel."""
    assert old in CODE
    (tmp_path / "mine.py").write_text(CODE.replace(old, new, 1) if old else CODE)
    (tmp_path / "mypy.ini").write_text(CONFIG)
    cache = tmp_path_factory.getbasetemp() / "mypy"
    options = ("--python-executable", stranger, "--cache-dir", cache)
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "MYPYPATH")}
    done = run(sys.executable, "-m", "mypy", *options, "mine.py", cwd=tmp_path, env=clean)
    assert (fault is None and done.returncode == 0) or (fault and fault in done.stdout), done.stdout
