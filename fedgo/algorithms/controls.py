"""Controls that the paper does not have: uniform play, UCB1 on shared counts, exact kernel UCB, BoTorch's GP-UCB."""

import torch
from botorch.acquisition.analytic import UpperConfidenceBound
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Standardize
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from fedgo.algorithms.kernel_ucb import rbf
from fedgo.checks import require
from fedgo.confidence import Posterior, Tally
from fedgo.phase_two import Immediate, Settings
from fedgo.problem import Problem
from fedgo.simulate import Explored, Trace, simulate


def uniform_random(problem: Problem, clients: int, steps: int) -> Trace:
    """Every step a uniform arm; nothing is sent."""
    require(clients >= 1, "clients", clients, "give N, at least one client")
    require(steps >= 1, "steps", steps, "give at least one step")
    runs, arms = problem.means.shape
    arm = torch.stack(
        [torch.randint(arms, (steps,), generator=source) for source in problem.generators("uniform")]
    )
    blank = torch.zeros(runs, steps, dtype=torch.int64)
    reward = problem.observe(arm, problem.tape(steps))
    regret = problem.regret(arm)
    return Trace("Uniform", problem.name, clients, 0, arm, reward, regret, blank, blank, blank.bool())


def shared_ucb1(problem: Problem, clients: int, steps: int, settings: Settings) -> Trace:
    """UCB1 (Auer, Cesa-Bianchi and Fischer 2002) on counts that all share at once, blind to the features.

    The index is the mean reward of the arm plus √(2β ln t/n); β = 1 is UCB1 for rewards in [0, 1]. A pull is sent as
    an arm's number and a reward: 2 scalars up and 2N down.
    """
    runs, arms = problem.means.shape
    unit = torch.eye(arms, dtype=torch.float64).expand(runs, 1, arms, arms)

    def ucb1(posterior: Posterior, known: Tally) -> Tensor:
        pulls = known.counts.clamp(min=1)
        t = known.counts.sum(-1, keepdim=True).clamp(min=1)
        index = known.sums / pulls + (2 * settings.beta * t.log() / pulls).sqrt()
        return torch.where(known.counts > 0, index, torch.inf)

    learner = Immediate(1, unit, torch.zeros(runs, 1, arms).double(), arms, settings, ucb1, datum=2)
    return simulate("UCB1, shared", problem, learner, Explored.nothing(runs), clients, steps)


def exact_kernel_ucb(
    problem: Problem, clients: int, steps: int, settings: Settings, lengthscale: float = 1.0
) -> Trace:
    """Kernel UCB (RBF) on all data, synchronised at once: each pull costs d_x + 1 scalars up and N times that down.

    Any factor Φ of the kernel ΦΦᵀ serves as features; the symmetric eigendecomposition takes nearly equal arms.
    """
    values, vectors = torch.linalg.eigh(rbf(problem.arms, lengthscale))
    features = (vectors * values.clamp(min=0).sqrt().unsqueeze(-2)).unsqueeze(1)
    runs, d_x = len(problem.runs), problem.arms.shape[-1]
    offsets = torch.zeros(features.shape[:-1], dtype=torch.float64)
    learner = Immediate(1, features, offsets, features.shape[-1], settings, datum=d_x + 1)
    return simulate("Kernel UCB, at once", problem, learner, Explored.nothing(runs), clients, steps)


def botorch_gp_ucb(
    problem: Problem, clients: int, steps: int, beta: float, first: int = 10, refit: int = 25
) -> Trace:
    """Centralised Bayesian optimisation as a reference: BoTorch's SingleTaskGP and its upper confidence bound.

    ``first`` uniform pulls, then the arm of largest bound; the hyperparameters are fitted anew every ``refit`` steps.
    Slow (a Gaussian process on every datum), so for few runs and steps. A pull is charged as in `exact_kernel_ucb`.
    """
    require(beta >= 0, "beta", beta, "give a squared radius β of at least 0")
    require(refit >= 1, "refit", refit, "fit the hyperparameters every so many steps, at least 1")
    require(1 <= first <= steps, "first", first, f"give 1 to {steps} = steps uniform pulls")
    runs, arms, d_x = problem.arms.shape
    tape = problem.tape(steps)
    low, high = problem.arms.amin(1, keepdim=True), problem.arms.amax(1, keepdim=True)
    cube = (problem.arms - low) / torch.where(high > low, high - low, 1.0)  # as BoTorch's priors expect
    pulled = torch.stack([torch.randint(arms, (steps,), generator=s) for s in problem.generators("botorch")])
    reward = problem.observe(pulled, tape)
    for run in range(runs):
        x, state = cube[run], None
        for t in range(first, steps):
            past = pulled[run, :t]
            if (reward[run, :t] == reward[run, 0]).all():
                continue  # equal rewards have no scale; the uniform pull stays
            model = SingleTaskGP(x[past], reward[run, :t, None], outcome_transform=Standardize(1))
            if state is None or (t - first) % refit == 0:
                fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
                state = {name: v for name, v in model.state_dict().items() if "outcome_transform" not in name}
            else:
                model.load_state_dict(state, strict=False)
            with torch.no_grad():
                pulled[run, t] = UpperConfidenceBound(model.eval(), beta=beta)(x.unsqueeze(-2)).argmax()
            only = problem.only(run)
            reward[run, t] = only.observe(pulled[run : run + 1, t : t + 1], tape[run : run + 1, t : t + 1])[
                0, 0
            ]
    up = torch.full((runs, steps), d_x + 1)
    return Trace(
        "GP-UCB (BoTorch)", problem.name, clients, 0, pulled, reward, problem.regret(pulled), up, clients * up,
        torch.ones(runs, steps, dtype=torch.bool),
    )  # fmt: skip
