"""Executed runs of Phase II, of Fed-GO-UCB or with other arms, and the quantities that the bounds on them need.

The statements of the analysis about matrices and synchronisations hold for any choice of arms. Therefore some runs draw
their arms at random, whatever has been observed.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fedgo.algorithms.go_ucb import fed_go_learner
from fedgo.confidence import Ball, Estimates, Tally, ball, first_order
from fedgo.phase_one import Exploration, Start
from fedgo.phase_two import Index, Settings
from fedgo.problem import Problem
from fedgo.simulation import simulate
from fedgo.theory.confidence import information_bound, radius
from fedgo.theory.phase_two import LARGEST_INCREMENT
from fedgo.theory.replay import Replay, replay
from fedgo.theory.worlds import SingleUnit
from fedgo.trace import Trace


@dataclass(frozen=True)
class Replayed:
    """Runs of Phase II together with what they were made from, to be analysed.

    ``trace`` has S runs on ``problem`` (K arms), with Phase II played from ``start`` (N clients, T rounds, d_w
    parameters, one ŵ₀ for all clients of a run) with ``settings``.
    """

    problem: Problem
    start: Start
    settings: Settings
    trace: Trace

    @property
    def arm(self) -> Tensor:
        """The arms pulled in Phase II, (S, NT) int64, for S runs, N clients and T rounds."""
        return self.trace.arm[:, self.trace.phase_one :]

    @property
    def regret(self) -> Tensor:
        """The instantaneous regret r_t of each step t of Phase II, (S, NT), for S runs, N clients and T rounds."""
        return self.trace.regret[:, self.trace.phase_one :]

    @property
    def sync(self) -> Tensor:
        """Whether each step of Phase II ends with a synchronisation, (S, NT) bool, for S runs, N clients and T
        rounds.
        """
        return self.trace.sync[:, self.trace.phase_one :]

    @cached_property
    def gradients(self) -> Tensor:
        """The gradients ∇f_x(ŵ₀) of all K arms x at the parameter ŵ₀ of Phase I, in each of S runs, (S, K, d_w).

        The parameter has d_w numbers.
        """
        return self.start.network.gradients(self.start.w0[:, 0], self.problem.arms)

    @cached_property
    def offsets(self) -> Tensor:
        """The values f_x(ŵ₀) of all K arms x at the parameter ŵ₀ of Phase I, in each of S runs, (S, K)."""
        return self.start.network.values(self.start.w0[:, 0], self.problem.arms)

    @property
    def residual(self) -> Tensor:
        """The residuals y_t − f_x(ŵ₀) of the rewards y_t of the pulled arms x in Phase II, (S, NT), for NT steps of S
        runs.
        """
        return self.trace.reward[:, self.trace.phase_one :] - self.offsets.gather(1, self.arm)

    @property
    def dimension(self) -> int:
        """The largest dimension min(K, d_w) of the space that the gradients of K arms in d_w parameters can span."""
        return min(self.problem.arms.shape[1], self.start.network.size)

    @cached_property
    def replay(self) -> Replay:
        """The widths, log-determinants and epochs of each step of Phase II (`fedgo.theory.replay.Replay`).

        Raises:
            ValueError: The start has several ŵ₀ in a run, or was made on a problem with other arms.
        """
        return replay(self.start, self.problem.arms, self.trace, self.settings.lam)


@dataclass(frozen=True)
class PhaseTwoRuns(Replayed):
    """Runs of Phase II with ``slope``, a bound C_g on the norm of the gradient of every arm that was pulled.

    The fields ``problem``, ``start``, ``settings`` and ``trace`` are those of `Replayed`: what the runs were made from,
    and their trace.
    """

    slope: float

    @property
    def information_bound(self) -> float:
        """The bound R = d ln(1 + NT·C_g²/(dλ)) on the log-ratio Λ = ln(det Σ/det λI) after all NT pulls.

        Σ is λI plus the sum of g gᵀ over the gradients g of the pulls, with the regularisation weight λ, and C_g is
        ``slope``. d = min(K, d_w), for K arms and d_w parameters, takes the place of the paper's d_w.
        """
        return information_bound(self.dimension, self.arm.shape[1], self.slope, self.settings.lam)

    @property
    def regularised(self) -> bool:
        """Whether the regularisation weight λ is at least C_g²/2.5129, as the elliptical potential lemma needs.

        C_g is the bound ``slope`` on the gradients.
        """
        return self.settings.lam >= self.slope**2 / LARGEST_INCREMENT


@dataclass(frozen=True)
class Hindsight(Replayed):
    """Runs of Fed-GO-UCB with the true parameter w*, to check the confidence lemma.

    The distance of the centre ŵ of a ball from w* has three parts, ŵ − w* = Σ⁻¹(Σ_s g_s η_s + Σ_s g_s a_s − λ(w* −
    ŵ₀)), with the gradient g_s, the noise η_s and the Taylor remainder a_s of each pull s, the matrix Σ of the client's
    data, and the regularisation weight λ.

    Args:
        problem: S runs of a bandit problem.
        start: Phase I, with the fitted parameter ŵ₀.
        settings: The parameters of Phase II.
        trace: The trace of both phases.
        truth: The true parameter w*, at which f_x(w*) is the mean reward of each arm x, (S, d_w).
        curvature: The largest norm C_h of a second derivative on the line from ŵ₀ to w*, over all arms, (S,).
    """

    truth: Tensor
    curvature: Tensor

    @property
    def centre(self) -> Tensor:
        """The parameter ŵ₀ of Phase I of each of S runs, (S, d_w)."""
        return self.start.w0[:, 0]

    @property
    def rho(self) -> Tensor:
        """The distance ρ₀ = ‖ŵ₀ − w*‖ of the parameter of Phase I from the true one, in each of S runs, (S,)."""
        distance: Tensor = (self.centre - self.truth).norm(dim=-1)
        return distance

    @cached_property
    def remainder(self) -> Tensor:
        """The Taylor remainders f(x) − f_x(ŵ₀) − g_xᵀ(w* − ŵ₀) of K arms x in each of S runs, (S, K).

        f(x) is the mean reward, g_x the gradient at the fitted parameter ŵ₀, and w* the true parameter.
        """
        away = (self.truth - self.centre).unsqueeze(-1)
        return self.problem.means - self.offsets - (self.gradients @ away).squeeze(-1)

    @property
    def sampled(self) -> Tensor:
        """The numbers of about ten steps of Phase II at equal distances, counted from 0, (n,) int64.

        There are NT steps, for N clients and T rounds. The result has the first of the NT steps and every ⌊NT/10⌋-th
        after it, which makes ten or eleven from NT = 100 on; if NT < 20, they are all steps.
        """
        steps = self.arm.shape[1]
        return torch.arange(0, steps, max(1, steps // 10))

    def known(self, at: Tensor) -> Tally:
        """Return the data that the client knows after its pull at each of the steps ``at``, as counts and sums.

        ``at`` (n,) int64 has steps of Phase II, counted from 0. The counts of the pulls and the sums of their residuals
        are (S, n, K) each, for S runs and K arms.

        Raises:
            ValueError: The start has several ŵ₀ in a run, or was made on a problem with other arms.
        """
        return self.replay.known.of((slice(None), at))

    def ball(self, at: Tensor) -> Ball:
        """Return the ball of a client in each of S runs, with the squared radius 1.

        The client is the one that pulls at each of the steps ``at`` (n,) int64 of Phase II, counted from 0; the ball is
        that after its pull. It has the centre ŵ (S, n, d_w), which is the ridge estimate of the d_w parameters, and the
        matrix Σ (S, n, d_w, d_w).

        Raises:
            ValueError: The start has several ŵ₀ in a run, or was made on a problem with other arms.
            RuntimeError: Σ is not positive definite in float64, because λ is too small for the gradients.
        """
        gradients, centre = self.gradients.unsqueeze(1), self.centre.unsqueeze(1)
        return ball(gradients, centre, self.settings.lam, 1.0, self.known(at))

    def distance(self, at: Tensor) -> Tensor:
        """Return the distance ‖ŵ − w*‖_Σ of the true parameter w* from the centre ŵ of a client's ball, (S, n), in S
        runs.

        The client is the one that pulls at each of the steps ``at`` (n,) int64 of Phase II, counted from 0; the ball is
        that after its pull, with the matrix Σ.

        Raises:
            ValueError: The start has several ŵ₀ in a run, or was made on a problem with other arms.
            RuntimeError: Σ is not positive definite in float64, because λ is too small for the gradients.
        """
        return self.ball(at).distance(self.truth.unsqueeze(1)).sqrt()

    def radius(self, delta: float, exact: bool = False) -> Tensor:
        """Return the radius √β_{t,i} of the repaired confidence lemma after each step t of its client i, (S, NT).

        There are NT steps in each of S runs. ``delta`` is the failure probability δ. With ``exact`` it is the radius
        for a start at the true parameter w* in place of the fitted ŵ₀, where only the term of the noise is left.

        Raises:
            ValueError: δ does not lie strictly between 0 and 1, ``curvature`` is negative, the start has several ŵ₀ in
                a run, or it was made on a problem with other arms.
        """
        return radius(
            self.replay.information,
            self.replay.known.counts.sum(-1),
            self.replay.epoch,
            clients=self.start.clients,
            lam=self.settings.lam,
            sigma=self.problem.sigma,
            distance=0.0 if exact else self.rho.unsqueeze(1),
            curvature=0.0 if exact else self.curvature.unsqueeze(1),
            delta=delta,
        ).sqrt()


def play_phase_two(
    problem: Problem, start: Start, settings: Settings, index: Index | None = None, slope: float | None = None
) -> PhaseTwoRuns:
    """Play Phase II of Fed-GO-UCB from ``start`` and return its runs for the analysis.

    Args:
        problem: S runs of a bandit problem.
        start: Phase I on the same problem, a `fedgo.phase_one.shared_start`.
        settings: The regularisation λ, the squared radius β, the threshold γ, and the form of the messages.
        index: A function that returns the index of each of K arms for each of N clients, (S, N, K), from the posteriors
            and the data of the clients; each client pulls the arm with its largest index. If it is None, the
            first-order index is used.
        slope: The bound C_g on the gradients; if it is None, the largest ‖∇f_x(ŵ₀)‖ of any arm x in any run.

    Raises:
        ValueError: The start does not fit the problem or the settings, the gradients are so large, or λ so small, that
            rounding would decide which arm is pulled, or an index is NaN.
        TypeError: An argument is of another kind.
    """
    learner = replace(fed_go_learner(problem, start, settings), optimism=index)
    steps = start.clients * start.rounds
    trace = simulate("Fed-GO-UCB", problem, learner, start.exploration, start.clients, steps)
    if slope is None:
        slope = start.network.gradients(start.w0, problem.arms.unsqueeze(1)).norm(dim=-1).max().item()
    return PhaseTwoRuns(problem, start, settings, trace, slope)


def linear_play(
    problem: Problem, clients: int, rounds: int, settings: Settings, index: Index | None = None
) -> PhaseTwoRuns:
    """Play Phase II of Fed-GO-UCB, without Phase I, on a linear model, and return its runs for the analysis.

    The gradients of the model are the features of the arms. It is `fedgo.theory.worlds.SingleUnit` at ŵ₀ = 0, where f_x
    = 0 and ∇f_x = x for every arm x.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        rounds: The number T of rounds; NT steps are played.
        settings: The regularisation λ, the squared radius β and the threshold γ; the messages must be in a form without
            numbers of arms, such as the default "dense" (`fedgo.messages`).
        index: A function that returns the index of each of K arms for each of N clients, (S, N, K), from the posteriors
            and the data of the clients; each client pulls the arm with its largest index. If it is None, the
            first-order index is used.

    Raises:
        ValueError: N or T is below 1, the form of the messages is "counts" or "cheapest", the features are so large, or
            λ so small, that rounding would decide which arm is pulled, or an index is NaN.
        TypeError: N or T is not a whole number, or ``settings`` is not a `fedgo.phase_two.Settings`.
    """
    runs, _, d_x = problem.arms.shape
    origin, loss = (torch.zeros(runs, *shape, dtype=torch.float64) for shape in ((1, d_x), (1,)))
    start = Start(problem, SingleUnit(d_x), clients, rounds, Exploration.nothing(runs), origin, loss)
    return play_phase_two(problem, start, settings, index)


def blind(source: torch.Generator) -> Index:
    """Return an index that draws every arm with equal probability, whatever has been observed.

    The index is a function of the posterior and the data. At every call it draws new numbers from the generator
    ``source``.
    """

    def index(posterior: Estimates, data: Tally) -> Tensor:
        """Return a uniform random number for each arm, in the shape of ``data``; ``posterior`` is not used."""
        return torch.rand(data.sums.shape, generator=source, dtype=torch.float64)

    return index


def single_unit_line_three(start: Start, arms: Tensor, beta: float) -> Index:
    """Return line 3 of Algorithm 1 as an index for `fedgo.theory.worlds.SingleUnit`, where it has a closed form.

    tanh increases, so that the arm x with the largest max f_x(w) over the ball is the arm with the largest max wᵀx =
    ŵ₀ᵀx + (g_xᵀ(ŵ − ŵ₀) + √β‖g_x‖_{Σ⁻¹})/(1 − f_x(ŵ₀)²), with its gradient g_x at ŵ₀ and the matrix Σ and the ridge
    estimate ŵ of the learner's data.

    Args:
        start: Phase I with its parameter ŵ₀, whose network is a `fedgo.theory.worlds.SingleUnit`.
        arms: The features of K arms in each of S runs, (S, K, d_x).
        beta: The squared radius β ≥ 0 of the ball.

    Returns:
        A function of the posterior and the data of M learners in each of S runs, which returns (S, M, K).
    """
    value = start.network.values(start.w0, arms.unsqueeze(1))

    def index(posterior: Estimates, data: Tally) -> Tensor:
        """Return max wᵀx over the confidence ball for each of K arms x and each of M learners in S runs, (S, M, K).

        ``posterior`` has the means and variances of the linearised rewards; ``data`` is not used.
        """
        return value.atanh() + (first_order(posterior, beta) - value) / (1 - value.square())

    return index


def random_play(
    runs: int, seed: int, source: torch.Generator, index: Index | None = None, share: float = 1.0
) -> PhaseTwoRuns:
    """Play Phase II on a linear model whose sizes, arms, mean rewards, λ and γ are drawn at random, and return its
    runs.

    The function draws the numbers N of clients (2 to 12), T of rounds (2 to 40), d_x of features (2 to 6) and K of arms
    (2 to 15), which all runs share, and a threshold γ from 0.01 to 100, whose logarithm is uniform. The regularisation
    weight λ is ``share`` times 0.4 to 3.4 times C_g², with the largest norm C_g of an arm of any run. The squared
    radius is 0.1, and the noise has the standard deviation 0.1. With ``share`` = 1 the elliptical potential lemma
    holds.

    Args:
        runs: The number S of runs, at least 1.
        seed: The seed of the rewards' noise.
        source: The generator that draws everything else.
        index: A function that returns the index of each of K arms for each of N clients, (S, N, K), from the posteriors
            and the data of the clients; if it is None, the first-order index is used.
        share: The factor of λ, above 0.

    Raises:
        ValueError: ``seed`` is negative, ``share`` is not positive or so small that rounding would decide which arm is
            pulled, or an index is NaN.
        TypeError: ``seed`` is not a whole number, or ``share`` is not a number.
        RuntimeError: ``runs`` is below 1.
    """
    clients, rounds, d_x, arms = (
        int(torch.randint(2, top, (1,), generator=source)) for top in (13, 41, 7, 16)
    )
    points = torch.randn(runs, arms, d_x, generator=source, dtype=torch.float64)
    means = torch.randn(runs, arms, generator=source, dtype=torch.float64)
    for_lam, for_gamma = torch.rand(2, generator=source, dtype=torch.float32).tolist()
    slope = points.norm(dim=-1).max().item()
    settings = Settings(share * slope**2 * (0.4 + 3 * for_lam), 0.1, 10 ** (4 * for_gamma - 2))
    problem = Problem("random", points, means, tuple(range(runs)), seed, 0.1)
    return linear_play(problem, clients, rounds, settings, index)
