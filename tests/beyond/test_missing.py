"""A library that is missing and memory that is used up are no failed fits: both end the call, with the reason."""

import re
import subprocess
import sys
from dataclasses import dataclass, field, replace
from typing import Any

import pandas
import pytest
import torch

from fedgo import Network, realizable
from fedgo.beyond.federation.model import course
from fedgo.beyond.federation.plan import Fitting, Plan
from fedgo.beyond.method.advised import ADVISED
from fedgo.beyond.method.epochs import surrogate_ucb
from fedgo.beyond.method.surrogates import IndependentArms
from fedgo.beyond.study.study import Study
from fedgo.confidence import Tally

PROBLEM = realizable(Network(2, 2), 1, arms=6, sigma=0.3)
TOTAL = torch.tensor([[1.0, 1, 2, 0, 0, 0], [0.3, 0.1, 0.2, 0, 0, 0]], dtype=torch.float64)
OPTIONS = pandas.DataFrame(PROBLEM.arms[0].numpy(), [f"option {arm}" for arm in range(6)], ["a", "b"])
ERRORS = {
    "no library": (ImportError("lib is not installed"), ImportError),
    "no memory": (MemoryError("no room"), MemoryError),
    "no optimum": (RuntimeError("no optimum"), ValueError),
    "no memory, says torch": (RuntimeError("DefaultCPUAllocator: can't allocate memory"), MemoryError),
}


@dataclass(frozen=True)
class Raising:
    """Fits independent arms ``well`` times, and raises the error of the name ``error`` from then on."""

    error: str
    well: int = 0
    made: list[int] = field(default_factory=list)

    def fit(self, arms: torch.Tensor, data: Tally, sigma: float, before: Any = None) -> Any:
        self.made.append(1)
        if len(self.made) > self.well:
            raise ERRORS[self.error][0]
        return IndependentArms().fit(arms, data, sigma)


@pytest.mark.parametrize("name", ["no library", "no memory", "no memory, says torch"])
def test_a_missing_library_and_used_up_memory_are_no_failed_fits(name: str, tmp_path) -> None:
    error, kind = ERRORS[name]
    for well in (0, 1):
        with pytest.raises(kind, match=str(error)):
            surrogate_ucb(PROBLEM, Raising(name, well), 2, 40)
    advised = replace(ADVISED, surrogate=Raising(name))
    plan = Plan(PROBLEM.arms[0], clients=2, fitting=Fitting(0.3, 10, advised))
    with pytest.raises(kind, match=str(error)):
        course(plan, torch.zeros(0, dtype=torch.float64), TOTAL)
    study = Study(tmp_path / "study.json", OPTIONS, trials=10, noise=0.3, method=Raising(name))
    study.tell(study.ask(), 1.0)
    with pytest.raises(kind, match=str(error)):
        study.verdict()


def test_a_study_says_that_a_fit_failed_and_why(tmp_path) -> None:
    study = Study(tmp_path / "study.json", OPTIONS, trials=10, noise=0.3, method=Raising("no optimum"))
    assert "failed" not in study.verdict()
    for reward in (1.0, 2.0):
        study.tell(study.ask(), reward)
    assert study.verdict() == "Nothing can be said yet: the fit failed: no optimum."


WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
from fedgo import Network, realizable
from fedgo.beyond import ADVISED, UCB1, GaussianProcess, Relinearised, surrogate_ucb

network = Network(2, 2)
problem = realizable(network, 1, arms=6)
UCB1.play(problem, 2, 10)
surrogate_ucb(problem, Relinearised(network, 1), 2, 3)
GaussianProcess() if sys.argv[1] == "botorch" else ADVISED.play(problem, 2, 10)
"""


STUDY = "import sys; sys.modules[sys.argv[1]] = None; import fedgo.beyond.study.study"


@pytest.mark.slow
@pytest.mark.parametrize("library, code", [("botorch", WITHOUT), ("scipy", WITHOUT), ("pandas", STUDY)])
def test_in_a_process_without_a_library_all_else_is_played(library: str, code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code, library], capture_output=True, text=True, check=False)
    said = rf"ImportError: {library}[.\w]* is not installed: pip install 'fedgo\[study\]'"
    assert re.fullmatch(said, done.stderr.splitlines()[-1]), done.stderr
