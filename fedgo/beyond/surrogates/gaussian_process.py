"""BoTorch's Gaussian process as a surrogate, and the same process in closed form with a warp."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedgo._checks import extra, require_kind
from fedgo.beyond.surrogates.models import Fitted, IndependentArms, observed
from fedgo.beyond.surrogates.process import InUnits, Warp, in_cube, squared_exponential
from fedgo.confidence import Tally


def single_task_gp(points: Tensor, means: Tensor, variances: Tensor) -> Any:
    """Return BoTorch's SingleTaskGP, fitted to mean rewards with known variances.

    Its hyperparameters are at the mode of their posterior, and the means are standardised inside the model.

    Args:
        points: The inputs, in the unit cube, (n, d_x).
        means: The mean reward observed at each input, (n,).
        variances: The variance of each of these means, (n,).

    Raises:
        ImportError: BoTorch is missing.
    """
    with extra("study"):
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from botorch.models.transforms import Standardize
        from gpytorch.mlls import ExactMarginalLogLikelihood

    columns = means.unsqueeze(-1), variances.unsqueeze(-1)
    model = SingleTaskGP(points, *columns, outcome_transform=Standardize(1))
    with torch.random.fork_rng():  # a fit that fails is begun again elsewhere, at random
        torch.manual_seed(0)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model.eval()


class FittedModel(NamedTuple):
    """The posterior of a fitted BoTorch ``model`` on the ``arms`` (K, d_x), with ``mean`` and ``variance`` (K,)."""

    model: Any
    arms: Tensor
    mean: Tensor
    variance: Tensor

    @classmethod
    def of(cls, model: Any, arms: Tensor) -> "FittedModel":
        """Return the posterior of a fitted BoTorch ``model`` with one output at ``arms`` (K, d_x)."""
        with torch.no_grad():
            posterior = model.posterior(arms)
            return cls(model, arms, posterior.mean.squeeze(-1), posterior.variance.squeeze(-1))

    def covariance(self, among: Tensor) -> Tensor:
        """Return the posterior covariance between the arms numbered ``among`` (C,) int64, (C, C)."""
        with torch.no_grad():
            covariance: Tensor = self.model.posterior(self.arms[among]).distribution.covariance_matrix
        return covariance


@dataclass(frozen=True)
class GaussianProcess:
    """A Gaussian process on the cube that holds the arms, refitted at each fit.

    Without ``warp`` it is BoTorch's SingleTaskGP (`single_task_gp`). With ``warp`` the rewards are first transformed by
    the power under which they are likeliest a normal sample (`Warp`), and the process is computed in closed form
    (`squared_exponential`), O(n³ + n²K) for a fit, without BoTorch. While all arms that were pulled have the same mean,
    as 0/1 rewards may, the arms are independent. For another model of BoTorch, write a `Surrogate` whose ``fit``
    returns `FittedModel.of` it.
    """

    warp: bool = False

    def __post_init__(self) -> None:
        require_kind(isinstance(self.warp, bool), "warp", self.warp, "give True (no BoTorch needed) or False")
        if not self.warp:
            with extra("study"):
                import botorch  # noqa: F401

    def fit(self, arms: Tensor, data: Tally, sigma: float, before: Fitted | None = None) -> Fitted:
        """Return the posterior on the K arms given ``data``; see `Surrogate.fit` for the arguments.

        ``before`` is not used.

        Raises:
            ImportError: A library that the fit needs is missing: BoTorch, or SciPy with ``warp``.
            ValueError: ``data`` or ``sigma`` is out of range (`observed`), or too few arms have a reward: at least two
                are needed. Without ``warp``, mean rewards that are all equal are refused too.
        """
        if self.warp and observed(data, sigma, least=1).alike:
            return IndependentArms().fit(arms, data, sigma)
        seen = observed(data, sigma)
        cube = in_cube(arms)
        if not self.warp:
            return FittedModel.of(single_task_gp(cube[seen.at], seen.means, seen.variances), cube)
        warp = Warp.likeliest(seen.means, seen.variances)
        warped, variances = warp(seen.means), seen.variances * warp.slope(seen.means).square()
        fit = squared_exponential(cube, seen.at, warped, variances)
        leader = fit.mean[seen.at].argmax()
        reward = seen.means[leader]
        return InUnits(fit, warp, warped[leader].item(), reward.item(), warp.slope(reward).item())
