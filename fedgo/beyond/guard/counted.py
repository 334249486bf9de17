"""UCB1 on the event and with the messages of a guard.

Each client plays the arm with the largest mean + √(2β ln t/n), where n counts the pulls of the arm that the client
knows of, and t those of all arms. Counts and sums suffice: a round costs O(NK) operations for N clients and K arms,
where covariances between the arms would cost O(NK²).
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
    """The rule mean ± √(2β ln t/n) for the interval of each arm, as UCB1 uses it.

    The interval of an arm that was never pulled is the whole line. Source: Auer, Cesa-Bianchi and Fischer, Machine
    Learning 2002.

    Args:
        beta: β, the weight of the width.

    Raises:
        ValueError: If β is negative or not finite.
    """

    beta: float

    def __post_init__(self) -> None:
        number("beta", self.beta, "give a finite β, at least 0", least=0)

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """Return the intervals of every arm as `Intervals.after` does, from ``known`` alone."""
        n = known.counts
        pulls, t = n.clamp(min=1), n.sum(-1, keepdim=True).clamp(min=1)
        mean = known.sums / pulls
        width = torch.where(n > 0, (2 * self.beta * t.log() / pulls).sqrt(), torch.inf)
        return Interval(mean - width, mean + width, (1 / (1 + n)).log1p())


@on_cpu
def optimistic_ucb1(problem: Problem, clients: int, steps: int, beta: float, gamma: float = 1.0) -> Trace:
    """Play UCB1 on counts that N clients exchange when an event fires.

    Client i synchronises when n_i·Σ ln(1 + 1/(1 + n)) > γ over its own n_i pulls since the last synchronisation. Counts
    and sums of the arms that it pulled go up, and what is new in them comes down to all.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        steps: The number NT of pulls, all clients together.
        beta: β, the weight of the width in the index mean + √(2β ln t/n).
        gamma: The threshold γ of the event. With infinity the clients never synchronise.

    Returns:
        The trace of all runs, without notes.
    """
    require_run(problem, clients, steps)
    learner = Uncertified(clients, Ucb1(beta), Tally.blank(*problem.means.shape), gamma)
    return simulate("UCB1, counted", problem, learner, Exploration.nothing(len(problem.runs)), clients, steps)


class Uncertified(Optimist):
    """An `Optimist` whose intervals are no bounds, so that its traces have no certificate."""

    def notes(self, state: object, index: Tensor, arm: Tensor) -> dict[str, Tensor]:
        """Return no notes."""
        return {}
