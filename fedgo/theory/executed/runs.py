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
from fedgo.theory.ball import information_bound, radius
from fedgo.theory.regret import LARGEST_INCREMENT
from fedgo.theory.replay import Replay, replay
from fedgo.theory.worlds import SingleUnit
from fedgo.trace import Trace


@dataclass(frozen=True)
class Replayed:
    """Runs of Phase II together with what they were made from, to be analysed.

    Args:
        start: The result of Phase I for N clients and T rounds, with one fitted parameter ŵ₀ of d_w numbers for all
            clients of a run.
        settings: The parameters of Phase II, among them the regularisation weight λ.
        trace: The trace of both phases; the pulls of Phase II are its last NT steps.
    """

    start: Start
    settings: Settings
    trace: Trace

    @property
    def problem(self) -> Problem:
        """The S runs of the problem with K arms."""
        return self.start.problem

    @property
    def arm(self) -> Tensor:
        """The number of the arm that is pulled at each step of Phase II, (S, NT) int64, for S runs, N clients and T
        rounds.
        """
        return self.trace.arm[:, self.trace.phase_one :]

    @property
    def regret(self) -> Tensor:
        """The instantaneous regret f(x*) − f(x_t) of each step t of Phase II, (S, NT), for S runs, N clients and T
        rounds.

        x_t is the arm that is pulled, f the mean reward, and x* the arm with the largest mean reward in the run.
        """
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

        f_x is the value of the network of Phase I at the arm x, as a function of its d_w parameters. If the clients of
        a run have several ŵ₀, that of the first client is used.
        """
        return self.start.network.gradients(self.start.w0[:, 0], self.problem.arms)

    @cached_property
    def offsets(self) -> Tensor:
        """The values f_x(ŵ₀) of all K arms x at the parameter ŵ₀ of Phase I, in each of S runs, (S, K).

        f_x is the value of the network of Phase I at the arm x, as a function of its parameters. If the clients of a
        run have several ŵ₀, that of the first client is used.
        """
        return self.start.network.values(self.start.w0[:, 0], self.problem.arms)

    @property
    def residual(self) -> Tensor:
        """The residuals y_t − f_x(ŵ₀) of the rewards y_t of the arms x pulled in Phase II, (S, NT), for S runs, N
        clients and T rounds.

        f_x(ŵ₀) is the value of the network of Phase I at the arm x with the fitted parameter ŵ₀.
        """
        return self.trace.reward[:, self.trace.phase_one :] - self.offsets.gather(1, self.arm)

    @property
    def dimension(self) -> int:
        """The largest dimension min(K, d_w) of the space that the gradients of K arms in d_w parameters can span."""
        return min(self.problem.arms.shape[1], self.start.network.size)

    @cached_property
    def replay(self) -> Replay:
        """The quantities of the analysis at each step of Phase II, as a `fedgo.theory.replay.Replay`.

        Among them are the squared width ‖g‖²_{Σ⁻¹} of each pull in the matrix Σ before it, the log-ratio ln(det Σ/det
        λI) after it, and the number of synchronisations before it, (S, NT) each for S runs, N clients and T rounds. g
        is the gradient of the pulled arm, and Σ is λI plus the sum of g gᵀ over the pulls that a client knows, with the
        regularisation weight λ.

        Raises:
            ValueError: The start has several ŵ₀ in a run.
            RuntimeError: A matrix Σ is not positive definite in float64, because λ is too small for the gradients.
        """
        return replay(self.start, self.trace, self.settings.lam)


@dataclass(frozen=True)
class PhaseTwoRuns(Replayed):
    """Runs of Phase II with a bound on the gradients, for which the bounds of the analysis can be computed.

    Args:
        start: The result of Phase I for N clients and T rounds, with one fitted parameter ŵ₀ of d_w numbers for all
            clients of a run.
        settings: The parameters of Phase II, among them the regularisation weight λ.
        trace: The trace of both phases.
        slope: A bound C_g on the norm ‖∇f_x(ŵ₀)‖ of the gradient of every arm x that is pulled, with the value f_x of
            the network at the arm. It is not checked.
    """

    slope: float

    @property
    def information_bound(self) -> float:
        """The bound R = d ln(1 + NT·C_g²/(dλ)) on the log-ratio Λ = ln(det Σ/det λI) of a run after all NT pulls.

        There are N clients and T rounds. Σ is λI plus the sum of g gᵀ over the gradients g of all pulls, with the
        regularisation weight λ, and C_g is the bound ``slope`` on the norms of the gradients. d = min(K, d_w), for K
        arms and d_w parameters, takes the place of the paper's d_w.
        """
        return information_bound(self.dimension, self.arm.shape[1], self.slope, self.settings.lam)

    @property
    def regularised(self) -> bool:
        """Whether the regularisation weight λ is at least C_g²/2.5129, as the elliptical potential lemma needs.

        C_g is the bound ``slope`` on the norms of the gradients. 2.5129 is the largest u with u ≤ 2 ln(1 + u), here
        rounded.
        """
        return self.settings.lam >= self.slope**2 / LARGEST_INCREMENT


@dataclass(frozen=True)
class Hindsight(Replayed):
    """Runs of Fed-GO-UCB with the true parameter w*, to check the confidence lemma.

    The difference between the centre ŵ of a client's confidence ball and w* has three parts, ŵ − w* = Σ⁻¹(Σ_s g_s η_s +
    Σ_s g_s a_s − λ(w* − ŵ₀)). The sums are over the pulls s in the client's data; g_s is the gradient of the pulled arm
    at ŵ₀, η_s the noise of the reward and a_s the Taylor remainder. Σ = λI + Σ_s g_s g_sᵀ is the matrix of these data,
    with the regularisation weight λ.

    Args:
        problem: S runs of a bandit problem with K arms.
        start: The result of Phase I, with one fitted parameter ŵ₀ of d_w numbers for all clients of a run.
        settings: The parameters of Phase II, among them λ.
        trace: The trace of both phases.
        truth: The true parameter w*, (S, d_w), at which the network's value f_x(w*) is the mean reward of each arm x.
        curvature: A bound C_h ≥ 0 for each run on the operator norm of the second derivatives of all f_x on the line
            from ŵ₀ to w*, (S,).
    """

    truth: Tensor
    curvature: Tensor

    @property
    def centre(self) -> Tensor:
        """The parameter ŵ₀ of Phase I of each of S runs, (S, d_w).

        If the clients of a run have several ŵ₀, it is that of the first client.
        """
        return self.start.w0[:, 0]

    @property
    def rho(self) -> Tensor:
        """The Euclidean distance ρ₀ = ‖ŵ₀ − w*‖ of the parameter ŵ₀ of Phase I from the true one w*, in each of S runs,
        (S,).
        """
        distance: Tensor = (self.centre - self.truth).norm(dim=-1)
        return distance

    @cached_property
    def remainder(self) -> Tensor:
        """The Taylor remainders f(x) − f_x(ŵ₀) − g_xᵀ(w* − ŵ₀) of K arms x in each of S runs, (S, K).

        f(x) is the mean reward, f_x(ŵ₀) the network's value at the fitted parameter ŵ₀, g_x its gradient there, and w*
        the true parameter.
        """
        away = (self.truth - self.centre).unsqueeze(-1)
        return self.problem.means - self.offsets - (self.gradients @ away).squeeze(-1)

    @property
    def sampled(self) -> Tensor:
        """The numbers of some steps of Phase II at equal distances, counted from 0, (n,) int64.

        They are the first of the NT steps, for N clients and T rounds, and every ⌊NT/10⌋-th step after it. These are
        ten or eleven steps if NT is at least 100. If NT < 20, they are all steps.
        """
        steps = self.arm.shape[1]
        return torch.arange(0, steps, max(1, steps // 10))

    def known(self, at: Tensor) -> Tally:
        """Return the data that a client knows after its pull at each of the steps ``at``, as counts and sums.

        The client is the one that pulls at the step. A synchronisation that its pull triggers is not included yet.

        Args:
            at: Steps of Phase II, counted from 0, (n,) int64.

        Returns:
            The counts of the pulls and the sums of their residuals y − f_x(ŵ₀), (S, n, K) each, for S runs and K arms.
            y is a reward of the arm x, and f_x(ŵ₀) the network's value at the parameter ŵ₀ of Phase I.

        Raises:
            ValueError: The start has several ŵ₀ in a run.
            RuntimeError: The matrix of a client's data is not positive definite in float64, because the regularisation
                weight λ is too small for the gradients.
            IndexError: Phase II has no such step.
        """
        return self.replay.known.of((slice(None), at))

    def ball(self, at: Tensor) -> Ball:
        """Return the ball of a client in each of S runs, with the squared radius 1, after its pull at each of some
        steps.

        The client is the one that pulls at the step. The ball has the centre ŵ (S, n, d_w), which is the ridge estimate
        of the d_w parameters, and the matrix Σ (S, n, d_w, d_w), which is λI plus the sum of g gᵀ over the gradients g
        of the pulls that the client knows, with the regularisation weight λ.

        Args:
            at: Steps of Phase II, counted from 0, (n,) int64.

        Raises:
            ValueError: The start has several ŵ₀ in a run.
            RuntimeError: Σ is not positive definite in float64, because λ is too small for the gradients.
            IndexError: Phase II has no such step.
        """
        gradients, centre = self.gradients.unsqueeze(1), self.centre.unsqueeze(1)
        return ball(gradients, centre, self.settings.lam, 1.0, self.known(at))

    def distance(self, at: Tensor) -> Tensor:
        """Return the distance ‖ŵ − w*‖_Σ of the true parameter w* from the centre ŵ of a client's ball, (S, n), in S
        runs.

        The client is the one that pulls at the step, and the ball is that after its pull. ‖v‖_Σ is √(vᵀΣv), where Σ is
        λI plus the sum of g gᵀ over the gradients g of the pulls that the client knows, with the regularisation weight
        λ.

        Args:
            at: Steps of Phase II, counted from 0, (n,) int64.

        Raises:
            ValueError: The start has several ŵ₀ in a run.
            RuntimeError: Σ is not positive definite in float64, because λ is too small for the gradients.
            IndexError: Phase II has no such step.
        """
        return self.ball(at).distance(self.truth.unsqueeze(1)).sqrt()

    def radius(self, delta: float, exact: bool = False) -> Tensor:
        """Return the radius √β_{t,i} of the repaired confidence lemma after each step t for the client i that pulls at
        it, (S, NT).

        It is σ√(ln(det Σ/det λI) + 2 ln(π²N(p + 1)²/(3δ))) + √λ ρ₀ + ½C_h ρ₀²√n, for S runs, N clients and T rounds. σ
        is the standard deviation of the noise, λ the regularisation weight, Σ the matrix of the n pulls that the client
        knows after its pull, and p the number of synchronisations before the step. ρ₀ = ‖ŵ₀ − w*‖ is the distance of
        the parameter of Phase I from the true one, and C_h the bound ``curvature``.

        Args:
            delta: The failure probability δ.
            exact: Whether to leave out the last two terms, as if ρ₀ were 0. Σ remains the matrix of the gradients at
                ŵ₀.

        Raises:
            ValueError: δ does not lie strictly between 0 and 1, ``curvature`` is negative and ``exact`` is False, the
                start has several ŵ₀ in a run, or it was made on a problem with other arms.
            RuntimeError: Σ is not positive definite in float64, because λ is too small for the gradients.
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
    start: Start, settings: Settings, index: Index | None = None, slope: float | None = None
) -> PhaseTwoRuns:
    """Play Phase II of Fed-GO-UCB from ``start`` and return its runs for the analysis.

    Args:
        start: Phase I, a `fedgo.phase_one.shared_start`.
        settings: The regularisation λ, the squared radius β, the threshold γ, and the form of the messages.
        index: A function that returns the index of each of K arms for each of N clients, (S, N, K), from the posteriors
            and the data of the clients; each client pulls the arm with its largest index. If it is None, the
            first-order index is used, which is the posterior mean plus √β posterior standard deviations of the arm's
            reward.
        slope: The bound C_g on the gradients; if it is None, the largest norm ‖∇f_x(ŵ₀)‖ of any arm x in any run at the
            parameter ŵ₀ of Phase I. A given bound is not checked.

    Raises:
        ValueError: The start does not fit the settings, the gradients are so large, or λ so small, that
            rounding would decide which arm is pulled, or an index is NaN.
        TypeError: ``start`` or ``settings`` is of another kind.
    """
    learner = replace(fed_go_learner(start, settings), optimism=index)
    steps = start.clients * start.rounds
    trace = simulate("Fed-GO-UCB", start.problem, learner, start.exploration, start.clients, steps)
    if slope is None:
        slope = start.network.gradients(start.w0, start.problem.arms.unsqueeze(1)).norm(dim=-1).max().item()
    return PhaseTwoRuns(start, settings, trace, slope)


