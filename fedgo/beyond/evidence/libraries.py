"""Libraries for Bayesian optimisation as players, which are compared with `ADVISED` and `SEARCH` on the same arms.

A library chooses N arms at a time, where N is the number of clients, and sees every single reward. Each library but
Optuna begins with max(N, 5) arms in a random order, which are distinct if there are as many. A library looks for the
best arm and does not count what the search costs. For each pull, the arm and the reward are sent to the library, and
the library sends back the next arm, which are three scalars.

A library is called with a problem of one run and the number of pulls, and returns how it chooses and which arm it finds
best in the end. Its choice receives the pulls so far, ``arm`` (n,) int64 and ``reward`` (n,), and the number ``wanted``
of arms, and returns arms (wanted,) int64. ``cube`` has the arms in the unit cube, (K, d_x). BoTorch is given σ,
scikit-learn fits it. `SEARCH` is played as a library is.

This package does not install Optuna. Optuna's rows in the table of the study "elsewhere" were computed in an
environment of its own (``pip install optuna``), and are played again only where it is installed.
"""

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedgo._streams import generator
from fedgo.beyond.evidence.measured import BEGIN, Choose, search
from fedgo.beyond.method.advised import ADVISED, SEARCH, Advised
from fedgo.beyond.method.epochs import each_arm
from fedgo.beyond.method.gaussian_process import FittedModel, GaussianProcess
from fedgo.beyond.method.process import in_cube
from fedgo.beyond.method.search import Whole
from fedgo.beyond.method.surrogates import Fitted, Surrogate
from fedgo.confidence import Tally
from fedgo.experiments.runner import Job
from fedgo.problem import Problem
from fedgo.simulation import order_of_ties

# The arm that a library finds best, (), given the pulled arms and their rewards, (n,) each.
Best = Callable[[Tensor, Tensor], Tensor]


def fit_to_pulls(surrogate: Surrogate, arms: Tensor, arm: Tensor, reward: Tensor, sigma: float) -> Fitted:
    """Return the posterior of the arms' mean rewards by ``surrogate``, given the counts and sums of n pulls."""
    counts, sums = (arm.bincount(each, len(arms)) for each in (torch.ones_like(reward), reward))
    return surrogate.fit(arms, Tally(counts, sums), sigma)


def botorch(improve: bool, problem: Problem, steps: int) -> tuple[Choose, Best]:
    """Choose by BoTorch's log noisy expected improvement if ``improve``, otherwise by Thompson sampling, where each arm
    has the largest value in a sample of the posterior; name the arm with the largest posterior mean.

    A millionth of the largest posterior variance is added to all variances, so that samples can be drawn. If more than
    K improving arms are wanted, there are only K of them, and BoTorch warns.
    """
    cube, source = in_cube(problem.arms[0]), generator(problem.seed, problem.runs[0], "elsewhere")

    def fitted(arm: Tensor, reward: Tensor) -> Fitted:
        return fit_to_pulls(GaussianProcess(), cube, arm, reward, problem.sigma)

    def choose(arm: Tensor, reward: Tensor, wanted: int) -> Tensor:
        fit = fitted(arm, reward)
        if improve:
            assert isinstance(fit, FittedModel)
            return most_improving(fit.model, cube, arm, wanted, seed=0)
        every = torch.arange(len(cube))
        covariance = fit.columns(every, every)
        added = 1e-6 * covariance.diag().amax() * torch.eye(len(cube)).float()
        draws = torch.randn(wanted, len(cube), generator=source, dtype=torch.float64)
        samples: Tensor = fit.mean + draws @ torch.linalg.cholesky(covariance + added).mT
        return samples.argmax(-1)

    return choose, lambda arm, reward: fitted(arm, reward).mean.argmax()


def most_improving(model: Any, cube: Tensor, arm: Tensor, wanted: int, seed: int) -> Tensor:
    """Return the arms with the largest log noisy expected improvement (qLogNEI), chosen one after the other, (wanted,).

    Args:
        model: BoTorch's model of the rewards.
        cube: The arms in the unit cube, (K, d_x).
        arm: The arms pulled so far, (n,) int64.
        wanted: The number of arms.
        seed: The seed of the samples of the posterior.
    """
    from botorch.acquisition.logei import qLogNoisyExpectedImprovement
    from botorch.optim.optimize import optimize_acqf_discrete
    from botorch.sampling.normal import SobolQMCNormalSampler

    sampler = SobolQMCNormalSampler(torch.Size([64]), seed=seed)
    improvement = qLogNoisyExpectedImprovement(model, cube[arm.unique()], sampler, prune_baseline=True)
    points, _ = optimize_acqf_discrete(improvement, wanted, cube, max_batch_size=512)
    return torch.cdist(points, cube).argmin(-1)


