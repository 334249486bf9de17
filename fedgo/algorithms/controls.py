"""Controls that the paper does not have: uniform play, UCB1 with counts shared at once, and kernel UCB on all data.

UCB1 pulls the arm with the largest mean + √(2β ln t/n) after n of t pulls (Auer, Cesa-Bianchi and Fischer, Machine
Learning 2002, https://doi.org/10.1023/A:1013689704352). Kernel UCB pulls the arm with the largest mean +
√β‖φ(x)‖_{Σ⁻¹}, with the mean and the width of kernel ridge regression on features φ of the RBF kernel (Valko et al.,
UAI 2013, https://arxiv.org/abs/1309.6869). Their states are those of `fedgo.phase_two`.
"""

import torch
from torch import Tensor

from fedgo._checks import on_cpu
from fedgo.algorithms.approx_dis_kernel_ucb import rbf
from fedgo.algorithms.go_ucb import Immediate
from fedgo.confidence import Estimates, Tally, require_prior
from fedgo.phase_one import Exploration, explore
from fedgo.phase_two import Settings, require_run
from fedgo.problem import Problem
from fedgo.simulation import simulate
from fedgo.trace import Trace


@on_cpu
def uniform_random(problem: Problem, clients: int, steps: int) -> Trace:
    """Play a uniformly drawn arm at each of ``steps`` steps, and send nothing; N is ``clients``."""
    require_run(problem, clients, steps)
    arm, reward, ledger = explore(problem, steps, "uniform")
    regret, sync = problem.regret(arm), torch.zeros_like(arm, dtype=torch.bool)
    return Trace("Uniform", problem.name, clients, 0, arm, reward, regret, ledger.up, ledger.down, sync)


@on_cpu
def shared_ucb1(problem: Problem, clients: int, steps: int, settings: Settings) -> Trace:
    """Play ``steps`` steps of UCB1 on counts and sums that all N = ``clients`` clients share after every pull.

    It ignores the features. The index of an arm is its mean reward plus √(2β ln t/n), with the β of ``settings``; β = 1
    is UCB1 for rewards in [0, 1]. A pull is sent as the number of its arm and its reward: 2 scalars up and 2N down.
    """
    require_run(problem, clients, steps, settings)
    runs, arms = problem.means.shape
    apart = torch.eye(arms, dtype=torch.float64).expand(runs, 1, arms, arms)  # a feature for each arm
    offsets = torch.zeros(runs, 1, arms, dtype=torch.float64)

    def ucb1(posterior: Estimates, data: Tally) -> Tensor:
        """Return the index of each arm, which is infinite for arms that were never pulled."""
        pulls = data.counts.clamp(min=1)
        t = data.counts.sum(-1, keepdim=True).clamp(min=1)
        index = data.sums / pulls + (2 * settings.beta * t.log() / pulls).sqrt()
        return torch.where(data.counts > 0, index, torch.inf)

    learner = Immediate(1, apart, offsets, arms, settings, ucb1, datum=2, in_place=True)
    return simulate("UCB1, shared", problem, learner, Exploration.nothing(runs), clients, steps)


@on_cpu
def exact_kernel_ucb(
    problem: Problem, clients: int, steps: int, settings: Settings, lengthscale: float = 1.0
) -> Trace:
    """Play ``steps`` steps of kernel UCB with the RBF kernel on all data, which are synchronised after every pull.

    ``settings`` has λ and β, and ``lengthscale`` is that of the kernel. A pull costs d_x + 1 scalars up, or fewer
    if the form of the messages allows it, and N = ``clients`` times as many down. Any factor Φ of the kernel ΦΦᵀ serves
    as features; we use the symmetric eigendecomposition, which also works for arms that are nearly equal.
    """
    require_run(problem, clients, steps, settings)
    require_prior(1.0, settings.lam)
    values, vectors = torch.linalg.eigh(rbf(problem.arms, lengthscale))
    features = (vectors * values.clamp(min=0).sqrt().unsqueeze(-2)).unsqueeze(1)
    runs, d_x = len(problem.runs), problem.arms.shape[-1]
    offsets = torch.zeros(features.shape[:-1], dtype=torch.float64)
    learner = Immediate(1, features, offsets, features.shape[-1], settings, datum=d_x + 1, in_place=True)
    return simulate("Kernel UCB, at once", problem, learner, Exploration.nothing(runs), clients, steps)
