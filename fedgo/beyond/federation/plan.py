"""What server and clients agree on before anything is sent: the arms, the algorithm with its settings, and seeds."""

import hashlib
import os
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property, partial
from inspect import ismodule
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from fedgo._checks import count, number, on_cpu, require, require_finite, require_kind, tensor
from fedgo._streams import generator
from fedgo.beyond.advised import ADVISED, Advised
from fedgo.beyond.epochs import distinct, require_epochs
from fedgo.beyond.federation.wire import NEVER, Exchange, Letter, each_pull, without_counts
from fedgo.beyond.surrogates.models import Surrogate
from fedgo.beyond.surrogates.sites import Sites
from fedgo.langevin import Langevin, langevin_rounds, last
from fedgo.network import Parametric
from fedgo.phase_one import deal, require_fitted
from fedgo.phase_two import Settings
from fedgo.star import answer

MOST_PULLS = 10**8  # of one client in a federation: one pull each second for three years


@dataclass(frozen=True)
class Fitting:
    """A surrogate in epochs that the server plans and fits, T = ``rounds`` of each client, σ = ``sigma``.

    It is played as this book advises unless ``how`` says otherwise: arm for arm as `fedgo.beyond.epochs.surrogate_ucb`,
    but counts go up as well, and down goes each client's share of the plan. A network's fit begins at the last ŵ.

    If the clients ``differ``, the server does not fit one reward function to the data of all, but one for each client
    (`fedgo.beyond.surrogates.sites.Sites`), and plans for each client by its own. The letters are as long as before.
    """

    sigma: float
    rounds: int
    how: Advised = ADVISED
    differ: bool = field(default=False, metadata={"later": True})

    @property
    def surrogate(self) -> Surrogate:
        """Return what is fitted."""
        return Sites() if self.differ else self.how.surrogate

    def __post_init__(self) -> None:
        how = self.how
        require_kind(isinstance(how, Advised), "how", how, "give an Advised, METHODS['ucb1'] for instance")
        require_kind(isinstance(self.differ, bool), "differ", self.differ, "give True or False")
        fits = not self.differ or how.surrogate == ADVISED.surrogate
        require(
            fits, "how.surrogate", how.surrogate, "clients that differ have their own model: leave out how"
        )
        sigma = number("sigma", self.sigma, "give σ > 0, the noise of a reward", above=0)
        require_epochs([how.surrogate], self.rounds, how.until, how.optimism(1, sigma))


