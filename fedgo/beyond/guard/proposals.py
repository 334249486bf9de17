"""Proposals that a guard has to put up with: one that was written before, and one that knows f and the guard itself."""

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
    """A proposal that was written beforehand, for tests of a guard: uniform arms, or the worst arm again and again.

    Step t of Phase II proposes ``arm``[:, t], with ``arm`` (S, NT). ``learners`` is N and ``arms`` is K.
    """

    learners: int
    arm: Tensor
    arms: int

    def begin(self) -> Tensor:
        """Return the number of pulls of each client so far: none, (S, N) int64."""
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
        """Return the number of pulls after this one."""
        return state + turn.long()

    def synchronise(self, state: Tensor, star: Star, when: When) -> Tensor:
        """Return the state as it is; nothing is sent."""
        return state


@dataclass(frozen=True)
class Malicious(Optimist):
    """A proposal that knows f and proposes the worst arm that a guard with κ = ``kappa`` accepts.

    It has the guard's own intervals and first data, so that it knows what the guard knows. ``means`` (S, K) is f.
    """

    kappa: float = field(kw_only=True)
    means: Tensor = field(kw_only=True)

    def index(self, state: Counted) -> Tensor:
        """Return −f where q ≤ κ(U − L), which holds at least for the arm with the largest U, and −∞ elsewhere."""
        lower, upper, _ = state.interval
        accepted = state.interval.price <= self.kappa * (upper - lower)
        return torch.where(accepted, -self.means.unsqueeze(1), -torch.inf)


def malicious(problem: Problem, exploration: Exploration, clients: int, guarantee: Guarantee) -> Malicious:
    """Return the malicious proposal for the guard of N = ``clients`` clients with ``guarantee``, after
    ``exploration``.
    """
    first = phase_one_tally(exploration, clients, problem.means.shape[1]).summed()
    return Malicious(clients, guarantee.intervals(clients), first, kappa=guarantee.kappa, means=problem.means)
