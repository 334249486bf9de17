"""Sites that differ, and who plays them: the cases of the study ``differ``, and what is measured of a run.

In a case, site i's mean rewards are f_i = f + τ·sd(f)·h_i with f those of the problem and sd over the arms of the run.
The h_i are independent: "smooth" is a Gaussian process with the squared exponential kernel, variance 1 and length
.5·√(d_x/6) on the unit cube; "level" is one constant from N(0, 1) for each site; "odd" is smooth at the first site, and
0 at the others. Regret is against each site's own best arm.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedgo._streams import generator
from fedgo.beyond.advised import ADVISED, Advised
from fedgo.beyond.federation.local import play
from fedgo.beyond.federation.plan import Fitting, Plan
from fedgo.beyond.map import families  # noqa: F401 (its problems are known by name from here on)
from fedgo.beyond.surrogates.models import Fitted, IndependentArms, Surrogate, observed
from fedgo.beyond.surrogates.process import in_cube, squared_exponential
from fedgo.beyond.surrogates.sites import Sites
from fedgo.confidence import Tally
from fedgo.experiments.runner import Job
from fedgo.experiments.world import Regime
from fedgo.phase_one import phase_one_length
from fedgo.problem import Problem
from fedgo.trace import Trace

LATE = 20  # trials of a site that joins when all others have played


class Differing(NamedTuple):
    """By how much the sites of a ``problem`` differ, τ = ``tau``, and in which ``shape``."""

    problem: str
    tau: float
    shape: str


def of_sites(problem: Problem, case: Differing, sites: int) -> list[Problem]:
    """Return the problem of each of N = ``sites``, with the arms and the noise of the one run of ``problem``."""
    source, points = generator(problem.seed, problem.runs[0], "sites"), in_cube(problem.arms[0])
    arms, features = points.shape
    if case.shape == "level":
        own = torch.randn(sites, 1, generator=source, dtype=torch.float64).expand(sites, arms)
    else:
        away = torch.cdist(points, points) / (0.5 * math.sqrt(features / 6))
        factor = torch.linalg.cholesky((-away.square() / 2).exp() + 1e-9 * torch.eye(arms))
        own = torch.randn(sites, arms, generator=source, dtype=torch.float64) @ factor.mT
    if case.shape == "odd":
        own[1:] = 0
    spread = case.tau * problem.means.std()
    return [replace(problem, means=problem.means + spread * each) for each in own]


@dataclass(frozen=True)
class Unwarped:
    """The advised Gaussian process without its warp: what is fitted to sites that differ, if they are alike."""

    def fit(self, arms: Tensor, data: Tally, sigma: float, before: Fitted | None = None) -> Fitted:
        """Fit the process to counts and sums (K,), as `Surrogate` says."""
        seen = observed(data, sigma)
        return squared_exponential(in_cube(arms), seen.at, seen.means, seen.variances)


class Tied(NamedTuple):
    """``mean`` and ``variance`` (N·K,) of cells of which those with one ``key`` (N·K,) are one and the same unknown."""

    mean: Tensor
    variance: Tensor
    key: Tensor

    def columns(self, arm: Tensor, among: Tensor) -> Tensor:
        """Return the covariance of each cell ``arm`` (A,) with each of the cells ``among`` (C,), (A, C)."""
        return torch.where(self.key[arm].unsqueeze(-1) == self.key[among], self.variance[among], 0.0)

    def covariance(self, among: Tensor) -> Tensor:
        """Return the covariance between the cells ``among`` (C,), (C, C)."""
        return self.columns(among, among)


@dataclass(frozen=True)
class OwnFromThree:
    """`IndependentArms`, but from its third pull of an arm on, a site uses its own rewards of that arm alone."""

    def fit(self, arms: Tensor, data: Tally, sigma: float, before: Fitted | None = None) -> Fitted:
        """Return what each site believes of each arm, from counts and sums (N, K)."""
        shared = IndependentArms().fit(arms, Tally(data.counts.sum(0), data.sums.sum(0)), sigma)
        enough, n = data.counts >= 3, data.counts.clamp(min=1)
        mean = torch.where(enough, data.sums / n, shared.mean).flatten()
        variance = torch.where(enough, sigma**2 / n, shared.variance).flatten()
        cell = torch.arange(n.numel()).view(n.shape)
        return Tied(mean, variance, torch.where(enough, cell, cell[0] + n.numel()).flatten())


@dataclass(frozen=True)
class OfCells(Fitting):
    """A fitting of clients that differ with another ``model`` of their cells."""

    differ: bool = True
    model: Surrogate = OwnFromThree()

    @property
    def surrogate(self) -> Surrogate:
        """Return what is fitted."""
        return self.model


HOW: dict[str, tuple[type[Fitting], Advised, bool]] = {
    "as if alike": (Fitting, ADVISED, False),
    "as if alike, no warp": (Fitting, replace(ADVISED, surrogate=Unwarped()), False),
    "differ": (Fitting, ADVISED, True),
    "each alone": (Fitting, ADVISED, False),
    "UCB1": (Fitting, replace(ADVISED, surrogate=IndependentArms()), False),
    "UCB1, own from three": (OfCells, ADVISED, True),
}


def together(job: Job, problems: Sequence[Problem], pulls: int) -> tuple[Trace, Tensor]:
    """Return what the clients of one federation play, each on one of the ``problems``, in ``pulls`` or a few more; and
    the client of each pull."""
    kind, how, differ = HOW[job.name]
    clients, points = len(problems), problems[0].arms[0]
    first = how.first(clients, len(points), job.regime.rounds)
    rounds = max(1, -(-(pulls - first) // clients))
    fitting = kind(job.regime.sigma, rounds, how, differ)
    seed, run = problems[0].seed, problems[0].runs[0]
    plan = Plan(points, clients=clients, length=first, seed=seed, run=run, fitting=fitting)
    client = torch.cat([torch.arange(first), torch.arange(clients * rounds)]) % clients
    return play(problems, plan, clients * rounds), client


def joining(job: Job, problem: Problem, data: Tally) -> float:
    """Return the regret of the first `LATE` trials of a site with this ``problem`` that joins those with ``data``.

    A fit to all rewards plans each trial, as in a study. A site alone tries distinct arms first.
    """
    _, how, differ = HOW[job.name]
    sites, arms = len(data.counts) + 1, data.counts.shape[1]
    counts, sums = (torch.cat([column, torch.zeros(1, arms)]).double() for column in data)
    source, regret = generator(problem.seed, problem.runs[0], "order of ties"), 0.0
    ties, noise = torch.rand(arms, generator=source, dtype=torch.float64), problem.tape(10**5)[0, -LATE:]
    first = ties.argsort()[: how.first(1, arms, job.regime.rounds)] if job.name == "each alone" else ties[:0]
    for trial in range(LATE):
        if trial < len(first):
            arm = first[trial]
        elif differ:
            fit: Fitted = Sites().fit(problem.arms[0], Tally(counts, sums), problem.sigma)
            cell = how.epoch(fit, counts.sum(0), problem.sigma, ties, most=1, sites=sites, turn=sites - 1)[0]
            arm = cell % arms
        else:
            heard = slice(-1, None) if job.name == "each alone" else slice(None)
            known = Tally(counts[heard].sum(0), sums[heard].sum(0))
            fit = how.surrogate.fit(problem.arms[0], known, problem.sigma)
            arm = how.epoch(fit, known.counts, problem.sigma, ties, most=1)[0]
        counts[-1, arm] += 1
        sums[-1, arm] += problem.observe(arm.view(1, 1), noise[trial].view(1, 1)).item()
        regret += problem.regret(arm.view(1, 1)).item()
    return regret


def measure_sites(job: Job) -> list[dict[str, Any]]:
    """Return a row for each run of the ``job``: regret of all sites, of the worst one, and of a pull in the last tenth;
    ρ̂ after the last pull; the regret of a site that joins then (`joining`); scalars sent, and processor seconds."""
    torch.set_num_threads(1)
    regime, case, rows = job.regime, CASES[job.regime], []
    sites, arms = regime.clients, regime.arms
    pulls = phase_one_length(sites, regime.rounds) + sites * regime.rounds
    for run in job.runs:
        problem = replace(regime, problem=case.problem).world((run,), job.seed).problem
        *problems, late = of_sites(problem, case, sites + 1)
        groups = [problems]
        if job.name == "each alone":  # each with noise and first arms of its own: those of the run r + 10⁶i
            groups = [[replace(one, runs=(run + 10**6 * i,))] for i, one in enumerate(problems)]
        begun = time.process_time()
        played = [together(job, group, -(-pulls // len(groups))) for group in groups]
        seconds = round(time.process_time() - begun, 3)
        worst = max(torch.bincount(client, trace.regret[0]).max().item() for trace, client in played)
        ends = [trace.regret[0, -max(1, trace.regret.shape[1] // 10) :].mean().item() for trace, _ in played]
        (trace, client), joined = played[0], math.nan
        counts, none = torch.ones_like(trace.reward[0]), torch.zeros(sites, arms, dtype=torch.float64)
        data = Tally(
            *(
                none.index_put((client, trace.arm[0]), each, accumulate=True)
                for each in (counts, trace.reward[0])
            )
        )
        if regime in JOINED and job.name in ("as if alike", "differ", "each alone"):
            joined = joining(job, late, data)
        fit = Sites().fit(problem.arms[0], data, regime.sigma) if job.name == "differ" else None
        numbers = {
            "regret": sum(trace.regret.sum().item() for trace, _ in played),
            "worst_site": worst,
            "late_regret": math.fsum(ends) / len(ends),
            "own": math.nan if fit is None else fit.prior.own.item(),
            "joining": joined,
            "seconds": seconds,
            "scalars": 0 if len(groups) > 1 else int(trace.communication[0, -1]),
        }
        where = {**asdict(regime), "player": job.name, "seed": job.seed, "run": run}
        rows.append(where | {column: numbers[column] for column in job.study.columns})
    return rows


def cases() -> dict[Regime, Differing]:
    """Return the cases: each moves one factor of Hartmann6 with K = 50, N = 20, T = 100, σ = .1, and τ = .5 smooth.

    The problem of a regime is named after the case, and is none of `fedgo.experiments.world.PROBLEMS`.
    """
    base, few = Regime("hartmann6"), Regime("hartmann6", 30, 0.3, 30, 12)
    listed = [(base, tau, "smooth") for tau in (0.5, 0.0, 0.25, 1.0)]
    listed += [(base, 1.0, "level"), (base, 1.0, "odd")]
    moved = [replace(base, sigma=0.5), replace(base, rounds=30), replace(base, rounds=400)]
    listed += [(regime, 0.5, "smooth") for regime in moved]
    wide = [replace(few, clients=5), few, Regime("hartmann6", 500), Regime("cosine8"), Regime("diabetes")]
    listed += [(regime, tau, "smooth") for regime in wide for tau in (0.0, 0.5, 1.0)]
    return {
        replace(regime, problem=f"{regime.problem}, {shape} {tau:g}"): Differing(regime.problem, tau, shape)
        for regime, tau, shape in listed
    }


CASES = cases()
JOINED = tuple(CASES)[:4]  # where a late site is measured
