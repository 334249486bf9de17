"""Phase I (Algorithm 1, lines 1–2): the clients make T₀ uniform pulls in turn, and an oracle fits the parameter ŵ₀.

The oracle is Algorithm 2, gradient Langevin dynamics with a server and clients (`fedgo.langevin`). The result of Phase
I, a `Start`, is what Phase II begins with. There are S runs of N clients and K arms with d_x features; the data of a
client are padded to m = ⌈T₀/N⌉, with a mask that is 0 for the padding.
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
    """Return T₀ = ⌈√(NT)⌉, the number of pulls of Phase I in Theorem 1.

    Args:
        clients: The number N of clients.
        rounds: The number T of rounds of Phase II.
        most: The largest N and T that are accepted; ∞ where a bound is evaluated for more than can be played.

    Raises:
        ValueError: N or T is below 1 or above ``most``.
        TypeError: N or T is not a whole number.
    """
    clients = count("clients", clients, "give N, at least one client", most=most)
    rounds = count("rounds", rounds, "give T, at least one round", most=most)
    return math.isqrt(clients * rounds - 1) + 1


class Exploration(NamedTuple):
    """The T₀ pulls of Phase I, and the scalars that are sent in it.

    Args:
        arm: The number of the arm that is pulled at each step, (S, T₀) int64.
        reward: The reward of each pull, (S, T₀) float64.
        ledger: The number of scalars that are sent at each step, up and down, (S, T₀) int64 each.
    """

    arm: Tensor
    reward: Tensor
    ledger: Ledger

    @classmethod
    def nothing(cls, runs: int) -> "Exploration":
        """Return the exploration of an algorithm without Phase I, with arrays (``runs``, 0)."""
        blank = torch.zeros(runs, 0, dtype=torch.int64)
        return cls(blank, blank.double(), Ledger.blank(runs, 0))

    def shards(self, arms: Tensor, clients: int) -> Shards:
        """Return the data of each client, of which client t mod N has made the pull of step t.

        Args:
            arms: The features of the arms, (S, K, d_x) float64.
            clients: The number N of clients.

        Raises:
            ValueError: A reward is not finite.
        """
        x = arms.gather(1, self.arm.unsqueeze(-1).expand(-1, -1, arms.shape[2]))
        return deal(x, self.reward, clients)


def explore(problem: Problem, length: int, purpose: str = "pulls") -> Exploration:
    """Pull T₀ = ``length`` arms, drawn uniformly with replacement; equal names ``purpose`` give equal arms."""
    arms, sources = problem.arms.shape[1], problem.generators(purpose)
    arm = torch.stack([torch.randint(arms, (length,), generator=source) for source in sources])
    return Exploration(arm, problem.observe(arm, problem.tape(length)), Ledger.blank(*arm.shape))


def deal(x: Tensor, y: Tensor, clients: int) -> Shards:
    """Deal the T₀ data of each of R runs, ``x`` (R, T₀, d_x) and ``y`` (R, T₀), out to the clients in turn."""
    require_finite("rewards y", y)
    pad = -y.shape[1] % clients
    mask = torch.nn.functional.pad(torch.ones_like(y), (0, pad))
    x = torch.nn.functional.pad(x, (0, 0, 0, pad))
    y = torch.nn.functional.pad(y, (0, pad))
    dealt = (values.unflatten(1, (-1, clients)).transpose(1, 2) for values in (x, y, mask))
    return Shards(*(values.contiguous() for values in dealt))


@dataclass(frozen=True)
class Start:
    """The result of Phase I: the fitted parameter ŵ₀, around which Phase II linearises the network. It is not checked.

    Args:
        problem: The problem on which Phase I was run, with S runs.
        network: The parametric class F, whose parameters have d_w numbers.
        clients: The number N of clients.
        rounds: The number T of rounds of Phase II that is planned.
        exploration: The pulls of Phase I and the scalars that were sent in it.
        w0: The fitted ŵ₀, (S, 1, d_w) if all clients share it and (S, N, d_w) if each has its own.
        loss: The training loss of ŵ₀, the mean squared error on its data, (S, 1) or (S, N); 0 for a client without
            data.
        encoding: The form in which the messages of Phase I were counted (`fedgo.messages`).
    """

    problem: Problem
    network: Parametric
    clients: int
    rounds: int
    exploration: Exploration
    w0: Tensor
    loss: Tensor
    encoding: Encoding = "dense"

    def require(self, encoding: Encoding, shared: bool) -> None:
        """Check that Phase II can begin with this start.

        Args:
            encoding: The form in which Phase II sends its statistics.
            shared: Whether Phase II needs one ŵ₀ for all clients; if not, it needs one for each client.

        Raises:
            ValueError: One phase sends counts and sums and the other does not, or the number of ŵ₀ is not the one
                needed.
        """
        # Phase I is counted in two ways only: the messages of the oracle's rounds, or counts and sums sent once
        same = names_arms(encoding) == names_arms(self.encoding)
        require(same, "encoding", encoding, f"Phase I was counted as {self.encoding!r}; give both the same")
        models, maker = (1, "shared_start") if shared else (self.clients, "private_start")
        require(self.w0.shape[1] == models, "the shape of w0", tuple(self.w0.shape), f"use {maker}")


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
    """Run Phase I of Fed-GO-UCB and One-GO-UCB: uniform pulls, and one network fitted by all clients together.

    The scalars of the fit are counted at the last step of Phase I: 2nNd_w for the n rounds of Algorithm 2, and Nd_w for
    sending ŵ₀ to all clients. If ``encoding`` is "counts" or "cheapest", each client instead sends its counts and sums
    once, 2 min(k, K) scalars for k pulls, and the server runs all rounds alone.

    Args:
        problem: S runs of a bandit problem.
        network: The parametric class F; its d_x has to be that of the arms.
        clients: The number N of clients.
        rounds: The number T of rounds of Phase II, which decides the default length of Phase I.
        langevin: The settings of Algorithm 2, or None for the default ones.
        length: The number T₀ of pulls, at least 1, or None for ⌈√(NT)⌉.
        encoding: The form in which messages are counted (`fedgo.messages`).

    Raises:
        ValueError: An argument is out of range, ``encoding`` is unknown, the network's d_x is not that of the arms, a
            reward is not finite, the iterates diverge, or the fit is hardly better than a constant because the rewards
            are not of order 1 or all equal.
        TypeError: An argument is of another kind.
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
    fit = last(langevin_rounds(network, shards, langevin, problem.generators("langevin"), ask))
    require_fitted(exploration.reward, fit.loss)
    w0 = star.broadcast(Message(fit.w.unsqueeze(1), network.size), when)
    return Start(problem, network, clients, rounds, exploration, w0, fit.loss.unsqueeze(1), encoding)


