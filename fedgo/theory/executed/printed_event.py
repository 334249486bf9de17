"""The event of line 6 of Algorithm 1 as printed, whose matrix ΔΣ_{t,i} is never set back to 0.

ΔΣ_{t,i} should be the part of client i's matrix Σ_{t,i} from its pulls since the last synchronisation. Without a reset
after line 9, line 6 compares det Σ_{t,i} with the determinant of a matrix that is not the one meant.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Bookkeeping(NamedTuple):
    """Line 6 of Algorithm 1 at each of NT steps of one run, and the server's matrix at the end.

    There are N clients and T rounds. Σ_{t,i} is the matrix of the client i that pulls at step t, this pull included,
    and ΔΣ_{t,i} is the sum of g gᵀ over the gradients g of the client's own pulls: of all of them as printed, or of
    those since the last synchronisation if `bookkeeping` was called with ``reset=True``.

    Args:
        pulls: The number of pulls that the client i of step t has made since the last synchronisation, this pull
            included, (NT,) float64.
        ratio: This client's log-ratio ln(det Σ_{t,i}/det(Σ_{t,i} − ΔΣ_{t,i})), (NT,) float64.
        meant: The log-ratio that is meant, ln(det Σ_{t,i}/det Σ), (NT,) float64. Σ is the matrix that the server sent
            to all clients at the last synchronisation, and λI before the first one.
        fires: Whether the event occurs, because ``pulls`` times ``ratio`` exceeds the threshold γ, (NT,) bool.
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
        arm: The numbers of the arms that are pulled at NT ≥ 1 steps, by N clients in turn, (NT,) int64.
        clients: The number N ≥ 1 of clients.
        lam: The regularisation weight λ > 0.
        gamma: The threshold γ of the event.
        reset: Whether each client's ΔΣ, the sum of g gᵀ over the gradients g of its own pulls, is set to 0 after a
            synchronisation, which the printed lines leave out.

    Returns:
        The number of pulls, both log-ratios and the event at each step, and the server's matrix (r, r) at the end.

    Raises:
        RuntimeError: A matrix is not positive definite in float64, because λ is not positive or too small for the
            features.
        IndexError: There is no step, or the number of an arm is K or more.
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
    """Return the natural logarithm of the determinant of a positive definite ``matrix`` (r, r)."""
    return 2 * float(torch.linalg.cholesky(matrix).diagonal().log().sum())
