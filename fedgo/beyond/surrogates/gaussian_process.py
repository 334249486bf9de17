"""BoTorch's Gaussian process as a surrogate, and the same process in closed form with a warp."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedgo._checks import extra, require_kind
from fedgo.beyond.surrogates.models import Fitted, IndependentArms, observed
from fedgo.beyond.surrogates.process import InUnits, Warp, squared_exponential
from fedgo.confidence import Tally


def single_task_gp(points: Tensor, means: Tensor, variances: Tensor) -> Any:
    """BoTorch's SingleTaskGP with the means' own noise, hyperparameters by their posterior mode.

    Of ``points`` (n, d_x), ``means`` (n,) and ``variances`` (n,).
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
    """What a fitted BoTorch ``model`` says of the ``arms`` (K, d_x) of its cube: ``mean`` and ``variance``, (K,)."""

    model: Any
    arms: Tensor
    mean: Tensor
    variance: Tensor

    @classmethod
    def of(cls, model: Any, arms: Tensor) -> "FittedModel":
        """Of the ``model`` at the ``arms``."""
        with torch.no_grad():
            found = model.posterior(arms)
            return cls(model, arms, found.mean.squeeze(-1), found.variance.squeeze(-1))

    def covariance(self, among: Tensor) -> Tensor:
        """As `Fitted` says."""
        with torch.no_grad():
            found: Tensor = self.model.posterior(self.arms[among]).distribution.covariance_matrix
        return found


@dataclass(frozen=True)
class GaussianProcess:
    """A Gaussian process on the cube that holds the arms, `single_task_gp`, refitted each time.

    With ``warp`` it sees rewards drawn in by the power under which they are likeliest normal (`Warp`), and is computed
    in closed form (`squared_exponential`), O(n³ + n²K) a fit, without BoTorch; while all arms that were pulled have one
    mean, as coins may, which has no scale, the arms are independent. Another model of BoTorch is a `Surrogate` whose
    ``fit`` returns `FittedModel.of` it.
    """

    warp: bool = False

    def __post_init__(self) -> None:
        require_kind(isinstance(self.warp, bool), "warp", self.warp, "give True (no BoTorch needed) or False")
        if not self.warp:
            with extra("study"):
                import botorch  # noqa: F401

    def fit(self, arms: Tensor, data: Tally, sigma: float, before: Fitted | None = None) -> Fitted:
        """As `Surrogate` says."""
        if self.warp and observed(data, sigma, least=1).alike:
            return IndependentArms().fit(arms, data, sigma)
        seen = observed(data, sigma)
        low, high = arms.amin(0), arms.amax(0)
        cube = (arms - low) / torch.where(high > low, high - low, 1.0)
        if not self.warp:
            return FittedModel.of(single_task_gp(cube[seen.at], seen.means, seen.variances), cube)
        warp = Warp.likeliest(seen.means, seen.variances)
        warped, variances = warp(seen.means), seen.variances * warp.slope(seen.means).square()
        fit = squared_exponential(cube, seen.at, warped, variances)
        leader = fit.mean[seen.at].argmax()
        reward = seen.means[leader]
        return InUnits(fit, warp, warped[leader].item(), reward.item(), warp.slope(reward).item())
