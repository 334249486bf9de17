"""Theorem 1 as printed and as repaired: bounds on the regret and the communication of both phases.

The printed regret is R_phaseI + R_good + R_bad, of Phase I and of the good and the bad epochs of Phase II, and the
communication is C_phaseI + C_phaseII. Letters are those of `fedgo.theory.regret`: N clients, T rounds, P
synchronisations, the regularisation weight λ, the squared radius β, the threshold γ, the log-ratio Λ ≤ R, and ρ₀ = ‖ŵ₀
− w*‖. Phase I has T₀ = ⌈√(NT)⌉ pulls and n rounds of Algorithm 2.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count
from fedgo.phase_one import phase_one_length
from fedgo.phase_two import Settings
from fedgo.theory import oracle, regret
from fedgo.theory.assumptions import Assumptions, check_probability
from fedgo.theory.ball import information_bound, radius, radius_printed


@dataclass(frozen=True)
class Premises:
    """The premises of the theorem: the constants of the assumptions, and the size of the problem.

    Args:
        a: The constants of Assumptions 1 to 3.
        clients: The number N of clients.
        rounds: The number T of rounds.
        delta: The failure probability δ.
        arms: The number K ≥ 1 of arms, or None if there may be infinitely many.
    """

    a: Assumptions
    clients: int
    rounds: int
    delta: float = 0.1
    arms: int | None = None

    def __post_init__(self) -> None:
        check_probability(self.delta)
        count("clients", self.clients, "give N, at least one client", most=math.inf)
        count("rounds", self.rounds, "give T, at least one round", most=math.inf)

    @property
    def steps(self) -> int:
        """The number NT of steps of Phase II."""
        return self.clients * self.rounds

    @property
    def exploration(self) -> int:
        """The number T₀ = ⌈√(NT)⌉ of pulls of Phase I."""
        return phase_one_length(self.clients, self.rounds, math.inf)

    def information(self, lam: float) -> float:
        """Return the bound R = d ln(1 + NTC_g²/(dλ)) on Λ, where d is min(K, d_w), or d_w if K is None."""
        dimension = self.a.dimension if self.arms is None else min(self.arms, self.a.dimension)
        return information_bound(dimension, self.steps, self.a.slope, lam)


class TheoremSetting(NamedTuple):
    """The parameters that a theorem prescribes: the number T₀ of pulls of Phase I (``exploration``), λ, and γ."""

    exploration: int
    lam: float
    gamma: float


def theorem_setting_printed(given: Premises, lam_scale: float = 1.0) -> TheoremSetting:
    """Return T₀ = ⌈√(NT)⌉, λ = C_λ√(NT) and γ = d_wF⁴T/(μ²N), as printed in Theorem 1; ``lam_scale`` is C_λ."""
    a = given.a
    gamma = a.dimension * a.value**4 * given.rounds / (a.growth**2 * given.clients)
    return TheoremSetting(given.exploration, lam_scale * math.sqrt(given.steps), gamma)


def theorem_setting(given: Premises, lam: float | None = None) -> TheoremSetting:
    """Return T₀ = ⌈√(NT)⌉, λ (C_g² if it is None) and γ = T/(NR) of the repaired theorem, all known beforehand."""
    lam = given.a.slope**2 if lam is None else lam
    gamma = given.rounds / (given.clients * given.information(lam))
    return TheoremSetting(given.exploration, lam, gamma)


class WorstCase(NamedTuple):
    """Bounds that hold in every run of Phase II with the given λ and γ.

    Args:
        information: The bound R on Λ.
        syncs: The bound P̄ on P.
        lam: The weight λ.
        beta: The bound β̄ on the squared radii β_{t,i} of all clients at all steps.
        gamma: The threshold γ.
    """

    information: float
    syncs: float
    lam: float
    beta: float
    gamma: float

    @property
    def settings(self) -> Settings:
        """λ, β̄ and γ as the settings of Phase II, with messages in the dense form."""
        return Settings(self.lam, self.beta, self.gamma)


def worst_case(
    given: Premises,
    distance: Tensor | float,
    setting: TheoremSetting | None = None,
    *,
    curvature: Tensor | float | None = None,
) -> WorstCase:
    """Return the bounds R, P̄ ≤ NT (not rounded) and β̄ after all pulls.

    β̄ is the squared radius (`fedgo.theory.ball.radius`) of a client that knows all NT pulls after P̄ synchronisations.

    Args:
        given: The premises.
        distance: The distance ρ₀, one number or one for each run, (S,); β̄ is the largest over the runs.
        setting: λ and γ; `theorem_setting` if it is None.
        curvature: The bound C_h, one number or one for each run, (S,); that of the assumptions if it is None.
    """
    setting = theorem_setting(given) if setting is None else setting
    information = given.information(setting.lam)
    syncs = min(regret.synchronisations(given.rounds, information, setting.gamma), given.steps)
    most, pulls, epochs = torch.tensor([information, given.steps, syncs], dtype=torch.float64)
    beta = radius(
        most,
        pulls,
        epochs,
        clients=given.clients,
        lam=setting.lam,
        sigma=given.a.noise,
        distance=distance,
        curvature=given.a.curvature if curvature is None else curvature,
        delta=given.delta,
    )
    return WorstCase(information, syncs, setting.lam, beta.max().item(), setting.gamma)


class Totals(NamedTuple):
    """The bounds of a theorem on the regret of each phase, on P (``syncs``), and on the number of scalars sent."""

    phase_one: float
    phase_two: float
    syncs: float
    scalars: float

    @property
    def regret(self) -> float:
        """The sum of the bounds on the regret of both phases."""
        return self.phase_one + self.phase_two


def theorem_printed(given: Premises, oracle_rounds: int, lam_scale: float = 1.0) -> Totals:
    """Return the bounds of Theorem 1 as printed, with the constants of its own proof (`theorem_setting_printed`).

    The number of scalars is 2nNd_w + 2PN(d_w² + d_w) with the bound in place of P.

    Args:
        given: The premises, with T₀C_h² > 1; the number of arms is not used.
        oracle_rounds: The number n of rounds of Algorithm 2.
        lam_scale: The factor C_λ > 0 in λ = C_λ√(NT).
    """
    a, steps, clients = given.a, given.steps, given.clients
    exploration, lam, gamma = theorem_setting_printed(given, lam_scale)
    beta = radius_printed(a, lam, steps, steps, exploration, given.delta)
    information = information_bound(a.dimension, steps, a.slope, lam)
    good = regret.good_regret_printed(beta, information, steps, a.curvature, lam)
    bad = regret.bad_regret_printed(beta, information, clients, gamma, a.curvature, lam_scale)
    syncs = regret.synchronisations_printed(given.rounds, information, gamma)
    first = oracle.phase_one_scalars(oracle_rounds, clients, a.dimension) - clients * a.dimension
    scalars = first + regret.phase_two_scalars(syncs, clients, a.dimension)
    return Totals(regret.regret_phase_one(exploration, a.value), good + bad, syncs, scalars)


def theorem(
    given: Premises,
    oracle_rounds: int,
    *,
    rho2: float | None = None,
    setting: TheoremSetting | None = None,
    epsilon: float = 0.0,
    line_three: bool = False,
) -> Totals:
    """Return the bounds of the repaired theorem, which hold with probability 1 − δ.

    The regret of Phase II is that of item 3 (`fedgo.theory.regret.regret_phase_two_clipped`), for any λ > 0, with β̄
    and R of `worst_case`. The number of scalars is (2n + 1)Nd_w + 2PN(d_w² + d_w) with the bound in place of P.

    Args:
        given: The premises.
        oracle_rounds: The number n of rounds of Algorithm 2.
        rho2: A bound on ρ₀². If it is None, it follows from `fedgo.theory.oracle.regression_risk`, which may be too
            large for Lemma 2.
        setting: T₀, λ and γ; `theorem_setting` if it is None.
        epsilon: The optimisation error ϵ ≥ 0 of the oracle, which is used only if ``rho2`` is None.
        line_three: Whether the index is that of line 3, the largest f_x(w) in the confidence ball and W; if not, it is
            the first-order index.
    """
    a, clients = given.a, given.clients
    setting = theorem_setting(given) if setting is None else setting
    if rho2 is None:
        risk = oracle.regression_risk(a, setting.exploration, given.delta, epsilon)
        rho2 = oracle.squared_distance(a, risk)
    rho = math.sqrt(rho2)
    worst = worst_case(given, rho, setting)
    excess = regret.excess_first_order(a.curvature, rho)
    if line_three:
        excess = regret.excess_in_ball(worst.beta, a.curvature, setting.lam, rho)
    second = regret.regret_phase_two_clipped(
        worst.beta,
        worst.information,
        clients=clients,
        rounds=given.rounds,
        gamma=setting.gamma,
        value=a.value,
        excess=excess,
        widest=a.slope / math.sqrt(setting.lam),
    )
    first = regret.regret_phase_one(setting.exploration, a.value)
    sent = oracle.phase_one_scalars(oracle_rounds, clients, a.dimension)
    scalars = sent + regret.phase_two_scalars(worst.syncs, clients, a.dimension)
    return Totals(first, second.total, worst.syncs, scalars)
