"""The deterministic inequalities of the analysis of Phase II, evaluated on every step of executed runs."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fedgo._checks import require
from fedgo.confidence import Tally, ball
from fedgo.experiments.plays import PhaseTwoRuns
from fedgo.theory.phase_two import (
    excess_first_order,
    excess_in_ball,
    excess_printed,
    potential_clipped,
    regret_phase_two_clipped,
    synchronisations,
)

_SLACK = 1 + 1e-9  # rounding
_LOST = 1e-14  # per C_g²/λ: the widths before the first pulls are that large, and rank-one updates subtract from them


def violations(play: PhaseTwoRuns) -> dict[str, Tensor]:
    """Where an inequality fails on the runs of ``play``, by its name, one boolean for each thing that it speaks about.

    - ``information``: Λ ≤ R, (S,);
    - ``potential``: Σ_t ‖g_t‖²_{Σ_{t−1}⁻¹} ≤ 2Λ, (S,), a theorem if λ ≥ C_g²/2.5129;
    - ``cut_potential``: Σ_t min(1, ‖g_t‖²_{Σ_{t−1}⁻¹}) ≤ Λ/ln 2, (S,), for every λ > 0;
    - ``ratio``: ‖g_t‖² in Σ_{t−1,i}⁻¹ is at most det Σ_{t−1}/det Σ_{t−1,i} times that in Σ_{t−1}⁻¹, (S, NT);
    - ``good_ratio``: at most e times, in the steps of good epochs, (n,);
    - ``bad_epochs``: there are fewer than Λ, (S,);
    - ``gain``: a client's log-ratio is at most the agent's of the epoch so far, (S, NT);
    - ``widths``: the steps of a client in an epoch that do not fire have Σ‖g_t‖_{Σ_{t−1,i}⁻¹} ≤ √(2γ), (S, (P + 1)N),
      a theorem if λ ≥ C_g²/2.5129;
    - ``cut_widths``: the same steps have Σ min(1, ‖g_t‖_{Σ_{t−1,i}⁻¹}) ≤ √(γ/ln 2), for every λ > 0;
    - ``syncs``: the bound on P, (S,).
    """
    found, clients, gamma = play.replay, play.start.clients, play.settings.gamma
    last, growth = found.total[:, -1], found.central.log1p()
    epochs = found.by_epoch(growth)
    before = torch.cat([torch.zeros_like(epochs[:, :1]), epochs.cumsum(1)], 1).gather(1, found.epoch)
    width = found.local.sqrt()
    lag = (found.total - growth) - (found.information - found.local.log1p())  # ln det Σ_{t−1}/det Σ_{t−1,i}
    good = (epochs <= 1).gather(1, found.epoch)
    seat = found.epoch * clients + torch.arange(found.epoch.shape[1]) % clients
    blank, silent = torch.zeros(len(seat), int(seat.max()) + 1, dtype=torch.float64), ~play.sync
    widths, cut = (blank.scatter_add(1, seat, each * silent) for each in (width, width.clamp(max=1)))
    most = [synchronisations(play.start.rounds, x, gamma) for x in last.tolist()]
    slack = _SLACK + _LOST * play.slope**2 / play.settings.lam
    return {
        "information": last > play.information_bound * _SLACK,
        "potential": found.central.sum(1) > 2 * last * _SLACK,
        "cut_potential": found.central.clamp(max=1).sum(1) > potential_clipped(1.0) * last * _SLACK,
        "ratio": found.local / found.central > lag.exp() * slack,
        "good_ratio": (found.local > math.e * found.central * slack)[good],
        "bad_epochs": (epochs > 1).sum(1) >= last,
        "gain": found.gain > (found.total - before) * slack + 1e-9,
        "widths": widths > math.sqrt(2 * gamma) * _SLACK,
        "cut_widths": cut > math.sqrt(potential_clipped(gamma)) * _SLACK,
        "syncs": play.sync.sum(1) > torch.tensor(most, dtype=torch.float64),
    }


class OneStep(NamedTuple):
    """r_t ≤ 2√β‖g_t‖_{Σ_{t−1,i}⁻¹} + κ at every step, all (S, NT): whether w* was in the client's ball, r_t, and the
    right side with the proved κ and with the printed one."""

    covered: Tensor
    regret: Tensor
    bound: Tensor
    printed: Tensor

    @property
    def violations(self) -> int:
        """Steps with w* in the ball and r_t above the proved bound or the printed one."""
        least = torch.minimum(self.bound, self.printed)
        return int((self.covered & (self.regret > least * _SLACK)).sum())


def one_step(play: PhaseTwoRuns, curvature: Tensor, line_three: bool = False) -> OneStep:
    """The regret of every step of ``play``, whose w* is known, and its bounds.

    ``curvature`` (S,) is C_h; the index was the first-order one, or line 3 with ``line_three``.
    """
    truth, settings, found = play.problem.truth, play.settings, play.replay
    beta = settings.beta
    if truth is None:
        raise ValueError("truth is None: give a realizable problem, whose w* is known")
    require(curvature.shape == truth.shape[:1], "the shape of curvature", tuple(curvature.shape), "give (S,)")
    w0 = play.start.w0
    pulled = torch.nn.functional.one_hot(play.arm, play.problem.arms.shape[1]).double()
    counts, sums = found.known
    before = Tally(counts - pulled, sums - pulled * play.residual.unsqueeze(-1))
    around = ball(play.gradients.unsqueeze(1), w0, settings.lam, beta, before)
    covered = around.contains(truth.unsqueeze(1))
    distance = (w0[:, 0] - truth).norm(dim=-1)
    excess = [
        excess_in_ball(beta, bend, settings.lam, rho) if line_three else excess_first_order(bend, rho)
        for bend, rho in zip(curvature.tolist(), distance.tolist(), strict=True)
    ]
    widths = 2 * math.sqrt(beta) * found.local.sqrt()
    printed = excess_printed(beta, 1.0, settings.lam) * curvature.unsqueeze(1)
    bound = widths + torch.tensor(excess, dtype=torch.float64).unsqueeze(1)
    return OneStep(covered, play.regret, bound, widths + printed)


def regret_bound(
    play: PhaseTwoRuns, value: float, excess: Tensor | float = 0.0, information: Tensor | float | None = None
) -> Tensor:
    """`regret_phase_two_clipped`, the bound on Σ_t r_t, for every run of ``play`` with any λ > 0, (S,).

    F is ``value``, κ ``excess`` and Λ ``information``, (S,) or one for all; Λ is the realised one unless given.
    """
    settings, start, runs = play.settings, play.start, len(play.arm)
    beta = settings.beta
    information = play.replay.total[:, -1] if information is None else information
    each = [torch.as_tensor(part, dtype=torch.float64).expand(runs) for part in (information, excess)]
    sizes = (start.clients, start.rounds, settings.gamma, value)
    widest = play.slope / math.sqrt(settings.lam)
    bounds = [
        regret_phase_two_clipped(beta, most, *sizes, kappa, widest=widest).total
        for most, kappa in torch.stack(each, 1).tolist()
    ]
    return torch.tensor(bounds, dtype=torch.float64)
