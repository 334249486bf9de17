"""Theorem 1 as printed and as repaired: bounds on the regret and the communication of both phases.

The printed regret is R_phaseI + R_good + R_bad, of Phase I and of the good and the bad epochs of Phase II, and the
communication is C_phaseI + C_phaseII, of both phases.
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
        arms: The number K ≥ 1 of arms, which is not checked, or None if there may be infinitely many.

    Raises:
        ValueError: N or T is below 1, or δ does not lie strictly between 0 and 1.
        TypeError: N or T is not a whole number.
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
        """The number NT of steps of Phase II, for N clients and T rounds."""
        return self.clients * self.rounds

    @property
    def exploration(self) -> int:
        """The number T₀ = ⌈√(NT)⌉ of pulls of Phase I, for N clients and T rounds."""
        return phase_one_length(self.clients, self.rounds, math.inf)

    def information(self, lam: float) -> float:
        """Return the bound R = d ln(1 + NTC_g²/(dλ)) on the log-ratio Λ = ln(det Σ/det λI) after NT pulls.

        Σ is λI plus the sum of g gᵀ over the gradients g of all pulls, by N clients in T rounds, ``lam`` is the
        regularisation weight λ, and C_g is the bound on the norms of the gradients. d is min(K, d_w) for K arms and d_w
        parameters, or d_w if the number K is None.

        Raises:
            ValueError: λ is not positive.
            ZeroDivisionError: K is 0.
            OverflowError: NT exceeds float64.
        """
        dimension = self.a.dimension if self.arms is None else min(self.arms, self.a.dimension)
        return information_bound(dimension, self.steps, self.a.slope, lam)


class TheoremSetting(NamedTuple):
    """The parameters of Fed-GO-UCB that a theorem prescribes.

    ``exploration`` is the number T₀ of pulls of Phase I, ``lam`` the regularisation weight λ, and ``gamma`` the
    threshold γ of the event that triggers a synchronisation.
    """

    exploration: int
    lam: float
    gamma: float


def theorem_setting_printed(given: Premises, lam_scale: float = 1.0) -> TheoremSetting:
    """Return T₀ = ⌈√(NT)⌉, λ = C_λ√(NT) and γ = d_wF⁴T/(μ²N), as printed in Theorem 1.

    T₀ is the number of pulls of Phase I, λ the regularisation weight, and γ the threshold of the event that triggers a
    synchronisation. ``given`` has the numbers N of clients and T of rounds and the constants of the assumptions: the
    number d_w of parameters, the bound F on the functions, and the growth μ. ``lam_scale`` is C_λ, which is not
    checked.
    """
    a = given.a
    gamma = a.dimension * a.value**4 * given.rounds / (a.growth**2 * given.clients)
    return TheoremSetting(given.exploration, lam_scale * math.sqrt(given.steps), gamma)


def theorem_setting(given: Premises, lam: float | None = None) -> TheoremSetting:
    """Return T₀ = ⌈√(NT)⌉, λ and γ = T/(NR) of the repaired theorem, which a learner can compute beforehand.

    T₀ is the number of pulls of Phase I, λ the regularisation weight, and γ the threshold of the event that triggers a
    synchronisation. ``given`` has the numbers N of clients and T of rounds, and its `Premises.information` is the bound
    R on the log-ratio ln(det Σ/det λI) of the matrix Σ of all pulls. ``lam`` is λ; if it is None, λ is C_g², the square
    of the bound on the norms of the gradients.

    Raises:
        ValueError: λ is not positive.
        ZeroDivisionError: R is 0, because λ is infinite or too large, or the number of arms is 0.
        OverflowError: NT exceeds float64.
    """
    lam = given.a.slope**2 if lam is None else lam
    gamma = given.rounds / (given.clients * given.information(lam))
    return TheoremSetting(given.exploration, lam, gamma)


class WorstCase(NamedTuple):
    """Bounds that hold in every run of Phase II with the given regularisation weight λ and threshold γ.

    Args:
        information: The bound R on the log-ratio ln(det Σ/det λI) of the matrix Σ of all pulls.
        syncs: The bound P̄ on the number P of synchronisations.
        lam: The regularisation weight λ.
        beta: The bound β̄ on the squared radii β_{t,i} of the confidence balls of all clients i at all steps t.
        gamma: The threshold γ of the event that triggers a synchronisation.
    """

    information: float
    syncs: float
    lam: float
    beta: float
    gamma: float

    @property
    def settings(self) -> Settings:
        """The regularisation weight λ, the squared radius β̄ and the threshold γ as the settings of Phase II.

        Messages are counted in the dense form.

        Raises:
            ValueError: λ is not positive or not finite, β̄ is negative or not finite, or γ is negative or NaN.
        """
        return Settings(self.lam, self.beta, self.gamma)


def worst_case(
    given: Premises,
    distance: Tensor | float,
    setting: TheoremSetting | None = None,
    *,
    curvature: Tensor | float | None = None,
) -> WorstCase:
    """Return bounds on the log-ratio Λ, the number P of synchronisations and the squared radius β after all pulls.

    R bounds Λ = ln(det Σ/det λI) of the matrix Σ of the NT pulls of N clients in T rounds. P̄ bounds P; it is at most
    NT, and need not be whole. β̄ is the squared radius of the repaired confidence lemma
    (`fedgo.theory.ball.radius`) of a client that knows all NT pulls, with R as its log-ratio and P̄ as the number
    of synchronisations before.

    Args:
        given: The premises.
        distance: The distance ρ₀ = ‖ŵ₀ − w*‖ of the fitted parameter from the true one, one number or one for each run,
            (S,); β̄ is the largest over the runs.
        setting: The regularisation weight λ and the threshold γ (its T₀ is not used); `theorem_setting` if it is None.
        curvature: The bound C_h on the second derivatives, one number or one for each run, (S,); that of the
            assumptions if it is None.

    Raises:
        ValueError: λ or γ is not positive, or ``distance`` or ``curvature`` is negative or NaN.
        RuntimeError: ``distance`` and ``curvature`` are given for different numbers of runs.
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
    """The bounds of a theorem on regret and communication.

    ``phase_one`` and ``phase_two`` bound the regret of the two phases, ``syncs`` bounds the number P of
    synchronisations, and ``scalars`` the number of scalars that are sent in both phases.
    """

    phase_one: float
    phase_two: float
    syncs: float
    scalars: float

    @property
    def regret(self) -> float:
        """The sum of the bounds on the regret of both phases."""
        return self.phase_one + self.phase_two


