"""The analysis of the confidence set: log-determinants, and the squared radius β_{t,i} as printed and as repaired.

A function whose name ends in ``_printed`` evaluates the paper's statement; the one without is proved in the book. The
constants d_w, F, C_g, C_h, σ and μ are those of `fedgo.theory.assumptions`. There are N clients and T rounds; ŵ₀ is the
parameter that Phase I fits in T₀ pulls, and ρ₀ = ‖ŵ₀ − w*‖ its distance from the true one. Σ = λI + Σ_s g_s g_sᵀ is the
matrix of a client's pulls s with gradients g_s, and its log-ratio is Λ = ln(det Σ/det λI).
"""

import math

import torch
from torch import Tensor

from fedgo._checks import count, require
from fedgo.theory.assumptions import Assumptions, check_probability, check_regularisation
from fedgo.theory.oracle import squared_distance_printed


def information_bound(dimension: int, pulls: float, slope: float, lam: float) -> float:
    """Return R = d ln(1 + nC_g²/(dλ)), an upper bound on the log-ratio Λ after n pulls (lemma "log-det").

    ``dimension`` is the dimension d ≥ 1 of the span of the gradients, or a bound on it such as min(K, d_w) for K arms,
    and ``slope`` is C_g.
    """
    check_regularisation(lam)
    return dimension * math.log1p(pulls * slope**2 / (dimension * lam))


def radius_printed(
    a: Assumptions, lam: float, pulls: int, step: int, exploration: int, delta: float
) -> float:
    """Return the squared radius β_t of the printed confidence lemma, with its proof's constants.

    It is 4σ²(R + 2 ln(π²t²/(3δ))) + 4λρ₀² + 2C_h²ρ₀⁴nR, with R of `information_bound` and the printed bound on ρ₀² of
    Lemma 2 (`squared_distance_printed`). The lemma prints ln(π²t²/(3δ)) without the 2 before it, which its proof
    loses: it starts from ln(1/δ_t²) with δ_t = 3δ/(π²t²) (erratum E38).

    Args:
        a: The constants of the assumptions.
        lam: The regularisation weight λ > 0.
        pulls: The number n ≥ 0 of pulls in the client's model.
        step: The step t ≥ 1.
        exploration: The number T₀, with T₀C_h² > 1.
        delta: The failure probability δ.
    """
    check_probability(delta)
    rho2 = squared_distance_printed(a, exploration, delta)
    information = information_bound(a.dimension, pulls, a.slope, lam)
    union = 2 * math.log(math.pi**2 * step**2 / (3 * delta))
    linearisation = a.curvature**2 * rho2**2 * pulls * 2 * information
    return 4 * a.noise**2 * (information + union) + 4 * lam * rho2 + linearisation


def noise_radius(
    information: Tensor, syncs: Tensor | int | None, *, members: int, sigma: float, delta: float
) -> Tensor:
    """Return a bound on ‖Σ_s η_s g_s‖_{Σ⁻¹} for the noises η_s of a client's pulls, (...).

    It is σ√(Λ + 2 ln(π²m(p + 1)²/(6δ))), or σ√(Λ + 2 ln(m/δ)) if ``syncs`` is None, and holds for all m sums together
    with probability 1 − δ.

    Args:
        information: The log-ratio Λ of each sum, (...) float64.
        syncs: The number p of synchronisations before the step, an int or int64 (...); the bound holds for all p. With
            None each member has a single sum, over all its data.
        members: The number m ≥ 1 of sums at each step: N for one of each client, NK for one of each client and arm.
        sigma: The standard deviation σ.
        delta: The failure probability δ.
    """
    check_probability(delta)
    if syncs is None:
        return sigma * (information + 2 * math.log(members / delta)).sqrt()
    union = 2 * math.log(math.pi**2 * members / (6 * delta))
    # torch would take the logarithm of an int64 in float32
    epoch = torch.as_tensor(syncs + 1, dtype=torch.float64)
    return sigma * (information + (union + 4 * epoch.log())).sqrt()


def radius(
    information: Tensor,
    pulls: Tensor,
    syncs: Tensor | int,
    *,
    clients: int,
    lam: float,
    sigma: float,
    distance: Tensor | float,
    curvature: Tensor | float,
    delta: float,
) -> Tensor:
    """Return the squared radius β_{t,i} of the repaired confidence lemma for a client i at step t, (...).

    With probability 1 − δ/2, w* lies in the ball of every client at every step if √β_{t,i} = σ√(Λ + 2 ln(π²N(p +
    1)²/(3δ))) + √λ ρ₀ + ½C_h ρ₀²√|D_{t,i}|, where D_{t,i} are the pulls that the client knows.

    Args:
        information: The log-ratio Λ of the client's matrix, (...) float64.
        pulls: The number |D_{t,i}|, (...).
        syncs: The number p of synchronisations before the step, an int or int64 (...).
        clients: The number N of clients.
        lam: The regularisation weight λ > 0.
        sigma: The standard deviation σ.
        distance: The distance ρ₀, which only a simulation knows; a number or a tensor that broadcasts to (...).
        curvature: The bound C_h; a number or a tensor that broadcasts to (...).
        delta: The failure probability δ.
    """
    check_probability(delta)
    check_regularisation(lam)
    count("clients", clients, "give N, at least one client", most=math.inf)
    for name, values in (("sigma", sigma), ("distance", distance), ("curvature", curvature)):
        least = float(torch.as_tensor(values).min())
        require(least >= 0, name, least, "give a bound, at least 0")
    noise = noise_radius(information, syncs, members=clients, sigma=sigma, delta=delta / 2)
    return (noise + math.sqrt(lam) * distance + curvature / 2 * distance**2 * pulls.sqrt()).square()
