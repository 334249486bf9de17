"""What server and clients agree on before anything is sent: the arms, the algorithm with its settings, and seeds."""

import hashlib
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from fedgo._checks import count, require, require_finite, require_kind, tensor
from fedgo._streams import generator
from fedgo.beyond.epochs import Event, Growing, Planning, require_epochs
from fedgo.beyond.guard import Guarantee
from fedgo.beyond.surrogates import GaussianProcess, Surrogate
from fedgo.federation.wire import each_pull
from fedgo.langevin import Langevin, langevin_rounds, last
from fedgo.network import Parametric
from fedgo.phase_one import deal
from fedgo.phase_two import Settings
from fedgo.star import answer


@dataclass(frozen=True)
class Fitting:
    """A ``surrogate`` in epochs as `fedgo.beyond.epochs.surrogate_ucb` plays it, T = ``rounds`` of each client.

    σ = ``sigma``, κ = ``kappa``, ``until`` and ``planning`` as there, with a guard around it if there is a
    ``guarantee``. Planned by each client for its "own" it needs no order of turns; counts go with the sums in any case.
    """

    surrogate: Surrogate
    sigma: float
    rounds: int
    until: Growing | Event = field(default_factory=Growing)
    planning: Planning = "own"
    kappa: float = 3.0
    guarantee: Guarantee | None = None

    def __post_init__(self) -> None:
        require_epochs(
            [self.surrogate], self.rounds, self.until, self.planning, self.kappa, self.sigma, self.guarantee
        )
        unchanged = isinstance(self.surrogate, GaussianProcess) and not self.surrogate.refit
        remedy = "a client's file does not hold its hyperparameters: give refit=True"
        require(not unchanged, "the surrogate", self.surrogate, remedy)


@dataclass(frozen=True, eq=False)
class Plan:
    """What is public: ``arms`` (K, d_x) float64, N = ``clients``, ``settings``, and how Phase I goes.

    ``network`` is the class F, or None where the arms themselves are the features and there is no Phase I (DisLinUCB).
    With a ``fitting`` in its place a surrogate is played, and of the ``settings`` nothing is used. Letters are counts
    and sums, so the settings' encoding has to be "counts". ``length`` is T₀, the uniform pulls of Phase I, dealt to the
    clients in turn; ``seed`` and ``run`` name the streams of random numbers, so that a plan made twice is the same
    plan. A ``ValueError`` for what does not fit.
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "arms", tensor("arms", self.arms).detach().clone())
        shape = tuple(self.arms.shape)
        require(self.arms.ndim == 2 and min(shape) >= 1, "the shape of arms", shape, "give (K, d_x)")
        require_finite("arms", self.arms)
        remedy = 'give Settings(lam, beta, gamma, encoding="counts")'
        require_kind(isinstance(self.settings, Settings), "settings", self.settings, remedy)
        encoding = self.settings.encoding
        require(encoding == "counts", "encoding", encoding, f"letters are counts and sums: {remedy}")
        require_kind(isinstance(self.langevin, Langevin), "langevin", self.langevin, "give a Langevin")
        count("clients", self.clients, "give N, at least one client", most=2**32 - 1)
        for name in ("seed", "run"):
            count(name, getattr(self, name), f"give a {name} of at least 0", least=0)
        self._require_phase_one()

    def _require_phase_one(self) -> None:
        remedy = "give one of the two: a surrogate brings its own network"
        require(self.network is None or self.fitting is None, "network and fitting", "both", remedy)
        if self.network is None and self.fitting is None:
            require(self.length == 0, "length", self.length, "without a network there is no Phase I: give 0")
            return
        count("length", self.length, f"give T₀, at least N = {self.clients} pulls", least=self.clients)
        if self.network is not None:
            is_network = hasattr(self.network, "d_x")
            require_kind(is_network, "network", self.network, "give a network, Network(d_x) for instance")
            d_x = self.arms.shape[1]
            require(self.network.d_x == d_x, "the network's d_x", self.network.d_x, f"the arms have {d_x}")

    @property
    def known_exchange(self) -> int:
        """The last exchange that all know before a letter is sent: 1 where there is no ŵ₀ to wait for, else 0."""
        return int(self.network is None)

    @cached_property
    def fingerprint(self) -> int:
        """64 bits that two plans share only if they are the same."""
        names = ("settings", "clients", "network", "length", "langevin", "seed", "run", "fitting", "arms")
        content = [tuple(self.arms.shape), *(getattr(self, name) for name in names)]
        return int.from_bytes(hashlib.blake2b(_in_words(content).encode(), digest_size=8).digest(), "little")

    def require_extended_by(self, plan: "Plan") -> None:
        """A ``ValueError`` unless ``plan`` is this one with arms added at the end."""
        same = replace(plan, arms=plan.arms[: len(self.arms)]).fingerprint == self.fingerprint
        remedy = "add arms at the end, and leave all else as it is"
        require(same, "the new plan", tuple(plan.arms.shape), remedy)

    def uniform_pulls(self, client: int) -> Tensor:
        """The arms that ``client`` pulls in Phase I, every N-th of the T₀, (⌈(T₀ − client)/N⌉,)."""
        source = generator(self.seed, self.run, "pulls")
        return torch.randint(len(self.arms), (self.length,), generator=source)[client :: self.clients]

    def oracle(self, data: Tensor) -> Tensor:
        """ŵ₀ (d_w,) by Algorithm 2 on the counts and sums ``data`` (2, K) of Phase I, each pull with its arm's mean."""
        assert self.network is not None
        counts, sums = data
        arm = each_pull(counts)
        shards = deal(self.arms[arm].unsqueeze(0), (sums / counts)[arm].unsqueeze(0), 1)
        noise = [generator(self.seed, self.run, "langevin")]
        return last(langevin_rounds(self.network, shards, self.langevin, noise, answer)).w[0]

    @cached_property
    def order_of_ties(self) -> Tensor:
        """Every client's own order of arms whose index is the same, (N, K)."""
        source = generator(self.seed, self.run, "order of ties")
        return torch.rand(self.clients, len(self.arms), generator=source, dtype=torch.float64)


def _in_words(content: Any) -> str:
    """``content`` in words that are the same in every process: functions by their names, tensors by their bytes."""
    if isinstance(content, Tensor):
        return content.contiguous().numpy().astype("<f8").tobytes().hex()
    if isinstance(content, list | tuple):
        return f"({', '.join(map(_in_words, content))})"
    if isinstance(content, partial):
        return f"partial{_in_words((content.func, *content.args, *sorted(content.keywords.items())))}"
    if is_dataclass(content):
        values = tuple(getattr(content, each.name) for each in fields(content))
        return f"{type(content).__qualname__}{_in_words(values)}"
    if callable(content) and hasattr(content, "__qualname__"):
        return f"{content.__module__}.{content.__qualname__}"
    return repr(content)
