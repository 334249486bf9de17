"""The method that this book recommends: a Gaussian process on warped rewards, from which growing epochs are planned.

First T₀ distinct arms are pulled once each. Then `surrogate_ucb` plays whole rounds, of one pull by each client, until
at least ⌈√(NT)⌉ + NT pulls have been made, the budget of the paper's method, with N clients and T rounds. In each epoch
one plan for all clients decides the pulls. How strongly it prefers arms that nobody has pulled follows from NT, and how
many arms are pulled before the first fit follows from NT and the number K of arms. The chapter "Should I use it?" says
how the setting was chosen and what to expect of it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from fedgo._checks import count, number, require
from fedgo.beyond.method.epochs import Beginning, Growing, Optimism, each_arm, surrogate_ucb
from fedgo.beyond.method.gaussian_process import GaussianProcess
from fedgo.beyond.method.planning import plan
from fedgo.beyond.method.surrogates import Fitted, IndependentArms, Surrogate
from fedgo.phase_one import phase_one_length
from fedgo.problem import Problem
from fedgo.trace import Trace


@dataclass(frozen=True)
class Advised:
    """A method to play: a surrogate, and how strongly it explores with a budget of NT pulls of K arms.

    If K ≤ ``few``·√(NT), each arm is pulled once before the first fit of the surrogate. Otherwise ⌈``share``·√(NT)⌉
    distinct arms are, but at least 2 and at most K. Here N is the number of clients and T that of rounds. A joint plan
    then pulls the arms with the largest posterior mean + weight·(posterior standard deviation). For an arm that nobody
    has pulled, the weight is u; for an arm that has been pulled, it is at most κ:

        u = min(``untried``, max(``least``, ``bold``·ln(NT))),    the weight of a pulled arm = min(κ, u).

    The prediction for an arm that nobody has pulled rests on the model alone, and a longer run loses more if it misses
    the best arm. Therefore u grows with NT. In a short run there is little time to use what exploration finds.
    Therefore both weights are small if NT is small.

    Args:
        surrogate: The model that is fitted to counts and sums of rewards.
        kappa: κ ≥ 0, the largest weight of the standard deviation for an arm that has been pulled.
        untried: The largest value of u, the weight for an arm that nobody has pulled, at least 0.
        share: The number T₀ of pulls before the first fit, divided by √(NT), above 0. It applies to K > ``few``·√(NT).
        few: The largest number of arms, divided by √(NT), for which each arm is pulled once before the first fit, at
            least 0.
        until: The rule that decides how many pulls an epoch has.
        bold: The factor of ln(NT) in u, at least 0; None means u = ``untried`` for every budget.
        least: The smallest value of u unless ``untried`` is smaller, at least 0. None means κ, and that the weight of a
            pulled arm is κ for every budget.

    Raises:
        ValueError: κ, ``untried``, ``few``, ``bold`` or ``least`` is negative or not finite, or ``share`` is not
            positive and finite.
        TypeError: One of these is not a number. None is refused for κ, ``share`` and ``few`` only.
    """

    surrogate: Surrogate = field(default_factory=lambda: GaussianProcess(warp=True))
    kappa: float = 3.0
    untried: float = 5.0
    share: float = 0.35
    few: float = 2.5
    until: Growing = field(default_factory=lambda: Growing(1.6))
    # If they are None, the fingerprint of a federation's plan leaves them out, because plans that an earlier version of
    # fedgo wrote do not have these fields.
    bold: float | None = field(default=0.55, metadata={"later": True})
    least: float | None = field(default=2.0, metadata={"later": True})

    def __post_init__(self) -> None:
        Optimism(self.kappa, self.untried)
        number("share", self.share, "give the first pulls T₀ divided by √(NT), above 0", above=0)
        number("few", self.few, "give the largest K/√(NT) for pulling every arm first, at least 0", least=0)
        if self.bold is not None:
            number("bold", self.bold, "give the growth of u with ln(NT), at least 0", least=0)
        if self.least is not None:
            number(
                "least",
                self.least,
                "give the smallest weight of an arm that nobody pulled, at least 0",
                least=0,
            )

    @property
    def setting(self) -> dict[str, Any]:
        """The numbers of the method by name, without the surrogate, so that they can be written to a JSON file.

        They are ``kappa``, ``untried``, ``share``, ``few``, ``bold``, ``least``, and as ``growth`` the factor by which
        the pulls grow in an epoch (the ``factor`` of ``until``).
        """
        names = ("kappa", "untried", "share", "few", "bold", "least")
        return {name: getattr(self, name) for name in names} | {"growth": self.until.factor}

    def set(self, setting: Mapping[str, Any]) -> "Advised":
        """Return a copy of this method with other numbers.

        Args:
            setting: The numbers by name: ``kappa``, ``untried``, ``share``, ``few``, ``bold``, ``least``, and as
                ``growth`` the factor by which the pulls grow in an epoch. If ``least`` is missing, it is None, because
                earlier versions of fedgo wrote settings without it and played so.

        Returns:
            The method with these numbers and the same surrogate. Its ``until`` is `Growing` with ``growth`` as its
            ``factor`` and the default ``least``.

        Raises:
            ValueError: ``setting`` is not a mapping, another name than ``least`` is missing, a name is unknown, or a
                number is out of its range.
            TypeError: A value is not a number. None is refused for ``kappa``, ``share``, ``few`` and ``growth`` only.
        """
        fits = isinstance(setting, Mapping) and {*setting, "least"} == self.setting.keys()
        require(fits, "the setting", setting, f"give {', '.join(self.setting)}")
        numbers = {"least": None, **setting}
        return replace(self, until=Growing(numbers.pop("growth")), **numbers)

    def first(self, clients: int, arms: int, rounds: int) -> int:
        """Return T₀, the number of distinct arms that are pulled once each before the first fit, at most K.

        It is K if K ≤ ``few``·√(NT), and otherwise ⌈``share``·√(NT)⌉, but at least 2 and at most K.

        Args:
            clients: The number N of clients.
            arms: The number K of arms.
            rounds: The number T of rounds.

        Raises:
            ValueError: N, K or T is below 1 or above 2⁵³.
            TypeError: N, K or T is not a whole number.
        """
        for name, value in (("clients", clients), ("arms", arms), ("rounds", rounds)):
            count(name, value, "give N, K and T, each at least 1")
        budget = clients * rounds
        if arms <= self.few * math.sqrt(budget):  # each arm is pulled once before the first fit
            return arms
        return min(arms, max(2, math.ceil(self.share * math.sqrt(budget))))

    def optimism(self, budget: int, sigma: float | None = None) -> Optimism:
        """Return the weights that a plan gives to the standard deviation of pulled arms and of arms that nobody pulled.

        Args:
            budget: The number NT of pulls by N clients in T rounds, at least 1, from which the weights follow.
            sigma: The standard deviation σ of a reward's noise; None means the σ of the problem that is played.

        Returns:
            An `Optimism` with σ as its ``sigma``. Its ``untried`` is u = min(``untried``, max(``least``,
            ``bold``·ln(``budget``))), where ``least`` None means κ = ``kappa``; or ``untried`` itself if ``bold`` is
            None. Its ``kappa`` is min(κ, u), or κ if ``least`` is None.

        Raises:
            ValueError: σ is not positive and finite; or ``budget`` is 0 or negative, and ``bold`` is not None.
            TypeError: σ is not a number; ``budget`` is not one, and ``bold`` is not None; or ``untried`` is None, and
                ``bold`` or ``least`` is not.
        """
        kappa, untried = self.kappa, self.untried
        if self.bold is not None:
            least = kappa if self.least is None else self.least
            untried = min(untried, max(least, self.bold * math.log(budget)))
        if self.least is not None:
            kappa = min(kappa, untried)
        return Optimism(kappa, untried, sigma)

    def play(self, problem: Problem, clients: int, rounds: int, sigma: float | None = None) -> Trace:
        """Play this method on a problem with N clients for the budget of the paper's method, ⌈√(NT)⌉ + NT pulls.

        T₀ distinct arms are pulled first, the number that `first` returns. Then all clients pull in turn until the
        budget is used up. The last round is completed, so that up to N − 1 more pulls may be made. If T₀ pulls use up
        the budget, one round of N pulls follows all the same.

        Args:
            problem: S runs of a bandit problem with K arms.
            clients: The number N of clients.
            rounds: The number T of rounds.
            sigma: The standard deviation σ of a reward's noise; None means the σ of the problem.

        Returns:
            The trace of all pulls. The T₀ pulls before the first fit are its Phase I.

        Raises:
            ValueError: N or T is below 1 or above 2⁵³, σ is not positive and finite, the first fit of a run fails, or
                the index of an arm is NaN.
            TypeError: N or T is not a whole number, σ is not a number, the surrogate has no ``fit``, or ``until`` is
                neither `Growing` nor `Event`.
            AttributeError: ``problem`` is not a `Problem`.
            ImportError: A library that a fit needs is missing, SciPy for a `GaussianProcess` for instance.
            MemoryError: A fit needs more memory than there is.
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
        """Return the arms of the next epoch, (L,) int64, given a fit and the pulls that have been made.

        The number L of pulls is the one that ``until`` gives after the pulls in ``counts``, at most ``most``. Each pull
        has the arm with the largest posterior mean + weight·(posterior standard deviation), with the weights that
        `optimism` returns for the ``budget``. The variances are updated as if the rewards of the pulls in ``begun`` and
        of the pulls planned before had been observed. If the ``fit`` is on cells, the pairs of one of N sites and an
        arm, the plan consists of cells too. The first of them belongs to the site ``turn``, the next ones to the
        following sites in cyclic order, and each site has at least one.

        Args:
            fit: The posterior of the K arms' mean rewards, or of those of the N·K cells, with finite means; cell
                i·K + x is arm x at site i, both counted from 0.
            counts: The number of pulls of each arm, at all sites together, (K,).
            sigma: The standard deviation σ of a reward's noise.
            order: A number for each arm by which ties are broken, (K,); of tied arms the one with the largest of these
                numbers is pulled.
            begun: The arms, or cells, of pulls that have been started but whose rewards are not known yet.
            retired: Whether each arm must not be pulled any more, (K,) bool; at least one has to remain. None means
                that all may be pulled.
            most: The largest number of pulls of the epoch, except that each site has at least one; None means no limit.
            sites: The number N of sites if their mean rewards differ and ``fit`` is on cells; otherwise 1.
            turn: The number of the site that pulls first, from 0.
            budget: The number NT of pulls that is planned in total. If more pulls have been made already, their number
                is used instead.

        Raises:
            ValueError: The index of an arm is NaN because its variance or a covariance is.
            IndexError: All arms are retired and ``begun`` is empty, or ``begun`` has a number above those of all arms
                or cells.
            AttributeError: ``until`` is not a `Growing`.
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
# The recommended numbers before they depended on the budget. Studies that were begun with them continue with them.
BEFORE = Advised(share=0.5, bold=None, least=None)
UCB1 = replace(BEFORE, surrogate=IndependentArms(), kappa=2.0, untried=2.0)
# The methods by the names that a study and its command line accept.
METHODS: Mapping[str, Advised] = {
    "advised": ADVISED,
    "ucb1": UCB1,
    "every arm once": replace(ADVISED, few=1e9),
}
