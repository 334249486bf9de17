"""``python -m fedgo.beyond NAME``: the command of `fedgo.experiments`, with the studies beyond the paper too."""

from fedgo.beyond.map import studies  # noqa: F401 (its studies are known by name from here on)
from fedgo.experiments.__main__ import run_or_check

if __name__ == "__main__":
    run_or_check("fedgo.beyond")
