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
    """A proposal whose arms were fixed beforehand, for instance uniform arms or always the worst arm.

    Args:
        learners: The number N of clients.
        arm: The arm to propose at each step of Phase II, (S, NT) int64.
        arms: The number K of arms.
    """

    learners: int
    arm: Tensor
    arms: int

    def begin(self) -> Tensor:
        """Return the state, the number of pulls of each client so far, which is 0, (S, N) int64."""
        return torch.zeros(len(self.arm), self.learners, dtype=torch.int64)

    def index(self, state: Tensor) -> Tensor:
        """Return 1 for the arm that each client is to propose and 0 for the others, (S, N, K)."""
        step = state * self.learners + torch.arange(self.learners)
        turn = self.arm.gather(1, step.clamp(max=self.arm.shape[1] - 1))
        return torch.nn.functional.one_hot(turn, self.arms).double()

    def fires(self, state: Tensor, arm: Tensor) -> Tensor:
        """Return False for each client: a script never synchronises."""
        return torch.zeros_like(arm, dtype=torch.bool)

    def learn(self, state: Tensor, arm: Tensor, reward: Tensor, turn: Tensor) -> Tensor:
        """Return the number of pulls of each client after those of the clients in ``turn``, (S, N) int64."""
        return state + turn.long()

    def synchronise(self, state: Tensor, star: Star, when: When) -> Tensor:
        """Return the state unchanged; nothing is sent."""
        return state


@dataclass(frozen=True)
class Malicious(Optimist):
    """A proposal that knows f and proposes the worst arm that a guard accepts.

    It has the intervals and first data of the guard, so that it knows what the guard knows.

    Args:
        kappa: κ of the guard.
        means: f, (S, K).
    """

    kappa: float = field(kw_only=True)
    means: Tensor = field(kw_only=True)

    def index(self, state: Counted) -> Tensor:
        """Return −f for the arms that the guard accepts, q ≤ κ(U − L), and −∞ for the others, (S, N, K).

        The arm with the largest U is always among the accepted ones.
        """
        lower, upper, _ = state.interval
        accepted = state.interval.price <= self.kappa * (upper - lower)
        return torch.where(accepted, -self.means.unsqueeze(1), -torch.inf)


def malicious(problem: Problem, exploration: Exploration, clients: int, guarantee: Guarantee) -> Malicious:
    """Return the `Malicious` proposal for a guard.

    Args:
        problem: S runs of a bandit problem, whose f the proposal knows.
        exploration: Phase I, whose data guard and proposal know.
        clients: The number N of clients.
        guarantee: F, σ, δ, κ and γ of the guard.
    """
    first = phase_one_tally(exploration, clients, problem.means.shape[1]).summed()
    return Malicious(clients, guarantee.intervals(clients), first, kappa=guarantee.kappa, means=problem.means)
