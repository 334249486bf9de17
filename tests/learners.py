"""Every learner of the package under the name of what it is, with settings that make it synchronise now and then.

Each is a function of a problem, N clients and T rounds. What a test finds for one of them it has to find for all.
"""

from pathlib import Path

from ways import FEW, SETTINGS, from_scratch, from_start

from fedgo import (
    Network,
    Problem,
    Trace,
    approx_dis_kernel_ucb,
    dis_lin_ucb,
    exact_kernel_ucb,
    fed_glb_ucb,
    fed_go_ucb,
    gp_ucb,
    n_go_ucb,
    one_go_ucb,
    private_start,
    shared_ucb1,
    uniform_random,
)


def alone(problem: Problem, clients: int, rounds: int) -> Trace:
    network = Network(problem.arms.shape[-1], 4)
    return n_go_ucb(private_start(problem, network, clients, rounds, FEW), SETTINGS)


LEARNERS = {
    "Fed-GO-UCB": from_start(fed_go_ucb),
    "Fed-GO-UCB, line 3": from_start(fed_go_ucb, argmax="ascent"),
    "Fed-GO-UCB, parameter space": from_start(fed_go_ucb, space="parameters"),
    "One-GO-UCB": from_start(one_go_ucb),
    "N-GO-UCB": alone,
    "DisLinUCB": from_scratch(dis_lin_ucb, SETTINGS),
    "Fed-GLB-UCB": from_scratch(fed_glb_ucb, SETTINGS),
    "ApproxDisKernelUCB": from_scratch(approx_dis_kernel_ucb, SETTINGS),
    "Kernel UCB, at once": from_scratch(exact_kernel_ucb, SETTINGS),
    "UCB1, shared": from_scratch(shared_ucb1, SETTINGS),
    "Uniform": from_scratch(uniform_random),
    "GP-UCB (BoTorch)": from_scratch(gp_ucb, 2.0),
}

# This is the one place where the paper's part of the tests imports what lies beyond the paper: the tests of every
# learner, such as `test_every_algorithm.py`, take this list. Without the folder `beyond` it has the paper's learners.
if Path(__file__).with_name("beyond").is_dir():
    from beyond.learners_beyond import LEARNERS_BEYOND

    LEARNERS |= LEARNERS_BEYOND
