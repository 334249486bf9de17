"""The event as printed: ΔΣ_{t,i} is not reset after line 9, so that line 6 compares with a matrix that is not meant."""

from typing import NamedTuple

import torch
from torch import Tensor


class Bookkeeping(NamedTuple):
    """Line 6 of Algorithm 1 at each step of one run, (NT,).

    ``pulls`` is the number of the client's pulls since the last synchronisation, ``ratio`` its log-ratio as printed,
    ``meant`` the log-ratio that is meant, and ``fires`` says whether the event fires. ``sigma`` (r, r) is the server's
    matrix at the end.
    """

    pulls: Tensor
    ratio: Tensor
    meant: Tensor
    fires: Tensor
    sigma: Tensor


def bookkeeping(
    features: Tensor, arm: Tensor, clients: int, lam: float, gamma: float, reset: bool = False
) -> Bookkeeping:
    """Run lines 4 to 10 as printed on given arms, and compare the log-ratio with the one that is meant.

    The printed event compares det Σ_{t,i} with det(Σ_{t,i} − ΔΣ_{t,i}). What is meant is a comparison with the
    determinant of the matrix that all clients received last.

    Args:
        features: The gradients of the arms, or their coordinates, (K, r).
        arm: The arms that are pulled, (NT,).
        clients: The number N of clients.
        lam: The regularisation weight λ.
        gamma: The threshold γ.
        reset: Whether ΔΣ is reset after a synchronisation, which the printed lines leave out.
    """
    server = lam * torch.eye(features.shape[1], dtype=torch.float64)
    sigma, delta = server.repeat(clients, 1, 1), torch.zeros(clients, *server.shape, dtype=torch.float64)
    pulls, rows = [0] * clients, []
    for t, pulled in enumerate(arm.tolist()):
        i, outer = t % clients, torch.outer(features[pulled], features[pulled])
        sigma[i] += outer
        delta[i] += outer
        pulls[i] += 1
        log_det = _log_det(sigma[i])
        rows.append((pulls[i], log_det - _log_det(sigma[i] - delta[i]), log_det - _log_det(server)))
        if pulls[i] * rows[-1][1] > gamma:
            server = server + delta.sum(0)
            sigma, pulls = server.repeat(clients, 1, 1), [0] * clients
            delta = torch.zeros_like(delta) if reset else delta
    made, ratio, meant = torch.tensor(rows, dtype=torch.float64).unbind(1)
    return Bookkeeping(made, ratio, meant, made * ratio > gamma, server)


def _log_det(matrix: Tensor) -> float:
    """Return the logarithm of the determinant of a positive definite ``matrix``."""
    return 2 * float(torch.linalg.cholesky(matrix).diagonal().log().sum())
