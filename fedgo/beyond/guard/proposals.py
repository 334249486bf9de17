"""Proposals for tests of a guard: arms that were fixed beforehand, and an adversary that knows f and the guard."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedgo.beyond.guard.guarantee import Guarantee, phase_one_tally
from fedgo.beyond.guard.optimist import Counted, Optimist
from fedgo.phase_one import Exploration
from fedgo.problem import Problem
from fedgo.star import Star, When


@dataclass(frozen=True)
class Scripted:
    """A `Learner` that proposes arms fixed beforehand, for instance uniform arms or always the worst arm.

    Args:
        learners: The number N of clients.
        arm: The arm to propose at each step of Phase II, (S, NT) int64.
        arms: The number K of arms.
    """

    learners: int
    arm: Tensor
    arms: int

    def begin(self) -> Tensor:
        """Return the state, which is the number of pulls of each client so far, all 0, (S, N) int64."""
        return torch.zeros(len(self.arm), self.learners, dtype=torch.int64)

    def index(self, state: Tensor) -> Tensor:
        """Return 1 for the arm that each client proposes for its next pull and 0 for the other arms, (S, N, K).

        ``state`` (S, N) has the number of pulls of each client so far.
        """
        step = state * self.learners + torch.arange(self.learners)
        turn = self.arm.gather(1, step.clamp(max=self.arm.shape[1] - 1))
        return torch.nn.functional.one_hot(turn, self.arms).double()

    def fires(self, state: Tensor, arm: Tensor) -> Tensor:
        """Return False for each client, (S, N) bool, because a script never asks for a synchronisation."""
        return torch.zeros_like(arm, dtype=torch.bool)

    def learn(self, state: Tensor, arm: Tensor, reward: Tensor, turn: Tensor) -> Tensor:
        """Return the number of pulls of each client after the pulls of the clients with ``turn`` 1, (S, N) int64."""
        return state + turn.long()

    def synchronise(self, state: Tensor, star: Star, when: When) -> Tensor:
        """Return the ``state`` unchanged and send nothing."""
        return state


@dataclass(frozen=True)
class Malicious(Optimist):
    """A `Learner` that knows f and proposes the arm with the smallest f of those that a guard accepts.

    It has the intervals and first data of the guard, so that it knows which arms the guard accepts.

    Args:
        learners: The number N of clients.
        intervals: The rule by which the guard computes its intervals.
        first: The counts and sums that all clients know when Phase II begins, (S, K) each.
        gamma: The threshold γ of an event. A guard does not ask for it.
        kappa: The price κ ≥ 1 of the guard.
        means: The mean reward f of each arm, (S, K).

    Raises:
        ValueError: N is below 1, or γ is negative or NaN.
        TypeError: N is not a whole number, or γ is not a number.
    """

    kappa: float = field(kw_only=True)
    means: Tensor = field(kw_only=True)

    def index(self, state: Counted) -> Tensor:
        """Return −f for the arms that the guard accepts and −∞ for the others, for each client, (S, N, K).

        The guard accepts an arm if its certificate q is at most κ(U − L), with [L, U] its interval. It always accepts
        the arm with the largest U.
        """
        lower, upper, _ = state.interval
        accepted = state.interval.price <= self.kappa * (upper - lower)
        return torch.where(accepted, -self.means.unsqueeze(1), -torch.inf)


def malicious(problem: Problem, exploration: Exploration, clients: int, guarantee: Guarantee) -> Malicious:
    """Return the `Malicious` proposal for a guard.

    Args:
        problem: S runs of a bandit problem, whose f the proposal knows.
        exploration: Phase I, whose data the guard and the proposal know.
        clients: The number N of clients.
        guarantee: The bounds F and σ, the failure probability δ and the price κ of the guard.
    """
    first = phase_one_tally(exploration, clients, problem.means.shape[1]).summed()
    return Malicious(clients, guarantee.intervals(clients), first, kappa=guarantee.kappa, means=problem.means)
