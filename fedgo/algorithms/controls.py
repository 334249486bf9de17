"""Controls that the paper does not have: uniform play, UCB1 with shared counts, and kernel UCB on all data.

UCB1 pulls the arm with the largest mean + √(2β ln t/n), where n of the t pulls so far were pulls of this arm, and β is
1 in the source (Auer, Cesa-Bianchi and Fischer, 2002, https://doi.org/10.1023/A:1013689704352). Kernel UCB pulls the
arm x with the largest mean + √β‖φ(x)‖_{Σ⁻¹} of kernel ridge regression on features φ of the RBF kernel, with Σ = λI +
Σ_s φ(x_s)φ(x_s)ᵀ for the pulled arms x_s (Valko et al., 2013, https://arxiv.org/abs/1309.6869). In both, all data are
shared after every pull, with the learner `fedgo.algorithms.go_ucb.Immediate`. N = ``clients`` clients play ``steps``
pulls in turn.
"""

import torch
from torch import Tensor

from fedgo._checks import on_cpu
from fedgo.algorithms.approx_dis_kernel_ucb import rbf
from fedgo.algorithms.go_ucb import Immediate, SharedState
from fedgo.confidence import Estimates, Tally
from fedgo.phase_one import Exploration, explore
from fedgo.phase_two import Settings, require_run
from fedgo.problem import Problem
from fedgo.simulation import simulate
from fedgo.trace import Trace


@on_cpu
def uniform_random(problem: Problem, clients: int, steps: int) -> Trace:
    """Play arms that are drawn uniformly at random, without any communication.

    Raises:
        ValueError: ``clients`` or ``steps`` is below 1.
        TypeError: An argument is of another kind.
    """
    require_run(problem, clients, steps)
    arm, reward, ledger = explore(problem, steps, "uniform")
    regret, sync = problem.regret(arm), torch.zeros_like(arm, dtype=torch.bool)
    return Trace("Uniform", problem.name, clients, 0, arm, reward, regret, ledger.up, ledger.down, sync)


@on_cpu
def shared_ucb1(problem: Problem, clients: int, steps: int, settings: Settings) -> Trace:
    """Play UCB1 on the counts and sums of rewards of each arm, which all clients share after every pull.

    Arms that were never pulled come first, in random order. A pull is sent as the number of its arm and its reward: 2
    scalars up, and 2 scalars down to each client. Of the settings only β matters.

    Raises:
        ValueError: ``clients`` or ``steps`` is below 1; λ is 1e-13 or less, which the learner refuses although UCB1
            does not use it; or rewards or β are so large that an index is NaN.
        TypeError: An argument is of another kind.
    """
    require_run(problem, clients, steps, settings)
    runs, arms = problem.means.shape
    # each arm has a feature of its own, so that a pull says nothing about the other arms
    apart = torch.eye(arms, dtype=torch.float64).expand(runs, 1, arms, arms)
    offsets = torch.zeros(runs, 1, arms, dtype=torch.float64)

    def ucb1(posterior: Estimates, data: Tally) -> Tensor:
        """Return the UCB1 index of each arm, (S, 1, K), ∞ for arms without a pull."""
        pulls = data.counts.clamp(min=1)
        t = data.counts.sum(-1, keepdim=True).clamp(min=1)
        index = data.sums / pulls + (2 * settings.beta * t.log() / pulls).sqrt()
        return torch.where(data.counts > 0, index, torch.inf)

    learner = _Counts(apart, offsets, arms, settings, ucb1, datum=2)
    return simulate("UCB1, shared", problem, learner, Exploration.nothing(runs), clients, steps)


class _Counts(Immediate):
    """The learner of UCB1, which needs no posterior."""

    def learn(self, state: SharedState, arm: Tensor, reward: Tensor, turn: Tensor) -> SharedState:
        """Return the state after one pull of the runs with ``turn`` 1."""
        return state._replace(known=state.known.record(arm, reward, turn))


@on_cpu
def exact_kernel_ucb(
    problem: Problem, clients: int, steps: int, settings: Settings, lengthscale: float = 1.0
) -> Trace:
    """Play kernel UCB with the RBF kernel on all data, which all clients share after every pull.

    The rows of any Φ with ΦΦᵀ equal to the kernel of all pairs of arms can serve as features. Here Φ comes from the
    eigendecomposition of the kernel, which also works for arms that are nearly or exactly equal.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        steps: The number of pulls.
        settings: λ, β and the form of the messages. A pull costs d_x + 1 scalars up, or fewer if this form allows it,
            and as many down to each client. γ is not used.
        lengthscale: The length scale ℓ > 0 of the kernel exp(−‖x − x'‖²/(2ℓ²)).

    Raises:
        ValueError: An argument is out of range; λ is so small that rounding would decide which arm is pulled; or
            rewards are so large that an index is NaN.
        TypeError: An argument is of another kind.
    """
    require_run(problem, clients, steps, settings)
    values, vectors = torch.linalg.eigh(rbf(problem.arms, lengthscale))
    features = (vectors * values.clamp(min=0).sqrt().unsqueeze(-2)).unsqueeze(1)
    runs, d_x = len(problem.runs), problem.arms.shape[-1]
    offsets = torch.zeros(features.shape[:-1], dtype=torch.float64)
    learner = Immediate(features, offsets, features.shape[-1], settings, datum=d_x + 1)
    return simulate("Kernel UCB, at once", problem, learner, Exploration.nothing(runs), clients, steps)
