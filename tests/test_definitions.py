"""What a notebook used of the package is known by definition, and only what the code does counts."""

import ast

import pytest
from book_modules import shared

definitions, kernel = shared("definitions"), shared("kernel")
code = definitions.code

MODULE = '''"""A module."""

from dataclasses import dataclass
from functools import cache

from fedgo.star import When as Time

LIMIT, SHARE = 3, 0.5
TABLE = {"a": 1}
if LIMIT > 2:
    LATE = 1


@dataclass(frozen=True)
class Ball:
    """A ball."""

    radius: float = LIMIT

    def inside(self, x):
        """Whether."""
        return x < self.radius  # strict

    @property
    def volume(self):
        return self.radius**3


class Small(Ball):
    def volume(self):
        return 0


@cache
def first(x):
    return TABLE[x]


def second(x, scale=2):
    def third():
        return 1

    return third() * scale


def sum(x):
    return x
'''


def entries(text):
    return definitions.module(text.encode()).entries


def differing(old, new):
    """The entries whose hash is another, or that are there only once."""
    before, after = entries(MODULE), entries(MODULE.replace(old, new))
    assert old in MODULE
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ('"""A module."""', '"""Another."""', set()),
        ('"""Whether."""', '"""Whether or not."""', set()),
        ("# strict", "# or not", set()),
        ("LIMIT, SHARE = 3, 0.5", "LIMIT, SHARE = (\n    3,\n    0.5,\n)", set()),
        ("x < self.radius", "x <= self.radius", {"Ball.inside"}),
        ("    @property\n", "", {"Ball.volume"}),
        ("radius: float = LIMIT", "radius: float = SHARE", {"Ball"}),
        ("(frozen=True)", "", {"Ball"}),
        ("class Small(Ball)", "class Small", {"Small"}),
        ("return 0", "return 1", {"Small.volume"}),
        ("SHARE = 3, 0.5", "SHARE = 3, 0.6", {"LIMIT", "SHARE"}),
        ("LATE = 1", "LATE = 2", {""}),
        ("When as Time", "Then as Time", {"Time"}),
        ("@cache\n", "", {"first", "@first"}),
        ("return 1\n", "return 2\n", {"second"}),
        ("scale=2", "scale=3", {"second"}),
        ("def second", "def new(x):\n    return 1\n\n\ndef second", {"new"}),
        ("from functools", "import math\nfrom functools", {"math"}),
        # a method more is no change of the class, unless it can take the place of something
        ("    @property", "    def outside(self, x):\n        return 1\n\n    @property", {"Ball.outside"}),
        ("    @property", "    def __len__(self):\n        return 1\n\n    @property", {"Ball", "Ball.__len__"}),
        ("    @property", "    def radius(self):\n        return 1\n\n    @property", {"Ball", "Ball.radius"}),
        ("        return 0", "        return 0\n\n    def inside(self):\n        return 1", {"Small", "Small.inside"}),
        # what only a type checker reads
        ("LIMIT, SHARE", "if TYPE_CHECKING:\n    import os\n\nLIMIT, SHARE", set()),
    ],
)  # fmt: skip
def test_a_change_is_one_of_the_entries_that_it_changes(old, new, changed):
    assert differing(old, new) == changed


def package(**files):
    return {f"fedgo/{name}.py": definitions.module(text.encode()) for name, text in files.items()}


def test_used_is_what_ran_and_what_that_mentions():
    now = package(
        ball=MODULE,
        star='When = int\nclass Ledger:\n    """Nobody mentions it."""\n',
        unused="x = 1\n",
    )
    ran = {"fedgo/ball.py": ["Ball.inside"], "fedgo/star.py": []}
    found = definitions.used(ran, ["from fedgo.ball import Ball\n\nBall(2).inside(SHARE)"], now)
    assert found.keys() == ran.keys()
    assert found["fedgo/ball.py"].keys() == {"", "Ball", "Ball.inside", "LIMIT", "SHARE", "dataclass", "sum"}
    assert found["fedgo/star.py"].keys() == set()


