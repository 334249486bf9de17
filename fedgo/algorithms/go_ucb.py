"""Fed-GO-UCB (Algorithm 1) and its two extremes, One-GO-UCB and N-GO-UCB (Section 6).

All three are Phase II on the gradients ∇f_x(ŵ₀): Fed-GO-UCB synchronises on an event, One-GO-UCB at every step,
N-GO-UCB never, with N oracles that each fit one client's own Phase I data.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from fedgo.ascent import line_three, view
from fedgo.checks import require
from fedgo.confidence import Posterior, Tally, compress
from fedgo.encoding import Encoding, Sent, check_encoding, names_arms, scalars
from fedgo.network import Network, Parametric
from fedgo.oracle import Ask, Langevin, Shards, explore, langevin_rounds, last, phase_one_length
from fedgo.phase_two import EventTriggered, Immediate, Index, Settings
from fedgo.problem import Problem
from fedgo.simulate import Explored, Trace, simulate
from fedgo.star import Ledger, Star, When, answer

Argmax = Literal["first-order", "ascent"]

_CACHED = 100  # private models fitted at once: so many stay in the cache


@dataclass(frozen=True)
class Start:
    """What Phase I leaves: ŵ₀ = ``w0`` (S, 1, d_w), or (S, N, d_w) where each client has its own, and its loss.

    ``explored`` holds the pulls and the scalars sent, ``loss`` (S, 1 or N) the training loss of ŵ₀.
    """

    network: Parametric
    clients: int
    rounds: int
    explored: Explored
    w0: Tensor
    loss: Tensor


def shared_start(
    problem: Problem,
    network: Parametric,
    clients: int,
    rounds: int,
    langevin: Langevin | None = None,
    length: int | None = None,
    encoding: Encoding = "dense",
) -> Start:
    """Phase I of Fed-GO-UCB and One-GO-UCB: T₀ = ``length`` pulls (⌈√(NT)⌉ unless said), one oracle over the star.

    The oracle's n rounds (2nNd_w scalars) and the broadcast of ŵ₀ (Nd_w) are booked at the last step of Phase I. With
    an ``encoding`` that names arms, every client sends its counts and sums once and the server runs all rounds alone.
    """
    check_encoding(encoding)
    shards, explored = _pull(problem, network, clients, rounds, length)
    runs = torch.arange(len(problem.runs))
    star = Star(clients, explored.ledger)
    when = When(runs, torch.full_like(runs, explored.arm.shape[1] - 1))
    ask: Ask = partial(star.ask, when=when)
    if names_arms(encoding):
        cost = scalars("counts", network.size, shards.mask.sum(-1), problem.arms.shape[1])
        star.collect(Sent(cost), when)
        ask = answer
    generators = problem.generators("langevin")
    fit = last(langevin_rounds(network, shards, langevin or Langevin(), generators, ask))
    w0 = star.broadcast(fit.w.unsqueeze(1), when)
    return Start(network, clients, rounds, explored, w0, fit.loss.unsqueeze(1))


def private_start(
    problem: Problem,
    network: Parametric,
    clients: int,
    rounds: int,
    langevin: Langevin | None = None,
    length: int | None = None,
) -> Start:
    """Phase I of N-GO-UCB: the same pulls, each client fits its own ŵ₀ to its own share; nothing is sent.

    A client without data (T₀ < N) keeps the random walk that the Langevin noise alone makes of w = 0.
    """
    shards, explored = _pull(problem, network, clients, rounds, length)
    generators = problem.generators("private langevin")
    at_once = max(1, _CACHED // clients)
    fits = []
    for first in range(0, len(generators), at_once):
        some = slice(first, first + at_once)
        alone = Shards(*(part[some] for part in shards)).apart()
        rounds_alone = langevin_rounds(network, alone, langevin or Langevin(), generators[some], answer)
        fits.append(last(rounds_alone))
    w0 = torch.cat([fit.w for fit in fits]).unflatten(0, (-1, clients))
    loss = torch.cat([fit.loss for fit in fits]).unflatten(0, (-1, clients))
    return Start(network, clients, rounds, explored, w0, loss)


def fed_go_ucb(problem: Problem, start: Start, settings: Settings, argmax: Argmax = "first-order") -> Trace:
    """Fed-GO-UCB: N models around one ŵ₀, synchronised when the event with threshold γ fires."""
    learner = EventTriggered(start.clients, *_linearise(problem, start, settings, argmax))
    return _run("Fed-GO-UCB", problem, learner, start)


def one_go_ucb(problem: Problem, start: Start, settings: Settings, argmax: Argmax = "first-order") -> Trace:
    """One-GO-UCB: one model for all clients; each step costs (N + 1)(d_w² + d_w) scalars, γ is not used."""
    learner = Immediate(1, *_linearise(problem, start, settings, argmax))
    return _run("One-GO-UCB", problem, learner, start)


def n_go_ucb(problem: Problem, start: Start, settings: Settings, argmax: Argmax = "first-order") -> Trace:
    """N-GO-UCB: N models, each around its client's own ŵ₀ (a `private_start`), nothing sent; γ is not used."""
    require(
        start.w0.shape[1] == start.clients, "the shape of w0", tuple(start.w0.shape), "give a private_start"
    )
    alone = Settings(settings.lam, settings.beta, float("inf"))
    learner = EventTriggered(start.clients, *_linearise(problem, start, alone, argmax))
    return _run("N-GO-UCB", problem, learner, start)


def _linearise(
    problem: Problem, start: Start, settings: Settings, argmax: Argmax
) -> tuple[Tensor, Tensor, int, Settings, Index | None]:
    """Features, offsets f_x(ŵ₀), d_w, settings and the optimism of a learner on the gradients at ŵ₀."""
    kinds = ("first-order", "ascent")
    require(argmax in kinds, "argmax", argmax, f"choose one of {kinds}")
    arms = problem.arms.unsqueeze(1)
    coordinates = compress(start.network.gradients(start.w0, arms))
    optimism = None
    if argmax == "ascent":
        if not isinstance(start.network, Network):
            raise ValueError(f"argmax is {argmax!r}: the ascent of line 3 needs a Network; use 'first-order'")
        seen = view(start.network, start.w0, arms, coordinates)

        def optimism(posterior: Posterior, known: Tally) -> Tensor:
            return line_three(seen, settings.lam, settings.beta, known).value

    offsets = start.network.values(start.w0, arms)
    return coordinates.features, offsets, start.network.size, settings, optimism


def _run(name: str, problem: Problem, learner: EventTriggered, start: Start) -> Trace:
    return simulate(name, problem, learner, start.explored, start.clients, start.clients * start.rounds)


def _pull(
    problem: Problem, network: Parametric, clients: int, rounds: int, length: int | None
) -> tuple[Shards, Explored]:
    """The uniform pulls of Phase I, dealt to the clients, and their bill, still blank."""
    d_x = problem.arms.shape[-1]
    require(network.d_x == d_x, "the network's d_x", network.d_x, f"the arms have dimension {d_x}")
    standard = phase_one_length(clients, rounds)
    require(length is None or length >= 1, "length", length, "give T₀, at least one exploratory pull")
    pulled = explore(problem, clients, standard if length is None else length)
    ledger = Ledger.blank(*pulled.arm.shape)
    return pulled.shards, Explored(pulled.arm, pulled.reward, ledger)
