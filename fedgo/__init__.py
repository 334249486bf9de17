"""fedgo: "Communication-Efficient Federated Non-Linear Bandit Optimization" as code to run and to check.

`from fedgo import …` has the paper's algorithms, every control, the problems and what they are made of. Importing it
loads torch and numpy; a name that needs more (BoTorch's test functions, say) is loaded when first asked for (SPEC 1).
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fedgo.algorithms.approx_dis_kernel_ucb import approx_dis_kernel_ucb
from fedgo.algorithms.controls import counted_ucb1, exact_kernel_ucb, shared_ucb1, uniform_random
from fedgo.algorithms.dis_lin_ucb import dis_lin_ucb
from fedgo.algorithms.fed_glb_ucb import fed_glb_ucb
from fedgo.algorithms.go_ucb import Immediate, fed_go_ucb, n_go_ucb, one_go_ucb, private_start
from fedgo.langevin import Langevin
from fedgo.network import Network
from fedgo.phase_one import Exploration, Start, phase_one_length, shared_start
from fedgo.phase_two import EventTriggered, Settings
from fedgo.problem import Problem
from fedgo.simulation import Learner, simulate
from fedgo.trace import Trace

if TYPE_CHECKING:
    from fedgo.algorithms.gp_ucb import gp_ucb
    from fedgo.experiments.comparison import evaluate
    from fedgo.problems import clustered, cosine8, hartmann6
    from fedgo.theory.worlds import SingleUnit, realizable

__version__ = version("fedgo")

__all__ = [
    "EventTriggered",
    "Exploration",
    "Immediate",
    "Langevin",
    "Learner",
    "Network",
    "Problem",
    "Settings",
    "SingleUnit",
    "Start",
    "Trace",
    "__version__",
    "approx_dis_kernel_ucb",
    "clustered",
    "cosine8",
    "counted_ucb1",
    "dis_lin_ucb",
    "evaluate",
    "exact_kernel_ucb",
    "fed_glb_ucb",
    "fed_go_ucb",
    "gp_ucb",
    "hartmann6",
    "n_go_ucb",
    "one_go_ucb",
    "phase_one_length",
    "private_start",
    "realizable",
    "shared_start",
    "shared_ucb1",
    "simulate",
    "uniform_random",
]

_LATER = {
    "clustered": "fedgo.problems",
    "cosine8": "fedgo.problems",
    "evaluate": "fedgo.experiments.comparison",
    "gp_ucb": "fedgo.algorithms.gp_ucb",
    "hartmann6": "fedgo.problems",
    "realizable": "fedgo.theory.worlds",
    "SingleUnit": "fedgo.theory.worlds",
}


if (
    not TYPE_CHECKING
):  # a type checker has the imports above, and would take any other name for a name of this module

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module 'fedgo' has no attribute '{name}'")
        found = globals()[name] = getattr(import_module(_LATER[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
