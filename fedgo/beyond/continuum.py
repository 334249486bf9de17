"""Without arms: N clients that search 𝒳 = [0, 1]^d together, with points and rewards as their messages.

In each epoch everybody fits the same surrogate to all points and rewards, and every client pulls one point. The N
points are planned one after the other, so that everybody knows them all, by BoTorch's `optimize_acqf`:

- "bound", line 3 as GP-BUCB has it, x = argmax mean + κ√variance, and then the variance as if x were observed
  (Desautels, Krause and Burdick, JMLR 2014, https://arxiv.org/abs/1206.6402);
- "improvement", BoTorch's own batch of N by qLogEI (Ament et al., NeurIPS 2023, https://arxiv.org/abs/2310.20708);
- "uniform", for comparison.

The surrogate is BoTorch's Gaussian process, or a network refitted and linearised again, as a process whose kernel is
g_xᵀ diag(α)⁻¹ g_x′.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from fedgo._checks import count, number, on_cpu, require, require_kind
from fedgo._streams import generator
from fedgo.beyond.surrogates import Linear, Relinearised, single_task_gp
from fedgo.confidence import Tally
from fedgo.network import Parametric
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
    network: Parametric | None = None,
    choice: Choice = "bound",
    kappa: float = 2.0,
    seed: int = 0,
) -> Search:
    """``first`` uniform points, then ``epochs`` epochs in which each of N = ``clients`` clients pulls one.

    The surrogate is `single_task_gp`, or the ``network`` refitted. A pull costs d + 1 scalars up, and everybody's go
    down to everybody. A fit costs O(E³) and O(E²) for every evaluation of the index.
    """
    require_kind(isinstance(cube, Cube), "cube", cube, "give a Cube")
    count("clients", clients, "give N, at least one client")
    count("epochs", epochs, "give at least one epoch")
    count("first", first, "give at least two points to begin with", least=2)
    require(
        choice in ("bound", "improvement", "uniform"),
        "choice",
        choice,
        "give bound, improvement or uniform",
    )
    remedy = "give a finite number of standard deviations κ, at least 0"
    require(0 <= number("kappa", kappa, remedy) < float("inf"), "kappa", kappa, remedy)
    source, noise = generator(seed, 0, "points"), generator(seed, 0, "noise of points")
    pulls = first + epochs * clients
    draws = torch.rand(pulls, cube.dimension, generator=source, dtype=torch.float64)
    errors = cube.sigma * torch.randn(pulls, generator=noise, dtype=torch.float64)
    points, star = draws[:first], Star(clients, Ledger.blank(1, pulls))
    values = _values(cube, points)
    before: Linear | None = None
    for epoch in range(epochs + 1):
        step = first - 1 + epoch * clients
        sent = first if epoch == 0 else clients
        when = When(torch.zeros(1, dtype=torch.int64), torch.tensor([step]))
        news = Message(points[-sent:], sent * (cube.dimension + 1))
        star.broadcast(Message(star.collect(news, when, senders=1), news.scalars), when)
        if epoch == epochs:
            break
        if choice == "uniform":
            new = draws[len(points) : len(points) + clients]
        else:
            rewards = values + errors[: len(points)]
            if network is None:
                noises = torch.full_like(rewards, cube.sigma**2).unsqueeze(-1)
                model = single_task_gp(points, rewards.unsqueeze(-1), noises)
            else:
                data = Tally(torch.ones_like(rewards), rewards)
                before = Relinearised(network).fit(points, data, cube.sigma, before)
                model = linearised(network, before, points, rewards, cube.sigma)
            with torch.random.fork_rng():
                torch.manual_seed(epoch)  # where the optimizer begins, the same at every client
                new = (
                    _improvement(model, clients) if choice == "improvement" else _bound(model, clients, kappa)
                )
        points = torch.cat([points, new])
        values = torch.cat([values, _values(cube, new)])
    return Search(points, values + errors, values, star.ledger)


def _values(cube: Cube, points: Tensor) -> Tensor:
    with torch.no_grad():
        found = cube.value(points)
    require(found.shape == (len(points),), "the shape of value", tuple(found.shape), f"give ({len(points)},)")
    return found


def _optimum(acquisition: Any, dimension: int, pulls: int = 1) -> Tensor:
    """The maximum of ``acquisition`` in the cube, (``pulls``, d)."""
    from botorch.optim.optimize import optimize_acqf

    bounds = torch.tensor([[0.0] * dimension, [1.0] * dimension], dtype=torch.float64)
    found: Tensor = optimize_acqf(
        acquisition, bounds, pulls, num_restarts=_RESTARTS, raw_samples=_RAW, sequential=pulls > 1
    )[0]
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


def linearised(network: Parametric, fit: Linear, points: Tensor, rewards: Tensor, sigma: float) -> Any:
    """``fit`` of a `Relinearised` to ``points`` (E, d) and ``rewards`` (E,) as a BoTorch model of every point."""
    from botorch.models import SingleTaskGP
    from gpytorch.kernels import Kernel
    from gpytorch.means import Mean

    spread = points.std(0, correction=0)
    at, spread = points.mean(0), torch.where(spread > 0, spread, 1.0)
    centre, scale = rewards.mean(), rewards.std()

    class Tangent(Kernel):  # type: ignore[misc]
        """s²·g_xᵀ diag(α)⁻¹ g_x′."""

        def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **options: Any) -> Tensor:
            left, right = (
                network.gradients(fit.w, (x - at) / spread) * scale / fit.decay.sqrt() for x in (x1, x2)
            )
            return (left * right).sum(-1) if diag else left @ right.mT

    class Prior(Mean):  # type: ignore[misc]
        """f_x(w) − g_xᵀw, in the rewards' units."""

        def forward(self, x: Tensor) -> Tensor:
            z = (x - at) / spread
            slope = (network.gradients(fit.w, z) @ fit.w.unsqueeze(-1)).squeeze(-1)
            return centre + scale * (network.values(fit.w, z) - slope)

    noise = torch.full_like(rewards, sigma**2 + fit.effect).unsqueeze(-1)
    model = SingleTaskGP(
        points,
        rewards.unsqueeze(-1),
        noise,
        covar_module=Tangent(),
        mean_module=Prior(),
        outcome_transform=None,
    )
    return model.eval()
