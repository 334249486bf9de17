"""Two algorithms to compare with on many regimes: FN-UCB, and kernel UCB with hyperparameters that are fitted once.

**FN-UCB** weighs a neural tangent model on all clients' data against an averaged network (Dai, Shu, Verma, Fan, Low and
Jaillet, Federated Neural Bandits, ICLR 2023, https://arxiv.org/abs/2205.14309).

Its features are φ_x = g(x; θ₀)/√m, with the gradient g at θ₀ of a network of width m whose output at the initial
parameters θ₀ is 0. Client i has V̄_i = λI + Σφφᵀ and θ̄_i = V̄_i⁻¹Σφy over all synchronised data and its own data
since. V_j = λI + Σφφᵀ is the matrix of all of client j's own data alone. Then

    UCBᵃ_i(x) = φ_xᵀθ̄_i + ν√λ‖φ_x‖_{V̄_i⁻¹},   UCBᵇ(x) = f(x; θ) + ν√λ √(φ_xᵀ((1/N)Σ_j V_j⁻¹)φ_x),
    and client i pulls x = argmax (1 − α)UCBᵃ_i + αUCBᵇ.

Here λ is the regularisation weight, ν the weight of the widths, y a reward and f(x; θ) the output of the network. θ is
the mean over the N clients of the parameters that each client reaches from θ₀ by J steps of gradient descent on the
loss ½Σ(f(x; θ) − y)² + ½mλ‖θ − θ₀‖² of its own data. The weight of UCBᵇ is α = min_j min_x s_j(x)/max_x s_j(x), with
s_j(x) = ‖φ_x‖_{V_j⁻¹}. V_j, θ and α are those of the last synchronisation, and α = 0 before the first. Client i starts
a synchronisation of all clients when its n_i pulls since the last one have n_i·ln(det V̄_i/det V̄_last) > γ, with the
threshold γ and the matrix V̄_last that all clients had after the last synchronisation. This differs from the
experiments of that paper in four points: the arms stay the same, sigmoid units take the place of ReLU, α is that of the
theory and not a schedule, and a step of gradient descent is as long as the curvature at θ₀ allows.

**Kernel UCB with hyperparameters fitted once** takes those of BoTorch's SingleTaskGP after Phase I, and then uses the
exact kernel:

    index_x = μ_x + κσ‖φ_x‖_{Σ⁻¹},   Σ = σ²I + Σ_t φ(x_t)φ(x_t)ᵀ,   φ_xᵀφ_x' = k(x, x')

Here κ is the weight of the posterior standard deviation, and σ the standard deviation of a reward's noise. The kernel
k is the posterior covariance of that process after Phase I, and its posterior mean is the first μ. The sum is over the
arms x_t pulled in Phase II, so that μ_x and σ‖φ_x‖_{Σ⁻¹} are the posterior mean and standard deviation by the process
given all pulls. All clients learn of every pull at once, as in `fedgo.algorithms.controls.exact_kernel_ucb`.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, number, on_cpu, require
from fedgo._streams import generator
from fedgo.algorithms.go_ucb import Immediate
from fedgo.beyond.evidence.libraries import fit_to_pulls
from fedgo.beyond.method.gaussian_process import GaussianProcess
from fedgo.confidence import Tally, compress
from fedgo.experiments.players import MANY
from fedgo.many_arms import ParameterSpace
from fedgo.network import Network
from fedgo.phase_one import Exploration, explore, phase_one_length
from fedgo.phase_two import EventState, EventTriggered, OnEvent, Settings, place, require_run
from fedgo.problem import Problem
from fedgo.simulation import simulate
from fedgo.star import Message, Star, When
from fedgo.trace import Trace

_POWER = 20  # power iterations for the largest curvature


class Averaged(NamedTuple):
    """What FN-UCB's server broadcasts at a synchronisation besides the statistics of the linearised model; 0 before.

    Args:
        values: The network's value f(x; θ) at each arm, (S, K).
        spread: √((1/N)Σ_j s_j(x)²) of each arm, (S, K).
        alpha: The weight α, (S,).
    """

    values: Tensor
    spread: Tensor
    alpha: Tensor


class NeuralState(NamedTuple):
    """The state of the linearised models, each client's own counts and sums (S, N, K), and what was broadcast last."""

    tangent: EventState[Any]
    own: Tally
    averaged: Averaged


