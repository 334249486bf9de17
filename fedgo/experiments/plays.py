"""Executed runs of Phase II with the quantities that the bounds on them need, of Fed-GO-UCB or with other arms.

The statements of the analysis about matrices and synchronisations hold for any choice of arms. Therefore some runs draw
their arms blindly.
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
    """The runs of a ``trace`` that Phase II made on ``problem`` from ``start`` with ``settings``, to be analysed."""

    problem: Problem
    start: Start
    settings: Settings
    trace: Trace

    @property
    def arm(self) -> Tensor:
        """The arms of Phase II, (S, NT) int64."""
        return self.trace.arm[:, self.trace.phase_one :]

    @property
    def regret(self) -> Tensor:
        """The instantaneous regret r_t of Phase II, (S, NT)."""
        return self.trace.regret[:, self.trace.phase_one :]

    @property
    def sync(self) -> Tensor:
        """Whether each step of Phase II ends with a synchronisation, (S, NT) bool."""
        return self.trace.sync[:, self.trace.phase_one :]

    @cached_property
    def gradients(self) -> Tensor:
        """The gradients ∇f_x(ŵ₀) of all arms, (S, K, d_w)."""
        return self.start.network.gradients(self.start.w0[:, 0], self.problem.arms)

    @cached_property
    def offsets(self) -> Tensor:
        """The values f_x(ŵ₀) of all arms, (S, K)."""
        return self.start.network.values(self.start.w0[:, 0], self.problem.arms)

    @property
    def residual(self) -> Tensor:
        """The residuals y_t − f_x(ŵ₀) of Phase II, (S, NT)."""
        return self.trace.reward[:, self.trace.phase_one :] - self.offsets.gather(1, self.arm)

    @property
    def dimension(self) -> int:
        """The largest dimension min(K, d_w) that the gradients can span."""
        return min(self.problem.arms.shape[1], self.start.network.size)

    @cached_property
    def replay(self) -> Replay:
        """The widths, log-determinants and epochs of each step of Phase II."""
        return replay(self.start, self.problem.arms, self.trace, self.settings.lam)


@dataclass(frozen=True)
class PhaseTwoRuns(Replayed):
    """Runs of Phase II with ``slope``, a bound C_g on the norms of the gradients of all arms pulled."""

    slope: float

    @property
    def information_bound(self) -> float:
        """The bound R on Λ, with min(K, d_w) in place of d_w."""
        return information_bound(self.dimension, self.arm.shape[1], self.slope, self.settings.lam)

    @property
    def regularised(self) -> bool:
        """Whether λ ≥ C_g²/2.5129, which the elliptical potential lemma needs."""
        return self.settings.lam >= self.slope**2 / LARGEST_INCREMENT


@dataclass(frozen=True)
class Hindsight(Replayed):
    """Runs of Fed-GO-UCB with w*, to check the confidence lemma.

    ``truth`` (S, d_w) is w*, with f_x(w*) the mean reward of each arm. ``curvature`` (S,) is C_h on the line from ŵ₀ to
    w*, the largest of any arm. The distance of the centre from w* has three parts,
    ŵ − w* = Σ⁻¹(Σ_s g_s η_s + Σ_s g_s a_s − λ(w* − ŵ₀)), with the noise η_s and the Taylor remainders a_s.
    """

    truth: Tensor
    curvature: Tensor

    @property
    def centre(self) -> Tensor:
        """ŵ₀ of each run, (S, d_w)."""
        return self.start.w0[:, 0]

    @property
    def rho(self) -> Tensor:
        """The distance ρ₀ = ‖ŵ₀ − w*‖ of each run, (S,)."""
        distance: Tensor = (self.centre - self.truth).norm(dim=-1)
        return distance

    @cached_property
    def remainder(self) -> Tensor:
        """The Taylor remainders a_x = f(x) − f_x(ŵ₀) − g_xᵀ(w* − ŵ₀) of all arms, (S, K)."""
        away = (self.truth - self.centre).unsqueeze(-1)
        return self.problem.means - self.offsets - (self.gradients @ away).squeeze(-1)

    @property
    def sampled(self) -> Tensor:
        """About ten steps of Phase II at equal distances, (n,) int64."""
        steps = self.arm.shape[1]
        return torch.arange(0, steps, max(1, steps // 10))

    def known(self, at: Tensor) -> Tally:
        """Return the tally of D_{t,i} after the pulls of the steps ``at`` (n,), (S, n, K)."""
        return self.replay.known.of((slice(None), at))

    def ball(self, at: Tensor) -> Ball:
        """Return the client's ball after the steps ``at`` (n,), with ŵ (S, n, d_w), Σ (S, n, d_w, d_w) and β = 1."""
        gradients, centre = self.gradients.unsqueeze(1), self.centre.unsqueeze(1)
        return ball(gradients, centre, self.settings.lam, 1.0, self.known(at))

    def distance(self, at: Tensor) -> Tensor:
        """Return ‖ŵ − w*‖_Σ after the steps ``at`` (n,), (S, n)."""
        return self.ball(at).distance(self.truth.unsqueeze(1)).sqrt()

    def radius(self, delta: float, exact: bool = False) -> Tensor:
        """Return the radius √β_{t,i} of the repaired confidence lemma after each step, (S, NT).

        With ``exact`` it is the radius for ŵ₀ = w*, which contains the noise alone. ``delta`` is δ.
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
    """Play Phase II of Fed-GO-UCB from ``start`` and return its runs.

    Args:
        problem: S runs of a bandit problem.
        start: Phase I on the same problem.
        settings: λ, β and γ.
        index: The index that chooses the arms; the first-order one if it is None.
        slope: C_g; the largest ‖∇f_x(ŵ₀)‖ of any arm if it is None.
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
    """Play Phase II alone, NT steps on linear features with ∇f_x = x.

    The model is a `fedgo.theory.worlds.SingleUnit` at ŵ₀ = 0, where f_x = 0. ``clients`` is N and ``rounds`` is T; the
    other arguments are those of `play_phase_two`.
    """
    runs, _, d_x = problem.arms.shape
    origin, loss = (torch.zeros(runs, *shape, dtype=torch.float64) for shape in ((1, d_x), (1,)))
    start = Start(problem, SingleUnit(d_x), clients, rounds, Exploration.nothing(runs), origin, loss)
    return play_phase_two(problem, start, settings, index)


