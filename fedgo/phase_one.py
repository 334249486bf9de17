"""Phase I (Algorithm 1, lines 1–2): T₀ uniform pulls in turn, and an oracle that fits ŵ₀ to them.

The oracle is Algorithm 2 (`fedgo.langevin`), over the star. What Phase II needs of all this is a `Start`.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import MOST, count, on_cpu, require, require_finite, require_kind
from fedgo.langevin import Langevin, Shards, langevin_rounds, last
from fedgo.messages import Encoding, check_encoding, names_arms, scalars
from fedgo.network import Parametric
from fedgo.problem import Problem
from fedgo.star import Ledger, Message, Star, When, answer


def phase_one_length(clients: int, rounds: int, most: float = MOST) -> int:
    """T₀ = ⌈√(NT)⌉ (Theorem 1), with N and T up to ``most``: bounds are evaluated where nobody plays."""
    clients = count("clients", clients, "give N, at least one client", most=most)
    rounds = count("rounds", rounds, "give T, at least one round", most=most)
    return math.isqrt(clients * rounds - 1) + 1


class Exploration(NamedTuple):
    """The steps of Phase I, all (S, T₀): arms, rewards, and the scalars that its oracle sent."""

    arm: Tensor
    reward: Tensor
    ledger: Ledger

    @classmethod
    def nothing(cls, runs: int) -> "Exploration":
        """Of an algorithm without a Phase I: T₀ = 0."""
        blank = torch.zeros(runs, 0, dtype=torch.int64)
        return cls(blank, blank.double(), Ledger.blank(runs, 0))

    def shards(self, arms: Tensor, clients: int) -> Shards:
        """The data of each of the ``clients`` on ``arms`` (S, K, d_x); step t was made by client t mod N."""
        x = arms.gather(1, self.arm.unsqueeze(-1).expand(-1, -1, arms.shape[2]))
        return deal(x, self.reward, clients)


def explore(problem: Problem, length: int, purpose: str = "pulls") -> Exploration:
    """T₀ = ``length`` uniform pulls, drawn for ``purpose``, and their bill, still blank."""
    arms, sources = problem.arms.shape[1], problem.generators(purpose)
    arm = torch.stack([torch.randint(arms, (length,), generator=source) for source in sources])
    return Exploration(arm, problem.observe(arm, problem.tape(length)), Ledger.blank(*arm.shape))


def deal(x: Tensor, y: Tensor, clients: int) -> Shards:
    """Deal the data ``x`` (R, T₀, d_x), ``y`` (R, T₀) round robin to ``clients`` clients, padded to equal length."""
    require_finite("rewards y", y)
    length = -(-y.shape[1] // clients)
    pad = length * clients - y.shape[1]
    mask = torch.nn.functional.pad(torch.ones_like(y), (0, pad))
    x = torch.nn.functional.pad(x, (0, 0, 0, pad))
    y = torch.nn.functional.pad(y, (0, pad))
    each = (part.unflatten(1, (length, clients)).transpose(1, 2) for part in (x, y, mask))
    return Shards(*(part.contiguous() for part in each))


@dataclass(frozen=True)
class Start:
    """What Phase I leaves: ŵ₀ = ``w0`` (S, 1, d_w), or (S, N, d_w) where each client has its own, and its loss.

    ``exploration`` holds the pulls and the scalars sent, ``loss`` (S, 1 or N) the training loss of ŵ₀. It belongs to
    its ``problem``, and to the ``encoding`` in which Phase I was charged.
    """

    problem: Problem
    network: Parametric
    clients: int
    rounds: int
    exploration: Exploration
    w0: Tensor
    loss: Tensor
    encoding: Encoding = "dense"

    def require_for(self, problem: Problem, encoding: Encoding, shared: bool) -> None:
        """A ``ValueError`` unless Phase II on ``problem``, with one ŵ₀ for all if ``shared``, may follow this start."""
        given, own = ((part.name, part.seed, len(part.runs)) for part in (problem, self.problem))
        same = self.problem.same(problem)
        require(same, "the problem", given, f"the start was made on {own}; make one on this problem")
        # Phase I has two bills only: the oracle's rounds, or counts and sums once
        same = names_arms(encoding) == names_arms(self.encoding)
        require(same, "encoding", encoding, f"Phase I was charged as {self.encoding!r}; give both the same")
        models, maker = (1, "shared_start") if shared else (self.clients, "private_start")
        require(self.w0.shape[1] == models, "the shape of w0", tuple(self.w0.shape), f"give a {maker}")


@on_cpu
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
    exploration, shards = explore_and_deal(problem, network, clients, rounds, length)
    runs = torch.arange(len(problem.runs))
    star = Star(clients, exploration.ledger)
    when = When(runs, torch.full_like(runs, exploration.arm.shape[1] - 1))
    ask = star.at(when)
    if names_arms(encoding):
        cost = scalars("counts", network.size, shards.mask.sum(-1), problem.arms.shape[1])
        star.collect(Message(shards, cost), when)
        ask = answer
    generators = problem.generators("langevin")
    fit = last(langevin_rounds(network, shards, langevin, generators, ask))
    require_fitted(exploration.reward, fit.loss)
    w0 = star.broadcast(Message(fit.w.unsqueeze(1), network.size), when)
    return Start(problem, network, clients, rounds, exploration, w0, fit.loss.unsqueeze(1), encoding)


def explore_and_deal(
    problem: Problem, network: Parametric, clients: int, rounds: int, length: int | None
) -> tuple[Exploration, Shards]:
    """The uniform pulls of Phase I, and the same dealt to the clients."""
    require_kind(isinstance(problem, Problem), "problem", problem, "give a Problem")
    require_kind(hasattr(network, "squared_loss"), "network", network, "give a Network, or a class like it")
    d_x = problem.arms.shape[-1]
    require(network.d_x == d_x, "the network's d_x", network.d_x, f"the arms have dimension {d_x}")
    standard = phase_one_length(clients, rounds)
    pulls = standard if length is None else count("length", length, "give T₀, at least one exploratory pull")
    exploration = explore(problem, pulls)
    return exploration, exploration.shards(problem.arms, clients)


def require_fitted(reward: Tensor, loss: Tensor) -> None:
    """A ``ValueError`` where ŵ₀ is no better than a constant since the rewards (S, T₀) are not of order 1."""
    spread, mean = float(reward.std(correction=0)), float(reward.mean())
    if 0.01 <= spread <= 10 and abs(mean) <= 10:
        return  # as the oracle expects: whatever it leaves then is noise, or its own
    share = float(loss.mean() / reward.var(1, correction=0).mean().clamp(min=1e-300))
    require(
        share < 0.9,
        "the rewards' mean and standard deviation",
        (mean, spread),
        f"the oracle leaves {share:.2g} of their variance (its step size and temperatures are for rewards of order 1); "
        f"continue with problem.rescaled({mean:.3g}, {max(spread, 1e-300):.3g}), or give another Langevin",
    )