def scikit_learn(problem: Problem, steps: int) -> tuple[Choose, Best]:
    """Choose the arms with the largest mean + 2 standard deviations of the next reward by scikit-learn's process, and
    name the one with the largest mean.
    """
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    cube = in_cube(problem.arms[0])

    def moments(arm: Tensor, reward: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean and the standard deviation of each arm's next reward, (K,)."""
        kernel = ConstantKernel() * RBF([1.0] * cube.shape[1]) + WhiteKernel()
        process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn warns if a length scale is at its bound
            process.fit(cube[arm].numpy(), reward.numpy())
        mean, spread = (torch.from_numpy(part) for part in process.predict(cube.numpy(), return_std=True))
        return mean, spread

    def choose(arm: Tensor, reward: Tensor, wanted: int) -> Tensor:
        mean, spread = moments(arm, reward)
        return (mean + 2 * spread).topk(wanted).indices

    return choose, lambda arm, reward: moments(arm, reward)[0].argmax()


def optuna_tpe(problem: Problem, steps: int) -> tuple[Choose, Best]:
    """Choose the arms nearest to the points of the unit cube that Optuna's TPE (tree-structured Parzen estimator)
    proposes in one study, and name the arm with the largest single reward.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    cube, asked = in_cube(problem.arms[0]), list[Any]()
    sampler = optuna.samplers.TPESampler(seed=problem.runs[0], constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)

    def choose(arm: Tensor, reward: Tensor, wanted: int) -> Tensor:
        for trial, value in zip(asked, reward[len(reward) - len(asked) :].tolist(), strict=True):
            study.tell(trial, value)
        asked[:] = [study.ask() for _ in range(wanted)]
        points = [[t.suggest_float(f"x{j}", 0, 1) for j in range(cube.shape[1])] for t in asked]
        return torch.cdist(torch.tensor(points, dtype=torch.float64), cube).argmin(-1)

    return choose, lambda arm, reward: arm[reward.argmax()]


def by_plan(
    how: Advised, arms: Tensor, sigma: float, ties: Tensor, budget: int
) -> tuple[Choose, Callable[[Tensor, Tensor], Fitted]]:
    """Return how the method ``how`` chooses ``arms`` with a ``budget`` of pulls, and its fit to the pulls so far."""

    def fitted(arm: Tensor, reward: Tensor) -> Fitted:
        return fit_to_pulls(how.surrogate, arms, arm, reward, sigma)

    def choose(arm: Tensor, reward: Tensor, wanted: int) -> Tensor:
        counts = arm.bincount(minlength=len(ties)).double()
        return how.epoch(fitted(arm, reward), counts, sigma, ties, most=wanted, budget=budget)

    return choose, fitted


def own_search(problem: Problem, steps: int) -> tuple[Choose, Best]:
    """Choose as `SEARCH` does with a budget of ``steps`` pulls, and name the arm with the largest posterior mean."""
    ties = order_of_ties(problem, 1)[0, 0]
    choose, fitted = by_plan(SEARCH, problem.arms[0], problem.sigma, ties, steps)
    return choose, lambda arm, reward: Whole.of(fitted(arm, reward)).mean.argmax()


OPTUNA, OURS = "Optuna, TPE", "SEARCH"
LIBRARIES: dict[str, Callable[[Problem, int], tuple[Choose, Best]]] = {
    "BoTorch, Thompson": partial(botorch, False),
    "BoTorch, qLogNEI": partial(botorch, True),
    "scikit-learn, bound": scikit_learn,
    OPTUNA: optuna_tpe,
    OURS: own_search,
}


def pulled(name: str, problem: Problem, clients: int, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the arms that the library ``name`` pulls in the one run of ``problem``, their rewards, (steps,) each, and
    the arm that it finds best after them, ().
    """
    (choose, best), tape, made = LIBRARIES[name](problem, steps), problem.tape(steps + clients), 0

    def reward(arm: Tensor) -> Tensor:
        nonlocal made
        made += len(arm)
        return problem.observe(arm.unsqueeze(0), tape[:, made - len(arm) : made])[0]

    first = each_arm(problem, max(clients, BEGIN)).arm[0, :steps]
    played = search(choose, first[:0] if name == OPTUNA else first, reward, steps, clients)
    return *played, best(*played)


def measure_library(job: Job) -> list[dict[str, Any]]:
    """Play the ``job`` of the study "elsewhere" on one thread, and return a row for each run.

    A player makes NT pulls; of those of `ADVISED` the first NT count. Beside the regime, "player", "seed" and "run", a
    row has

    - "regret", the sum of the regrets of these pulls;
    - "gap", the regret of one pull of the arm that the player finds best after them;
      for `ADVISED` it has the largest posterior mean;
    - "seconds", the processor seconds for the pulls, this arm and the two regrets;
    - "scalars", the number of scalars that are sent. A library is charged three for each pull.
    """
    torch.set_num_threads(1)
    clients, rounds = job.regime.clients, job.regime.rounds
    rows, steps = [], clients * rounds
    for run in job.runs:
        problem = job.regime.world((run,), job.seed).problem
        begun = time.process_time()
        if job.name == "advised":
            trace = ADVISED.play(problem, clients, rounds)
            arm, reward = trace.arm[0, :steps], trace.reward[0, :steps]
            best = fit_to_pulls(ADVISED.surrogate, problem.arms[0], arm, reward, problem.sigma).mean.argmax()
            scalars = trace.communication[0, steps - 1].item()
        else:
            (arm, _, best), scalars = pulled(job.name, problem, clients, steps), 3 * steps
        numbers = {
            "regret": problem.regret(arm.unsqueeze(0)).sum().item(),
            "gap": problem.regret(best.view(1, 1)).item(),
            "seconds": time.process_time() - begun,
            "scalars": scalars,
        }
        rows.append({**job.regime.columns, "player": job.name, "seed": job.seed, "run": run} | numbers)
    return rows