def blind(source: torch.Generator) -> Index:
    """Return an index that draws all arms with equal probability, whatever is known."""

    def index(posterior: Estimates, data: Tally) -> Tensor:
        """Return a random number for each arm."""
        return torch.rand(data.sums.shape, generator=source, dtype=torch.float64)

    return index


def single_unit_line_three(start: Start, arms: Tensor, beta: float) -> Index:
    """Return line 3 of Algorithm 1 as an index for `fedgo.theory.worlds.SingleUnit` on ``arms`` (S, K, d_x).

    tanh increases, so that the arm with the largest max f_x(w) over the ball is the arm with the largest max wᵀx =
    ŵ₀ᵀx + (g_xᵀ(ŵ − ŵ₀) + √β‖g_x‖_{Σ⁻¹})/(1 − f_x(ŵ₀)²).
    """
    value = start.network.values(start.w0, arms.unsqueeze(1))

    def index(posterior: Estimates, data: Tally) -> Tensor:
        """Return max wᵀx over the ball for each arm."""
        return value.atanh() + (first_order(posterior, beta) - value) / (1 - value.square())

    return index


def random_play(
    runs: int, seed: int, source: torch.Generator, index: Index | None = None, share: float = 1.0
) -> PhaseTwoRuns:
    """Play Phase II on linear features with N, T, K, d_x, arms, mean rewards, λ and γ drawn at random.

    λ is ``share`` times 0.4 to 3.4 times C_g², and γ is from 0.01 to 100. With ``share`` = 1 the elliptical potential
    lemma holds.

    Args:
        runs: The number of runs.
        seed: The seed of the noise.
        source: The generator that draws everything else.
        index: The index that chooses the arms; the first-order one if it is None.
        share: The factor of λ.
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
