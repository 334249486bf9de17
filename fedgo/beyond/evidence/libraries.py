"""Libraries for Bayesian optimisation as players, which are compared with the method `ADVISED` on the same arms.

A library chooses N arms at a time, where N is the number of clients, and sees every single reward. Each library but
Optuna begins with max(N, 5) arms in a random order, which are distinct if there are as many. A library looks for the
best arm and does not count what the search costs. For each pull, the arm and the reward are sent to the library, and
the library sends back the next arm, which are three scalars.

A function that chooses receives the arms in the unit cube, ``cube`` (K, d_x), the pulls so far, ``arm`` (n,) int64 and
``reward`` (n,), the noise ``sigma``, the number ``wanted`` of arms, and a generator, and returns arms (wanted,) int64.
BoTorch is given σ, scikit-learn fits it.

This package does not install Optuna. Optuna's rows in the table of the study "elsewhere" were computed in an
environment of its own (``pip install optuna``), and are played again only where it is installed.
"""

import time
import warnings
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import Tensor

from fedgo._streams import generator
from fedgo.beyond.method.advised import ADVISED
from fedgo.beyond.method.epochs import each_arm
from fedgo.beyond.method.gaussian_process import FittedModel, GaussianProcess
from fedgo.beyond.method.process import in_cube
from fedgo.beyond.method.surrogates import Fitted, Surrogate
from fedgo.confidence import Tally
from fedgo.experiments.runner import Job
from fedgo.problem import Problem

# A library's choice of the next arms. It is called with the arms in the unit cube (K, d_x), the pulled arms (n,), their
# rewards (n,), the noise σ, the number of arms that are wanted, and a generator, and returns the arms (wanted,).
Choose = Callable[[Tensor, Tensor, Tensor, float, int, torch.Generator], Tensor]


def fit_to_pulls(surrogate: Surrogate, arms: Tensor, arm: Tensor, reward: Tensor, sigma: float) -> Fitted:
    """Return the posterior of the arms' mean rewards by ``surrogate``, given the counts and sums of n pulls."""
    counts, sums = (arm.bincount(each, len(arms)) for each in (torch.ones_like(reward), reward))
    return surrogate.fit(arms, Tally(counts, sums), sigma)


def thompson(
    cube: Tensor, arm: Tensor, reward: Tensor, sigma: float, wanted: int, source: torch.Generator
) -> Tensor:
    """Return the arms that BoTorch chooses by Thompson sampling: each has the largest value in a posterior sample.

    A millionth of the largest posterior variance is added to all variances, so that the samples can be drawn.
    """
    fit = fit_to_pulls(GaussianProcess(), cube, arm, reward, sigma)
    every = torch.arange(len(cube))
    covariance = fit.columns(every, every)
    root = torch.linalg.cholesky(covariance + 1e-6 * covariance.diag().amax() * torch.eye(len(cube)).float())
    draws = torch.randn(wanted, len(cube), generator=source, dtype=torch.float64)
    samples: Tensor = fit.mean + draws @ root.mT
    return samples.argmax(-1)


def log_improvement(
    cube: Tensor, arm: Tensor, reward: Tensor, sigma: float, wanted: int, source: torch.Generator
) -> Tensor:
    """Return the arms that BoTorch chooses by the log noisy expected improvement.

    If ``wanted`` is above K, there are only K of them, and BoTorch warns.
    """
    fit = fit_to_pulls(GaussianProcess(), cube, arm, reward, sigma)
    assert isinstance(fit, FittedModel)
    return most_improving(fit.model, cube, arm, wanted, seed=0)


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


