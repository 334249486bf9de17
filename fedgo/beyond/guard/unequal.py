"""Theorem H: certificates for clients whose means differ, from each client's own sums and the others', weighted.

The reward of client i for the arm x has mean f_i(x), with |f_i| ≤ F and |f_i − f_j| ≤ D on every arm. Client i knows
the counts n° and sums Y° of its own pulls, and the counts n′ and sums Y′ of the others' pulls up to the last
synchronisation. For each weight w of a finite set Ω of W weights that contains 0, with M = n° + w n′ and
V = n° + w² n′, it computes the interval

    (Y° + w Y′)/M ± c_w,   c_w = h_w √(1 + V)/M + D w n′/M   (infinite for M = 0),
    h_w² = σ²(ln(1 + V) + 2 ln(NKW u_w/δ)),   u_w = π²(p + 1)²/6 for w > 0 and u_0 = 1,

where p counts the synchronisations so far. With probability 1 − δ the intersection [L, U] of these intervals and of
[−F, F] contains f_i(x) for all clients, arms and steps. Then r_t = max f_i − f_i(x_t) ≤ q_t: each client's regret
counts from its own best arm. The test, the fallback and the event are those of the guard
(`fedgo.beyond.guard.guarantee`), and the event counts everybody's pulls.

D has to be given. If [L, U] is empty for some arm, D, F or σ is refuted. No data can confirm D.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import require
from fedgo.beyond.guard.guarantee import Guarantee
from fedgo.beyond.guard.intervals import Bounds, Interval, clipped
from fedgo.beyond.guard.optimist import of_arm
from fedgo.confidence import Tally
from fedgo.theory.confidence import noise_radius

# A rule that makes the interval of every arm from the client's own tally, the others' tally and the number p.
Certify = Callable[[Tally, Tally, Tensor], Interval]


@dataclass(frozen=True)
class UnequalIntervals(Bounds):
    """The rule of Theorem H for the intervals of clients whose means differ.

    Args:
        clients: N.
        sigma: σ of the noise.
        value: F, a bound on |f_i(x)| for every client i and arm x.
        delta: δ.
        difference: D, a bound on |f_i(x) − f_j(x)|: one number, or one for each of S runs, (S, 1).
        weights: Ω, numbers from 0 to 1 with 0 among them. A single client uses the weight 0 only.

    Raises:
        ValueError: If D is negative or not finite, if a weight is not from 0 to 1, or if 0 is not a weight.
    """

    difference: float | Tensor = 0.0
    weights: tuple[float, ...] = (0.0, 0.1, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        apart = torch.as_tensor(self.difference, dtype=torch.float64)
        bounded = bool(((apart >= 0) & apart.isfinite()).all())
        require(bounded, "difference", self.difference, "give D ≥ 0, a finite bound on |f_i − f_j|")
        fitting = 0 in self.weights and all(0 <= weight <= 1 for weight in self.weights)
        require(fitting, "weights", self.weights, "give weights from 0 to 1, and 0 among them")

    def after(self, own_data: Tally, others_data: Tally, syncs: Tensor) -> Interval:
        """Return the interval of every arm for one client of S runs, (S, K).

        Args:
            own_data: Counts and sums of all pulls of the client itself, (S, K).
            others_data: Counts and sums of all other clients' pulls up to the last synchronisation, (S, K).
            syncs: The number p of synchronisations so far, (S,).
        """
        weights = self.weights if self.clients > 1 else (0.0,)
        members = self.clients * own_data.counts.shape[-1] * len(weights)
        gain = (1 + 1 / (1 + own_data.counts + others_data.counts)).log()
        interval = Interval(torch.full_like(gain, -self.value), torch.full_like(gain, self.value), gain)
        for weight in weights:
            mass = own_data.counts + weight * others_data.counts
            variance = own_data.counts + weight**2 * others_data.counts
            epoch = syncs.unsqueeze(-1) if weight > 0 else None
            h = noise_radius((1 + variance).log(), epoch, members=members, sigma=self.sigma, delta=self.delta)
            width = (h * (1 + variance).sqrt() + self.difference * weight * others_data.counts) / mass
            # Where M is 0, so are the sums.
            mean = (own_data.sums + weight * others_data.sums) / mass.clamp(min=1e-300)
            interval = interval.within(clipped(mean, width, self.value, gain))
        return interval


class Played(NamedTuple):
    """The regret, certificate and coverage of every step of S runs, (S, NT) each.

    ``regret`` is r_t, counted from the best arm of the client that pulls, and ``certificate`` is q_t. ``outside`` says
    whether, before the pull, this client's mean of some arm was outside of its interval.
    """

    regret: Tensor
    certificate: Tensor
    outside: Tensor


def play_unequal(means: Tensor, noise: Tensor, certify: Certify, told: Guarantee, hostile: bool) -> Played:
    """Play S runs of the guard at once, NT steps in round robin, with a mean of its own for each client and arm.

    Args:
        means: f_i(x), (S, N, K).
        noise: The noise η_t of every step, (S, NT).
        certify: The rule that makes the intervals of one client, for instance `UnequalIntervals.after`.
        told: F, κ and γ of the guard. Its σ and δ are not used, since ``certify`` has its own.
        hostile: If True, the proposal is the arm with the smallest f_i of all that the guard accepts. If False, it is
            the arm of the largest U, which the guard always accepts.

    Returns:
        Regret, certificate and coverage of every step. If the client's interval is empty for some arm at this step, its
        certificate is 2F. The guard looks at the intersection of all intervals that the client has seen; here only the
        present ones count.
    """
    (runs, clients, arms), steps = means.shape, noise.shape[1]
    gamma = told.threshold(arms, clients, steps // clients)
    own_data, others_data = Tally.blank(clients, runs, arms), Tally.blank(clients, runs, arms)
    pulls, information = torch.zeros(2, clients, runs, dtype=torch.float64)
    syncs, rows = torch.zeros(runs, dtype=torch.int64), []
    for step in range(steps):
        i = step % clients
        mine, theirs = (Tally(*(values[i] for values in tally)) for tally in (own_data, others_data))
        truth, interval = means[:, i], certify(mine, theirs, syncs)
        index, price = interval.upper, interval.price
        if hostile:
            accepted = price <= told.kappa * (interval.upper - interval.lower)
            index = torch.where(accepted, -truth, -torch.inf)
        arm = index.argmax(-1)
        mean = of_arm(truth, arm)
        certificate = torch.where(interval.refuted, 2 * told.value, of_arm(price, arm))
        outside = ((interval.lower > truth) | (interval.upper < truth)).any(-1)
        rows.append((truth.amax(-1) - mean, certificate, outside))
        own_data.counts[i], own_data.sums[i] = mine.record(arm, mean + noise[:, step], torch.ones_like(mean))
        pulls[i] += 1
        information[i] += of_arm(interval.gain, arm)
        run = (pulls[i] * information[i] > gamma).nonzero().squeeze(-1)
        for everybody, news in zip(own_data, others_data, strict=True):
            data = everybody[:, run]
            news[:, run] = data.sum(0) - data
        pulls[:, run], information[:, run] = 0.0, 0.0
        syncs[run] += 1
    return Played(*(torch.stack(column, 1) for column in zip(*rows, strict=True)))
