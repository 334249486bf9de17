"""ApproxDisKernelUCB: kernel UCB on Nyström features.

The algorithm is that of Li, H. Wang, M. Wang and H. Wang, NeurIPS 2022, https://arxiv.org/abs/2206.04835.

k is the RBF kernel, and Z a dictionary of some of the K arms. φ(x) = K_ZZ^{-1/2}k_Z(x) is the feature vector of an arm
x, where K_ZZ is the kernel of all pairs of arms in Z, and k_Z(x) the vector of the kernels of x and each arm in Z. A =
λI + Σ_s φ_sφ_sᵀ is the matrix of the pulls s that a client knows, with features φ_s and rewards y_s. The index of an
arm is φᵀA⁻¹Σ_s φ_s y_s + √v with v = β·[(k(x, x) − φᵀφ)/λ + φᵀA⁻¹φ]. We call the bracket the variance of the arm.

A client triggers a synchronisation when the sum, over its own pulls since the last one, of the variances that their
arms had right after that synchronisation exceeds the threshold γ. Then every client draws each of its pulls for the
dictionary with probability min(1, q̄·variance), where q̄ is a parameter, and sends the arms that it drew. The server
broadcasts the dictionary, the clients send their statistics in its features, and the server sends the sums. There are S
runs of N clients, R of which synchronise; arrays are (S, N, K).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import number, on_cpu
from fedgo._streams import generator, uniform_draws
from fedgo.confidence import Posterior, Tally, condition, of_arm, require_prior, width
from fedgo.messages import names_arms, scalars
from fedgo.phase_one import Exploration
from fedgo.phase_two import Settings, place, require_run
from fedgo.problem import Problem
from fedgo.simulation import simulate
from fedgo.star import Message, Star, When
from fedgo.trace import Trace

# This is added to the diagonal entries of K_ZZ, which are 1, because nearly equal arms make K_ZZ singular.
_JITTER = 1e-10


@on_cpu
def approx_dis_kernel_ucb(
    problem: Problem,
    clients: int,
    steps: int,
    settings: Settings,
    lengthscale: float = 1.0,
    oversampling: float = 10.0,
) -> Trace:
    """Play ApproxDisKernelUCB, which models the mean reward by a kernel on a sampled dictionary of arms.

    An arm that was pulled n times has a variance of about 1/n. With q̄ near 1 such an arm is absent from about one of
    three dictionaries, and its pulls then count only as far as arms in the dictionary resemble it. The theory of the
    algorithm's authors therefore wants q̄ well above 1.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        steps: The number of steps, in each of which one client pulls one arm; the clients take turns.
        settings: λ, β, the form of the messages, and as γ the threshold on a client's sum of variances.
        lengthscale: The length scale ℓ > 0 of the RBF kernel.
        oversampling: The factor q̄ > 0.

    Raises:
        ValueError: An argument is out of range; λ is so small that rounding would decide which arm is pulled; or
            rewards are so large that an index is NaN.
        TypeError: An argument is of another kind.
    """
    require_run(problem, clients, steps, settings)
    number("oversampling", oversampling, "give a positive q̄", above=0)
    kernel = rbf(problem.arms, lengthscale)
    require_prior(1.0, settings.lam)
    learner = NystroemKernel(clients, problem, kernel, settings, oversampling)
    start = Exploration.nothing(len(problem.runs))
    return simulate("ApproxDisKernelUCB", problem, learner, start, clients, steps)


class KernelState(NamedTuple):
    """What the clients of ApproxDisKernelUCB know.

    Args:
        posterior: The mean (S, N, K) and the covariance (S, N, K, K) of the arms' mean rewards in the features φ.
        rest: The part (k(x, x) − φᵀφ)/λ of each arm's variance that these features leave out, (S, N, K).
        before: The variance of each arm right after the last synchronisation, (S, N, K).
        own: The counts and the sums of rewards of all pulls of each client itself, (S, N, K) each.
        spent: The sum of the variances in ``before`` over the client's pulls since the last synchronisation, (S, N).
        fresh: The number of these pulls, (S, N) float64.
    """

    posterior: Posterior
    rest: Tensor
    before: Tensor
    own: Tally
    spent: Tensor
    fresh: Tensor


@dataclass(frozen=True)
class NystroemKernel:
    """The learner of ApproxDisKernelUCB.

    Before the first synchronisation the dictionary is empty and all arms have the same index, so that each client's own
    order of ties decides.

    Args:
        learners: The number N of clients.
        problem: The problem, whose seed and runs decide the draws of the dictionaries.
        kernel: The kernel of all pairs of arms, (S, K, K).
        settings: λ, β, γ and the form of the messages.
        oversampling: The factor q̄.
    """

    learners: int
    problem: Problem
    kernel: Tensor
    settings: Settings
    oversampling: float

    def begin(self) -> KernelState:
        """Return the state without data and with an empty dictionary: each arm has the mean 0 and the variance 1/λ."""
        runs, arms, _ = self.kernel.shape
        own = Tally.blank(runs, self.learners, arms)
        prior = torch.full_like(own.sums, 1 / self.settings.lam)
        posterior = Posterior(own.sums.new_zeros(*own.sums.shape, arms), own.sums.clone())
        return KernelState(posterior, prior, prior, own, spent=own.sums[..., 0], fresh=own.sums[..., 0])

    def index(self, state: KernelState) -> Tensor:
        """Return the upper confidence bound mean + √(β·variance), (S, N, K)."""
        return state.posterior.mean + math.sqrt(self.settings.beta) * width(_variance(state))

    def fires(self, state: KernelState, arm: Tensor) -> Tensor:
        """Return whether each client's sum of variances would exceed γ with the pull of ``arm``, (S, N) bool."""
        return state.spent + of_arm(state.before, arm) > self.settings.gamma

    def learn(self, state: KernelState, arm: Tensor, reward: Tensor, turn: Tensor) -> KernelState:
        """Return the state after one pull of each client with ``turn`` 1, in the features of the current dictionary."""
        return state._replace(
            posterior=state.posterior.absorb(arm, reward, turn),
            own=state.own.record(arm, reward, turn),
            spent=state.spent + turn * of_arm(state.before, arm),
            fresh=state.fresh + turn,
        )

    def synchronise(self, state: KernelState, star: Star, when: When) -> KernelState:
        """Return the state after some runs have drawn new dictionaries and shared the statistics in their features."""
        own, fresh = state.own.of(when.run), state.fresh[when.run]
        drawn = self._draw(_variance(state)[when.run], own, when)
        self._charge(drawn, own, fresh, star, when)
        return place(state, when.run, self._refit(drawn.any(1), own, when.run))

    def _draw(self, variance: Tensor, own: Tally, when: When) -> Tensor:
        """Return which arms each client draws, (R, N, K) bool: an arm is drawn if at least one of its data is."""
        chance = (self.oversampling * variance).clamp(0, 1)
        missed = (1 - chance) ** own.counts  # an arm pulled n times is missed if none of its n data is drawn
        sources = (
            generator(self.problem.seed, self.problem.runs[r], f"dictionary at {step}")
            for r, step in zip(when.run.tolist(), when.step.tolist(), strict=True)
        )
        return uniform_draws(sources, *missed.shape[1:]) < 1 - missed

    def _charge(self, drawn: Tensor, own: Tally, fresh: Tensor, star: Star, when: When) -> None:
        """Count the scalars of the four messages of a synchronisation."""
        d_x, arms = self.problem.arms.shape[-1], own.counts.shape[-1]
        dictionary = drawn.any(1)
        members = dictionary.sum(1)
        # In the form "counts" only the new pulls are sent. Then the receiver must know all older pulls from earlier
        # messages in this form. Therefore "cheapest", which may change from one message to the next, is counted as
        # "counts".
        encoding = "counts" if names_arms(self.settings.encoding) else self.settings.encoding
        datum = 1 if encoding == "counts" else d_x
        star.collect(Message(drawn, datum * drawn.sum(2)), when)
        star.broadcast(Message(dictionary, datum * members), when)
        pulls, total = own.counts.sum(-1), own.summed()
        up = scalars(encoding, members.unsqueeze(1), pulls, arms, news=fresh)
        star.collect(Message(own, up), when)
        down = scalars(encoding, members, pulls.sum(1), arms, news=fresh.sum(1))
        star.broadcast(Message(total, down), when)

    def _refit(self, dictionary: Tensor, own: Tally, run: Tensor) -> KernelState:
        """Return the state of R runs with the new ``dictionary`` (R, K); what the clients share has one client axis."""
        kernel, lam = self.kernel[run], self.settings.lam
        features = nystroem(kernel, dictionary.to(kernel.dtype))
        total = own.summed()
        posterior = condition(features, torch.zeros_like(total.sums), lam, total)
        rest = (kernel.diagonal(dim1=-2, dim2=-1) - features.square().sum(-1)).clamp(min=0) / lam
        shared = Posterior(posterior.covariance.unsqueeze(1), posterior.mean.unsqueeze(1))
        rest, zero = rest.unsqueeze(1), torch.zeros_like(own.counts[..., 0])
        return KernelState(shared, rest, before=shared.variance + rest, own=own, spent=zero, fresh=zero)