def explore_and_deal(
    problem: Problem, network: Parametric, clients: int, rounds: int, length: int | None
) -> tuple[Exploration, Shards]:
    """Make the T₀ uniform pulls of Phase I, and deal their data out; the arguments are those of `shared_start`."""
    require_kind(isinstance(problem, Problem), "problem", problem, "give a Problem")
    require_kind(hasattr(network, "squared_loss"), "network", network, "give a Network, or a class like it")
    d_x = problem.arms.shape[-1]
    require(network.d_x == d_x, "the network's d_x", network.d_x, f"give {d_x}, as the arms have")
    standard = phase_one_length(clients, rounds)
    pulls = standard if length is None else count("length", length, "give T₀, at least one exploratory pull")
    exploration = explore(problem, pulls)
    return exploration, exploration.shards(problem.arms, clients)


def require_fitted(reward: Tensor, loss: Tensor) -> None:
    """Refuse a fit that is hardly better than a constant because the rewards are not of order 1.

    Rewards count as of order 1 if their standard deviation is from 0.01 to 10 and their mean from −10 to 10; then every
    fit is accepted. Otherwise the mean training loss must be below 90 % of the mean variance of a run's rewards.

    Args:
        reward: The rewards of Phase I, (S, T₀).
        loss: The training loss of each fit, of any shape.
    """
    spread, mean = float(reward.std(correction=0)), float(reward.mean())
    if 0.01 <= spread <= 10 and abs(mean) <= 10:
        return  # the rewards are of order 1, as the oracle's step size and temperatures expect
    share = float(loss.mean() / reward.var(1, correction=0).mean().clamp(min=1e-300))
    require(
        share < 0.9,
        "the rewards' mean and standard deviation",
        (mean, spread),
        f"the oracle leaves {share:.2g} of their variance (its step size and temperatures are for rewards of order 1); "
        f"give (y − {mean:.3g})/{max(spread, 1e-300):.3g} as rewards, and σ in this unit, or another Langevin",
    )
