"""Without arms: N clients that search 𝒳 = [0, 1]^d together, with points and rewards as their messages.

In each epoch everybody fits the same Gaussian process to all points and rewards, and every client pulls one point. The
N points are planned one after the other, so that everybody knows them all, by BoTorch's `optimize_acqf`: line 3 as
GP-BUCB has it, x = argmax mean + κ√variance, and then the variance as if x were observed (Desautels, Krause and
Burdick, JMLR 2014, https://arxiv.org/abs/1206.6402).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, number, on_cpu, require, require_finite
from fedgo._streams import generator
from fedgo.beyond.surrogates import FittedModel, checked, observed, single_task_gp
from fedgo.confidence import Tally
from fedgo.star import Ledger, Message, Star, When

_RESTARTS, _RAW = 3, 64  # of optimize_acqf


class Search(NamedTuple):
    """``points`` (E, d) in the order of their pulls, their ``rewards`` and mean rewards ``values``, (E,), and the
    ``ledger`` (1, E), whose last entry of an epoch has what the epoch sent."""

    points: Tensor
    rewards: Tensor
    values: Tensor
    ledger: Ledger


@on_cpu
def search(
    value: Callable[[Tensor], Tensor],
    dimension: int,
    clients: int,
    epochs: int,
    *,
    sigma: float = 0.1,
    first: int = 10,
    kappa: float = 2.0,
    seed: int = 0,
) -> Search:
    """``first`` uniform points, then ``epochs`` epochs in which each of N = ``clients`` clients pulls one.

    ``value`` of points (n, d), d = ``dimension``, is (n,); rewards have noise ``sigma``. A pull costs d + 1 scalars up,
    and everybody's go down to everybody. A fit costs O(E³) and O(E²) for every evaluation of the index. Values that are
    not finite, rewards that are constant and a process that breaks down are a ``ValueError``.
    """
    count("dimension", dimension, "give the dimension of the points, at least 1")
    count("clients", clients, "give N, at least one client")
    count("epochs", epochs, "give at least one epoch")
    number("sigma", sigma, "give σ > 0, the noise of a reward", above=0)
    count("first", first, "give at least two points to begin with", least=2)
    number("kappa", kappa, "give a finite number of standard deviations κ, at least 0", least=0)
    source, noise = generator(seed, 0, "points"), generator(seed, 0, "noise of points")
    pulls = first + epochs * clients
    new = torch.rand(first, dimension, generator=source, dtype=torch.float64)
    errors = sigma * torch.randn(pulls, generator=noise, dtype=torch.float64)
    points, values, star = new[:0], errors[:0], Star(clients, Ledger.blank(1, pulls))
    for epoch in range(epochs + 1):
        if epoch > 0:
            fit = _fit(points, values + errors[: len(points)], sigma)
            with torch.random.fork_rng():
                torch.manual_seed(epoch - 1)  # where the optimizer begins, the same at every client
                new = _planned(fit, clients, kappa)
        points, values = torch.cat([points, new]), torch.cat([values, _values(value, new)])
        when = When(torch.zeros(1, dtype=torch.int64), torch.tensor([len(points) - 1]))
        news = Message(new, len(new) * (dimension + 1))
        star.broadcast(Message(star.collect(news, when, senders=1), news.scalars), when)
    return Search(points, values + errors, values, star.ledger)


def _values(value: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
    with torch.no_grad():
        found = value(points)
    require(found.shape == (len(points),), "the shape of value", tuple(found.shape), f"give ({len(points)},)")
    require_finite("value", found)
    return found


def _fit(points: Tensor, rewards: Tensor, sigma: float) -> Any:
    """BoTorch's process, fitted to the ``rewards`` (E,) of ``points`` (E, d)."""
    seen = observed(Tally(torch.ones_like(rewards), rewards), sigma)
    found = FittedModel.of(single_task_gp(points, seen.means, seen.variances), points)
    checked(found, len(points), "SingleTaskGP")
    return found.model


def _planned(model: Any, pulls: int, kappa: float) -> Tensor:
    """``pulls`` points (N, d) by mean + κ√variance, each as if those before were observed at their means."""
    from botorch.acquisition.analytic import UpperConfidenceBound
    from botorch.optim.optimize import optimize_acqf

    dimension, noise = model.train_inputs[0].shape[-1], model.likelihood.noise.mean()
    cube = torch.stack([torch.zeros(dimension), torch.ones(dimension)]).double()
    chosen: list[Tensor] = []
    for _ in range(pulls):
        bound = UpperConfidenceBound(model, beta=kappa**2)
        point = optimize_acqf(bound, cube, 1, _RESTARTS, _RAW)[0].detach()
        chosen.append(point)
        with torch.no_grad():
            mean = model.posterior(point).mean
            model = model.condition_on_observations(point, mean, noise=noise.expand_as(mean))
    return torch.cat(chosen)
