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

from fedgo._checks import number, require, require_kind
from fedgo.beyond.guarantees.intervals import Interval
from fedgo.beyond.method.advised import ADVISED
from fedgo.beyond.method.epochs import Growing, each_arm
from fedgo.beyond.method.process import Data, _kernel, mode
from fedgo.beyond.method.surrogates import observed
from fedgo.confidence import Tally
from fedgo.experiments.world import Setting, World
from fedgo.problem import Problem
from fedgo.simulation import largest, order_of_ties
from fedgo.star import Ledger, Message, Star, When
from fedgo.trace import Trace

WAYS = ("trusted server", "secure sum", "each alone")  # who adds the noise (`Hiding`)
Moments = tuple[Tensor, Tensor]  # a posterior mean (K,) and covariance (K, K)


def leak(multiplier: float, epsilon: float) -> float:
    """Return the smallest δ for which normal noise of standard deviation m·(high − low) makes a sum of rewards
    (ε, δ)-differentially private.

    δ is the probability with which the promise of ε may fail. It is Φ(−εm + 1/(2m)) − e^ε·Φ(−εm − 1/(2m)), with the
    distribution function Φ of the standard normal (Balle and Wang, ICML 2018).

    Args:
        multiplier: The multiplier m > 0 of the width of the public range [low, high] of a reward.
        epsilon: The privacy budget ε ≥ 0.

    Raises:
        ZeroDivisionError: m is 0.
    """
    middle, half = -epsilon * multiplier, 1 / (2 * multiplier)
    return float(special.ndtr(middle + half) - math.exp(epsilon + special.log_ndtr(middle - half)))


def least_multiplier(epsilon: float, delta: float) -> float:
    """Return the smallest m for which normal noise of standard deviation m·(high − low) makes a sum of rewards
    (ε, δ)-differentially private.

    [low, high] is the public range of a reward, and m the multiplier of its width. It is sought between e⁻⁷ and e¹⁴.

    Args:
        epsilon: The privacy budget ε ≥ 0.
        delta: The probability δ in (0, 1) with which the promise of ε may fail.

    Raises:
        ValueError: m would be below e⁻⁷, as it is if ε is above about 6·10⁵; or it would be above e¹⁴, as it is if ε is
            0 and δ below 3·10⁻⁷; or δ is negative or above 1.
    """
    return math.exp(optimize.brentq(lambda log: leak(math.exp(log), epsilon) - delta, -7, 14, xtol=1e-12))


