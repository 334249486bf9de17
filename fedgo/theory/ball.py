"""The analysis of the confidence set: log-determinants, and the squared radius β_{t,i} as printed and as repaired.

A function whose name ends in ``_printed`` evaluates the paper's statement; the one without is proved in the book. Σ =
λI + Σ_s g_s g_sᵀ is the matrix of a client's pulls s with gradients g_s, and its log-ratio is Λ = ln(det Σ/det λI).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, require
from fedgo.theory.assumptions import Assumptions, check_probability, check_regularisation
from fedgo.theory.oracle import squared_distance_printed


def information_bound(dimension: int, pulls: float, slope: float, lam: float) -> float:
    """Return R = d ln(1 + nC_g²/(dλ)), an upper bound on the log-ratio Λ = ln(det Σ/det λI) (lemma "log-det").

    Σ is λI plus the sum of g gᵀ over the gradients g of n pulls.

    Args:
        dimension: The dimension d ≥ 1 of the space that the gradients span, or an upper bound on it such as min(K, d_w)
            for K arms and d_w parameters.
        pulls: The number n of pulls.
        slope: The bound C_g on the norm of each gradient.
        lam: The regularisation weight λ > 0.

    Raises:
        ValueError: λ is not positive.
        ZeroDivisionError: d is 0.
    """
    check_regularisation(lam)
    return dimension * math.log1p(pulls * slope**2 / (dimension * lam))


def tabular_information(counts: Tensor, known: Tensor | float = 0.0) -> Tensor:
    """Return Λ = Σ_x ln((1 + n_x)/(1 + n⁰_x)), (...), the log-ratio ln(det(I + diag n)/det(I + diag n⁰)).

    This is the log-ratio of a model with one parameter for each of K arms x and the regularisation weight λ = 1. After
    NT pulls of Phase II, by N clients in T rounds, it is at most K ln(1 + NT/K).

    Args:
        counts: The number of pulls n_x of each arm, those before Phase II included, (..., K).
        known: The number of pulls n⁰_x that were made before Phase II, (..., K), or one number for all arms.
    """
    before = torch.as_tensor(known, dtype=torch.float64)
    return ((1 + counts) / (1 + before)).log().sum(-1)


class Terms(NamedTuple):
    """The three terms of the squared radius β_t of the printed confidence lemma at step t (`radius_printed`).

    β_t is their sum.

    ``noise`` is the term of the rewards' noise, ``regularisation`` that of the regularisation weight λ, and
    ``linearisation`` that of the network's second derivatives.
    """

    noise: float
    regularisation: float
    linearisation: float


def radius_printed(
    a: Assumptions, lam: float, pulls: int, step: int, exploration: int, delta: float
) -> Terms:
    """Return the three terms of the squared radius β_t of the printed confidence lemma, with its proof's constants.

    They are 4σ²(d_w ln(1 + nC_g²/(d_wλ)) + 2 ln(π²t²/(3δ))), 4λρ₀² and C_h²ρ₀⁴ n d_wι″, with ι″ = 2 ln(1 +
    nC_g²/(d_wλ)). The printed bound of Lemma 2 takes the place of ρ₀² = ‖ŵ₀ − w*‖², the squared distance of the fitted
    parameter ŵ₀ from the true one w* (`fedgo.theory.oracle.squared_distance_printed`). The first term contains the
    factor 2 of ln(1/δ_t²), with δ_t = 3δ/(π²t²), which the proof loses.

    Args:
        a: The constants of the assumptions: the number d_w of parameters, the bounds F, C_g and C_h on the functions
            and their first and second derivatives, the noise level σ, and the growth μ.
        lam: The regularisation weight λ > 0.
        pulls: The number n ≥ 0 of pulls in the client's model.
        step: The step t, counted from 1.
        exploration: The number T₀ of pulls of Phase I.
        delta: The failure probability δ.

    Raises:
        ValueError: δ or λ is out of range, T₀C_h² ≤ 1, or t is 0.
    """
    check_probability(delta)
    rho2 = squared_distance_printed(a, exploration, delta)
    information = information_bound(a.dimension, pulls, a.slope, lam)
    union = 2 * math.log(math.pi**2 * step**2 / (3 * delta))
    return Terms(
        4 * a.noise**2 * (information + union),
        4 * lam * rho2,
        a.curvature**2 * rho2**2 * pulls * 2 * information,
    )


def noise_radius(
    information: Tensor, syncs: Tensor | int | None, *, members: int, sigma: float, delta: float
) -> Tensor:
    """Return a bound on the self-normalised sums of the noise that holds for all of them with probability 1 − δ, (...).

    A sum is ‖Σ_s η_s g_s‖_{Σ⁻¹} over the pulls s in a client's data, with the noise η_s of the reward, the gradient g_s
    of the arm, and the matrix Σ = λI + Σ_s g_s g_sᵀ. The bound is σ√(Λ + 2 ln(π²m(p + 1)²/(6δ))), and σ√(Λ + 2 ln(m/δ))
    if ``syncs`` is None.

    Args:
        information: The log-ratio Λ = ln(det Σ/det λI) of each sum, (...) float64.
        syncs: The number p of synchronisations before the step, an int or int64 (...); the bound holds for all p
            together. With None there is one sum of each member, over all its data.
        members: The number m ≥ 1 of sums at each step: N for one sum of each of N clients, NK for one of each of K arms
            and each client.
        sigma: The standard deviation σ of a reward's noise.
        delta: The failure probability δ.

    Raises:
        ValueError: δ does not lie strictly between 0 and 1, or m is below 1.
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
    """Return the squared radius β_{t,i} of the repaired confidence lemma at step t for client i, (...).

    With probability 1 − δ/2 the true parameter w* lies in the confidence ball of every client i at every step t if
    √β_{t,i} = σ√(ln(det Σ/det λI) + 2 ln(π²N(p + 1)²/(3δ))) + √λ ρ₀ + ½C_h ρ₀²√|D_{t,i}|. Σ is λI plus the sum of g gᵀ
    over the gradients g of the pulls in the client's data D_{t,i}.

    Args:
        information: The log-ratio ln(det Σ/det λI) of the client's matrix Σ, (...) float64.
        pulls: The number |D_{t,i}| of pulls in the client's data, a tensor (...).
        syncs: The number p of synchronisations before the step, an int or an int64 tensor (...).
        clients: The number N of clients.
        lam: The regularisation weight λ > 0.
        sigma: The standard deviation σ of a reward's noise.
        distance: The distance ρ₀ = ‖ŵ₀ − w*‖ of the parameter of Phase I from the true one, which only a simulation
            knows; one number, or a tensor that broadcasts to (...).
        curvature: The bound C_h on the second derivatives; one number, or a tensor that broadcasts to (...).
        delta: The failure probability δ.

    Raises:
        ValueError: δ does not lie strictly between 0 and 1, λ is not positive, N is below 1, or σ, ρ₀ or C_h is
            negative or NaN.
        TypeError: ``clients`` is not a whole number.
    """
    check_probability(delta)
    check_regularisation(lam)
    count("clients", clients, "give N, at least one client", most=math.inf)
    for name, values in (("sigma", sigma), ("distance", distance), ("curvature", curvature)):
        least = float(torch.as_tensor(values).min())
        require(least >= 0, name, least, "give a bound, at least 0")
    noise = noise_radius(information, syncs, members=clients, sigma=sigma, delta=delta / 2)
    return (noise + math.sqrt(lam) * distance + curvature / 2 * distance**2 * pulls.sqrt()).square()
