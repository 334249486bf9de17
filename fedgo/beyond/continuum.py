"""Without arms: N clients that search 𝒳 = [0, 1]^d together, with points and rewards as their messages.

In each epoch everybody fits the same surrogate to all points and rewards, and every client pulls one point. The N
points are planned one after the other, so that everybody knows them all, by BoTorch's `optimize_acqf`:

- "bound", line 3 as GP-BUCB has it, x = argmax mean + κ√variance, and then the variance as if x were observed
  (Desautels, Krause and Burdick, JMLR 2014, https://arxiv.org/abs/1206.6402);
- "improvement", BoTorch's own batch of N by qLogEI (Ament et al., NeurIPS 2023, https://arxiv.org/abs/2310.20708);
- "region", the trust region of TuRBO-1 (Eriksson et al., NeurIPS 2019, https://arxiv.org/abs/1910.01739): a box round
  the point of the largest mean, in which each pull is the best of a sample of its own from the posterior;
- "uniform", for comparison.

The surrogate is BoTorch's Gaussian process, or a network refitted and linearised again, as a process whose kernel is
g_xᵀ diag(α)⁻¹ g_x′.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from fedgo._checks import count, number, on_cpu, require, require_finite, require_kind
from fedgo._streams import generator
from fedgo.beyond.surrogates import (
    Fitted,
    GaussianProcess,
    Linear,
    Posterior,
    Relinearised,
    checked,
    fitted,
    observed,
)
from fedgo.confidence import Tally
from fedgo.network import Parametric
from fedgo.star import Ledger, Message, Star, When

Choice = Literal["bound", "improvement", "region", "uniform"]
_RESTARTS, _RAW = 3, 64  # of optimize_acqf
_SIDE, _LEAST, _LARGEST, _LUCKY = 0.8, 0.5**7, 1.6, 3  # of TuRBO-1: sides, and successes until they double
_CANDIDATES = 2_000  # where it samples


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
    surrogate: GaussianProcess | Relinearised | None = None,
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
    surrogate, kinds = surrogate or GaussianProcess(), GaussianProcess | Relinearised
    remedy = "give a GaussianProcess or a Relinearised"
    require_kind(isinstance(surrogate, kinds), "surrogate", surrogate, remedy)
    require(choice in get_args(Choice), "choice", choice, f"choose one of {get_args(Choice)}")
    remedy = "give a finite number of standard deviations κ, at least 0"
    require(0 <= number("kappa", kappa, remedy) < float("inf"), "kappa", kappa, remedy)
    source, noise = generator(seed, 0, "points"), generator(seed, 0, "noise of points")
    pulls = first + epochs * clients
    draws = torch.rand(pulls, cube.dimension, generator=source, dtype=torch.float64)
    errors = cube.sigma * torch.randn(pulls, generator=noise, dtype=torch.float64)
    points, star = draws[:first], Star(clients, Ledger.blank(1, pulls))
    values = _values(cube, points)
    fit: Fitted | None = None
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
            fit, model = _fit(surrogate, points, rewards, cube.sigma, fit)
            with torch.random.fork_rng():
                torch.manual_seed(epoch)  # where the optimizer begins, the same at every client
                if choice == "improvement":
                    new = _improvement(model, clients)
                elif choice == "region":
                    side = side_length(
                        rewards.cummax(0).values[first - 1 :: clients], cube.dimension, clients
                    )
                    new = _region(model, clients, side, epoch)
                else:
                    new = _bound(model, clients, kappa)
        points = torch.cat([points, new])
        values = torch.cat([values, _values(cube, new)])
    return Search(points, values + errors, values, star.ledger)


def _values(cube: Cube, points: Tensor) -> Tensor:
    with torch.no_grad():
        found = cube.value(points)
    require(found.shape == (len(points),), "the shape of value", tuple(found.shape), f"give ({len(points)},)")
    require_finite("value", found)
    return found


def _fit(
    surrogate: GaussianProcess | Relinearised,
    points: Tensor,
    rewards: Tensor,
    sigma: float,
    before: Fitted | None,
) -> tuple[Fitted, Any]:
    """``surrogate`` fitted to the ``rewards`` (E,) of ``points`` (E, d), and it as a BoTorch model of the cube."""
    data = Tally(torch.ones_like(rewards), rewards)
    if isinstance(surrogate, Relinearised):
        fit = fitted(surrogate, points, data, sigma, before)
        assert isinstance(fit, Linear)
        return fit, linearised(surrogate.network, fit, points, rewards, sigma)
    seen = observed(data, sigma)
    keep = () if surrogate.refit or not isinstance(before, Posterior) else (before.model,)
    model = surrogate.model(points, seen.means.unsqueeze(-1), seen.variances.unsqueeze(-1), *keep)
    return checked(Posterior(model, points), len(points), type(model).__name__), model


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


def side_length(best: Tensor, dimension: int, pulls: int) -> float:
    """L of TuRBO-1's box, from the largest reward ``best`` after Phase I and each epoch of N = ``pulls``.

    Doubled after three epochs in a row that were better by a thousandth, halved after ⌈max(4, d)/N⌉ that were not.
    """
    side, better, worse = _SIDE, 0, 0
    for old, new in pairwise(best.tolist()):
        better, worse = (better + 1, 0) if new > old + 1e-3 * abs(old) else (0, worse + 1)
        if better == _LUCKY:
            side, better = min(2 * side, _LARGEST), 0
        elif worse == math.ceil(max(4, dimension) / pulls):
            side, worse = max(side / 2, _LEAST), 0
    return side


def _region(model: Any, pulls: int, side: float, seed: int) -> Tensor:
    """``pulls`` points (N, d), each the best of a sample on Sobol points in the box, which is longer where the model's
    length scale is."""
    from botorch.generation.sampling import MaxPosteriorSampling
    from botorch.utils.sampling import draw_sobol_samples
    from gpytorch.settings import max_cholesky_size

    inputs, scales = model.train_inputs[0], model.covar_module.lengthscale
    with torch.no_grad(), warnings.catch_warnings(), max_cholesky_size(_CANDIDATES):
        warnings.simplefilter("ignore")  # the covariance of close points needs a little on its diagonal
        centre = inputs[model.posterior(inputs).mean.argmax()]
        half = torch.full_like(centre, side / 2)
        if scales is not None:
            half = half * scales.squeeze() / scales.log().mean().exp()
        box = torch.stack([centre - half, centre + half]).clamp(0, 1)
        candidates = draw_sobol_samples(box, _CANDIDATES, 1, seed=seed).squeeze(1)
        found: Tensor = MaxPosteriorSampling(model, replacement=False)(candidates, pulls)
    return found


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
