"""Every learner of the package under the name of what it is, with settings that make it synchronise now and then.

Each is a function of a problem, N clients and T rounds. What a test finds for one of them it has to find for all.
"""

from pathlib import Path

from ways import FEW, SETTINGS, from_scratch, from_start

import fedgo


def alone(problem: fedgo.Problem, clients: int, rounds: int) -> fedgo.Trace:
    network = fedgo.Network(problem.arms.shape[-1], 4)
    return fedgo.n_go_ucb(fedgo.private_start(problem, network, clients, rounds, FEW), SETTINGS)


LEARNERS = {
    "Fed-GO-UCB": from_start(fedgo.fed_go_ucb),
    "Fed-GO-UCB, line 3": from_start(fedgo.fed_go_ucb, argmax="ascent"),
    "Fed-GO-UCB, parameter space": from_start(fedgo.fed_go_ucb, space="parameters"),
    "One-GO-UCB": from_start(fedgo.one_go_ucb),
    "N-GO-UCB": alone,
    "DisLinUCB": from_scratch(fedgo.dis_lin_ucb, SETTINGS),
    "Fed-GLB-UCB": from_scratch(fedgo.fed_glb_ucb, SETTINGS),
    "ApproxDisKernelUCB": from_scratch(fedgo.approx_dis_kernel_ucb, SETTINGS),
    "Kernel UCB, at once": from_scratch(fedgo.exact_kernel_ucb, SETTINGS),
    "UCB1, shared": from_scratch(fedgo.shared_ucb1, SETTINGS),
    "Uniform": from_scratch(fedgo.uniform_random),
}

# This is the one place where the paper's part of the tests imports what lies beyond the paper: the tests of every
# learner, such as `test_every_algorithm.py`, take this list. Without the folder `beyond` it has the paper's learners.
if Path(__file__).with_name("beyond").is_dir():
    from beyond.learners_beyond import LEARNERS_BEYOND

    LEARNERS |= LEARNERS_BEYOND