def linear_play(
    problem: Problem, clients: int, rounds: int, settings: Settings, index: Index | None = None
) -> PhaseTwoRuns:
    """Play Phase II of Fed-GO-UCB, without Phase I, on a linear model, and return its runs for the analysis.

    The gradients of the model are the features of the arms. It is `fedgo.theory.worlds.SingleUnit`, f_x(w) = tanh(wᵀx),
    linearised at ŵ₀ = 0, where f_x = 0 and ∇f_x = x for every arm x. The bound ``slope`` on the gradients is the
    largest norm of an arm.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        rounds: The number T of rounds; NT steps are played.
        settings: The regularisation λ, the squared radius β and the threshold γ; the messages must be in a form without
            numbers of arms, such as the default "dense" (`fedgo.messages`).
        index: A function that returns the index of each of K arms for each of N clients, (S, N, K), from the posteriors
            and the data of the clients; each client pulls the arm with its largest index. If it is None, the
            first-order index is used, which is the posterior mean plus √β posterior standard deviations of the arm's
            reward.

    Raises:
        ValueError: N or T is below 1, the form of the messages is "counts" or "cheapest", the features are so large, or
            λ so small, that rounding would decide which arm is pulled, or an index is NaN.
        TypeError: N or T is not a whole number, or ``settings`` is not a `fedgo.phase_two.Settings`.
    """
    runs, _, d_x = problem.arms.shape
    origin, loss = (torch.zeros(runs, *shape, dtype=torch.float64) for shape in ((1, d_x), (1,)))
    start = Start(problem, SingleUnit(d_x), clients, rounds, Exploration.nothing(runs), origin, loss)
    return play_phase_two(start, settings, index)


