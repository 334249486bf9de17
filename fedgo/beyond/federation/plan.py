"""The public plan on which server and clients agree before they send anything: arms, algorithm, settings and seeds."""

import hashlib
import math
import os
import warnings
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property, partial
from inspect import ismodule
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedgo._checks import count, number, on_cpu, require, require_finite, require_kind, tensor
from fedgo._streams import generator, uniform_draws
from fedgo.beyond.federation.wire import NEVER, Exchange, Letter, each_pull, without_counts
from fedgo.beyond.method.advised import ADVISED, Advised
from fedgo.beyond.method.epochs import distinct, require_epochs
from fedgo.beyond.method.gaussian_process import GaussianProcess
from fedgo.beyond.method.sites import Sites
from fedgo.beyond.method.surrogates import Surrogate
from fedgo.langevin import Langevin, langevin_rounds, last
from fedgo.network import Parametric
from fedgo.phase_one import deal, require_fitted
from fedgo.phase_two import Settings
from fedgo.star import answer

MOST_PULLS = 10**8  # the most pulls of one client in a federation: one pull each second for three years


@dataclass(frozen=True)
class Fitting:
    """A method for a `Plan` by which the server fits a surrogate to the data of all clients and plans each epoch.

    Unless the clients differ, they pull the same arms as with `fedgo.beyond.method.epochs.surrogate_ucb` and a joint
    plan. Each client sends the counts and the sums of its rewards, and the server sends each client its share of
    the plan. The fit of a network begins at the last fitted weights.

    Args:
        sigma: The standard deviation σ > 0 of the noise of one reward.
        rounds: The number T of pulls of each client in Phase II, at least 1.
        how: The surrogate and the rules of play; by default the method that this book recommends. Its ``until`` has to
            be a `Growing`, because the server plans epochs of a known length.
        differ: Whether the clients have different reward functions. If so, the server fits one function for each client
            (`fedgo.beyond.method.sites.Sites`) and plans for each client by its own.

    Raises:
        TypeError: ``how`` is not an `Advised`, its surrogate has no ``fit``, or its ``until`` is no `Growing`;
            ``differ`` is not a bool; ``sigma`` is not a number; or ``rounds`` is not a whole number.
        ValueError: ``sigma`` is not positive and finite, ``rounds`` is below 1 or above 2⁵³, or ``differ`` is True and
            the surrogate of ``how`` is neither the recommended one nor a `Sites`.
        ImportError: The surrogate is a `GaussianProcess`, and SciPy is not installed.
    """

    sigma: float
    rounds: int
    how: Advised = ADVISED
    differ: bool = False

    @property
    def surrogate(self) -> Surrogate:
        """The surrogate that the server fits: that of ``how``, or `Sites` in its place if the clients differ."""
        surrogate = self.how.surrogate
        if self.differ and isinstance(surrogate, GaussianProcess):
            return Sites(groups=surrogate.groups)
        return surrogate

    def __post_init__(self) -> None:
        how = self.how
        require_kind(isinstance(how, Advised), "how", how, "give an Advised, METHODS['ucb1'] for instance")
        require_kind(isinstance(self.differ, bool), "differ", self.differ, "give True or False")
        model = how.surrogate
        recommended = isinstance(model, GaussianProcess) and replace(model, groups=None) == ADVISED.surrogate
        fits = not self.differ or recommended or isinstance(model, Sites)
        remedy = "clients that differ have their own model: leave out how, or give it a Sites"
        require(fits, "how.surrogate", model, remedy)
        sigma = number("sigma", self.sigma, "give σ > 0, the noise of a reward", above=0)
        require_epochs(model, self.rounds, how.until, how.optimism(1, sigma))