@pytest.mark.parametrize(
    "cell",
    ["b.Time", "from fedgo.ball import Time", 'getattr(b, "Time")', 'f"{b.Time}"', "%time b.Time\nb.Time"],
)
def test_an_entry_is_mentioned_in_any_form(cell):
    now = package(ball=MODULE, star="When = int\nLedger = 1\n")
    found = definitions.used({"fedgo/ball.py": [], "fedgo/star.py": []}, [cell], now)
    assert "Time" in found["fedgo/ball.py"]
    assert found["fedgo/star.py"].keys() == {"When"}  # by what Time stands for


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("return TABLE[x]", "return 1", ""),
        ("x < self.radius", "x > self.radius", "fedgo/ball.py: Ball.inside changed"),
        ("def inside", "def within", "fedgo/ball.py: Ball.inside is gone"),
        ("LATE = 1", "LATE = 2", "fedgo/ball.py: a statement changed"),
        ("def second", "def other", ""),
        ("def second", "def max", "fedgo/ball.py: max is new and hides a name of Python's own"),
        ("def sum(x):\n    return x", "def sum(x):\n    return 2", "fedgo/ball.py: sum changed"),
    ],
)
def test_the_reason_names_what_changed(old, new, reason):
    found = definitions.used({"fedgo/ball.py": ["Ball.inside"]}, ["Ball"], package(ball=MODULE))
    assert old in MODULE
    assert definitions.changed(found, package(ball=MODULE.replace(old, new))) == reason
    assert definitions.changed(found, package(star=MODULE)) == "fedgo/ball.py is gone"


def test_what_was_edited_meanwhile_is_never_the_same():
    now = package(ball=MODULE)
    assert "edited while" in definitions.changed({"fedgo/ball.py": {"": definitions.CHANGING}}, now)


def test_the_kernel_marks_exactly_the_functions_that_are_entries():
    tree = ast.parse(MODULE)
    kernel.marked(tree)
    ran = []
    names = {"__ran__": ran.append, "__name__": "ball"}
    text = ast.unparse(tree).replace("from fedgo.star import When as Time", "")
    exec(compile(text, "ball.py", "exec"), names)
    ball = names["Ball"](2.0)
    assert (ball.inside(1), ball.volume, names["Small"]().volume(), names["first"]("a")) == (True, 8, 0, 1)
    assert (names["second"](1), names["sum"](1)) == (2, 1)
    functions = {name for name, entry in entries(MODULE).items() if entry.runs}
    assert functions == set(ran)
    assert ball.inside.__doc__ == "Whether."


# The closure of a module's imports, by which stored traces are known.

TREE = {
    "__init__.py": "from fedgo.core import a\nfrom fedgo.other import b\n",
    "core.py": "from fedgo.sub import leaf\nfrom . import relative\n\n\ndef a():\n    from fedgo import late\n",
    "relative.py": "x = 1\n",
    "late.py": "x = 1\n",
    "other.py": "b = 1\n",
    "sub/__init__.py": "import fedgo.other\n",
    "sub/leaf.py": "import numpy\n",
    "data.csv": "1\n",
}


@pytest.fixture
def tree(tmp_path):
    for name, text in TREE.items():
        path = tmp_path / "fedgo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "fedgo"


def test_the_closure_follows_imports_but_not_those_of_the_packages_around(tree):
    found = code.closure(["fedgo.core"], tree)
    assert [*found] == ["fedgo", "fedgo.core", "fedgo.late", "fedgo.relative", "fedgo.sub", "fedgo.sub.leaf"]


@pytest.mark.parametrize(
    ("file", "text", "same"),
    [
        ("core.py", '"""A docstring."""\n\n# and a comment\n' + TREE["core.py"], True),
        ("other.py", "b = 2\n", True),
        ("sub/leaf.py", "import numpy\n\nx = 1\n", False),
        ("late.py", "x = 2\n", False),
        ("sub/__init__.py", "x = 1\n", False),
        ("data.csv", "2\n", False),
    ],
)
def test_the_hash_of_a_closure(tree, file, text, same):
    def value():
        return code.code(["fedgo.core"], ["data.csv"], tree)

    before = value()
    assert value() == before
    (tree / file).write_text(text)
    assert (value() == before) == same
