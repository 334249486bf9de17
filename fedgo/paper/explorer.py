"""The threshold explorer of the book: regret, scalars and synchronisations over a grid of γ, embedded in a page.

The page's own script (`book/_assets/explore.js`) draws what `explorer` embeds; nothing is asked of a server.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fedgo._checks import require
from fedgo.paper.experiments import ALGORITHMS, Setting, World
from fedgo.paper.figures import STYLES

_POINTS = 60  # of a curve
_ROWS = 5  # runs whose synchronisations are shown


def sweep(within: World, algorithm: str, setting: Setting, gammas: Sequence[float]) -> dict[str, Any]:
    """What one algorithm does on one problem for every threshold: mean curves over the runs, and sync times of five."""
    require(len(gammas) >= 1, "gammas", gammas, "give at least one threshold γ")
    traces = [ALGORITHMS[algorithm].run(within, {**setting, "gamma": gamma}) for gamma in gammas]
    steps = traces[0].regret.shape[1]
    at = torch.linspace(0, steps - 1, _POINTS).round().long()
    rows = [
        {
            "regret": [float(f"{v:.4g}") for v in trace.cumulative_regret[:, at].mean(0).tolist()],
            "sent": [float(f"{v:.4g}") for v in trace.communication[:, at].double().mean(0).tolist()],
            "syncs": [(run.nonzero().flatten() + 1).tolist() for run in trace.sync[:_ROWS]],
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


def explorer(problems: Mapping[str, Mapping[str, Any]], gammas: Sequence[float], first: float) -> str:
    """HTML with the sweeps of every problem and algorithm, all over ``gammas``; γ = ``first`` is shown first."""
    require(first in gammas, "first", first, f"choose one of the thresholds {tuple(gammas)}")
    data = {
        "gammas": ["∞" if gamma == float("inf") else f"{gamma:g}" for gamma in gammas],
        "first": list(gammas).index(first),
        "problems": problems,
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    return f'<div class="explore" hidden><script type="application/json">{text}</script></div>'