@dataclass(frozen=True)
class FNUCB:
    """The `Learner` of FN-UCB with N clients, in S runs with K arms.

    Args:
        tangent: The learner whose posterior gives UCBᵃ, and whose event starts synchronisations.
        network: The network f(x; θ), with d_w parameters.
        inputs: The standardised features of the arms, (S, K, d_x).
        theta0: The initial parameters θ₀ of the network, (S, d_w).
        features: φ_x of each arm, (S, K, d_w).
        descent: The number J of steps of gradient descent at each synchronisation.
    """

    tangent: OnEvent[Any]
    network: Network
    inputs: Tensor
    theta0: Tensor
    features: Tensor
    descent: int

    @property
    def learners(self) -> int:
        """The number N of clients."""
        return self.tangent.learners

    def begin(self) -> NeuralState:
        """Return the state before any data, with α = 0."""
        runs, arms, _ = self.features.shape
        blank = self.features.new_zeros(runs, arms)
        own = Tally.blank(runs, self.learners, arms)
        return NeuralState(self.tangent.begin(), own, Averaged(blank, blank, blank[:, 0]))

    def index(self, state: NeuralState) -> Tensor:
        """Return (1 − α)UCBᵃ + αUCBᵇ, (S, N, K)."""
        values, spread, alpha = (part.unsqueeze(1) for part in state.averaged)
        alpha = alpha.unsqueeze(-1)
        second = values + math.sqrt(self.tangent.settings.beta) * spread
        return (1 - alpha) * self.tangent.index(state.tangent) + alpha * second

    def fires(self, state: NeuralState, arm: Tensor) -> Tensor:
        """Return whether the event of the linearised model occurs."""
        return self.tangent.fires(state.tangent, arm)

    def learn(self, state: NeuralState, arm: Tensor, reward: Tensor, turn: Tensor) -> NeuralState:
        """Return the state after a pull, which the linearised model and the client's own counts and sums learn."""
        own = state.own.record(arm, reward, turn)
        return state._replace(tangent=self.tangent.learn(state.tangent, arm, reward, turn), own=own)

    def synchronise(self, state: NeuralState, star: Star, when: When) -> NeuralState:
        """Return the state after a synchronisation of the runs in ``when`` over ``star``.

        With the encoding "dense" each client also sends V_j⁻¹, its network's parameters and its share of α, and
        receives the averages and α. With "counts" the server computes all this and sends θ, the averages of s_j(x)² and
        α.
        """
        run = when.run
        tangent = self.tangent.synchronise(state.tangent, star, when)
        own = state.own.of(run)
        averaged = self._averaged(run, own)
        size, arms = self.network.size, self.features.shape[1]
        packed = self.tangent.settings.encoding == "counts"  # the server trains the networks
        up, down = (0, arms + size + 1) if packed else (size**2 + size + 1, size**2 + size + 1)
        star.collect(Message(own, up), when)
        new = star.broadcast(Message(averaged, down), when)
        return state._replace(tangent=tangent, averaged=place(state.averaged, run, new))

    def _averaged(self, run: Tensor, own: Tally) -> Averaged:
        """Return what the server broadcasts in the R runs ``run``, from the clients' ``own`` data (R, N, K)."""
        lam, of_clients = self.tangent.settings.lam, []
        for r, *data in zip(run.tolist(), *own, strict=True):
            known, inputs, features = Tally(*data), self.inputs[r], self.features[r]
            variance = local_variances(features, lam, known)
            theta = train_networks(self.network, self.theta0[r], inputs, features, known, lam, self.descent)
            values = self.network.values(theta.mean(0), inputs)
            share = (variance.amin(-1) / variance.amax(-1)).sqrt()
            of_clients.append((values, variance.mean(0).sqrt(), share.amin()))
        return Averaged(*(torch.stack(parts) for parts in zip(*of_clients, strict=True)))


