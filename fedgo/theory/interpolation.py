"""A parameter w* of Assumption 1 for finitely many arms: f_x(w*) equals the mean reward of every arm x.

With fewer arms than parameters there are many such w*. Damped Gauss–Newton steps w ← w + Jᵀ(JJᵀ + D)⁻¹ e from ŵ₀ find
one of them near ŵ₀. Here J has the gradients at w as rows, e is the vector of the mean rewards minus f_x(w), and D is a
multiple of the identity, the damping.
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

    For each of S runs and each arm x, the value f_x(w*) of the network differs from the mean reward of the arm by at
    most ``tolerance``. w* need not be the nearest such parameter; if ``start`` fits already, it is returned itself.

    Args:
        model: The parametric class F, with d_w parameters.
        start: The parameter at which the search begins, (S, d_w).
        arms: The features of K arms, (S, K, d_x).
        means: The mean rewards of the arms, (S, K).
        tolerance: The largest difference that is accepted.

    Raises:
        ArithmeticError: No such parameter is found in 999 steps of the search, for instance because there are more arms
            than parameters.
        ValueError: A mean reward minus the network's value at ``start`` is not finite, or the last axis of ``start`` or
            ``arms`` does not fit a `fedgo.network.Network`.
        RuntimeError: The shape of ``means`` does not fit the arms, or a last axis does not fit another class F.
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