@dataclass(frozen=True, eq=False)
class Plan:
    """What is public: ``arms`` (K, d_x) float64, N = ``clients``, what is played, and how Phase I goes.

    That is a ``fitting``, or the paper's algorithm with a ``network``, the class F, and ``settings``, whose encoding is
    "counts" as letters are counts and sums. ``length`` is T₀, the pulls of Phase I, dealt to the clients in turn, with
    a fitting as many as this book advises unless given; ``seed`` and ``run`` name the streams of random numbers, so
    that a plan made twice is the same plan. A ``ValueError`` for what does not fit.
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
            require(not alone, "clients", 1, "give two clients at least, or do not give differ")
            advised = self.fitting.how.first(self.clients, len(self.arms), self.fitting.rounds)
            object.__setattr__(self, "length", self.length or advised)
        least = 1 if self.network is None else self.clients
        count("length", self.length, f"give T₀, at least {least} pulls for N = {self.clients}", least=least)
        if self.network is not None:
            is_network = hasattr(self.network, "d_x")
            require_kind(is_network, "network", self.network, "give a network, Network(d_x) for instance")
            d_x = self.arms.shape[1]
            require(self.network.d_x == d_x, "the network's d_x", self.network.d_x, f"the arms have {d_x}")
            _require_memory(len(self.arms))
        self.fingerprint  # noqa: B018, so that what has none is refused here

    @property
    def known_exchange(self) -> Exchange:
        """The last exchange that all know before a letter is sent: without a network the first, else none."""
        return NEVER if self.network is not None else Exchange(1)

    @property
    def due(self) -> int:
        """The most pulls that an answer may contain: 10⁸, and with a fitting at most T₀ + NT, those of all clients."""
        if self.fitting is None:
            return MOST_PULLS
        return min(MOST_PULLS, self.length + self.clients * self.fitting.rounds)

    @property
    def file_size(self) -> int:
        """The most bytes that a file of a client or of a server has unpacked: 10⁷ and what grows with N, K, T₀, NT."""
        pulls = self.length if self.fitting is None else self.due
        return 10**7 + (self.clients + 1) * (10**4 + 100 * len(self.arms)) + 16 * pulls

    @cached_property
    def fingerprint(self) -> int:
        """64 bits that two plans share only if they are the same."""
        names = ("settings", "clients", "network", "length", "langevin", "seed", "run", "fitting", "arms")
        words = _in_words([getattr(self, name) for name in names])
        return int.from_bytes(hashlib.blake2b(words.encode(), digest_size=8).digest(), "little")

    @cached_property
    def first(self) -> Tensor:
        """The arms of Phase I, (T₀,)."""
        arms, length = len(self.arms), self.length
        if self.fitting is not None:
            return distinct(arms, length, generator(self.seed, self.run, "each arm"))
        return torch.randint(arms, (length,), generator=generator(self.seed, self.run, "pulls"))

    def first_share(self, client: int) -> tuple[Tensor, int]:
        """Return the arms (n,) of ``client`` in Phase I, and after how many pulls it calls, with a network n."""
        if self.network is None:
            return self.share(client, self.first, self.length, 0)
        own = self.first[client :: self.clients]
        return own, len(own)

    def foretold(self, letter: Letter) -> Tensor:
        """Return the counts that an answer ``letter`` has if its client made its pulls of Phase I and no others, (K,).

        They follow from the common seed, so that the first answer need not say them. They are 0 for a later answer, and
        for any with a network, whose clients answer with residuals.
        """
        first, _ = self.first_share(letter.client)
        if self.fitting is None or letter.since != self.known_exchange:
            first = first[:0]
        return torch.bincount(first, minlength=len(self.arms)).double()

    def encoded(self, letter: Letter) -> bytes:
        """Return the bytes of ``letter``, without the counts that both sides know from the common seed."""
        return without_counts(letter, self.foretold(letter)).encode(self.fingerprint)

    def share(self, client: int, planned: Tensor, length: int, turn: int) -> tuple[Tensor, int]:
        """Return the arms of ``client`` in a plan, one at least, and after how many of its own pulls it calls.

        Args:
            client: The client, 0 to N − 1.
            planned: The arms (L,) of the plan; the clients take them in turn.
            length: The length of the epoch. The client calls once this many pulls are made, if all take turns.
            turn: The client that takes the first of the ``planned`` arms.
        """
        seat = (client - turn) % self.clients
        own = planned[seat :: self.clients] if seat < len(planned) else planned[[seat % len(planned)]]
        return own, max(0, -(-(length - 1 - seat) // self.clients)) + 1

    def oracle(self, data: Tensor) -> Tensor:
        """Return ŵ₀ (d_w,) by Algorithm 2 on the counts and sums ``data`` (2, K) of Phase I, a pull as its arm's mean.

        Raises:
            ValueError: If the rewards y are not of order 1 and ŵ₀ is no better than a constant; it names (y − m)/s.
        """
        assert self.network is not None
        counts, sums = data
        arm = each_pull(counts)
        rewards = (sums / counts)[arm].unsqueeze(0)
        noise = [generator(self.seed, self.run, "langevin")]
        shards = deal(self.arms[arm].unsqueeze(0), rewards, 1)
        fit = last(langevin_rounds(self.network, shards, self.langevin, noise, answer))
        if len(arm) >= 10 or float(rewards.abs().amax()) > 10:  # a few may be alike by chance
            try:
                require_fitted(rewards, fit.loss)
            except ValueError as error:
                mean, spread = float(rewards.mean()), float(rewards.std(correction=0)) or 1.0
                remedy = f"begin anew with (y − m)/s for every reward y, m = {mean:.6g} and s = {spread:.6g}"
                raise ValueError(f"no ŵ₀, as rewards are not of order 1: {remedy}") from error
        return fit.w[0]

    @cached_property
    def order_of_ties(self) -> Tensor:
        """Every client's own order of arms whose index is the same, (N, K)."""
        source = generator(self.seed, self.run, "order of ties")
        return torch.rand(self.clients, len(self.arms), generator=source, dtype=torch.float64)


def _require_memory(arms: int) -> None:
    """Raise a ``ValueError`` if the matrices of a client of the paper's algorithm do not fit into this machine.

    Besides the covariance of K = ``arms`` arms, K² numbers of 8 bytes, each update needs room for another.
    """
    needed = 2 * 8 * arms**2
    if hasattr(os, "sysconf"):  # not on Windows, where the size of the memory is not known here
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        remedy = f"a client needs {needed:,} bytes, more than {memory:,}: give fewer arms, or a Fitting"
        require(needed <= memory, "the number of arms", arms, remedy)


def _in_words(content: Any) -> str:
    """Return ``content`` as text that is the same in every process, from which the plan's fingerprint is computed.

    Functions appear by name, tensors by their bytes, and equal numbers alike. Content without such a text, for instance
    a lambda, raises a ``ValueError``.
    """
    if isinstance(content, Tensor):
        return f"{tuple(content.shape)}{content.contiguous().numpy().astype('<f8').tobytes().hex()}"
    if isinstance(content, list | tuple):
        return f"({', '.join(map(_in_words, content))})"
    if isinstance(content, partial):
        return f"partial{_in_words((content.func, *content.args, *sorted(content.keywords.items())))}"
    if is_dataclass(content) and not isinstance(content, type):
        held = [(each.metadata.get("later"), getattr(content, each.name)) for each in fields(content)]
        kind, parts = type(content), [part for later, part in held if not later or part]
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
