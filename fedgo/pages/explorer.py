"""Explorers for the pages: interactive figures, whose data are embedded in a page and drawn there by a script.

``threshold.js``, ``budget.js`` and ``trigger.js`` in ``book/_assets`` draw one explorer each, and share ``plot.js``.
The page needs no server.
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
        A dictionary that JSON can hold. It has the algorithm's ``colour``, the number of steps of ``phase_one``, the
        number of ``runs``, and at most 60 ``steps``, which are about evenly spaced on a logarithmic axis. Its
        ``sweep`` is a list with a dictionary for each γ: the mean cumulative ``regret`` at these steps, rounded to four
        significant digits, the mean number ``sent`` of all scalars, the steps ``syncs`` of the synchronisations, a list
        for each of the first five runs, and the mean ``count`` of synchronisations. Steps are counted from 1, Phase I
        included.

    Raises:
        KeyError: The algorithm is unknown, or the setting lacks an entry that it needs.
        ValueError: A value of the setting or a threshold is out of range, or the fit of Phase I fails.
        TypeError: The setting has an entry that the algorithm does not know, or a value of another kind.
        IndexError: There is no threshold.
    """
    traces = [ALGORITHMS[algorithm].run(within, {**setting, "gamma": gamma}) for gamma in gammas]
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
        settings: The settings with which the trace was made, of which λ and the threshold γ are used.
        first: The first step of Phase II that is shown, counted from 0; it is 0 or follows right after a
            synchronisation.
        last: The step after the last one that is shown, counted in the same way. The scene ends earlier if Phase II
            does.

    Returns:
        A dictionary that JSON can hold. It has the threshold ``gamma``, the number of ``clients``, and ``first``, the
        first shown step of Phase II counted from 1. For each shown step it has the number ``arm`` of the pulled arm and
        the ``level``: the left side of line 6 of Algorithm 1, which is the number of the client's pulls since the last
        synchronisation, this one included, times the log-ratio ln(det Σ/det(Σ − ΔΣ)). Σ is the matrix of the client's
        data and ΔΣ the part of Σ from these pulls. ``fires`` has the positions, from 0, of those shown steps that
        synchronise. For each arm it has the regret ``loss`` of a pull, and one of the ``colours`` from blue (no regret)
        to red (the most); all are black if all arms have the same mean reward. Levels and losses are rounded to four
        significant digits.

    Raises:
        ValueError: ``first`` is neither 0 nor a step right after a synchronisation, λ is not positive, or the first run
            of ``start`` has several ŵ₀.
        IndexError: Phase II has no step before ``first``.
        RuntimeError: λ is too small for the gradients.
    """
    trace, start = trace.first(1), replace(start, problem=start.problem.only(0), w0=start.w0[:1])
    sync = trace.sync[0, trace.phase_one :]
    require(first == 0 or bool(sync[first - 1]), "first", first, "give 0 or a step after a synchronisation")
    window = slice(first, last)
    seen = replay(start, start.problem.arms, trace, settings.lam)
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
    """Return the threshold γ = ``gamma`` ≥ 0 as text, with six significant digits at most, and "∞" for infinity."""
    return "∞" if math.isinf(gamma) else f"{gamma:g}"


def _short(values: Tensor) -> list[float]:
    """Return the entries of the one-dimensional ``values`` as a list, rounded to four significant digits."""
    return [float(f"{value:.4g}") for value in values.tolist()]


def explorer(kind: str, figure: str, **data: Any) -> str:
    """Return the HTML of an explorer, with the data that its script draws.

    Args:
        kind: Which explorer it is, "threshold", "budget" or "trigger". It is not checked.
        figure: The label of the figure that is shown instead if scripts do not run.
        data: The data by name, of types that JSON can hold. Numbers have to be finite, which is not checked, because
            the page cannot read others. The data are for "threshold" the thresholds as texts ``gammas``, the
            position ``first`` of the one shown first, and as ``problems`` the results of `sweep` by problem and
            algorithm; for "trigger" as ``scenes`` the results of `scene` by title; for "budget" as ``problems``, by
            problem and algorithm, a ``colour`` and the ``offers``, a list with ``gamma`` (a text), the mean final
            ``regret``, its ``error`` and the scalars ``dense`` and ``packed`` of each.

    Raises:
        TypeError: A value is of a type that JSON cannot hold.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    return (
        f'<div class="explore" data-kind="{kind}" data-figure="{figure}" hidden>'
        f'<script type="application/json">{text}</script></div>'
    )
