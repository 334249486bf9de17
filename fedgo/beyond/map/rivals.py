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

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, number, on_cpu, require
from fedgo._streams import generator
from fedgo.algorithms.go_ucb import Immediate
from fedgo.beyond.guard.guarantee import phase_one_tally
from fedgo.beyond.surrogates.gaussian_process import FittedModel, GaussianProcess
from fedgo.confidence import Tally, compress
from fedgo.experiments.players import MANY
from fedgo.line_three.parameter_space import ParameterSpace
from fedgo.network import Network
from fedgo.phase_one import Exploration, explore, phase_one_length
from fedgo.phase_two import EventState, EventTriggered, Settings, place, require_run
from fedgo.problem import Problem
from fedgo.simulation import simulate
from fedgo.star import Message, Star, When
from fedgo.trace import Trace

_POWER = 20  # iterations for the largest curvature


class Averaged(NamedTuple):
    """What the server of FN-UCB broadcasts beside the sums, from the data of all clients at a synchronisation.

    With V_j = λI + Σφφᵀ over all of client j's own pulls, s_j(x) = √(φ_xᵀV_j⁻¹φ_x) is the width of client j at arm x.

    Args:
        values: f(x; θ) of every arm, for the parameters θ averaged over the clients, (S, K).
        spread: √((1/N)Σ_j s_j(x)²) of every arm, (S, K).
        alpha: The weight α = min_j min_x s_j(x)/max_x s_j(x) of the network's index, (S,); 0 before the first
            synchronisation.
    """

    values: Tensor
    spread: Tensor
    alpha: Tensor


class NeuralState(NamedTuple):
    """The state of S runs of `FNUCB` with N clients.

    Args:
        tangent: The state of the linearised model.
        own: The counts and sums of all of each client's own pulls, (S, N, K).
        averaged: What the server broadcast last.
    """

    tangent: EventState
    own: Tally
    averaged: Averaged


