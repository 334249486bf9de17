"""The quantities of the analysis of Phase II, computed from a trace: widths, log-determinants and epochs of each step.

There are S runs of NT steps (N clients, T rounds) with K arms; g_t is the gradient at ŵ₀ of the arm pulled at step t,
by client i. D_{t,i} are the pulls that the client knows after this pull, before a synchronisation that it may trigger
(`knowledge`). Σ_{t,i} is λI plus the sum of g gᵀ over the gradients g of D_{t,i}, and Σ_t λI plus that over the pulls
of all clients up to step t, as an imaginary agent sees them. The log-determinants are running sums of ln(det(Σ +
ggᵀ)/det Σ) = ln(1 + gᵀΣ⁻¹g).
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

    Args:
        local: The squared width g_tᵀΣ_{t−1,i}⁻¹g_t of the pull in the client's matrix before it, (S, NT).
        central: The squared width g_tᵀΣ_{t−1}⁻¹g_t of the pull in the matrix of all pulls before it, (S, NT).
        gain: The log-ratio ln(det Σ_{t,i}/det(Σ_{t,i} − ΔΣ_{t,i})), where ΔΣ_{t,i} is the part of the client's own
            pulls since the last synchronisation, this one included, (S, NT).
        since: The number of these pulls, (S, NT) float64.
        information: The log-ratio ln(det Σ_{t,i}/det λI), (S, NT).
        total: The log-ratio ln(det Σ_t/det λI), (S, NT).
        epoch: The number p of synchronisations in Phase II before step t, (S, NT) int64.
        known: The counts of the pulls in D_{t,i} and the sums of their residuals y − f_x(ŵ₀), (S, NT, K) each.
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

        The step that triggers a synchronisation belongs to the epoch before it. P is the largest number of
        synchronisations that any run has before its last step; an epoch that a run does not have gets 0.
        """
        out = values.new_zeros(len(values), int(self.epoch.max()) + 1)
        return out.scatter_add(1, self.epoch, values)


def replay(start: Start, trace: Trace, lam: float) -> Replay:
    """Return the quantities of the analysis at each step of Phase II of a trace of Fed-GO-UCB.

    The pulled arms and the synchronisations are those of the trace, whatever index and event caused them. The data of
    Phase I do not count.

    Args:
        start: The result of Phase I from which the trace was made, with one ŵ₀ for all clients of a run.
        trace: The trace of both phases.
        lam: The regularisation weight λ > 0 that the trace was made with.
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
    """Return the squared widths of ``arm`` (S, n) in the matrix of the pulls ``counts`` (S, n, K), (S, n)."""
    factor = precision_factor(features.unsqueeze(1), lam, Tally(counts, counts))
    rows = arm.unsqueeze(-1).expand(-1, -1, features.shape[-1])
    half = torch.linalg.solve_triangular(factor, features.gather(1, rows).unsqueeze(-1), upper=False)
    squares: Tensor = half.square().sum((-2, -1))
    return squares


def _since_sync(values: Tensor, syncs: Tensor) -> Tensor:
    """Return running sums (S, n) of ``values`` ≥ 0, which start again where ``syncs`` (S, n) has increased."""
    sums = values.cumsum(1)
    new = torch.nn.functional.pad(syncs.diff(dim=1) > 0, (1, 0))
    return sums - torch.where(new, sums - values, 0.0).cummax(1).values


class Knowledge(NamedTuple):
    """What one client knew before each of its n pulls of Phase II.

    Args:
        step: The steps of these pulls in the trace, counted from 0 with Phase I included, (n,) int64.
        tally: The pulls of each arm that the client knew and the sum of their rewards, (S, n, K) each.
        syncs: The number p of synchronisations before the pull, (S, n) int64.
        shared: What all clients knew since the last synchronisation, (S, n, K) each.
    """

    step: Tensor
    tally: Tally
    syncs: Tensor
    shared: Tally


def knowledge(trace: Trace, arms: int, phase_one: bool = False) -> Iterator[Knowledge]:
    """Yield what each client of ``trace`` knew before its pulls of Phase II, one client after the other.

    A client knows all data of Phase II up to the last synchronisation and its own data since. Only counts and sums are
    computed, so that the trace may be of any algorithm whose clients pull in turn.

    Args:
        trace: The trace, of S runs.
        arms: The number K of arms.
        phase_one: Whether all clients also know the data of Phase I.
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
