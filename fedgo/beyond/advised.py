"""What this book advises to play: a warped Gaussian process in growing epochs, planned jointly, distinct arms first.

First T₀ distinct arms are pulled once: all K where each can be pulled some twenty times, else ⌈√(NT)⌉; then
`surrogate_ucb` plays to the end of the same budget ⌈√(NT)⌉ + NT. How it was chosen and what to expect of it: the
chapter "Should I use it?".
"""

from dataclasses import dataclass, field

from fedgo._checks import count
from fedgo.beyond.epochs import Growing, each_arm, surrogate_ucb
from fedgo.beyond.surrogates import GaussianProcess, IndependentArms, Surrogate
from fedgo.phase_one import phase_one_length
from fedgo.problem import Problem
from fedgo.trace import Trace


@dataclass(frozen=True)
class Advised:
    """A ``surrogate`` with κ = ``kappa`` and epochs that grow as ``until`` says, after distinct arms.

    Every arm is pulled first where that takes at most one pull in ``pulls``.
    """

    surrogate: Surrogate = field(default_factory=lambda: GaussianProcess(warp=True))
    kappa: float = 4.0
    until: Growing = field(default_factory=lambda: Growing(1.6))
    pulls: int = 20

    def first(self, clients: int, arms: int, rounds: int) -> int:
        """T₀ ≤ K = ``arms`` of N = ``clients`` and T = ``rounds``."""
        for name, value in (("clients", clients), ("arms", arms), ("rounds", rounds)):
            count(name, value, "give N, K and T, each at least 1")
        few = arms * self.pulls <= clients * rounds
        return arms if few else min(arms, max(2, phase_one_length(clients, rounds)))

    def play(self, problem: Problem, clients: int, rounds: int) -> Trace:
        """The trace of N = ``clients`` on ``problem``: T₀ distinct arms, then as many rounds as are left of the
        ⌈√(NT)⌉ + NT pulls that Fed-GO-UCB makes with T = ``rounds``."""
        first = self.first(clients, problem.means.shape[1], rounds)
        left = phase_one_length(clients, rounds) + clients * rounds - first
        return surrogate_ucb(
            problem, self.surrogate, clients, left // clients, until=self.until, kappa=self.kappa,
            exploration=each_arm(problem, first),
        )  # fmt: skip


ADVISED = Advised()
UCB1 = Advised(IndependentArms(), kappa=2.0)
