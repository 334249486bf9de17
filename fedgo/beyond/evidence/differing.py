"""Sites whose mean rewards differ, and the players on them: the cases of the study "differ" and what it measures.

In a case, site i's mean rewards are f_i = f + τ·sd(f)·h_i, with the mean rewards f of the problem, their standard
deviation sd(f) over the arms of the run, and the size τ of the differences. The h_i are independent, and a case has one
of three shapes. "smooth": h_i is drawn from a Gaussian process on the unit cube of d_x features with the squared
exponential kernel, variance 1 and length scale .5·√(d_x/6). "level": h_i is one constant from N(0, 1) for each site.
"odd": h_i is smooth at the first site and 0 at the others. The regret counts from each site's own best arm.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedgo.beyond.evidence.families import LISTED, PROBLEMS
from fedgo.beyond.federation.local import play
from fedgo.beyond.federation.plan import Fitting, Plan
from fedgo.beyond.method.advised import ADVISED
from fedgo.beyond.method.process import ProcessFit, in_cube
from fedgo.beyond.method.sites import Sites
from fedgo.beyond.method.surrogates import Fitted, Independent, IndependentArms, Noise, Surrogate, as_number
from fedgo.confidence import Tally
from fedgo.experiments.runner import Job
from fedgo.experiments.summaries import interval
from fedgo.experiments.world import Regime
from fedgo.problem import Problem
from fedgo.simulation import order_of_ties
from fedgo.trace import Trace

LATE = 20  # the number of pulls of a site that joins when all others have played


class Differing(NamedTuple):
    """A case of the study "differ".

    Args:
        problem: The name of the problem.
        tau: The size τ of the differences.
        shape: The shape of the differences, "smooth", "level" or "odd".
    """

    problem: str
    tau: float
    shape: str


def of_sites(problem: Problem, case: Differing, sites: int) -> list[Problem]:
    """Return the problems of N sites, each with the arms and the noise of the one run of ``problem``."""
    points = in_cube(problem.arms[0])
    factor = torch.ones(len(points), 1, dtype=torch.float64)
    if case.shape != "level":
        away = torch.cdist(points, points) / (0.5 * math.sqrt(points.shape[1] / 6))
        factor = torch.linalg.cholesky((-away.square() / 2).exp() + 1e-9 * torch.eye(len(points)).float())
    (source,) = problem.generators("sites")
    own = torch.randn(sites, factor.shape[1], generator=source, dtype=torch.float64) @ factor.mT
    if case.shape == "odd":
        own[1:] = 0
    spread = case.tau * problem.means.std()
    return [replace(problem, means=problem.means + spread * each) for each in own]


# --- The players


@dataclass(frozen=True)
class OwnFromThree:
    """A surrogate of independent arms, for sites whose mean rewards may differ.

    If a site has pulled an arm three times or more, its posterior of this arm rests on its own rewards of it alone,
    with the variance σ²/n. Otherwise it rests on the rewards of all sites, as in `IndependentArms`.
    """

    def fit(self, arms: Tensor, data: Tally, sigma: Noise, before: Fitted | None = None) -> Independent:
        """Return the posterior on the N·K cells, those of the first site first, given the counts and sums (N, K)."""
        sigma = as_number(sigma, data)
        shared = IndependentArms().fit(arms, Tally(data.counts.sum(0), data.sums.sum(0)), sigma)
        enough, n = data.counts >= 3, data.counts.clamp(min=1)
        mean = torch.where(enough, data.sums / n, shared.mean).flatten()
        variance = torch.where(enough, sigma**2 / n, shared.variance).flatten()
        cell = torch.arange(n.numel()).view(n.shape)
        return Independent(mean, variance, torch.where(enough, cell, cell[0] + n.numel()).flatten())


@dataclass(frozen=True)
class OfCells(Fitting):
    """A `Fitting` of clients that differ with a ``surrogate`` of its own; it has to be made with ``differ=True``."""

    surrogate: Surrogate = OwnFromThree()


# For each player, a function that makes the fitting of a federation from σ and T.
HOW: dict[str, Callable[[float, int], Fitting]] = {
    "as if alike": Fitting,
    "as if alike, no warp": partial(Fitting, how=replace(ADVISED, surrogate=Sites())),
    "differ": partial(Fitting, differ=True),
    "each alone": Fitting,
    "UCB1": partial(Fitting, how=replace(ADVISED, surrogate=IndependentArms())),
    "UCB1, own from three": partial(OfCells, differ=True),
}


def fitting_of(job: Job, sigma: float, rounds: int) -> Fitting:
    """Return the `Fitting` of the player of ``job``, with a warp if its setting has a "warp" other than 0."""
    if job.setting.get("warp"):
        return Fitting(sigma, rounds, replace(ADVISED, surrogate=Sites(warp=True)), differ=True)
    return HOW[job.name](sigma, rounds)


def together(job: Job, problems: Sequence[Problem], pulls: int) -> tuple[Trace, Tensor]:
    """Play one federation of N clients, each of which has one of the ``problems``.

    Args:
        job: The player, its setting and the regime, which determines the pulls of Phase I.
        problems: The problem of each client, with one run; all have the same arms, run and seed.
        pulls: The number of pulls of all clients together, Phase I included. Up to N − 1 more are made, so that all
            clients have equally many pulls after Phase I.

    Returns:
        The trace, and the number of the client that made each pull, (pulls made,) int64.
    """
    one, clients = problems[0], len(problems)
    first = ADVISED.first(clients, job.regime.arms, job.regime.rounds)
    steps = clients * math.ceil((pulls - first) / clients)
    fitting = fitting_of(job, one.sigma, steps // clients)
    plan = Plan(one.arms[0], clients=clients, length=first, seed=one.seed, run=one.runs[0], fitting=fitting)
    return play(problems, plan, steps), torch.cat([torch.arange(first), torch.arange(steps)]) % clients


def joining(job: Job, problem: Problem, counts: Tensor, sums: Tensor) -> float:
    """Return the sum of the regrets of the first `LATE` pulls of a site that joins after all others have played.

    Each pull is planned by a fit to the rewards of all sites so far. ``counts`` and ``sums`` (N, K) are those of the
    others.
    """
    arms, fitting = problem.arms[0], fitting_of(job, problem.sigma, job.regime.rounds)
    counts, sums = (torch.cat([column, column.new_zeros(1, len(arms))]) for column in (counts, sums))
    ties = order_of_ties(problem, 1)[0, 0]
    regret = 0.0
    for noise in problem.tape(10**5)[0, -LATE:]:  # this noise belongs to no earlier pull
        data = Tally(counts, sums) if fitting.differ else Tally(counts.sum(0), sums.sum(0))
        fit = fitting.surrogate.fit(arms, data, problem.sigma)
        # the number of the new site, or 0 if the fit is for all sites together
        last = len(fit.mean) // len(arms) - 1
        cells = fitting.how.epoch(fit, counts.sum(0), problem.sigma, ties, most=1, sites=last + 1, turn=last)
        arm = cells[0] % len(arms)
        counts[-1, arm] += 1
        sums[-1, arm] += problem.observe(arm.view(1, 1), noise.view(1, 1)).item()
        regret += problem.regret(arm.view(1, 1)).item()
    return regret


def measure_sites(job: Job) -> list[dict[str, Any]]:
    """Play the ``job`` on one thread, and return a row of the table of the study "differ" for each of its runs.

    Beside the regime, "player", the setting, "seed" and "run", a row has

    - "regret", the final regret of all sites together, Phase I included;
    - "worst_site", the largest regret of a site;
    - "late_regret", the mean regret of a pull in the last tenth of the pulls, at least one pull;
    - "own", the share ρ̂ of the variance that belongs to one site alone, as `Sites` without a warp fits it after the
      last pull, for the player "differ"; NaN for others;
    - "joining", the regret of the first `LATE` pulls together of one more site, which joins when the others have
      played, or plays alone if the player is "each alone"; NaN outside `JOINED` and for players other than "each
      alone", "as if alike" and "differ";
    - "seconds", the processor seconds of the play, without the site that joins.
    """
    torch.set_num_threads(1)
    return [_measured(job, run) for run in job.runs]


def _measured(job: Job, run: int) -> dict[str, Any]:
    """Play one ``run`` of the ``job``, and return its row."""
    regime, case = job.regime, CASES[job.regime]
    world = replace(regime, problem=case.problem).world((run,), job.seed)
    *problems, late = of_sites(world.problem, case, regime.clients + 1)
    groups = [problems]
    # each site alone has the noise and the first arms of another run, so that no two sites share them
    if job.name == "each alone":
        *groups, [late] = [[replace(one, runs=(run + 10**6 * i,))] for i, one in enumerate([*problems, late])]
    begun = time.process_time()
    played = [together(job, group, math.ceil(world.steps / len(groups))) for group in groups]
    seconds = time.process_time() - begun
    trace, client = played[0]
    cell, size = client * regime.arms + trace.arm[0], (regime.clients, regime.arms)
    rewards = (torch.ones_like(trace.reward[0]), trace.reward[0])
    counts, sums = (cell.bincount(each, regime.clients * regime.arms).view(size) for each in rewards)
    own = joined = math.nan
    if job.name == "differ":
        fit = Sites().fit(late.arms[0], Tally(counts, sums), regime.sigma)
        assert isinstance(fit, ProcessFit)
        own = fit.prior.own.item()
    if regime in JOINED and job.name == "each alone":
        joined = together(job, [late], LATE)[0].regret.sum().item()
    elif regime in JOINED and job.name in ("as if alike", "differ"):
        joined = joining(job, late, counts, sums)
    tenth = -max(1, trace.regret.shape[1] // 10)
    where = {**regime.columns, "player": job.name, **job.setting, "seed": job.seed, "run": run}
    return where | {
        "regret": sum(one.regret.sum().item() for one, _ in played),
        "worst_site": max(site.bincount(one.regret[0]).max().item() for one, site in played),
        "late_regret": sum(one.regret[0, tenth:].mean().item() for one, _ in played) / len(played),
        "own": own,
        "joining": joined,
        "seconds": round(seconds, 3),
    }


# The cases of the study by regime. The problem of such a regime has the name of its case, which is not in `PROBLEMS`.
_CASES = [
    (Regime(**case["regime"], problems=PROBLEMS), case["tau"], case["shape"]) for case in LISTED["differ"]
]
CASES = {
    replace(regime, problem=f"{regime.problem}, {shape} {tau:g}"): Differing(regime.problem, tau, shape)
    for regime, tau, shape in _CASES
}
JOINED = tuple(CASES)[:4]  # the cases in which a site that joins late is measured
# Two groups of cases decide about the warp. In the first all arms are pulled before the first fit, in the second not.
WARP_TUNING = (JOINED, tuple(regime for regime in CASES if regime.arms == 500))


def case_of(text: str, tau: float, shape: str = "smooth", problem: str = "hartmann6") -> Regime:
    """Return the first regime of such a case whose name has ``text`` in it."""
    return next(one for one, case in CASES.items() if case == (problem, tau, shape) and text in str(one))


def ratio(
    played: Mapping[str, Any], ours: str = "differ", other: str = "as if alike", column: str = "regret"
) -> tuple[float, float, float]:
    """Return the geometric mean, over common runs, of a column of ``ours`` over that of ``other``, with an interval."""
    one, two = (played[name].set_index("run")[column] for name in (ours, other))
    logs = np.log(one / two).dropna().to_numpy()  # pandas divides the rows of equal runs
    return interval(lambda sample, axis: np.exp(np.mean(sample, axis=axis)), logs)