def blind(source: torch.Generator) -> Index:
    """Return an index that chooses every arm with equal probability, whatever has been observed.

    The index is a function of the posterior and the data of the clients, and returns a uniform random number for each
    arm; a client pulls the arm with the largest one. At every call it draws new numbers from the generator ``source``.
    """

    def index(posterior: Estimates, data: Tally) -> Tensor:
        """Return a uniform random number in [0, 1) for each arm, in the shape of ``data.sums``; ``posterior`` is not
        used.
        """
        return torch.rand(data.sums.shape, generator=source, dtype=torch.float64)

    return index


def single_unit_line_three(start: Start, beta: float) -> Index:
    """Return line 3 of Algorithm 1 as an index for `fedgo.theory.worlds.SingleUnit`, where it has a closed form.

    The network's value is f_x(w) = tanh(wᵀx). Because tanh increases, the arm x with the largest max f_x(w) over the
    confidence ball is the arm with the largest max wᵀx = ŵ₀ᵀx + (g_xᵀ(ŵ − ŵ₀) + √β‖g_x‖_{Σ⁻¹})/(1 − f_x(ŵ₀)²). g_x is
    the gradient of f_x at ŵ₀; ŵ is the ridge estimate and Σ the matrix of the learner's data, which are the centre and
    the shape of the ball.

    Args:
        start: Phase I with its parameter ŵ₀, whose network is a `fedgo.theory.worlds.SingleUnit`.
        beta: The squared radius β ≥ 0 of the ball.

    Returns:
        A function of the posterior and the data of M learners in each of S runs, which returns max wᵀx, (S, M, K). It
        raises a ``ValueError`` if β is negative, and its value is NaN or infinite where f_x(ŵ₀) is rounded to 1 or −1.
    """
    value = start.network.values(start.w0, start.problem.arms.unsqueeze(1))

    def index(posterior: Estimates, data: Tally) -> Tensor:
        """Return max wᵀx over the confidence ball for each of K arms x and each of M learners in S runs, (S, M, K).

        ``posterior`` has the means and variances of the arms' rewards in the linearised model; ``data`` is not used.
        """
        return value.atanh() + (first_order(posterior, beta) - value) / (1 - value.square())

    return index


