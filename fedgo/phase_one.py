"""Phase I (Algorithm 1, lines 1–2): the clients make T₀ uniform pulls in turn, and an oracle fits ŵ₀ to them.

The oracle is Algorithm 2 over the star (`fedgo.langevin`). Its result, a `Start`, is what Phase II begins with.
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
    """Return T₀ = ⌈√(NT)⌉, the length of Phase I in Theorem 1.

    Args:
        clients: The number N of clients.
        rounds: The number T of rounds of Phase II.
        most: The largest N and T that are accepted. For a bound, which may be evaluated for more clients and rounds
            than can be played, it is ∞.

    Raises:
        ValueError: N or T is below 1 or above ``most``.
        TypeError: N or T is not a whole number.
    """
    clients = count("clients", clients, "give N, at least one client", most=most)
    rounds = count("rounds", rounds, "give T, at least one round", most=most)
    return math.isqrt(clients * rounds - 1) + 1


class Exploration(NamedTuple):
    """The pulls of Phase I and what they cost.

    ``arm`` (S, T₀) int64 holds the arms that are pulled, ``reward`` (S, T₀) the rewards, and ``ledger`` the scalars
    that the oracle sends, booked to the T₀ steps.
    """

    arm: Tensor
    reward: Tensor
    ledger: Ledger

    @classmethod
    def nothing(cls, runs: int) -> "Exploration":
        """Return the exploration of an algorithm without Phase I, with T₀ = 0 pulls in each of ``runs`` runs."""
        blank = torch.zeros(runs, 0, dtype=torch.int64)
        return cls(blank, blank.double(), Ledger.blank(runs, 0))

    def shards(self, arms: Tensor, clients: int) -> Shards:
        """Return the data of each of the N = ``clients`` clients, given the features ``arms`` (S, K, d_x).

        Client t mod N makes the pull of step t.
        """
        x = arms.gather(1, self.arm.unsqueeze(-1).expand(-1, -1, arms.shape[2]))
        return deal(x, self.reward, clients)


def explore(problem: Problem, length: int, purpose: str = "pulls") -> Exploration:
    """Return T₀ = ``length`` uniform pulls in each run of ``problem``, with a ledger of zeros.

    ``purpose`` names the random numbers that choose the arms (`fedgo.problem.Problem.generators`).
    """
    arms, sources = problem.arms.shape[1], problem.generators(purpose)
    arm = torch.stack([torch.randint(arms, (length,), generator=source) for source in sources])
    return Exploration(arm, problem.observe(arm, problem.tape(length)), Ledger.blank(*arm.shape))


def deal(x: Tensor, y: Tensor, clients: int) -> Shards:
    """Deal the data of R runs out to N = ``clients`` clients in turn, padded to m = ⌈T₀/N⌉ data for each client.

    Args:
        x: The features of the pulled arms, (R, T₀, d_x).
        y: Their rewards, (R, T₀).
        clients: The number N of clients.

    Raises:
        ValueError: A reward is not finite.
    """
    require_finite("rewards y", y)
    length = -(-y.shape[1] // clients)
    pad = length * clients - y.shape[1]
    mask = torch.nn.functional.pad(torch.ones_like(y), (0, pad))
    x = torch.nn.functional.pad(x, (0, 0, 0, pad))
    y = torch.nn.functional.pad(y, (0, pad))
    dealt = (values.unflatten(1, (length, clients)).transpose(1, 2) for values in (x, y, mask))
    return Shards(*(values.contiguous() for values in dealt))


@dataclass(frozen=True)
class Start:
    """The result of Phase I: the fitted parameter ŵ₀, around which Phase II linearises the network.

    ``w0`` is ŵ₀, (S, 1, d_w) if all clients share it and (S, N, d_w) if each has its own. ``loss`` (S, 1 or N) is its
    training loss, the mean squared error on the data of Phase I. ``exploration`` holds the pulls and the scalars sent.
    ``problem``, ``network``, ``clients`` (N) and ``rounds`` (T) are the arguments that it was made with, and
    ``encoding`` is the form in which the messages of Phase I were counted.
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
        """Raise an error if this start does not fit a Phase II.

        Args:
            problem: The problem of Phase II.
            encoding: The form in which Phase II sends its statistics.
            shared: Whether Phase II needs one ŵ₀ for all clients.

        Raises:
            ValueError: The start was made on another problem, was counted in another form, or has another number of
                models.
        """
        given, begun = ((known.name, known.seed, len(known.runs)) for known in (problem, self.problem))
        same = self.problem.same(problem)
        require(same, "the problem", given, f"the start was made on {begun}; make a start on this problem")
        # Phase I is counted in two ways only: the oracle's rounds, or counts and sums once
        same = names_arms(encoding) == names_arms(self.encoding)
        require(same, "encoding", encoding, f"Phase I was counted as {self.encoding!r}; give both the same")
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
    """Run Phase I of Fed-GO-UCB and One-GO-UCB: uniform pulls, and one network fitted by all clients together.

    The scalars of the fit are booked at the last step of Phase I: 2nNd_w for the n rounds of Algorithm 2, and Nd_w for
    sending ŵ₀ to all clients. If ``encoding`` is "counts" or "cheapest", each client sends its counts and sums once
    instead, the server runs all rounds alone, and only sending ŵ₀ is added.

    Args:
        problem: S runs of a bandit problem.
        network: The class F; its d_x has to be that of the arms.
        clients: The number N of clients.
        rounds: The number T of rounds of Phase II.
        langevin: The settings of Algorithm 2, or None for the default ones.
        length: The number T₀ of pulls, or None for ⌈√(NT)⌉.
        encoding: The form in which messages are counted (`fedgo.messages`).

    Returns:
        The fitted parameter with the pulls and the scalars sent.

    Raises:
        ValueError: An argument is out of range, or the fit is no better than a constant because the rewards are not of
            order 1.
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
    generators = problem.generators("langevin")
    fit = last(langevin_rounds(network, shards, langevin, generators, ask))
    require_fitted(exploration.reward, fit.loss)
    w0 = star.broadcast(Message(fit.w.unsqueeze(1), network.size), when)
    return Start(problem, network, clients, rounds, exploration, w0, fit.loss.unsqueeze(1), encoding)


def explore_and_deal(
    problem: Problem, network: Parametric, clients: int, rounds: int, length: int | None
) -> tuple[Exploration, Shards]:
    """Return the uniform pulls of Phase I, and the same data dealt out to the clients."""
    require_kind(isinstance(problem, Problem), "problem", problem, "give a Problem")
    require_kind(hasattr(network, "squared_loss"), "network", network, "give a Network, or a class like it")
    d_x = problem.arms.shape[-1]
    require(network.d_x == d_x, "the network's d_x", network.d_x, f"the arms have dimension {d_x}")
    standard = phase_one_length(clients, rounds)
    pulls = standard if length is None else count("length", length, "give T₀, at least one exploratory pull")
    exploration = explore(problem, pulls)
    return exploration, exploration.shards(problem.arms, clients)


def require_fitted(reward: Tensor, loss: Tensor) -> None:
    """Raise an error if a fit is no better than a constant because the rewards are not of order 1.

    Args:
        reward: The rewards of Phase I, (S, T₀).
        loss: The training losses of ŵ₀, (S, 1 or N).

    Raises:
        ValueError: The rewards are not of order 1, and the fit leaves 90 % of their variance or more.
    """
    spread, mean = float(reward.std(correction=0)), float(reward.mean())
    if 0.01 <= spread <= 10 and abs(mean) <= 10:
        return  # of order 1, as the oracle's step size and temperatures expect
    share = float(loss.mean() / reward.var(1, correction=0).mean().clamp(min=1e-300))
    require(
        share < 0.9,
        "the rewards' mean and standard deviation",
        (mean, spread),
        f"the oracle leaves {share:.2g} of their variance (its step size and temperatures are for rewards of order 1); "
        f"continue with problem.rescaled({mean:.3g}, {max(spread, 1e-300):.3g}), or give another Langevin",
    )
