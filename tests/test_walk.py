"""How many functions of the package are called between `fed_go_ucb` and the first arm: what a reader has to follow."""

import sys
from collections import Counter
from types import FrameType
from typing import Any

from fedgo import Langevin, Network, Settings, fed_go_ucb, realizable, shared_start

CALLS = 87  # on 2 runs of 2 clients; fewer is better


class Arrived(Exception):
    """The first arm has been chosen."""


def test_the_walk_to_the_first_arm_does_not_grow() -> None:
    network = Network(2, 3)
    start = shared_start(realizable(network, 2, arms=5), network, 2, 3, Langevin(rounds=5))
    settings, calls = Settings(0.1, 0.1), Counter[str]()

    def follow(frame: FrameType, event: str, _: Any) -> None:
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_qualname
        if event == "call" and module.startswith("fedgo."):
            if name == "Problem.observe":
                raise Arrived
            calls[f"{module}.{name}"] += 1

    sys.setprofile(follow)
    try:
        fed_go_ucb(start, settings)
    except Arrived:
        pass
    finally:
        sys.setprofile(None)
    checks = sum(number for name, number in calls.items() if name.startswith("fedgo._checks."))
    print(f"{calls.total()} calls of {len(calls)} functions, {checks} of them in the checks")
    assert 0 < calls.total() <= 1.25 * CALLS