def rbf(arms: Tensor, lengthscale: float) -> Tensor:
    """Return the RBF kernel exp(−‖x − x'‖²/(2ℓ²)) of all pairs of ``arms`` (..., K, d_x), (..., K, K)."""
    number("lengthscale", lengthscale, "give a positive length scale ℓ", above=0)
    difference = arms.unsqueeze(-2) - arms.unsqueeze(-3)
    return (-difference.square().sum(-1) / (2 * lengthscale**2)).exp()


def nystroem(kernel: Tensor, dictionary: Tensor) -> Tensor:
    """Return the Nyström features φ of the arms as rows, (..., K, K), with a zero column for each arm outside Z.

    φφᵀ is K_XZ K_ZZ⁻¹ K_ZX, with 1e-10 added to the diagonal of K_ZZ. ``dictionary`` (..., K) is 1 for the arms in Z.
    """
    inside = kernel * dictionary.unsqueeze(-1) * dictionary.unsqueeze(-2)
    inside.diagonal(dim1=-2, dim2=-1).add_(1 - dictionary + _JITTER)
    across = (kernel * dictionary.unsqueeze(-2)).mT
    features: Tensor = torch.linalg.solve_triangular(torch.linalg.cholesky(inside), across, upper=False)
    return features.mT


def _variance(state: KernelState) -> Tensor:
    """Return the variance of each arm for each client, (S, N, K)."""
    return state.posterior.variance + state.rest
