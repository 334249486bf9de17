"""Importing what lies beyond the paper changes nothing in the paper's part."""

import subprocess
import sys

LOOK = """import importlib, pkgutil
import fedgo

def modules(beyond):
    names = [found.name for found in pkgutil.walk_packages(fedgo.__path__, "fedgo.")]
    return [
        importlib.import_module(name)
        for name in names
        if name.startswith("fedgo.beyond.") == beyond and not name.endswith(("__main__", "flare"))
    ]

def seen():
    return {
        (module.__name__, name): [*map(id, value)] + [*map(id, value.values() if isinstance(value, dict) else ())]
        for module in paper
        for name, value in vars(module).items()
        if isinstance(value, dict | list | set) and not name.startswith("__")
    }

paper = modules(beyond=False)
before = seen()
assert ("fedgo.experiments.world", "PROBLEMS") in before and len(before) > 10
assert len(modules(beyond=True)) > 20
print({name for name, held in seen().items() if held != before.get(name)} or "nothing has changed")
"""


def test_importing_what_lies_beyond_changes_no_dictionary_and_no_list_of_the_paper() -> None:
    """In a process of its own. Each module of the paper is looked into before and after."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", LOOK], capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == ("nothing has changed", 0), done.stderr
