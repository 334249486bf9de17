"""Intervals that contain f(x) for every arm, client and step at once, and the certificate q_t ≥ r_t they give.

They come from what a client knows: the counts and sums of everybody's rewards up to the last synchronisation, and
of its own since. If L ≤ f ≤ U, whatever is played, r_t ≤ U(x*) − L(x_t) ≤ max U − L(x_t) = q_t, which a client can
compute.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedgo._checks import count, number, require
from fedgo.confidence import Tally
from fedgo.theory.assumptions import check_probability
from fedgo.trace import Trace


class Interval(NamedTuple):
    """L = ``lower`` and U = ``upper`` of every arm, and the log-ratio ``gain`` of its next pull, all (..., K)."""

    lower: Tensor
    upper: Tensor
    gain: Tensor

    def certificate(self, arm: Tensor) -> Tensor:
        """q = max U − L(x) of pulling ``arm`` (...), (...)."""
        return self.upper.amax(-1) - self.lower.gather(-1, arm.unsqueeze(-1)).squeeze(-1)


class Intervals(Protocol):
    """Whoever turns counts and sums into intervals that hold for all clients and steps with probability 1 − δ."""

    def after(self, known: Tally, syncs: Tensor, run: Tensor | None = None) -> Interval:
        """For the runs ``run`` (all unless said), from ``known`` (R, L, K), pulls and summed rewards of L clients or
        steps, after ``syncs`` (R, L) synchronisations."""
        ...


def check_bounds(clients: int, sigma: float, value: float, delta: float) -> None:
    """N ≥ 1, σ > 0, F > 0, δ in (0, 1)."""
    count("clients", clients, "give N, at least one client")
    remedy = "give σ > 0, a bound on the noise"
    require(0 < number("sigma", sigma, remedy) < math.inf, "sigma", sigma, remedy)
    remedy = "give F > 0, a bound on |f|"
    require(0 < number("value", value, remedy) < math.inf, "value", value, remedy)
    check_probability(number("delta", delta, "give a failure probability δ in (0, 1)"))


@dataclass(frozen=True)
class Bounds:
    """What intervals for N = ``clients`` are given: ``sigma`` σ of the noise, F = ``value`` ≥ |f|, and ``delta`` δ."""

    clients: int
    sigma: float
    value: float
    delta: float = 0.1

    def __post_init__(self) -> None:
        check_bounds(self.clients, self.sigma, self.value, self.delta)


def clipped(mean: Tensor, radius: Tensor, value: float, gain: Tensor) -> Interval:
    """[m − c, m + c] ∩ [−F, F] of ``mean`` and ``radius`` (..., K), F = ``value``, with the ``gain`` (..., K).

    A ``ValueError`` where nothing is left: no |f| ≤ F with so little noise gives such rewards.
    """
    excess = mean.abs() - radius - value
    if bool((excess > 1e-9 * value).any()):
        where = excess.argmax()
        require(
            False,
            "the mean of an arm's rewards",
            mean.flatten()[where].item(),
            f"with probability 1 − δ it is within {radius.expand_as(mean).flatten()[where].item():.3g} of f, and "
            f"|f| ≤ F = {value:g}; give larger bounds F and σ",
        )
    return Interval((mean - radius).clamp(-value, value), (mean + radius).clamp(-value, value), gain)


class Knowledge(NamedTuple):
    """Before each pull of one client: the ``step`` of the trace (L,), what it knows, a ``tally`` (S, L, K) of pulls and
    summed rewards, and the synchronisations so far, ``syncs`` p (S, L)."""

    step: Tensor
    tally: Tally
    syncs: Tensor


def knowledge(trace: Trace, arms: int, phase_one: bool = False) -> Iterator[Knowledge]:
    """What each of the N clients of ``trace`` knew before its pulls of Phase II, one client after the other.

    That is everybody's data up to the last synchronisation and its own since; with ``phase_one`` those of Phase I too,
    everybody's. ``arms`` is K. Any algorithm's trace will do, since only counts and sums are rebuilt.
    """
    first, steps = trace.phase_one, trace.arm.shape[1]
    hit = torch.nn.functional.one_hot(trace.arm, arms).double()
    data = torch.stack([hit, hit * trace.reward.unsqueeze(-1)])
    data[:, :, :first] *= phase_one
    everybody = torch.nn.functional.pad(data.cumsum(2), (0, 0, 1, 0))  # at t: all data of the steps before t
    fired = torch.nn.functional.pad(trace.sync, (1, 0))
    syncs = fired.cumsum(1)
    since = (
        torch.where(fired, torch.arange(steps + 1), first).cummax(1).values
    )  # the first step after the last sync
    for i in range(trace.clients):
        step = torch.arange(first + i, steps, trace.clients)
        own = torch.nn.functional.pad(data[:, :, step].cumsum(2), (0, 0, 1, 0))
        latest = since[:, step]
        shared = everybody.gather(2, latest.expand(2, -1, -1).unsqueeze(-1).expand(-1, -1, -1, arms))
        made = (latest - first - i + trace.clients - 1).clamp(min=0) // trace.clients  # own pulls before it
        before = own.gather(2, made.expand(2, -1, -1).unsqueeze(-1).expand(-1, -1, -1, arms))
        yield Knowledge(step, Tally(*(shared + own[:, :, :-1] - before)), syncs[:, step])


def outside(trace: Trace, means: Tensor, intervals: Intervals, phase_one: bool) -> Tensor:
    """Whether f = ``means`` (S, K) leaves [L, U] for some arm before some step of Phase II of ``trace``, (S,) bool.

    With probability 1 − δ it does not. ``intervals`` are asked after what each client knew, with ``phase_one`` the data
    of Phase I too. Only a simulation knows f.
    """
    left = torch.zeros(len(trace.arm), dtype=torch.bool)
    for known in knowledge(trace, means.shape[1], phase_one):
        found, f = intervals.after(known.tally, known.syncs), means.unsqueeze(1)
        left |= ((found.lower > f) | (found.upper < f)).flatten(1).any(1)
    return left
