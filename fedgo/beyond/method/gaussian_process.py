"""The surrogate `GaussianProcess`: BoTorch's Gaussian process, or one in closed form on transformed rewards."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedgo._checks import extra, require_kind
from fedgo.beyond.method.process import in_cube, warped_posterior
from fedgo.beyond.method.surrogates import Fitted, IndependentArms, Noise, Replicates, observed
from fedgo.confidence import Tally


def single_task_gp(points: Tensor, means: Tensor, variances: Tensor | None) -> Any:
    """Return BoTorch's SingleTaskGP, fitted to n mean rewards whose variances are known, and ready to predict.

    Its hyperparameters are at the mode of their posterior, as BoTorch's search finds it, and the mean rewards are
    standardised inside the model. The same data give the same fit, whatever the state of torch's random numbers.

    Args:
        points: The n inputs in the unit cube, with d_x features each, (n, d_x) float64.
        means: The mean reward observed at each input, (n,).
        variances: The variance of each of these mean rewards, (n,); None means that BoTorch estimates one for all.

    Raises:
        ImportError: BoTorch is missing.
        ValueError: There is no input (n = 0).
        Exception: A number is NaN (BoTorch's ``InputDataError``), or BoTorch finds no fit (its ``ModelFittingError``).
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


class FittedModel(NamedTuple):
    """The posterior of K arms' mean rewards by a fitted BoTorch model.

    Args:
        model: The fitted model, with one output.
        arms: The d_x inputs of each arm, scaled as those to which the model was fitted, (K, d_x).
        mean: The posterior mean of each arm's mean reward, (K,).
        variance: The posterior variance of each arm's mean reward, (K,).
    """

    model: Any
    arms: Tensor
    mean: Tensor
    variance: Tensor

    @classmethod
    def of(cls, model: Any, arms: Tensor) -> "FittedModel":
        """Return the posterior of K arms' mean rewards by a fitted BoTorch model.

        Args:
            model: The fitted model, with one output.
            arms: The d_x inputs of each arm, scaled as those to which the model was fitted, (K, d_x).

        Returns:
            The model and the arms, with the posterior mean and variance of each arm, (K,) each.
        """
        with torch.no_grad():
            posterior = model.posterior(arms)
            return cls(model, arms, posterior.mean.squeeze(-1), posterior.variance.squeeze(-1))

    def covariance(self, among: Tensor) -> Tensor:
        """Return the posterior covariance between the mean rewards of C of the arms, (C, C).

        ``among`` (C,) int64 has the numbers of these arms.
        """
        with torch.no_grad():
            covariance: Tensor = self.model.posterior(self.arms[among]).distribution.covariance_matrix
        return covariance


@dataclass(frozen=True)
class GaussianProcess:
    """A surrogate that fits a Gaussian process to the arms' mean rewards, with new hyperparameters at every fit.

    The features of the arms are scaled to the unit cube. Without ``warp`` the process is BoTorch's SingleTaskGP. With
    ``warp`` the mean rewards are first transformed by a power that makes them more like a normal sample
    (`fedgo.beyond.method.process.Warp`). The process is then computed in closed form, with SciPy and without
    BoTorch. For n pulled arms of K this takes O(n³) operations at each step of the search for the hyperparameters, and
    O(n²K) once. While two or more arms have been pulled and all of them have the same mean reward, as 0/1 rewards may,
    the process with ``warp`` treats the arms as independent (`IndependentArms`).

    To use another model of BoTorch, write a `Surrogate` whose ``fit`` calls `FittedModel.of` with this model and the
    scaled arms, and returns the result.

    Args:
        warp: Whether the mean rewards are first transformed by a power (warped).
        groups: The number of the group of each feature, from 0, with ``warp``; features of one group share a length
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
        """Return the posterior of the K arms' mean rewards given ``data``.

        Args:
            arms: The d_x features of each arm, (K, d_x) float64.
            data: The number of pulls and the sum of rewards of each arm, (K,) float64 each.
            sigma: The standard deviation σ of the noise of one reward.
            before: Not used.

        Returns:
            A `FittedModel` without ``warp``. With it, a `fedgo.beyond.method.process.ProcessFit`, or the posterior
            by `IndependentArms` if two or more arms have been pulled and all have the same mean reward.

        Raises:
            ImportError: A library that the fit needs is missing: SciPy with ``warp``, BoTorch without it.
            ValueError: Fewer than two arms have been pulled; all mean rewards are equal and ``warp`` is False; a count
                is negative or not finite; a sum is not finite, or is not 0 for an arm without pulls; a mean reward is
                not between −10¹⁰⁰ and 10¹⁰⁰; or σ is not positive and finite.
            TypeError: ``sigma`` is not a number.
            RuntimeError: With ``warp``, the covariance of the warped mean rewards is not positive definite, for
                instance because a feature is NaN.
            Exception: Without ``warp``, a feature is NaN (BoTorch's ``InputDataError``), or BoTorch finds no fit (its
                ``ModelFittingError``).
        """
        if self.warp and observed(data, sigma, least=1).alike:
            return IndependentArms().fit(arms, data, sigma)
        seen = observed(data, sigma)
        cube = in_cube(arms)
        if not self.warp:
            known = None if isinstance(sigma, Replicates) else seen.variances
            return FittedModel.of(single_task_gp(cube[seen.at], seen.means, known), cube)
        return warped_posterior(cube, seen, seen, None, self.groups, self.misfit)