@dataclass(frozen=True)
class FNUCB:
    """The learner of FN-UCB with N clients, in S runs with K arms.

    Args:
        tangent: The learner whose posterior gives UCBᵃ, and whose event triggers synchronisations.
        network: The network f(x; θ), with d_w parameters.
        inputs: The standardised arms, (S, K, d_x).
        theta0: The initial parameters θ₀, (S, d_w).
        features: φ_x = ∇f(x; θ₀)/√m of every arm, with m the width of the network, (S, K, d_w).
        descent: The number J of steps of gradient descent at each synchronisation.
    """

    tangent: EventTriggered
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
        """Return FN-UCB's index (1 − α)UCBᵃ + αUCBᵇ, (S, N, K).

        UCBᵃ comes from the client's linearised model, UCBᵇ from the network averaged over the clients, and α is the
        weight that the server broadcast last. The weight of the widths in both is √β = ν√λ.
        """
        values, spread, alpha = (part.unsqueeze(1) for part in state.averaged)
        second, alpha = values + math.sqrt(self.tangent.settings.beta) * spread, alpha.unsqueeze(-1)
        return (1 - alpha) * self.tangent.index(state.tangent) + alpha * second

    def fires(self, state: NeuralState, arm: Tensor) -> Tensor:
        """Return whether the event of the linearised model fires after the pull of ``arm`` (S, N), (S, N) bool."""
        return self.tangent.fires(state.tangent, arm)

    def learn(self, state: NeuralState, arm: Tensor, reward: Tensor, turn: Tensor) -> NeuralState:
        """Return the state after the clients in ``turn`` (S, N) bool have pulled ``arm`` and received ``reward``, (S,
        N) each: the linearised model learns, and the client stores the reward.
        """
        own = state.own.record(arm, reward, turn)
        return state._replace(tangent=self.tangent.learn(state.tangent, arm, reward, turn), own=own)

    def synchronise(self, state: NeuralState, star: Star, when: When) -> NeuralState:
        """Return the state after a synchronisation of the runs in ``when``.

        The linearised model synchronises its statistics. In the dense encoding each client also sends V_j⁻¹, θ_j and
        α_j and receives their averages and α. In the encoding "counts" the server computes these itself and sends θ,
        the K averaged variances and α.
        """
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
        """Return what the server broadcasts in the R runs ``run`` (R,), computed from the data ``own`` (R, N, K) of
        every client.
        """
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
    """Return s_j²(x) = φ_xᵀ(λI + Σ n φφᵀ)⁻¹φ_x of every client j and arm x, (N, K), with n the client's counts.

    Args:
        features: φ of every arm, (K, d).
        lam: λ.
        own: The counts and sums of each client, (N, K).
    """
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
    """Return the parameters θ of every client's network after gradient descent from θ₀, (N, d_w).

    The loss is ½Σ(f(x; θ) − y)² + ½mλ‖θ − θ₀‖² over the client's own pulls, with m the width of the network. The step
    size is 1/(mλ + the largest eigenvalue of mΣφφᵀ), the eigenvalue by power iteration.

    Args:
        network: The network f.
        theta0: θ₀, (d_w,).
        x: The standardised arms, (K, d_x).
        features: φ of every arm, (K, d_w).
        own: The counts and sums of each client, (N, K).
        lam: λ.
        steps: The number of steps.
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
    """Return the initial parameters θ₀ of every run, (S, d_w), for which f(x; θ₀) = 0.

    The two halves of the hidden units have equal first layers and opposite second layers, and the output bias is 0. All
    other parameters are standard normal, with the weights of the first layer divided by √d_x.
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
    """Play FN-UCB on the standardised arms.

    The linearised model computes with vectors over the arms if there are at most `MANY`, and over the parameters
    otherwise.

    Args:
        problem: The arms and rewards of S runs.
        clients: The number N of clients.
        steps: The number of pulls, all clients together.
        settings: The regularisation weight λ, β = ν²λ with ν√λ the weight of the widths in both indices, the threshold
            γ of the event, and the form of the messages. In "dense" a client sends its new statistics of the linearised
            model, V_j⁻¹, θ_j and α_j, 2(d_w² + d_w) + 1 scalars with d_w = m(d_x + 2) + 1, and receives as many. In
            "counts" the clients send counts and sums, and the server trains and sends the new counts and sums, θ, the K
            averaged variances and α.
        descent: The number J of steps of gradient descent at each synchronisation.
        hidden: The width m of the network, an even number.

    Raises:
        TypeError: An argument is of another kind than stated.
        ValueError: A value is out of range, m is odd, or the form of the messages is another one.
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


@dataclass(frozen=True)
class Informed(Immediate):
    """A learner like `Immediate` that knows the data of Phase I from the start.

    Args:
        first: The counts of Phase I and its summed rewards less n times the offset, by arm, (S, K).
    """

    first: Tally = field(kw_only=True)

    def begin(self) -> EventState:
        """Return the state in which the learner and the server know the data of Phase I."""
        return self.resume(self.first)


@on_cpu
def fitted_kernel_ucb(problem: Problem, clients: int, rounds: int, kappa: float = 3.0) -> Trace:
    """Play T₀ = ⌈√(NT)⌉ uniform pulls, fit a kernel to them once, and play T rounds of kernel UCB with it.

    Every pull is shared at once as its arm's number and its reward, 2 scalars up and 2N down, in Phase I too. Memory is
    K × K numbers for each run.

    Args:
        problem: The arms and rewards of S runs, with K arms.
        clients: The number N of clients.
        rounds: T.
        kappa: κ, the weight of the standard deviation in the index.

    Raises:
        ValueError: A value is out of range.
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
    learner = Informed(1, features, offsets.unsqueeze(1), arms, settings, datum=2, first=residuals)
    return simulate("Kernel UCB, fitted", problem, learner, exploration, clients, clients * rounds)


def fitted_prior(arms: Tensor, data: Tally, sigma: float) -> tuple[Tensor, Tensor]:
    """Return the prior mean (K,) and kernel matrix (K, K) of a Gaussian process whose hyperparameters are fitted to
    ``data``.

    Args:
        arms: The features of the arms, (K, d_x).
        data: The counts and sums of each arm, (K,).
        sigma: The standard deviation σ of the noise of a reward.
    """
    fitted = GaussianProcess().fit(arms, data, sigma)
    assert isinstance(fitted, FittedModel)
    model = fitted.model
    with torch.no_grad():
        standard = model.forward(fitted.arms)
        mean, covariance = standard.mean.detach(), standard.covariance_matrix.detach()
    centre, scale = model.outcome_transform.means.squeeze(), model.outcome_transform.stdvs.squeeze()
    return centre + scale * mean, scale.square() * covariance
