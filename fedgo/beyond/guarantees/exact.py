"""Theorem S: on finitely many arms the linearisation at ŵ₀ is exact, so Phase II is a linear bandit without remainder.

Phase I fits the parameter ŵ₀, with d_w entries, of the network f_x(w). Let f be the vector of the K arms' mean rewards
f(x) and f(ŵ₀) that of the network's values. Let the rows g_x of G be the K gradients ∇f_x(ŵ₀), and let G have rank K.
Then, with the pseudo-inverse G⁺, the parameter w̃ = ŵ₀ + G⁺(f − f(ŵ₀)) has f_x(ŵ₀) + g_xᵀ(w̃ − ŵ₀) = f(x) for every arm
x. In the space of arms Q = GGᵀ/λ is the prior covariance of f, with the regularisation weight λ. If n has the number of
pulls of each arm, A = Q⁻¹ + diag(n) is the precision, V = A⁻¹ the covariance, and m the mean of the posterior. With N
clients, σ-sub-Gaussian noise and p synchronisations so far,

    |m − f|_A ≤ √β_{t,i} = σ√(ln det QA + 2 ln(π²N(p + 1)²/(6δ))) + |f − f(ŵ₀)|_{Q⁻¹}

for all clients i and steps t with probability 1 − δ, conditional on Phase I. The code factorises A and not the matrix
Σ = λI + Gᵀdiag(n)G of the parameters, because the factor of A is accurate in float64 also for λ as small as 1e-12, for
which Σ may not be positive definite up to rounding. The code refuses gradients whose rank is below K, which is always
the case if K > d_w.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import require
from fedgo.beyond.guarantees.intervals import Bounds, Interval, clipped
from fedgo.confidence import Tally, compress
from fedgo.phase_one import Start
from fedgo.problem import Problem
from fedgo.theory.ball import information_bound, noise_radius
from fedgo.theory.regret import PhaseTwoRegret, regret_phase_two_clipped, synchronisations

# gradients do not have full rank if the least singular value is at most this share of the largest
_RANK = 1e-8


def least_singular(gradients: Tensor) -> Tensor:
    """Return σ_min(G), (...), the least singular value of the matrix G of the K arms' gradients.

    Args:
        gradients: The gradients G of a network with d_w parameters, one row for each arm, (..., K, d_w). They have to
            be finite.

    Raises:
        ValueError: The rank of G counts as below K, because K > d_w or because σ_min(G) is at most 1e-8 times the
            largest singular value.
        RuntimeError: A gradient is NaN.
    """
    values: Tensor = torch.linalg.svdvals(gradients)
    least, most = values[..., -1], values[..., 0]
    full = (least > _RANK * most) & (gradients.shape[-2] <= gradients.shape[-1])
    remedy = "the linearisation is exact only for gradients of rank K: give fewer arms or a wider network"
    smallest = torch.where(full, least, 0.0).min().item()
    require(bool(full.all()), "the least singular value of the gradients", smallest, remedy)
    return least


def computable_lam(gradients: Tensor, offsets: Tensor, value: float, sigma: float) -> Tensor:
    """Return a regularisation weight λ with √λ‖w̃ − ŵ₀‖ ≤ σ that a client can compute without knowing w̃, (...).

    It is λ = (σ·σ_min(G)/√Σ_x(F + |f_x(ŵ₀)|)²)², with the least singular value σ_min(G). Here ŵ₀ is the parameter that
    Phase I has fitted, f_x(ŵ₀) the network's value at the arm x, and w̃ the parameter at which the network linearised
    at ŵ₀ equals the mean rewards of all K arms.

    Args:
        gradients: The gradients G of the network at ŵ₀, one row for each arm, (..., K, d_w) for d_w parameters.
        offsets: The network's value f_x(ŵ₀) at each arm, (..., K).
        value: F > 0, a bound on |f(x)| for the mean reward f(x) of every arm x.
        sigma: σ > 0, such that the noise of a reward is σ-sub-Gaussian.

    Raises:
        ValueError: G does not have rank K, up to rounding (`least_singular`).
        RuntimeError: A gradient is NaN.
    """
    farthest: Tensor = (value + offsets.abs()).norm(dim=-1)
    return (sigma * least_singular(gradients) / farthest).square()


class Belief(NamedTuple):
    """The Gaussian posterior of the K arms' mean rewards after some pulls, for rewards whose noise has variance 1.

    Args:
        mean: The posterior mean m of each arm, (..., K).
        width: The width w_x = √V_xx of each arm, (..., K), with the posterior covariance V = A⁻¹.
        precision: The lower Cholesky factor of the precision A = Q⁻¹ + diag(n), (..., K, K), with the prior covariance
            Q and the number n of pulls of each arm.
        information: The log-determinant ln det QA, (...), with Q and A as above. Before the first pull it is 0 up to
            rounding.
    """

    mean: Tensor
    width: Tensor
    precision: Tensor
    information: Tensor

    def distance(self, means: Tensor) -> Tensor:
        """Return the distance from the posterior mean m to the mean rewards f = ``means`` (..., K) of K arms, (...).

        It is |m − f|_A = √((m − f)ᵀA(m − f)), with the precision A of the posterior.
        """
        away: Tensor = (self.precision.mT @ (means - self.mean).unsqueeze(-1)).squeeze(-1).norm(dim=-1)
        return away


class Prior(NamedTuple):
    """The Gaussian prior of the K arms' mean rewards, with mean f₀ and covariance Q.

    Args:
        factor: The lower triangular factor L of Q = LLᵀ, (..., K, K). Entries of its diagonal may be negative.
        offsets: The prior mean f₀ of each arm, (..., K).
    """

    factor: Tensor
    offsets: Tensor

    @classmethod
    def of(cls, gradients: Tensor, offsets: Tensor, lam: Tensor | float) -> "Prior":
        """Return the Gaussian prior of K arms' mean rewards, with mean f₀ and covariance Q = GGᵀ/λ.

        Its factor of Q comes from a QR decomposition of Gᵀ/√λ.

        Args:
            gradients: The gradients G of the network at the parameter ŵ₀ that Phase I has fitted, one row for each arm,
                (..., K, d_w) for d_w parameters.
            offsets: The prior mean f₀ of each arm, (..., K).
            lam: The regularisation weight λ > 0, a number or (...).

        Raises:
            ValueError: λ is not positive, or G does not have rank K, up to rounding (`least_singular`).
            RuntimeError: A gradient is NaN.
        """
        lam = torch.as_tensor(lam, dtype=torch.float64)
        require(bool((lam > 0).all()), "lam", lam.min().item(), "give a positive regularisation weight λ")
        least_singular(gradients)
        return cls(compress(gradients / lam.sqrt()[..., None, None]).features, offsets)

    @property
    def variance(self) -> Tensor:
        """The prior variance Q_xx of the mean reward of each of K arms, (..., K)."""
        return self.factor.square().sum(-1)

    def bias(self, means: Tensor) -> Tensor:
        """Return the distance |f − f₀|_{Q⁻¹} = √((f − f₀)ᵀQ⁻¹(f − f₀)) from the prior mean f₀ to f, (...).

        Q is the prior covariance. ``means`` (..., K) has the mean rewards f of K arms, which only a simulation knows.
        """
        away = (means - self.offsets).unsqueeze(-1)
        bias: Tensor = torch.linalg.solve_triangular(self.factor, away, upper=False).squeeze(-1).norm(dim=-1)
        return bias

    def after(self, tally: Tally) -> "Belief":
        """Return the posterior of K arms' mean rewards, given the data in ``tally``.

        ``tally`` has the number of pulls and the summed rewards of each arm, (..., K) each. The noise of a reward
        counts with variance 1. The leading dimensions broadcast with those of the prior.

        Raises:
            RuntimeError: A count is NaN or so negative that the precision is not positive definite.
        """
        eye = torch.eye(self.factor.shape[-1], dtype=torch.float64).expand_as(self.factor)
        half = torch.linalg.solve_triangular(self.factor, eye, upper=False)
        factor: Tensor = torch.linalg.cholesky(half.mT @ half + torch.diag_embed(tally.counts))
        covariance = torch.cholesky_inverse(factor)
        surprise = tally.sums - tally.counts * self.offsets
        mean = self.offsets + (covariance @ surprise.unsqueeze(-1)).squeeze(-1)
        roots = self.factor.diagonal(dim1=-2, dim2=-1).abs().log() + factor.diagonal(dim1=-2, dim2=-1).log()
        return Belief(mean, covariance.diagonal(dim1=-2, dim2=-1).sqrt(), factor, 2 * roots.sum(-1))


@dataclass(frozen=True)
class ExactIntervals(Bounds):
    """The rule of Theorem S, which gives the intervals m ± √β w, cut to [−F, F], of K arms in S runs.

    Here m is the posterior mean of an arm and w its width, the square root of its posterior variance, where the noise
    of a reward counts with variance 1 whatever σ is (`Prior.after`). The radius is √β = σ√(ln det QA + 2 ln(π²N(p +
    1)²/(6δ))) + ``bias``, with the prior covariance Q of the arms, their posterior precision A = Q⁻¹ + diag(n) after n
    pulls of each, and p synchronisations so far. All clients of a run have the same parameter ŵ₀, fitted in Phase I.

    Args:
        clients: The number N of clients.
        sigma: σ, such that the noise of a reward is σ-sub-Gaussian.
        value: F, a bound on |f(x)| for the mean reward f(x) of every arm x.
        delta: The failure probability δ; the intervals hold with probability at least 1 − δ.
        prior: The prior of the K arms when Phase II begins, one for each of S runs. Only data of Phase II may update
            it, because ŵ₀ depends on those of Phase I.
        bias: A bound on `Prior.bias`, the distance |f − f(ŵ₀)|_{Q⁻¹} from the prior mean f(ŵ₀) to the mean rewards f
            in the norm of the inverse of the prior covariance Q, (S,).

    Raises:
        ValueError: N is below 1, σ or F is not positive and finite, or δ is not in (0, 1).
        TypeError: N is not a whole number, or σ, F or δ is not a number.
    """

    prior: Prior = field(kw_only=True)
    bias: Tensor = field(kw_only=True)

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None, *, shared: Tally) -> Interval:
        """Return the interval of each of K arms, (R, L, K), for L clients (or L steps of one client) of R runs.

        The ``gain`` of the result is ln(1 + w²) for each arm with posterior width w. The next pull of the arm would add
        it to the log-determinant of the client's precision matrix.

        Args:
            known: The number of pulls and the summed rewards of each arm in Phase II that each client knows, (R, L, K)
                each.
            syncs: The number p of synchronisations so far, (R, L) or (R, 1) int64.
            run: The positions of the R runs among all S runs, (R,) int64; None means all S runs.
            shared: Not used.
        """
        chosen = slice(None) if run is None else run
        belief = Prior(*(part[chosen].unsqueeze(1) for part in self.prior)).after(known)
        information, members = belief.information, self.clients
        noise = noise_radius(information, syncs, members=members, sigma=self.sigma, delta=self.delta)
        width = (noise + self.bias[chosen].unsqueeze(1)).unsqueeze(-1) * belief.width
        return clipped(belief.mean, width, self.value, belief.width.square().log1p())


def exact_intervals(problem: Problem, start: Start, value: float, delta: float = 0.1) -> ExactIntervals:
    """Return the rule for the intervals of Theorem S around the parameter ŵ₀ of ``start``.

    The prior covariance of the K arms is GGᵀ/λ, with the gradients G of the network at ŵ₀. The regularisation weight λ
    is that of `computable_lam`, for which the σ of the problem bounds the bias of the prior: the distance from its mean
    to the mean rewards, in the norm of the inverse covariance.

    Args:
        problem: S runs of a bandit problem. Its noise has to be σ-sub-Gaussian for its ``sigma``.
        start: Phase I on the same problem, with one ŵ₀ for all clients.
        value: F, a bound on |f(x)| for the mean reward f(x) of every arm x.
        delta: The failure probability δ; the intervals hold with probability at least 1 − δ.

    Raises:
        ValueError: F or the σ of the problem is not positive and finite, δ is not in (0, 1), the gradients of the K
            arms at ŵ₀ have a rank below K, each client has a ŵ₀ of its own, or ``start`` was made on another problem.
        TypeError: F or δ is not a number.
    """
    start.require_for(problem, start.encoding, shared=True)
    w0, sigma = start.w0[:, 0], problem.sigma
    Bounds(start.clients, sigma, value, delta)  # checks them
    gradients, offsets = start.network.gradients(w0, problem.arms), start.network.values(w0, problem.arms)
    made = Prior.of(gradients, offsets, computable_lam(gradients, offsets, value, sigma))
    bias = torch.full_like(offsets[:, 0], sigma)
    return ExactIntervals(start.clients, sigma, value, delta, prior=made, bias=bias)


def exact_regret(intervals: ExactIntervals, rounds: int, gamma: float) -> list[PhaseTwoRegret]:
    """Return a bound on the regret of Phase II for each of S runs in which every client plays by optimism.

    By optimism each client plays the arm with the largest upper end of its interval. The bound is 2√(eφβNTΛ) +
    ⌊Λ⌋(2N√(φβγ) + 2F) for N clients and |f| ≤ F, with Λ = K ln(1 + NT max_x Q_xx/K), where Q is the prior covariance of
    the K arms, and φ = c²/ln(1 + c²), c = min(F/√β, max_x √Q_xx). The radius is √β = σ√(Λ + 2 ln(π²N(P + 1)²/(6δ))) +
    ``bias``, with P = Λ/(2γ) + √(Λ²/(4γ²) + TΛ/γ) synchronisations, or NT if that is less. It is item 3 of the repaired
    theorem, with the second-order part 0.

    Args:
        intervals: The rule by which the N clients compute their intervals, with σ, F, δ, Q and the ``bias``.
        rounds: The number T of rounds, at least 1, so that Phase II has NT steps.
        gamma: γ > 0. A client synchronises when the number of its pulls since the last synchronisation, times the sum
            of their log-ratios ln(1 + w²), exceeds γ; w is the posterior width of the pulled arm. It should be finite.

    Returns:
        A list with the bound of each run in its parts: of the good epochs, of the bad epochs, and a second-order part,
        which is 0. An epoch lasts from one synchronisation to the next.

    Raises:
        ValueError: γ is not positive.
    """
    regrets, clients, arms = [], intervals.clients, intervals.prior.offsets.shape[-1]
    widths = intervals.prior.variance.amax(-1).sqrt().tolist()
    for widest, bias in zip(widths, intervals.bias.tolist(), strict=True):
        bound = information_bound(arms, clients * rounds, widest, 1.0)
        syncs = min(synchronisations(rounds, bound, gamma), clients * rounds)
        sizes = torch.tensor([bound, syncs], dtype=torch.float64)
        noise = noise_radius(*sizes, members=clients, sigma=intervals.sigma, delta=intervals.delta).item()
        beta, value = (noise + bias) ** 2, intervals.value
        regrets.append(regret_phase_two_clipped(beta, bound, clients, rounds, gamma, value, widest=widest))
    return regrets
