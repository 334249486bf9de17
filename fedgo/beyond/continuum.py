"""Without arms: N clients that search 𝒳 = [0, 1]^d together, with points and rewards as their messages.

In each epoch everybody fits the same surrogate to all points and rewards, and every client pulls one point. The N
points are planned one after the other, so that everybody knows them all, by BoTorch's `optimize_acqf`:

- "bound", line 3 as GP-BUCB has it, x = argmax mean + κ√variance, and then the variance as if x were observed
  (Desautels, Krause and Burdick, JMLR 2014, https://arxiv.org/abs/1206.6402);
- "improvement", BoTorch's own batch of N by qLogEI (Ament et al., NeurIPS 2023, https://arxiv.org/abs/2310.20708);
- "uniform", for comparison.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from fedgo._checks import count, number, on_cpu, require, require_finite, require_kind
from fedgo._streams import generator
from fedgo.beyond.surrogates import FittedModel, GaussianProcess, checked, observed
from fedgo.confidence import Tally
from fedgo.star import Ledger, Message, Star, When

Choice = Literal["bound", "improvement", "uniform"]
_RESTARTS, _RAW = 3, 64  # of optimize_acqf


@dataclass(frozen=True)
class Cube:
    """A function on [0, 1]^d, d = ``dimension``: ``value`` of points (n, d) is (n,); rewards have noise ``sigma``."""

    name: str
    dimension: int
    value: Callable[[Tensor], Tensor]
    sigma: float = 0.1

    def __post_init__(self) -> None:
        count("dimension", self.dimension, "give the dimension of the points, at least 1")
        require(0 < self.sigma < float("inf"), "sigma", self.sigma, "give σ > 0, the noise of a reward")


class Search(NamedTuple):
    """``points`` (E, d) in the order of their pulls, their ``rewards`` and mean rewards ``values``, (E,), and the
    ``ledger`` (1, E), whose last entry of an epoch has what the epoch sent."""

    points: Tensor
    rewards: Tensor
    values: Tensor
    ledger: Ledger


@on_cpu
def search(
    cube: Cube,
    clients: int,
    epochs: int,
    *,
    first: int = 10,
    surrogate: GaussianProcess | None = None,
    choice: Choice = "bound",
    kappa: float = 2.0,
    seed: int = 0,
) -> Search:
    """``first`` uniform points, then ``epochs`` epochs in which each of N = ``clients`` clients pulls one.

    The ``surrogate`` is a `GaussianProcess` unless given. A pull costs d + 1 scalars up, and everybody's go down to
    everybody. A fit costs O(E³) and O(E²) for every evaluation of the index. Values that are not finite, rewards that
    are constant and a surrogate that breaks down are a ``ValueError``.
    """
    require_kind(isinstance(cube, Cube), "cube", cube, "give a Cube")
    count("clients", clients, "give N, at least one client")
    count("epochs", epochs, "give at least one epoch")
    count("first", first, "give at least two points to begin with", least=2)
    surrogate = surrogate or GaussianProcess()
    plain = isinstance(surrogate, GaussianProcess) and not surrogate.warp
    require_kind(plain, "surrogate", surrogate, "give a GaussianProcess without warp")
    require(choice in get_args(Choice), "choice", choice, f"choose one of {get_args(Choice)}")
    remedy = "give a finite number of standard deviations κ, at least 0"
    require(0 <= number("kappa", kappa, remedy) < float("inf"), "kappa", kappa, remedy)
    source, noise = generator(seed, 0, "points"), generator(seed, 0, "noise of points")
    pulls = first + epochs * clients
    draws = torch.rand(pulls, cube.dimension, generator=source, dtype=torch.float64)
    errors = cube.sigma * torch.randn(pulls, generator=noise, dtype=torch.float64)
    points, star = draws[:first], Star(clients, Ledger.blank(1, pulls))
    values = _values(cube, points)
    for epoch in range(epochs + 1):
        sent = first if epoch == 0 else clients
        when = When(torch.zeros(1, dtype=torch.int64), torch.tensor([len(points) - 1]))
        news = Message(points[-sent:], sent * (cube.dimension + 1))
        star.broadcast(Message(star.collect(news, when, senders=1), news.scalars), when)
        if epoch == epochs:
            break
        new = draws[len(points) : len(points) + clients]
        if choice != "uniform":
            fit = _fit(surrogate, points, values + errors[: len(points)], cube.sigma)
            with torch.random.fork_rng():
                torch.manual_seed(epoch)  # where the optimizer begins, the same at every client
                new = _bound(fit, clients, kappa) if choice == "bound" else _improvement(fit, clients)
        points, values = torch.cat([points, new]), torch.cat([values, _values(cube, new)])
    return Search(points, values + errors, values, star.ledger)


def _values(cube: Cube, points: Tensor) -> Tensor:
    with torch.no_grad():
        found = cube.value(points)
    require(found.shape == (len(points),), "the shape of value", tuple(found.shape), f"give ({len(points)},)")
    require_finite("value", found)
    return found


def _fit(surrogate: GaussianProcess, points: Tensor, rewards: Tensor, sigma: float) -> Any:
    """A model of BoTorch's, fitted to the ``rewards`` (E,) of ``points`` (E, d)."""
    seen = observed(Tally(torch.ones_like(rewards), rewards), sigma)
    model = surrogate.model(points, seen.means.unsqueeze(-1), seen.variances.unsqueeze(-1))
    checked(FittedModel.of(model, points), len(points), type(model).__name__)
    return model


def _optimum(acquisition: Any, dimension: int, pulls: int = 1) -> Tensor:
    """The maximum of ``acquisition`` in the cube, (``pulls``, d)."""
    from botorch.optim.optimize import optimize_acqf

    cube = torch.stack([torch.zeros(dimension), torch.ones(dimension)]).double()
    found: Tensor = optimize_acqf(acquisition, cube, pulls, _RESTARTS, _RAW, sequential=pulls > 1)[0]
    return found.detach()


def _bound(model: Any, pulls: int, kappa: float) -> Tensor:
    """``pulls`` points (N, d) by mean + κ√variance, each as if those before were observed at their means."""
    from botorch.acquisition.analytic import UpperConfidenceBound

    chosen: list[Tensor] = []
    noise = model.likelihood.noise.mean()
    for _ in range(pulls):
        chosen.append(_optimum(UpperConfidenceBound(model, beta=kappa**2), model.train_inputs[0].shape[-1]))
        with torch.no_grad():
            mean = model.posterior(chosen[-1]).mean
            model = model.condition_on_observations(chosen[-1], mean, noise=noise.expand_as(mean))
    return torch.cat(chosen)


def _improvement(model: Any, pulls: int) -> Tensor:
    """``pulls`` points (N, d) of BoTorch's qLogEI over the largest mean of a point that was pulled."""
    from botorch.acquisition.logei import qLogExpectedImprovement

    inputs = model.train_inputs[0]
    with torch.no_grad():
        best = model.posterior(inputs).mean.max()
    return _optimum(qLogExpectedImprovement(model, best_f=best), inputs.shape[-1], pulls)
