"""Two peers beyond the paper, for the regime map: FN-UCB, and kernel UCB with hyperparameters fitted once.

**FN-UCB**: a neural tangent model on everybody's data and an averaged network, weighed (Dai, Shu, Verma, Fan, Low and
Jaillet, Federated Neural Bandits, ICLR 2023, https://arxiv.org/abs/2205.14309).

With features φ_x = g(x; θ₀)/√m of a network of width m whose output at θ₀ is 0, V̄_i = λI + Σφφᵀ and θ̄_i = V̄_i⁻¹Σφy
over all synchronised data and client i's own since, V_i the same over all of client i's own data alone,

    UCBᵃ_i(x) = φ_xᵀθ̄_i + ν√λ‖φ_x‖_{V̄_i⁻¹},   UCBᵇ(x) = f(x; θ) + ν√λ √(φ_xᵀ((1/N)Σ_j V_j⁻¹)φ_x),
    x = argmax (1 − α)UCBᵃ_i + αUCBᵇ,

where θ is the mean over the clients of θ₀ after J steps of gradient descent on the client's own data,
½Σ(f(x; θ) − y)² + ½mλ‖θ − θ₀‖², and α = min_j min_x s_j(x)/max_x s_j(x) with s_j(x) = ‖φ_x‖_{V_j⁻¹}; V_j, θ and α are
those of the last synchronisation, α = 0 before the first. Client i synchronises everybody when its n_i pulls since
have n_i·ln(det V̄_i/det V̄_last) > γ. Differences from the paper's experiments: the arms stay the same, sigmoid units
in place of ReLU, the α of the theory and not a schedule, a step of gradient descent as long as the curvature at θ₀
allows.

**Kernel UCB with hyperparameters fitted once**: those of BoTorch's SingleTaskGP after Phase I, then the exact kernel.

    index_x = μ_x + κσ‖φ_x‖_{Σ⁻¹},   Σ = σ²I + Σ_t φ(x_t)φ(x_t)ᵀ,   φ_xᵀφ_x' = k(x, x')

with the constant mean and the kernel k of the fit, its scale included; every pull is shared at once, as in
`fedgo.algorithms.controls.exact_kernel_ucb`.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, number, on_cpu, require
from fedgo._streams import generator
from fedgo.algorithms.go_ucb import Immediate
from fedgo.beyond.guard.guarantee import InformedByPhaseOne, phase_one_tally
from fedgo.beyond.surrogates.gaussian_process import FittedModel, GaussianProcess
from fedgo.confidence import Tally, compress, width
from fedgo.line_three.parameter_space import ParameterSpace
from fedgo.network import Network
from fedgo.phase_one import Exploration, explore, phase_one_length
from fedgo.phase_two import EventState as Tangent
from fedgo.phase_two import EventTriggered, Settings, place, require_run
from fedgo.problem import Problem
from fedgo.simulation import simulate
from fedgo.star import Message, Star, When
from fedgo.trace import Trace

_POWER = 20  # iterations for the largest curvature


class Averaged(NamedTuple):
    """What the server broadcasts beside the sums: f(x; θ) ``values`` and the ``spread`` √((1/N)Σ s_j²) of every arm,
    (S, K), and the weight ``alpha`` (S,)."""

    values: Tensor
    spread: Tensor
    alpha: Tensor


class NeuralState(NamedTuple):
    """The ``tangent`` model's state, every client's ``own`` data (S, N, K), and what is ``averaged``."""

    tangent: Tangent
    own: Tally
    averaged: Averaged


@dataclass(frozen=True)
class FNUCB:
    """N clients on ``inputs`` (S, K, d_x), with ``theta0`` (S, d_w), ``features`` φ (S, K, d_w); ``tangent`` is UCBᵃ's.

    ν√λ = ``optimism``, J = ``descent``.
    """

    tangent: EventTriggered
    network: Network
    inputs: Tensor
    theta0: Tensor
    features: Tensor
    optimism: float
    descent: int

    @property
    def learners(self) -> int:
        """N."""
        return self.tangent.learners

    def begin(self) -> NeuralState:
        """No data, α = 0."""
        runs, arms, _ = self.features.shape
        blank = self.features.new_zeros(runs, arms)
        own = Tally.blank(runs, self.learners, arms)
        return NeuralState(self.tangent.begin(), own, Averaged(blank, blank, blank[:, 0]))

    def index(self, state: NeuralState) -> Tensor:
        """(1 − α)UCBᵃ + αUCBᵇ."""
        posterior = state.tangent.posterior
        first = posterior.mean + self.optimism * width(posterior.variance)
        values, spread, alpha = (part.unsqueeze(1) for part in state.averaged)
        alpha = alpha.unsqueeze(-1)
        return (1 - alpha) * first + alpha * (values + self.optimism * spread)

    def fires(self, state: NeuralState, arm: Tensor) -> Tensor:
        """The event of the tangent model."""
        return self.tangent.fires(state.tangent, arm)

    def learn(self, state: NeuralState, arm: Tensor, reward: Tensor, turn: Tensor) -> NeuralState:
        """The tangent model learns, and the client keeps the reward."""
        own = state.own.record(arm, reward, turn)
        return state._replace(tangent=self.tangent.learn(state.tangent, arm, reward, turn), own=own)

    def synchronise(self, state: NeuralState, star: Star, when: When) -> NeuralState:
        """The statistics as the tangent model sends them, and V_j, θ_j, α_j up, their means and α down."""
        run = when.run
        tangent = self.tangent.synchronise(state.tangent, star, when)
        own = state.own.of(run)
        averaged = self._averaged(run, own)
        size, arms = self.network.size, self.features.shape[1]
        packed = self.tangent.settings.encoding == "counts"  # then the server trains
        up, down = (0, arms + size + 1) if packed else (size**2 + size + 1, size**2 + size + 1)
        star.collect(Message(own, up), when)
        new = star.broadcast(Message(averaged, down), when)
        return state._replace(tangent=tangent, averaged=place(state.averaged, run, new))

    def _averaged(self, run: Tensor, own: Tally) -> Averaged:
        """From all data of every client, ``own`` (R, N, K)."""
        lam, of_clients = self.tangent.settings.lam, []
        for r, *data in zip(run.tolist(), *own, strict=True):
            known, inputs, features = Tally(*data), self.inputs[r], self.features[r]
            variance = local_variances(features, lam, known)
            theta = train_networks(
                self.network, self.theta0[r], inputs, features, known, lam, self.descent
            ).mean(0)
            share = (variance.amin(-1) / variance.amax(-1)).sqrt()
            of_clients.append((self.network.values(theta, inputs), variance.mean(0).sqrt(), share.amin()))
        return Averaged(*(torch.stack(parts) for parts in zip(*of_clients, strict=True)))


def local_variances(features: Tensor, lam: float, own: Tally) -> Tensor:
    """s_j²(x) = φ_xᵀ(λI + Σ nφφᵀ)⁻¹φ_x of every arm, (N, K), by the pulls of ``own`` (N, K) and ``features`` (K, d)."""
    variances = []
    for counts in own.counts:
        at = counts.nonzero().squeeze(-1)
        rows = features[at] * counts[at].sqrt().unsqueeze(-1)
        inner = rows @ rows.mT
        inner.diagonal().add_(lam)
        half = torch.linalg.solve_triangular(torch.linalg.cholesky(inner), rows @ features.mT, upper=False)
        variances.append((features.square().sum(-1) - half.square().sum(0)).clamp(min=0) / lam)
    return torch.stack(variances)


def train_networks(
    network: Network, theta0: Tensor, x: Tensor, features: Tensor, own: Tally, lam: float, steps: int
) -> Tensor:
    """θ of every client, (N, d_w): ``steps`` steps down ½Σ(f − y)² + ½mλ‖θ − θ₀‖² from ``theta0`` (d_w,).

    The step is 1/(mλ + the largest eigenvalue of mΣφφᵀ) over the client's pulls ``own`` (N, K) of ``x`` (K, d_x).
    """
    m, counts = network.hidden, own.counts
    touched = (counts.sum(0) > 0).nonzero().squeeze(-1)
    x, rows, counts = x[touched], features[touched], counts[:, touched]
    means = own.sums[:, touched] / counts.clamp(min=1)
    vector = theta0.new_ones(len(counts), features.shape[-1])
    norm = vector[:, :1]
    for _ in range(_POWER):
        vector = (counts * (vector @ rows.mT)) @ rows
        norm = vector.norm(dim=-1, keepdim=True).clamp(min=1e-300)
        vector = vector / norm
    rate = 1 / (m * (lam + norm))
    theta = theta0.expand(len(counts), -1)
    for _ in range(steps):
        # with counts as the mask the gradient is Σ 2n(f − mean)∇f, and the loss beside it of no use
        slope = network.squared_loss(theta, x, means, counts)[1] / 2
        theta = theta - rate * (slope + m * lam * (theta - theta0))
    return theta


def tangent_start(network: Network, problem: Problem) -> Tensor:
    """θ₀ of every run, (S, d_w): two halves with equal first layers and opposite second ones, so that f(x; θ₀) = 0.

    All weights are standard normal, those of the first layer over √d_x.
    """
    half = Network(network.d_x, network.hidden // 2)
    rows = []
    for run in problem.runs:
        source = generator(problem.seed, run, "theta zero")
        first, bias, second, _ = half.split(torch.randn(half.size, generator=source, dtype=torch.float64))
        first = first / network.d_x**0.5
        parts = (first.flatten(), first.flatten(), bias, bias, second, -second, second.new_zeros(1))
        rows.append(torch.cat(parts))
    return torch.stack(rows)


@on_cpu
def fn_ucb(
    problem: Problem,
    clients: int,
    steps: int,
    *,
    lam: float,
    optimism: float,
    gamma: float = 1.0,
    descent: int = 30,
    hidden: int = 26,
    encoding: Literal["dense", "counts"] = "dense",
    space: Literal["arms", "parameters"] = "arms",
) -> Trace:
    """``steps`` steps of FN-UCB with λ = ``lam``, ν√λ = ``optimism``, J = ``descent`` and m = ``hidden``, even.

    Inputs are the arms standardised. Dense, a client sends W, B, V_j⁻¹, θ_j and α_j, 2(d_w² + d_w) + 1 scalars with
    d_w = m(d_x + 2) + 1, and gets as many; in "counts" the clients send counts and sums, the server trains, and sends
    the news, θ, the K averaged variances and α.
    """
    require_run(problem, clients, steps)
    number("optimism", optimism, "give a finite ν√λ, at least 0", least=0)
    count("descent", descent, "give J, the steps of gradient descent, at least 1")
    even = count("hidden", hidden, "give m, at least 2") % 2 == 0
    require(even, "hidden", hidden, "give an even m: two halves")
    encodings = ("dense", "counts")
    require(encoding in encodings, "encoding", encoding, f"choose one of {encodings}")
    engines = {"arms": EventTriggered, "parameters": ParameterSpace}
    require(space in engines, "space", space, f"choose one of {tuple(engines)}")
    network = Network(problem.arms.shape[-1], hidden)
    spread = problem.arms.std(1, correction=0, keepdim=True)
    inputs = (problem.arms - problem.arms.mean(1, keepdim=True)) / torch.where(spread > 0, spread, 1.0)
    theta0 = tangent_start(network, problem)
    features = network.gradients(theta0, inputs) / hidden**0.5
    settings = Settings(lam, optimism**2, gamma, encoding)
    offsets = torch.zeros(features.shape[0], 1, features.shape[1], dtype=torch.float64)
    rows = compress(features.unsqueeze(1)).features
    tangent = engines[space](clients, rows, offsets, network.size, settings)
    learner = FNUCB(tangent, network, inputs, theta0, features, optimism, descent)
    nothing = Exploration.nothing(len(problem.runs))
    return simulate("FN-UCB", problem, learner, nothing, clients, steps)


@dataclass(frozen=True)
class InformedImmediate(InformedByPhaseOne, Immediate):
    """`Immediate` whose learner knows the data of Phase I."""


@on_cpu
def fitted_kernel_ucb(problem: Problem, clients: int, rounds: int, kappa: float = 3.0) -> Trace:
    """T₀ = ⌈√(NT)⌉ uniform pulls, a fit to them, then T = ``rounds`` rounds of kernel UCB with N = ``clients``.

    κ = ``kappa`` standard deviations of optimism. A pull is sent as its arm's number and its reward, 2 scalars up and
    2N down, in Phase I too. K × K numbers for every run.
    """
    require_run(problem, clients, rounds)
    number("kappa", kappa, "give a finite number of standard deviations κ, at least 0", least=0)
    exploration = explore(problem, phase_one_length(clients, rounds))
    exploration.ledger.up.fill_(2)
    exploration.ledger.down.fill_(2 * clients)
    arms = problem.means.shape[1]
    first = phase_one_tally(exploration, 1, arms).summed()
    tallies = [Tally(*data) for data in zip(*first, strict=True)]
    fits = [fitted_prior(x, data, problem.sigma) for x, data in zip(problem.arms, tallies, strict=True)]
    offsets, kernel = (torch.stack(parts) for parts in zip(*fits, strict=True))
    values, vectors = torch.linalg.eigh(kernel)
    features = (vectors * values.clamp(min=0).sqrt().unsqueeze(-2)).unsqueeze(1)
    settings = Settings(problem.sigma**2, (kappa * problem.sigma) ** 2)
    residuals = Tally(first.counts, first.sums - first.counts * offsets)
    learner = InformedImmediate(1, features, offsets.unsqueeze(1), arms, settings, datum=2, first=residuals)
    return simulate("Kernel UCB, fitted", problem, learner, exploration, clients, clients * rounds)


def fitted_prior(arms: Tensor, data: Tally, sigma: float) -> tuple[Tensor, Tensor]:
    """Mean (K,) and kernel (K, K) of the ``arms`` (K, d_x) before any data, of a process fitted to ``data`` (K,)."""
    fitted = GaussianProcess().fit(arms, data, sigma)
    assert isinstance(fitted, FittedModel)
    model = fitted.model
    with torch.no_grad():
        standard = model.forward(fitted.arms)
        mean, covariance = standard.mean.detach(), standard.covariance_matrix.detach()
    centre, scale = model.outcome_transform.means.squeeze(), model.outcome_transform.stdvs.squeeze()
    return centre + scale * mean, scale.square() * covariance
