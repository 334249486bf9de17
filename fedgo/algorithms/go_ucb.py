"""Fed-GO-UCB and its two extremes (Li, Liu and Wang, ICLR 2024, https://arxiv.org/abs/2311.01695).

Phase II of Algorithm 1 is ridge regression on the gradients g_x = ∇f_x(ŵ₀) of the arms x. f_x(w) is the mean reward of
x in the parametric class for the parameter w, and ŵ₀ the parameter that the oracle of Phase I has fitted. The matrix Σ
begins at λI, with the regularisation weight λ, and the vector b at 0. A pull of the arm x with gradient g and reward y
updates them as follows, and line 3 chooses the next arm, with the squared radius β of the confidence ball:

    Σ ← Σ + g gᵀ,   b ← b + g(gᵀŵ₀ + y − f_x(ŵ₀)),   ŵ = Σ⁻¹b + λΣ⁻¹ŵ₀,   x = argmax_x max_{‖w − ŵ‖²_Σ ≤ β} f_x(w)

Fed-GO-UCB synchronises if the new data of a client have changed its Σ enough (line 6 of Algorithm 1), and One-GO-UCB
after every pull. N-GO-UCB (Section 6) never synchronises, and each of its clients fits a ŵ₀ of its own to its own data
of Phase I. The learners are those of `fedgo.phase_two`. Their index is the first-order index f_x(ŵ₀) + gᵀ(ŵ − ŵ₀) +
√β‖g‖_{Σ⁻¹}, or the index of line 3 as printed, which `fedgo.line_three` computes.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from fedgo._checks import on_cpu, require, require_kind
from fedgo.confidence import Posterior, Tally, compress, condition, first_order, of_arm, require_prior
from fedgo.langevin import Langevin, Shards, langevin_rounds, last
from fedgo.line_three.ascent import LineThree
from fedgo.line_three.images import view
from fedgo.many_arms import ParameterSpace
from fedgo.messages import scalars
from fedgo.network import Network, Parametric
from fedgo.phase_one import Start, explore_and_deal, require_fitted
from fedgo.phase_two import AFRESH, EventTriggered, Index, OnEvent, Settings, recomputed
from fedgo.problem import Problem
from fedgo.simulation import Learner, simulate
from fedgo.star import Message, Star, When, answer
from fedgo.trace import Trace

Argmax = Literal["first-order", "ascent"]
Space = Literal["arms", "parameters"]
# The number of private models that are fitted at once. With fewer, the calls cost more time; with more, the data do not
# fit into the cache.
_FITTED_AT_ONCE = 400


@on_cpu
def fed_go_ucb(
    start: Start, settings: Settings, argmax: Argmax = "first-order", space: Space = "arms"
) -> Trace:
    """Play Phase II of Fed-GO-UCB: N clients with a ridge model each, which synchronise by the event of line 6.

    The event is that of `fedgo.phase_two`, with the threshold γ.

    Args:
        start: Phase I with N clients, a `shared_start`.
        settings: λ, β, γ and the form of the messages.
        argmax: "first-order" for the index mean + √β·width of the linearised model, or "ascent" for line 3 as printed:
            the largest value of the network itself over the confidence ball, found by ascent.
        space: "arms" for a K × K matrix at each client, or "parameters" for many arms, without K × K matrices; the arms
            pulled are the same, up to rounding.

    Raises:
        ValueError: The start does not fit the settings; ``argmax`` or ``space`` is unknown; "ascent" is asked for a
            class other than `fedgo.network.Network`; the gradients or rewards are so large, or λ so small, that
            rounding would decide which arm is pulled; or a message is sent and the network has more than 10⁶
            parameters.
        TypeError: An argument is of another kind.
    """
    return run_from(start, "Fed-GO-UCB", fed_go_learner(start, settings, argmax, space))


def fed_go_learner(
    start: Start, settings: Settings, argmax: Argmax = "first-order", space: Space = "arms"
) -> OnEvent[Any]:
    """Return the clients of `fed_go_ucb`, with the same arguments, as a learner for `fedgo.simulation.simulate`."""
    _check(start, settings)
    engines: dict[Space, type[OnEvent[Any]]] = {"arms": EventTriggered, "parameters": ParameterSpace}
    require(space in engines, "space", space, f"choose one of {tuple(engines)}")
    features, offsets, optimism = _linearised(start, settings, argmax)
    return engines[space](start.clients, features, offsets, start.network.size, settings, optimism)


@on_cpu
def one_go_ucb(start: Start, settings: Settings, argmax: Argmax = "first-order") -> Trace:
    """Play Phase II of One-GO-UCB: one ridge model that all N clients share and that every pull updates at once.

    In the dense form each step costs (N + 1)(d_w² + d_w) scalars, for d_w parameters.

    Args:
        start: Phase I with N clients, a `shared_start`.
        settings: λ, β and the form of the messages; γ is not used.
        argmax: As in `fed_go_ucb`.

    Raises:
        ValueError: As in `fed_go_ucb`.
        TypeError: An argument is of another kind.
    """
    _check(start, settings)
    features, offsets, optimism = _linearised(start, settings, argmax)
    learner = Immediate(features, offsets, start.network.size, settings, optimism)
    return run_from(start, "One-GO-UCB", learner)


@on_cpu
def n_go_ucb(start: Start, settings: Settings, argmax: Argmax = "first-order") -> Trace:
    """Play Phase II of N-GO-UCB: N clients with a ridge model each, which never communicate.

    Args:
        start: Phase I with N clients, a `private_start`.
        settings: λ and β; γ and the form of the messages are not used.
        argmax: As in `fed_go_ucb`.

    Raises:
        ValueError: The start does not have a ŵ₀ for each client, or as in `fed_go_ucb`.
        TypeError: An argument is of another kind.
    """
    _check(start, settings, shared=False)
    alone = Settings(settings.lam, settings.beta, float("inf"))
    features, offsets, optimism = _linearised(start, alone, argmax)
    learner = EventTriggered(start.clients, features, offsets, start.network.size, alone, optimism)
    return run_from(start, "N-GO-UCB", learner)


@on_cpu
def private_start(
    problem: Problem,
    network: Parametric,
    clients: int,
    rounds: int,
    langevin: Langevin | None = None,
    length: int | None = None,
) -> Start:
    """Run Phase I of N-GO-UCB: each client fits its own ŵ₀ to its own share of the pulls, and nothing is sent.

    With fewer pulls than clients, some clients have no data; their oracle follows the noise alone. The arguments and
    errors are those of `fedgo.phase_one.shared_start`.

    Args:
        problem: S runs of a bandit problem.
        network: The parametric class F.
        clients: The number N of clients.
        rounds: The number T of rounds of Phase II.
        langevin: The settings of Algorithm 2, or None for the default ones.
        length: The number T₀ of pulls of all clients together, or None for ⌈√(NT)⌉.
    """
    exploration, shards = explore_and_deal(problem, network, clients, rounds, length)
    generators = problem.generators("private langevin")
    apart = Shards(*(values.flatten(0, 1).unsqueeze(1) for values in shards))  # S·N fits with one client each
    fits, at_once = [], max(1, _FITTED_AT_ONCE // clients)
    for first in range(0, len(generators), at_once):
        systems = slice(first * clients, (first + at_once) * clients)
        batch = Shards(*(tensor[systems] for tensor in apart))
        sources = generators[first : first + at_once]
        fits.append(last(langevin_rounds(network, batch, langevin, sources, answer)))
    w0, loss = (torch.cat(parts).unflatten(0, (-1, clients)) for parts in zip(*fits, strict=True))
    require_fitted(exploration.reward, loss)
    return Start(problem, network, clients, rounds, exploration, w0, loss)


class SharedState(NamedTuple):
    """The posterior that all clients of a run share, (S, 1, K), and the counts and sums of all pulls of Phase II."""

    posterior: Posterior
    known: Tally


@dataclass(frozen=True)
class Immediate:
    """A learner of one ridge model, which all N clients share and which every pull updates at once.

    The client that pulled sends ΔΣ and Δb, d_w² + d_w scalars in the dense form, and all N clients receive Σ and b.
    Algorithm 1 with γ = 0 makes the same choices, if no gradient is 0, and sends 2N(d_w² + d_w) scalars for each step,
    because there all N clients send. There are S runs of K arms.

    Args:
        features: The gradients of the arms, or their r coordinates, (S, 1, K, r).
        offsets: The mean of each arm before Phase II, (S, 1, K).
        dimension: The number d_w ≤ 10⁶ of parameters, which decides the cost of a message.
        settings: λ, β and the form of the messages; γ is not used.
        optimism: Returns the index of each arm, (S, 1, K), from the posterior and the data; None for the first-order
            index.
        datum: The cost in scalars of sending the pull itself instead of its statistics, always in the dense form and in
            another form if it costs less; None if it is not sent.
    """

    features: Tensor
    offsets: Tensor
    dimension: int
    settings: Settings
    optimism: Index | None = None
    datum: int | None = None

    @property
    def learners(self) -> int:
        """One learner, which all clients share."""
        return 1

    @cached_property
    def cost(self) -> Tensor:
        """The number of scalars of a message after a pull, () int64; one goes up, and one to each client."""
        cost = scalars(self.settings.encoding, self.dimension, 1, self.features.shape[-2])
        if self.datum is None:
            return cost
        return torch.tensor(self.datum) if self.settings.encoding == "dense" else cost.clamp(max=self.datum)

    def begin(self) -> SharedState:
        """Return the state without data.

        Raises:
            ValueError: The features are so large, or λ so small, that rounding would decide which arm is pulled.
        """
        require_prior(self.features.square().sum(-1).amax(), self.settings.lam)
        known = Tally.blank(*self.features.shape[:-1])
        return SharedState(condition(self.features, self.offsets, self.settings.lam, known).of_each(1), known)

    def index(self, state: SharedState) -> Tensor:
        """Return the optimistic value of each arm, (S, 1, K)."""
        if self.optimism is None:
            return first_order(state.posterior, self.settings.beta)
        return self.optimism(state.posterior, state.known)

    def fires(self, state: SharedState, arm: Tensor) -> Tensor:
        """Return True for every run, (S, 1), because every pull triggers a synchronisation."""
        return torch.ones_like(arm, dtype=torch.bool)

    def learn(self, state: SharedState, arm: Tensor, reward: Tensor, turn: Tensor) -> SharedState:
        """Return the state after one pull of the runs with ``turn`` 1; every hundredth time it is computed afresh."""
        residual = reward - of_arm(self.offsets, arm)
        known = state.known.record(arm, residual, turn)
        posterior = state.posterior.absorb(arm, reward, turn)
        due = (turn == 1) & (known.counts.sum(-1) % AFRESH == 0)
        if due.any():
            posterior = recomputed(posterior, self.features, self.offsets, self.settings.lam, known, due)
        return SharedState(posterior, known)

    def synchronise(self, state: SharedState, star: Star, when: When) -> SharedState:
        """Count the scalars of a synchronisation: the model that all clients share is up to date already."""
        message = Message(None, self.cost)
        star.collect(message, when, senders=1)
        star.broadcast(message, when)
        return state


def _check(start: Start, settings: Settings, shared: bool = True) -> None:
    """Check that Phase II can begin with this start, with one ŵ₀ for all clients if it is ``shared``."""
    require_kind(isinstance(start, Start), "start", start, "give the Start that Phase I leaves")
    require_kind(isinstance(settings, Settings), "settings", settings, "give Settings(lam, beta, gamma)")
    # N-GO-UCB, which has a private start, sends nothing in either phase; the form of the messages does not matter
    start.require(settings.encoding if shared else start.encoding, shared)


def _linearised(start: Start, settings: Settings, argmax: Argmax) -> tuple[Tensor, Tensor, Index | None]:
    """Return the coordinates of the network's gradients at ŵ₀, its values there, and the index or None."""
    kinds = ("first-order", "ascent")
    require(argmax in kinds, "argmax", argmax, f"choose one of {kinds}")
    arms = start.problem.arms.unsqueeze(1)
    features = compress(start.network.gradients(start.w0, arms)).features
    offsets = start.network.values(start.w0, arms)
    if argmax == "first-order":
        return features, offsets, None
    if not isinstance(start.network, Network):
        raise ValueError(f"argmax is {argmax!r}: the ascent of line 3 needs a Network; use 'first-order'")
    return features, offsets, LineThree(view(start.network, start.w0, arms), settings.lam, settings.beta)


def run_from(start: Start, name: str, learner: Learner[Any]) -> Trace:
    """Play NT steps of ``learner`` after the Phase I of ``start``, and return the trace of both phases."""
    steps = start.clients * start.rounds
    return simulate(name, start.problem, learner, start.exploration, start.clients, steps)
