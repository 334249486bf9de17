"""Executed runs of Phase II, of Fed-GO-UCB or with other arms, and the quantities that the bounds on them need.

The statements of the analysis about matrices and synchronisations hold for any choice of arms. Therefore some runs draw
their arms at random, whatever has been observed. There are S runs of N clients, T rounds and K arms; arrays over the
steps of Phase II are (S, NT). ŵ₀ (d_w) is the parameter of Phase I, f_x the network's value at the arm x and g_x =
∇f_x(ŵ₀). Σ is λI plus the sum of g gᵀ over the pulls that a client knows.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fedgo.algorithms.go_ucb import fed_go_learner, run_from
from fedgo.confidence import Ball, Estimates, Tally, ball, first_order
from fedgo.phase_one import Exploration, Start
from fedgo.phase_two import Index, Settings
from fedgo.problem import Problem
from fedgo.theory.ball import information_bound, radius
from fedgo.theory.regret import LARGEST_INCREMENT
from fedgo.theory.replay import Replay, replay
from fedgo.theory.worlds import SingleUnit
from fedgo.trace import Trace


@dataclass(frozen=True)
class Replayed:
    """Runs of Phase II together with what they were made from, to be analysed.

    Args:
        start: The result of Phase I, with one ŵ₀ for all clients of a run.
        settings: The parameters of Phase II.
        trace: The trace of both phases; the pulls of Phase II are its last NT steps.
    """

    start: Start
    settings: Settings
    trace: Trace

    @property
    def problem(self) -> Problem:
        """The S runs of the problem."""
        return self.start.problem

    @property
    def arm(self) -> Tensor:
        """The number of the arm that is pulled at each step, (S, NT) int64."""
        return self.trace.arm[:, self.trace.phase_one :]

    @property
    def regret(self) -> Tensor:
        """The instantaneous regret of each step, (S, NT)."""
        return self.trace.regret[:, self.trace.phase_one :]

    @property
    def sync(self) -> Tensor:
        """Whether each step ends with a synchronisation, (S, NT) bool."""
        return self.trace.sync[:, self.trace.phase_one :]

    @cached_property
    def gradients(self) -> Tensor:
        """The gradients g_x of all arms, (S, K, d_w)."""
        return self.start.network.gradients(self.start.w0[:, 0], self.problem.arms)

    @cached_property
    def offsets(self) -> Tensor:
        """The values f_x(ŵ₀) of all arms, (S, K)."""
        return self.start.network.values(self.start.w0[:, 0], self.problem.arms)

    @property
    def residual(self) -> Tensor:
        """The residuals y_t − f_x(ŵ₀) of the rewards, (S, NT)."""
        return self.trace.reward[:, self.trace.phase_one :] - self.offsets.gather(1, self.arm)

    @property
    def dimension(self) -> int:
        """The largest dimension min(K, d_w) of the span of the gradients."""
        return min(self.problem.arms.shape[1], self.start.network.size)

    @cached_property
    def replay(self) -> Replay:
        """The quantities of the analysis at each step."""
        return replay(self.start, self.trace, self.settings.lam)


@dataclass(frozen=True)
class PhaseTwoRuns(Replayed):
    """Runs of Phase II with a bound on the gradients, for which the bounds of the analysis can be computed.

    Args:
        start: The result of Phase I, with one ŵ₀ for all clients of a run.
        settings: The parameters of Phase II.
        trace: The trace of both phases.
        slope: A bound C_g on ‖g_x‖ of every arm that is pulled, which is not checked.
    """

    slope: float

    @property
    def information_bound(self) -> float:
        """The bound R = d ln(1 + NT·C_g²/(dλ)) on the log-ratio after all pulls, with d = min(K, d_w)."""
        return information_bound(self.dimension, self.arm.shape[1], self.slope, self.settings.lam)

    @property
    def regularised(self) -> bool:
        """Whether λ is at least C_g²/2.5129, as the elliptical potential lemma needs."""
        return self.settings.lam >= self.slope**2 / LARGEST_INCREMENT


@dataclass(frozen=True)
class Hindsight(Replayed):
    """Runs of Fed-GO-UCB with the true parameter w*, to check the confidence lemma.

    ŵ − w* = Σ⁻¹(Σ_s g_s η_s + Σ_s g_s a_s − λ(w* − ŵ₀)), where the sums are over the pulls s that a client knows, η_s
    is the noise of the reward and a_s the Taylor remainder.

    Args:
        start: The result of Phase I, with one ŵ₀ for all clients of a run.
        settings: The parameters of Phase II.
        trace: The trace of both phases.
        truth: The true parameter w*, (S, d_w), at which f_x(w*) is the mean reward of each arm.
        curvature: A bound C_h ≥ 0 on the second derivatives of all f_x on the line from ŵ₀ to w*, (S,).
    """

    truth: Tensor
    curvature: Tensor

    @property
    def centre(self) -> Tensor:
        """The parameter ŵ₀ of each run, (S, d_w)."""
        return self.start.w0[:, 0]

    @property
    def rho(self) -> Tensor:
        """The distance ρ₀ = ‖ŵ₀ − w*‖ in each run, (S,)."""
        distance: Tensor = (self.centre - self.truth).norm(dim=-1)
        return distance

    @cached_property
    def remainder(self) -> Tensor:
        """The Taylor remainders f(x) − f_x(ŵ₀) − g_xᵀ(w* − ŵ₀) of all arms, (S, K)."""
        away = (self.truth - self.centre).unsqueeze(-1)
        return self.problem.means - self.offsets - (self.gradients @ away).squeeze(-1)

    @property
    def sampled(self) -> Tensor:
        """Ten or eleven steps of Phase II at equal distances, counted from 0; all of fewer than 20, (n,) int64."""
        steps = self.arm.shape[1]
        return torch.arange(0, steps, max(1, steps // 10))

    def known(self, at: Tensor) -> Tally:
        """Return what the client of each of the steps ``at`` (n,) knows after its pull, (S, n, K).

        A synchronisation that its pull triggers is not included yet.
        """
        return self.replay.known.of((slice(None), at))

    def ball(self, at: Tensor) -> Ball:
        """Return the client's ball with squared radius 1 after its pull at each of the steps ``at`` (n,), (S, n)."""
        gradients, centre = self.gradients.unsqueeze(1), self.centre.unsqueeze(1)
        return ball(gradients, centre, self.settings.lam, 1.0, self.known(at))

    def distance(self, at: Tensor) -> Tensor:
        """Return the distance ‖ŵ − w*‖_Σ of w* from the centre of each of these balls, (S, n)."""
        return self.ball(at).distance(self.truth.unsqueeze(1)).sqrt()

    def radius(self, delta: float, exact: bool = False) -> Tensor:
        """Return the radius √β_{t,i} of the repaired confidence lemma after each step, (S, NT).

        Args:
            delta: The failure probability δ.
            exact: Whether to leave out the last two terms, as if ρ₀ were 0; Σ stays that of the gradients at ŵ₀.
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
        settings: The parameters of Phase II.
        index: Returns the index of each arm, (S, N, K), by which the clients choose; None for the first-order index.
        slope: The bound C_g on the gradients; the largest norm of any arm's gradient in any run if it is None.
    """
    trace = run_from(start, "Fed-GO-UCB", replace(fed_go_learner(start, settings), optimism=index))
    if slope is None:
        slope = start.network.gradients(start.w0, start.problem.arms.unsqueeze(1)).norm(dim=-1).max().item()
    return PhaseTwoRuns(start, settings, trace, slope)


