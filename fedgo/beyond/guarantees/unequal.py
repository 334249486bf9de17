"""Theorem H: certificates for clients whose mean rewards differ, from a client's own sums and those of the others.

The reward of client i for the arm x has mean f_i(x), with |f_i| ≤ F and |f_i − f_j| ≤ D on every arm. For each arm,
client i knows the count n° and the sum Y° of its own pulls, and the count n′ and the sum Y′ of the others' pulls up to
the last synchronisation. For each weight w of a finite set Ω of W weights that contains 0, with M = n° + w n′ and
V = n° + w² n′, it computes the interval

    (Y° + w Y′)/M ± c_w,   c_w = h_w √(1 + V)/M + D w n′/M   (infinite for M = 0),
    h_w² = σ²(ln(1 + V) + 2 ln(NKW u_w/δ)),   u_w = π²(p + 1)²/6 for w > 0 and u_0 = 1,

where N is the number of clients, K the number of arms, σ the sub-Gaussian constant of the noise, and p the number of
synchronisations so far. With probability 1 − δ the intersection [L, U] of these intervals and of [−F, F] contains
f_i(x) for all clients, arms and steps. Then the regret r_t = max f_i − f_i(x_t) of a pull of client i is at most its
certificate q_t = max{0, max_{x ≠ x_t} U(x) − L(x_t)}: each client's regret counts from its own best arm. A guard uses
these intervals as in `fedgo.beyond.guarantees.guarantee`. In its rule for synchronisations, n° + n′ takes the place
of n.

The user has to give D. If [L, U] is empty for some arm, D, F or σ is refuted. A client's own data bound D only up to
their own widths, so a D learnt from them gains nothing over Ω = {0}.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import require
from fedgo.beyond.guarantees.guarantee import Guarantee
from fedgo.beyond.guarantees.intervals import Bounds, Interval, clipped
from fedgo.beyond.guarantees.optimist import of_arm
from fedgo.confidence import Tally
from fedgo.theory.ball import noise_radius

# A rule that computes the interval of every arm from the client's own counts and sums, those of the other clients, and
# the number p of synchronisations.
Certify = Callable[[Tally, Tally, Tensor], Interval]


@dataclass(frozen=True)
class UnequalIntervals(Bounds):
    """A rule for confidence intervals of the mean rewards f_i(x) of arms x if these differ between the N clients i.

    The interval of client i for the arm x is computed from the client's own rewards of this arm and, with weights of at
    most 1, from those of the other clients (Theorem H).

    Args:
        clients: The number N of clients.
        sigma: σ, such that the noise of a reward is σ-sub-Gaussian.
        value: F, a bound on |f_i(x)| for every client i and arm x.
        delta: The failure probability δ; the intervals hold with probability at least 1 − δ.
        difference: D, a bound on |f_i(x) − f_j(x)| for all clients i and j and every arm x: one number for all runs, or
            one for each of S runs, (S, 1).
        weights: The weights Ω at which the data of the other clients count, numbers from 0 to 1 that include 0. If N is
            1, only the weight 0 is used.

    Raises:
        ValueError: D is negative or not finite, a weight is not from 0 to 1, 0 is not among the weights, or N, σ, F or
            δ is out of range (`Bounds`).
        TypeError: N is not a whole number, σ, F, δ or a weight is not a number, or D is a text or None.
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
        """Return the interval of each of K arms for one client in each of S runs, (S, K).

        Each weight w in the field ``weights``, by which the others' counts and sums are multiplied before they are
        added to the client's own, gives an interval; with one client only w = 0 is used. The result is the intersection
        of these intervals within [−F, F], with the bound F on the mean rewards; it may be empty. The ``gain`` of the
        result is ln(1 + 1/(1 + n)) for each arm, with the n pulls of the arm in both tallies. A client sums the gains
        of its own pulls to decide when it synchronises.

        Args:
            own_data: The number of pulls and the summed rewards of each arm, of the client itself, (S, K) each.
            others_data: The same numbers of all other clients together, up to the last synchronisation, (S, K) each.
            syncs: The number p of synchronisations so far, (S,) int64.
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
            # if the denominator M is 0, so are the sums
            mean = (own_data.sums + weight * others_data.sums) / mass.clamp(min=1e-300)
            interval = interval.within(clipped(mean, width, self.value, gain))
        return interval


class Played(NamedTuple):
    """The regret of each of n steps in S runs, the bound on it, and whether an interval missed a mean reward.

    Args:
        regret: r_t, counted from the best arm of the client that pulls, (S, n).
        certificate: q_t, the bound on r_t that this client computes before the pull, (S, n).
        outside: Whether this client's mean reward of some arm was outside the client's interval of it before the pull,
            (S, n) bool.
    """

    regret: Tensor
    certificate: Tensor
    outside: Tensor


def play_unequal(means: Tensor, noise: Tensor, certify: Certify, told: Guarantee, hostile: bool) -> Played:
    """Play S runs of a guard for N clients with different mean rewards, one pull at a time in round robin.

    Client t mod N makes the pull of step t, counted from 0. If the number of its pulls since the last synchronisation,
    times the sum of the gains of these pulls (`Interval.gain`), then exceeds γ, all clients of the run exchange their
    counts and sums. To see whether the bounds are refuted, the guard of `fedgo.beyond.guarantees.guarantee` intersects
    all intervals that a client has seen; this simulation looks only at those of the present step. Messages are
    not counted.

    Args:
        means: The mean reward f_i(x) of each client i for each arm x, (S, N, K).
        noise: The noise η_t of each of n ≥ 1 steps, (S, n).
        certify: A function that returns the interval of each arm for the client that pulls, from its own counts and
            sums, those of the other clients up to the last synchronisation, (S, K) each, and the number of
            synchronisations (S,) int64; for instance `UnequalIntervals.after`.
        told: The bound F, the price κ and the threshold γ of the guard. If γ is None, it is that of
            `Guarantee.threshold` for T = ⌊n/N⌋ rounds. The σ and δ in it are not used, because ``certify`` has its own.
        hostile: If True, the client that pulls plays the arm with the smallest f_i of those that the guard accepts, or
            the first arm if the guard accepts none because an interval is empty. The guard accepts an arm if its
            certificate is at most κ times the length of its interval. If False, the client plays the arm with the
            largest upper end of its interval. Of tied arms it plays the first one.

    Returns:
        The regret and the certificate of each step, and whether a mean reward was outside its interval. If the
        client's interval is empty for some arm, its certificate at this step is 2F.

    Raises:
        ZeroDivisionError: γ is None, and there are fewer than N steps.
        TypeError: There is no step, and γ is not None.
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
        index = interval.upper
        if hostile:
            index = torch.where(interval.accepts(told.kappa), -truth, -torch.inf)
        arm = index.argmax(-1)
        mean = of_arm(truth, arm)
        certificate = torch.where(interval.refuted, 2 * told.value, of_arm(interval.price, arm))
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
