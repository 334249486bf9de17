"""Figures: the book's matplotlib style, a colour and a marker for each algorithm, and the paper's Figures 2 and 3."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.pylabtools import print_figure
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib_inline.backend_inline import set_matplotlib_formats
from torch import Tensor

from fedgo.experiments.roster import ALGORITHMS
from fedgo.experiments.summaries import mean_error
from fedgo.trace import Trace

# The colour and the marker of each algorithm of the paper's comparison, and of the advised setting, on all pages.
STYLES: Mapping[str, tuple[str, str]] = {
    **{name: player.style for name, player in ALGORITHMS.items() if player.style},
    "advised": ("#0A7F5A", "*"),
}
# The width of a figure for a phone in inches, and where it begins in the SVG of the figure for a desktop.
PHONE, FOR_PHONE = 3.7, '<defs class="phone">'
# The number of steps at which a curve is drawn, at most. The steps are closer to each other at first, where the curve
# bends. More steps would make the file of the figure large.
_POINTS = 70


def use_style() -> None:
    """Set the book's matplotlib style (``data/book.mplstyle``) and vector output for the figures of a notebook."""
    plt.style.use(Path(__file__).parent / "data/book.mplstyle")
    set_matplotlib_formats("svg")
    formats: Any = InteractiveShell.instance().display_formatter
    formats.formatters["image/svg+xml"].for_type(Figure, both_widths)


def both_widths(figure: Figure) -> str:
    """Return ``figure`` as SVG; a part of it that is not shown is the same figure in the width of a phone.

    Panels that stand in one row stand below each other on the phone. The extension ``dark`` of the book takes the two
    drawings apart.
    """
    wide: str = print_figure(figure, "svg")
    width, height = figure.get_size_inches()
    grid: Any = figure.axes[0].get_gridspec() if figure.axes else None
    if width <= PHONE or grid is None:
        return wide
    if grid.nrows == 1 < grid.ncols == len(figure.axes):
        below: Any = figure.add_gridspec(grid.ncols, 1)
        height *= 0.8 * grid.ncols
        for axes, place in zip(figure.axes, below, strict=True):
            axes.set_subplotspec(place)
            axes.tick_params(labelleft=True)
    figure.set_size_inches(PHONE, height)
    narrow = print_figure(figure, "svg").partition("<svg")
    return wide.replace("</svg>", f"{FOR_PHONE}<svg{narrow[2]}</defs>\n</svg>")


def plain_ticks(axis: Axis) -> None:
    """Label the ticks of ``axis`` with plain numbers, and the minor ticks not at all.

    The numbers have six significant digits at most, and commas between thousands. Numbers whose absolute value, so
    rounded, is from 0.0001 to below 1,000,000 have no exponent. A logarithmic axis gets ticks at 1, 2 and 5 times the
    powers of ten. But matplotlib sets ticks as on a linear axis if at most one of these numbers is on the axis, and
    none if the axis has more powers of ten than ticks fit on it.
    """
    if axis.get_scale() == "log":
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}".replace("-", "−")))
    axis.set_minor_formatter(NullFormatter())


def mean_and_band(axes: Axes, name: str, values: Tensor) -> None:
    """Draw the mean of ``values`` over S runs against the steps, and a band of two standard errors on each side of it.

    The steps are counted from 1. The curve has at most 70 of them, closer to each other at first, among them the last
    one. Steps whose mean is not positive are left out, because a logarithmic axis has no zero, and the band does not go
    below a hundredth of the mean. Each algorithm has its markers at other steps, so that both of two equal curves are
    visible.

    Args:
        axes: The axes on which to draw.
        name: The name of the algorithm, whose colour, marker and label the curve gets (`STYLES`).
        values: The values, (S, steps).

    Raises:
        KeyError: The algorithm has no style in `STYLES`.
        IndexError: There is no run or no step.
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
    dense: Mapping[str, Mapping[str, Trace]], packed: Mapping[str, Mapping[str, Trace]]
) -> Figure:
    """Draw the paper's Figures 2 and 3: the cumulative regret and the scalars sent up to each step.

    All vertical axes are logarithmic. The axis of the regret begins at a tenth of the smallest final mean regret. The
    two panels of scalars of a problem have the same axis, which begins at a tenth of the smallest final mean of the
    packed messages. An algorithm that sends nothing has no curve in these panels; instead the panel of the matrices has
    the name of the algorithm with the text "none".

    Args:
        dense: The traces, by the title of a problem and then by the name of an algorithm, with messages counted as
            matrices. On each problem at least one algorithm has to send something.
        packed: The same runs with messages counted as counts and sums, at least of the algorithms that send anything.

    Returns:
        A figure with three panels for each problem: the regret, and below it the scalars in matrices and packed.

    Raises:
        KeyError: An algorithm has no style in `STYLES`, or sends something and is not in ``packed``.
        ValueError: There is no problem, or no algorithm sends anything on one of the problems.
        IndexError: The mean regret of an algorithm is 0 at all steps, or an algorithm sends something in ``dense`` and
            nothing in ``packed``.
    """
    rows: list[Any] = []
    for title in dense:
        rows += [[f"{title}, regret"] * 2, [f"{title}, dense", f"{title}, packed"]]
    figure = plt.figure(figsize=(7.2, 4.2 * len(dense) + 0.3))
    axes = figure.subplot_mosaic(rows, height_ratios=[3, 2] * len(dense))
    size = 10
    for title, traces in dense.items():
        regret, matrices, counts = (axes[f"{title}, {what}"] for what in ("regret", "dense", "packed"))
        counts.sharey(matrices)
        labels = {regret: title, matrices: "scalars, in matrices", counts: "scalars, packed"}
        for panel, label in labels.items():
            panel.set_yscale("log")
            panel.set_xlabel("steps", fontsize=size)
            panel.set_title(label, fontsize=size)
            panel.tick_params(labelsize=size - 1)
            panel.locator_params(axis="x", nbins=3)  # with more ticks the numbers of five digits would touch
            plain_ticks(panel.xaxis)
        regret.set_ylabel("cumulative regret", fontsize=size)
        plain_ticks(regret.yaxis)
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
    figure.legend(handles, names, loc="outside upper center", ncols=2, fontsize=size)
    return figure
