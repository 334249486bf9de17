"""ApproxDisKernelUCB: kernel UCB on Nyström features, k the RBF kernel (Li, H. Wang, M. Wang and H. Wang, NeurIPS
2022, https://arxiv.org/abs/2206.04835).

With a dictionary Z of arms, φ(x) = K_ZZ^{-1/2}k_Z(x) and A = λI + Σφφᵀ, the index is φᵀA⁻¹Σφy + √β σ(x),
σ²(x) = (k(x,x) − φᵀφ)/λ + φᵀA⁻¹φ. A client synchronises everybody when the σ² that its own pulls had at the last
synchronisation add up to more than γ. Then every client draws each of its data for the dictionary with probability
min(1, q̄σ²(x)) and uploads what it drew, the server broadcasts the dictionary, the clients upload their statistics
in its features and download the sums.
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

    With q̄ near 1, an arm that was pulled n times, whose σ² is about 1/n, leaves the redrawn dictionary about once in
    three times and then looks new; the theory of its paper wants q̄ well above 1.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        steps: The number of steps.
        settings: λ, β, and as γ the threshold on the variances σ² added up since the last synchronisation.
        lengthscale: The length scale ℓ of the kernel.
        oversampling: The factor q̄ of the probability with which a datum enters the dictionary.
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

    ``posterior`` is that of the rewards in the features φ of the dictionary. ``rest`` (S, N, K) is (k − φᵀφ)/λ, the
    variance that these features leave out. ``own`` (S, N, K) are the counts and sums of all the client's own pulls.
    ``before`` (S, N, K) is σ² of each arm right after the last synchronisation. ``spent`` (S, N) is the sum of these σ²
    over the arms pulled since then, and ``fresh`` (S, N) the number of these pulls.
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
    empty and all arms look alike, so that each client's own order of ties decides.
    """

    learners: int
    problem: Problem
    kernel: Tensor
    settings: Settings
    oversampling: float

    def begin(self) -> KernelState:
        """Return the state without data and with an empty dictionary: mean 0 and σ² = k(x, x)/λ."""
        runs, arms, _ = self.kernel.shape
        own = Tally.blank(runs, self.learners, arms)
        prior = torch.full_like(own.sums, 1 / self.settings.lam)
        posterior = Posterior(own.sums.new_zeros(*own.sums.shape, arms), own.sums)
        return KernelState(posterior, prior, prior, own, own.sums[..., 0], own.sums[..., 0])

    def index(self, state: KernelState) -> Tensor:
        """Return the upper confidence bound of each arm, (S, N, K)."""
        return state.posterior.mean + math.sqrt(self.settings.beta) * width(_variance(state))

    def fires(self, state: KernelState, arm: Tensor) -> Tensor:
        """Return whether the sum of σ² since the last synchronisation exceeds γ with this pull, (S, N) bool."""
        return state.spent + _at(state.before, arm) > self.settings.gamma

    def learn(self, state: KernelState, arm: Tensor, reward: Tensor, turn: Tensor) -> KernelState:
        """Return the state after the pull, in the features of the current dictionary."""
        return state._replace(
            posterior=state.posterior.absorb(arm, reward, turn),
            own=state.own.record(arm, reward, turn),
            spent=state.spent + turn * _at(state.before, arm),
            fresh=state.fresh + turn,
        )

    def synchronise(self, state: KernelState, star: Star, when: When) -> KernelState:
        """Return the state after a new dictionary is drawn with the current variances and the statistics are sent in
        its features.
        """
        own, fresh = state.own.of(when.run), state.fresh[when.run]
        drawn = self._draw(_variance(state)[when.run], own, when)
        self._charge(drawn, own, fresh, star, when)
        return place(state, when.run, self._refit(drawn.any(1), own, when.run))

    def _draw(self, variance: Tensor, own: Tally, when: When) -> Tensor:
        """Return which arms each client draws, (R, N, K) bool: each of its data with probability min(1, q̄σ²)."""
        chance = (self.oversampling * variance).clamp(0, 1)
        missed = (1 - chance) ** own.counts  # an arm pulled n times is missed if each of its data is
        sources = (
            generator(self.problem.seed, self.problem.runs[r], f"dictionary at {step}")
            for r, step in zip(when.run.tolist(), when.step.tolist(), strict=True)
        )
        return uniform_draws(sources, *missed.shape[1:]) < 1 - missed

    def _charge(self, drawn: Tensor, own: Tally, fresh: Tensor, star: Star, when: When) -> None:
        """Book the four messages: the drawn arms up, the dictionary down, and the statistics in its features up and
        down.
        """
        d_x, arms = self.problem.arms.shape[-1], own.counts.shape[-1]
        dictionary = drawn.any(1)
        members = dictionary.sum(1)
        # with counts the form is fixed: to be sent the news only, one must have been sent all older counts
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
        """Return the state that all clients of the runs share after a synchronisation, with their ``own`` data (R, N,
        K).
        """
        kernel, lam = self.kernel[run], self.settings.lam
        features = nystroem(kernel, dictionary.to(kernel.dtype))
        total = own.summed()
        posterior = condition(features, torch.zeros_like(total.sums), lam, total)
        rest = (kernel.diagonal(dim1=-2, dim2=-1) - features.square().sum(-1)).clamp(min=0) / lam
        blank = torch.zeros_like(own.counts[..., 0])
        shared = Posterior(*(part.unsqueeze(1) for part in posterior))
        rest = rest.unsqueeze(1)
        return KernelState(shared, rest, shared.variance + rest, own, blank, blank)


def rbf(arms: Tensor, lengthscale: float) -> Tensor:
    """Return k(x, x') = exp(−|x − x'|²/(2ℓ²)) for all pairs of the ``arms`` (..., K, d_x), (..., K, K).

    ``lengthscale`` is ℓ.
    """
    number("lengthscale", lengthscale, "give a positive length scale ℓ", above=0)
    difference = arms.unsqueeze(-2) - arms.unsqueeze(-3)
    return (-difference.square().sum(-1) / (2 * lengthscale**2)).exp()


def nystroem(kernel: Tensor, dictionary: Tensor) -> Tensor:
    """Return features φ of all arms, (..., K, K), with φφᵀ = K_XZ K_ZZ⁻¹ K_ZX for the dictionary Z.

    ``kernel`` (..., K, K) is the kernel, and ``dictionary`` (..., K) is 1 for the arms in Z and 0 for the others. The
    columns of arms outside Z are 0. With all arms in Z, φφᵀ is the kernel.
    """
    inside = kernel * dictionary.unsqueeze(-1) * dictionary.unsqueeze(-2)
    inside.diagonal(dim1=-2, dim2=-1).add_(1 - dictionary + _JITTER)
    across = (kernel * dictionary.unsqueeze(-2)).mT
    features: Tensor = torch.linalg.solve_triangular(torch.linalg.cholesky(inside), across, upper=False)
    return features.mT


def _variance(state: KernelState) -> Tensor:
    """Return σ² of each arm, (S, N, K): that of the posterior and what the dictionary leaves out."""
    return state.posterior.variance + state.rest


def _at(values: Tensor, arm: Tensor) -> Tensor:
    """Return the entry of ``values`` (..., K) at ``arm`` (...)."""
    return values.gather(-1, arm.unsqueeze(-1)).squeeze(-1)
