"""Every bound of the paper's analysis with explicit constants, as printed and, where that is wrong, repaired.

R_total ≤ R_phaseI + R_good + R_bad and C_total = C_phaseI + C_phaseII (Theorem 1), from the lemmas up. A function
with ``_printed`` is the paper's statement, kept to be tested; the one without is proved in the book's chapters on
theory. "ln" is natural throughout; distances are to the w* named (any zero of L; the nearest to ŵ₀ is best).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch

from fedgo.checks import require
from fedgo.confidence import radius
from fedgo.oracle import phase_one_length

# C″, C′ and C of Lemmas 1 and 2 for α = ½: 8 covers 3·2·ln 2, 4 (with ln(4/δ) ≤ 2 ln(2/δ)) and 2; C′ = 2C″, C = 2C′.
C_NET, C_RISK, C_DISTANCE = 8.0, 16.0, 32.0

# The largest x with x ≤ 2 ln(1 + x): the elliptical potential lemma needs C_g²/λ ≤ 2.51….
LARGEST_INCREMENT = 2.512862417252339


@dataclass(frozen=True)
class Assumptions:
    """What Assumptions 1–3 provide: d_w = ``dimension``, |f_x| ≤ F = ``value``, ‖∇f_x‖ ≤ C_g = ``slope``,
    ‖∇²f_x‖ ≤ C_h = ``curvature``, noise σ = ``noise``, and growth min{μr²/2, τr^g/2} ≤ L with μ = ``growth``,
    τ = ``tail``, g = ``exponent``."""

    dimension: int
    value: float
    slope: float
    curvature: float
    noise: float
    growth: float
    tail: float = math.inf
    exponent: float = 1.0

    def __post_init__(self) -> None:
        require(self.dimension >= 1, "dimension", self.dimension, "give d_w, at least 1")
        for name, symbol in (("value", "F"), ("slope", "C_g"), ("growth", "μ"), ("tail", "τ")):
            given = getattr(self, name)
            remedy = f"give {symbol} > 0 (Assumptions 2 and 3)"
            if name == "growth":
                remedy += "; with fewer arms than parameters it is 0, and no bound of the paper exists"
            require(given > 0, name, given, remedy)
        for name, symbol in (("curvature", "C_h"), ("noise", "σ")):
            require(getattr(self, name) >= 0, name, getattr(self, name), f"give {symbol} ≥ 0")
        require(0 < self.exponent < 2, "exponent", self.exponent, "Assumption 3 has 0 < γ < 2")


# --- Phase I -------------------------------------------------------------------------------------------------------


def finite_risk_printed(
    size: int, data: int, delta: float, value: float, epsilon: float = 0.0, alpha: float = 0.5
) -> float:
    """E(f̃ − f*)² of an ε-approximate minimiser over ``size`` functions that contain f* (lemma "Risk bounds").

    Invalid: the noise level does not appear, and neither does F² at ln(2/δ).
    """
    _sample(size, data, delta)
    require(0 < alpha < 1, "alpha", alpha, "the bound divides by 1 − α: give α in (0, 1)")
    first = (1 + alpha) / (1 - alpha) * value**2 * math.log(size) * math.log(2) / (data * alpha)
    return first + 2 * math.log(2 / delta) / (data * alpha) + epsilon / (1 - alpha)


def finite_risk(
    size: int, data: int, delta: float, value: float, noise: float, epsilon: float = 0.0
) -> float:
    """E(f̃ − f*)² ≤ (16σ² + 32F²) ln(2|F|/δ)/t + 4ε with probability 1 − δ, for independent uniform x_s."""
    _sample(size, data, delta)
    return (16 * noise**2 + 32 * value**2) * math.log(2 * size / delta) / data + 4 * epsilon


def iota(a: Assumptions, exploration: int, delta: float) -> float:
    """ι = ln(T₀C_h²) + ln(2/δ), the logarithm of Lemma 1 as the appendix ends it; a ``ValueError`` if not positive."""
    _probability(delta)
    found = math.log(exploration * a.curvature**2) if a.curvature else -math.inf
    require(
        found > 0,
        "T₀C_h²",
        exploration * a.curvature**2,
        "the proof of Lemma 1 needs ln(T₀C_h²) > 0; the repaired bound has C_g instead",
    )
    return found + math.log(2 / delta)


def regression_risk_printed(a: Assumptions, exploration: int, delta: float) -> float:
    """E(f_x(ŵ₀) − f_x(w*))² ≤ C′d_wF²ι/T₀ (Lemma 1); needs an optimisation error of at most 1/(C′T₀)."""
    return C_RISK * a.dimension * a.value**2 * iota(a, exploration, delta) / exploration


def optimisation_error(exploration: int) -> float:
    """ε ≤ 1/(C′T₀), what Lemmas 1 and 2 ask of the oracle."""
    require(exploration >= 1, "exploration", exploration, "give T₀, at least one pull")
    return 1 / (C_RISK * exploration)


def covering(dimension: int, radius: float) -> float:
    """ln of the size of an ℓ₂-net of [0, 1]^d: d ln⌈√d/(2ρ)⌉, cubes of side 2ρ/√d.

    The paper's d ln(1/ρ) is the size of an ℓ_∞-net, while C_g is a Lipschitz constant in ℓ₂.
    """
    require(radius > 0, "radius", radius, "give ρ > 0")
    return dimension * math.log(math.ceil(math.sqrt(dimension) / (2 * radius)))


def regression_risk(
    a: Assumptions, exploration: int, delta: float, epsilon: float = 0.0, radius: float | None = None
) -> float:
    """E(f_x(ŵ₀) − f_x(w*))² with probability 1 − δ/2, for every ŵ₀ in W = [0, 1]^d_w with L̂(ŵ₀) ≤ min L̂ + ε.

    (25σ² + 40F²)A + 12.5C_gρσ(1 + √(2u/T₀) + √(2A)) + 6.25ε + 17.5C_g²ρ², with u = ln(6/δ) and
    A = (u + d_w ln⌈√d_w/(2ρ)⌉)/T₀, for any radius ρ of the net (1/(C_gT₀) unless said).
    """
    _probability(delta)
    require(exploration >= 1, "exploration", exploration, "give T₀, at least one pull")
    rho = 1 / (a.slope * exploration) if radius is None else radius
    u = math.log(6 / delta)
    share = (u + covering(a.dimension, rho)) / exploration
    spread = 1 + math.sqrt(2 * u / exploration) + math.sqrt(2 * share)
    return (
        (25 * a.noise**2 + 40 * a.value**2) * share
        + 12.5 * a.slope * rho * a.noise * spread
        + 6.25 * epsilon
        + 17.5 * (a.slope * rho) ** 2
    )


def growth_limit(a: Assumptions) -> float:
    """The loss below which the growth condition is quadratic: τ^{2/(2−g)}μ^{−g/(2−g)}/2 (from Lemma 2)."""
    power = 2 - a.exponent
    return math.pow(a.tail, 2 / power) * math.pow(a.growth, -a.exponent / power) / 2


def squared_distance(a: Assumptions, risk: float) -> float:
    """ρ₀² = |ŵ₀ − w*|² ≤ 2L(ŵ₀)/μ where L(ŵ₀) ≤ ``risk`` (Lemma 2), w* the projection of ŵ₀ on the zeros of L.

    A ``ValueError`` unless the risk is below `growth_limit`, where the quadratic branch of the growth holds.
    """
    limit = growth_limit(a)
    require(risk < limit, "risk", risk, f"Lemma 2 needs L(ŵ₀) < {limit:.3g}, the growth's quadratic range")
    return 2 * risk / a.growth


def squared_distance_printed(a: Assumptions, exploration: int, delta: float) -> float:
    """ρ₀² ≤ C d_wF²ι/(μT₀) (Lemma 2, the paper's constant)."""
    return C_DISTANCE * a.dimension * a.value**2 * iota(a, exploration, delta) / (a.growth * exploration)


def exploration_needed(a: Assumptions, iota_: float, zeta: float = 0.0, concordance: float = 1.0) -> float:
    """T₀ ≥ C d_wF²ι max{μ^{g/(2−g)}/τ^{2/(2−g)}, ζ/(μc²)} (Lemma 2); ζ = 0 leaves the part that is needed."""
    growth = 1 / (2 * growth_limit(a))
    return C_DISTANCE * a.dimension * a.value**2 * iota_ * max(growth, zeta / (a.growth * concordance**2))


def phase_one_scalars(rounds: int, clients: int, dimension: int) -> int:
    """C_phaseI = (2n + 1)Nd_w: n gradients up and n iterates down, and ŵ₀ (the paper's 2nNd_w forgets it)."""
    return (2 * rounds + 1) * clients * dimension


# --- The confidence set --------------------------------------------------------------------------------------------


def information_bound(dimension: int, pulls: float, slope: float, lam: float) -> float:
    """R = d ln(1 + nC_g²/(dλ)) ≥ ln det Σ/det λI (lemma "log-det"); d = min(K, d_w) with K arms."""
    _regularisation(lam)
    return dimension * math.log1p(pulls * slope**2 / (dimension * lam))


class Terms(NamedTuple):
    """The three terms of a squared radius β."""

    noise: float
    regularisation: float
    linearisation: float

    @property
    def total(self) -> float:
        """Their sum."""
        return sum(self)


def radius_printed(
    a: Assumptions, lam: float, pulls: int, step: int, exploration: int, delta: float, lost: bool = False
) -> Terms:
    """β_t of the confidence lemma in the explicit form of its proof: three terms of (a + b + c)² ≤ 4(a² + b² + c²).

    4σ²(d_w ln(1 + nC_g²/(d_wλ)) + 2 ln(π²t²/(3δ))), 4λρ², C_h²ρ⁴ n d_wι″ with ρ² = `squared_distance_printed` and
    ι″ = 2 ln(1 + nC_g²/(d_wλ)). The proof loses the factor 2 of ln(1/δ_t²); ``lost`` leaves it out as well.
    """
    _probability(delta)
    rho2 = squared_distance_printed(a, exploration, delta)
    information = information_bound(a.dimension, pulls, a.slope, lam)
    union = (1 if lost else 2) * math.log(math.pi**2 * step**2 / (3 * delta))
    return Terms(
        4 * a.noise**2 * (information + union),
        4 * lam * rho2,
        a.curvature**2 * rho2**2 * pulls * 2 * information,
    )


# --- Phase II ------------------------------------------------------------------------------------------------------


def potential_bound(information: float, lam: float, slope: float) -> float:
    """Σ_s ‖g_s‖²_{Σ_{s−1}⁻¹} ≤ 2 ln det Σ/det λI (elliptical potential lemma), along one sequence of growing Σ.

    A ``ValueError`` unless λ ≥ C_g²/2.5129, without which the lemma is false.
    """
    require_regularisation(lam, slope)
    return 2 * information


def require_regularisation(lam: float, slope: float) -> None:
    """The condition λ ≥ C_g²/2.5129 of the elliptical potential lemma, which the paper does not state."""
    least = slope**2 / LARGEST_INCREMENT
    require(
        lam >= least,
        "lam",
        lam,
        f"the elliptical potential lemma needs λ ≥ C_g²/2.5129 = {least:.4g}",
    )


def excess_printed(beta: float, curvature: float, lam: float) -> float:
    """2βC_h/λ, the second-order part of the instantaneous regret as printed (lemma "Instantaneous regret")."""
    _regularisation(lam)
    return 2 * beta * curvature / lam


def excess_in_ball(beta: float, curvature: float, lam: float, distance: float) -> float:
    """κ = 2C_h(s² + sρ₀), s² = β/λ: line 3 over Ball ∩ W with gradients at ŵ₀ (3βC_h/λ where ρ₀ ≤ s/2)."""
    _regularisation(lam)
    reach = math.sqrt(beta / lam)
    return 2 * curvature * (reach**2 + reach * distance)


def excess_first_order(curvature: float, distance: float) -> float:
    """κ = C_hρ₀² for the first-order index: r_t ≤ 2√β‖g_t‖ + κ, with no β in it."""
    return curvature * distance**2


def synchronisations_printed(rounds: float, information: float, gamma: float) -> float:
    """P ≤ 2√(TR/γ) (false: a term R/γ is missing)."""
    _threshold(gamma)
    return 2 * math.sqrt(rounds * information / gamma)


def synchronisations(rounds: float, information: float, gamma: float) -> float:
    """P ≤ Λ/(2γ) + √(Λ²/(4γ²) + TΛ/γ) for Λ ≥ ln det Σ_NT/det λI and round robin (at most √(TΛ/γ) + Λ/γ)."""
    _threshold(gamma)
    half = information / (2 * gamma)
    return half + math.sqrt(half**2 + rounds * information / gamma)


def phase_two_scalars(syncs: float, clients: int, dimension: int) -> float:
    """C_phaseII = 2PN(d_w² + d_w)."""
    return 2 * syncs * clients * dimension * (dimension + 1)


def regret_phase_one(exploration: int, value: float) -> float:
    """R_phaseI ≤ 2T₀F."""
    return 2 * exploration * value


def good_regret_printed(
    beta: float, information: float, steps: int, curvature: float, lam: float, excess: float = 2.0
) -> float:
    """R_good ≤ √(NT)·√(16eβR + 2κ²NT), κ = ``excess`` · βC_h/λ: 2 as printed (2κ² = 8β²C_h²/λ²), 3 as corrected."""
    return math.sqrt(steps) * math.sqrt(
        16 * math.e * beta * information + 2 * (excess * beta * curvature / lam) ** 2 * steps
    )


def bad_regret_printed(
    beta: float, information: float, clients: int, gamma: float, curvature: float, lam_scale: float
) -> float:
    """R_bad ≤ RN√(16βγ + 8β²C_h²/C_λ²) as printed (false where an epoch gives a client more than √(NT) pulls)."""
    return information * clients * math.sqrt(16 * beta * gamma + 8 * (beta * curvature / lam_scale) ** 2)


class PhaseTwoRegret(NamedTuple):
    """The repaired R_phaseII ≤ R_good + R_bad + the second-order part, which is summed once over all steps."""

    good: float
    bad: float
    second_order: float

    @property
    def total(self) -> float:
        """Their sum."""
        return sum(self)


def regret_phase_two(
    beta: float, information: float, clients: int, rounds: int, gamma: float, value: float, excess: float
) -> PhaseTwoRegret:
    """2√(2eβNTΛ) + ⌊Λ⌋(2√2 N√(βγ) + 2F) + NTκ, κ = ``excess``, Λ = ``information``, β bounding every β_{t,i}.

    Holds where w* lies in every ball and λ ≥ C_g²/2.5129 (`require_regularisation`); Λ may be realised or R.
    """
    steps = clients * rounds
    good = 2 * math.sqrt(2 * math.e * beta * steps * information)
    bad = math.floor(information) * (2 * math.sqrt(2) * clients * math.sqrt(beta * gamma) + 2 * value)
    return PhaseTwoRegret(good, bad, steps * excess)


# --- Theorem 1 -----------------------------------------------------------------------------------------------------


class TheoremSetting(NamedTuple):
    """T₀, λ and γ of a theorem."""

    exploration: int
    lam: float
    gamma: float


def theorem_setting_printed(
    a: Assumptions, clients: int, rounds: int, lam_scale: float = 1.0
) -> TheoremSetting:
    """T₀ = ⌈√(NT)⌉, λ = C_λ√(NT), γ = d_wF⁴T/(μ²N) (Theorem 1); C_λ = ``lam_scale``."""
    exploration = phase_one_length(clients, rounds)
    gamma = a.dimension * a.value**4 * rounds / (a.growth**2 * clients)
    return TheoremSetting(exploration, lam_scale * math.sqrt(clients * rounds), gamma)


def theorem_setting(a: Assumptions, clients: int, rounds: int, arms: int | None = None) -> TheoremSetting:
    """T₀ = ⌈√(NT)⌉, λ = C_g² and γ = T/(NR), which a learner can compute (the repaired theorem)."""
    lam = a.slope**2
    dimension = a.dimension if arms is None else min(arms, a.dimension)
    information = information_bound(dimension, clients * rounds, a.slope, lam)
    return TheoremSetting(phase_one_length(clients, rounds), lam, rounds / (clients * information))


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


def theorem_printed(
    a: Assumptions, clients: int, rounds: int, delta: float, oracle_rounds: int, lam_scale: float = 1.0
) -> Totals:
    """Theorem 1 with the constants of its own proof: radius, R_good, R_bad and P as printed, at its T₀, λ and γ."""
    steps = clients * rounds
    setting = theorem_setting_printed(a, clients, rounds, lam_scale)
    beta = radius_printed(a, setting.lam, steps, steps, setting.exploration, delta).total
    information = information_bound(a.dimension, steps, a.slope, setting.lam)
    good = good_regret_printed(beta, information, steps, a.curvature, setting.lam)
    bad = bad_regret_printed(beta, information, clients, setting.gamma, a.curvature, lam_scale)
    syncs = synchronisations_printed(rounds, information, setting.gamma)
    first = phase_one_scalars(oracle_rounds, clients, a.dimension) - clients * a.dimension
    return Totals(
        regret_phase_one(setting.exploration, a.value),
        good + bad,
        syncs,
        first + phase_two_scalars(syncs, clients, a.dimension),
    )


def theorem(
    a: Assumptions,
    clients: int,
    rounds: int,
    delta: float,
    oracle_rounds: int,
    *,
    rho2: float | None = None,
    setting: TheoremSetting | None = None,
    information: float | None = None,
    epsilon: float = 0.0,
    arms: int | None = None,
    line_three: bool = False,
) -> Totals:
    """The repaired theorem: with probability 1 − δ regret and scalars are at most these.

    ``rho2`` is a bound on ρ₀² (from `regression_risk` unless given), ``setting`` that of `theorem_setting` unless
    given, ``information`` Λ (its bound R unless given), ``arms`` the number K of arms if finite. The index is the
    first-order one, or line 3 over Ball ∩ W with ``line_three``.
    """
    steps = clients * rounds
    setting = theorem_setting(a, clients, rounds, arms) if setting is None else setting
    require_regularisation(setting.lam, a.slope)
    if rho2 is None:
        rho2 = squared_distance(a, regression_risk(a, setting.exploration, delta, epsilon))
    dimension = a.dimension if arms is None else min(arms, a.dimension)
    if information is None:
        information = information_bound(dimension, steps, a.slope, setting.lam)
    syncs = min(synchronisations(rounds, information, setting.gamma), steps)
    rho = math.sqrt(rho2)
    most = [torch.tensor(bound, dtype=torch.float64) for bound in (information, steps, syncs)]
    beta = radius(
        *most,
        clients=clients,
        lam=setting.lam,
        sigma=a.noise,
        distance=rho,
        curvature=a.curvature,
        delta=delta,
    ).item()
    excess = (
        excess_in_ball(beta, a.curvature, setting.lam, rho)
        if line_three
        else excess_first_order(a.curvature, rho)
    )
    second = regret_phase_two(beta, information, clients, rounds, setting.gamma, a.value, excess)
    scalars = phase_one_scalars(oracle_rounds, clients, a.dimension) + phase_two_scalars(
        syncs, clients, a.dimension
    )
    return Totals(regret_phase_one(setting.exploration, a.value), second.total, syncs, scalars)


def _probability(delta: float) -> None:
    require(0 < delta < 1, "delta", delta, "give a failure probability δ in (0, 1)")


def _sample(size: int, data: int, delta: float) -> None:
    _probability(delta)
    require(size >= 1, "size", size, "give |F|, at least one function")
    require(data >= 1, "data", data, "give t, at least one datum")


def _threshold(gamma: float) -> None:
    require(gamma > 0, "gamma", gamma, "with γ = 0 every step synchronises: P = NT")


def _regularisation(lam: float) -> None:
    require(lam > 0, "lam", lam, "give λ > 0; Σ must be positive definite")
