"""The quantities of the analysis of Phase II, computed from a trace: widths, log-determinants and epochs of each step.

The pulls that each client i knew before step t (`knowledge`) give its matrix Σ_{t−1,i} and the width of the arm that it
pulled. The pulls of all clients before t give the matrix Σ_{t−1} of an imaginary agent who sees every pull. The
log-determinants are running sums of ln(det(Σ + ggᵀ)/det Σ) = ln(1 + gᵀΣ⁻¹g) over the gradients g of the pulls.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import require
from fedgo.confidence import Tally, compress, precision_factor
from fedgo.phase_one import Start
from fedgo.trace import Trace


class Replay(NamedTuple):
    """The quantities of the analysis at each step t of Phase II, for the client i that makes the pull.

    There are S runs of NT steps (N clients, T rounds) with K arms; g_t is the gradient of the pulled arm at the
    parameter ŵ₀ of Phase I. Σ_{t,i} is λI plus the sum of g gᵀ over the gradients g of D_{t,i}, and λ is the
    regularisation weight. D_{t,i} are the pulls that the client knows after the pull of step t, before a
    synchronisation that this pull may trigger. Σ_t is λI plus the same sum over the pulls of all clients up to step t.

    Args:
        local: The squared width g_tᵀΣ_{t−1,i}⁻¹g_t of the pull, with the matrix Σ_{t−1,i} of the data that the client
            knows before it, (S, NT) float64.
        central: The squared width g_tᵀΣ_{t−1}⁻¹g_t of the pull, with the matrix of all pulls before it, (S, NT)
            float64.
        gain: The log-ratio ln(det Σ_{t,i}/det(Σ_{t,i} − ΔΣ_{t,i})), (S, NT) float64. ΔΣ_{t,i} is the part of Σ_{t,i}
            from the client's own pulls since the last synchronisation, the pull of step t included.
        since: The number of the client's own pulls since the last synchronisation, the pull of step t included, (S, NT)
            float64.
        information: The log-ratio ln(det Σ_{t,i}/det λI), (S, NT) float64.
        total: The log-ratio ln(det Σ_t/det λI), (S, NT) float64.
        epoch: The number p of synchronisations in Phase II before step t, (S, NT) int64.
        known: The counts of the pulls in D_{t,i} and the sums of their residuals y − f_x(ŵ₀), with the reward y and the
            network's value f_x(ŵ₀) of the arm x, (S, NT, K) float64.
    """

    local: Tensor
    central: Tensor
    gain: Tensor
    since: Tensor
    information: Tensor
    total: Tensor
    epoch: Tensor
    known: Tally

    def by_epoch(self, values: Tensor) -> Tensor:
        """Return the sums of ``values`` (S, NT) over the steps of each epoch, (S, P + 1).

        There are S runs of NT steps of Phase II. An epoch lasts from one synchronisation to the next; the step that
        triggers a synchronisation belongs to the epoch before it. P is the largest number of synchronisations that any
        of the runs has before its last step, the NT-th. An epoch that a run does not have gets 0.

        Raises:
            RuntimeError: ``values`` has another shape than (S, NT).
        """
        out = values.new_zeros(len(values), int(self.epoch.max()) + 1)
        return out.scatter_add(1, self.epoch, values)


def replay(start: Start, trace: Trace, lam: float) -> Replay:
    """Return the quantities of the analysis at each step of Phase II of a trace of Fed-GO-UCB.

    Among them are the squared widths of the pulls, log-determinants and epochs. The pulled arms and the
    synchronisations are those of the trace, whatever index and event caused them. The data of Phase I do not count.

    Args:
        start: The result of Phase I from which the trace was made, a `fedgo.phase_one.shared_start` with one fitted
            parameter ŵ₀ in each run.
        trace: The trace of both phases, of S runs.
        lam: The regularisation weight λ > 0 that the trace was made with.

    Raises:
        ValueError: The start has several ŵ₀ in a run, or λ is not positive.
        torch.linalg.LinAlgError: A matrix Σ, which is λI plus the sum of g gᵀ over the gradients g of some pulls, is
            not positive definite up to rounding, because λ is too small for the gradients.
        RuntimeError: The trace has another number of runs than the start, or Phase II fewer than N − 1 steps for N
            clients.
    """
    require(lam > 0, "lam", lam, "give the λ > 0 that the trace was made with")
    shape = tuple(start.w0.shape)
    require(shape[1] == 1, "the shape of w0", shape, "give a shared_start: all Σ must be around one ŵ₀")
    w0, network, arms = start.w0[:, 0], start.network, start.problem.arms
    features = compress(network.gradients(w0, arms)).features
    residual = trace.reward - network.values(w0, arms).gather(1, trace.arm)
    arm, sync = trace.arm[:, trace.phase_one :], trace.sync[:, trace.phase_one :]
    pulled = torch.nn.functional.one_hot(arm, arms.shape[1]).double()
    everybody = pulled.cumsum(1) - pulled
    known = Tally.blank(*pulled.shape)
    local, central, gain, since = (torch.zeros(arm.shape, dtype=torch.float64) for _ in range(4))
    for before in knowledge(replace(trace, reward=residual), arms.shape[1]):
        step = before.step - trace.phase_one
        known.counts[:, step] = before.tally.counts + pulled[:, step]
        known.sums[:, step] = before.tally.sums + pulled[:, step] * residual[:, before.step].unsqueeze(-1)
        local[:, step] = _widths(features, lam, before.tally.counts, arm[:, step])
        central[:, step] = _widths(features, lam, everybody[:, step], arm[:, step])
        gain[:, step] = _since_sync(local[:, step].log1p(), before.syncs)
        since[:, step] = _since_sync(torch.ones_like(local[:, step]), before.syncs)
    epoch, total = sync.cumsum(1) - sync.long(), central.log1p().cumsum(1)
    # ln(det Σ/det λI) of the server's matrix Σ at the last synchronisation
    reached = torch.where(sync, total, 0.0).cummax(1).values
    information = gain + torch.nn.functional.pad(reached, (1, 0))[:, :-1]
    return Replay(local, central, gain, since, information, total, epoch, known)


def _widths(features: Tensor, lam: float, counts: Tensor, arm: Tensor) -> Tensor:
    """Return the squared width ‖g‖²_{Σ⁻¹} of each of n arms in S runs, (S, n), with its gradient g.

    ``arm`` (S, n) int64 has the numbers of the arms. For each of them Σ is the regularisation weight λ times the
    identity plus the sum of g gᵀ over the pulls in ``counts`` (S, n, K). ``features`` (S, K, r) has the gradients of
    all K arms in r coordinates.
    """
    factor = precision_factor(features.unsqueeze(1), lam, Tally(counts, counts))
    rows = arm.unsqueeze(-1).expand(-1, -1, features.shape[-1])
    half = torch.linalg.solve_triangular(factor, features.gather(1, rows).unsqueeze(-1), upper=False)
    squares: Tensor = half.square().sum((-2, -1))
    return squares


def _since_sync(values: Tensor, syncs: Tensor) -> Tensor:
    """Return running sums (S, n) of one client's ``values`` (S, n), which start again after every synchronisation.

    The values belong to the client's n pulls in S runs, and none is negative. A sum starts again where ``syncs``
    (S, n), the number of synchronisations before the client's pull, has increased.
    """
    sums = values.cumsum(1)
    new = torch.nn.functional.pad(syncs.diff(dim=1) > 0, (1, 0))
    return sums - torch.where(new, sums - values, 0.0).cummax(1).values


class Knowledge(NamedTuple):
    """What one client knew before each of its n pulls of Phase II, in each of S runs with K arms.

    Args:
        step: The steps of these pulls in the trace, counted from 0 with Phase I included, (n,) int64.
        tally: The number of the pulls of each arm that the client knew before its pull, and the sum of their rewards,
            (S, n, K) each.
        syncs: The number p of synchronisations in the trace before the pull, (S, n) int64.
        shared: The number of the pulls of each arm that all clients knew since the last synchronisation before the
            pull, and the sum of their rewards, (S, n, K) each.
    """

    step: Tensor
    tally: Tally
    syncs: Tensor
    shared: Tally


def knowledge(trace: Trace, arms: int, phase_one: bool = False) -> Iterator[Knowledge]:
    """Yield what each of the N clients of ``trace`` knew before its pulls of Phase II, one client after the other.

    A client knows all data of Phase II up to the last synchronisation and its own data since. Only counts and sums are
    computed, so that the trace may be of any algorithm whose clients pull in turn.

    Args:
        trace: The trace, of S runs.
        arms: The number K of arms.
        phase_one: Whether all clients also know the data of Phase I; if not, these data do not count.

    Yields:
        What one client knew before its pulls; for the first clients the number n of pulls may be larger by 1.

    Raises:
        RuntimeError: When the first item is asked for: the number of an arm in the trace is K or more. Or when a later
            one is asked for: Phase II has fewer than N − 1 steps.
    """
    first, steps = trace.phase_one, trace.arm.shape[1]
    hit = torch.nn.functional.one_hot(trace.arm, arms).double()
    data = torch.stack([hit, hit * trace.reward.unsqueeze(-1)])
    data[:, :, :first] *= phase_one
    # entry t has the data of all steps before t
    everybody = torch.nn.functional.pad(data.cumsum(2), (0, 0, 1, 0))
    fired = torch.nn.functional.pad(trace.sync, (1, 0))
    syncs = fired.cumsum(1)
    # entry t has the step after the last synchronisation before t
    since = torch.where(fired, torch.arange(steps + 1), first).cummax(1).values
    for i in range(trace.clients):
        step = torch.arange(first + i, steps, trace.clients)
        own = torch.nn.functional.pad(data[:, :, step].cumsum(2), (0, 0, 1, 0))
        latest = since[:, step]
        shared = everybody.gather(2, latest.expand(2, -1, -1).unsqueeze(-1).expand(-1, -1, -1, arms))
        # the number of pulls of client i before that step
        made = (latest - first - i + trace.clients - 1).clamp(min=0) // trace.clients
        before = own.gather(2, made.expand(2, -1, -1).unsqueeze(-1).expand(-1, -1, -1, arms))
        tally = Tally(*(shared + own[:, :, :-1] - before))
        yield Knowledge(step, tally, syncs[:, step], Tally(*shared))
