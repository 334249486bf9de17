"""What this book advises to play: a warped Gaussian process in growing epochs, planned jointly, distinct arms first.

First T₀ distinct arms are pulled once: all K where they are few against √(NT), else a part of √(NT); then
`surrogate_ucb` plays to the end of the same budget, ⌈√(NT)⌉ + NT. How it was chosen and what to expect of it: the
chapter "Should I use it?".
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedgo._checks import count
from fedgo.beyond.epochs import Beginning, Growing, Optimism, each_arm, surrogate_ucb
from fedgo.beyond.planning import plan
from fedgo.beyond.surrogates.gaussian_process import GaussianProcess
from fedgo.beyond.surrogates.models import Fitted, IndependentArms, Surrogate
from fedgo.phase_one import phase_one_length
from fedgo.problem import Problem
from fedgo.trace import Trace


@dataclass(frozen=True)
class Advised:
    """A ``surrogate`` with κ = ``kappa``, for arms that nobody has pulled ``untried``, in epochs that grow as ``until``
    says, after pulls of distinct arms: all K where they are at most ``few``·√(NT), else ⌈``share``·√(NT)⌉ of them.
    """

    surrogate: Surrogate = field(default_factory=lambda: GaussianProcess(warp=True))
    kappa: float = 3.0
    untried: float = 5.0
    share: float = 0.5
    few: float = 2.5
    until: Growing = field(default_factory=lambda: Growing(1.6))

    def first(self, clients: int, arms: int, rounds: int) -> int:
        """T₀ ≤ K = ``arms`` of N = ``clients`` and T = ``rounds``."""
        for name, value in (("clients", clients), ("arms", arms), ("rounds", rounds)):
            count(name, value, "give N, K and T, each at least 1")
        root = math.sqrt(clients * rounds)
        return arms if arms <= self.few * root else min(arms, max(2, math.ceil(self.share * root)))

    def play(self, problem: Problem, clients: int, rounds: int, sigma: float | None = None) -> Trace:
        """The trace of N = ``clients`` on ``problem``: T₀ distinct arms, then rounds until the ⌈√(NT)⌉ + NT pulls are
        reached that Fed-GO-UCB makes with T = ``rounds``; less than N more, as all take turns. σ = ``sigma`` is the
        problem's unless given."""
        first = self.first(clients, problem.means.shape[1], rounds)
        left = phase_one_length(clients, rounds) + clients * rounds - first
        return surrogate_ucb(
            problem, self.surrogate, clients, max(1, -(-left // clients)), until=self.until,
            optimism=Optimism(self.kappa, self.untried, sigma), begins=Beginning(None, each_arm(problem, first)),
        )  # fmt: skip

    def epoch(
        self,
        fit: Fitted,
        counts: Tensor,
        sigma: float,
        order: Tensor,
        begun: Sequence[int] = (),
        retired: Tensor | None = None,
        most: int | None = None,
        sites: int = 1,
        turn: int = 0,
    ) -> Tensor:
        """The arms (L,) of the epoch, of at most ``most`` pulls if given, after pulls ``counts`` (K,) with noise σ =
        ``sigma``, planned by a ``fit`` as if those ``begun`` were told, and without those ``retired`` (K,); ``order``
        (K,) decides ties.

        If the ``fit`` is of the cells of N = ``sites``, cells are returned, the first of the site ``turn`` and the
        others in cyclic order of the sites, one of each site at least; those of ``begun`` are cells, too."""
        kappa, pulls = torch.where(counts > 0, self.kappa, self.untried), self.until.length(int(counts.sum()))
        pulls = max(sites, pulls if most is None else min(pulls, most))
        rows = kappa.repeat(1, sites), order.repeat(1, sites)
        if retired is not None:
            retired = retired.repeat(sites)
        planned, _ = plan([fit], *rows, sigma, len(begun) + pulls, begun, retired, sites, turn)
        arms: Tensor = planned[0, len(begun) :]
        return arms


ADVISED = Advised()
UCB1 = Advised(IndependentArms(), kappa=2.0, untried=2.0)
# By the names that a study and its command line know.
METHODS: Mapping[str, Advised] = {
    "advised": ADVISED,
    "ucb1": UCB1,
    "every arm once": replace(ADVISED, few=math.inf),
}
