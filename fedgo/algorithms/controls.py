"""Controls that the paper does not have: uniform play, UCB1 with shared counts, and kernel UCB on all data.

UCB1 pulls the arm with the largest mean + √(2β ln t/n), where n of the t pulls so far were pulls of this arm, and β is
a factor that is 1 in the source (Auer, Cesa-Bianchi and Fischer, Machine Learning 2002,
https://doi.org/10.1023/A:1013689704352). Kernel UCB pulls the arm x with the largest mean + √β‖φ(x)‖_{Σ⁻¹}, with the
mean and the width of kernel ridge regression on features φ of the RBF kernel. Σ = λI + Σ_s φ(x_s)φ(x_s)ᵀ is its matrix
for the pulled arms x_s, λ the regularisation weight, and β the squared weight of the width (Valko et al., UAI 2013,
https://arxiv.org/abs/1309.6869). In both, all clients share all data after every pull, with the learner
`fedgo.algorithms.go_ucb.Immediate`.
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
    """Play arms that are drawn uniformly at random, without any communication.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients, which is written into the trace and changes nothing else.
        steps: The number of steps, in each of which one client pulls one arm; the clients take turns.

    Returns:
        The trace of ``steps`` steps, without a Phase I. No step has a synchronisation, and no scalars are sent.

    Raises:
        ValueError: ``clients`` or ``steps`` is below 1 or above 2⁵³.
        TypeError: An argument is of another kind.
    """
    require_run(problem, clients, steps)
    arm, reward, ledger = explore(problem, steps, "uniform")
    regret, sync = problem.regret(arm), torch.zeros_like(arm, dtype=torch.bool)
    return Trace("Uniform", problem.name, clients, 0, arm, reward, regret, ledger.up, ledger.down, sync)


@on_cpu
def shared_ucb1(problem: Problem, clients: int, steps: int, settings: Settings) -> Trace:
    """Play UCB1 on the counts and sums of rewards of each arm, which all clients share after every pull.

    The features of the arms are not used. The index of an arm is the mean of its observed rewards plus √(2β ln t/n),
    where n of the t pulls of all clients so far were pulls of this arm; β = 1 is UCB1 for rewards in [0, 1]. Arms that
    were never pulled come first, in random order. A pull is sent as the number of its arm and its reward: 2 scalars up,
    and 2 scalars down to each of the N clients.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        steps: The number of steps, in each of which one client pulls one arm; the clients take turns.
        settings: The factor β of the index; the other settings change neither the choices nor the scalars.

    Returns:
        The trace of ``steps`` steps, without a Phase I.

    Raises:
        ValueError: ``clients`` or ``steps`` is below 1 or above 2⁵³; the regularisation weight λ in ``settings`` is
            1e-13 or less, which the learner refuses although UCB1 does not use λ; or rewards or β are so large that an
            index is NaN.
        TypeError: An argument is of another kind.
    """
    require_run(problem, clients, steps, settings)
    runs, arms = problem.means.shape
    # each arm has a feature of its own, so that a pull says nothing about the other arms
    apart = torch.eye(arms, dtype=torch.float64).expand(runs, 1, arms, arms)
    offsets = torch.zeros(runs, 1, arms, dtype=torch.float64)

    def ucb1(posterior: Estimates, data: Tally) -> Tensor:
        """Return the UCB1 index of each of K arms in each of S runs, (S, 1, K); it is ∞ for arms without a pull.

        The index of an arm with n of the t pulls so far is the mean of its rewards plus √(2β ln t/n), where β is that
        of the settings. ``data`` (S, 1, K) has the counts and the summed rewards of all pulls; ``posterior`` is not
        used.
        """
        pulls = data.counts.clamp(min=1)
        t = data.counts.sum(-1, keepdim=True).clamp(min=1)
        index = data.sums / pulls + (2 * settings.beta * t.log() / pulls).sqrt()
        return torch.where(data.counts > 0, index, torch.inf)

    learner = Immediate(apart, offsets, arms, settings, ucb1, datum=2)
    return simulate("UCB1, shared", problem, learner, Exploration.nothing(runs), clients, steps)


@on_cpu
def exact_kernel_ucb(
    problem: Problem, clients: int, steps: int, settings: Settings, lengthscale: float = 1.0
) -> Trace:
    """Play kernel UCB with the RBF kernel on all data, which all clients share after every pull.

    The index of an arm is the mean of kernel ridge regression plus √β times the width of the arm. The rows of any
    matrix Φ with ΦΦᵀ equal to the kernel of all pairs of arms can serve as the arms' features. This function computes Φ
    from the symmetric eigendecomposition of the kernel, in which negative eigenvalues, which are due to rounding, are
    set to 0. This also works for arms that are nearly or exactly equal.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        steps: The number of steps, in each of which one client pulls one arm; the clients take turns.
        settings: The regularisation λ, the squared weight β of the width, and the form of the messages. A pull costs
            d_x + 1 scalars up, for arms with d_x features, or fewer if this form allows it; and as many down to each of
            the N clients. The threshold γ is not used.
        lengthscale: The length scale ℓ > 0 of the kernel exp(−‖x − x'‖²/(2ℓ²)).

    Returns:
        The trace of ``steps`` steps, without a Phase I.

    Raises:
        ValueError: An argument is out of range; λ is so small that rounding would decide which arm is pulled; ℓ is so
            small that 2ℓ² is 0 in float64; or rewards are so large that an index is NaN.
        TypeError: An argument is of another kind.
        OverflowError: ℓ² exceeds float64.
    """
    require_run(problem, clients, steps, settings)
    require_prior(1.0, settings.lam)
    values, vectors = torch.linalg.eigh(rbf(problem.arms, lengthscale))
    features = (vectors * values.clamp(min=0).sqrt().unsqueeze(-2)).unsqueeze(1)
    runs, d_x = len(problem.runs), problem.arms.shape[-1]
    offsets = torch.zeros(features.shape[:-1], dtype=torch.float64)
    learner = Immediate(features, offsets, features.shape[-1], settings, datum=d_x + 1)
    return simulate("Kernel UCB, at once", problem, learner, Exploration.nothing(runs), clients, steps)
