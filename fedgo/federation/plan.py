"""What server and clients agree on before anything is sent, and the two forms in which their statistics are.

Statistics add up: they are one vector v of numbers, dense (ΔΣ row by row, Δb) or packed (the pulls of every arm and
the sums of their residuals), and the server adds vectors, whatever is in them.
"""

import hashlib
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, require, require_finite, require_kind, tensor
from fedgo._streams import generator
from fedgo.beyond.epochs import Event, Growing, Planning, require_epochs
from fedgo.beyond.guard import Guarantee
from fedgo.beyond.surrogates import GaussianProcess, Surrogate
from fedgo.confidence import (
    Posterior,
    Tally,
    compress,
    condition,
    require_prior,
    statistics,
)
from fedgo.federation.wire import Refused, must
from fedgo.langevin import Langevin
from fedgo.network import Parametric
from fedgo.phase_two import EventTriggered, Settings


class Around(NamedTuple):
    """The linearisation at ŵ₀: ``w0`` (d_w,), ``gradients`` G (K, d_w), and the ``learner`` on their coordinates."""

    w0: Tensor
    gradients: Tensor
    learner: EventTriggered


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
        kept = isinstance(self.surrogate, GaussianProcess) and not self.surrogate.refit
        remedy = "a client's file does not hold its hyperparameters: give refit=True"
        require(not kept, "the surrogate", self.surrogate, remedy)


@dataclass(frozen=True, eq=False)
class Plan:
    """What is public: ``arms`` (K, d_x) float64, N = ``clients``, ``settings``, and how Phase I goes.

    ``network`` is the class F, or None where the arms themselves are the features and there is no Phase I (DisLinUCB).
    With a ``fitting`` in its place a surrogate is played, and ``settings`` are not used.
    ``length`` is T₀, the uniform pulls of Phase I, dealt to the clients in turn; ``seed`` and ``run`` name the streams
    of random numbers, so that a plan made twice is the same plan. A ``ValueError`` for what does not fit.
    """

    arms: Tensor
    settings: Settings = field(default_factory=Settings)
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
        require_kind(
            isinstance(self.settings, Settings), "settings", self.settings, "give Settings(lam, beta, gamma)"
        )
        require_kind(isinstance(self.langevin, Langevin), "langevin", self.langevin, "give a Langevin")
        encoding = self.settings.encoding
        require(encoding in ("dense", "counts"), "encoding", encoding, "letters are 'dense' or 'counts'")
        count("clients", self.clients, "give N, at least one client", most=2**32 - 1)
        for name in ("seed", "run"):
            count(name, getattr(self, name), f"give a {name} of at least 0", least=0)
        alone = self.network is None or self.fitting is None
        require(
            alone, "network and fitting", "both", "give one of the two: a surrogate brings its own network"
        )
        if self.network is None and self.fitting is None:
            require(self.length == 0, "length", self.length, "without a network there is no Phase I: give 0")
            return
        count("length", self.length, f"give T₀, at least N = {self.clients} pulls", least=self.clients)
        if self.network is not None:
            given = hasattr(self.network, "d_x")
            require_kind(given, "network", self.network, "give a network, Network(d_x) for instance")
            require(
                self.network.d_x == shape[1],
                "the network's d_x",
                self.network.d_x,
                f"the arms have {shape[1]}",
            )

    @property
    def packed(self) -> bool:
        """Whether counts and sums are sent instead of matrices, as for every surrogate."""
        return self.fitting is not None or self.settings.encoding == "counts"

    @property
    def dimension(self) -> int:
        """d_w, that of the statistics."""
        return self.arms.shape[1] if self.network is None else self.network.size

    @cached_property
    def fingerprint(self) -> int:
        """64 bits that two plans share only if they are the same."""
        names = ("settings", "clients", "network", "length", "langevin", "seed", "run", "fitting", "arms")
        parts = [tuple(self.arms.shape), *(getattr(self, name) for name in names)]
        said = hashlib.blake2b(_said(parts).encode(), digest_size=8)
        return int.from_bytes(said.digest(), "little")

    def require_extended_by(self, plan: "Plan") -> None:
        """A ``ValueError`` unless ``plan`` is this one with arms added at the end."""
        same = replace(plan, arms=plan.arms[: len(self.arms)]).fingerprint == self.fingerprint
        require(
            same, "the new plan", tuple(plan.arms.shape), "add arms at the end, and leave all else as it is"
        )

    def grown(self, vector: Tensor, plan: "Plan") -> Tensor:
        """``vector`` as one of ``plan``, which has more arms."""
        more = (0, len(plan.arms) - len(self.arms))
        return torch.nn.functional.pad(vector.view(2, -1), more).flatten() if self.packed else vector

    @cached_property
    def pulls(self) -> Tensor:
        """The uniform arms of Phase I (T₀,); client i makes those at i, i + N, …"""
        source = generator(self.seed, self.run, "pulls")
        return torch.randint(len(self.arms), (self.length,), generator=source)

    @cached_property
    def order_of_ties(self) -> Tensor:
        """Every client's own order of arms whose index is the same, (N, K)."""
        source = generator(self.seed, self.run, "order of ties")
        return torch.rand(self.clients, len(self.arms), generator=source, dtype=torch.float64)

    def around(self, w0: Tensor) -> Around:
        """The arms' gradients at ŵ₀ = ``w0`` (d_w,), and f_x(ŵ₀); without a network the arms themselves, and 0."""
        if self.network is None:
            gradients = features = self.arms
            offsets = torch.zeros(len(self.arms), dtype=torch.float64)
        else:
            gradients = self.network.gradients(w0, self.arms)
            features, offsets = compress(gradients).features, self.network.values(w0, self.arms)
        require_prior(features.square().sum(-1).amax(), self.settings.lam)
        return Around(w0, gradients, EventTriggered(1, features, offsets, self.dimension, self.settings))

    def blank(self) -> Tensor:
        """The vector v of no pulls."""
        d = self.dimension
        return torch.zeros(2 * len(self.arms) if self.packed else d * d + d, dtype=torch.float64)

    def vector(self, around: Around | None, own: Tally) -> Tensor:
        """v of the pulls ``own``; packed it needs nothing ``around`` ŵ₀."""
        if around is None or self.packed:
            return torch.cat(own)
        sigma, b = statistics(around.gradients, around.w0, 0.0, own)
        return torch.cat([sigma.flatten(), b])

    def posterior(self, around: Around, base: Tensor, own: Tally) -> Posterior:
        """The posterior given the statistics ``base``, a vector v, and ``own`` pulls; ``Refused`` if there is none."""
        lam, learner = self.settings.lam, around.learner
        try:
            if self.packed:
                return condition(learner.features, learner.offsets, lam, Tally(*base.chunk(2)) + own)
            d = self.dimension
            sigma, b = statistics(around.gradients, around.w0, lam, own)
            sigma, b = sigma + base[: d * d].view(d, d), b + base[d * d :]
            return condition_on_statistics(around.gradients, learner.offsets, around.w0, lam, sigma, b)
        except RuntimeError as error:  # torch's, for a matrix that is not positive definite
            raise Refused(f"no statistics: {error}") from error

    def pack(self, vector: Tensor) -> Tensor:
        """The numbers that are sent for ``vector``: its own, or 2 min(k, K) for k pulls of K arms.

        With k < K they are k arms and k sums: an arm stands there once for each pull, its sum at the first.
        """
        if not self.packed:
            return vector
        tally = Tally(*vector.chunk(2))
        if tally.counts.sum() >= len(self.arms):
            return vector
        arm = each_pull(tally.counts)
        first = torch.cat([torch.ones(1, dtype=torch.bool), arm[1:] != arm[:-1]])[: len(arm)]
        return torch.cat([arm.double(), torch.where(first, tally.sums[arm], 0.0)])

    def unpack(self, numbers: Tensor) -> Tensor:
        """The vector v that ``pack`` made ``numbers`` of, bit by bit; ``Refused`` where they are of no pulls."""
        d, arms, size = self.dimension, len(self.arms), len(numbers)
        if not self.packed:
            must(size == d * d + d, f"wrong shape: {size} numbers, not d² + d = {d * d + d}")
            must(bool((numbers[: d * d : d + 1] >= 0).all()), "no statistics: ΔΣ has a negative diagonal")
            return numbers
        must(
            size % 2 == 0 and size <= 2 * arms,
            f"wrong shape: {size} numbers, not 2 min(k, K) with K = {arms}",
        )
        if size == 2 * arms:
            counts, sums = numbers.chunk(2)
            must(
                bool(((counts >= 0) & (counts == counts.floor())).all()),
                "no statistics: a count is not whole",
            )
            must(bool((sums[counts == 0] == 0).all()), "no statistics: an arm without pulls has a sum")
            return numbers
        arm, sums = numbers.chunk(2)
        must(
            bool(((arm >= 0) & (arm < arms) & (arm == arm.floor())).all()),
            f"no statistics: there are {arms} arms",
        )
        return torch.cat(tallied(arm.long(), sums, arms))


