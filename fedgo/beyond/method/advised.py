"""The methods that this book recommends: one for the most reward, one for the best option.

With the goal "reward", T₀ distinct arms are pulled once each. Then `surrogate_ucb` plays whole rounds, of one pull by
each client, until at least ⌈√(NT)⌉ + NT pulls have been made, the budget of the paper's method. In each epoch one plan
for all clients takes the arms with the largest posterior mean + weight·(posterior standard deviation). For an arm that
nobody has pulled the weight is u, for others it is at most κ:

    u = min(``untried``, max(``least``, ``bold``·ln(NT))),    the weight of a pulled arm = min(κ, u).

The prediction for an arm that nobody has pulled rests on the model alone, and a longer run loses more if it misses the
best arm; in a short run there is little time to use what exploration finds. So u grows with NT.

With the goal "best" only the final choice counts, and arms are pulled again late, and only if that is worth more to
this choice than an arm without a pull (`fedgo.beyond.method.search`).

N clients play T rounds of K arms. The chapter "Should I use it?" compares these numbers with others.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from torch import Tensor

from fedgo._checks import count, number, require
from fedgo.beyond.method.epochs import Growing, Optimism, each_arm, surrogate_ucb
from fedgo.beyond.method.gaussian_process import GaussianProcess
from fedgo.beyond.method.planning import plan
from fedgo.beyond.method.search import searching
from fedgo.beyond.method.sites import Sites
from fedgo.beyond.method.surrogates import Fitted, IndependentArms, Surrogate
from fedgo.phase_one import phase_one_length
from fedgo.problem import Problem
from fedgo.trace import Trace

Goal = Literal["reward", "best"]


@dataclass(frozen=True)
class Advised:
    """A method to play: a surrogate, a goal, and how strongly it explores with a budget of NT pulls of K arms.

    If K ≤ ``few``·√(NT), each arm is pulled once before the first fit of the surrogate; otherwise ⌈``share``·√(NT)⌉
    distinct arms are, but at least 2 and at most K.

    Args:
        surrogate: The model that is fitted to counts and sums of rewards.
        kappa: κ ≥ 0, the largest weight of the standard deviation for an arm that has been pulled.
        untried: The largest value of u, at least 0.
        share: The number T₀ of pulls before the first fit, divided by √(NT), above 0.
        few: The largest K/√(NT) for which each arm is pulled once before the first fit, at least 0.
        until: The rule that decides how many pulls an epoch has.
        bold: The factor of ln(NT) in u, at least 0.
        least: The smallest value of u unless ``untried`` is smaller, at least 0.
        goal: "reward" for the smallest regret over all pulls, or "best" for the best final choice.

    Raises:
        ValueError: A number is negative or not finite, ``share`` is 0, or there is no such ``goal``.
        TypeError: A number is of another kind.
    """

    surrogate: Surrogate = field(default_factory=lambda: GaussianProcess(warp=True))
    kappa: float = 3.0
    untried: float = 5.0
    share: float = 0.35
    few: float = 2.5
    until: Growing = field(default_factory=lambda: Growing(1.25))
    bold: float = 0.55
    least: float = 2.0
    goal: Goal = "reward"

    def __post_init__(self) -> None:
        Optimism(self.kappa, self.untried)
        number("share", self.share, "give the first pulls T₀ divided by √(NT), above 0", above=0)
        number("few", self.few, "give the largest K/√(NT) for pulling every arm first, at least 0", least=0)
        number("bold", self.bold, "give the growth of u with ln(NT), at least 0", least=0)
        number(
            "least", self.least, "give the smallest weight of an arm that nobody pulled, at least 0", least=0
        )
        require(self.goal in get_args(Goal), "goal", self.goal, f"choose one of {get_args(Goal)}")

    @property
    def setting(self) -> dict[str, float]:
        """The numbers of the method by name, with the factor of ``until`` as ``growth``."""
        names = ("kappa", "untried", "share", "few", "bold", "least")
        return {name: getattr(self, name) for name in names} | {"growth": self.until.factor}

    def set(self, setting: Mapping[str, Any]) -> "Advised":
        """Return a copy of this method with other numbers.

        Args:
            setting: All numbers by name, as `setting` has them.

        Raises:
            ValueError: A name is missing or unknown, or a number is out of its range.
            TypeError: A value is not a number.
        """
        fits = isinstance(setting, Mapping) and setting.keys() == self.setting.keys()
        require(fits, "the setting", setting, f"give {', '.join(self.setting)}")
        numbers = dict(setting)
        return replace(self, until=Growing(numbers.pop("growth")), **numbers)

    def grouped(self, groups: tuple[int, ...]) -> "Advised":
        """Return this method on features of which those with equal numbers in ``groups`` share a length scale.

        A surrogate that is no Gaussian process, and one without features, stay as they are.
        """
        surrogate = self.surrogate
        if not groups or not isinstance(surrogate, GaussianProcess | Sites):
            return self
        return replace(self, surrogate=replace(surrogate, groups=groups))

    def first(self, clients: int, arms: int, rounds: int) -> int:
        """Return T₀, the number of distinct arms that are pulled before the first fit, for N clients, K arms and T
        rounds.
        """
        for name, value in (("clients", clients), ("arms", arms), ("rounds", rounds)):
            count(name, value, "give N, K and T, each at least 1")
        budget = clients * rounds
        if arms <= self.few * math.sqrt(budget):  # each arm is pulled once before the first fit
            return arms
        return min(arms, max(2, math.ceil(self.share * math.sqrt(budget))))

    def optimism(self, budget: int, sigma: float | None = None) -> Optimism:
        """Return the weights u and min(κ, u) of the standard deviation in a plan.

        Args:
            budget: The number NT of pulls, at least 1.
            sigma: The standard deviation σ of a reward's noise; None means the σ of the problem that is played.
        """
        untried = min(self.untried, max(self.least, self.bold * math.log(budget)))
        return Optimism(min(self.kappa, untried), untried, sigma)

    def play(self, problem: Problem, clients: int, rounds: int, sigma: float | None = None) -> Trace:
        """Play this method for the budget of the paper's method, ⌈√(NT)⌉ + NT pulls, and complete the last round.

        The T₀ pulls before the first fit are Phase I of the trace; at least one round follows.

        Args:
            problem: S runs of a bandit problem with K arms.
            clients: The number N of clients.
            rounds: The number T of rounds.
            sigma: The standard deviation σ of a reward's noise; None means the σ of the problem.

        Raises:
            ValueError: N or T is below 1, σ is not positive, the goal is "best", or the first fit of a run fails.
            TypeError: N or T is not a whole number, or σ is not a number.
            ImportError: A library that a fit needs is missing.
        """
        remedy = "this measures regret that adds up: give goal='reward', or a Fitting of a federation"
        require(self.goal == "reward", "goal", self.goal, remedy)
        arms, budget = problem.means.shape[1], clients * rounds
        first = self.first(clients, arms, rounds)
        left = phase_one_length(clients, rounds) + budget - first
        return surrogate_ucb(
            problem, self.surrogate, clients, max(1, -(-left // clients)), until=self.until,
            optimism=self.optimism(budget, sigma), exploration=each_arm(problem, first), foretold=True,
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
        """Return the arms or cells of the next epoch, (L,) int64, given a fit and the pulls that have been made.

        L is the length that ``until`` gives, at most ``most``, but at least one pull of each site. If the ``fit`` is on
        cells, the first pull belongs to the site ``turn``, the next ones to the following sites in cyclic order.

        Args:
            fit: The posterior of the K arms' mean rewards, or of those of the N·K cells, with finite means; cell
                i·K + x is arm x at site i, both counted from 0.
            counts: The number of pulls of each arm, (K,), or of each arm at each site, (N, K), if ``fit`` is on cells.
            sigma: The standard deviation σ of a reward's noise.
            order: A number for each arm by which ties are broken, (K,); of tied arms the largest wins.
            begun: The arms, or cells, of pulls that have been started but whose rewards are not known yet.
            retired: Whether each arm must not be pulled any more, (K,) bool; at least one has to remain.
            most: The largest number of pulls of the epoch; None means no limit.
            sites: The number N of sites if ``fit`` is on cells; otherwise 1.
            turn: The number of the site that pulls first, from 0.
            budget: The number NT of pulls from which u follows, or the last third of a search; 0 means as many as have
                been made.
        """
        pulls, tried = int(counts.sum()), counts.view(-1, len(order)).sum(0)
        length = self.until.length(pulls)
        length = max(sites, length if most is None else min(length, most))
        if retired is not None:
            retired = retired.repeat(sites)
        if self.goal == "best":
            how = length, begun, retired, sites, turn, budget
            return searching(fit, counts.flatten(), sigma, order.repeat(sites), *how)
        kappa = self.optimism(budget or max(pulls, 1)).of_arms(tried)
        rows = kappa.repeat(1, sites), order.repeat(1, sites)
        planned = plan([fit], *rows, sigma, len(begun) + length, begun, retired, sites, turn)
        chosen: Tensor = planned[0, len(begun) :]
        return chosen


ADVISED = Advised()
# Intervals and choices of a search rest on the process without a warp, with which they are better calibrated.
# A study fits the process after every result; in a federation the larger factor means fewer messages.
SEARCH = replace(ADVISED, surrogate=Sites(outputscale=True), until=Growing(1.6), goal="best")
UCB1 = replace(ADVISED, surrogate=IndependentArms(), kappa=2.0, untried=2.0, share=0.5)
# The methods by the names that a study and its command line accept.
METHODS: Mapping[str, Advised] = {
    "advised": ADVISED,
    "ucb1": UCB1,
    "every arm once": replace(ADVISED, few=1e9),
}