def local_variances(features: Tensor, lam: float, own: Tally) -> Tensor:
    """Return s_j(x)² of each client at each arm, (N, K), from the clients' ``own`` counts (N, K)."""
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
    """Return the parameters of each client's network after gradient descent from θ₀, (N, d_w).

    The loss is that of the head, computed from the mean reward of each arm. The step size is 1/(mλ + mρ), where ρ is
    the largest eigenvalue of Σφφᵀ over the client's pulls, as 20 power iterations estimate it.

    Args:
        network: The network f.
        theta0: The initial parameters θ₀, (d_w,), which a client without pulls keeps.
        x: The standardised features of the arms, (K, d_x).
        features: The features φ of each arm, (K, d_w).
        own: The counts and sums of each client's own pulls, (N, K) each.
        lam: The regularisation weight λ.
        steps: The number J of steps.
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
        # with the counts as its mask, the gradient is Σ 2n(f − mean)∇f; the loss that comes with it is not needed
        slope = network.squared_loss(theta, x, means, counts)[1] / 2
        theta = theta - rate * (slope + m * lam * (theta - theta0))
    return theta


def tangent_start(network: Network, problem: Problem) -> Tensor:
    """Return the initial parameters θ₀ of each run, (S, d_w), for which f(x; θ₀) = 0.

    The two halves of the hidden units, whose number has to be even, have equal first layers and opposite second layers,
    and the output bias is 0. All other parameters are standard normal, with the weights of the first layer divided by
    √d_x.
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
    problem: Problem, clients: int, steps: int, settings: Settings, descent: int = 30, hidden: int = 26
) -> Trace:
    """Play FN-UCB, which weighs a neural tangent model against the average of the clients' networks.

    It computes with K × K matrices if there are at most 100 arms (`MANY`), and with the d_w = m(d_x + 2) + 1 parameters
    otherwise.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        steps: The number of pulls by all clients together.
        settings: λ; β = ν²λ; the threshold γ of the event; and the form of the messages, "dense" with 2(d_w² + d_w) + 1
            scalars up and down for each client, or "counts".
        descent: The number J of steps of gradient descent at each synchronisation.
        hidden: The width m of the network, an even number.
    """
    require_run(problem, clients, steps, settings)
    count("descent", descent, "give J, the steps of gradient descent, at least 1")
    even = count("hidden", hidden, "give m, at least 2") % 2 == 0
    require(even, "hidden", hidden, "give an even m: two halves")
    forms = ("dense", "counts")
    require(settings.encoding in forms, "encoding", settings.encoding, f"choose one of {forms}")
    network = Network(problem.arms.shape[-1], hidden)
    spread = problem.arms.std(1, correction=0, keepdim=True)
    inputs = (problem.arms - problem.arms.mean(1, keepdim=True)) / torch.where(spread > 0, spread, 1.0)
    theta0 = tangent_start(network, problem)
    features = network.gradients(theta0, inputs) / hidden**0.5
    rows = compress(features.unsqueeze(1)).features
    offsets = torch.zeros(len(features), 1, features.shape[1], dtype=torch.float64)
    engine = ParameterSpace if features.shape[1] > MANY else EventTriggered
    tangent = engine(clients, rows, offsets, network.size, settings)
    learner = FNUCB(tangent, network, inputs, theta0, features, descent)
    nothing = Exploration.nothing(len(problem.runs))
    return simulate("FN-UCB", problem, learner, nothing, clients, steps)


@on_cpu
def fitted_kernel_ucb(problem: Problem, clients: int, rounds: int, kappa: float = 3.0) -> Trace:
    """Play T₀ = ⌈√(NT)⌉ uniform pulls, fit a kernel to them once, and play T rounds of kernel UCB with it.

    Each pull costs 2 scalars to the server and 2 to each client, in Phase I too. The memory is a few K × K matrices for
    each run.

    Args:
        problem: S runs of a bandit problem.
        clients: The number N of clients.
        rounds: The number T of rounds.
        kappa: κ ≥ 0, the weight of the posterior standard deviation in the index of an arm.
    """
    require_run(problem, clients, rounds)
    number("kappa", kappa, "give a finite number of standard deviations κ, at least 0", least=0)
    exploration = explore(problem, phase_one_length(clients, rounds))
    exploration.ledger.up.fill_(2)
    exploration.ledger.down.fill_(2 * clients)
    every = torch.arange(problem.means.shape[1])
    fits = []
    for x, arm, reward in zip(problem.arms, exploration.arm, exploration.reward, strict=True):
        fits.append(fit_to_pulls(GaussianProcess(), x, arm, reward, problem.sigma))
    kernel = torch.stack([fit.columns(every, every) for fit in fits])
    values, vectors = torch.linalg.eigh(kernel)
    features = (vectors * values.clamp(min=0).sqrt().unsqueeze(-2)).unsqueeze(1)
    settings = Settings(problem.sigma**2, (kappa * problem.sigma) ** 2)
    means = torch.stack([fit.mean for fit in fits]).unsqueeze(1)
    learner = Immediate(features, means, len(every), settings, datum=2)
    return simulate("Kernel UCB, fitted", problem, learner, exploration, clients, clients * rounds)
