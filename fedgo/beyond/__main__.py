"""``python -m fedgo.beyond NAME``: the command of `fedgo.experiments`, with the studies beyond the paper too."""

from fedgo.beyond.map import studies  # noqa: F401 (its studies are known by name from here on)
from fedgo.experiments.__main__ import main

if __name__ == "__main__":
    main("fedgo.beyond")