def tallied(arm: Tensor, reward: Tensor, arms: int) -> Tally:
    """Pulls (``arms``,) of every arm, and the sums of their rewards, where ``arm`` (k,) gave ``reward`` (k,)."""
    blank = torch.zeros(arms, dtype=torch.float64)
    return Tally(*(blank.index_add(0, arm, each) for each in (torch.ones_like(reward), reward)))


def each_pull(counts: Tensor) -> Tensor:
    """The arms (k,) of k pulls of which ``counts`` (K,) says how many are of each, in the order of the arms."""
    return torch.arange(len(counts)).repeat_interleave(counts.long())


def _said(part: Any) -> str:
    """``part`` in words that are the same in every process: functions by their names, tensors by their bytes."""
    if isinstance(part, Tensor):
        return part.contiguous().numpy().astype("<f8").tobytes().hex()
    if isinstance(part, list | tuple):
        return f"({', '.join(map(_said, part))})"
    if isinstance(part, partial):
        return f"partial{_said((part.func, *part.args, *sorted(part.keywords.items())))}"
    if is_dataclass(part):
        inside = (getattr(part, each.name) for each in fields(part))
        return f"{type(part).__qualname__}{_said(tuple(inside))}"
    if callable(part) and hasattr(part, "__qualname__"):
        return f"{part.__module__}.{part.__qualname__}"
    return repr(part)


def condition_on_statistics(
    gradients: Tensor, offsets: Tensor, w0: Tensor, lam: float, sigma: Tensor, b: Tensor
) -> Posterior:
    """The posterior of `condition` from Σ (..., d_w, d_w) and b (..., d_w), where the pulls behind them are not known.

    With ŵ − ŵ₀ = Σ⁻¹(b + λŵ₀ − Σŵ₀); ``gradients`` (..., K, d_w), ``offsets`` (..., K), ``w0`` (..., d_w).
    """
    factor = torch.linalg.cholesky(sigma)
    away = (b + lam * w0).unsqueeze(-1) - sigma @ w0.unsqueeze(-1)
    half: Tensor = torch.linalg.solve_triangular(factor, gradients.mT, upper=False)
    shift: Tensor = torch.linalg.solve_triangular(factor, away, upper=False)
    return Posterior(half.mT @ half, offsets + (half.mT @ shift).squeeze(-1))
