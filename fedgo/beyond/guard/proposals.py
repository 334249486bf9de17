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
    """A proposal that was written before: step t of Phase II proposes ``arm`` (S, NT)[:, t]; N = ``learners``.

    Drawn uniformly, or the worst arm again and again, it is what a guard has to put up with.
    """

    learners: int
    arm: Tensor
    arms: int

    def begin(self) -> Tensor:
        """No pulls of anybody yet, (S, N) int64."""
        return torch.zeros(len(self.arm), self.learners, dtype=torch.int64)

    def index(self, state: Tensor) -> Tensor:
        """1 for the arm whose turn it is, (S, N, K)."""
        step = state * self.learners + torch.arange(self.learners)
        turn = self.arm.gather(1, step.clamp(max=self.arm.shape[1] - 1))
        return torch.nn.functional.one_hot(turn, self.arms).double()

    def fires(self, state: Tensor, arm: Tensor) -> Tensor:
        """Never."""
        return torch.zeros_like(arm, dtype=torch.bool)

    def learn(self, state: Tensor, arm: Tensor, reward: Tensor, turn: Tensor) -> Tensor:
        """The next line."""
        return state + turn.long()

    def synchronise(self, state: Tensor, star: Star, when: When) -> Tensor:
        """Nothing to say."""
        return state


@dataclass(frozen=True)
class Malicious(Optimist):
    """Of all arms that a guard with κ = ``kappa`` would accept it proposes the worst, by ``means`` f (S, K).

    It knows what the guard knows, being given the guard's own intervals and first data, and it knows f.
    """

    kappa: float = field(kw_only=True)
    means: Tensor = field(kw_only=True)

    def index(self, state: Counted) -> Tensor:
        """−f where q ≤ κ(U − L), which holds at least for the largest U; elsewhere −∞."""
        lower, upper, _ = state.interval
        accepted = state.interval.price <= self.kappa * (upper - lower)
        return torch.where(accepted, -self.means.unsqueeze(1), -torch.inf)


def malicious(problem: Problem, exploration: Exploration, clients: int, guarantee: Guarantee) -> Malicious:
    """The malicious proposal for the guard of N = ``clients`` that is given ``guarantee`` after ``exploration``."""
    first = phase_one_tally(exploration, clients, problem.means.shape[1]).summed()
    return Malicious(clients, guarantee.intervals(clients), first, kappa=guarantee.kappa, means=problem.means)
