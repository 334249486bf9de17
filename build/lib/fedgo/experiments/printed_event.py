"""The event as printed: ΔΣ_{t,i} is not reset after line 9, so line 6 compares with another matrix than is meant."""

from typing import NamedTuple

import torch
from torch import Tensor


class Bookkeeping(NamedTuple):
    """Line 6 at every step of one run, (NT,): the client's ``pulls`` since the last synchronisation, its log-ratio
    ``ratio`` as computed and as ``meant``, whether it ``fires``; and the server's matrix ``sigma`` at the end."""

    pulls: Tensor
    ratio: Tensor
    meant: Tensor
    fires: Tensor
    sigma: Tensor


def bookkeeping(
    features: Tensor, arm: Tensor, clients: int, lam: float, gamma: float, reset: bool = False
) -> Bookkeeping:
    """Lines 4 to 10 as printed, without a reset of ΔΣ, or with it, when the arms ``arm`` (NT,) are pulled.

    ``features`` (K, r) are the gradients' coordinates. The event compares det Σ_{t,i} with det(Σ_{t,i} − ΔΣ_{t,i});
    meant is the determinant of what all clients downloaded last.
    """
    server = lam * torch.eye(features.shape[1], dtype=torch.float64)
    sigma, delta = server.repeat(clients, 1, 1), torch.zeros(clients, *server.shape, dtype=torch.float64)
    pulls, rows = [0] * clients, []
    for t, pulled in enumerate(arm.tolist()):
        i, outer = t % clients, torch.outer(features[pulled], features[pulled])
        sigma[i] += outer
        delta[i] += outer
        pulls[i] += 1
        own = _log_det(sigma[i])
        rows.append((pulls[i], own - _log_det(sigma[i] - delta[i]), own - _log_det(server)))
        if pulls[i] * rows[-1][1] > gamma:
            server = server + delta.sum(0)
            sigma, pulls = server.repeat(clients, 1, 1), [0] * clients
            delta = torch.zeros_like(delta) if reset else delta
    made, ratio, meant = torch.tensor(rows, dtype=torch.float64).unbind(1)
    return Bookkeeping(made, ratio, meant, made * ratio > gamma, server)


def _log_det(matrix: Tensor) -> float:
    return 2 * float(torch.linalg.cholesky(matrix).diagonal().log().sum())
