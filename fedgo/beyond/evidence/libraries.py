"""Libraries for Bayesian optimisation as players, with which the recommended method `ADVISED` is compared on the same
arms.

A library chooses N arms at a time, where N is the number of clients, and sees every single reward. Each library but
Optuna begins with max(N, 5) arms in a random order, which are distinct if there are as many. BoTorch is given the
standard deviation σ of the noise; scikit-learn fits it. A library looks for the best arm and does not count what the
search costs. For each pull, the arm and the reward are sent to the library, and the library sends back the next arm,
which are three scalars.

This package does not install Optuna. Optuna's rows in the table of the study "elsewhere" were computed in an
environment of its own (``pip install optuna``). The command ``python -m fedgo.beyond elsewhere --check``, which plays
some rows again, plays them only where Optuna is installed.
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
    """Return the posterior of the K arms' mean rewards by ``surrogate``, which is given the counts and sums of n pulls.

    Args:
        surrogate: The model that is fitted.
        arms: The features of the arms, (K, d_x).
        arm: The arm of each pull, from 0 to K − 1, (n,) int64.
        reward: The reward of each pull, (n,) float64.
        sigma: The standard deviation σ of a reward's noise.

    Raises:
        ValueError: The surrogate refuses the data or σ, for instance because fewer than two arms have been pulled.
        TypeError: ``sigma`` is not a number.
        RuntimeError: ``arm`` and ``reward`` have different lengths.
        ImportError: A library that the fit needs is missing.
        Exception: The fit fails; the error is that of the surrogate, for instance BoTorch's ``ModelFittingError``.
    """
    counts, sums = (arm.bincount(each, len(arms)) for each in (torch.ones_like(reward), reward))
    return surrogate.fit(arms, Tally(counts, sums), sigma)


def thompson(
    cube: Tensor, arm: Tensor, reward: Tensor, sigma: float, wanted: int, source: torch.Generator
) -> Tensor:
    """Return the arms that BoTorch chooses by Thompson sampling, (wanted,) int64.

    For each of them, a sample of the mean rewards of all K arms is drawn from the posterior of BoTorch's Gaussian
    process, and the arm is the one with the largest value in the sample. Arms may repeat. A millionth of the largest
    posterior variance is added to all variances, so that the samples can be drawn.

    Args:
        cube: The features of the K arms, scaled to the unit cube, (K, d_x).
        arm: The arm of each pull so far, from 0 to K − 1, (n,) int64.
        reward: The reward of each pull so far, (n,) float64.
        sigma: The standard deviation σ of a reward's noise.
        wanted: The number of arms to choose, at least 0.
        source: The generator of the samples.

    Raises:
        ValueError: Fewer than two arms have been pulled, all their mean rewards are equal, one of these is not between
            −10¹⁰⁰ and 10¹⁰⁰, or σ is not positive and finite.
        ImportError: BoTorch is missing.
        Exception: BoTorch finds no fit (its ``ModelFittingError``).
        RuntimeError: The posterior covariance of the K arms with these larger variances is not positive definite.
    """
    fit = fit_to_pulls(GaussianProcess(), cube, arm, reward, sigma)
    covariance = fit.covariance(torch.arange(len(cube)))
    root = torch.linalg.cholesky(covariance + 1e-6 * covariance.diag().amax() * torch.eye(len(cube)).float())
    draws = torch.randn(wanted, len(cube), generator=source, dtype=torch.float64)
    samples: Tensor = fit.mean + draws @ root.mT
    return samples.argmax(-1)


def log_improvement(
    cube: Tensor, arm: Tensor, reward: Tensor, sigma: float, wanted: int, source: torch.Generator
) -> Tensor:
    """Return the arms that BoTorch chooses by the log noisy expected improvement (qLogNEI), (wanted,) int64.

    They are chosen one after the other. Each is the arm that, added to those chosen before it, gives the largest
    expected improvement of the batch. The arms are distinct if no two of the K arms have the same features. If
    ``wanted`` is above K, there are only K arms in the result, (K,), and BoTorch warns.

    Args:
        cube: The features of the K arms, scaled to the unit cube, (K, d_x).
        arm: The arm of each pull so far, from 0 to K − 1, (n,) int64.
        reward: The reward of each pull so far, (n,) float64.
        sigma: The standard deviation σ of a reward's noise.
        wanted: The number of arms to choose, at least 1.
        source: Not used.

    Raises:
        ValueError: Fewer than two arms have been pulled, all their mean rewards are equal, one of these is not between
            −10¹⁰⁰ and 10¹⁰⁰, or σ is not positive and finite.
        ImportError: BoTorch is missing.
        Exception: BoTorch finds no fit (its ``ModelFittingError``).
    """
    from botorch.acquisition.logei import qLogNoisyExpectedImprovement
    from botorch.optim.optimize import optimize_acqf_discrete
    from botorch.sampling.normal import SobolQMCNormalSampler

    fit = fit_to_pulls(GaussianProcess(), cube, arm, reward, sigma)
    assert isinstance(fit, FittedModel)
    sampler = SobolQMCNormalSampler(torch.Size([64]), seed=0)
    improvement = qLogNoisyExpectedImprovement(fit.model, cube[arm.unique()], sampler, prune_baseline=True)
    points, _ = optimize_acqf_discrete(improvement, wanted, cube, max_batch_size=256)
    return torch.cdist(points, cube).argmin(-1)


def _regression(cube: Tensor, arm: Tensor, reward: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the standard deviation of the next reward of each of K arms, (K,) each, by scikit-learn's
    Gaussian process.

    The process is fitted to all single rewards, with the variance of their noise as one of its parameters. The mean is
    the posterior mean of the arm's mean reward. The standard deviation includes the fitted noise.

    Args:
        cube: The features of the K arms, scaled to the unit cube, (K, d_x).
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

    The mean and the standard deviation are those of the next reward of an arm, with the noise that the process fits.
    The arms are distinct, and the one with the largest value comes first.

    Args:
        cube: The features of the K arms, scaled to the unit cube, (K, d_x).
        arm: The arm of each pull so far, from 0 to K − 1, (n,) int64.
        reward: The reward of each pull so far, (n,).
        sigma: Not used, because the process fits the noise.
        wanted: The number of arms to choose, from 0 to K.
        source: Not used.

    Raises:
        ValueError: No arm has been pulled, or a reward is not finite.
        RuntimeError: ``wanted`` is above K.
        ImportError: scikit-learn is missing.
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
    """Yield batches of arms that Optuna's TPE (tree-structured Parzen estimator) proposes, (wanted,) int64 each.

    The caller gives the rewards of a batch, a tensor (wanted,), back by ``send``, which returns the next batch;
    ``send(None)`` returns the first one. TPE proposes points of the unit cube, and each point is replaced by the
    nearest arm. Arms may repeat, and the batches never end.

    Args:
        cube: The features of the K arms, scaled to the unit cube, (K, d_x).
        seed: The seed of the sampler.
        wanted: The number of arms of a batch.

    Raises:
        ImportError: Optuna is not installed. This and the next error come when a batch is asked for.
        ValueError: The number of rewards is not ``wanted``.
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
    """Return the arms that a library pulls in the one run of ``problem``, (steps,) int64, and their rewards, (steps,).

    Optuna chooses all of them. Any other library chooses those after the first max(N, 5), which go through the arms in
    a random order.

    Args:
        name: The name of the library, a key of `LIBRARIES` or `OPTUNA`.
        problem: A bandit problem with one run.
        clients: The number N of arms that are pulled at a time, at least 1.
        steps: The number of pulls, at least 5.

    Raises:
        ValueError: The library is BoTorch, and all mean rewards of the pulled arms are equal or the σ of the problem
            is 0.
        KeyError: The name is unknown, and more than max(N, 5) pulls are asked for.
        RuntimeError: N is above the number of arms, ``steps`` is above N and 5, and the library is scikit-learn or
            BoTorch with qLogNEI.
        ImportError: The library is not installed.
        Exception: A fit of BoTorch fails (its ``ModelFittingError``).
    """
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
    """Return the arm that a player finds best after its pulls in the one run of ``problem``, a tensor () int64.

    For Optuna it is the arm with the largest single reward. For any other player it is the arm with the largest
    posterior mean: by scikit-learn's Gaussian process for "scikit-learn, bound", by the surrogate of `ADVISED` for
    "advised", and by BoTorch's Gaussian process for every other name, which is not checked.

    Args:
        name: The name of the player: "advised", a key of `LIBRARIES` or `OPTUNA`.
        problem: A bandit problem with one run of K arms.
        arm: The arm of each pull, from 0 to K − 1, (n,) int64.
        reward: The reward of each pull, (n,) float64.

    Raises:
        ValueError: The player's model refuses the data, for instance because there is no pull. The surrogate of
            `ADVISED` and BoTorch need two different arms and a problem with σ > 0; BoTorch also needs mean rewards that
            are not all equal.
        IndexError: The player is Optuna, and there is no pull.
        ImportError: A library that the fit needs is missing; Optuna is not needed here.
        Exception: The fit fails: BoTorch's ``ModelFittingError``, or a ``RuntimeError`` by the surrogate of `ADVISED`.
    """
    if name == OPTUNA:
        return arm[reward.argmax()]
    if name == "scikit-learn, bound":
        return _regression(in_cube(problem.arms[0]), arm, reward)[0].argmax()
    surrogate = ADVISED.surrogate if name == "advised" else GaussianProcess()
    return fit_to_pulls(surrogate, problem.arms[0], arm, reward, problem.sigma).mean.argmax()


def measure_library(job: Job) -> list[dict[str, Any]]:
    """Play the ``job``, some runs of one player on one regime, and return a row of the table of the study "elsewhere"
    for each run.

    A regime is a problem with K arms, N clients and T rounds. The player is the recommended method `ADVISED` or a
    library. It makes NT pulls; `ADVISED` makes more, of which the first NT count. torch is set to one thread and stays
    so. A row is a dictionary with "problem", "arms", "sigma", "rounds" and "clients" of the regime, with "player",
    "seed" and "run", and with

    - "regret", the sum of the regrets of these NT pulls;
    - "gap", the regret of one pull of the arm that the player finds best after them (`best_arm`);
    - "seconds", the processor seconds for making the pulls, finding this arm and computing the two regrets;
    - "scalars", the number of scalars that are sent. A library is charged three for each pull.

    Raises:
        ValueError: The problem of the regime is unknown, or the player's model refuses the data.
        KeyError: The player is unknown, and NT is above max(N, 5).
        RuntimeError: The player is scikit-learn or BoTorch with qLogNEI, and N is above K and NT above N and 5; or the
            player is a library other than Optuna, and NT + N is below 5.
        ImportError: A library that the player or the problem needs is not installed.
        Exception: A fit of the player's model fails.
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
