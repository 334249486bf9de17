"""Figures: one matplotlib style, one colour and marker per algorithm, traces drawn as mean ± standard error.

`number` prints what is too large or too small for plain digits.
"""

import math
from collections.abc import Iterable, Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from fedgo.paper.summaries import mean_error
from fedgo.trace import Trace

# Colours that are seen on white and in the dark (contrast 3 with both grounds) and remain apart for colour-blind
# readers; the marker says the same without colour. The two greys turn lighter and darker in the dark.
STYLES: Mapping[str, tuple[str, str]] = {
    "Fed-GO-UCB": ("#D55E00", "o"),
    "One-GO-UCB": ("#0072B2", "s"),
    "N-GO-UCB": ("#5A965A", "^"),
    "DisLinUCB": ("#C31E6E", "v"),
    "Fed-GLB-UCB": ("#825F1E", "P"),
    "ApproxDisKernelUCB": ("#05A0C8", "X"),
    "Kernel UCB, at once": ("#AA5AE1", "*"),
    "UCB1, shared": ("#444444", "d"),
    "Uniform": ("#888888", "."),
}
_FALLBACK = ("#000000", ">")
_POINTS = 400  # steps drawn of a curve; more make the file large and look the same


def use_style() -> None:
    """Set the book's matplotlib style: vector output, legible at the width of a phone."""
    plt.rcParams.update(
        {
            "figure.figsize": (7, 3.2),
            "figure.constrained_layout.use": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.3,
            "font.size": 11,
            "legend.frameon": False,
            "lines.linewidth": 1.6,
            "svg.fonttype": "path",
            "svg.hashsalt": "fedgo",
        }
    )
    try:
        from matplotlib_inline.backend_inline import set_matplotlib_formats
    except ImportError:  # outside a notebook there is no inline back end to set
        return
    set_matplotlib_formats("svg")


def band(axes: Axes, name: str, values: Tensor) -> None:
    """Mean ± standard error over the runs of ``values`` (S, steps), drawn from step 1 on."""
    colour, marker = STYLES.get(name, _FALLBACK)
    drawn = np.unique(np.linspace(0, values.shape[1] - 1, _POINTS).round().astype(int))
    steps = 1 + drawn
    mean, error = (part[drawn] for part in mean_error(values))
    # every algorithm's markers have places of their own, so that no curve quite hides another that it lies on
    turn = 4 * list(STYLES).index(name) % len(STYLES) if name in STYLES else 0
    axes.plot(
        steps,
        mean,
        color=colour,
        marker=marker,
        markevery=(0.1 * turn / len(STYLES), 0.1),
        markersize=5,
        label=name,
    )
    axes.fill_between(steps, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)


def number(value: float, digits: int = 2) -> str:
    """``value`` for a table or a sentence: plain from 0.001 to 99,999, else as TeX, a·10ᵇ, with ``digits`` digits."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return r"$\infty$" if value > 0 else r"$-\infty$"
    if value == 0:
        return "0"
    leading, exponent = f"{value:.{digits - 1}e}".split("e")
    power = int(exponent)
    if -3 <= power < 5:
        return f"{value:,.{max(digits - 1 - power, 0)}f}".replace("-", "−")
    return f"$10^{{{power}}}$" if leading == "1" else rf"${leading}\cdot10^{{{power}}}$"


def regret_and_communication(rows: Mapping[str, Iterable[Trace]]) -> Figure:
    """The layout of the paper's Figures 2 and 3: a row per problem, regret left, communication right."""
    figure, grid = plt.subplots(len(rows), 2, figsize=(8, 3.1 * len(rows)), squeeze=False)
    for (title, traces), (left, right) in zip(rows.items(), grid, strict=True):
        sent = []
        for trace in traces:
            band(left, trace.algorithm, trace.cumulative_regret)
            band(right, trace.algorithm, trace.communication)
            sent += trace.communication[:, -1].tolist()
        # logarithmic above the smallest total, so that an algorithm that sends nothing has its line at 0
        least = 10.0 ** np.floor(np.log10(min([total for total in sent if total > 0], default=1)))
        left.set(title=title, xlabel="steps", ylabel="cumulative regret")
        right.set(title=title, xlabel="steps", ylabel="scalars sent")
        right.set_yscale("symlog", linthresh=least)
        right.set_ylim(bottom=-0.1 * least)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
