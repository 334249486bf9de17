"""A parameter w* of Assumption 1 for finitely many arms: f_x(w*) equals the mean reward of every arm x.

With fewer arms than parameters there are many such w*. Damped Gauss–Newton steps w ← w + Jᵀ(JJᵀ + D)⁻¹ e from ŵ₀ find
one near ŵ₀. J has the gradients at w as rows, e is the vector of the mean rewards minus f_x(w), and D is a multiple of
the identity, the damping. There are S runs of K arms.
"""

import torch
from torch import Tensor

from fedgo._checks import require
from fedgo.network import Parametric

_MOST_STEPS = 1000


def interpolate(
    model: Parametric, start: Tensor, arms: Tensor, means: Tensor, tolerance: float = 1e-10
) -> Tensor:
    """Return a parameter w* (S, d_w) near ``start`` at which the network fits the mean rewards of all arms.

    It need not be the nearest one. The search gives up with an ``ArithmeticError`` after 999 steps, as it must with
    more arms than parameters.

    Args:
        model: The parametric class F, with d_w parameters.
        start: The parameter at which the search begins, (S, d_w); if it fits already, it is the result.
        arms: The features of the arms, (S, K, d_x).
        means: The mean rewards of the arms, (S, K).
        tolerance: The largest difference of f_x(w*) from a mean reward that is accepted.
    """
    w, missing = start, means - model.values(start, arms)
    finite, most = bool(missing.isfinite().all()), missing.abs().max().item()
    require(finite, "the largest |means − f_x(start)|", most, "give finite means and a finite start")
    identity = torch.eye(arms.shape[-2], dtype=torch.float64)
    damping = torch.ones_like(missing[..., :1])
    for _ in range(_MOST_STEPS):
        if missing.abs().max() <= tolerance:
            return w
        slopes = model.gradients(w, arms)
        factor = torch.linalg.cholesky(slopes @ slopes.mT + damping.unsqueeze(-1) * identity)
        trial = w + (slopes.mT @ torch.cholesky_solve(missing.unsqueeze(-1), factor)).squeeze(-1)
        left = means - model.values(trial, arms)
        better = left.norm(dim=-1, keepdim=True) < missing.norm(dim=-1, keepdim=True)
        w, missing = torch.where(better, trial, w), torch.where(better, left, missing)
        damping = (damping * torch.where(better, 0.3, 3.0)).clamp(1e-13, 1e13)
    most = missing.abs().max().item()
    raise ArithmeticError(f"no parameter fits all arms to {tolerance}: {most:.1e} is left; use more units")
