"""Explorers for the pages: interactive figures, whose data are embedded in a page and drawn there by a script.

``threshold.js``, ``budget.js`` and ``trigger.js`` in ``book/_assets`` draw one explorer each, and share ``plot.js``.
The page needs no server. The data are dictionaries that JSON can hold, with numbers of four significant digits; steps
are counted from 1, Phase I included.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from matplotlib.colors import LinearSegmentedColormap, to_hex
from torch import Tensor

from fedgo._checks import require
from fedgo.experiments.roster import ALGORITHMS
from fedgo.experiments.world import Setting, World
from fedgo.pages.figures import STYLES
from fedgo.phase_one import Start
from fedgo.phase_two import Settings
from fedgo.theory.replay import replay
from fedgo.trace import Trace

_CURVE_POINTS = 60  # the number of steps at which a curve is drawn, at most
_SHOWN_RUNS = 5  # the number of runs whose synchronisations are shown
_BEST_TO_WORST = LinearSegmentedColormap.from_list("loss", ["#0072B2", "#D55E00"])


def sweep(within: World, algorithm: str, setting: Setting, gammas: Sequence[float]) -> dict[str, Any]:
    """Return the results of an algorithm on a problem for several thresholds γ, for the explorer "threshold".

    Args:
        within: The problem with its runs, N clients and T rounds.
        algorithm: The name of an algorithm in `fedgo.experiments.roster.ALGORITHMS`.
        setting: Its setting, whose γ is replaced.
        gammas: The thresholds γ, at least one.

    Returns:
        The ``colour``, the steps of ``phase_one``, the number of ``runs``, at most 60 ``steps``, about evenly spaced on
        a logarithmic axis, and a ``sweep`` with, for each γ, the mean cumulative ``regret`` at these steps, the mean
        scalars ``sent``, the steps ``syncs`` of synchronisations in each of the first five runs, and their mean
        ``count``.
    """
    traces = [ALGORITHMS[algorithm].play(within, {**setting, "gamma": gamma}) for gamma in gammas]
    steps = traces[0].regret.shape[1]
    at = torch.logspace(0, math.log10(steps), _CURVE_POINTS).round().long().unique() - 1
    rows = [
        {
            "regret": _short(trace.cumulative_regret[:, at].mean(0)),
            "sent": trace.communication[:, -1].double().mean().item(),
            "syncs": [(run.nonzero().flatten() + 1).tolist() for run in trace.sync[:_SHOWN_RUNS]],
            "count": trace.sync.sum(1).double().mean().item(),
        }
        for trace in traces
    ]
    return {
        "colour": STYLES[algorithm][0],
        "phase_one": traces[0].phase_one,
        "runs": len(traces[0].arm),
        "steps": (at + 1).tolist(),
        "sweep": rows,
    }


def scene(start: Start, trace: Trace, settings: Settings, first: int, last: int) -> dict[str, Any]:
    """Return some steps of Phase II of the first run of ``trace``, for the explorer "trigger".

    Args:
        start: The result of Phase I from which the trace was made.
        trace: The trace of both phases.
        settings: The settings with which the trace was made.
        first: The first step of Phase II that is shown, counted from 0: 0, or one right after a synchronisation.
        last: The step after the last one.

    Returns:
        The threshold ``gamma``, the number of ``clients`` and the ``first`` step. For each step the pulled ``arm`` and
        the ``level``: the left side of line 6 of Algorithm 1, the client's pulls since the last synchronisation times
        ln(det Σ/det(Σ − ΔΣ)). The positions of the steps that synchronise, ``fires``. For each arm the regret ``loss``
        of a pull and its place in ``colours``, from blue (no regret) to red (the most).
    """
    trace, start = trace.first(1), replace(start, problem=start.problem.only(0), w0=start.w0[:1])
    sync = trace.sync[0, trace.phase_one :]
    require(first == 0 or bool(sync[first - 1]), "first", first, "give 0 or a step after a synchronisation")
    window = slice(first, last)
    seen = replay(start, trace, settings.lam)
    loss = start.problem.means[0].max() - start.problem.means[0]
    return {
        "gamma": settings.gamma,
        "clients": trace.clients,
        "first": first + 1,
        "arm": trace.arm[0, trace.phase_one :][window].tolist(),
        "level": _short((seen.since * seen.gain)[0, window]),
        "fires": sync[window].nonzero().flatten().tolist(),
        "loss": _short(loss),
        "colours": [to_hex(_BEST_TO_WORST(share)) for share in (loss / loss.max()).tolist()],
    }


def threshold(gamma: float) -> str:
    """Return a threshold γ as text, "∞" for infinity."""
    return "∞" if math.isinf(gamma) else f"{gamma:g}"


def _short(values: Tensor) -> list[float]:
    """Return the entries of ``values`` with four significant digits."""
    return [float(f"{value:.4g}") for value in values.tolist()]


def explorer(kind: str, figure: str, **data: Any) -> str:
    """Return the HTML of an explorer, with the data that its script draws.

    Args:
        kind: Which explorer it is, "threshold", "budget" or "trigger".
        figure: The label of the figure that is shown instead if scripts do not run.
        data: Finite numbers, by name. For "threshold": the texts ``gammas``, the position ``first`` of the one shown
            first, and the results of `sweep` as ``problems``, by problem and algorithm. For "trigger": the results of
            `scene` as ``scenes``, by title. For "budget": as ``problems``, by problem and algorithm, a ``colour`` and
            ``offers``, each with ``gamma`` (a text), the mean final ``regret``, its ``error`` and the scalars ``dense``
            and ``packed``.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    return (
        f'<div class="explore" data-kind="{kind}" data-figure="{figure}" hidden>'
        f'<script type="application/json">{text}</script></div>'
    )
