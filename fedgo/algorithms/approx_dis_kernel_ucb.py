"""ApproxDisKernelUCB: kernel UCB on Nyström features (Li, H. Wang, M. Wang and H. Wang, NeurIPS 2022,
https://arxiv.org/abs/2206.04835).

With the RBF kernel k, a dictionary Z of arms, φ(x) = K_ZZ^{-1/2}k_Z(x) and A = λI + Σ_s φ_sφ_sᵀ, the index of an arm is
φᵀA⁻¹Σ_s φ_s y_s + √v with v = β·[(k(x, x) − φᵀφ)/λ + φᵀA⁻¹φ]. We call the bracket the variance of the arm. A client
triggers a synchronisation when the variances that the arms of its own pulls had at the last synchronisation add up to
more than γ. Then every client draws each of its data for the dictionary with probability min(1, q̄·variance) and sends
what it drew, the server broadcasts the dictionary, the clients send their statistics in its features, and the server
sends the sums.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import number, on_cpu
from fedgo._streams import generator, uniform_draws
from fedgo.confidence import Posterior, Tally, condition, require_prior, width
from fedgo.messages import names_arms, scalars
from fedgo.phase_one import Exploration
from fedgo.phase_two import Settings, place, require_run
from fedgo.problem import Problem
from fedgo.simulation import simulate
from fedgo.star import Message, Star, When
from fedgo.trace import Trace

_JITTER = 1e-10  # relative to k(x, x) = 1, against arms that nearly coincide


@on_cpu
def approx_dis_kernel_ucb(
    problem: Problem,
    clients: int,
    steps: int,
    settings: Settings,
    lengthscale: float = 1.0,
    oversampling: float = 10.0,
) -> Trace:
    """Play ``steps`` steps of ApproxDisKernelUCB, which models the reward by a kernel on a sampled dictionary of arms.

    An arm that was pulled n times has a variance of about 1/n. With q̄ near 1 it is absent from about one of three
    redrawn dictionaries, and looks as if it was never pulled until the next one; the theory of the paper wants q̄ well
    above 1.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        steps: The number of steps.
        settings: λ, β, the form of the messages, and as γ the threshold on the sum of variances since the last
            synchronisation.
        lengthscale: The length scale ℓ of the kernel.
        oversampling: The factor q̄ of the probability with which a datum enters the dictionary.

    Returns:
        The trace, without a Phase I.

    Raises:
        ValueError: An argument is out of range.
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
    """What the N clients of ApproxDisKernelUCB know in each of S runs, about K arms.

    ``posterior`` is that of the rewards in the features φ of the dictionary. ``rest`` (S, N, K) is (k(x, x) − φᵀφ)/λ,
    the variance that these features leave out. ``own`` (S, N, K) holds the counts and sums of all the client's own
    pulls. ``before`` (S, N, K) is the variance of each arm right after the last synchronisation. ``spent`` (S, N) is
    the sum of these variances over the client's pulls since then, and ``fresh`` (S, N) the number of these pulls.
    """

    posterior: Posterior
    rest: Tensor
    before: Tensor
    own: Tally
    spent: Tensor
    fresh: Tensor