def random_play(
    runs: int, seed: int, source: torch.Generator, index: Index | None = None, share: float = 1.0
) -> PhaseTwoRuns:
    """Play Phase II on a linear model whose sizes, arms, mean rewards, λ and γ are drawn at random, and return its
    runs.

    The function draws the numbers N of clients (2 to 12), T of rounds (2 to 40), d_x of features (2 to 6) and K of arms
    (2 to 15), which all runs share, and a threshold γ from 0.01 to 100, whose logarithm is uniform. The features and
    the mean rewards of the arms are standard normal. The regularisation weight λ is ``share`` times 0.4 to 3.4 times
    C_g², with the largest norm C_g of an arm of any run. The squared radius is 0.1, and the noise has the standard
    deviation 0.1. With ``share`` = 1 the condition of the elliptical potential lemma holds.

    Args:
        runs: The number S of runs, at least 1.
        seed: The seed of the rewards' noise.
        source: The generator that draws everything else.
        index: A function that returns the index of each of K arms for each of N clients, (S, N, K), from the posteriors
            and the data of the clients. If it is None, the first-order index is used, which is the posterior mean plus
            √0.1 posterior standard deviations of the arm's reward.
        share: The factor of λ, above 0.

    Raises:
        ValueError: ``seed`` is negative, ``share`` is not positive and finite or is so small that rounding would decide
            which arm is pulled, or an index is NaN.
        TypeError: ``runs`` or ``seed`` is not a whole number, or ``share`` is not a number.
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
