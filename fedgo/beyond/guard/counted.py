"""UCB1 that N clients play on shared counts and sums, with the event and the messages of a guard.

Each client plays the arm with the largest mean + √(2β ln t/n), where n counts the pulls of the arm that the client
knows of, and t counts those of all arms. Counts and sums suffice: a round costs O(NK) operations for N clients and K
arms, where covariances between the arms would cost O(NK²).
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
    """A rule that gives each arm the interval mean ± √(2β ln t/n), as UCB1 uses it.

    n counts the pulls of the arm, and t counts those of all arms. The interval of an arm that was never pulled is the
    whole line. Source: Auer, Cesa-Bianchi and Fischer, Machine Learning 2002.

    Args:
        beta: β ≥ 0, the weight of the width; UCB1 has β = 1 for rewards from 0 to 1.

    Raises:
        ValueError: β is negative or not finite.
        TypeError: β is not a number.
    """

    beta: float

    def __post_init__(self) -> None:
        number("beta", self.beta, "give a finite β, at least 0", least=0)

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """Return the interval of each arm, (R, L, K), for L clients (or L steps of one client) of R runs.

        Args:
            known: The pulls and summed rewards of each arm that each client knows, (R, L, K) each.
            syncs: Not used.
            run: Not used.
            shared: Not used.
        """
        n = known.counts
        pulls, t = n.clamp(min=1), n.sum(-1, keepdim=True).clamp(min=1)
        mean = known.sums / pulls
        width = torch.where(n > 0, (2 * self.beta * t.log() / pulls).sqrt(), torch.inf)
        return Interval(mean - width, mean + width, (1 / (1 + n)).log1p())


@on_cpu
def optimistic_ucb1(problem: Problem, clients: int, steps: int, beta: float, gamma: float = 1.0) -> Trace:
    """Play UCB1 with N clients that exchange counts and sums when an event fires.

    Client i asks for a synchronisation when n_i·Σ ln(1 + 1/(1 + n)) > γ over its own n_i pulls since the last
    synchronisation, where n counts the pulls of the arm that it knew before each of them. Then all clients send the
    counts and sums of the arms that they pulled to the server, and the server sends all clients what is new in them.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        steps: The number NT of pulls by all clients together.
        beta: β ≥ 0, the weight of the width in the index mean + √(2β ln t/n). n counts the pulls of the arm and t those
            of all arms that the client knows of.
        gamma: The threshold γ of the event. With infinity the clients never synchronise.

    Returns:
        The trace of all runs, without notes.

    Raises:
        ValueError: N or ``steps`` is below 1, β is negative or not finite, or γ is negative or NaN.
        TypeError: ``problem`` is not a `Problem`, or a number is of another kind.
    """
    require_run(problem, clients, steps)
    learner = Uncertified(clients, Ucb1(beta), Tally.blank(*problem.means.shape), gamma)
    return simulate("UCB1, counted", problem, learner, Exploration.nothing(len(problem.runs)), clients, steps)


class Uncertified(Optimist):
    """An `Optimist` for intervals that need not contain f, so that its traces have no certificate."""

    def notes(self, state: object, index: Tensor, arm: Tensor) -> dict[str, Tensor]:
        """Return no notes."""
        return {}
