"""The players of the study "tables", which search tables of real experiments, and what the study measures.

`fedgo.beyond.evidence.measured` says what a table, a replay and a loss are. Every player is told the features and the
rewards; the methods of this package are told the standard deviation σ of a result too, and BoTorch infers it. Only the
random order is kept from trying an option again before all others.
"""

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedgo._streams import generator
from fedgo.beyond.evidence.libraries import OPTUNA, by_plan, most_improving
from fedgo.beyond.evidence.measured import BEGIN, Choose, Measured, Replay, load, replay
from fedgo.beyond.federation.local import play
from fedgo.beyond.federation.plan import Fitting, Plan
from fedgo.beyond.method.advised import ADVISED, SEARCH, Advised
from fedgo.beyond.method.epochs import Growing
from fedgo.beyond.method.process import in_cube
from fedgo.beyond.method.search import HALF_WIDTH, Whole, shortfall
from fedgo.experiments.runner import Job
from fedgo.problem import Problem


class Named(NamedTuple):
    """The final choice of a player: an option, and what its intervals say if it has any.

    Args:
        option: The number of the option.
        inside: The share of the options without a reward whose mean result lies in its 95 % interval.
        bound: By how much the best option exceeds this one at most, with probability .95, as the model says.
    """

    option: int
    inside: float = math.nan
    bound: float = math.nan


# The final choice, given the options tried and their rewards, (n,) each.
Name = Callable[[Tensor, Tensor], Named]
# A player: it is called with the table, the number of the run and the number of trials.
Begin = Callable[[Measured, int, int], tuple[Choose, Name]]
# The numbers of trials after which the loss of the best option tried is measured, beside the last one.
CURVE = (10, 15, 20, 30, 50, 70)
CURVED = tuple(f"tried_{trials}" for trials in CURVE)


def random_order(table: Measured, run: int, trials: int) -> tuple[Choose, Name]:
    """Try the options with the fewest trials in a random order, and name the one with the largest mean reward."""
    order = torch.randperm(len(table.options), generator=generator(0, run, "random order"))

    def choose(tried: Tensor, rewards: Tensor, wanted: int) -> Tensor:
        times = tried.bincount(minlength=len(order))[order]
        return order[times.argsort(stable=True)][:wanted]

    def name(tried: Tensor, rewards: Tensor) -> Named:
        return Named(int((tried.bincount(rewards) / tried.bincount()).nan_to_num(-torch.inf).argmax()))

    return choose, name


def botorch_inferring(improve: bool, table: Measured, run: int, trials: int) -> tuple[Choose, Name]:
    """Choose by BoTorch's log noisy expected improvement if ``improve``, otherwise by Thompson sampling, and name the
    option with the largest posterior mean.

    The model is BoTorch's SingleTaskGP, which infers the noise. Its hyperparameters are fitted after every fifth trial
    or batch of 8, in at most 100 steps from those before; the rewards are used at once.
    """
    from botorch.fit import fit_gpytorch_mll
    from botorch.generation.sampling import MaxPosteriorSampling
    from botorch.models import SingleTaskGP
    from botorch.models.transforms import Standardize
    from gpytorch.mlls import ExactMarginalLogLikelihood

    cube, parameters, last = in_cube(table.features), dict[str, Tensor](), 0

    def fitted(tried: Tensor, rewards: Tensor) -> Any:
        nonlocal parameters, last
        torch.manual_seed(10**6 * run + len(tried))
        model = SingleTaskGP(cube[tried], rewards.unsqueeze(1), outcome_transform=Standardize(1))
        model.load_state_dict(model.state_dict() | parameters)
        if len(tried) >= last + 5:
            likelihood = ExactMarginalLogLikelihood(model.likelihood, model)
            fit_gpytorch_mll(likelihood, optimizer_kwargs={"options": {"maxiter": 100}})
            parameters, last = {name: each.detach() for name, each in model.named_parameters()}, len(tried)
        return model.eval()

    def choose(tried: Tensor, rewards: Tensor, wanted: int) -> Tensor:
        model = fitted(tried, rewards)
        if improve:
            return most_improving(model, cube, tried, wanted, seed=run)
        with torch.no_grad():
            points = MaxPosteriorSampling(model, replacement=False)(cube, num_samples=wanted)
        return torch.cdist(points, cube).argmin(-1)

    return choose, lambda tried, rewards: Named(int(fitted(tried, rewards).posterior(cube).mean.argmax()))


