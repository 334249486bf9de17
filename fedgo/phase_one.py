"""Phase I (Algorithm 1, lines 1–2): the clients make T₀ uniform pulls in turn, and an oracle fits the parameter ŵ₀.

The oracle is Algorithm 2, gradient Langevin dynamics with a server and clients (`fedgo.langevin`). The result of Phase
I, a `Start`, is what Phase II begins with.
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
        rounds: The number T of rounds of Phase II, in each of which every client makes one pull.
        most: The largest N and T that are accepted, by default 2⁵³. It is ∞ where a bound is evaluated for more clients
            and rounds than can be played.

    Raises:
        ValueError: N or T is below 1 or above ``most``.
        TypeError: N or T is not a whole number.
    """
    clients = count("clients", clients, "give N, at least one client", most=most)
    rounds = count("rounds", rounds, "give T, at least one round", most=most)
    return math.isqrt(clients * rounds - 1) + 1


class Exploration(NamedTuple):
    """The T₀ pulls of Phase I in each of S runs, and the scalars that are sent in Phase I.

    Args:
        arm: The number of the arm that is pulled at each step, (S, T₀) int64.
        reward: The reward of each pull, (S, T₀) float64.
        ledger: The number of scalars that are sent at each step, from all clients to the server (``up``) and from the
            server to all clients (``down``), (S, T₀) int64 each.
    """

    arm: Tensor
    reward: Tensor
    ledger: Ledger

    @classmethod
    def nothing(cls, runs: int) -> "Exploration":
        """Return the exploration of an algorithm without Phase I: no pulls in each of ``runs`` runs.

        All its arrays have the shape (``runs``, 0); the rewards are float64, the others int64.
        """
        blank = torch.zeros(runs, 0, dtype=torch.int64)
        return cls(blank, blank.double(), Ledger.blank(runs, 0))

    def shards(self, arms: Tensor, clients: int) -> Shards:
        """Return the data of each of N = ``clients`` clients, where client t mod N has made the pull of step t.

        The steps and the clients are counted from 0, and T₀ is the number of pulls in each of S runs.

        Args:
            arms: The features, of dimension d_x, of the K arms in each run, (S, K, d_x) float64.
            clients: The number N of clients, at least 1.

        Returns:
            The features of the pulled arms (S, N, m, d_x), their rewards (S, N, m), and a mask (S, N, m) that is 1 for
            data and 0 for padding, with m = ⌈T₀/N⌉ data for each client.

        Raises:
            ValueError: A reward is not finite.
            RuntimeError: A pulled arm is not below K, or ``arms`` has fewer runs than the pulls.
        """
        x = arms.gather(1, self.arm.unsqueeze(-1).expand(-1, -1, arms.shape[2]))
        return deal(x, self.reward, clients)


def explore(problem: Problem, length: int, purpose: str = "pulls") -> Exploration:
    """Pull T₀ = ``length`` arms, drawn uniformly with replacement, in each of the S runs of ``problem``.

    The rewards have the noise of the first T₀ steps of the problem.

    Args:
        problem: S runs of a bandit problem.
        length: The number T₀ of pulls, at least 0.
        purpose: The name of the random numbers that draw the arms; for one problem and length, equal names give equal
            arms.

    Returns:
        The arms (S, T₀) int64 and rewards (S, T₀) float64, and a ledger of zeros.
    """
    arms, sources = problem.arms.shape[1], problem.generators(purpose)
    arm = torch.stack([torch.randint(arms, (length,), generator=source) for source in sources])
    return Exploration(arm, problem.observe(arm, problem.tape(length)), Ledger.blank(*arm.shape))


