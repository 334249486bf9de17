"""Figures: one matplotlib style, one colour and marker per algorithm, and those drawn both wide and narrow."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib_inline.backend_inline import set_matplotlib_formats
from torch import Tensor

from fedgo.experiments.roster import ALGORITHMS
from fedgo.experiments.summaries import interval, mean_error
from fedgo.trace import Trace

# Of the paper's comparison, and of what the book advises instead: the same colours on every page.
STYLES: Mapping[str, tuple[str, str]] = {
    **{name: player.style for name, player in ALGORITHMS.items() if player.style},
    "advised": ("#0A7F5A", "*"),
}
_FALLBACK = ("#000000", "p")
_POINTS = 70  # steps at which a curve is drawn, closer at first, where it bends; more make the file large


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
    set_matplotlib_formats("svg")


def plain_ticks(axis: Axis) -> None:
    """Number ``axis`` in digits, as in text; a logarithmic one at 1, 2 and 5 times powers of ten and nowhere else."""
    if axis.get_scale() == "log":
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}".replace("-", "−")))
    axis.set_minor_formatter(NullFormatter())


def mean_and_band(axes: Axes, name: str, values: Tensor) -> None:
    """Draw the mean of ``values`` (S, steps) over the runs, and a band of two standard errors on each side of it.

    The curve has the colour, the marker and the label of the algorithm ``name``. It begins at the first step whose mean
    is positive, since a logarithmic axis has no zero; for the same reason a band does not go below a hundredth of the
    mean. Where two curves lie on each other both are seen, since every algorithm has its markers at other steps.
    """
    colour, marker = STYLES[name]
    steps = np.unique(((values.shape[1] - 1) * np.linspace(0, 1, _POINTS) ** 2).round().astype(int))
    mean, error = mean_error(values[:, steps])
    steps, mean, error = 1 + steps[mean > 0], mean[mean > 0], error[mean > 0]
    every = (0.2 * [*STYLES].index(name) / len(STYLES), 0.2)
    axes.plot(steps, mean, color=colour, marker=marker, markevery=every, markersize=5, label=name)
    low, high = np.maximum(mean - 2 * error, mean / 100), mean + 2 * error
    axes.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)


def regret_and_communication(
    dense: Mapping[str, Mapping[str, Trace]], packed: Mapping[str, Mapping[str, Trace]], narrow: bool = False
) -> Figure:
    """Draw the paper's Figures 2 and 3: the cumulative regret and the scalars sent until every step.

    All vertical axes are logarithmic and begin at a tenth of the smallest final mean; the two panels of scalars of a
    problem have the same axis. An algorithm that sends nothing has no curve there, and is named in words.

    Args:
        dense: the traces by problem and algorithm, with scalars counted as the paper does, in matrices.
        packed: the same runs with packed messages, at least of those algorithms that send anything.
        narrow: draw for a phone, with the regret above the two panels of scalars instead of beside them.

    Returns:
        A figure with three panels for each problem: the regret, the scalars in matrices, and the scalars packed.
    """
    rows: list[Any] = [[f"{title}, {what}" for what in ("regret", "dense", "packed")] for title in dense]
    if narrow:
        rows = [row for regret, *bills in rows for row in ([regret, regret], bills)]
    height = len(dense) * (3.9 if narrow else 2.6) + 0.3
    figure = plt.figure(figsize=(3.6 if narrow else 7.2, height))
    axes = figure.subplot_mosaic(rows)
    size = 9 if narrow else 10
    for title, traces in dense.items():
        regret, matrices, counts = (axes[f"{title}, {what}"] for what in ("regret", "dense", "packed"))
        counts.sharey(matrices)
        labels = {regret: title, matrices: "scalars, in matrices", counts: "scalars, packed"}
        for panel, label in labels.items():
            panel.set_yscale("log")
            panel.set_xlabel("steps", fontsize=size)
            panel.set_title(label, fontsize=size)
            panel.tick_params(labelsize=size - 1)
            panel.locator_params(axis="x", nbins=3)  # more numbers of five digits would touch
            plain_ticks(panel.xaxis)
        regret.set_ylabel("cumulative regret", fontsize=size)
        plain_ticks(regret.yaxis)
        counts.tick_params(labelleft=False)
        for name, trace in traces.items():
            mean_and_band(regret, name, trace.cumulative_regret)
            if trace.communication.any():
                mean_and_band(matrices, name, trace.communication)
                mean_and_band(counts, name, packed[title][name].communication)
            else:
                note, place = f"{name}: none", matrices.transAxes
                matrices.text(0.97, 0.03, note, ha="right", fontsize=size - 1, transform=place)
        for panel in (regret, counts):
            panel.set_ylim(bottom=min(float(np.asarray(line.get_ydata())[-1]) for line in panel.lines) / 10)
    handles, names = regret.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=2 if narrow else 3, fontsize=size)
    return figure


class Outcome(NamedTuple):
    """What an algorithm got and paid on one problem: its final ``regret`` (S,), and its mean bills in scalars."""

    regret: Tensor
    dense: float
    packed: float


def regret_against_scalars(outcomes: Mapping[str, Outcome], uniform: float, narrow: bool = False) -> Figure:
    """Final regret over scalars sent, both logarithmic, every algorithm by its colour, its marker and its name.

    Filled at the mean regret, with its 95 % interval, and the dense bill; an arrow leads to the packed bill, hollow,
    where that is another. A dotted line is the regret of ``uniform`` play. ``narrow`` is for a phone.
    """
    figure, axes = plt.subplots(figsize=(3.6, 3.8) if narrow else (7.2, 4.2))
    size = 9 if narrow else 11
    text: Any = {"textcoords": "offset points", "ha": "center", "va": "center", "fontsize": size}
    lowest = min(outcomes.values(), key=lambda each: float(each.regret.mean()))
    for name, each in outcomes.items():
        colour, marker = STYLES.get(name, _FALLBACK)
        mean, low, high = interval(np.mean, each.regret.numpy())
        ends = {each.dense: colour} | {each.packed: "white"}  # one and hollow where the bills are equal
        arrow: Any = {"arrowstyle": "->", "color": colour, "linewidth": 1.6, "shrinkB": 0.6 * size}
        axes.annotate("", (each.packed, mean), (each.dense, mean), arrowprops=arrow)
        for bill, filling in ends.items():
            axes.plot([bill] * 2, [low, high], color=colour)
            axes.plot(bill, mean, marker, color=colour, markerfacecolor=filling, markersize=size, zorder=3)
        below = each is lowest or float(mean) > uniform / 3  # no name on the line of uniform play
        side = -1.4 if below else 1.4
        axes.annotate(name, (math.sqrt(each.dense * each.packed), mean), (0, side * size), **text)
    axes.axhline(uniform, color="0.4", linestyle=":")
    right: Any = {**text, "ha": "right", "xycoords": axes.get_yaxis_transform()}
    axes.annotate("uniform play", (1, uniform), (0, -0.9 * size), **right)
    axes.set(xscale="log", yscale="log", xlabel="scalars sent", ylabel="final regret")
    axes.set_title("lower left is better; arrows: the same, packed", fontsize=size)
    plain_ticks(axes.yaxis)
    axes.margins(x=0.12, y=0.14)
    return figure