def optuna_anew(table: Measured, run: int, trials: int) -> tuple[Choose, Name]:
    """Choose the options nearest to the points of the unit cube that Optuna's TPE proposes, and name the option with
    the largest single reward.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    cube = in_cube(table.features)
    space = {f"x{j}": optuna.distributions.FloatDistribution(0.0, 1.0) for j in range(cube.shape[1])}

    def choose(tried: Tensor, rewards: Tensor, wanted: int) -> Tensor:
        sampler = optuna.samplers.TPESampler(seed=10**6 * run + len(tried), constant_liar=True)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for point, reward in zip(cube[tried].tolist(), rewards.tolist(), strict=True):
            told = dict(zip(space, point, strict=True))
            study.add_trial(optuna.trial.create_trial(params=told, distributions=space, value=reward))
        points = [[*study.ask(space).params.values()] for _ in range(wanted)]
        return torch.cdist(torch.tensor(points, dtype=torch.float64), cube).argmin(-1)

    return choose, lambda tried, rewards: Named(int(tried[rewards.argmax()]))


def by_method(how: Advised, table: Measured, run: int, trials: int) -> tuple[Choose, Name]:
    """Choose by the method ``how``, which is fitted anew for every batch and is told σ; name the option with the
    largest posterior mean.

    While all rewards are equal there is no fit, and the options are tried in a random order.
    """
    first, _ = random_order(table, run, trials)
    ties = torch.rand(len(table.options), generator=generator(0, run, "order of ties"), dtype=torch.float64)
    plan, fitted = by_plan(how.grouped(table.groups), table.features, table.noise, ties, trials)

    def choose(tried: Tensor, rewards: Tensor, wanted: int) -> Tensor:
        return (first if len(rewards.unique()) == 1 else plan)(tried, rewards, wanted)

    def name(tried: Tensor, rewards: Tensor) -> Named:
        whole, counts = Whole.of(fitted(tried, rewards)), tried.bincount(minlength=len(ties))
        best, away = int(whole.mean.argmax()), (table.means - whole.mean).abs()
        inside = (away <= HALF_WIDTH * whole.variance.sqrt())[counts == 0].double().mean().item()
        return Named(best, inside, shortfall(whole, best, torch.ones_like(counts, dtype=torch.bool)))

    return choose, name


# "fedgo, before" was played with the code of commit d8000e1, which is not installed.
BEFORE = "fedgo, before"
SEARCHERS: dict[str, Begin] = {
    "fedgo, best": partial(by_method, SEARCH),
    "fedgo, reward": partial(by_method, ADVISED),
    "BoTorch, qLogNEI": partial(botorch_inferring, True),
    "BoTorch, Thompson": partial(botorch_inferring, False),
    OPTUNA: optuna_anew,
    "random order": random_order,
}


# The players of the federated case, by whether they are alone and by the number of clients.
FEDERATED = {
    "three sites, by letters": (False, 3),
    "all in one place": (False, 1),
    "one site alone": (True, 1),
}


def by_sites(player: str, table: Measured, run: int, trials: int) -> tuple[Replay, Named]:
    """Play a federation whose sites make ``trials`` trials each, and begin with five options of their own.

    In one place one client makes the trials of three sites, and the model is fitted after each of them. A reward is the
    mean result of the option and Gaussian noise.
    """
    alone, clients = FEDERATED[player]
    sites = 1 if alone else 3
    until = SEARCH.until if clients == sites and not alone else Growing(1 + 1e-9, least=1)
    how = replace(SEARCH.grouped(table.groups), until=until)
    problem = Problem(
        player, table.features.unsqueeze(0), table.means.unsqueeze(0), (run,), sigma=table.noise
    )
    fitting = Fitting(table.noise, trials * sites // clients, how)
    plan = Plan(table.features, clients=clients, length=BEGIN * sites, run=run, fitting=fitting)
    trace = play(problem, plan, (trials - BEGIN) * sites)
    played = Replay(trace.arm[0], trace.reward[0])
    return played, by_method(how, table, run, trials)[1](*played)


def measure_tables(job: Job) -> list[dict[str, Any]]:
    """Play the ``job``, some runs of a player on a table, and return a row of the study "tables" for each run.

    The regime of the job has the name of the table as its problem, the number of trials as its rounds, and the number
    of options that are chosen at a time as its clients. torch is set to one thread and stays so. A row has

    - "loss_tried" and "loss_named", the loss of the best option tried, and that of the option that the player names;
    - "tried_10" and others, the loss of the best option tried after so many trials (`CURVE`), NaN if there are fewer;
    - "regret", the sum of the losses of all trials, and "distinct", the number of different options tried;
    - "inside" and "bound", what the player's intervals say at the end (`Named`), NaN if it has none;
    - "seconds", the processor seconds.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # BoTorch warns of rewards that are all equal
    table, rows, trials = load(job.regime.problem), [], job.regime.rounds
    for run in job.runs:
        begun = time.process_time()
        if job.name in FEDERATED:
            played, named = by_sites(job.name, table, run, trials)
        else:
            choose, name = SEARCHERS[job.name](table, run, trials)
            played = replay(table, choose, run, trials, job.regime.clients)
            named = name(*played)
        best = table.loss[played.tried].cummin(0).values
        numbers = {
            "loss_tried": best[-1].item(),
            "loss_named": table.loss[named.option].item(),
            **{f"tried_{n}": best[n - 1].item() if n <= len(best) else math.nan for n in CURVE},
            "regret": table.loss[played.tried].sum().item(),
            "distinct": len(played.tried.unique()),
            "inside": named.inside,
            "bound": named.bound / table.spread,
            "seconds": time.process_time() - begun,
        }
        rows.append({**job.regime.columns, "player": job.name, "seed": job.seed, "run": run} | numbers)
    return rows