def theorem_printed(given: Premises, oracle_rounds: int, lam_scale: float = 1.0) -> Totals:
    """Return the bounds of Theorem 1 as printed, with the constants of its own proof.

    T₀ = ⌈√(NT)⌉ is the number of pulls of Phase I, λ = C_λ√(NT) the regularisation weight, and γ = d_wF⁴T/(μ²N) the
    threshold of the event, for N clients, T rounds, d_w parameters, the bound F on the functions and the growth μ.

    Args:
        given: The premises; the number of arms is not used.
        oracle_rounds: The number n of rounds of Algorithm 2.
        lam_scale: The factor C_λ in λ = C_λ√(NT).

    Returns:
        The bounds on the regret of each phase, on the number P of synchronisations, and on the number of scalars sent,
        which is 2nNd_w + 2PN(d_w² + d_w) with the bound in place of P.

    Raises:
        ValueError: C_λ is not positive, or T₀C_h² ≤ 1 with the bound C_h on the second derivatives, so that the proof
            of Lemma 1 does not hold.
    """
    a, steps, clients = given.a, given.steps, given.clients
    exploration, lam, gamma = theorem_setting_printed(given, lam_scale)
    beta = sum(radius_printed(a, lam, steps, steps, exploration, given.delta))
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

    The regret of Phase II is that of item 3 (`fedgo.theory.regret.regret_phase_two_clipped`), for any regularisation
    weight λ > 0. With the bound β̄ on the squared radii (`worst_case`) and the bounds F on the functions and C_g on
    their gradients, a width above F/√β̄ counts as F/√β̄, and no width is above C_g/√λ.

    Args:
        given: The premises, with N clients and d_w parameters.
        oracle_rounds: The number n of rounds of Algorithm 2.
        rho2: A bound on the squared distance ρ₀² = ‖ŵ₀ − w*‖² of the fitted parameter from the true one. If it is None,
            it is computed from `fedgo.theory.oracle.regression_risk`.
        setting: The number T₀ of pulls of Phase I, λ and the threshold γ; `theorem_setting` if it is None.
        epsilon: The optimisation error ϵ ≥ 0 of the oracle, which is not used if ``rho2`` is given.
        line_three: Whether the index of an arm x is that of line 3, the largest f_x(w) over the parameters w in the
            confidence ball and in the set W of the assumptions; if not, it is the first-order index.

    Returns:
        The bounds on the regret of each phase, on the number P of synchronisations, and on the number of scalars sent,
        which is (2n + 1)Nd_w + 2PN(d_w² + d_w) with the bound in place of P.

    Raises:
        ValueError: λ or γ is not positive, ``rho2`` is negative, or it is None, and T₀ is below 1 or the risk is too
            large for Lemma 2.
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
