"""UCB1 on the event and with the messages of a guard, for many arms: argmax of the mean + √(2β ln t/n).

From counts and sums alone, O(NK) for a round instead of the O(NK²) of K arms' covariances.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedgo._checks import number, on_cpu
from fedgo.beyond.guard.intervals import Interval
from fedgo.beyond.guard.optimist import Optimist
from fedgo.confidence import Tally
from fedgo.phase_one import Exploration
from fedgo.phase_two import require_run
from fedgo.problem import Problem
from fedgo.simulation import simulate
from fedgo.trace import Trace


@dataclass(frozen=True)
class Ucb1:
    """The `Intervals` of UCB1 (Auer, Cesa-Bianchi and Fischer, Machine Learning 2002), with β = ``beta``.

    An arm that was never pulled has no end above and none below.
    """

    beta: float

    def __post_init__(self) -> None:
        number("beta", self.beta, "give a finite β, at least 0", least=0)

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """As `Intervals` says; of all that only what is ``known`` matters."""
        n = known.counts
        pulls, t = n.clamp(min=1), n.sum(-1, keepdim=True).clamp(min=1)
        mean, width = known.sums / pulls, (2 * self.beta * t.log() / pulls).sqrt()
        lower, upper = (
            torch.where(n > 0, end, limit)
            for end, limit in ((mean - width, -torch.inf), (mean + width, torch.inf))
        )
        return Interval(lower, upper, (1 / (1 + n)).log1p())


@on_cpu
def optimistic_ucb1(problem: Problem, clients: int, steps: int, beta: float, gamma: float = 1.0) -> Trace:
    """``steps`` steps of UCB1 with β = ``beta`` that N = ``clients`` play between events with threshold γ = ``gamma``.

    Client i synchronises when n_i·Σ ln(1 + 1/(1 + n)) > γ over its own n_i pulls; counts and sums of the arms touched
    go up, their news come down.
    """
    require_run(problem, clients, steps)
    learner = Uncertified(clients, Ucb1(beta), Tally.blank(*problem.means.shape), gamma)
    return simulate("UCB1, counted", problem, learner, Exploration.nothing(len(problem.runs)), clients, steps)


class Uncertified(Optimist):
    """An optimist whose intervals certify nothing."""

    def notes(self, state: object, index: Tensor, arm: Tensor) -> dict[str, Tensor]:
        """Nothing."""
        return {}
