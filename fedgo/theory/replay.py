"""What the analysis of Phase II speaks about, rebuilt step by step from a trace: widths, log-determinants, epochs.

The clients' own Σ_{t,i} are kept by `EventTriggered`, as in the run. So is the one of the analysis' imaginary agent,
Σ_t = λI + Σ_{s ≤ t} g_s g_sᵀ, who sees every pull: a learner that takes every turn and never synchronises.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import require
from fedgo.confidence import Posterior, Tally, compress, precision_factor
from fedgo.phase_one import Start
from fedgo.phase_two import EventTriggered, Settings, State
from fedgo.star import Ledger, Star, When
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


class _Epoch(NamedTuple):
    """The number p of synchronisations so far and ln det Σ/det λI at the last of them, both (S, 1)."""

    number: Tensor
    information: Tensor


def replay(start: Start, arms: Tensor, trace: Trace, lam: float) -> Replay:
    """Replay Phase II of ``trace``, which Fed-GO-UCB made from ``start`` on ``arms`` (S, K, d_x) with λ = ``lam``.

    The synchronisations are the trace's, whatever event made them. A ``ValueError`` where the arms are not the start's.
    """
    require(lam > 0, "lam", lam, "give the λ > 0 that the trace was made with")
    shape = tuple(start.w0.shape)
    require(shape[1] == 1, "the shape of w0", shape, "give a shared_start: all Σ must be around one ŵ₀")
    same = torch.equal(arms, start.problem.arms)
    require(
        same,
        "the shape of arms",
        tuple(arms.shape),
        "give the arms of the problem that the start was made on",
    )
    arm, reward, sync = (part[:, trace.phase_one :] for part in (trace.arm, trace.reward, trace.sync))
    network, points = start.network, arms.unsqueeze(1)
    features = compress(network.gradients(start.w0, points)).features
    learner = EventTriggered(
        start.clients, features, network.values(start.w0, points), network.size, Settings(lam)
    )
    everybody, agent = learner.begin(), replace(learner, learners=1).begin()
    star = Star(start.clients, Ledger.blank(*arm.shape))
    epoch = _Epoch(torch.zeros_like(arm[:, :1]), torch.zeros_like(agent.gain))
    steps: list[Replay] = []
    for t in range(arm.shape[1]):
        now = slice(t, t + 1)
        own = _client(everybody, t % start.clients)
        after, agent, step = _step(learner, own, agent, epoch, arm[:, now], reward[:, now])
        for view, part in zip(_parts(own), _parts(after), strict=True):
            view.copy_(part)
        steps.append(step)
        if sync[:, t].any():
            run = sync[:, t].nonzero().squeeze(1)
            everybody = learner.synchronise(everybody, star, When(run, torch.full_like(run, t)))
            reached = torch.where(sync[:, now], step.total, epoch.information)
            epoch = _Epoch(epoch.number + sync[:, now], reached)
    return _joined(steps)


def _step(
    learner: EventTriggered, own: State, agent: State, epoch: _Epoch, arm: Tensor, reward: Tensor
) -> tuple[State, State, Replay]:
    """One pull of ``arm`` (S, 1): the client and the agent after it, and its entries, (S, 1)."""
    turn = torch.ones_like(reward)
    after, watched = (learner.learn(state, arm, reward, turn) for state in (own, agent))
    step = Replay(
        local=own.posterior.gain(arm).expm1(),
        central=agent.posterior.gain(arm).expm1(),
        gain=after.gain,
        since=after.fresh.counts.sum(-1),
        information=epoch.information + after.gain,
        total=watched.gain,
        epoch=epoch.number,
        known=after.known,
    )
    return after, watched, step


def _client(everybody: State, i: int) -> State:
    """Client ``i`` alone, with a client axis of one; its `_parts` are views of everybody's."""
    posterior, fresh = ([part[:, i : i + 1] for part in kept] for kept in everybody[:2])
    return State(Posterior(*posterior), Tally(*fresh), everybody.gain[:, i : i + 1], everybody.server)


def _parts(state: State) -> tuple[Tensor, ...]:
    """What a client's pull changes: all but the server."""
    return (*state.posterior, *state.fresh, state.gain)


def _joined(steps: list[Replay]) -> Replay:
    """The entries of all steps, field by field."""
    columns = {name: torch.cat([getattr(step, name) for step in steps], 1) for name in Replay._fields[:-1]}
    known = Tally(*(torch.cat(part, 1) for part in zip(*(step.known for step in steps), strict=True)))
    return Replay(**columns, known=known)


def realised_information(start: Start, arms: Tensor, trace: Trace, lam: float) -> Tensor:
    """Λ = ln det Σ_NT/det λI of every run, (S,), from the counts alone: the last `Replay.total`, without a replay."""
    pulled = trace.arm[:, trace.phase_one :]
    counts = torch.zeros(arms.shape[:2], dtype=torch.float64)
    counts.scatter_add_(1, pulled, torch.ones_like(pulled, dtype=torch.float64))
    features = compress(start.network.gradients(start.w0[:, 0], arms)).features
    factor = precision_factor(features, lam, Tally(counts, torch.zeros_like(counts)))
    return 2 * (factor.diagonal(dim1=-2, dim2=-1).log() - math.log(lam) / 2).sum(-1)
