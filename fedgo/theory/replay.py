"""What the analysis of Phase II speaks about, rebuilt step by step from a trace: widths, log-determinants, epochs.

The clients' own Σ_{t,i} and that of the analysis' imaginary agent, Σ_t = λI + Σ_{s ≤ t} g_s g_sᵀ, who sees every pull.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import require
from fedgo.confidence import Posterior, Tally, compress, condition
from fedgo.phase_one import Start
from fedgo.trace import Trace


class Replay(NamedTuple):
    """One entry for every step t of Phase II, (S, NT), of the client i = i_t whose turn it is.

    ``local`` ‖g_t‖² in Σ_{t−1,i}⁻¹ and ``central`` in Σ_{t−1}⁻¹; ``gain`` ln det Σ_{t,i}/det(Σ_{t,i} − ΔΣ_{t,i}) and
    ``since`` the client's pulls since the last synchronisation, both with this pull; ``information`` ln det Σ_{t,i}/det
    λI and ``total`` ln det Σ_t/det λI; ``epoch`` p, the synchronisations before t, int64. ``known`` is D_{t,i}, the
    data in the client's model after the pull, with the residuals y − f_x(ŵ₀) as sums, (S, NT, K).
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
        """The sums of ``values`` (S, NT) over the steps of each epoch, (S, P + 1) with P the most of any run."""
        out = values.new_zeros(len(values), int(self.epoch.max()) + 1)
        return out.scatter_add(1, self.epoch, values)


def replay(start: Start, arms: Tensor, trace: Trace, lam: float) -> Replay:
    """Replay Phase II of ``trace``, which Fed-GO-UCB made from ``start`` on ``arms`` (S, K, d_x) with λ = ``lam``."""
    require(lam > 0, "lam", lam, "give the λ > 0 that the trace was made with")
    require(
        start.w0.shape[1] == 1,
        "the shape of w0",
        tuple(start.w0.shape),
        "give a shared_start: all Σ must be around one ŵ₀",
    )
    clients, first = start.clients, trace.phase_one
    arm, reward, sync = (part[:, first:] for part in (trace.arm, trace.reward, trace.sync))
    centre = start.w0[:, 0]
    features, offsets = (
        compress(start.network.gradients(centre, arms)).features,
        start.network.values(centre, arms),
    )
    runs, steps = arm.shape
    blank = torch.zeros(runs, clients, arms.shape[1], dtype=torch.float64)
    fresh, server = Tally(blank, blank), Tally(blank[:, 0], blank[:, 0])
    agent = condition(features, offsets, lam, server)
    covariance = agent.covariance.unsqueeze(1).repeat(1, clients, 1, 1)
    one, gain = torch.ones(runs, dtype=torch.float64), torch.zeros(runs, clients, dtype=torch.float64)
    before = total = torch.zeros(
        runs, dtype=torch.float64
    )  # the server's log-ratio at the last synchronisation
    rows: list[tuple[Tensor, ...]] = []
    for t in range(steps):
        i, pulled = t % clients, arm[:, t]
        own = Posterior(covariance[:, i], agent.mean)
        local, central = (each.gain(pulled) for each in (own, agent))
        covariance[:, i] = own.absorb(pulled, reward[:, t], one).covariance
        agent = agent.absorb(pulled, reward[:, t], one)
        residual = reward[:, t] - offsets.gather(1, pulled.unsqueeze(1)).squeeze(1)
        mine = Tally(*(part[:, i] for part in fresh)).record(pulled, residual, one)
        fresh = Tally(*(_put(part, i, new) for part, new in zip(fresh, mine, strict=True)))
        gain[:, i] += local
        total = total + central
        known = server + mine
        rows.append(
            (
                local.expm1(),
                central.expm1(),
                gain[:, i].clone(),
                mine.counts.sum(1),
                before + gain[:, i],
                total,
                *known,
            )
        )
        run = sync[:, t].nonzero().squeeze(1)
        if len(run):
            news = Tally(*(part.sum(1) for part in fresh)).of(run)
            server = Tally(*(part.index_add(0, run, new) for part, new in zip(server, news, strict=True)))
            covariance[run] = condition(
                features[run], offsets[run], lam, server.of(run)
            ).covariance.unsqueeze(1)
            fresh = Tally(*(part.index_fill(0, run, 0) for part in fresh))
            gain[run] = 0
            before = before.index_copy(0, run, total[run])
    local, central, gain, since, information, total, counts, sums = (
        torch.stack(column, 1) for column in zip(*rows, strict=True)
    )
    epoch = sync.cumsum(1) - sync.long()
    return Replay(local, central, gain, since, information, total, epoch, Tally(counts, sums))


def _put(part: Tensor, i: int, new: Tensor) -> Tensor:
    part = part.clone()
    part[:, i] = new
    return part