@dataclass(frozen=True)
class Hiding:
    """The mechanism that hides rewards: the privacy budget, who adds the noise, and the public range of a reward.

    Args:
        clients: The number N of clients, at least 1. It is not checked.
        epsilon: The privacy budget ε, from 0.001 to below 100,000.
        delta: The probability δ in (0, 1) with which the promise of ε may fail.
        way: Who adds the noise, a name in `WAYS`. "trusted server": the server sums the rewards and adds the noise
            once. "secure sum": each client adds a share of the noise, and the server learns only the sum. The shares of
            ⌊2N/3⌋ + 1 clients have the variance that ε and δ need (those of all N if N is at most 3); here all N
            answer, so that the sum has more if N is above 3. "each alone": each client adds the whole noise to its own
            sums.
        low: The smallest reward; smaller rewards are clipped to it.
        high: The largest reward; larger rewards are clipped to it.

    Raises:
        ValueError: ε is below 0.001 or not below 100,000, δ is not in (0, 1), ``low`` is not below ``high``, one of
            these is not finite, or ``way`` is unknown.
        TypeError: ε, δ or high − low is not a number.
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
        """The standard deviation ν of the noise in the released sum of an arm over all clients, in the units of
        rewards.

        Raises:
            ValueError: ε is too large, about 6·10⁵ or more (`least_multiplier`).
            ZeroDivisionError: The number of clients is 0.
        """
        secure = self.clients / min(2 * self.clients // 3 + 1, self.clients)
        times = dict(zip(WAYS, (1.0, secure, self.clients), strict=True))[self.way]
        return (self.high - self.low) * least_multiplier(self.epsilon, self.delta) * math.sqrt(times)


def counted(pulls: Tensor, noise: float, sigma: float) -> Tensor:
    """Return b²/(b + ν²/σ²), the number of pulls as which the model counts the released sum of b pulls of an arm.

    Noise was added to this sum. The mean reward that follows from it is as precise as the mean of b²/(b + ν²/σ²)
    rewards to whose sum no noise was added.

    Args:
        pulls: The number b ≥ 0 of pulls, a float64 tensor of any shape, which is that of the result.
        noise: ν > 0, the standard deviation of the noise in the released sum.
        sigma: The standard deviation σ > 0 of a reward's noise.

    Raises:
        ZeroDivisionError: σ is 0.
    """
    return pulls.square() / (pulls + (noise / sigma) ** 2)


def fit_hidden(model: str, least: float, sigma: float, arms: Tensor, counts: Tensor, sums: Tensor) -> Moments:
    """Return the posterior mean (K,) and covariance (K, K) of the arms' mean rewards f, given the released sums.

    The posterior is that of a Gaussian process with the kernel and the length scales of
    `fedgo.beyond.method.process`. The noise of an arm's mean reward S̃/ñ has the variance σ²/ñ. With the first two
    models the prior mean is the average of the mean rewards of the pulled arms.

    Args:
        model: What the variance of f is taken to be. "less noise": the variance of the pulled arms' mean rewards less
            the average of what the noise adds to it. "as seen": the variance of these mean rewards. "warped": the whole
            fit is that of the surrogate of `ADVISED`, which warps the mean rewards first. The name is not checked;
            any other counts as "as seen".
        least: The smallest standard deviation of f that the first two models use, above 0.
        sigma: The standard deviation σ of a reward's noise.
        arms: The features of the K arms, (K, d_x).
        counts: ñ, the number of pulls as which the released sums of each arm count (`counted`), (K,).
        sums: The weighted sum S̃ of what was released for each arm, (K,), so that S̃/ñ estimates its mean reward.

    Raises:
        ValueError: Fewer than two arms have been pulled; with the first two models, all their mean rewards are equal; a
            mean reward is not between −10¹⁰⁰ and 10¹⁰⁰; a count is negative or not finite; a sum is not finite, or is
            not 0 for an arm without pulls; or σ is not positive and finite.
        TypeError: σ is not a number.
        RuntimeError: The covariance of the mean rewards is not positive definite; or, with the first two models, a
            feature is the same for all arms.
    """
    if model == "warped":
        fit = ADVISED.surrogate.fit(arms, Tally(counts, sums), sigma)
        return fit.mean, fit.covariance(torch.arange(len(arms)))
    at, means, variances, _ = observed(Tally(counts, sums), sigma)
    added = variances.mean() if model == "less noise" else 0.0
    centre, square = means.mean(), (means.var() - added).clamp(min=least**2)
    cube = (arms - arms.amin(0)) / (arms.amax(0) - arms.amin(0))
    features = torch.arange(cube.shape[1])
    data = Data(cube[at], at, (means - centre) / square.sqrt(), variances / square, None, features, None)
    inputs = cube / mode(data, misfit=False)[features].exp()
    prior = square * _kernel(inputs, inputs)
    gain = torch.cholesky_solve(prior[at], torch.linalg.cholesky(prior[at][:, at] + variances.diag()))
    return centre + (means - centre) @ gain, prior - prior[:, at] @ gain


def plan_hidden(fits: list[Moments], order: Tensor, pulls: int, noise: float, sigma: float) -> Tensor:
    """Return the arms of an epoch of L pulls for S runs, (S, L) int64.

    Each decision takes the arm with the largest mean + κ√variance, with the κ of `ADVISED`, for b = ⌈L/1000⌉ pulls; the
    last decision may be for fewer. If n pulls of this arm have been planned before in the epoch, the covariance is then
    conditioned on b more: the precision with which the released sum of the arm determines its mean reward rises from
    p(n) to p(n + b), with p(n) = n²/(σ²n + ν²).

    Args:
        fits: The posterior mean (K,) and covariance (K, K) of the K arms' mean rewards in each of S runs, at least one.
        order: The order in which ties are broken, (S, K); of tied arms the one with the largest number is pulled.
        pulls: The number L of pulls, at least 1.
        noise: ν > 0, the standard deviation of the noise in a released sum.
        sigma: The standard deviation σ > 0 of a reward's noise.

    Raises:
        ValueError: A posterior has NaN.
        ZeroDivisionError: σ is 0.
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
    problem: Problem, steps: int, hiding: Hiding, batch: float, model: str, until: Growing = ADVISED.until
) -> tuple[Trace, Tensor]:
    """Play a Gaussian process that receives nothing but noisy sums of clipped rewards, released after each epoch.

    Args:
        problem: S runs of a bandit problem with K arms.
        steps: The number NT of pulls by all N clients together, at least 1.
        hiding: The mechanism that hides rewards, with the number N of clients.
        batch: The number of times that each arm is pulled before the first fit, if NT suffices for that, at least 1. It
            is a whole number, which a table gives as a float; a fraction is cut off.
        model: What the variance of the mean rewards is taken to be, "less noise", "as seen" or "warped" (`fit_hidden`).
        until: The rule by which the epochs grow.

    Returns:
        The trace without a Phase I, whose note ``cut`` (S, NT) bool says which rewards were clipped, and the released
        sums of E epochs, (E, S, K). At the end of each epoch each client sends and receives one number for each arm.
        The rewards in the trace are those before they are clipped.

    Raises:
        TypeError: ``until`` is not `Growing`. An event or a guard may decide by rewards that have not been released.
        ValueError: ``batch`` is below 1, the privacy budget ε of ``hiding`` is too large (`least_multiplier`), or a fit
            refuses the data, for instance because the problem has a single arm.
        RuntimeError: A covariance is not positive definite; or, with another model than "warped", a feature is the same
            for all arms (`fit_hidden`).
        ZeroDivisionError: The σ of the problem (the standard deviation of a reward's noise) or ``steps`` is 0.

    Warns:
        UserWarning: The δ of ``hiding``, with which its promise may fail, is 1/(NT) or more.
    """
    why = "an event or a guard may act on rewards that are not released, which ends the promise; give Growing"
    require_kind(isinstance(until, Growing), "until", until, why)
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
            planned = plan_hidden(fits, order, min(until.length(done), steps - done), noise, sigma)
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
    """Return the intervals of Theorem P′, which contain f of all K arms after all releases with probability ≥ 1 − δ.

    f is the mean of the clipped rewards of an arm. The intervals are S̃/ñ ± σ√((1 + ñ)(ln(1 + ñ) + 2 ln(K/δ)))/ñ, and
    the whole line if ñ = 0. Their ``gain``, which one more pull of the arm adds to the log-determinant of the precision
    matrix, is ln(1 + 1/(1 + ñ)).

    Args:
        data: ñ, the number of pulls as which the released sums of each arm count (`counted`), and the weighted sum S̃
            of what was released, (..., K) each.
        sigma: σ, such that clipped rewards are σ-sub-Gaussian given the past; (high − low)/2 always satisfies this for
            rewards clipped to [low, high].
        delta: The failure probability δ in (0, 1). That it is below 1 is not checked.

    Returns:
        The intervals, whose ``lower``, ``upper`` and ``gain`` have the shape (..., K).

    Raises:
        ValueError: δ is not positive.
    """
    counts, share = data.counts, delta / data.counts.shape[-1]
    radius = sigma * ((1 + counts) * (counts.log1p() - 2 * math.log(share))).sqrt() / counts
    mean = data.sums / counts.clamp(min=1e-300)  # it is 0 where nothing was released
    return Interval(mean - radius, mean + radius, (1 / (1 + counts)).log1p())


