"""The deterministic inequalities of the analysis of Phase II, evaluated on every step of executed runs."""

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
    """Check the inequalities of the analysis at every step of executed runs, and return where each of them fails.

    There are S runs of NT steps, of N clients in T rounds. g_t is the gradient of the arm pulled at step t, Σ_{t−1,i}
    the matrix of the data that the client i knew before it made this pull, Σ_{t−1} that of an imaginary agent who sees
    every pull, Λ = ln(det Σ_NT/det λI) with the regularisation weight λ, R the bound on Λ, γ the threshold of the
    event, C_g a bound on the norms of all gradients, and P the largest number of synchronisations that any run has
    before its last step. An epoch lasts from one synchronisation to the next; it is bad if ln det Σ_t grows by more
    than 1 in it, and good otherwise. Only violations beyond rounding, a small share of the right side (and 1e-9 for
    ``gain``), count; ``bad_epochs`` and ``syncs`` are checked exactly.

    Args:
        runs: The runs, with γ > 0.

    Returns:
        A dictionary of boolean tensors, True where the inequality fails, with these names and shapes

        - ``information``: Λ ≤ R, (S,);
        - ``potential``: Σ_t ‖g_t‖²_{Σ_{t−1}⁻¹} ≤ 2Λ, (S,), a theorem if λ ≥ C_g²/2.5129;
        - ``cut_potential``: Σ_t min(1, ‖g_t‖²_{Σ_{t−1}⁻¹}) ≤ Λ/ln 2, (S,), for every λ > 0;
        - ``ratio``: ‖g_t‖² in Σ_{t−1,i}⁻¹ is at most det Σ_{t−1}/det Σ_{t−1,i} times that in Σ_{t−1}⁻¹, (S, NT);
        - ``good_ratio``: in the good epochs of all runs, which have n steps together, ‖g_t‖² in Σ_{t−1,i}⁻¹ is at most
          e times that in Σ_{t−1}⁻¹, (n,);
        - ``bad_epochs``: the number of bad epochs is less than Λ, (S,);
        - ``gain``: the log-ratio of a client's pulls since the last synchronisation is at most the growth of ln det Σ_t
          in the epoch so far, (S, NT);
        - ``widths``: the steps of a client in an epoch that do not synchronise have Σ‖g_t‖_{Σ_{t−1,i}⁻¹} ≤ √(2γ),
          (S, m), a theorem if λ ≥ C_g²/2.5129. There is an entry for each epoch and client, the clients of one epoch
          after those of the epoch before; m ≤ (P + 1)N, because the last epoch may end before all clients have pulled;
        - ``cut_widths``: the same steps have Σ min(1, ‖g_t‖_{Σ_{t−1,i}⁻¹}) ≤ √(γ/ln 2), (S, m), for every λ > 0;
        - ``syncs``: the number of synchronisations is at most its bound with the run's own Λ
          (`fedgo.theory.regret.synchronisations`), (S,).

    Raises:
        ValueError: The threshold γ is 0, the start has several ŵ₀ in a run, or it was made on a problem with other
            arms.
        RuntimeError: A matrix Σ is not positive definite in float64, because λ is too small for the gradients.
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
    """The two sides of the lemma "Instantaneous regret" at each of NT steps t of S runs, (S, NT) each.

    Args:
        covered: Whether the true parameter w* was in the confidence ball of the pulling client i before the pull, bool.
        regret: The instantaneous regret r_t, the largest mean reward minus that of the pulled arm.
        bound: 2√β‖g_t‖_{Σ_{t−1,i}⁻¹} plus the second-order part that the book proves. g_t is the gradient of the pulled
            arm, Σ_{t−1,i} the matrix of the client's data before the pull, and β the squared radius of the ball.
        printed: 2√β‖g_t‖_{Σ_{t−1,i}⁻¹} plus the printed second-order part 2βC_h/λ, with the bound C_h on the second
            derivatives and the regularisation weight λ.
    """

    covered: Tensor
    regret: Tensor
    bound: Tensor
    printed: Tensor

    @property
    def violations(self) -> int:
        """The number of steps, in all runs together, with the true parameter w* in the client's confidence ball and a
        regret above the smaller of the fields ``bound`` and ``printed``.

        A regret counts as above a bound if it exceeds the bound by more than rounding, a share of 1e-9.
        """
        least = torch.minimum(self.bound, self.printed)
        return int((self.covered & (self.regret > least * _SLACK)).sum())


def one_step(runs: PhaseTwoRuns, curvature: Tensor, line_three: bool = False) -> OneStep:
    """Return the regret of each step of Phase II, and the bounds on it by the lemma "Instantaneous regret".

    Args:
        runs: S runs on a realizable problem, whose true parameter w* is known.
        curvature: The bound C_h on the second derivatives in each run, a tensor (S,).
        line_three: Whether the clients' index was that of line 3 of Algorithm 1, the largest value of the network over
            the confidence ball; if not, it was the first-order index.

    Returns:
        For each of NT steps whether w* was in the client's confidence ball before the pull, the regret, the bound that
        the book proves, and the printed bound, (S, NT) each. Both bounds are 2√β times the width of the pulled arm plus
        a second-order part. The book's part is C_hρ₀² for the first-order index and 2C_h(β/λ + √(β/λ)ρ₀) for line 3,
        and the printed one is 2βC_h/λ, with the squared radius β of the ball, the regularisation weight λ, and the
        distance ρ₀ of w* from the parameter that Phase I has fitted.

    Raises:
        ValueError: The problem has no known w*, ``curvature`` does not have the shape (S,), the start has several ŵ₀ in
            a run, or it was made on a problem with other arms.
        RuntimeError: The matrix Σ of a client's data is not positive definite in float64, because the regularisation
            weight λ is too small for the gradients.
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
    """Return the bound on the regret of Phase II of each of S runs, (S,).

    It is that of item 3 of the repaired theorem (`fedgo.theory.regret.regret_phase_two_clipped`), for any
    regularisation weight λ > 0. No width is above C_g/√λ, with the bound C_g on the gradients of ``runs``.

    If the threshold γ of the runs is ∞, the bound is ∞, or NaN if Λ < 1 or the squared radius β is 0.

    Args:
        runs: The runs.
        value: The bound F ≥ 0 on the absolute mean rewards.
        excess: The second-order part of the regret of each step, one number or one for each run, (S,).
        information: The log-ratio Λ = ln(det Σ/det λI) of the matrix Σ of all pulls, or a bound on it, one number or
            one for each run, (S,); that of the run if it is None.

    Raises:
        ValueError: ``information`` is negative, or ``value`` is and the squared radius β is positive; or
            ``information`` is None, and the start has several ŵ₀ in a run or was made on a problem with other arms.
        OverflowError: ``information`` is infinite.
        RuntimeError: ``excess`` or ``information`` is given for another number of runs, or ``information`` is None, and
            λ is too small for the gradients.
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