@dataclass(frozen=True, eq=False)
class Plan:
    """The public plan of a federation, which the server and all clients hold before they exchange anything.

    It plays either the paper's algorithm (``network``) or a surrogate (``fitting``); exactly one of the two is given.

    Args:
        arms: The features of the K arms, (K, d_x) float64. They are copied.
        settings: The settings of the paper's algorithm. Their encoding is "counts", because clients send counts and
            sums.
        clients: The number N of clients, from 1 to 2³² − 1.
        network: The class of reward functions f_x with parameters w, for the paper's algorithm.
        length: The number T₀ of pulls of all clients in Phase I, which they make in turn. With a network it is at least
            N. With a fitting it is at least 1, and 0 stands for as many as this book recommends.
        langevin: The settings of the oracle (Algorithm 2) that fits the parameter ŵ₀ of the network after Phase I.
        seed: The seed of all random numbers, at least 0. Equal plans draw equal numbers.
        run: The number of the run, at least 0, which together with the seed determines the random numbers.
        fitting: The surrogate and the rules of play with it.

    Raises:
        TypeError: An argument is of another kind than listed; a network is recognised by its attribute ``d_x``.
        ValueError: The arms are not a dense float64 tensor (K, d_x) on the CPU with K and d_x at least 1, or a feature
            is not finite; the encoding is not "counts"; ``clients``, ``length``, ``seed`` or ``run`` is out of range;
            both or none of ``network`` and ``fitting`` are given; the clients are to differ and there is only one; the
            network has another d_x than the arms; the free memory is too small for the plan; or a part of the plan, for
            instance a lambda, has no name that is the same in every process.
    """

    arms: Tensor
    settings: Settings = field(default_factory=lambda: Settings(encoding="counts"))
    clients: int = 1
    network: Parametric | None = None
    length: int = 0
    langevin: Langevin = field(default_factory=Langevin)
    seed: int = 0
    run: int = 0
    fitting: Fitting | None = None

    @classmethod
    def of(cls, options: Any, **how: Any) -> "Plan":
        """Return the plan on the options of a table.

        Args:
            options: The `fedgo.beyond.study.table.Options`, which every site reads from the same table.
            how: The other arguments of a `Plan`. The features of a category share a length scale of its ``fitting``.
        """
        arms, groups = options.encoded(len(options.names))
        fitting = how.get("fitting")
        if fitting is not None:
            how["fitting"] = replace(fitting, how=fitting.how.grouped(groups))
        return cls(arms, **how)

    @on_cpu
    def __post_init__(self) -> None:
        object.__setattr__(self, "arms", tensor("arms", self.arms).detach().clone())
        shape = tuple(self.arms.shape)
        require(len(shape) == 2 and min(shape) >= 1, "the shape of arms", shape, "give (K, d_x)")
        require_finite("arms", self.arms)
        remedy = 'give Settings(lam, beta, gamma, encoding="counts"), as letters are counts and sums'
        require_kind(isinstance(self.settings, Settings), "settings", self.settings, remedy)
        require(self.settings.encoding == "counts", "encoding", self.settings.encoding, remedy)
        require_kind(isinstance(self.langevin, Langevin), "langevin", self.langevin, "give a Langevin")
        require_kind(isinstance(self.fitting, Fitting | None), "fitting", self.fitting, "give a Fitting")
        count("clients", self.clients, "give N, at least one client", most=2**32 - 1)
        for name in ("seed", "run"):
            count(name, getattr(self, name), f"give a {name} of at least 0", least=0)
        remedy, both = "give either Network(d_x) or Fitting(sigma, rounds)", (self.network, self.fitting)
        require(both.count(None) == 1, "network and fitting", both, remedy)
        if self.fitting is not None:
            alone = self.fitting.differ and self.clients == 1
            require(not alone, "clients", 1, "give two clients at least, or leave out differ")
            advised = self.fitting.how.first(self.clients, len(self.arms), self.fitting.rounds)
            object.__setattr__(self, "length", self.length or advised)
        least = 1 if self.network is None else self.clients
        remedy = f"give T₀, at least {least} pulls for N = {self.clients}"
        count("length", self.length, remedy, least=least, most=MOST_PULLS)
        if self.network is not None:
            require_kind(hasattr(self.network, "d_x"), "network", self.network, "give Network(d_x), say")
            require(self.network.d_x == shape[1], "the network's d_x", self.network.d_x, f"give {shape[1]}")
        self._require_memory()
        self.fingerprint  # noqa: B018, so that a plan without a fingerprint is refused here

    def _require_memory(self) -> None:
        """Raise a ``ValueError`` if this machine has too little free memory for what every client holds."""
        n, k, first = self.clients, len(self.arms), self.length
        # the arms of Phase I, the order of ties, and with a network a covariance and the room to update it
        needed, free = 8 * (2 * first + n * k + 2 * k**2 * (self.network is not None)), _free_memory()
        remedy = f"a client needs {needed:,} bytes, and {free:,} are free: give fewer, or a Fitting"
        require(needed <= free, "the numbers of clients, arms and first pulls", (n, k, first), remedy)

    @property
    def known_exchange(self) -> Exchange:
        """The exchange of letters that server and clients take as done at the start.

        With a surrogate (``fitting``) it has the number 1 and the checksum 0, because the arms of Phase I are public.
        With the paper's network it is ``NEVER``, which has the number 0.
        """
        return NEVER if self.network is not None else Exchange(1)

    @property
    def due(self) -> int:
        """The largest number of pulls whose counts and sums a client's answer may carry.

        With a network it is 10⁸. With a fitting it is the smaller of 10⁸ and T₀ + NT, the number of pulls of all N
        clients in Phase I (T₀) and in T rounds.
        """
        if self.fitting is None:
            return MOST_PULLS
        return min(MOST_PULLS, self.length + self.clients * self.fitting.rounds)

    @property
    def file_size(self) -> int:
        """The largest size in bytes, unpacked, that the file of a client or of a server may have.

        It is 10⁷ + (N + 1)(10⁴ + 100K) + 16n for N clients and K arms. With a network n is T₀, the number of pulls of
        Phase I. With a fitting n is `due`, the largest number of pulls that an answer may carry.
        """
        pulls = self.length if self.fitting is None else self.due
        return 10**7 + (self.clients + 1) * (10**4 + 100 * len(self.arms)) + 16 * pulls

    @cached_property
    def fingerprint(self) -> int:
        """A number of 64 bits that is equal for equal plans and almost surely differs for different plans.

        It is computed from the arms and all settings of the plan, in the same way in every process.
        """
        return int.from_bytes(hashlib.blake2b(_in_words(self).encode(), digest_size=8).digest(), "little")

    @cached_property
    def first(self) -> Tensor:
        """The arms of the T₀ pulls of Phase I, (T₀,) int64.

        With a network they are drawn uniformly from the K arms. With a fitting each block of K of them has all K arms
        in random order, and the last block may be incomplete. The clients make these pulls in turn.
        """
        arms, length = len(self.arms), self.length
        if self.fitting is not None:
            return distinct(arms, length, generator(self.seed, self.run, "each arm"))
        return torch.randint(arms, (length,), generator=generator(self.seed, self.run, "pulls"))

    def first_share(self, client: int) -> tuple[Tensor, int]:
        """Return the arms of ``client`` in Phase I, and the number of its pulls after which it asks for an exchange.

        The arms are (n,) int64, and ``client`` is a number from 0 to N − 1. With a network the number of pulls is n.
        With a fitting it is n for the client that makes the last pull of Phase I, and n + 1 for the others that have a
        turn in it. With a fitting of more clients than pulls, a client without a turn gets an arm that another client
        pulls too (n = 1), and asks after one pull.
        """
        if self.network is None:
            return self.share(client, self.first, self.length, 0)
        own = self.first[client :: self.clients]
        return own, len(own)

    def foretold(self, letter: Letter) -> Tensor:
        """Return the counts that the answer ``letter`` has if its client has made its pulls of Phase I and no others.

        They are the number of pulls of each of K arms, (K,) float64. With a fitting they follow from the common seed,
        so that the first answer need not contain them. They are 0 for an answer that builds on another exchange than
        `known_exchange` (its ``since``), and for every answer with a network.
        """
        first, _ = self.first_share(letter.client)
        if self.fitting is None or letter.since != self.known_exchange:
            first = first[:0]
        return torch.bincount(first, minlength=len(self.arms)).double()

    def encoded(self, letter: Letter) -> bytes:
        """Return ``letter`` as bytes, without its counts if both sides know them from the common seed.

        That is so for a client's answer with exactly its pulls of Phase I, if the plan has a fitting.
        """
        return without_counts(letter, self.foretold(letter)).encode(self.fingerprint)

    def share(self, client: int, planned: Tensor, length: int, turn: int) -> tuple[Tensor, int]:
        """Return the arms of ``client`` in the plan of an epoch, and the number of its pulls after which it asks for an
        exchange.

        Args:
            client: The number of the client, 0 to N − 1.
            planned: The arms of the plan, (L,) int64 with L ≥ 1; the clients take them in turn.
            length: The number of pulls of all clients in the epoch. The client asks for an exchange at its first pull
                with which, if all take turns, at least this many pulls have been made.
            turn: The number of the client that takes the first of the ``planned`` arms.

        Returns:
            The arms, (n,) int64 with n ≥ 1, and the number of pulls, at least 1. A client whose turn does not come
            within the L arms gets one of them that another client pulls too.
        """
        seat = (client - turn) % self.clients
        own = planned[seat :: self.clients] if seat < len(planned) else planned[[seat % len(planned)]]
        return own, max(0, -(-(length - 1 - seat) // self.clients)) + 1

    def oracle(self, data: Tensor) -> Tensor:
        """Return the weights ŵ₀ that Algorithm 2 fits to the rewards of Phase I, (d_w,) for a network of d_w weights.

        It is for a plan with a network.

        Args:
            data: The counts and the sums of rewards of all clients in Phase I, (2, K) for K arms, of at least one pull.
                Each pull enters with the mean reward of its arm, because single rewards are not sent.

        Raises:
            ValueError: The iterates of Algorithm 2 diverge; or the fit is hardly better than a constant, and the mean
                or the spread of the arms' mean rewards is above 10 in size, so that the simulator refuses them too.

        Warns:
            UserWarning: The fit is hardly better than a constant, and rewards seem to vary by less than 0.01.
        """
        assert self.network is not None
        counts, sums = data
        arm = each_pull(counts)
        rewards = (sums / counts)[arm].unsqueeze(0)
        noise = [generator(self.seed, self.run, "langevin")]
        shards = deal(self.arms[arm].unsqueeze(0), rewards, 1)
        fit = last(langevin_rounds(self.network, shards, self.langevin, noise, answer))
        mean = float(rewards.mean())
        large = max(abs(mean), float(rewards.std(correction=0))) > 10
        # The means of equal arms differ the less the more they are pulled. This is the deviation of a single reward.
        spread = float((rewards - mean).square().sum().div(max(1, int((counts > 0).sum()) - 1)).sqrt())
        if large or (len(arm) >= 10 and spread < 0.01):  # fewer rewards may be alike by chance
            try:
                require_fitted(rewards, fit.loss)
            except ValueError as error:
                remedy = f"begin anew with (y − m)/s for every reward y, m = {mean:.6g} and s = {spread or 1.0:.6g}"
                if large:
                    raise ValueError(f"rewards are not of order 1, so there is no ŵ₀: {remedy}") from error
                warnings.warn(f"ŵ₀ fits badly: if rewards vary by {spread:.2g} only, {remedy}", stacklevel=2)
        return fit.w[0]

    @cached_property
    def order_of_ties(self) -> Tensor:
        """Random numbers by which each of N clients decides between those of the K arms that tie, (N, K) float64.

        Of the arms whose index is equal up to rounding, client i takes the one with the largest entry in row i. The
        seed and the run of the plan determine the numbers. The server plans with row 0.
        """
        source = generator(self.seed, self.run, "order of ties")
        return uniform_draws([source], self.clients, len(self.arms))[0]


def _free_memory() -> float:
    """Return the bytes of memory that are free on Linux, all bytes on another POSIX system, and otherwise ∞."""
    with suppress(OSError, IndexError):
        return 1024 * int(Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else math.inf


def _in_words(content: Any) -> str:
    """Return ``content`` as text that is the same in every process, from which the plan's fingerprint is computed."""
    if isinstance(content, Tensor):
        return f"{tuple(content.shape)}{content.contiguous().numpy().astype('<f8').tobytes().hex()}"
    if isinstance(content, list | tuple):
        return f"({', '.join(map(_in_words, content))})"
    if isinstance(content, partial):
        return f"partial{_in_words((content.func, *content.args, *sorted(content.keywords.items())))}"
    if is_dataclass(content) and not isinstance(content, type):
        kind, parts = type(content), [getattr(content, each.name) for each in fields(content)]
        return f"{kind.__module__}.{kind.__qualname__}{_in_words(parts)}"
    if isinstance(content, Real) and not isinstance(content, bool):
        exact = float(content)
        return repr(exact if exact % 1 else int(content))  # type: ignore[call-overload]
    owner = getattr(content, "__self__", None)
    if owner is not None and not ismodule(owner):
        return f"{content.__qualname__} of {_in_words(owner)}"
    named = f"{getattr(content, '__module__', '')}.{getattr(content, '__qualname__', '<')}"
    plain = content is None or isinstance(content, bool | str)
    remedy = "it has no name that two processes share: give a dataclass, or a function of a module"
    require(plain or "<" not in named, "a part of the plan", content, remedy)
    return repr(content) if plain else named