@dataclass(frozen=True)
class NystroemKernel:
    """N = ``learners`` clients with a Nyström approximation of a kernel on the arms of ``problem``.

    ``kernel`` (S, K, K) is the kernel and ``oversampling`` is q̄. Before the first synchronisation the dictionary is
    empty and all arms have the same index, so that each client's own order of ties decides.
    """

    learners: int
    problem: Problem
    kernel: Tensor
    settings: Settings
    oversampling: float

    def begin(self) -> KernelState:
        """Return the state without data and with an empty dictionary, where each mean is 0 and each variance 1/λ."""
        runs, arms, _ = self.kernel.shape
        own = Tally.blank(runs, self.learners, arms)
        prior = torch.full_like(own.sums, 1 / self.settings.lam)
        posterior = Posterior(own.sums.new_zeros(*own.sums.shape, arms), own.sums)
        return KernelState(posterior, prior, prior, own, spent=own.sums[..., 0], fresh=own.sums[..., 0])

    def index(self, state: KernelState) -> Tensor:
        """Return the upper confidence bound of each arm, (S, N, K)."""
        return state.posterior.mean + math.sqrt(self.settings.beta) * width(_variance(state))

    def fires(self, state: KernelState, arm: Tensor) -> Tensor:
        """Return whether the sum of variances since the last synchronisation exceeds γ with this pull, (S, N) bool."""
        return state.spent + _of_arm(state.before, arm) > self.settings.gamma

    def learn(self, state: KernelState, arm: Tensor, reward: Tensor, turn: Tensor) -> KernelState:
        """Return the state after the pull, in the features of the current dictionary."""
        return state._replace(
            posterior=state.posterior.absorb(arm, reward, turn),
            own=state.own.record(arm, reward, turn),
            spent=state.spent + turn * _of_arm(state.before, arm),
            fresh=state.fresh + turn,
        )

    def synchronise(self, state: KernelState, star: Star, when: When) -> KernelState:
        """Return the state after the runs ``when.run`` drew a new dictionary and sent their statistics in its features.

        Each datum is drawn with the variance of its arm before the synchronisation.
        """
        own, fresh = state.own.of(when.run), state.fresh[when.run]
        drawn = self._draw(_variance(state)[when.run], own, when)
        self._charge(drawn, own, fresh, star, when)
        return place(state, when.run, self._refit(drawn.any(1), own, when.run))

    def _draw(self, variance: Tensor, own: Tally, when: When) -> Tensor:
        """Return which arms each client draws for the dictionary, (R, N, K) bool.

        A client draws each of its ``own`` data with probability min(1, q̄·``variance``).
        """
        chance = (self.oversampling * variance).clamp(0, 1)
        missed = (1 - chance) ** own.counts  # an arm pulled n times is missed if none of its n data is drawn
        sources = (
            generator(self.problem.seed, self.problem.runs[r], f"dictionary at {step}")
            for r, step in zip(when.run.tolist(), when.step.tolist(), strict=True)
        )
        return uniform_draws(sources, *missed.shape[1:]) < 1 - missed

    def _charge(self, drawn: Tensor, own: Tally, fresh: Tensor, star: Star, when: When) -> None:
        """Book the four messages of a synchronisation.

        The clients send the arms that they drew, the server sends the dictionary, the clients send their statistics in
        its features, and the server sends the sums of these.
        """
        d_x, arms = self.problem.arms.shape[-1], own.counts.shape[-1]
        dictionary = drawn.any(1)
        members = dictionary.sum(1)
        # who is sent only the news as counts must have been sent all older ones, so that the form cannot change
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
        """Return the state of R runs after a synchronisation, with the new ``dictionary`` (R, K) and the clients'
        ``own`` data (R, N, K).
        """
        kernel, lam = self.kernel[run], self.settings.lam
        features = nystroem(kernel, dictionary.to(kernel.dtype))
        total = own.summed()
        posterior = condition(features, torch.zeros_like(total.sums), lam, total)
        rest = (kernel.diagonal(dim1=-2, dim2=-1) - features.square().sum(-1)).clamp(min=0) / lam
        shared = Posterior(posterior.covariance.unsqueeze(1), posterior.mean.unsqueeze(1))
        rest, zero = rest.unsqueeze(1), torch.zeros_like(own.counts[..., 0])
        return KernelState(shared, rest, before=shared.variance + rest, own=own, spent=zero, fresh=zero)


def rbf(arms: Tensor, lengthscale: float) -> Tensor:
    """Return the RBF kernel k(x, x') = exp(−|x − x'|²/(2ℓ²)) for all pairs of the ``arms`` (..., K, d_x), (..., K, K).

    ``lengthscale`` is ℓ > 0.
    """
    number("lengthscale", lengthscale, "give a positive length scale ℓ", above=0)
    difference = arms.unsqueeze(-2) - arms.unsqueeze(-3)
    return (-difference.square().sum(-1) / (2 * lengthscale**2)).exp()


def nystroem(kernel: Tensor, dictionary: Tensor) -> Tensor:
    """Return the Nyström features φ of all arms as rows, (..., K, K), so that φφᵀ = K_XZ K_ZZ⁻¹ K_ZX for a dictionary
    Z.

    ``kernel`` (..., K, K) is the kernel, and ``dictionary`` (..., K) is 1 for the arms in Z and 0 for the others. The
    columns of arms outside Z are 0. With all arms in Z, φφᵀ is the kernel.
    """
    inside = kernel * dictionary.unsqueeze(-1) * dictionary.unsqueeze(-2)
    inside.diagonal(dim1=-2, dim2=-1).add_(1 - dictionary + _JITTER)
    across = (kernel * dictionary.unsqueeze(-2)).mT
    features: Tensor = torch.linalg.solve_triangular(torch.linalg.cholesky(inside), across, upper=False)
    return features.mT


def _variance(state: KernelState) -> Tensor:
    """Return each arm's variance φᵀA⁻¹φ + (k(x, x) − φᵀφ)/λ for each client, (S, N, K)."""
    return state.posterior.variance + state.rest


def _of_arm(values: Tensor, arm: Tensor) -> Tensor:
    """Return the entry of ``values`` (..., K) for each ``arm`` (...)."""
    return values.gather(-1, arm.unsqueeze(-1)).squeeze(-1)
