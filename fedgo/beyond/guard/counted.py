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
    """The intervals of UCB1, with β = ``beta`` (Auer, Cesa-Bianchi and Fischer, Machine Learning 2002).

    The interval of an arm that was never pulled is the whole line.
    """

    beta: float

    def __post_init__(self) -> None:
        number("beta", self.beta, "give a finite β, at least 0", least=0)

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """Return the intervals from what each client knows, as `Intervals.after` says; nothing but ``known``
        matters.
        """
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
    """Play UCB1 on counts that N clients exchange when an event fires.

    Client i synchronises when n_i·Σ ln(1 + 1/(1 + n)) > γ over its own n_i pulls since the last synchronisation. Counts
    and sums of the arms that it pulled go up, and what is new in them comes down to all.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        steps: The number of steps.
        beta: The weight β of the index.
        gamma: The threshold γ of the event.
    """
    require_run(problem, clients, steps)
    learner = Uncertified(clients, Ucb1(beta), Tally.blank(*problem.means.shape), gamma)
    return simulate("UCB1, counted", problem, learner, Exploration.nothing(len(problem.runs)), clients, steps)


class Uncertified(Optimist):
    """An optimist whose intervals certify nothing."""

    def notes(self, state: object, index: Tensor, arm: Tensor) -> dict[str, Tensor]:
        """Return no note."""
        return {}
