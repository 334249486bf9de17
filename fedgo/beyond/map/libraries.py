"""What libraries for Bayesian optimisation do on the same arms, with as many pulls and every single reward.

N arms are chosen at a time. Each library but Optuna begins with max(N, 5) distinct arms, and is given the noise σ if it
asks for it. A library looks for the best arm and does not count what the search costs. For each pull, the arm and the
reward are sent to the library, and it sends back an arm.

This package does not install Optuna. Its rows were computed in an environment of its own (``pip install optuna``), and
``--check`` of this study plays them only where Optuna is installed.
"""

import time
import warnings
from collections.abc import Callable, Generator
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from fedgo._streams import generator
from fedgo.beyond.advised import ADVISED
from fedgo.beyond.epochs import each_arm
from fedgo.beyond.surrogates.gaussian_process import FittedModel, single_task_gp
from fedgo.confidence import Tally
from fedgo.experiments.runner import Job
from fedgo.problem import Problem

# A library's choice of the next arms. It is called with the arms in the unit cube (K, d_x), the pulled arms (n,), their
# rewards (n,), the noise σ, the number of arms that are wanted, and a generator, and returns the arms (wanted,).
Choose = Callable[[Tensor, Tensor, Tensor, float, int, torch.Generator], Tensor]


def _model(cube: Tensor, arm: Tensor, reward: Tensor, sigma: float) -> Any:
    """Return BoTorch's Gaussian process, fitted to the mean reward of each arm that has been pulled.

    Args:
        cube: The arms scaled to the unit cube, (K, d_x).
        arm: The arm of each pull, (n,) int64.
        reward: The reward of each pull, (n,).
        sigma: The standard deviation σ of a reward's noise.
    """
    at, inverse, counts = arm.unique(return_inverse=True, return_counts=True)
    means = torch.zeros(len(at), dtype=torch.float64).index_add(0, inverse, reward) / counts
    return single_task_gp(cube[at], means, sigma**2 / counts.double())


def thompson(
    cube: Tensor, arm: Tensor, reward: Tensor, sigma: float, wanted: int, source: torch.Generator
) -> Tensor:
    """Return the arms that BoTorch chooses by Thompson sampling, (wanted,) int64.

    Each is the arm with the largest value in one posterior sample over all K arms. Arms may repeat.

    Args:
        cube: The arms scaled to the unit cube, (K, d_x).
        arm: The arms pulled so far, (n,) int64.
        reward: Their rewards, (n,).
        sigma: The standard deviation σ of a reward's noise.
        wanted: The number of arms to choose.
        source: The generator of the samples.
    """
    model = _model(cube, arm, reward, sigma)
    with torch.no_grad():
        posterior = model.posterior(cube)
        covariance = posterior.distribution.covariance_matrix
        root = torch.linalg.cholesky(covariance + 1e-6 * covariance.diagonal().amax() * torch.eye(len(cube)))
        draws = torch.randn(wanted, len(cube), generator=source, dtype=torch.float64)
        samples: Tensor = posterior.mean.squeeze(-1) + draws @ root.mT
        return samples.argmax(-1)


def log_improvement(
    cube: Tensor, arm: Tensor, reward: Tensor, sigma: float, wanted: int, source: torch.Generator
) -> Tensor:
    """Return the distinct arms that BoTorch chooses by the log noisy expected improvement (qLogNEI), (wanted,) int64.

    They are chosen one after the other; each maximises the improvement of the batch so far.

    Args:
        cube: The arms scaled to the unit cube, (K, d_x).
        arm: The arms pulled so far, (n,) int64.
        reward: Their rewards, (n,).
        sigma: The standard deviation σ of a reward's noise.
        wanted: The number of arms to choose.
        source: Not used.
    """
    from botorch.acquisition.logei import qLogNoisyExpectedImprovement
    from botorch.optim.optimize import optimize_acqf_discrete
    from botorch.sampling.normal import SobolQMCNormalSampler

    model = _model(cube, arm, reward, sigma)
    sampler = SobolQMCNormalSampler(torch.Size([64]), seed=0)
    improvement = qLogNoisyExpectedImprovement(model, cube[arm.unique()], sampler, prune_baseline=True)
    points, _ = optimize_acqf_discrete(improvement, wanted, cube, max_batch_size=256)
    return torch.cdist(points, cube).argmin(-1)


