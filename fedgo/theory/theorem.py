"""Theorem 1 as printed and repaired: R_total ≤ R_phaseI + R_good + R_bad and C_total = C_phaseI + C_phaseII."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count
from fedgo.phase_one import phase_one_length
from fedgo.phase_two import Settings
from fedgo.theory import phase_one, phase_two
from fedgo.theory.assumptions import Assumptions, check_probability
from fedgo.theory.confidence import information_bound, radius, radius_printed


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
) -> WorstCase:
    """λ, γ and the largest `radius` β̄ of the confidence lemma, after NT pulls, P synchronisations and Λ = R.

    λ and γ are those of the ``setting``, of `theorem_setting` unless given. ρ₀ = ``distance`` and C_h = ``curvature``
    (that of the assumptions unless given) may be tensors with one entry for each run; β̄ is the largest.
    """
    _, lam, gamma = theorem_setting(given) if setting is None else setting
    information = given.information(lam)
    syncs = min(phase_two.synchronisations(given.rounds, information, gamma), given.steps)
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
    beta = sum(radius_printed(a, lam, steps, steps, exploration, given.delta))
    information = information_bound(a.dimension, steps, a.slope, lam)
    good = phase_two.good_regret_printed(beta, information, steps, a.curvature, lam)
    bad = phase_two.bad_regret_printed(beta, information, clients, gamma, a.curvature, lam_scale)
    syncs = phase_two.synchronisations_printed(given.rounds, information, gamma)
    first = phase_one.phase_one_scalars(oracle_rounds, clients, a.dimension) - clients * a.dimension
    scalars = first + phase_two.phase_two_scalars(syncs, clients, a.dimension)
    return Totals(phase_two.regret_phase_one(exploration, a.value), good + bad, syncs, scalars)


def theorem(
    given: Premises,
    oracle_rounds: int,
    *,
    rho2: float | None = None,
    setting: TheoremSetting | None = None,
    epsilon: float = 0.0,
    line_three: bool = False,
) -> Totals:
    """The repaired theorem: with probability 1 − δ regret and scalars are at most these.

    ``rho2`` is a bound on ρ₀² (from `regression_risk` unless given), ``setting`` that of `theorem_setting` unless
    given. The index is the first-order one, or line 3 over Ball ∩ W with ``line_three``. The regret of Phase II is
    item 3, for any λ > 0: no width counts for more than F/√β̄, and none is above C_g/√λ.
    """
    a, clients = given.a, given.clients
    setting = theorem_setting(given) if setting is None else setting
    if rho2 is None:
        risk = phase_one.regression_risk(a, setting.exploration, given.delta, epsilon)
        rho2 = phase_one.squared_distance(a, risk)
    rho = math.sqrt(rho2)
    worst = worst_case(given, rho, setting)
    excess = phase_two.excess_first_order(a.curvature, rho)
    if line_three:
        excess = phase_two.excess_in_ball(worst.beta, a.curvature, setting.lam, rho)
    second = phase_two.regret_phase_two_clipped(
        worst.beta,
        worst.information,
        clients=clients,
        rounds=given.rounds,
        gamma=setting.gamma,
        value=a.value,
        excess=excess,
        widest=a.slope / math.sqrt(setting.lam),
    )
    first = phase_two.regret_phase_one(setting.exploration, a.value)
    oracle = phase_one.phase_one_scalars(oracle_rounds, clients, a.dimension)
    scalars = oracle + phase_two.phase_two_scalars(worst.syncs, clients, a.dimension)
    return Totals(first, second.total, worst.syncs, scalars)
