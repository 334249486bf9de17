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
    """Return where each inequality of the analysis fails on the runs of ``play``, by its name, as boolean tensors.

    A tensor has one entry for each thing that its inequality speaks about:

    - ``information``: Λ ≤ R, (S,);
    - ``potential``: Σ_t ‖g_t‖²_{Σ_{t−1}⁻¹} ≤ 2Λ, (S,), a theorem if λ ≥ C_g²/2.5129;
    - ``cut_potential``: Σ_t min(1, ‖g_t‖²_{Σ_{t−1}⁻¹}) ≤ Λ/ln 2, (S,), for every λ > 0;
    - ``ratio``: ‖g_t‖² in Σ_{t−1,i}⁻¹ is at most det Σ_{t−1}/det Σ_{t−1,i} times that in Σ_{t−1}⁻¹, (S, NT);
    - ``good_ratio``: in the steps of good epochs it is at most e times that, (n,);
    - ``bad_epochs``: there are fewer than Λ bad epochs, (S,);
    - ``gain``: a client's log-ratio is at most the agent's of the epoch so far, (S, NT);
    - ``widths``: the steps of a client in an epoch that do not fire have Σ‖g_t‖_{Σ_{t−1,i}⁻¹} ≤ √(2γ), (S, (P + 1)N),
      a theorem if λ ≥ C_g²/2.5129;
    - ``cut_widths``: the same steps have Σ min(1, ‖g_t‖_{Σ_{t−1,i}⁻¹}) ≤ √(γ/ln 2), for every λ > 0;
    - ``syncs``: the bound on P, (S,).
    """
    steps, clients, gamma = play.replay, play.start.clients, play.settings.gamma
    last, growth = steps.total[:, -1], steps.central.log1p()
    epochs = steps.by_epoch(growth)
    before = torch.cat([torch.zeros_like(epochs[:, :1]), epochs.cumsum(1)], 1).gather(1, steps.epoch)
    width = steps.local.sqrt()
    lag = (steps.total - growth) - (steps.information - steps.local.log1p())  # ln det Σ_{t−1}/det Σ_{t−1,i}
    good = (epochs <= 1).gather(1, steps.epoch)
    seat = steps.epoch * clients + torch.arange(steps.epoch.shape[1]) % clients
    blank, silent = torch.zeros(len(seat), int(seat.max()) + 1, dtype=torch.float64), ~play.sync
    widths, cut = (blank.scatter_add(1, seat, each * silent) for each in (width, width.clamp(max=1)))
    most = [synchronisations(play.start.rounds, x, gamma) for x in last.tolist()]
    slack = _SLACK + _LOST * play.slope**2 / play.settings.lam
    return {
        "information": last > play.information_bound * _SLACK,
        "potential": steps.central.sum(1) > 2 * last * _SLACK,
        "cut_potential": steps.central.clamp(max=1).sum(1) > potential_clipped(1.0) * last * _SLACK,
        "ratio": steps.local / steps.central > lag.exp() * slack,
        "good_ratio": (steps.local > math.e * steps.central * slack)[good],
        "bad_epochs": (epochs > 1).sum(1) >= last,
        "gain": steps.gain > (steps.total - before) * slack + 1e-9,
        "widths": widths > math.sqrt(2 * gamma) * _SLACK,
        "cut_widths": cut > math.sqrt(potential_clipped(gamma)) * _SLACK,
        "syncs": play.sync.sum(1) > torch.tensor(most, dtype=torch.float64),
    }


class OneStep(NamedTuple):
    """The lemma "Instantaneous regret", r_t ≤ 2√β‖g_t‖_{Σ_{t−1,i}⁻¹} + κ, at each step, (S, NT).

    ``covered`` says whether w* was in the client's ball, ``regret`` is r_t, and ``bound`` and ``printed`` are the right
    side with the proved κ and with the printed one.
    """

    covered: Tensor
    regret: Tensor
    bound: Tensor
    printed: Tensor

    @property
    def violations(self) -> int:
        """The number of steps with w* in the ball and r_t above the proved bound or the printed one."""
        least = torch.minimum(self.bound, self.printed)
        return int((self.covered & (self.regret > least * _SLACK)).sum())


def one_step(play: PhaseTwoRuns, curvature: Tensor, line_three: bool = False) -> OneStep:
    """Return the regret of each step of ``play`` and its bounds.

    Args:
        play: Runs on a realizable problem, whose w* is known.
        curvature: C_h of each run, (S,).
        line_three: Whether the index was line 3; if not, it was the first-order index.

    Raises:
        ValueError: The problem has no known w*, or ``curvature`` does not have the shape (S,).
    """
    truth, settings, steps = play.problem.truth, play.settings, play.replay
    beta = settings.beta
    if truth is None:
        raise ValueError("truth is None: give a realizable problem, whose w* is known")
    require(curvature.shape == truth.shape[:1], "the shape of curvature", tuple(curvature.shape), "give (S,)")
    w0 = play.start.w0
    pulled = torch.nn.functional.one_hot(play.arm, play.problem.arms.shape[1]).double()
    counts, sums = steps.known
    before = Tally(counts - pulled, sums - pulled * play.residual.unsqueeze(-1))
    around = ball(play.gradients.unsqueeze(1), w0, settings.lam, beta, before)
    covered = around.contains(truth.unsqueeze(1))
    distance = (w0[:, 0] - truth).norm(dim=-1)
    excess = [
        excess_in_ball(beta, bend, settings.lam, rho) if line_three else excess_first_order(bend, rho)
        for bend, rho in zip(curvature.tolist(), distance.tolist(), strict=True)
    ]
    widths = 2 * math.sqrt(beta) * steps.local.sqrt()
    printed = excess_printed(beta, 1.0, settings.lam) * curvature.unsqueeze(1)
    bound = widths + torch.tensor(excess, dtype=torch.float64).unsqueeze(1)
    return OneStep(covered, play.regret, bound, widths + printed)


def regret_bound(
    play: PhaseTwoRuns, value: float, excess: Tensor | float = 0.0, information: Tensor | float | None = None
) -> Tensor:
    """Return the bound `regret_phase_two_clipped` on Σ_t r_t for each run of ``play``, (S,), for any λ > 0.

    Args:
        play: The runs.
        value: The bound F on |f|.
        excess: κ, one number or one for each run.
        information: Λ, one number or one for each run; the realised log-ratio if it is None.
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
