"""Theorem 1 as printed and repaired: R_total ≤ R_phaseI + R_good + R_bad and C_total = C_phaseI + C_phaseII.

"ln" is natural throughout; distances are to the w* named (any zero of L; the nearest to ŵ₀ is best).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count
from fedgo.phase_one import phase_one_length
from fedgo.phase_two import Settings
from fedgo.theory.assumptions import Assumptions, check_probability
from fedgo.theory.confidence import information_bound, radius, radius_printed
from fedgo.theory.phase_one import (
    C_DISTANCE,
    exploration_needed,
    optimisation_error,
    phase_one_scalars,
    regression_risk,
    squared_distance,
)
from fedgo.theory.phase_two import (
    bad_regret_printed,
    excess_first_order,
    excess_in_ball,
    good_regret_printed,
    phase_two_scalars,
    regret_phase_one,
    regret_phase_two_clipped,
    synchronisations,
    synchronisations_printed,
)


@dataclass(frozen=True)
class Premises:
    """What a theorem is about: Assumptions 1–3 with constants ``a``, N = ``clients``, T = ``rounds``, δ = ``delta``,
    and the number K = ``arms`` of arms if they are finitely many."""

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
        """NT."""
        return self.clients * self.rounds

    @property
    def exploration(self) -> int:
        """T₀ = ⌈√(NT)⌉."""
        return phase_one_length(self.clients, self.rounds, math.inf)

    def information(self, lam: float) -> float:
        """R ≥ Λ after NT pulls with λ = ``lam``; min(K, d_w) is the dimension."""
        dimension = self.a.dimension if self.arms is None else min(self.arms, self.a.dimension)
        return information_bound(dimension, self.steps, self.a.slope, lam)


class TheoremSetting(NamedTuple):
    """T₀, λ and γ of a theorem."""

    exploration: int
    lam: float
    gamma: float


def theorem_setting_printed(given: Premises, lam_scale: float = 1.0) -> TheoremSetting:
    """T₀ = ⌈√(NT)⌉, λ = C_λ√(NT), γ = d_wF⁴T/(μ²N) (Theorem 1); C_λ = ``lam_scale``."""
    a = given.a
    gamma = a.dimension * a.value**4 * given.rounds / (a.growth**2 * given.clients)
    return TheoremSetting(given.exploration, lam_scale * math.sqrt(given.steps), gamma)


def theorem_setting(given: Premises, lam: float | None = None) -> TheoremSetting:
    """T₀ = ⌈√(NT)⌉, λ = C_g² unless given and γ = T/(NR), which a learner can compute (the repaired theorem)."""
    lam = given.a.slope**2 if lam is None else lam
    gamma = given.rounds / (given.clients * given.information(lam))
    return TheoremSetting(given.exploration, lam, gamma)


class WorstCase(NamedTuple):
    """Λ ≤ R = ``information``, P ≤ ``syncs`` and β_{t,i} ≤ β̄ = ``beta`` in every run of Phase II with these λ and γ."""

    information: float
    syncs: float
    lam: float
    beta: float
    gamma: float

    @property
    def settings(self) -> Settings:
        """λ, β̄ and γ, to play with."""
        return Settings(self.lam, self.beta, self.gamma)


def worst_case(
    given: Premises,
    distance: Tensor | float,
    setting: TheoremSetting | None = None,
    *,
    curvature: Tensor | float | None = None,
    information: float | None = None,
) -> WorstCase:
    """λ, γ and the largest `radius` β̄ of the confidence lemma, after NT pulls, P synchronisations and Λ = R.

    λ and γ are those of the ``setting``, of `theorem_setting` unless given, ``information`` a bound on Λ that is better
    than R. ρ₀ = ``distance`` and C_h = ``curvature`` (that of the assumptions unless given) may be tensors with one
    entry for each run; β̄ is the largest.
    """
    _, lam, gamma = theorem_setting(given) if setting is None else setting
    information = given.information(lam) if information is None else information
    syncs = min(synchronisations(given.rounds, information, gamma), given.steps)
    beta = radius(
        *torch.tensor([information, given.steps, syncs], dtype=torch.float64),
        clients=given.clients,
        lam=lam,
        sigma=given.a.noise,
        distance=distance,
        curvature=given.a.curvature if curvature is None else curvature,
        delta=given.delta,
    )
    return WorstCase(information, syncs, lam, beta.max().item(), gamma)


def horizon_needed(
    a: Assumptions,
    clients: int,
    iota_: float,
    zeta: float = 0.0,
    concordance: float = 1.0,
    printed: bool = False,
) -> float:
    """T ≥ C²d_w²F⁴ι²/N · max{…}², which makes √(NT) ≥ `exploration_needed`; ``printed`` has C for C²."""
    needed = exploration_needed(a, iota_, zeta, concordance) ** 2 / clients
    return needed / C_DISTANCE if printed else needed


def theorem_error_printed(steps: int) -> float:
    """ε ≤ 8/(C√(NT)) (Theorem 1); it is 1/(C′T₀) of the lemmas only if C = 8C′."""
    return 8 / (C_DISTANCE * math.sqrt(steps))


class Totals(NamedTuple):
    """Bounds on the regret of both phases, on P and on the scalars sent."""

    phase_one: float
    phase_two: float
    syncs: float
    scalars: float

    @property
    def regret(self) -> float:
        """R_phaseI + R_phaseII."""
        return self.phase_one + self.phase_two


def theorem_printed(given: Premises, oracle_rounds: int, lam_scale: float = 1.0) -> Totals:
    """Theorem 1 with the constants of its own proof: radius, R_good, R_bad and P as printed, at its T₀, λ and γ."""
    a, steps, clients = given.a, given.steps, given.clients
    exploration, lam, gamma = theorem_setting_printed(given, lam_scale)
    beta = radius_printed(a, lam, steps, steps, exploration, given.delta).total
    information = information_bound(a.dimension, steps, a.slope, lam)
    good = good_regret_printed(beta, information, steps, a.curvature, lam)
    bad = bad_regret_printed(beta, information, clients, gamma, a.curvature, lam_scale)
    syncs = synchronisations_printed(given.rounds, information, gamma)
    first = phase_one_scalars(oracle_rounds, clients, a.dimension) - clients * a.dimension
    scalars = first + phase_two_scalars(syncs, clients, a.dimension)
    return Totals(regret_phase_one(exploration, a.value), good + bad, syncs, scalars)


def theorem(
    given: Premises,
    oracle_rounds: int,
    *,
    rho2: float | None = None,
    setting: TheoremSetting | None = None,
    information: float | None = None,
    epsilon: float = 0.0,
    line_three: bool = False,
) -> Totals:
    """The repaired theorem: with probability 1 − δ regret and scalars are at most these.

    ``rho2`` is a bound on ρ₀² (from `regression_risk` unless given), ``setting`` that of `theorem_setting` unless
    given, ``information`` Λ (its bound R unless given). The index is the first-order one, or line 3 over Ball ∩ W with
    ``line_three``. λ is any positive number: the regret of Phase II is item 3, in which no width counts for more than
    F/√β̄ and none is above C_g/√λ.
    """
    a, clients = given.a, given.clients
    setting = theorem_setting(given) if setting is None else setting
    if rho2 is None:
        rho2 = squared_distance(a, regression_risk(a, setting.exploration, given.delta, epsilon))
    rho = math.sqrt(rho2)
    worst = worst_case(given, rho, setting, information=information)
    excess = excess_first_order(a.curvature, rho)
    if line_three:
        excess = excess_in_ball(worst.beta, a.curvature, setting.lam, rho)
    second = regret_phase_two_clipped(
        worst.beta,
        worst.information,
        clients,
        given.rounds,
        setting.gamma,
        a.value,
        excess,
        widest=a.slope / math.sqrt(setting.lam),
    )
    first = phase_one_scalars(oracle_rounds, clients, a.dimension)
    scalars = first + phase_two_scalars(worst.syncs, clients, a.dimension)
    return Totals(regret_phase_one(setting.exploration, a.value), second.total, worst.syncs, scalars)


class Both(NamedTuple):
    """Theorem 1 as printed and repaired, for the same N, T and constants."""

    printed: Totals
    repaired: Totals


def both_theorems(given: Premises, oracle_rounds: int, scales: Iterable[float]) -> list[Both]:
    """Both theorems for every C in ``scales``: C_λ = C as printed, and λ = C·C_g² with γ = T/(NR), repaired.

    The oracle is as accurate as Lemmas 1 and 2 ask, 1/(C′T₀). The least over C is what a free λ can do for a bound.
    """
    epsilon, found = optimisation_error(given.exploration), []
    for scale in scales:
        setting = theorem_setting(given, scale * given.a.slope**2)
        repaired = theorem(given, oracle_rounds, setting=setting, epsilon=epsilon)
        found.append(Both(theorem_printed(given, oracle_rounds, scale), repaired))
    return found
