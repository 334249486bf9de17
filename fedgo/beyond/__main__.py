"""The command ``python -m fedgo.beyond NAME``, which runs or checks any study, of the paper or beyond it."""

from fedgo.beyond.map import studies  # noqa: F401 (its studies are known by name from here on)
from fedgo.experiments.__main__ import run_or_check

if __name__ == "__main__":
    run_or_check("fedgo.beyond")
