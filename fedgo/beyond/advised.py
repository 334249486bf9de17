"""What this book advises to play: a warped Gaussian process in growing epochs, planned jointly, distinct arms first.

First T₀ distinct arms are pulled once. Then `surrogate_ucb` plays to the end of the same budget, ⌈√(NT)⌉ + NT. How
boldly it plays follows from the budget NT, the number of arms K and the data. The chapter "Should I use it?" says how
the setting was chosen and what to expect of it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from fedgo._checks import count, number, require, require_kind
from fedgo.beyond.epochs import Beginning, Growing, Optimism, Quicker, each_arm, surrogate_ucb
from fedgo.beyond.planning import plan
from fedgo.beyond.surrogates.gaussian_process import GaussianProcess
from fedgo.beyond.surrogates.models import Fitted, IndependentArms, Surrogate
from fedgo.phase_one import phase_one_length
from fedgo.problem import Problem
from fedgo.trace import Trace

_NUMBERS = ("kappa", "untried", "share", "few", "bold", "early", "fades")
_LATER = {
    "later": True
}  # a field that a plan of an earlier fedgo does not have: left out where it is 0, False or None


@dataclass(frozen=True)
class Advised:
    """What to play: a model, and how boldly for a budget of NT pulls of K arms.

    If K ≤ ``few``·√(NT), each arm is pulled once before the first fit, and κ = ``kappa`` from then on. Otherwise only
    ⌈``share``·√(NT)⌉ distinct arms are, and two more things follow from the budget. An arm that nobody has pulled has u
    standard deviations, and κ of a pulled arm falls from u to ``kappa`` as the noise of its own mean does
    (`Optimism.of_arms`). The epochs grow by ``early`` while fewer than ``few``·√(NT) pulls are made.

    Args:
        surrogate: The model.
        kappa: κ, the standard deviations of optimism for an arm that was pulled, at least 0.
        untried: u for every budget; None means u = max(κ, ``bold``·ln(NT)).
        share: By how much T₀ grows with √(NT), above 0.
        few: Up to how many arms for each √(NT) all are pulled before the first fit, at least 0.
        until: When an epoch ends.
        bold: By how much u grows with the logarithm of the budget, at least 0.
        early: The factor of early epochs, above 1; None means that all epochs grow as ``until`` says.
        fades: Whether κ falls; if it does not, κ of every pulled arm is ``kappa``.

    Raises:
        ValueError: A number is out of its range; a ``TypeError`` if it is no number.
    """

    surrogate: Surrogate = field(default_factory=lambda: GaussianProcess(warp=True))
    kappa: float = 3.0
    untried: float | None = None
    share: float = 0.35
    few: float = 2.5
    until: Growing = field(default_factory=lambda: Growing(1.6))
    bold: float = field(default=0.6, metadata=_LATER)
    early: float | None = field(default=1.2, metadata=_LATER)
    fades: bool = field(default=True, metadata=_LATER)

    def __post_init__(self) -> None:
        Optimism(self.kappa, self.untried)
        number("bold", self.bold, "give by how much u grows with ln(NT), at least 0", least=0)
        number("share", self.share, "give T₀ over √(NT), above 0", above=0)
        number(
            "few", self.few, "give the most arms for each √(NT) of which all are tried, at least 0", least=0
        )
        if self.early is not None:
            number("early", self.early, "give a factor above 1 by which early pulls grow", above=1)
        require_kind(isinstance(self.fades, bool), "fades", self.fades, "give True or False")

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
        """Return whether each of K = ``arms`` arms is pulled once before the first fit."""
        return arms <= self.few * math.sqrt(budget)

    def optimism(self, budget: int, arms: int, sigma: float | None = None) -> Optimism:
        """Return how optimistic the plans are with NT = ``budget`` pulls of K = ``arms`` arms and σ = ``sigma``."""
        untried = self.untried
        if untried is None:
            untried = max(self.kappa, self.bold * math.log(budget))
        return Optimism(self.kappa, untried, sigma, self.fades and not self.tries_all(budget, arms))

    def epochs(self, budget: int, arms: int) -> Growing:
        """Return how the epochs grow with NT = ``budget`` pulls of K = ``arms`` arms."""
        if self.early is None or self.tries_all(budget, arms):
            return self.until
        return Quicker(self.until.factor, self.until.least, self.early, self.few * math.sqrt(budget))

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
            problem, self.surrogate, clients, max(1, -(-left // clients)), until=self.epochs(budget, arms),
            optimism=self.optimism(budget, arms, sigma), begins=begins,
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
        arms, pulls = len(counts), int(counts.sum())
        budget = max(budget, pulls)
        length = self.epochs(budget, arms).length(pulls)
        length = max(sites, length if most is None else min(length, most))
        kappa = self.optimism(budget, arms).of_arms(fit.mean, counts.repeat(sites), sigma)
        if retired is not None:
            retired = retired.repeat(sites)
        rows = kappa.unsqueeze(0), order.repeat(1, sites)
        planned, _ = plan([fit], *rows, sigma, len(begun) + length, begun, retired, sites, turn)
        chosen: Tensor = planned[0, len(begun) :]
        return chosen


ADVISED = Advised()
# The advised setting before it knew its budget, with which go on the studies that were begun with it.
BEFORE = Advised(untried=5.0, share=0.5, bold=0.0, early=None, fades=False)
UCB1 = replace(BEFORE, surrogate=IndependentArms(), kappa=2.0, untried=2.0)
# By the names that a study and its command line know.
METHODS: Mapping[str, Advised] = {
    "advised": ADVISED,
    "ucb1": UCB1,
    "every arm once": replace(ADVISED, few=1e9),
}
