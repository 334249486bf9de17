"""The price of hiding every reward: a simulation in which clients release nothing but noisy sums of clipped rewards.

Every reward is clipped to a public range [low, high]. At the end of an epoch the clients release, for each of the K
arms, the sum S of its clipped rewards plus normal noise Z of variance ν². For one release by a trusted server ν is
(high − low)·m, where the multiplier m is the smallest number with

    Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2) ≤ δ,   μ = 1/m

(Balle and Wang, ICML 2018, https://arxiv.org/abs/1805.06530). ε is the privacy budget, δ the probability with which its
promise may fail, and Φ the distribution function of the standard normal. If the arms and lengths of all epochs follow
from public numbers and earlier releases, then all that anybody sees, other than a reward's own client and a server that
adds the noise, is (ε, δ)-differentially private for this reward.

A *cell* is an arm in an epoch, with b pulls and the released sum S + Z. With σ the standard deviation of a reward's
noise, the model counts the cell as b²/(b + ν²/σ²) pulls. With sums over the cells of an arm,

    ñ = Σ b²/(b + ν²/σ²),   S̃ = Σ b(S + Z)/(b + ν²/σ²),   and S̃/ñ has variance σ²/ñ.

This module only measures a price and must not be used as a protocol: nothing is masked, and the noise is neither
discrete nor drawn from a cryptographic source.
"""

import math
import warnings
from dataclasses import dataclass

import torch
from scipy import optimize, special
from torch import Tensor

from fedgo._checks import number, require
from fedgo.beyond.guarantees.intervals import Interval
from fedgo.beyond.method.advised import ADVISED
from fedgo.beyond.method.epochs import Growing, each_arm
from fedgo.beyond.method.gaussian_process import GaussianProcess
from fedgo.beyond.method.process import Data, _kernel, in_cube, mode
from fedgo.beyond.method.surrogates import observed
from fedgo.confidence import Tally
from fedgo.experiments.world import Setting, World
from fedgo.problem import Problem
from fedgo.simulation import largest, order_of_ties
from fedgo.star import Ledger, Message, Star, When
from fedgo.trace import Trace

EPOCHS = Growing(1.6)  # each release adds noise, so that there are fewer epochs than in `ADVISED`
WAYS = ("trusted server", "secure sum", "each alone")  # who adds the noise (`Hiding`)
Moments = tuple[Tensor, Tensor]  # a posterior mean (K,) and covariance (K, K)


def leak(multiplier: float, epsilon: float) -> float:
    """Return the smallest δ for which noise of the multiplier m makes a sum (ε, δ)-differentially private."""
    middle, half = -epsilon * multiplier, 1 / (2 * multiplier)
    return float(special.ndtr(middle + half) - math.exp(epsilon + special.log_ndtr(middle - half)))


def least_multiplier(epsilon: float, delta: float) -> float:
    """Return the smallest m for which noise makes a sum (ε, δ)-differentially private, sought from e⁻⁷ to e¹⁴."""
    return math.exp(optimize.brentq(lambda log: leak(math.exp(log), epsilon) - delta, -7, 14, xtol=1e-12))


