"""The paper "Communication-Efficient Federated Non-Linear Bandit Optimization" as code to run and to check.

The package exports the paper's algorithms, the algorithms with which the paper or this package compares them, the
bandit problems, and the classes and functions from which users build algorithms and problems of their own. Of other
libraries, ``import fedgo`` loads torch and NumPy only. A function that needs another library, such as BoTorch or
pandas, imports it when the function is called.
"""

from importlib.metadata import version

from fedgo.algorithms.approx_dis_kernel_ucb import approx_dis_kernel_ucb
from fedgo.algorithms.controls import exact_kernel_ucb, shared_ucb1, uniform_random
from fedgo.algorithms.dis_lin_ucb import dis_lin_ucb
from fedgo.algorithms.fed_glb_ucb import fed_glb_ucb
from fedgo.algorithms.go_ucb import Immediate, fed_go_ucb, n_go_ucb, one_go_ucb, private_start
from fedgo.langevin import Langevin
from fedgo.network import Network
from fedgo.phase_one import Exploration, Start, phase_one_length, shared_start
from fedgo.phase_two import EventTriggered, Settings
from fedgo.problem import Problem
from fedgo.problems import clustered, cosine8, hartmann6
from fedgo.simulation import Learner, simulate
from fedgo.theory.worlds import SingleUnit, realizable
from fedgo.trace import Trace

__version__ = version("fedgo")

__all__ = [
    "EventTriggered", "Exploration", "Immediate", "Langevin", "Learner", "Network", "Problem", "Settings",
    "SingleUnit", "Start", "Trace", "__version__", "approx_dis_kernel_ucb", "clustered", "cosine8",
    "dis_lin_ucb", "exact_kernel_ucb", "fed_glb_ucb", "fed_go_ucb", "hartmann6", "n_go_ucb",
    "one_go_ucb", "phase_one_length", "private_start", "realizable", "shared_start", "shared_ucb1", "simulate",
    "uniform_random",
]  # fmt: skip