@dataclass(frozen=True)
class OneRewardChanged(Problem):
    """A problem in which one reward of every run is changed, to test what a mechanism shows of it.

    Before it releases this reward, a private mechanism must show the same as on the unchanged problem. The other fields
    and their refusals are those of `Problem`. The rewards have to be Gaussian, and the standard deviation σ of their
    noise positive, which is not checked here.

    Args:
        slot: The step whose reward is changed, counted from 0.
        by: The amount by which the reward is larger.
    """

    slot: int = 0
    by: float = 1.0

    def tape(self, steps: int) -> Tensor:
        """Return the standard normals of the noise of S runs, (S, steps), with that of the step ``slot`` larger by
        ``by``/σ, where σ is the standard deviation of a reward's noise.

        Steps are counted from 0. With ``steps`` ≤ ``slot`` the numbers are those of the unchanged problem.

        Raises:
            ZeroDivisionError: σ is 0.
        """
        tape = super().tape(steps)
        tape[:, self.slot : self.slot + 1] += self.by / self.sigma  # a shorter tape stays as it is
        return tape


def play_regime(way: str, epsilon: float, world: World, setting: Setting) -> Trace:
    """Play all runs of a world with a Gaussian process that receives noisy sums, at δ = min(1e-5, 1/(10NT)).

    N is the number of clients and T the number of rounds. δ is the probability with which the promise of privacy may
    fail. All T₀ + NT steps of the world are played, with T₀ = ⌈√(NT)⌉ and without a Phase I. Rewards are clipped to the
    default range of `Hiding`, [0, 3.5].

    Args:
        way: Who adds the noise: "trusted server", "secure sum" or "each alone" (`Hiding`).
        epsilon: The privacy budget ε, from 0.001 to below 100,000.
        world: The problem, N and T.
        setting: The ``batch`` and the ``model`` of `play_hidden`: the number of times that each arm is pulled before
            the first fit, and "less noise", "as seen" or "warped".

    Raises:
        ValueError: ``way`` is unknown, ε is below 0.001 or too large, ``batch`` is below 1, or a fit refuses the data.
        TypeError: ε is not a number, or the setting lacks one of its two entries.
        RuntimeError: A covariance is not positive definite; or, with another model than "warped", a feature is the same
            for all arms.
        ZeroDivisionError: The standard deviation σ of the problem's noise, N or T is 0.
    """
    hiding = Hiding(world.clients, epsilon, min(1e-5, 1 / (10 * world.clients * world.rounds)), way)
    return play_hidden(world.problem, world.steps, hiding, **setting)[0]