@dataclass(frozen=True)
class Hiding:
    """The mechanism that hides rewards: the privacy budget, who adds the noise, and the public range of a reward.

    Args:
        clients: The number N of clients, at least 1.
        epsilon: The privacy budget ε, from 0.001 to below 100,000.
        delta: The probability δ in (0, 1), which should be far below 1/(NT).
        way: Who adds the noise, a name in `WAYS`. "trusted server": the server sums the rewards and adds the noise
            once. "secure sum": each client adds a share, and the server learns only the sum; the shares of ⌊2N/3⌋ + 1
            clients (of all if N ≤ 3) suffice, and here all N answer. "each alone": each client adds the whole noise.
        low: The smallest reward; smaller rewards are clipped to it.
        high: The largest reward; larger rewards are clipped to it.
    """

    clients: int
    epsilon: float
    delta: float = 1e-5
    way: str = "secure sum"
    low: float = 0.0
    high: float = 3.5

    def __post_init__(self) -> None:
        remedy = "give a privacy budget ε from 0.001 to below 100,000"
        number("epsilon", self.epsilon, remedy, least=1e-3, below=1e5)
        number("delta", self.delta, "give a probability δ in (0, 1), far below 1/(NT)", above=0, below=1)
        number("high - low", self.high - self.low, "give low < high, both finite", above=0)
        require(self.way in WAYS, "way", self.way, f"choose one of {WAYS}")

    @property
    def noise(self) -> float:
        """The standard deviation ν of the noise in the released sum of an arm over all clients."""
        secure = self.clients / min(2 * self.clients // 3 + 1, self.clients)
        times = dict(zip(WAYS, (1.0, secure, self.clients), strict=True))[self.way]
        return (self.high - self.low) * least_multiplier(self.epsilon, self.delta) * math.sqrt(times)


def counted(pulls: Tensor, noise: float, sigma: float) -> Tensor:
    """Return b²/(b + ν²/σ²), the number of pulls as which the released sum of b = ``pulls`` pulls counts."""
    return pulls.square() / (pulls + (noise / sigma) ** 2)


def fit_hidden(model: str, least: float, sigma: float, arms: Tensor, counts: Tensor, sums: Tensor) -> Moments:
    """Return the posterior mean (K,) and covariance (K, K) of the arms' mean rewards f, given the released sums.

    The kernel and the length scales are those of `fedgo.beyond.method.process`.

    Args:
        model: What the variance of f is taken to be. "less noise": the variance of the pulled arms' mean rewards less
            the average of what the noise adds to it. "as seen": the variance of these mean rewards. "warped": the whole
            fit is that of the surrogate of `ADVISED` without its misfit, as it was when the study was played.
        least: The smallest standard deviation of f that the first two models use, above 0.
        sigma: The standard deviation σ of a reward's noise.
        arms: The features of the arms, (K, d_x).
        counts: ñ of each arm, (K,), at least two of them positive.
        sums: S̃ of each arm, (K,).
    """
    if model == "warped":
        fit = GaussianProcess(warp=True, misfit=False).fit(arms, Tally(counts, sums), sigma)
        every = torch.arange(len(arms))
        return fit.mean, fit.columns(every, every)
    at, means, variances, _ = observed(Tally(counts, sums), sigma)
    added = variances.mean() if model == "less noise" else 0.0
    centre, square = means.mean(), (means.var() - added).clamp(min=least**2)
    cube = in_cube(arms)
    features = torch.arange(cube.shape[1])
    data = Data(cube[at], at, (means - centre) / square.sqrt(), variances / square, None, features, None)
    inputs = cube / mode(data, misfit=False)[features].exp()
    prior = square * _kernel(inputs, inputs)
    gain = torch.cholesky_solve(prior[at], torch.linalg.cholesky(prior[at][:, at] + variances.diag()))
    return centre + (means - centre) @ gain, prior - prior[:, at] @ gain


def plan_hidden(fits: list[Moments], order: Tensor, pulls: int, noise: float, sigma: float) -> Tensor:
    """Return the arms of an epoch of L = ``pulls`` pulls for S runs, (S, L) int64.

    Each decision takes the arm with the largest mean + κ√variance, with the κ of `ADVISED`, for b = ⌈L/1000⌉ pulls. If
    n pulls of this arm have been planned before, the covariance is then conditioned on b more: the precision with which
    the released sum determines the arm's mean reward rises from p(n) to p(n + b), with p(n) = n²/(σ²n + ν²).

    Args:
        fits: The posterior mean (K,) and covariance (K, K) of each run.
        order: Of tied arms the one with the largest number here is pulled, (S, K).
        pulls: The number L.
        noise: The standard deviation ν.
        sigma: The standard deviation σ.
    """
    mean, covariance = (torch.stack(moments) for moments in zip(*fits, strict=True))
    run, made, chosen = torch.arange(len(mean)), torch.zeros_like(mean, dtype=torch.int64), []
    block = -(-pulls // 1000)  # a plan has at most 1,000 decisions, each for this many pulls
    gains = counted(torch.arange(0, pulls + block, block).double(), noise, sigma).diff() / sigma**2
    for _ in range(0, pulls, block):
        variance = covariance.diagonal(dim1=-2, dim2=-1).clamp(min=0)
        arm = largest(mean + ADVISED.kappa * variance.sqrt(), order)
        column = covariance[run, arm] / (1 / gains[made[run, arm]] + variance[run, arm]).sqrt().unsqueeze(-1)
        covariance = covariance - column.unsqueeze(-1) * column.unsqueeze(-2)
        made[run, arm] += 1
        chosen.append(arm)
    return torch.stack(chosen, 1).repeat_interleave(block, 1)[:, :pulls]


def play_hidden(
    problem: Problem, steps: int, hiding: Hiding, batch: float, model: str
) -> tuple[Trace, Tensor]:
    """Play a Gaussian process that receives nothing but noisy sums of clipped rewards, released after each epoch.

    At the end of each epoch each client sends and receives one number for each arm. The epochs grow as
    `EPOCHS` says: an event or a guard may act on rewards that are not released, which would end the promise. A
    ``UserWarning`` says if δ ≥ 1/(NT).

    Args:
        problem: S runs of a bandit problem.
        steps: The number NT of pulls by all clients together.
        hiding: The mechanism that hides rewards, with the number N of clients.
        batch: The number of times that each arm is pulled before the first fit, at least 1.
        model: As in `fit_hidden`.

    Returns:
        The trace, whose note ``cut`` says which rewards were clipped after they were recorded, and the released sums of
        E epochs, (E, S, K).
    """
    if hiding.delta >= 1 / steps:
        warnings.warn(f"delta is {hiding.delta:g}: give less than 1/(NT) = {1 / steps:.2g}", stacklevel=3)
    (runs, arms), sigma, noise = problem.means.shape, problem.sigma, hiding.noise
    least = (hiding.high - hiding.low) / 40  # the smallest standard deviation of f that a fit uses
    tape, order = problem.tape(steps), order_of_ties(problem, 1).squeeze(1)
    sources, data = problem.generators("noise that hides"), Tally.blank(runs, arms)
    arm, sync = torch.zeros(2, runs, steps, dtype=torch.int64)
    star, releases, done = Star(hiding.clients, Ledger.blank(runs, steps)), [], 0
    while done < steps:
        if done == 0:
            planned = each_arm(problem, min(int(batch) * arms, steps)).arm
        else:
            fits = [fit_hidden(model, least, sigma, *run) for run in zip(problem.arms, *data, strict=True)]
            planned = plan_hidden(fits, order, min(EPOCHS.length(done), steps - done), noise, sigma)
        end = done + planned.shape[1]
        cut = problem.observe(planned, tape[:, done:end]).clamp(hiding.low, hiding.high)
        blank = torch.zeros(runs, arms, dtype=torch.float64)
        pulls, sums = (blank.scatter_add(1, planned, values) for values in (torch.ones_like(cut), cut))
        drawn = torch.stack([torch.randn(arms, generator=source, dtype=torch.float64) for source in sources])
        when = When(torch.arange(runs), torch.full((runs,), end - 1))
        releases.append(star.collect(Message(sums + noise * drawn, arms), when))
        news = star.broadcast(Message(releases[-1], arms), when)
        effective = counted(pulls, noise, sigma)
        data = data + Tally(effective, effective * news / pulls.clamp(min=1))
        arm[:, done:end], sync[:, end - 1], done = planned, 1, end
    reward, regret = problem.observe(arm, tape), problem.regret(arm)
    notes = {"cut": (reward < hiding.low) | (reward > hiding.high)}
    about = (f"hidden, {hiding.way}", problem.name, hiding.clients, 0)
    return Trace(*about, arm, reward, regret, *star.ledger, sync > 0, notes), torch.stack(releases)


def interval_under_noise(data: Tally, sigma: float, delta: float) -> Interval:
    """Return the intervals of Theorem P′, which contain f of all arms after all releases with probability ≥ 1 − δ.

    They are S̃/ñ ± σ√((1 + ñ)(ln(1 + ñ) + 2 ln(K/δ)))/ñ for the mean f of the clipped rewards, and the whole line if ñ
    = 0.

    Args:
        data: ñ and S̃ of each arm, (..., K) each.
        sigma: σ, such that clipped rewards are σ-sub-Gaussian given the past; (high − low)/2 always satisfies this.
        delta: The failure probability δ.
    """
    counts, share = data.counts, delta / data.counts.shape[-1]
    radius = sigma * ((1 + counts) * (counts.log1p() - 2 * math.log(share))).sqrt() / counts
    mean = data.sums / counts.clamp(min=1e-300)  # it is 0 where nothing was released
    return Interval(mean - radius, mean + radius, (1 / (1 + counts)).log1p())


@dataclass(frozen=True)
class OneRewardChanged(Problem):
    """A problem in which the reward of the step ``slot`` is larger ``by`` an amount in every run.

    It tests what a mechanism shows of a reward: before it releases this one, it must show the same as on the unchanged
    problem. The rewards have to be Gaussian with σ > 0.
    """

    slot: int = 0
    by: float = 1.0

    def tape(self, steps: int) -> Tensor:
        """Return the standard normals of the noise, with that of the step ``slot`` larger by ``by``/σ."""
        tape = super().tape(steps)
        tape[:, self.slot : self.slot + 1] += self.by / self.sigma  # a shorter tape stays as it is
        return tape


def play_regime(way: str, epsilon: float, world: World, setting: Setting) -> Trace:
    """Play all runs of a world, T₀ + NT steps without a Phase I, at δ = min(1e-5, 1/(10NT)) and rewards in [0, 3.5].

    ``way`` and ``epsilon`` are those of `Hiding`; ``setting`` has ``batch`` and ``model`` of `play_hidden`.
    """
    hiding = Hiding(world.clients, epsilon, min(1e-5, 1 / (10 * world.clients * world.rounds)), way)
    return play_hidden(world.problem, world.steps, hiding, **setting)[0]