def linear_play(
    problem: Problem, clients: int, rounds: int, settings: Settings, index: Index | None = None
) -> PhaseTwoRuns:
    """Play Phase II of Fed-GO-UCB, without Phase I, on a linear model, and return its runs for the analysis.

    The gradients are the features of the arms: the model is `fedgo.theory.worlds.SingleUnit`, linearised at ŵ₀ = 0.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        rounds: The number T of rounds.
        settings: The parameters of Phase II, with messages that do not name arms (`fedgo.messages`).
        index: As in `play_phase_two`.
    """
    runs, _, d_x = problem.arms.shape
    origin, loss = (torch.zeros(runs, *shape, dtype=torch.float64) for shape in ((1, d_x), (1,)))
    start = Start(problem, SingleUnit(d_x), clients, rounds, Exploration.nothing(runs), origin, loss)
    return play_phase_two(start, settings, index)


def blind(source: torch.Generator) -> Index:
    """Return an index that draws new uniform numbers from ``source`` at every call, whatever has been observed."""

    def index(posterior: Estimates, data: Tally) -> Tensor:
        return torch.rand(data.sums.shape, generator=source, dtype=torch.float64)

    return index


def single_unit_line_three(start: Start, beta: float) -> Index:
    """Return line 3 of Algorithm 1 as an index for `fedgo.theory.worlds.SingleUnit`, where it has a closed form.

    tanh increases. Therefore the arm with the largest max f_x(w) over the ball is the arm with the largest max wᵀx =
    ŵ₀ᵀx + (g_xᵀ(ŵ − ŵ₀) + √β‖g_x‖_{Σ⁻¹})/(1 − f_x(ŵ₀)²), which is not finite where f_x(ŵ₀) rounds to ±1.
    """
    value = start.network.values(start.w0, start.problem.arms.unsqueeze(1))

    def index(posterior: Estimates, data: Tally) -> Tensor:
        return value.atanh() + (first_order(posterior, beta) - value) / (1 - value.square())

    return index


def random_play(
    runs: int, seed: int, source: torch.Generator, index: Index | None = None, share: float = 1.0
) -> PhaseTwoRuns:
    """Play Phase II on a linear model whose sizes, arms, mean rewards, λ and γ are drawn at random.

    N is from 2 to 12, T from 2 to 40, d_x from 2 to 6, K from 2 to 15 and γ from 0.01 to 100. λ is ``share`` times 0.4
    to 3.4 times C_g², so that with ``share`` = 1 the condition of the elliptical potential lemma holds. β and σ are
    0.1.

    Args:
        runs: The number S of runs, at least 1.
        seed: The seed of the rewards' noise.
        source: The generator that draws everything else.
        index: As in `play_phase_two`.
        share: The factor of λ, above 0.
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
