"""The deterministic inequalities of the analysis of Phase II, evaluated on every step of executed runs.

There are S runs of NT steps, of N clients in T rounds; arrays are (S, NT). g_t is the gradient of the arm pulled at
step t, Σ_{t−1,i} the matrix of the data that the client i knew before, Σ_{t−1} that of all pulls before, Λ = ln(det
Σ_NT/det λI), R the bound on it, γ the threshold of the event, C_g, C_h and F the bounds on gradients, second
derivatives and values, and β the squared radius. An epoch lasts from one synchronisation to the next; it is bad if ln
det Σ_t grows by more than 1 in it, and good otherwise.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedgo._checks import require
from fedgo.confidence import Tally, ball
from fedgo.theory import regret as theory
from fedgo.theory.executed.runs import PhaseTwoRuns

_SLACK = 1 + 1e-9  # the factor by which rounding may violate an inequality
# The widths come from Cholesky factors of the matrices Σ, whose rounding errors grow with C_g²/λ. For each unit of
# C_g²/λ this much is added to the factor.
_LOST = 1e-14


def violations(runs: PhaseTwoRuns) -> dict[str, Tensor]:
    """Check the inequalities of the analysis at every step of executed runs with γ > 0, and return where each fails.

    Only violations beyond rounding count; ``bad_epochs`` and ``syncs`` are checked exactly.

    Returns:
        A dictionary of boolean tensors, True where the inequality fails:

        - ``information``: Λ ≤ R, (S,);
        - ``potential``: Σ_t ‖g_t‖²_{Σ_{t−1}⁻¹} ≤ 2Λ, (S,), a theorem if λ ≥ C_g²/2.5129;
        - ``cut_potential``: Σ_t min(1, ‖g_t‖²_{Σ_{t−1}⁻¹}) ≤ Λ/ln 2, (S,), for every λ > 0;
        - ``ratio``: ‖g_t‖² in Σ_{t−1,i}⁻¹ is at most det Σ_{t−1}/det Σ_{t−1,i} times that in Σ_{t−1}⁻¹, (S, NT);
        - ``good_ratio``: in good epochs it is at most e times that in Σ_{t−1}⁻¹, (n,) for their n steps in all runs;
        - ``bad_epochs``: the number of bad epochs is less than Λ, (S,);
        - ``gain``: the log-ratio of a client's pulls since the last synchronisation is at most the growth of ln det Σ_t
          in the epoch so far, (S, NT);
        - ``widths``: the steps of a client in an epoch that do not synchronise have Σ‖g_t‖_{Σ_{t−1,i}⁻¹} ≤ √(2γ), (S,
          m) for each epoch and client, a theorem if λ ≥ C_g²/2.5129;
        - ``cut_widths``: the same steps have Σ min(1, ‖g_t‖_{Σ_{t−1,i}⁻¹}) ≤ √(γ/ln 2), (S, m), for every λ > 0;
        - ``syncs``: the number of synchronisations is at most `fedgo.theory.regret.synchronisations` at the run's Λ,
          (S,).
    """
    steps, clients, gamma = runs.replay, runs.start.clients, runs.settings.gamma
    last, growth = steps.total[:, -1], steps.central.log1p()
    epochs = steps.by_epoch(growth)
    before = torch.cat([torch.zeros_like(epochs[:, :1]), epochs.cumsum(1)], 1).gather(1, steps.epoch)
    width = steps.local.sqrt()
    # This is ln(det Σ_{t−1}/det Σ_{t−1,i}): what the client's matrix lacks of that of all pulls.
    lag = (steps.total - growth) - (steps.information - steps.local.log1p())
    good = (epochs <= 1).gather(1, steps.epoch)
    seat = steps.epoch * clients + torch.arange(steps.epoch.shape[1]) % clients
    blank, silent = torch.zeros(len(seat), int(seat.max()) + 1, dtype=torch.float64), ~runs.sync
    widths = blank.scatter_add(1, seat, width * silent)
    cut = blank.scatter_add(1, seat, width.clamp(max=1) * silent)
    most = [theory.synchronisations(runs.start.rounds, information, gamma) for information in last.tolist()]
    slack = _SLACK + _LOST * runs.slope**2 / runs.settings.lam
    return {
        "information": last > runs.information_bound * _SLACK,
        "potential": steps.central.sum(1) > 2 * last * _SLACK,
        "cut_potential": steps.central.clamp(max=1).sum(1) > theory.potential_clipped(1.0) * last * _SLACK,
        "ratio": steps.local / steps.central > lag.exp() * slack,
        "good_ratio": (steps.local > math.e * steps.central * slack)[good],
        "bad_epochs": (epochs > 1).sum(1) >= last,
        "gain": steps.gain > (steps.total - before) * slack + 1e-9,
        "widths": widths > math.sqrt(2 * gamma) * _SLACK,
        "cut_widths": cut > math.sqrt(theory.potential_clipped(gamma)) * _SLACK,
        "syncs": runs.sync.sum(1) > torch.tensor(most, dtype=torch.float64),
    }


class OneStep(NamedTuple):
    """The two sides of the lemma "Instantaneous regret" at each step, (S, NT) each.

    Args:
        covered: Whether w* was in the confidence ball of the pulling client before the pull, bool.
        regret: The instantaneous regret r_t.
        bound: 2√β‖g_t‖_{Σ_{t−1,i}⁻¹} plus the second-order part that the book proves.
        printed: 2√β‖g_t‖_{Σ_{t−1,i}⁻¹} plus the printed second-order part 2βC_h/λ.
    """

    covered: Tensor
    regret: Tensor
    bound: Tensor
    printed: Tensor

    @property
    def violations(self) -> int:
        """The number of steps, in all runs, with w* in the ball and a regret above the smaller of the two bounds."""
        least = torch.minimum(self.bound, self.printed)
        return int((self.covered & (self.regret > least * _SLACK)).sum())


def one_step(runs: PhaseTwoRuns, curvature: Tensor, line_three: bool = False) -> OneStep:
    """Return the regret of each step, and the bounds on it by the lemma "Instantaneous regret".

    The book's second-order part is C_hρ₀² for the first-order index and 2C_h(β/λ + √(β/λ)ρ₀) for line 3.

    Args:
        runs: S runs on a realizable problem, whose true parameter w* is known.
        curvature: The bound C_h in each run, (S,).
        line_three: Whether the clients' index was that of line 3; if not, it was the first-order index.
    """
    truth, settings, steps = runs.problem.truth, runs.settings, runs.replay
    beta = settings.beta
    if truth is None:
        raise ValueError("truth is None: give a realizable problem, whose w* is known")
    require(curvature.shape == truth.shape[:1], "the shape of curvature", tuple(curvature.shape), "give (S,)")
    w0 = runs.start.w0
    pulled = torch.nn.functional.one_hot(runs.arm, runs.problem.arms.shape[1]).double()
    counts, sums = steps.known
    before = Tally(counts - pulled, sums - pulled * runs.residual.unsqueeze(-1))
    around = ball(runs.gradients.unsqueeze(1), w0, settings.lam, beta, before)
    covered = around.contains(truth.unsqueeze(1))
    distance = (w0[:, 0] - truth).norm(dim=-1)
    pairs = zip(curvature.tolist(), distance.tolist(), strict=True)
    if line_three:
        excess = [theory.excess_in_ball(beta, bend, settings.lam, rho) for bend, rho in pairs]
    else:
        excess = [theory.excess_first_order(bend, rho) for bend, rho in pairs]
    widths = 2 * math.sqrt(beta) * steps.local.sqrt()
    printed = theory.excess_printed(beta, 1.0, settings.lam) * curvature.unsqueeze(1)
    bound = widths + torch.tensor(excess, dtype=torch.float64).unsqueeze(1)
    return OneStep(covered, runs.regret, bound, widths + printed)


def regret_bound(
    runs: PhaseTwoRuns, value: float, excess: Tensor | float = 0.0, information: Tensor | float | None = None
) -> Tensor:
    """Return the bound on the regret of Phase II by item 3 of the repaired theorem, for any λ > 0, (S,).

    Args:
        runs: The runs; if their γ is ∞, the bound is ∞, or NaN if Λ < 1 or β = 0.
        value: The bound F ≥ 0.
        excess: The second-order part of the regret of each step, one number or one for each run, (S,).
        information: Λ or a bound on it, one number or (S,); that of the run if it is None.
    """
    information = runs.replay.total[:, -1] if information is None else information
    by_run = torch.zeros(2, len(runs.arm), dtype=torch.float64)
    by_run[0], by_run[1] = information, excess
    settings, widest = runs.settings, runs.slope / math.sqrt(runs.settings.lam)
    sizes: dict[str, Any] = {"clients": runs.start.clients, "rounds": runs.start.rounds, "value": value}
    bound = partial(
        theory.regret_phase_two_clipped, settings.beta, gamma=settings.gamma, widest=widest, **sizes
    )
    bounds = [bound(information=most, excess=second_order).total for most, second_order in by_run.T.tolist()]
    return torch.tensor(bounds, dtype=torch.float64)