def _regression(cube: Tensor, arm: Tensor, reward: Tensor) -> tuple[Tensor, Tensor]:
    """Return the posterior mean and standard deviation of every arm, (K,) each, by scikit-learn's Gaussian process.

    The process is fitted to all single rewards.

    Args:
        cube: The arms scaled to the unit cube, (K, d_x).
        arm: The arm of each pull, (n,) int64.
        reward: The reward of each pull, (n,).
    """
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
    """Return the arms with the largest mean + 2 standard deviations of scikit-learn's Gaussian process,
    (wanted,) int64.

    Args:
        cube: The arms scaled to the unit cube, (K, d_x).
        arm: The arms pulled so far, (n,) int64.
        reward: Their rewards, (n,).
        sigma: Not used, because the process fits the noise.
        wanted: The number of arms to choose.
        source: Not used.
    """
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
    """Yield batches of arms that Optuna's TPE proposes, (wanted,) int64 each.

    The caller returns the rewards of a batch, (wanted,), by ``send``. TPE proposes points of the unit cube, and each is
    replaced by the nearest arm.

    Args:
        cube: The arms scaled to the unit cube, (K, d_x).
        seed: The seed of the sampler.
        wanted: The number of arms of a batch.

    Raises:
        ImportError: Optuna is not installed.
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


def pulled(name: str, problem: Problem, clients: int, steps: int) -> tuple[Tensor, int]:
    """Return the arms that a library pulls in the one run of ``problem``, (1, steps) int64, and the arm it finds best.

    For Optuna the best arm is the one with the largest single reward, for the other libraries the one with the largest
    posterior mean.

    Args:
        name: The name of the library, a key of `LIBRARIES` or `OPTUNA`.
        problem: A bandit problem with one run.
        clients: The number N of arms that are pulled at a time.
        steps: The number of pulls.
    """
    low, high = problem.arms[0].amin(0), problem.arms[0].amax(0)
    cube = (problem.arms[0] - low) / torch.where(high > low, high - low, 1.0)
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
    arm, reward = arm[:steps], reward[:steps]
    if name == OPTUNA:
        best = arm[reward.argmax()]
    elif name == "scikit-learn, bound":
        best = _regression(cube, arm, reward)[0].argmax()
    else:
        best = FittedModel.of(_model(cube, arm, reward, problem.sigma), cube).mean.argmax()
    return arm.unsqueeze(0), int(best)


def measure_library(job: Job) -> list[dict[str, Any]]:
    """Return a row of the table of the study "elsewhere" for each run of the ``job``.

    Its columns are the final "regret", the "gap" (the regret of one pull of the arm that the player finds best in the
    end), the processor "seconds", and the "scalars" sent. A library is charged three scalars for each pull.
    """
    torch.set_num_threads(1)
    clients, rounds = job.regime.clients, job.regime.rounds
    rows, steps = [], clients * rounds
    for run in job.runs:
        problem = job.regime.world((run,), job.seed).problem
        begun = time.process_time()
        if job.name == "advised":
            trace = ADVISED.play(problem, clients, rounds)
            arm, scalars = trace.arm[:, :steps], trace.communication[0, steps - 1].item()
            counts = torch.bincount(arm[0], minlength=job.regime.arms).double()
            sums = torch.zeros_like(counts).index_add(0, arm[0], trace.reward[0, :steps])
            fit = ADVISED.surrogate.fit(problem.arms[0], Tally(counts, sums), problem.sigma)
            best = int(fit.mean.argmax())
        else:
            (arm, best), scalars = pulled(job.name, problem, clients, steps), 3 * steps
        seconds = time.process_time() - begun
        gap = problem.regret(torch.tensor([[best]])).item()
        regret = problem.regret(arm).sum().item()
        numbers = {"regret": regret, "gap": gap, "seconds": seconds, "scalars": scalars}
        row = {**asdict(job.regime), "player": job.name, "seed": job.seed, "run": run}
        rows.append(row | {column: numbers[column] for column in job.study.columns})
    return rows