def _regression(cube: Tensor, arm: Tensor, reward: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the standard deviation of each arm's next reward, (K,), by scikit-learn's process."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel() * RBF([1.0] * cube.shape[1]) + WhiteKernel()
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns if a length scale is at its bound
        process.fit(cube[arm].numpy(), reward.numpy())
    mean, spread = (torch.from_numpy(part) for part in process.predict(cube.numpy(), return_std=True))
    return mean, spread


def largest_bounds(
    cube: Tensor, arm: Tensor, reward: Tensor, sigma: float, wanted: int, source: torch.Generator
) -> Tensor:
    """Return the arms with the largest mean + 2 standard deviations of the next reward by scikit-learn's process."""
    mean, spread = _regression(cube, arm, reward)
    return (mean + 2 * spread).topk(wanted).indices


LIBRARIES: dict[str, Choose] = {
    "BoTorch, Thompson": thompson,
    "BoTorch, qLogNEI": log_improvement,
    "scikit-learn, bound": largest_bounds,
}
OPTUNA = "Optuna, TPE"
_BEGIN = 5  # the number of distinct arms with which a library begins if there are fewer clients


def optuna_arms(cube: Tensor, seed: int, wanted: int) -> Generator[Tensor, Any, None]:
    """Yield batches of ``wanted`` arms that Optuna's TPE (tree-structured Parzen estimator) proposes, without an end.

    The caller gives the rewards of a batch back by ``send``, which returns the next batch. TPE proposes points of the
    unit cube, and each point is replaced by the nearest arm.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    while True:
        trials = [study.ask() for _ in range(wanted)]
        points = [[t.suggest_float(f"x{j}", 0, 1) for j in range(cube.shape[1])] for t in trials]
        rewards = yield torch.cdist(torch.tensor(points, dtype=torch.float64), cube).argmin(-1)
        for trial, reward in zip(trials, rewards.tolist(), strict=True):
            study.tell(trial, reward)


def pulled(name: str, problem: Problem, clients: int, steps: int) -> tuple[Tensor, Tensor]:
    """Return the arms that the library ``name`` pulls in the one run of ``problem``, and their rewards, (steps,)."""
    cube = in_cube(problem.arms[0])
    source, tape = generator(problem.seed, problem.runs[0], "elsewhere"), problem.tape(steps + clients)
    trials, drawn = optuna_arms(cube, problem.runs[0], clients), None
    none = torch.zeros(0, dtype=torch.int64)
    arm = none if name == OPTUNA else each_arm(problem, max(clients, _BEGIN)).arm[0]
    reward = problem.observe(arm.unsqueeze(0), tape[:, : len(arm)])[0]
    while len(arm) < steps:
        if name == OPTUNA:
            new = trials.send(drawn)
        else:
            new = LIBRARIES[name](cube, arm, reward, problem.sigma, clients, source)
        drawn = problem.observe(new.unsqueeze(0), tape[:, len(arm) : len(arm) + clients])[0]
        arm, reward = torch.cat([arm, new]), torch.cat([reward, drawn])
    return arm[:steps], reward[:steps]


def best_arm(name: str, problem: Problem, arm: Tensor, reward: Tensor) -> Tensor:
    """Return the arm that the player ``name`` finds best after its pulls in the one run of ``problem``, ().

    For Optuna it has the largest single reward, and for the others the largest posterior mean.
    """
    if name == OPTUNA:
        return arm[reward.argmax()]
    if name == "scikit-learn, bound":
        return _regression(in_cube(problem.arms[0]), arm, reward)[0].argmax()
    surrogate = ADVISED.surrogate if name == "advised" else GaussianProcess()
    return fit_to_pulls(surrogate, problem.arms[0], arm, reward, problem.sigma).mean.argmax()


def measure_library(job: Job) -> list[dict[str, Any]]:
    """Play the ``job`` of the study "elsewhere" on one thread, and return a row for each run.

    A player makes NT pulls; of those of `ADVISED` the first NT count. Beside the regime, "player", "seed" and "run", a
    row has

    - "regret", the sum of the regrets of these pulls;
    - "gap", the regret of one pull of the arm that the player finds best after them (`best_arm`);
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
            scalars = trace.communication[0, steps - 1].item()
        else:
            (arm, reward), scalars = pulled(job.name, problem, clients, steps), 3 * steps
        best = best_arm(job.name, problem, arm, reward)
        numbers = {
            "regret": problem.regret(arm.unsqueeze(0)).sum().item(),
            "gap": problem.regret(best.view(1, 1)).item(),
            "seconds": time.process_time() - begun,
            "scalars": scalars,
        }
        rows.append({**job.regime.columns, "player": job.name, "seed": job.seed, "run": run} | numbers)
    return rows