def deal(x: Tensor, y: Tensor, clients: int) -> Shards:
    """Deal the T₀ data of each of R runs out to N = ``clients`` clients in turn, padded to m = ⌈T₀/N⌉ data for each
    client.

    Client i receives the data i, i + N, i + 2N, … in this order, counted from 0. The padding is 0.

    Args:
        x: The features, of dimension d_x, of the T₀ pulled arms, (R, T₀, d_x).
        y: Their rewards, (R, T₀).
        clients: The number N of clients, at least 1.

    Returns:
        The features (R, N, m, d_x), the rewards (R, N, m), and a mask (R, N, m) with 1 for data and 0 for padding.

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

    The fields are not checked.

    Args:
        problem: The problem on which Phase I was run, with S runs.
        network: The parametric class F, whose parameters have d_w numbers.
        clients: The number N of clients.
        rounds: The number T of rounds of Phase II that is planned.
        exploration: The pulls of Phase I and the scalars that were sent in Phase I.
        w0: The fitted parameter ŵ₀, (S, 1, d_w) if all clients share it and (S, N, d_w) if each has its own.
        loss: The training loss of ŵ₀: the mean squared error on the data to which ŵ₀ was fitted, (S, 1) or (S, N); 0
            for a client without data.
        encoding: The form in which the messages of Phase I were counted, one of "dense", "triangle", "rows", "counts"
            and "cheapest" (`fedgo.messages`).
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
            encoding: The form in which Phase II sends its statistics. It is not checked whether the form exists.
            shared: Whether Phase II needs one fitted parameter ŵ₀ for all clients; if not, it needs one for each
                client.

        Raises:
            ValueError: One of the two phases sends counts and sums ("counts" or "cheapest") and the other does not; or
                the start has another number of parameters ŵ₀ for each run than Phase II needs.
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

    In each run, the N clients pull T₀ uniformly drawn arms in turn, and gradient Langevin dynamics (Algorithm 2) fits
    the parameter ŵ₀ of the network to their rewards. The scalars of the fit are counted at the last step of Phase I:
    2nNd_w for the n rounds of Algorithm 2 with d_w parameters, and Nd_w for sending the fitted ŵ₀ to all clients. If
    ``encoding`` is "counts" or "cheapest", each client instead sends its counts and sums once, and the server runs all
    rounds alone. The scalars are then those of these messages, 2 min(k, K) for a client with k pulls of K arms, and the
    Nd_w for ŵ₀.

    Args:
        problem: S runs of a bandit problem.
        network: The parametric class F; its d_x has to be that of the arms.
        clients: The number N of clients, at least 1.
        rounds: The number T of rounds of Phase II, at least 1. It only decides the default length of Phase I, and is
            kept in the result.
        langevin: The settings of Algorithm 2, or None for the default ones.
        length: The number T₀ of pulls, at least 1, or None for ⌈√(NT)⌉.
        encoding: The form in which messages are counted, one of "dense", "triangle", "rows", "counts" and "cheapest"
            (`fedgo.messages`). The first three give the same scalars here.

    Returns:
        The fitted parameter ŵ₀ (S, 1, d_w) with its training loss (S, 1), the pulls and the scalars sent.

    Raises:
        ValueError: An argument is out of range, ``encoding`` is unknown, the network's d_x is not that of the arms, a
            reward is not finite, the iterates diverge, the fit is hardly better than a constant because the rewards are
            not of order 1, or all rewards are equal, as they are for one pull in one run.
        TypeError: ``problem``, ``network``, ``clients``, ``rounds``, ``langevin`` or ``length`` is of another kind.
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
    """Make the T₀ uniform pulls of Phase I, and deal their data out to the clients.

    Args:
        problem: S runs of a bandit problem.
        network: The parametric class F; its d_x has to be that of the arms.
        clients: The number N of clients, at least 1.
        rounds: The number T of rounds of Phase II, at least 1.
        length: The number T₀ of pulls, at least 1, or None for ⌈√(NT)⌉.

    Returns:
        The pulls (S, T₀) with a ledger of zeros, and the same data for each client, padded to m = ⌈T₀/N⌉ data: features
        (S, N, m, d_x), rewards (S, N, m) and a mask (S, N, m) that is 1 for data and 0 for padding.

    Raises:
        ValueError: A number is out of range, the network's d_x is not that of the arms, or a reward is not finite.
        TypeError: An argument is of another kind.
    """
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

    Rewards count as of order 1 if their standard deviation is from 0.01 to 10 and their mean from −10 to 10, over all
    runs together; then every fit is accepted. Equal rewards, with the standard deviation 0, are not of order 1.

    Args:
        reward: The rewards of the T₀ pulls of Phase I in each of S runs, (S, T₀).
        loss: The training loss (mean squared error) of each fit, of any shape, for instance (S,) if all clients of a
            run fit together.

    Raises:
        ValueError: The rewards are not of order 1, and the mean training loss is 90 % or more of the mean, over the
            runs, of the variance of a run's rewards, or one of these numbers is NaN. A mean variance below 1e-300
            counts as 1e-300.
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
        f"continue with problem.rescaled({mean:.3g}, {max(spread, 1e-300):.3g}), or give another Langevin",
    )
