"""The event of line 6 of Algorithm 1 as printed, whose matrix ΔΣ_{t,i} is never set back to 0.

ΔΣ_{t,i} should be the part of client i's matrix Σ_{t,i} from its pulls since the last synchronisation. Without a reset
after line 9 it contains all its pulls, and line 6 compares det Σ_{t,i} with the determinant of a matrix that is not the
one meant. One run has NT steps, of N clients in turn.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Bookkeeping(NamedTuple):
    """Line 6 of Algorithm 1 at each of NT steps of one run, and the server's matrix at the end.

    Args:
        pulls: The number of pulls of the client i of step t since the last synchronisation, this one included, (NT,).
        ratio: The log-ratio of line 6, ln(det Σ_{t,i}/det(Σ_{t,i} − ΔΣ_{t,i})), (NT,).
        meant: The log-ratio that is meant, ln(det Σ_{t,i}/det Σ) with the matrix Σ of the last synchronisation, (NT,).
        fires: Whether ``pulls`` times ``ratio`` exceeds the threshold γ, (NT,) bool.
        sigma: The server's matrix at the end, (r, r), in r coordinates of the gradients.
    """

    pulls: Tensor
    ratio: Tensor
    meant: Tensor
    fires: Tensor
    sigma: Tensor


def bookkeeping(
    features: Tensor, arm: Tensor, clients: int, lam: float, gamma: float, reset: bool = False
) -> Bookkeeping:
    """Run lines 4 to 10 of Algorithm 1 as printed on given arms, to compare line 6 with what it should say.

    Args:
        features: The gradients of K arms, or their r coordinates, (K, r).
        arm: The numbers of the arms that are pulled, (NT,) int64.
        clients: The number N of clients.
        lam: The regularisation weight λ > 0.
        gamma: The threshold γ of the event.
        reset: Whether ΔΣ is set to 0 after a synchronisation, which the printed lines leave out.
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
    """Return ln det of a positive definite ``matrix``."""
    return 2 * float(torch.linalg.cholesky(matrix).diagonal().log().sum())
