"""The surrogate `GaussianProcess`: BoTorch's Gaussian process, or one in closed form on transformed rewards."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedgo._checks import extra, require_kind
from fedgo.beyond.method.process import in_cube, warped_posterior
from fedgo.beyond.method.surrogates import Fitted, IndependentArms, Noise, Replicates, observed
from fedgo.confidence import Tally


def single_task_gp(points: Tensor, means: Tensor, variances: Tensor | None) -> Any:
    """Return BoTorch's SingleTaskGP, fitted to n mean rewards, the same for the same data.

    Args:
        points: The n inputs in the unit cube, (n, d_x) float64.
        means: The mean reward observed at each input, (n,).
        variances: The variance of each of these, (n,); None means that BoTorch estimates one for all.
    """
    with extra("study"):
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from botorch.models.transforms import Standardize
        from gpytorch.mlls import ExactMarginalLogLikelihood

    known = None if variances is None else variances.unsqueeze(-1)
    model = SingleTaskGP(points, means.unsqueeze(-1), known, outcome_transform=Standardize(1))
    with torch.random.fork_rng():  # BoTorch begins a fit that fails again at a random point
        torch.manual_seed(0)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model.eval()


@dataclass(frozen=True)
class FittedModel:
    """The posterior of K arms' mean rewards by a fitted BoTorch model.

    Args:
        model: The fitted model, with one output.
        arms: The inputs of each arm, scaled as those to which the model was fitted, (K, d_x).
        mean: The posterior mean of each arm, (K,).
        variance: The posterior variance of each arm, (K,).
    """

    model: Any
    arms: Tensor
    mean: Tensor
    variance: Tensor

    @classmethod
    def of(cls, model: Any, arms: Tensor) -> "FittedModel":
        """Return the posterior of K arms, whose inputs ``arms`` (K, d_x) are scaled as those of the fitted
        ``model``.
        """
        with torch.no_grad():
            posterior = model.posterior(arms)
            return cls(model, arms, posterior.mean.squeeze(-1), posterior.variance.squeeze(-1))

    @cached_property
    def _covariance(self) -> Tensor:
        """The posterior covariance of the K mean rewards, (K, K)."""
        with torch.no_grad():
            covariance: Tensor = self.model.posterior(self.arms).distribution.covariance_matrix
        return covariance

    def columns(self, arm: Tensor, among: Tensor) -> Tensor:
        return self._covariance[arm][:, among]


@dataclass(frozen=True)
class GaussianProcess:
    """A surrogate that fits a Gaussian process to the arms' mean rewards, with new hyperparameters at every fit.

    The features are scaled to the unit cube. Without ``warp`` the process is BoTorch's SingleTaskGP. With it the mean
    rewards are transformed first (`fedgo.beyond.method.process.Warp`), and the process has a closed form that needs
    SciPy only; while all mean rewards are equal, as 0/1 rewards may be, the arms are then independent
    (`IndependentArms`). To use another model of BoTorch, write a `Surrogate` whose ``fit`` returns `FittedModel.of` it.

    Args:
        warp: Whether the mean rewards are first transformed by a power.
        groups: With ``warp``, the number of the group of each feature, from 0; features of one group share a length
            scale, as the columns of 0 and 1 of one category do. None means a group for each feature.
        misfit: Whether the process with ``warp`` has a misfit.

    Raises:
        TypeError: ``warp`` is not a bool.
        ImportError: ``warp`` is False and BoTorch is missing.
    """

    warp: bool = False
    groups: tuple[int, ...] | None = None
    misfit: bool = True

    def __post_init__(self) -> None:
        require_kind(isinstance(self.warp, bool), "warp", self.warp, "give True (no BoTorch needed) or False")
        if not self.warp:
            with extra("study"):
                import botorch  # noqa: F401

    def fit(self, arms: Tensor, data: Tally, sigma: Noise, before: Fitted | None = None) -> Fitted:
        if self.warp and observed(data, sigma, least=1).alike:
            return IndependentArms().fit(arms, data, sigma)
        seen = observed(data, sigma)
        cube = in_cube(arms)
        if not self.warp:
            known = None if isinstance(sigma, Replicates) else seen.variances
            return FittedModel.of(single_task_gp(cube[seen.at], seen.means, known), cube)
        return warped_posterior(cube, seen, seen, None, self.groups, self.misfit)
