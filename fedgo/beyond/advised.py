"""What this book advises to play: a warped Gaussian process in growing epochs, planned jointly, distinct arms first.

First T₀ distinct arms are pulled once. Then `surrogate_ucb` plays to the end of the same budget, ⌈√(NT)⌉ + NT. How
boldly it plays follows from the budget NT and the number of arms K. The chapter "Should I use it?" says how
the setting was chosen and what to expect of it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from fedgo._checks import count, number, require
from fedgo.beyond.epochs import Beginning, Growing, Optimism, each_arm, surrogate_ucb
from fedgo.beyond.planning import plan
from fedgo.beyond.surrogates.gaussian_process import GaussianProcess
from fedgo.beyond.surrogates.models import Fitted, IndependentArms, Surrogate
from fedgo.phase_one import phase_one_length
from fedgo.problem import Problem
from fedgo.trace import Trace

_NUMBERS = ("kappa", "untried", "share", "few", "bold")


@dataclass(frozen=True)
class Advised:
    """What to play: a model, and how boldly for a budget of NT pulls of K arms.

    If K ≤ ``few``·√(NT), each arm is pulled once before the first fit, otherwise ⌈``share``·√(NT)⌉ distinct arms. In a
    plan an arm that was pulled has κ standard deviations of optimism, and one that nobody has pulled has

        u = min(``untried``, max(κ, ``bold``·ln(NT))),

    as the model alone speaks of it, and a longer run pays more for an optimum that it misses.

    Args:
        surrogate: The model.
        kappa: κ, at least 0.
        untried: The most that u is, at least 0.
        share: By how much T₀ grows with √(NT), above 0.
        few: Up to how many arms for each √(NT) all are pulled before the first fit, at least 0.
        until: When an epoch ends.
        bold: By how much u grows with ln(NT), at least 0; None means u = ``untried`` for every budget.

    Raises:
        ValueError: A number is out of its range; a ``TypeError`` if it is no number.
    """

    surrogate: Surrogate = field(default_factory=lambda: GaussianProcess(warp=True))
    kappa: float = 3.0
    untried: float = 5.0
    share: float = 0.25
    few: float = 2.5
    until: Growing = field(default_factory=lambda: Growing(1.6))
    # left out of a plan's fingerprint where it is None, as plans of an earlier fedgo have no such field
    bold: float | None = field(default=0.5, metadata={"later": True})

    def __post_init__(self) -> None:
        Optimism(self.kappa, self.untried)
        number("share", self.share, "give T₀ over √(NT), above 0", above=0)
        number(
            "few", self.few, "give the most arms for each √(NT) of which all are tried, at least 0", least=0
        )
        if self.bold is not None:
            number("bold", self.bold, "give by how much u grows with ln(NT), at least 0", least=0)

    @property
    def setting(self) -> dict[str, Any]:
        """The numbers of the setting by their names, without the model, as a file of JSON holds them."""
        return {name: getattr(self, name) for name in _NUMBERS} | {"growth": self.until.factor}

    def set(self, setting: Mapping[str, Any]) -> "Advised":
        """Return the same with another ``setting``, as the property gives it.

        Raises:
            ValueError: A name is missing or unknown, or a number is out of its range.
        """
        names = [*_NUMBERS, "growth"]
        fits = isinstance(setting, Mapping) and set(setting) == set(names)
        require(fits, "the setting", setting, f"give {', '.join(names)}")
        numbers = dict(setting)
        return replace(self, until=Growing(numbers.pop("growth")), **numbers)

    def first(self, clients: int, arms: int, rounds: int) -> int:
        """Return T₀ ≤ K = ``arms``, the pulls before the first fit, of N = ``clients`` and T = ``rounds``."""
        for name, value in (("clients", clients), ("arms", arms), ("rounds", rounds)):
            count(name, value, "give N, K and T, each at least 1")
        budget = clients * rounds
        if self.tries_all(budget, arms):
            return arms
        return min(arms, max(2, math.ceil(self.share * math.sqrt(budget))))

    def tries_all(self, budget: int, arms: int) -> bool:
        """Return whether each of K = ``arms`` arms is pulled once before the first fit, with NT = ``budget``."""
        return arms <= self.few * math.sqrt(budget)

    def optimism(self, budget: int, sigma: float | None = None) -> Optimism:
        """Return κ and u of a plan with NT = ``budget`` pulls, and σ = ``sigma``."""
        untried = self.untried
        if self.bold is not None:
            untried = min(untried, max(self.kappa, self.bold * math.log(budget)))
        return Optimism(self.kappa, untried, sigma)

    def play(self, problem: Problem, clients: int, rounds: int, sigma: float | None = None) -> Trace:
        """Play T₀ distinct arms, and then rounds until ⌈√(NT)⌉ + NT pulls are made, as many as Fed-GO-UCB makes.

        All clients take turns, so that there are less than N pulls more.

        Args:
            problem: The arms and rewards of S runs.
            clients: N.
            rounds: T.
            sigma: σ, the standard deviation of a reward; the problem's unless given.

        Returns:
            The trace of all pulls.
        """
        arms, budget = problem.means.shape[1], clients * rounds
        first = self.first(clients, arms, rounds)
        left = phase_one_length(clients, rounds) + budget - first
        begins = Beginning(exploration=each_arm(problem, first), foretold=True)
        return surrogate_ucb(
            problem, self.surrogate, clients, max(1, -(-left // clients)), until=self.until,
            optimism=self.optimism(budget, sigma), begins=begins,
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
        budget: int = 0,
    ) -> Tensor:
        """Return the arms of the next epoch, (L,) int64, planned as if the pulls of ``begun`` were observed.

        If the ``fit`` is of the cells of N = ``sites``, cells are returned, the first of the site ``turn`` and the
        others in cyclic order of the sites, one of each site at least; those of ``begun`` are cells, too.

        Args:
            fit: The posterior on the K arms, or on the cells.
            counts: How often each arm was pulled, (K,).
            sigma: σ of a reward.
            order: Decides ties, (K,).
            begun: The arms of pulls whose rewards are not known yet.
            retired: The arms that are not to be pulled, (K,) bool.
            most: The most pulls that the epoch may have.
            sites: N, if the clients differ.
            turn: The site that is first.
            budget: The NT pulls that were announced; if more are made already, those that are made.
        """
        pulls = int(counts.sum())
        length = self.until.length(pulls)
        length = max(sites, length if most is None else min(length, most))
        kappa = self.optimism(max(budget, pulls, 1)).of_arms(counts)
        if retired is not None:
            retired = retired.repeat(sites)
        rows = kappa.repeat(1, sites), order.repeat(1, sites)
        planned, _ = plan([fit], *rows, sigma, len(begun) + length, begun, retired, sites, turn)
        chosen: Tensor = planned[0, len(begun) :]
        return chosen


ADVISED = Advised()
# The advised setting before it knew its budget, with which go on the studies that were begun with it.
BEFORE = Advised(share=0.5, bold=None)
UCB1 = replace(BEFORE, surrogate=IndependentArms(), kappa=2.0, untried=2.0)
# By the names that a study and its command line know.
METHODS: Mapping[str, Advised] = {
    "advised": ADVISED,
    "ucb1": UCB1,
    "every arm once": replace(ADVISED, few=1e9),
}
